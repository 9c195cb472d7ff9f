// Device functions that generated CUDA kernels call. No header is included, here or in a kernel.
//
// The file is cut at blank lines. A piece defines the hd_ names that occur in it for the first time;
// a kernel's text begins with the pieces whose names it uses and those that these use. So: a blank
// line between definitions, none inside one.
//
// HEDDLE_CUDA_SIM is defined where the simulator compiles the text: it has twins of the functions
// with inline assembly, and of the CUDA built-ins used here.

#ifndef HEDDLE_CUDA_SIM
static __device__ __forceinline__ float hd_cvt_f32_f16(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
static __device__ __forceinline__ unsigned short hd_cvt_f16_f32(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
static __device__ __forceinline__ unsigned short hd_cvt_bf16_f32(float value) {
  unsigned short bits;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
  const unsigned int word = (unsigned int)__float_as_int(value);
  bits = (unsigned short)(value == value ? (word + 0x7fffu + (word >> 16 & 1u)) >> 16 : 0x7fffu);
#endif
  return bits;
}
static __device__ __forceinline__ float hd_round_bf16(float value) {
#if __CUDA_ARCH__ >= 800
  unsigned int word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(value), "f"(0.0f));
  return __int_as_float((int)word);
#else
  return __int_as_float((int)((unsigned int)hd_cvt_bf16_f32(value) << 16));
#endif
}
#endif

#ifndef HEDDLE_CUDA_SIM
static __device__ __forceinline__ unsigned char* hd_dynamic_shared() {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  return dynamic_shared;
}
#endif

// Neighbours in memory that are moved at once.
template <class T, int count>
struct alignas(sizeof(T) * count < 16 ? sizeof(T) * count : 16) hd_lanes {
  T at[count];
};

// Stores four words, two or one of global memory at once: of a structure the compiler makes as many stores as it sees fit.
#ifndef HEDDLE_CUDA_SIM
static __device__ __forceinline__ unsigned long long hd_global(const void* at) {
  unsigned long long address;
  asm("cvta.to.global.u64 %0, %1;" : "=l"(address) : "l"(at));
  return address;
}
static __device__ __forceinline__ void hd_store_words(void* to, const unsigned int (&words)[4]) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(hd_global(to)), "r"(words[0]),
               "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}
static __device__ __forceinline__ void hd_store_words(void* to, const unsigned int (&words)[2]) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(hd_global(to)), "r"(words[0]), "r"(words[1])
               : "memory");
}
static __device__ __forceinline__ void hd_store_words(void* to, const unsigned int (&words)[1]) {
  *(unsigned int*)to = words[0];
}
#endif

// Stores neighbours in global memory at once.
template <class T, int count>
static __device__ __forceinline__ void hd_store(T* to, const hd_lanes<T, count>& lanes) {
  constexpr int bytes = sizeof(T) * count;
  if constexpr (bytes == 4 || bytes == 8 || bytes == 16) {
    unsigned int words[bytes / 4];
    memcpy(words, &lanes, bytes);
    hd_store_words(to, words);
  } else {
    *(hd_lanes<T, count>*)to = lanes;
  }
}

// So many neighbours, 16 bytes at a time where their address lets them.
template <int count, class T>
static __device__ __forceinline__ hd_lanes<T, count> hd_read_lanes(const T* from) {
  constexpr int each = 16 / (int)sizeof(T) < count ? 16 / (int)sizeof(T) : count;
  hd_lanes<T, count> all;
  if ((unsigned long long)from % (each * sizeof(T)) == 0) {
#pragma unroll
    for (int k = 0; k < count; k += each) {
      const hd_lanes<T, each> some = *(const hd_lanes<T, each>*)(from + k);
#pragma unroll
      for (int n = 0; n < each; ++n) all.at[k + n] = some.at[n];
    }
  } else {
#pragma unroll
    for (int k = 0; k < count; ++k) all.at[k] = from[k];
  }
  return all;
}

// Whether an address is a multiple of `bytes`, or all of those are whose bits are joined.
template <int bytes>
static __device__ __forceinline__ bool hd_is_aligned(unsigned long long bits) {
  return (bits & (bytes - 1ull)) == 0;
}

// How many of `count` floats or integers of 4 bytes that lie from a multiple of 16 bytes on are moved at once, at most 4: a part of
// them that leaves none over.
static __device__ __forceinline__ constexpr int hd_neighbours(int count) {
  return count % 4 == 0 ? 4 : count % 2 == 0 ? 2 : 1;
}

struct hd_f16 {
  unsigned short bits;
};

struct hd_bf16 {
  unsigned short bits;
};

// Loads widen what is stored to what is computed with.
static __device__ __forceinline__ float hd_widen(hd_f16 stored) { return hd_cvt_f32_f16(stored.bits); }
static __device__ __forceinline__ float hd_widen(hd_bf16 stored) {
  return __int_as_float((int)((unsigned int)stored.bits << 16));
}

// One of neighbours that were loaded at once: of a word with two bf16 either is one instruction away.
template <int count>
static __device__ __forceinline__ float hd_widen_lane(const hd_lanes<hd_bf16, count>& lanes, int lane) {
  if constexpr (count % 2 == 0) {
    unsigned int words[count / 2];
    memcpy(words, &lanes, sizeof(words));
    const unsigned int word = words[lane / 2];
    return __int_as_float((int)(lane % 2 == 0 ? word << 16 : word & 0xffff0000u));
  } else {
    return hd_widen(lanes.at[lane]);
  }
}

static __device__ __forceinline__ hd_f16 hd_to_f16(float value) {
  hd_f16 stored;
  stored.bits = hd_cvt_f16_f32(value);
  return stored;
}

// Rounds to nearest even; a NaN stays one. Of two neighbours that are stored together the assembler makes one conversion.
static __device__ __forceinline__ hd_bf16 hd_to_bf16(float value) {
  hd_bf16 stored;
  stored.bits = hd_cvt_bf16_f32(value);
  return stored;
}

static __device__ __forceinline__ float hd_round_f16(float value) { return hd_widen(hd_to_f16(value)); }

static __device__ __forceinline__ float hd_infinity() { return __int_as_float(0x7f800000); }

static __device__ __forceinline__ float hd_nan() { return __int_as_float(0x7fc00000); }

// Index arithmetic. Division rounds towards minus infinity; by zero it gives 0.
static __device__ __forceinline__ long long hd_floordiv(long long a, long long b) {
  if (b == 0) return 0;
  const long long quotient = a / b;
  return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

static __device__ __forceinline__ long long hd_floormod(long long a, long long b) {
  return a - hd_floordiv(a, b) * b;
}

static __device__ __forceinline__ long long hd_smaller(long long a, long long b) {
  return a < b ? a : b;
}

static __device__ __forceinline__ long long hd_larger(long long a, long long b) {
  return a > b ? a : b;
}

static __device__ __forceinline__ long long hd_clamp(long long value, long long low, long long high) {
  return hd_larger(hd_smaller(value, high), low);
}

// The first report wins.
static __device__ __forceinline__ void hd_report(int* status, int code) {
  atomicCAS((unsigned int*)status, 0u, (unsigned int)code);
}

// The type that wraps where T would overflow.
template <class T> struct hd_wrapping { typedef unsigned int type; };
template <> struct hd_wrapping<long long> { typedef unsigned long long type; };
template <> struct hd_wrapping<unsigned long long> { typedef unsigned long long type; };
template <> struct hd_wrapping<float> { typedef float type; };
template <> struct hd_wrapping<double> { typedef double type; };

template <class T>
static __device__ __forceinline__ T hd_add(T a, T b) {
  typedef typename hd_wrapping<T>::type Wide;
  return (T)((Wide)a + (Wide)b);
}

template <class T>
static __device__ __forceinline__ T hd_sub(T a, T b) {
  typedef typename hd_wrapping<T>::type Wide;
  return (T)((Wide)a - (Wide)b);
}

template <class T>
static __device__ __forceinline__ T hd_mul(T a, T b) {
  typedef typename hd_wrapping<T>::type Wide;
  return (T)((Wide)a * (Wide)b);
}

template <class T>
static __device__ __forceinline__ T hd_neg(T a) {
  return hd_sub((T)0, a);
}

template <class T>
static __device__ __forceinline__ T hd_abs(T a) {
  return a < (T)0 ? hd_neg(a) : a;
}

// -1, 0 or 1; a NaN or a zero stays itself.
template <class T>
static __device__ __forceinline__ T hd_sign(T a) {
  return a > (T)0 ? (T)1 : a < (T)0 ? (T)-1 : a;
}

// Towards zero; by zero 0; the smallest integer by -1 wraps.
template <class T>
static __device__ __forceinline__ T hd_div(T a, T b) {
  if (b == (T)0) return (T)0;
  return (T)-1 < (T)0 && b == (T)-1 ? hd_neg(a) : (T)(a / b);
}

// The sign of the dividend; 0 by zero.
template <class T>
static __device__ __forceinline__ T hd_rem(T a, T b) {
  if (b == (T)0 || ((T)-1 < (T)0 && b == (T)-1)) return (T)0;
  return (T)(a % b);
}

// The sign of the divisor; 0 by zero.
template <class T>
static __device__ __forceinline__ T hd_mod(T a, T b) {
  const T rest = hd_rem(a, b);
  return rest != (T)0 && (rest < (T)0) != (b < (T)0) ? hd_add(rest, b) : rest;
}

static __device__ __forceinline__ float hd_float_mod(float a, float b) {
  const float rest = fmodf(a, b);
  return rest != 0.0f && (rest < 0.0f) != (b < 0.0f) ? rest + b : rest;
}
static __device__ __forceinline__ double hd_float_mod(double a, double b) {
  const double rest = fmod(a, b);
  return rest != 0.0 && (rest < 0.0) != (b < 0.0) ? rest + b : rest;
}

// a^b, wrapping; for b < 0 the real power rounded towards zero, and 0 for a = 0.
static __device__ __forceinline__ long long hd_power(long long a, long long b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 == 0 ? 1 : -1) : 0;
  long long result = 1;
  for (; b != 0; b >>= 1, a = hd_mul(a, a))
    if ((b & 1) != 0) result = hd_mul(result, a);
  return result;
}

static __device__ __forceinline__ unsigned long long hd_unsigned_power(unsigned long long a,
                                                                       unsigned long long b) {
  unsigned long long result = 1;
  for (; b != 0; b >>= 1, a *= a)
    if ((b & 1) != 0) result *= a;
  return result;
}

// Counts at or beyond the width, negative ones too, shift everything out.
template <class T>
static __device__ __forceinline__ T hd_shl(T a, T count) {
  typedef typename hd_wrapping<T>::type Wide;
  const unsigned long long width = 8 * sizeof(T);
  return (unsigned long long)count < width ? (T)((Wide)a << (int)count) : (T)0;
}

template <class T>
static __device__ __forceinline__ T hd_shr(T a, T count) {
  const unsigned long long width = 8 * sizeof(T);
  if ((unsigned long long)count < width) return (T)(a >> (int)count);
  return a < (T)0 ? (T)-1 : (T)0;
}

// NaN if either is NaN.
#if !defined(HEDDLE_CUDA_SIM) && __CUDA_ARCH__ >= 800
static __device__ __forceinline__ float hd_larger_float(float a, float b) {
  float value;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(value) : "f"(a), "f"(b));
  return value;
}
static __device__ __forceinline__ float hd_smaller_float(float a, float b) {
  float value;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(value) : "f"(a), "f"(b));
  return value;
}
#else
static __device__ __forceinline__ float hd_larger_float(float a, float b) {
  return a > b || a != a ? a : b;
}
static __device__ __forceinline__ float hd_smaller_float(float a, float b) {
  return a < b || a != a ? a : b;
}
#endif

template <class T>
static __device__ __forceinline__ T hd_max(T a, T b) {
  return a > b || a != a ? a : b;
}
static __device__ __forceinline__ float hd_max(float a, float b) { return hd_larger_float(a, b); }

template <class T>
static __device__ __forceinline__ T hd_min(T a, T b) {
  return a < b || a != a ? a : b;
}
static __device__ __forceinline__ float hd_min(float a, float b) { return hd_smaller_float(a, b); }

// 1 / x for a normal x, to 2^-23 of itself.
#ifndef HEDDLE_CUDA_SIM
static __device__ __forceinline__ float hd_inverse(float x) {
  float value;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}
#endif

// a / b without a branch, so that those of neighbours go side by side: what the reciprocal gives is corrected once. Exact where the quotient
// is a float, or infinite, or none; else off by at most one in the last place, three where a or the quotient is below 2^-100, and of what is
// too small for a float the zero may have either sign.
static __device__ __forceinline__ float hd_divide(float a, float b) {
  const float size = fabsf(b);
  const float scale = size > 1.8446744e+19f ? 5.4210109e-20f : size < 5.4210109e-20f ? 1.8446744e+19f : 1.0f;
  const float inverse = hd_inverse(b * scale);
  const float quotient = a * scale * inverse;
  const float better = fmaf(fmaf(-b, quotient, a) * inverse, scale, quotient);
  return better == better && quotient != 0.0f ? better : quotient;  // which has the sign of a zero
}

// 1 / sqrt(x) for a normal x, to 2^-22 of itself.
#ifndef HEDDLE_CUDA_SIM
static __device__ __forceinline__ float hd_inverse_root(float x) {
  float value;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}
#endif

// The same of a square root.
static __device__ __forceinline__ float hd_sqrt(float x) {
  const bool small = x < 7.8886091e-31f;
  const float scaled = small ? x * 1.2676506e+30f : x;
  // Of 0 the inverse would be infinite.
  const float inverse = hd_min(fabsf(hd_inverse_root(scaled)), 1.2676506e+30f);
  const float root = scaled * inverse;
  const float better = fmaf(fmaf(-root, root, scaled), 0.5f * inverse, root);
  return x == hd_infinity() ? x : small ? better * 8.8817842e-16f : better;
}

// The quotient is of numbers in [0, 2] and has no cases apart: a step of Newton's makes it as good as a division.
static __device__ __forceinline__ float hd_sigmoid(float x) {
  const float e = expf(-fabsf(x));
  const float whole = 1.0f + e;
  const float inverse = hd_inverse(whole);
  return (x < 0.0f ? e : 1.0f) * fmaf(inverse, fmaf(-whole, inverse, 1.0f), inverse);
}
static __device__ __forceinline__ double hd_sigmoid(double x) {
  const double e = exp(-fabs(x));
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}

// The ends of T: infinities for floating types.
template <class T>
struct hd_limits {
  static __device__ __forceinline__ T low() {
    return (T)-1 < (T)0 ? (T)(1ull << (8 * sizeof(T) - 1)) : (T)0;
  }
  static __device__ __forceinline__ T high() { return (T)~low(); }
};
template <>
struct hd_limits<bool> {
  static __device__ __forceinline__ bool low() { return false; }
  static __device__ __forceinline__ bool high() { return true; }
};
template <>
struct hd_limits<float> {
  static __device__ __forceinline__ float low() { return -hd_infinity(); }
  static __device__ __forceinline__ float high() { return hd_infinity(); }
};
template <>
struct hd_limits<double> {
  static __device__ __forceinline__ double low() { return -(double)hd_infinity(); }
  static __device__ __forceinline__ double high() { return (double)hd_infinity(); }
};

// Float to integer: towards zero, saturating, NaN to 0.
template <class To, class From>
static __device__ __forceinline__ To hd_truncate(From value) {
  if (value != value) return (To)0;
  if (value <= (From)hd_limits<To>::low()) return hd_limits<To>::low();
  if (value >= (From)hd_limits<To>::high()) return hd_limits<To>::high();
  return (To)value;
}

// How reductions combine two partial results.
struct hd_sum {
  template <class T>
  static __device__ __forceinline__ T combine(T a, T b) { return hd_add(a, b); }
};

struct hd_product {
  template <class T>
  static __device__ __forceinline__ T combine(T a, T b) { return hd_mul(a, b); }
};

struct hd_maximum {
  template <class T>
  static __device__ __forceinline__ T combine(T a, T b) { return hd_max(a, b); }
};

struct hd_minimum {
  template <class T>
  static __device__ __forceinline__ T combine(T a, T b) { return hd_min(a, b); }
};

struct hd_all {
  template <class T>
  static __device__ __forceinline__ T combine(T a, T b) { return (T)(a && b); }
};

struct hd_any {
  template <class T>
  static __device__ __forceinline__ T combine(T a, T b) { return (T)(a || b); }
};

// A value and the index it stands at. Nothing yet: the worst value at the last index.
template <class T>
struct hd_indexed {
  T value;
  long long index;
};

// The larger (smaller) value wins, a NaN over numbers; among equals the smaller index.
struct hd_argmax {
  template <class T>
  static __device__ __forceinline__ hd_indexed<T> combine(hd_indexed<T> a, hd_indexed<T> b) {
    const bool wins = b.value > a.value || (b.value != b.value && a.value == a.value);
    const bool ties = b.value == a.value || (b.value != b.value && a.value != a.value);
    return wins || (ties && b.index < a.index) ? b : a;
  }
};

struct hd_argmin {
  template <class T>
  static __device__ __forceinline__ hd_indexed<T> combine(hd_indexed<T> a, hd_indexed<T> b) {
    const bool wins = b.value < a.value || (b.value != b.value && a.value == a.value);
    const bool ties = b.value == a.value || (b.value != b.value && a.value != a.value);
    return wins || (ties && b.index < a.index) ? b : a;
  }
};

// Mean, sum of squared deviations from it, and count.
template <class T>
struct hd_moments {
  T mean;
  T squares;
  T count;
};

// Chan, Golub and LeVeque's update for two sets.
struct hd_welford {
  template <class T>
  static __device__ __forceinline__ hd_moments<T> combine(hd_moments<T> a, hd_moments<T> b) {
    hd_moments<T> both;
    both.count = a.count + b.count;
    const T share = both.count == (T)0 ? (T)0 : b.count / both.count;
    const T delta = b.mean - a.mean;
    both.mean = a.mean + delta * share;
    both.squares = a.squares + b.squares + delta * a.count * (delta * share);
    return both;
  }
  template <class T>
  static __device__ __forceinline__ hd_moments<T> add(hd_moments<T> a, T x) {
    const T delta = x - a.mean;
    a.count = a.count + (T)1;
    a.mean = a.mean + delta / a.count;
    a.squares = a.squares + delta * (x - a.mean);
    return a;
  }
};

// `value` of the lane whose number differs from this one's in the bits of `mask`.
template <class V>
static __device__ __forceinline__ V hd_exchange(V value, int mask) {
  unsigned int words[(sizeof(V) + 3) / 4];
  words[(sizeof(V) - 1) / 4] = 0;
  memcpy(words, &value, sizeof(V));
  for (unsigned int k = 0; k < (sizeof(V) + 3) / 4; ++k)
    words[k] = __shfl_xor_sync(0xffffffffu, words[k], mask);
  memcpy(&value, words, sizeof(V));
  return value;
}

// Combines one value a thread, in a tree that depends on the number of threads only; every thread gets
// the result. `scratch` is shared memory for 32 values. All threads of the block, full warps. Not
// inlined: it is long, and called once a loop.
template <class Op, class V>
static __device__ __noinline__ V hd_block_reduce(V value, void* scratch) {
  for (int distance = 16; distance > 0; distance /= 2)
    value = Op::combine(value, hd_exchange(value, distance));
  V* partial = (V*)scratch;
  __syncthreads();
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  V total = partial[0];
#pragma unroll 1
  for (unsigned int warp = 1; warp < blockDim.x / 32; ++warp) total = Op::combine(total, partial[warp]);
  return total;
}

// The same of each group of `lanes` neighbours, a power of two and at most a warp: none needs memory. Full warps.
template <class Op, int lanes, class V>
static __device__ __forceinline__ V hd_row_reduce(V value) {
#pragma unroll
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    const V other = hd_exchange(value, distance);
    const bool second = (threadIdx.x & distance) != 0;
    value = Op::combine(second ? other : value, second ? value : other);
  }
  return value;
}

// Combining on storage types.
template <class Op, class T>
static __device__ __forceinline__ T hd_combine_stored(T a, T b) {
  return Op::combine(a, b);
}
template <class Op>
static __device__ __forceinline__ hd_f16 hd_combine_stored(hd_f16 a, hd_f16 b) {
  return hd_to_f16(Op::combine(hd_widen(a), hd_widen(b)));
}
template <class Op>
static __device__ __forceinline__ hd_bf16 hd_combine_stored(hd_bf16 a, hd_bf16 b) {
  return hd_to_bf16(Op::combine(hd_widen(a), hd_widen(b)));
}

// A word as it is now, where others may be updating it.
#ifndef HEDDLE_CUDA_SIM
static __device__ __forceinline__ unsigned int hd_peek(const unsigned int* word) {
  return *(const volatile unsigned int*)word;
}
static __device__ __forceinline__ unsigned long long hd_peek(const unsigned long long* word) {
  return *(const volatile unsigned long long*)word;
}
#endif

// *target = combination of *target and value, at once. Elements smaller than a word are exchanged with
// the word around them.
template <class Op, class T>
static __device__ __forceinline__ void hd_atomic(T* target, T value) {
  const unsigned long long address = (unsigned long long)target;
  const unsigned int offset = sizeof(T) < 4 ? (unsigned int)(address % 4) : 0u;
  unsigned int* word = (unsigned int*)(address - offset);
  unsigned int seen = sizeof(T) < 4 ? atomicCAS(word, 0u, 0u) : hd_peek(word);
  for (;;) {
    unsigned int next = seen;
    T stored;
    memcpy(&stored, (char*)&seen + offset, sizeof(T));
    stored = hd_combine_stored<Op>(stored, value);
    memcpy((char*)&next + offset, &stored, sizeof(T));
    const unsigned int before = atomicCAS(word, seen, next);
    if (before == seen) return;
    seen = before;
  }
}

template <class Op, class T>
static __device__ __forceinline__ void hd_atomic_wide(T* target, T value) {
  unsigned long long* word = (unsigned long long*)target;
  unsigned long long seen = hd_peek(word);
  for (;;) {
    unsigned long long next;
    T stored;
    memcpy(&stored, &seen, sizeof(T));
    stored = hd_combine_stored<Op>(stored, value);
    memcpy(&next, &stored, sizeof(T));
    const unsigned long long before = atomicCAS(word, seen, next);
    if (before == seen) return;
    seen = before;
  }
}

// Sums where the hardware has them.
static __device__ __forceinline__ void hd_atomic_sum(float* target, float value) {
  atomicAdd(target, value);
}
static __device__ __forceinline__ void hd_atomic_sum(double* target, double value) {
  atomicAdd(target, value);
}
static __device__ __forceinline__ void hd_atomic_sum(int* target, int value) {
  atomicAdd((unsigned int*)target, (unsigned int)value);
}
static __device__ __forceinline__ void hd_atomic_sum(long long* target, long long value) {
  atomicAdd((unsigned long long*)target, (unsigned long long)value);
}
