// What stands before a kernel's CUDA text when the host compiler takes it: CUDA's words and built-ins,
// and twins of the prelude's functions that hold inline assembly. No header is included, so that a
// kernel compiles in a moment.
#pragma once

#include "tests/cuda_sim/state.h"

#define HEDDLE_CUDA_SIM 1
#define __global__
#define __device__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
// One block runs at a time, so a block's memory may be static. It lies in a section of its kernel's, so
// that the simulator can poison it: host_compiler.cpp defines __shared__ before each kernel.

extern "C" {
__attribute__((visibility("hidden"))) heddle_sim_state heddle_sim;
__attribute__((visibility("default"))) heddle_sim_state* heddle_sim_state_of_image() {
  return &heddle_sim;
}

// The compiler calls these before each access through a pointer, and where what the text does is undefined (see the
// flags in host_compiler.cpp).
// Twins that see to their accesses themselves say no_sanitize, of whichever: it means both that are in use.
#define no_sanitize(sanitizer) no_sanitize("thread", "undefined")
#define HEDDLE_SIM_PLAIN __attribute__((no_sanitize("thread")))
// Where a function that is not inlined was called from.
#define HEDDLE_SIM_SITE __builtin_return_address(0)
#define HEDDLE_SIM_HOOK __attribute__((visibility("hidden"), no_sanitize("thread")))
#define HEDDLE_SIM_ACCESS(name, kind)                                         \
  HEDDLE_SIM_HOOK void __tsan_##name##_range(void* at, unsigned long bytes) { \
    heddle_sim.access((unsigned long)at, bytes, kind, HEDDLE_SIM_SITE);       \
  }                                                                           \
  HEDDLE_SIM_ACCESS_OF(name##1, kind, 1)                                      \
  HEDDLE_SIM_ACCESS_OF(name##2, kind, 2)                                      \
  HEDDLE_SIM_ACCESS_OF(name##4, kind, 4)                                      \
  HEDDLE_SIM_ACCESS_OF(name##8, kind, 8)                                      \
  HEDDLE_SIM_ACCESS_OF(name##16, kind, 16)                                    \
  HEDDLE_SIM_ACCESS_OF(unaligned_##name##2, kind, 2)                          \
  HEDDLE_SIM_ACCESS_OF(unaligned_##name##4, kind, 4)                          \
  HEDDLE_SIM_ACCESS_OF(unaligned_##name##8, kind, 8)                          \
  HEDDLE_SIM_ACCESS_OF(unaligned_##name##16, kind, 16)
#define HEDDLE_SIM_ACCESS_OF(name, kind, bytes)                         \
  HEDDLE_SIM_HOOK void __tsan_##name(void* at) {                        \
    heddle_sim.access((unsigned long)at, bytes, kind, HEDDLE_SIM_SITE); \
  }
HEDDLE_SIM_ACCESS(read, 0)
HEDDLE_SIM_ACCESS(write, 1)
HEDDLE_SIM_HOOK void __tsan_init() {}

struct heddle_sim_place {
  const char* file;
  unsigned int line, column;
};
#define HEDDLE_SIM_UNDEFINED(name, what, ...)                                       \
  HEDDLE_SIM_HOOK void __ubsan_handle_##name(heddle_sim_place* place __VA_ARGS__) { \
    heddle_sim.undefined(what, place->line);                                        \
  }
HEDDLE_SIM_UNDEFINED(shift_out_of_bounds_abort, "shifts by too much", , unsigned long,
                     unsigned long)
HEDDLE_SIM_UNDEFINED(divrem_overflow_abort, "divides an integer by 0", , unsigned long,
                     unsigned long)
HEDDLE_SIM_UNDEFINED(out_of_bounds_abort, "has an index beyond its array", , unsigned long)
HEDDLE_SIM_UNDEFINED(type_mismatch_v1_abort, "uses an address that is null or not aligned", ,
                     unsigned long)
HEDDLE_SIM_UNDEFINED(load_invalid_value_abort, "reads a bool that is neither true nor false", ,
                     unsigned long)
}

#define threadIdx (heddle_sim.thread)
#define blockIdx (heddle_sim.block)
#define blockDim (heddle_sim.block_size)
#define gridDim (heddle_sim.grid_size)
#define __syncthreads() heddle_sim.barrier()
#define __threadfence() heddle_sim.fence()
#define __shfl_xor_sync(lanes, value, mask) heddle_sim.shuffle_xor(value, mask)
#define __shfl_sync(lanes, value, from) heddle_sim_from_lane(value, from)
#define memcpy __builtin_memcpy
#define hd_dynamic_shared() (heddle_sim.dynamic_shared)

static __attribute__((noinline, no_sanitize("thread"))) unsigned int heddle_sim_from_lane(
    unsigned int value, int from) {
  return heddle_sim.exchange(&value, 1)[from];
}

static inline float __int_as_float(int bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
static inline double __longlong_as_double(long long bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
static inline long long __double_as_longlong(double value) {
  long long bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline double __dsqrt_rn(double a) { return __builtin_sqrt(a); }
static inline int __float_as_int(float value) {
  int bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Threads change places at barriers and shuffles only, so plain code is atomic. Not inlined: the place of the call is the site.
#define HEDDLE_SIM_ATOMIC __attribute__((noinline, no_sanitize("thread")))
template <class T>
static HEDDLE_SIM_ATOMIC T atomicCAS(T* at, T expected, T wanted) {
  heddle_sim.access((unsigned long)at, sizeof(T), 2, HEDDLE_SIM_SITE);
  const T before = *at;
  if (before == expected) *at = wanted;
  return before;
}
template <class T>
static HEDDLE_SIM_ATOMIC T atomicAdd(T* at, T value) {
  heddle_sim.access((unsigned long)at, sizeof(T), 2, HEDDLE_SIM_SITE);
  const T before = *at;
  *at = before + value;
  return before;
}

static HEDDLE_SIM_ATOMIC unsigned int atomicInc(unsigned int* at, unsigned int most) {
  heddle_sim.access((unsigned long)at, sizeof *at, 3, HEDDLE_SIM_SITE);
  const unsigned int before = *at;
  *at = before >= most ? 0 : before + 1;
  return before;
}

template <class T>
static HEDDLE_SIM_ATOMIC T hd_peek(const T* at) {
  heddle_sim.access((unsigned long)at, sizeof(T), 2, HEDDLE_SIM_SITE);
  return *at;
}

// Twin of a store of neighbouring words at once. Inlined: each call is a site.
template <int count>
struct alignas(4 * count) heddle_sim_words {
  unsigned int at[count];
};
template <int count>
static inline __attribute__((always_inline)) void hd_store_words(
    void* to, const unsigned int (&words)[count]) {
  heddle_sim_words<count> all;
  memcpy(&all, words, sizeof all);
  *(heddle_sim_words<count>*)to = all;
}

// Twins of the PTX conversions: cvt.f32.f16 and cvt.rn.f16.f32, subnormals kept.
static inline float hd_cvt_f32_f16(unsigned short bits) {
  const unsigned int sign = (bits & 0x8000u) << 16;
  const unsigned int exponent = (bits >> 10) & 31u;
  const unsigned int fraction = bits & 0x3ffu;
  if (exponent == 31) return __int_as_float((int)(sign | 0x7f800000u | fraction << 13));
  if (exponent != 0) return __int_as_float((int)(sign | (exponent + 112) << 23 | fraction << 13));
  const float magnitude = (float)fraction * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}
static inline unsigned short hd_cvt_f16_f32(float value) {
  const unsigned int bits = (unsigned int)__float_as_int(value);
  const unsigned int sign = bits >> 16 & 0x8000u;
  const unsigned int magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fff;
  if (magnitude >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);  // rounds to 65536 or more
  if (magnitude < 0x38800000u) {
    // Subnormal: the sum puts the last bit of the result at the last bit of a float in [0.5, 1).
    const float sum = __int_as_float((int)magnitude) + 0.5f;
    return (unsigned short)(sign | ((unsigned int)__float_as_int(sum) - 0x3f000000u));
  }
  const unsigned int rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
  return (unsigned short)(sign | ((rounded - 0x38000000u) >> 13));
}

// Twins of what is approximate and knows no numbers below 2^-126: ex2.approx.ftz, rcp, sqrt, rsqrt, and div.full; and of
// tanh.approx, which is off by as much as the device's may be.
extern "C" float exp2f(float) noexcept;
extern "C" float tanhf(float) noexcept;
extern "C" float sqrtf(float) noexcept;
extern "C" float fabsf(float) noexcept;
static inline float heddle_sim_flushed(float x) { return fabsf(x) < 0x1p-126f ? x * 0.0f : x; }
static inline float hd_exp2(float x) { return heddle_sim_flushed(exp2f(x)); }
static inline float hd_inverse(float x) {
  return heddle_sim_flushed((1.0f + 0x1p-23f) / heddle_sim_flushed(x));
}
static inline float hd_inverse_root(float x) {
  return (1.0f + 0x1p-23f) / sqrtf(heddle_sim_flushed(x));
}
static inline float hd_coarse_sqrt(float x) { return sqrtf(heddle_sim_flushed(x)); }
static inline float hd_coarse_rsqrt(float x) { return 1.0f / sqrtf(heddle_sim_flushed(x)); }
static inline float hd_coarse_div(float a, float b) {
  return heddle_sim_flushed(heddle_sim_flushed(a) / heddle_sim_flushed(b));
}
static inline float hd_coarse_tanh(float x) { return tanhf(x) * (1.0f - 0x1p-11f); }

// Twins of the conversions cvt.rn.bf16.f32, cvt.rn.f16x2.f32 and cvt.rn.bf16x2.f32, whose NaN is 0x7fff.
static inline unsigned int hd_pack_f16(float low, float high) {
  return hd_cvt_f16_f32(low) | (unsigned int)hd_cvt_f16_f32(high) << 16;
}
static inline unsigned short hd_cvt_bf16_f32(float value) {
  const unsigned int bits = (unsigned int)__float_as_int(value);
  return (unsigned short)(value == value ? (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16 : 0x7fffu);
}
static inline float hd_round_bf16(float value) {
  return __int_as_float((int)((unsigned int)hd_cvt_bf16_f32(value) << 16));
}
static inline unsigned int hd_pack_bf16(float low, float high) {
  return hd_cvt_bf16_f32(low) | (unsigned int)hd_cvt_bf16_f32(high) << 16;
}

// Twins of ldmatrix: what lane k gets comes from the rows that other lanes point to. To the meter each lane reads its own
// row, as the banks see it: a matrix at a time.
#define HEDDLE_SIM_OWN __attribute__((noinline, no_sanitize("kernel-address")))
HEDDLE_SIM_OWN static void heddle_sim_load_matrices(unsigned int* out, const void* row,
                                                    bool transposed) {
  const unsigned long mine = (unsigned long)row;
  if (mine % 16 != 0) heddle_sim.access(1, 16, 0, nullptr);  // not aligned: an access to nowhere
  heddle_sim.meter(mine, 16, 0, HEDDLE_SIM_SITE);
  const unsigned int words[2] = {(unsigned int)mine, (unsigned int)(mine >> 32)};
  const unsigned int* const all = heddle_sim.exchange(words, 2);
  const unsigned int lane = threadIdx.x % 32;
  for (unsigned int matrix = 0; matrix < 4; ++matrix) {
    out[matrix] = 0;
    for (unsigned int half = 0; half < 2; ++half) {
      const unsigned int near = lane / 4;
      const unsigned int far = lane % 4 * 2 + half;
      const unsigned int line = 8 * matrix + (transposed ? far : near);
      const unsigned long from =
          (all[2 * line] | (unsigned long)all[2 * line + 1] << 32) + 2 * (transposed ? near : far);
      heddle_sim.access(from, 2, 0, nullptr);
      out[matrix] |= (unsigned int)*(const unsigned short*)from << 16 * half;
    }
  }
}
static inline void hd_load_matrices(unsigned int* out, const void* row) {
  heddle_sim_load_matrices(out, row, false);
}
static inline void hd_load_transposed(unsigned int* out, const void* row) {
  heddle_sim_load_matrices(out, row, true);
}

// Twins of cp.async: the memory is written when the thread waits for the copy.
static inline void hd_copy_async(void* to, const void* from, unsigned int valid) {
  heddle_sim.copy(to, from, 16, valid);
}
static inline void hd_copy_async(void* to, const void* from) { heddle_sim.copy(to, from, 16, 16); }
template <int bytes>
static inline void hd_copy_async_part(void* to, const void* from, unsigned int valid) {
  heddle_sim.copy(to, from, bytes, valid);
}
static inline void hd_copy_commit() { heddle_sim.commit_copies(); }
template <int pending>
static inline void hd_copy_wait() {
  heddle_sim.wait_copies(pending);
}

// Twins of mbarriers and of named barriers.
struct hd_mbarrier {
  unsigned long state;
};
static inline void hd_mbarrier_init(hd_mbarrier* at, int arrivals) {
  heddle_sim.mbarrier_init(at, (unsigned int)arrivals);
}
static inline void hd_mbarrier_arrive(hd_mbarrier* at) { heddle_sim.mbarrier_arrive(at); }
static inline void hd_mbarrier_arrive_copies(hd_mbarrier* at) {
  heddle_sim.mbarrier_arrive_copies(at);
}
static inline void hd_mbarrier_wait(hd_mbarrier* at, unsigned int parity) {
  heddle_sim.mbarrier_wait(at, parity & 1u);
}
template <int threads>
static inline void hd_barrier_sync(int number) {
  heddle_sim.named_barrier((unsigned int)number, threads, true);
}
template <int threads>
static inline void hd_barrier_arrive(int number) {
  heddle_sim.named_barrier((unsigned int)number, threads, false);
}

// Twins of wgmma: done when the group is waited for, no sooner, so that what becomes of the operands meanwhile shows; to the
// machine they are read when the product begins, too. Rows are the thread's own two; the first lane of a warp reads for all.
struct hd_descriptor {
  unsigned long at;
  int leading;
};
static inline hd_descriptor hd_describe(const void* at, int leading) {
  return {(unsigned long)at, leading};
}
static inline hd_descriptor hd_further(hd_descriptor matrix, int bytes) {
  return {matrix.at + (unsigned long)bytes, matrix.leading};
}
static inline void hd_products_begin() {}
static inline void hd_products_commit() { heddle_sim.commit_work(); }
template <int pending>
static inline void hd_products_wait() {
  heddle_sim.wait_work(pending);
}
template <int count>
static inline void hd_products_hold(float*) {}
static inline void hd_products_publish() { heddle_sim.proxy_fence(); }
struct heddle_sim_warpgroup_product {
  float* sums;
  hd_descriptor a, b;
  int columns;
  bool left_along, right_along, left_given, first;
  float (*widen)(unsigned short);
  float left[2][16];
};
// Element `depth` of line `line`, where lines are along the depth; else element `line` of line `depth`. The address bits that
// number a line of eight turn those that number its pieces.
static inline unsigned long heddle_sim_matrix_place(hd_descriptor matrix, bool along, int line,
                                                    int depth) {
  const int across = along ? line : depth;
  const int element = along ? depth : line;
  const unsigned long at =
      matrix.at + (unsigned long)(across / 8 * 1024 + across % 8 * 128 +
                                  element / 64 * matrix.leading + element % 64 * 2);
  return at ^ (at >> 7 & 7) << 4;
}
HEDDLE_SIM_OWN static unsigned short heddle_sim_matrix_element(hd_descriptor matrix, bool along,
                                                               int line, int depth) {
  return *(const unsigned short*)heddle_sim_matrix_place(matrix, along, line, depth);
}
// `lines` lines from number `first` on of 16 products.
HEDDLE_SIM_OWN static void heddle_sim_read_matrix(hd_descriptor matrix, bool along, int first,
                                                  int lines) {
  if (threadIdx.x % 32 != 0) return;
  for (int line = first; line < first + lines; line += along ? 1 : 8)
    for (int k = 0; k < 16; k += along ? 8 : 1)
      heddle_sim.access(heddle_sim_matrix_place(matrix, along, line, k), 16, 4, nullptr);
}
HEDDLE_SIM_OWN static void heddle_sim_read_operands(const heddle_sim_warpgroup_product& p) {
  if (!p.left_given) heddle_sim_read_matrix(p.a, p.left_along, (int)threadIdx.x / 32 % 4 * 16, 16);
  heddle_sim_read_matrix(p.b, !p.right_along, 0, p.columns);
}
HEDDLE_SIM_OWN static void heddle_sim_multiply(const void* data) {
  const heddle_sim_warpgroup_product& p = *(const heddle_sim_warpgroup_product*)data;
  heddle_sim_read_operands(p);
  const int lane = (int)threadIdx.x % 32;
  const int row = (int)threadIdx.x / 32 % 4 * 16 + lane / 4;
  float left[2][16];
  for (int half = 0; half < 2; ++half)
    for (int k = 0; k < 16; ++k)
      left[half][k] =
          p.left_given ? p.left[half][k]
                       : p.widen(heddle_sim_matrix_element(p.a, p.left_along, row + 8 * half, k));
  for (int n = 0; n < p.columns; ++n) {
    if (n % 8 / 2 != lane % 4) continue;
    float right[16];
    for (int k = 0; k < 16; ++k)
      right[k] = p.widen(heddle_sim_matrix_element(p.b, !p.right_along, n, k));
    for (int half = 0; half < 2; ++half) {
      double sum = 0;  // products are exact, so the order of 16 of them hardly shows
      for (int k = 0; k < 16; ++k) sum += (double)left[half][k] * (double)right[k];
      float& to = p.sums[n / 8 * 4 + half * 2 + n % 2];
      to = p.first ? (float)sum : to + (float)sum;
    }
  }
}
static inline float heddle_sim_widen_bf16(unsigned short bits);
template <int columns, bool left_along, bool right_along>
static inline void heddle_sim_wgmma(float* sums, hd_descriptor a, hd_descriptor b,
                                    float (*widen)(unsigned short), bool first) {
  const heddle_sim_warpgroup_product product = {sums,        a,     b,     columns, left_along,
                                                right_along, false, first, widen,   {}};
  heddle_sim_read_operands(product);
  heddle_sim.defer(heddle_sim_multiply, &product, sizeof product);
}
// Register r of lane (g, t) of the left matrix holds elements (g + 8 * (r % 2), 2 * t + 8 * (r / 2)) and the one right of it.
template <int columns, bool right_along>
HEDDLE_SIM_OWN static void heddle_sim_wgmma_registers(float* sums, const unsigned int* a,
                                                      hd_descriptor b,
                                                      float (*widen)(unsigned short)) {
  heddle_sim_warpgroup_product product = {sums,        {},   b,     columns, true,
                                          right_along, true, false, widen,   {}};
  const unsigned int* const all = heddle_sim.exchange(a, 4);
  const unsigned int lane = threadIdx.x % 32;
  for (unsigned int half = 0; half < 2; ++half)
    for (unsigned int k = 0; k < 16; ++k)
      product.left[half][k] = widen(
          (unsigned short)(all[4 * (lane / 4 * 4 + k % 8 / 2) + half + k / 8 * 2] >> 16 * (k % 2)));
  heddle_sim_read_operands(product);
  heddle_sim.defer(heddle_sim_multiply, &product, sizeof product);
}
// Those of HEDDLE_WGMMA_TWINS come once the types of 16 bits are known.
#define HEDDLE_WGMMA_TWINS                                                                        \
  template <int columns, bool left_along, bool right_along>                                       \
  static inline void hd_wgmma(float* sums, hd_descriptor a, hd_descriptor b, hd_bf16) {           \
    heddle_sim_wgmma<columns, left_along, right_along>(sums, a, b, heddle_sim_widen_bf16, false); \
  }                                                                                               \
  template <int columns, bool left_along, bool right_along>                                       \
  static inline void hd_wgmma_first(float* sums, hd_descriptor a, hd_descriptor b, hd_bf16) {     \
    heddle_sim_wgmma<columns, left_along, right_along>(sums, a, b, heddle_sim_widen_bf16, true);  \
  }                                                                                               \
  template <int columns, bool left_along, bool right_along>                                       \
  static inline void hd_wgmma_first(float* sums, hd_descriptor a, hd_descriptor b, hd_f16) {      \
    heddle_sim_wgmma<columns, left_along, right_along>(sums, a, b, hd_cvt_f32_f16, true);         \
  }                                                                                               \
  template <int columns, bool left_along, bool right_along>                                       \
  static inline void hd_wgmma(float* sums, hd_descriptor a, hd_descriptor b, hd_f16) {            \
    heddle_sim_wgmma<columns, left_along, right_along>(sums, a, b, hd_cvt_f32_f16, false);        \
  }                                                                                               \
  template <int columns, bool right_along>                                                        \
  static inline void hd_wgmma_registers(float* sums, const unsigned int* a, hd_descriptor b,      \
                                        hd_bf16) {                                                \
    heddle_sim_wgmma_registers<columns, right_along>(sums, a, b, heddle_sim_widen_bf16);          \
  }                                                                                               \
  template <int columns, bool right_along>                                                        \
  static inline void hd_wgmma_registers(float* sums, const unsigned int* a, hd_descriptor b,      \
                                        hd_f16) {                                                 \
    heddle_sim_wgmma_registers<columns, right_along>(sums, a, b, hd_cvt_f32_f16);                 \
  }

// Twins of mma.sync m16n8k16. Register r of lane (g, t) holds of a: elements (g + 8 * (r % 2), 2 * t + 8 * (r / 2))
// and the one right of it; of b: (2 * t + 8 * r, g) and the one below it; of the sums: (g + 8 * (r / 2), 2 * t + r % 2).
static inline float heddle_sim_widen_bf16(unsigned short bits) {
  return __int_as_float((int)((unsigned int)bits << 16));
}
HEDDLE_SIM_OWN static void heddle_sim_mma(float* sums, const unsigned int* a, const unsigned int* b,
                                          float (*widen)(unsigned short)) {
  const unsigned int words[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  const unsigned int* const all = heddle_sim.exchange(words, 6);
  const unsigned int lane = threadIdx.x % 32;
  for (unsigned int r = 0; r < 4; ++r) {
    const unsigned int row = lane / 4 + r / 2 * 8;
    const unsigned int column = lane % 4 * 2 + r % 2;
    double sum = 0;  // products are exact, so the order of 16 of them hardly shows
    for (unsigned int k = 0; k < 16; ++k) {
      const unsigned int left = all[6 * (row % 8 * 4 + k % 8 / 2) + row / 8 + k / 8 * 2];
      const unsigned int right = all[6 * (column * 4 + k % 8 / 2) + 4 + k / 8];
      sum += (double)widen((unsigned short)(left >> 16 * (k % 2))) *
             (double)widen((unsigned short)(right >> 16 * (k % 2)));
    }
    sums[r] = (float)(sums[r] + sum);
  }
}
static inline void hd_mma_f16(float* sums, const unsigned int* a, const unsigned int* b) {
  heddle_sim_mma(sums, a, b, hd_cvt_f32_f16);
}
static inline void hd_mma_bf16(float* sums, const unsigned int* a, const unsigned int* b) {
  heddle_sim_mma(sums, a, b, heddle_sim_widen_bf16);
}

// Twin of mma.sync m16n8k32 of bytes. Register r of lane (g, t) holds of a: elements (g + 8 * (r % 2),
// 4 * t + 16 * (r / 2)) and the three right of it; of b: (4 * t + 16 * r, g) and the three below it; sums as above.
static inline unsigned int heddle_sim_byte(unsigned int word, unsigned int k, bool is_signed) {
  const unsigned int byte = word >> 8 * k & 0xffu;
  return is_signed ? (byte ^ 0x80u) - 0x80u : byte;
}
template <bool left_signed, bool right_signed>
HEDDLE_SIM_OWN static void hd_mma_bytes(unsigned int* sums, const unsigned int* a,
                                        const unsigned int* b) {
  const unsigned int words[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  const unsigned int* const all = heddle_sim.exchange(words, 6);
  const unsigned int lane = threadIdx.x % 32;
  for (unsigned int r = 0; r < 4; ++r) {
    const unsigned int row = lane / 4 + r / 2 * 8;
    const unsigned int column = lane % 4 * 2 + r % 2;
    for (unsigned int k = 0; k < 32; ++k) {
      const unsigned int left = all[6 * (row % 8 * 4 + k % 16 / 4) + row / 8 + k / 16 * 2];
      const unsigned int right = all[6 * (column * 4 + k % 16 / 4) + 4 + k / 16];
      sums[r] +=
          heddle_sim_byte(left, k % 4, left_signed) * heddle_sim_byte(right, k % 4, right_signed);
    }
  }
}

// Twin of cvt.rna.tf32.f32.
static inline unsigned int hd_to_tf32(unsigned int bits) {
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffffffu;
  if ((bits & 0x7fffffffu) == 0x7f800000u) return bits;
  return (bits + 0x1000u) & ~0x1fffu;
}

// Twin of mma.sync m16n8k8 of tf32, which does not look at the last 13 bits. Register r of lane (g, t) holds of a: element
// (g + 8 * (r % 2), t + 4 * (r / 2)); of b: (t + 4 * r, g); sums as above.
HEDDLE_SIM_OWN static void hd_mma_tf32(float* sums, const unsigned int* a, const unsigned int* b) {
  const unsigned int words[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  const unsigned int* const all = heddle_sim.exchange(words, 6);
  const unsigned int lane = threadIdx.x % 32;
  for (unsigned int r = 0; r < 4; ++r) {
    const unsigned int row = lane / 4 + r / 2 * 8;
    const unsigned int column = lane % 4 * 2 + r % 2;
    double sum = 0;
    for (unsigned int k = 0; k < 8; ++k) {
      const unsigned int left = all[6 * (row % 8 * 4 + k % 4) + row / 8 + k / 4 * 2];
      const unsigned int right = all[6 * (column * 4 + k % 4) + 4 + k / 4];
      sum += (double)__int_as_float((int)(left & ~0x1fffu)) *
             (double)__int_as_float((int)(right & ~0x1fffu));
    }
    sums[r] = (float)(sums[r] + sum);
  }
}

// Twin of prmt.b32 without a mode; the selector's bits for signs are not used.
static inline unsigned int hd_permute_bytes(unsigned int low, unsigned int high,
                                            unsigned int selector) {
  const unsigned long both = low | (unsigned long)high << 32;
  unsigned int result = 0;
  for (unsigned int k = 0; k < 4; ++k)
    result |= (unsigned int)(both >> 8 * (selector >> 4 * k & 7u) & 0xffu) << 8 * k;
  return result;
}

extern "C" {
#define HEDDLE_SIM_UNARY(name)   \
  float name##f(float) noexcept; \
  double name(double) noexcept
#define HEDDLE_SIM_BINARY(name)         \
  float name##f(float, float) noexcept; \
  double name(double, double) noexcept
HEDDLE_SIM_UNARY(fabs);
HEDDLE_SIM_UNARY(ceil);
HEDDLE_SIM_UNARY(floor);
HEDDLE_SIM_UNARY(rint);
HEDDLE_SIM_UNARY(trunc);
HEDDLE_SIM_UNARY(sqrt);
HEDDLE_SIM_UNARY(exp);
HEDDLE_SIM_UNARY(exp2);
HEDDLE_SIM_UNARY(expm1);
HEDDLE_SIM_UNARY(log);
HEDDLE_SIM_UNARY(log2);
HEDDLE_SIM_UNARY(log1p);
HEDDLE_SIM_UNARY(sin);
HEDDLE_SIM_UNARY(cos);
HEDDLE_SIM_UNARY(tan);
HEDDLE_SIM_UNARY(asin);
HEDDLE_SIM_UNARY(acos);
HEDDLE_SIM_UNARY(atan);
HEDDLE_SIM_UNARY(sinh);
HEDDLE_SIM_UNARY(cosh);
HEDDLE_SIM_UNARY(asinh);
HEDDLE_SIM_UNARY(acosh);
HEDDLE_SIM_UNARY(atanh);
HEDDLE_SIM_UNARY(tanh);
HEDDLE_SIM_UNARY(erf);
HEDDLE_SIM_BINARY(pow);
HEDDLE_SIM_BINARY(atan2);
HEDDLE_SIM_BINARY(fmod);
HEDDLE_SIM_BINARY(fmax);
float fmaf(float, float, float) noexcept;
double fma(double, double, double) noexcept;
}

// Calls a kernel with its parameters behind pointers, as the driver gets them; and their kinds, for
// the check of pointers: one character each.
template <int... k>
struct heddle_sim_numbers {};
template <class... A, int... k>
HEDDLE_SIM_PLAIN static void heddle_sim_spread(void (*kernel)(A...), void** a,
                                               heddle_sim_numbers<k...>) {
  kernel(*(A*)a[k]...);
}
template <class... A>
HEDDLE_SIM_PLAIN static void heddle_sim_call(void (*kernel)(A...), void** arguments) {
  heddle_sim_spread(kernel, arguments, heddle_sim_numbers<__integer_pack(sizeof...(A))...>());
}
template <class T>
struct heddle_sim_kind {
  static constexpr char value = '0' + sizeof(T);
};
template <class T>
struct heddle_sim_kind<T*> {
  static constexpr char value = 'p';
};
template <class... A>
static inline const char* heddle_sim_kinds(void (*)(A...)) {
  static const char text[] = {heddle_sim_kind<A>::value..., 0};
  return text;
}
