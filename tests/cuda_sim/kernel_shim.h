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
#define HEDDLE_SIM_HOOK __attribute__((visibility("hidden"), no_sanitize("thread")))
#define HEDDLE_SIM_ACCESS(name, kind)                                         \
  HEDDLE_SIM_HOOK void __tsan_##name##_range(void* at, unsigned long bytes) { \
    heddle_sim.access((unsigned long)at, bytes, kind);                        \
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
#define HEDDLE_SIM_ACCESS_OF(name, kind, bytes)        \
  HEDDLE_SIM_HOOK void __tsan_##name(void* at) {       \
    heddle_sim.access((unsigned long)at, bytes, kind); \
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
#define __shfl_xor_sync(lanes, value, mask) heddle_sim.shuffle_xor(value, mask)
#define memcpy __builtin_memcpy
#define hd_dynamic_shared() (heddle_sim.dynamic_shared)

static inline float __int_as_float(int bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
static inline int __float_as_int(float value) {
  int bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Threads change places at barriers and shuffles only, so plain code is atomic.
template <class T>
static HEDDLE_SIM_PLAIN T atomicCAS(T* at, T expected, T wanted) {
  heddle_sim.access((unsigned long)at, sizeof(T), 2);
  const T before = *at;
  if (before == expected) *at = wanted;
  return before;
}
template <class T>
static HEDDLE_SIM_PLAIN T atomicAdd(T* at, T value) {
  heddle_sim.access((unsigned long)at, sizeof(T), 2);
  const T before = *at;
  *at = before + value;
  return before;
}

template <class T>
static HEDDLE_SIM_PLAIN T hd_peek(const T* at) {
  heddle_sim.access((unsigned long)at, sizeof(T), 2);
  return *at;
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
