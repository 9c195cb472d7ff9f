// Device functions of matrices of bytes that stand for numbers, which are made of them on their way into a product. The rules
// of prelude.cuh hold, whose continuation this is.

// Two numbers rounded to 16 bits each, the first in the lower half of the word.
#ifndef HEDDLE_CUDA_SIM
static __device__ __forceinline__ unsigned int hd_pack_f16(float low, float high) {
  unsigned int word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
static __device__ __forceinline__ unsigned int hd_pack_bf16(float low, float high) {
  unsigned int word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
#endif

static __device__ __forceinline__ unsigned int hd_pack(float low, float high, hd_f16) {
  return hd_pack_f16(low, high);
}
static __device__ __forceinline__ unsigned int hd_pack(float low, float high, hd_bf16) {
  return hd_pack_bf16(low, high);
}

// What is stored as a float, exactly.
static __device__ __forceinline__ float hd_number(hd_f16 stored) { return hd_widen(stored); }
static __device__ __forceinline__ float hd_number(hd_bf16 stored) { return hd_widen(stored); }
static __device__ __forceinline__ float hd_number(float stored) { return stored; }
static __device__ __forceinline__ float hd_number(int stored) { return (float)stored; }
static __device__ __forceinline__ float hd_number(signed char stored) { return (float)(int)stored; }
static __device__ __forceinline__ float hd_number(unsigned char stored) { return (float)(int)stored; }

// To numbers that T holds.
static __device__ __forceinline__ float hd_rounded(float value, hd_f16) { return hd_round_f16(value); }
static __device__ __forceinline__ float hd_rounded(float value, hd_bf16) { return hd_round_bf16(value); }
static __device__ __forceinline__ float hd_rounded(float value, float) { return value; }

// Two of them, by one conversion where the device has it.
static __device__ __forceinline__ void hd_round_pair(float* pair, float) {}
template <class T>
static __device__ __forceinline__ void hd_round_pair(float* pair, T) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  pair[0] = hd_rounded(pair[0], T());
  pair[1] = hd_rounded(pair[1], T());
#else
  const unsigned int word = hd_pack(pair[0], pair[1], T());
  T stored;
  stored.bits = (unsigned short)word;
  pair[0] = hd_widen(stored);
  stored.bits = (unsigned short)(word >> 16);
  pair[1] = hd_widen(stored);
#endif
}

// Stands for zero points that are not there.
struct hd_nothing {};

// `count` numbers that lie `stride` apart, 0 from `valid` on, at least one being there.
template <int count>
static __device__ __forceinline__ void hd_read_numbers(float* out, const hd_nothing*, long long, int) {
#pragma unroll
  for (int k = 0; k < count; ++k) out[k] = 0.0f;
}
template <int count, class S>
static __device__ __forceinline__ void hd_read_numbers(float* out, const S* at, long long stride, int valid) {
  typedef hd_lanes<S, count> Lanes;
  if (stride == 1 && valid >= count && ((unsigned long long)at & (alignof(Lanes) - 1)) == 0) {
    const Lanes all = *(const Lanes*)at;
#pragma unroll
    for (int k = 0; k < count; ++k) out[k] = hd_number(all.at[k]);
    return;
  }
#pragma unroll
  for (int k = 0; k < count; ++k) out[k] = k < valid ? hd_number(at[k * stride]) : 0.0f;
}

// `count` bytes (4 or 8) as words, zeros from `left` on. `wide`: `at` is a multiple of `count`.
template <int count, class Q>
static __device__ __forceinline__ void hd_read_bytes(unsigned int* words, const Q* at, long long left, bool wide) {
  typedef hd_lanes<unsigned int, count / 4> Lanes;
  if (wide && left >= count) {
    const Lanes all = *(const Lanes*)at;
#pragma unroll
    for (int k = 0; k < count / 4; ++k) words[k] = all.at[k];
    return;
  }
#pragma unroll
  for (int k = 0; k < count / 4; ++k) words[k] = 0;
#pragma unroll
  for (int k = 0; k < count; ++k)
    if (k < left) words[k / 4] |= (unsigned int)(unsigned char)at[k] << k % 4 * 8;
}

// A matrix of bytes that stand for numbers: element (row, column) for (byte - zero) * scale, where zero and scale are those
// of row (first + row) / group of matrices of their own; group 0: the same for all rows. Zero points are small integers.
template <class Q, class S, class Z, int group>
struct hd_quantised {
  const Q* bytes;
  long long step, column;  // from one row, and one column, to the next
  const S* scale;
  long long scale_step, scale_column;
  const Z* zero;
  long long zero_step, zero_column;
  unsigned int first;
  // 2^23 and a byte less than 256 is a float that has the byte's bits for its last ones. Bytes with a sign are moved by 128.
  static constexpr float origin = (Q)-1 < (Q)1 ? 8388608.0f + 128.0f : 8388608.0f;
  __device__ __forceinline__ unsigned int group_of(unsigned int row) const {
    return group == 0 ? 0u : (first + row) / (group == 0 ? 1u : (unsigned int)group);
  }
  // Of `count` columns of a group: scales, and what numbers() has to be less by; 0 from `valid` on, at least one being there.
  template <int count>
  __device__ __forceinline__ void read_beside(float* scales, float* offsets, unsigned int of, long long at,
                                              int valid) const {
    hd_read_numbers<count>(scales, scale + of * scale_step + at * scale_column, scale_column, valid);
    hd_read_numbers<count>(offsets, zero + of * zero_step + at * zero_column, zero_column, valid);
#pragma unroll
    for (int k = 0; k < count; ++k) offsets[k] += origin;
  }
  // Four bytes moved by `origin`.
  static __device__ __forceinline__ void numbers(float* out, unsigned int word) {
    const unsigned int moved = (Q)-1 < (Q)1 ? word ^ 0x80808080u : word;
#pragma unroll
    for (int k = 0; k < 4; ++k)
      out[k] = __int_as_float((int)hd_permute_bytes(moved, 0x4b000000u, 0x7650u + k));
  }
  // What `count` bytes stand for, not rounded. each: 1 where they have scales of their own, 0 where one is for all.
  template <int count, int each>
  static __device__ __forceinline__ void values(float* out, const unsigned int* words, const float* scales,
                                                const float* offsets) {
#pragma unroll
    for (int k = 0; k < count / 4; ++k) numbers(out + 4 * k, words[k]);
#pragma unroll
    for (int k = 0; k < count; ++k) out[k] = (out[k] - offsets[each * k]) * scales[each * k];
  }
  // One element, not rounded.
  __device__ __forceinline__ float element(long long row, long long at) const {
    float scales, offsets;
    read_beside<1>(&scales, &offsets, group_of((unsigned int)row), at, 1);
    return (hd_number(bytes[row * step + at * column]) - (offsets - origin)) * scales;
  }
  // Whether lines of `count` bytes side by side are read at once.
  template <int count>
  __device__ __forceinline__ bool is_wide(long long apart) const {
    return (((unsigned long long)bytes | (unsigned long long)apart) & (count - 1)) == 0;
  }
};

// Eight numbers of 16 bits, or four floats, as they are stored.
template <class T>
static __device__ __forceinline__ hd_sixteen hd_stored_piece(const float* values, T) {
  hd_sixteen piece;
#pragma unroll
  for (int k = 0; k < 4; ++k) piece.words[k] = hd_pack(values[2 * k], values[2 * k + 1], T());
  return piece;
}
static __device__ __forceinline__ hd_sixteen hd_stored_piece(const float* values, float) {
  hd_sixteen piece;
#pragma unroll
  for (int k = 0; k < 4; ++k) piece.words[k] = (unsigned int)__float_as_int(values[k]);
  return piece;
}
