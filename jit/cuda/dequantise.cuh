// Device functions of matrices of bytes, or of a few bits, that stand for numbers, which are made of them on their way into a product. The rules
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
static __device__ __forceinline__ float hd_number(short stored) { return (float)(int)stored; }
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

// Whether T holds reals.
template <class T> struct hd_is_real { static constexpr bool value = false; };
template <> struct hd_is_real<float> { static constexpr bool value = true; };
template <> struct hd_is_real<hd_f16> { static constexpr bool value = true; };
template <> struct hd_is_real<hd_bf16> { static constexpr bool value = true; };

// `count` numbers side by side, from a multiple of so many on.
template <int count>
static __device__ __forceinline__ void hd_read_wide(float* out, const hd_nothing*) {
#pragma unroll
  for (int k = 0; k < count; ++k) out[k] = 0.0f;
}
template <int count, class S>
static __device__ __forceinline__ void hd_read_wide(float* out, const S* at) {
  const hd_lanes<S, count> all = *(const hd_lanes<S, count>*)at;
#pragma unroll
  for (int k = 0; k < count; ++k) out[k] = hd_number(all.at[k]);
}

// `count` numbers that lie `stride` apart, 0 from `valid` on, at least one being there.
template <int count>
static __device__ __forceinline__ void hd_read_numbers(float* out, const hd_nothing*, long long, int) {
#pragma unroll
  for (int k = 0; k < count; ++k) out[k] = 0.0f;
}
template <int count, class S>
static __device__ __forceinline__ void hd_read_numbers(float* out, const S* at, long long stride, int valid) {
  if (stride == 1 && valid >= count && hd_is_aligned<alignof(hd_lanes<S, count>)>((unsigned long long)at))
    return hd_read_wide<count>(out, at);
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

// Scales and zero points of a matrix of small integers: those of row (first + row) / group of matrices of their own; group 0:
// the same for all rows.
template <class S, class Z, int group>
struct hd_beside {
  const S* scale;
  long long scale_step, scale_column;  // from one row, and one column, to the next
  const Z* zero;
  long long zero_step, zero_column;
  unsigned int first;
  __device__ __forceinline__ unsigned int group_of(unsigned int row) const {
    return group == 0 ? 0u : (first + row) / (group == 0 ? 1u : (unsigned int)group);
  }
  // Of `count` columns of a group, 0 from `valid` on, at least one being there.
  template <int count>
  __device__ __forceinline__ void read(float* scales, float* zeros, unsigned int of, long long at, int valid) const {
    hd_read_numbers<count>(scales, scale + of * scale_step + at * scale_column, scale_column, valid);
    hd_read_numbers<count>(zeros, zero + of * zero_step + at * zero_column, zero_column, valid);
  }
  // The same where is_wide() holds, all being there: `at` is a multiple of `count`.
  template <int count>
  __device__ __forceinline__ void read_wide(float* scales, float* zeros, unsigned int of, long long at) const {
    hd_read_wide<count>(scales, scale + of * scale_step + at);
    hd_read_wide<count>(zeros, zero + of * zero_step + at);
  }
  template <int count>
  __device__ __forceinline__ bool is_wide() const {
    return scale_column == 1 && hd_begin_at<count * (int)sizeof(S)>(scale, scale_step) &&
           (zero == 0 || (zero_column == 1 && hd_begin_at<count * (int)sizeof(Z)>(zero, zero_step)));
  }
};

// A matrix of bytes that stand for numbers: element (row, column) for (byte - zero) * scale. Zero points are small integers.
template <class Q, class S, class Z, int group>
struct hd_quantised {
  const Q* bytes;
  long long step, column;  // from one row, and one column, to the next
  hd_beside<S, Z, group> beside;
  // What brings it to a Tile.
  template <class Tile> using right_of = typename Tile::template Dequantised<hd_quantised>;
  // 2^23 and a byte less than 256 is a float that has the byte's bits for its last ones. Bytes with a sign are moved by 128.
  static constexpr float origin = (Q)-1 < (Q)1 ? 8388608.0f + 128.0f : 8388608.0f;
  __device__ __forceinline__ unsigned int group_of(unsigned int row) const { return beside.group_of(row); }
  // Scales, and what numbers() has to be less by.
  template <int count>
  __device__ __forceinline__ void read_beside(float* scales, float* offsets, unsigned int of, long long at,
                                              int valid) const {
    beside.template read<count>(scales, offsets, of, at, valid);
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

// A matrix of numbers of `bits` bits, `rows` of a column in a word, as bit_panels says, that stand for numbers: element
// (row, column) for (number - zero) * scale. Zero points are small integers or reals.
template <class S, class Z, int group, int bits>
struct hd_packed {
  const int* words;
  long long step;  // from one row of words to the next; columns are neighbours
  hd_beside<S, Z, group> beside;
  template <class Tile> using right_of = typename Tile::template Packed<hd_packed>;
  static constexpr int rows = 32 / bits;
  static constexpr int group_rows = group;
  static constexpr bool is_whole = !hd_is_real<Z>::value;  // zero points are integers
  static constexpr unsigned int mask = 0x01010101u * ((1u << bits) - 1);
  static constexpr unsigned int middle = 0x01010101u << (bits - 1);
  // As hd_quantised's, of numbers with a sign, which are moved by half of their range.
  static constexpr float origin = 8388608.0f + (1 << (bits - 1));
  __device__ __forceinline__ unsigned int group_of(unsigned int row) const { return beside.group_of(row); }
  // Whether four neighbours are read at once.
  __device__ __forceinline__ bool is_wide() const {
    return hd_is_wide(words, step) && beside.template is_wide<4>();
  }
  // Words of four columns that hold row `row`, their scales and what centred() takes off: from column `at` on, a multiple of
  // four. Of these `valid` are there, others are 0; `wide`: all are, and is_wide().
  template <bool wide>
  __device__ __forceinline__ void read(hd_sixteen& all, float* scales, float* offsets, long long row, int at,
                                       int valid) const {
    const int* const from = words + row / rows * step + at;
    const unsigned int of = group_of((unsigned int)row);
    if constexpr (wide) {
      all = *(const hd_sixteen*)from;
      beside.template read_wide<4>(scales, offsets, of, at);
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) all.words[k] = k < valid ? (unsigned int)from[k] : 0u;
      beside.template read<4>(scales, offsets, of, at, valid);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) offsets[k] += is_whole ? origin : 0.0f;
  }
  // The same of one column.
  __device__ __forceinline__ void read_beside(float& scale, float& offset, long long row, long long at) const {
    beside.template read<1>(&scale, &offset, group_of((unsigned int)row), at, 1);
    offset += is_whole ? origin : 0.0f;
  }
  // The four numbers of a word from `first` on, which is a multiple of four, less their zero points.
  static __device__ __forceinline__ void centred(float* out, unsigned int word, int first, float offset) {
    const unsigned int four = (word >> first / 4 * bits & mask) ^ middle;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float moved = __int_as_float((int)hd_permute_bytes(four, 0x4b000000u, 0x7650u + k));
      out[k] = is_whole ? moved - offset : moved - origin - offset;
    }
  }
  // One element, not rounded.
  __device__ __forceinline__ float element(long long row, long long at) const {
    float scales, offsets;
    read_beside(scales, offsets, row, at);
    const int place = (int)(row % rows);
    float four[4];
    centred(four, (unsigned int)words[row / rows * step + at] >> place % 4 * 8, place / 4 * 4, offsets);
    return four[0] * scales;
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
