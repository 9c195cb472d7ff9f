// Device functions of attention of f32, which no tensor core multiplies exactly. The rules of prelude.cuh hold, whose
// continuation this is.

static __device__ __forceinline__ void hd_read_four(float* out, const float* at) {
  const hd_sixteen all = *(const hd_sixteen*)at;
  memcpy(out, &all, 16);
}

// How a block attends: as hd_attention_tile, whose functions these are, but that a thread multiplies by itself and queries
// stay in shared memory. 16 neighbouring threads have four queries, of which each has every 16th key's scores and some columns'
// sums; weights come to those threads through shared memory.
template <int depth, int columns, int tile_rows>
struct hd_plain_attention_tile {
  static constexpr int rows = tile_rows;
  static constexpr int keys = 64;
  static constexpr int threads = 4 * rows;
  static constexpr int key_pitch = depth / 4 + 1;
  static constexpr int value_pitch = columns / 4 + 1;
  static constexpr int weight_pitch = keys / 4 + 1;
  static constexpr int key_pieces = depth / 4;
  static constexpr int value_pieces = columns / 4;
  static constexpr int values_at = keys * key_pitch;
  static constexpr int stage_size = values_at + keys * value_pitch;
  static constexpr int stages = 2;
  static constexpr int queries_at = stages * stage_size;
  static constexpr int weights_at = queries_at + rows * key_pitch;
  static constexpr int thread_rows = 4;
  static constexpr int thread_keys = keys / 16;
  static constexpr int thread_columns = columns / 16;
  static constexpr int beside = columns % 64 == 0 ? 4 : columns % 32 == 0 ? 2 : 1;  // columns of a thread
  static constexpr int line = columns + 4;  // of the sums
  static constexpr int total_at = rows * line;
  static constexpr int largest_at = total_at + rows;
  float scores[thread_rows][thread_keys];
  float sums[thread_rows][thread_columns];
  float largest[thread_rows];
  float totals[thread_rows];  // of the thread's own keys
  static __device__ __forceinline__ int row(int r) { return (int)threadIdx.x / 16 * thread_rows + r; }
  static __device__ __forceinline__ int key(int c) { return (int)threadIdx.x % 16 + 16 * c; }
  static __device__ __forceinline__ int column(int n) {
    return n / beside * 16 * beside + (int)threadIdx.x % 16 * beside + n % beside;
  }
  __device__ __forceinline__ float& score(int r, int c) { return scores[r][c]; }
  // With one more between lines: eight lines' pieces of one column then lie in all 32 banks.
  template <int lines, int pieces>
  static constexpr __device__ __forceinline__ int place(int line, int piece) {
    return line * (pieces + 1) + piece;
  }
  __device__ __forceinline__ void scale(float factor) {
#pragma unroll
    for (int r = 0; r < thread_rows; ++r) {
#pragma unroll
      for (int c = 0; c < thread_keys; ++c) scores[r][c] *= factor;
    }
  }
  __device__ __forceinline__ void start(const unsigned char*) {
#pragma unroll
    for (int r = 0; r < thread_rows; ++r) {
      largest[r] = -hd_infinity();
      totals[r] = 0.0f;
#pragma unroll
      for (int n = 0; n < thread_columns; ++n) sums[r][n] = 0.0f;
    }
  }
  static __device__ __forceinline__ void arrive() {
    hd_copy_wait<0>();
    __syncthreads();
  }
  __device__ __forceinline__ void multiply_keys(const unsigned char* shared, long long number) {
    const float* const lines = (const float*)((const hd_sixteen*)shared + (int)(number & 1) * stage_size);
    const float* const queries = (const float*)((const hd_sixteen*)shared + queries_at);
#pragma unroll
    for (int r = 0; r < thread_rows; ++r) {
#pragma unroll
      for (int c = 0; c < thread_keys; ++c) scores[r][c] = 0.0f;
    }
#pragma unroll 2
    for (int d = 0; d < depth; d += 4) {
      float q[thread_rows][4];
#pragma unroll
      for (int r = 0; r < thread_rows; ++r) hd_read_four(q[r], queries + row(r) * (4 * key_pitch) + d);
#pragma unroll
      for (int c = 0; c < thread_keys; ++c) {
        float k[4];
        hd_read_four(k, lines + key(c) * (4 * key_pitch) + d);
#pragma unroll
        for (int r = 0; r < thread_rows; ++r) {
#pragma unroll
          for (int e = 0; e < 4; ++e) scores[r][c] += q[r][e] * k[e];
        }
      }
    }
  }
  __device__ __forceinline__ void weigh() {
#pragma unroll
    for (int r = 0; r < thread_rows; ++r) {
      float most = scores[r][0];
#pragma unroll
      for (int c = 1; c < thread_keys; ++c) most = fmaxf(most, scores[r][c]);
#pragma unroll
      for (int distance = 1; distance < 16; distance *= 2) most = fmaxf(most, hd_exchange(most, distance));
      const float now = fmaxf(largest[r], most);
      // Rows that saw nothing yet: -inf - -inf would be NaN.
      const float shift = now == -hd_infinity() ? 0.0f : now;
      const float rescale = hd_exp2(largest[r] - shift);
      float total = 0.0f;
#pragma unroll
      for (int c = 0; c < thread_keys; ++c) {
        scores[r][c] = hd_exp2(scores[r][c] - shift);
        total += scores[r][c];
      }
      largest[r] = now;
      totals[r] = totals[r] * rescale + total;
#pragma unroll
      for (int n = 0; n < thread_columns; ++n) sums[r][n] *= rescale;
    }
  }
  // sums += weights . values of tile `number`
  __device__ __forceinline__ void multiply_values(unsigned char* shared, long long number) {
    const float* const lines =
        (const float*)((const hd_sixteen*)shared + (int)(number & 1) * stage_size + keys * key_pitch);
    float* const weights = (float*)((hd_sixteen*)shared + weights_at);
#pragma unroll
    for (int r = 0; r < thread_rows; ++r) {
#pragma unroll
      for (int c = 0; c < thread_keys; ++c) weights[row(r) * (4 * weight_pitch) + key(c)] = scores[r][c];
    }
    __syncthreads();
#pragma unroll 2
    for (int k = 0; k < keys; k += 4) {
      float w[thread_rows][4];
#pragma unroll
      for (int r = 0; r < thread_rows; ++r) hd_read_four(w[r], weights + row(r) * (4 * weight_pitch) + k);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
#pragma unroll
        for (int n = 0; n < thread_columns; n += beside) {
          const hd_lanes<float, beside> v =
              *(const hd_lanes<float, beside>*)(lines + (k + e) * (4 * value_pitch) + column(n));
#pragma unroll
          for (int b = 0; b < beside; ++b) {
#pragma unroll
            for (int r = 0; r < thread_rows; ++r) sums[r][n + b] += w[r][e] * v.at[b];
          }
        }
      }
    }
  }
  __device__ __forceinline__ float* finish(unsigned char* shared) {
    arrive();
    float* const out = (float*)shared;
#pragma unroll
    for (int r = 0; r < thread_rows; ++r) {
      float total = totals[r];
#pragma unroll
      for (int distance = 1; distance < 16; distance *= 2) total += hd_exchange(total, distance);
      if (threadIdx.x % 16 == 0) {
        out[total_at + row(r)] = total;
        out[largest_at + row(r)] = largest[r];
      }
#pragma unroll
      for (int n = 0; n < thread_columns; ++n) out[row(r) * line + column(n)] = sums[r][n];
    }
    __syncthreads();
    return out;
  }
};
