// Device functions of rows that stay in registers. The rules of prelude.cuh hold, whose continuation this is.

// Neighbours that lie where all of them are moved at once, or anywhere. Which of these is asked once in a kernel: if each access
// asked, the compiler would select from both ways element by element.
template <class T, int count, bool aligned>
static __device__ __forceinline__ hd_lanes<T, count> hd_load_lanes(const T* from) {
  if constexpr (aligned) {
    hd_lanes<T, count> lanes = *(const hd_lanes<T, count>*)from;
#ifdef HEDDLE_CUDA_SIM
    asm("" : "+m"(lanes));  // a host's compiler would read one by one
#endif
    return lanes;
  } else {
    hd_lanes<T, count> lanes;
#pragma unroll
    for (int lane = 0; lane < count; ++lane) lanes.at[lane] = from[lane];
    return lanes;
  }
}
template <bool aligned, class T, int count>
static __device__ __forceinline__ void hd_store_lanes(T* to, const hd_lanes<T, count>& lanes) {
  if constexpr (aligned) {
    hd_store(to, lanes);
  } else {
#pragma unroll
    for (int lane = 0; lane < count; ++lane) to[lane] = lanes.at[lane];
  }
}

// A row of `count` elements into the registers of `threads` threads: chunk k of thread t has those from (k * threads + t) * width on.
template <int threads, int count, bool aligned, class T, int width, int chunks>
static __device__ __forceinline__ void hd_load_row(hd_lanes<T, width> (&row)[chunks], const T* from) {
#pragma unroll
  for (int k = 0; k < chunks; ++k) {
    const int first = (k * threads + (int)threadIdx.x) * width;
    if (count == threads * width * chunks || first < count)
      row[k] = hd_load_lanes<T, width, aligned>(from + first);
  }
}

// hd_block_reduce() for a block of so many warps, which meets once: nobody comes to this scratch again before another barrier, or all
// wait for each other `first`.
template <class Op, int warps, bool first, class V>
static __device__ __forceinline__ V hd_block_total(V value, void* scratch) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    value = Op::combine(value, hd_exchange(value, distance));
  V* partial = (V*)scratch;
  if (first) __syncthreads();
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  V total = partial[0];
#pragma unroll
  for (int warp = 1; warp < warps; ++warp) total = Op::combine(total, partial[warp]);
  return total;
}
