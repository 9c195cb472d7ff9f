// Device functions of running sums that the threads of a block share. The rules of prelude.cuh hold, whose continuation this is.

// `value` of another lane of the warp.
template <class V>
static __device__ __forceinline__ V hd_from_lane(V value, int lane) {
  unsigned int words[(sizeof(V) + 3) / 4];
  words[(sizeof(V) - 1) / 4] = 0;
  memcpy(words, &value, sizeof(V));
  for (unsigned int k = 0; k < (sizeof(V) + 3) / 4; ++k) words[k] = __shfl_sync(0xffffffffu, words[k], lane);
  memcpy(&value, words, sizeof(V));
  return value;
}

// The sum of the lanes before this one; `total` becomes that of all.
template <class V>
static __device__ __forceinline__ V hd_warp_before(V& total) {
  V before = (V)0;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const V other = hd_exchange(total, distance);
    if ((threadIdx.x & distance) != 0) before = hd_add(other, before);
    total = hd_add(total, other);
  }
  return before;
}

// Of each chunk the sum of what comes before: all chunks of a lower number, and that one of threads of a lower number. `scratch` is
// shared memory for 32 values. All threads of the block. @return the sum of all.
template <int warps, int chunks, class V>
static __device__ __forceinline__ V hd_block_before(V (&sums)[chunks], void* scratch) {
  V* const partial = (V*)scratch;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __syncthreads();
#pragma unroll
  for (int k = 0; k < chunks; ++k) {
    V total = sums[k];
    sums[k] = hd_warp_before(total);
    if (lane == 0) partial[k * warps + warp] = total;
  }
  __syncthreads();
  V all = lane < chunks * warps ? partial[lane] : (V)0;
  const V before = hd_warp_before(all);
#pragma unroll
  for (int k = 0; k < chunks; ++k) sums[k] = hd_add(hd_from_lane(before, k * warps + warp), sums[k]);
  return all;
}

// Chunks of a tile, of which `left` elements are there: chunk k of thread t has those from (k * threads + t) * width on. `exact`: all
// are there.
template <int threads, bool exact, class T, int width, int chunks>
static __device__ __forceinline__ void hd_load_tile(hd_lanes<T, width> (&tile)[chunks], const T* from,
                                                    long long left) {
  const bool aligned = hd_is_aligned<alignof(hd_lanes<T, width>)>((unsigned long long)from);
#pragma unroll
  for (int k = 0; k < chunks; ++k) {
    const int first = (k * threads + (int)threadIdx.x) * width;
    if (aligned && (exact || first + width <= left)) {
      tile[k] = *(const hd_lanes<T, width>*)(from + first);
    } else {
      for (int lane = 0; lane < width; ++lane)
        if (exact || first + lane < left) tile[k].at[lane] = from[first + lane];
    }
  }
}

template <bool exact, class T, int width>
static __device__ __forceinline__ void hd_store_part(T* to, const hd_lanes<T, width>& lanes, long long left) {
  if (hd_is_aligned<alignof(hd_lanes<T, width>)>((unsigned long long)to) && (exact || width <= left)) {
    hd_store(to, lanes);
  } else {
    for (int lane = 0; lane < width; ++lane)
      if (exact || lane < left) to[lane] = lanes.at[lane];
  }
}
