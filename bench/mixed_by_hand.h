// The 20 mixed operations of pointwise_bench written by hand with AVX-512 intrinsics: the floor that their
// arithmetic sets. The same tables, polynomials, limits and special cases as the code generator's.
#pragma once

#include <array>
#include <cmath>
#include <immintrin.h>

#include "jit/cpu/llvm/math_tables.h"

namespace heddle::bench::by_hand {

// Made when the program starts, on any processor.
inline std::array<float, 16> make_roots(double sign) {
  std::array<float, 16> values{};
  for (int k = 0; k < 16; ++k)
    values[static_cast<std::size_t>(k)] = static_cast<float>(std::exp2(sign * k / 16));
  return values;
}
inline const std::array<float, 16> kRoots = make_roots(1);
inline const std::array<float, 16> kInverseRoots = make_roots(-1);

}  // namespace heddle::bench::by_hand

#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,fma")

namespace heddle::bench::by_hand {

using V = __m512;

inline V real(float x) { return _mm512_set1_ps(x); }
inline V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
/// Keeps NaN, which max and min pass on from their second operand.
inline V clamp(V x, float low, float high) {
  return _mm512_min_ps(real(high), _mm512_max_ps(real(low), x));
}

inline V look_up(const std::array<float, 16>& row, __m512i index) {
  return _mm512_permutexvar_ps(index, _mm512_loadu_ps(row.data()));
}
inline V look_up(const std::array<float, 32>& row, __m512i index) {
  return _mm512_permutex2var_ps(_mm512_loadu_ps(row.data()), index,
                                _mm512_loadu_ps(row.data() + 16));
}

struct Split {
  V n, r;
  __m512i index;
};
/// x = n ln 2 + r, n a multiple of 1/16.
inline Split split(V x) {
  const V rounder = real(0x1.8p19f);
  const V shifted = fma(x, real(0x1.715476p+0f), rounder);
  const V n = _mm512_sub_ps(shifted, rounder);
  return {n, fma(n, real(0x1.05c61p-29f), fma(n, real(-0x1.62e43p-1f), x)),
          _mm512_castps_si512(shifted)};
}

inline V exp(V x) {
  const Split s = split(clamp(x, -104, 89));
  const V p = fma(fma(real(1.666666716e-01f), s.r, real(5.000161955e-01f)), s.r, real(1));
  const V root = look_up(kRoots, s.index);
  return _mm512_scalef_ps(fma(root, _mm512_mul_ps(p, s.r), root), s.n);
}

inline V sigmoid(V x) {
  const Split s = split(clamp(x, -104, 30));
  const V p = fma(fma(real(-1.666666716e-01f), s.r, real(5.000161955e-01f)), s.r, real(-1));
  const V root = look_up(kInverseRoots, s.index);
  const V power = _mm512_scalef_ps(real(1), s.n);
  const V bottom = _mm512_add_ps(fma(root, _mm512_mul_ps(p, s.r), root), power);
  const V estimate = _mm512_rcp14_ps(bottom);
  const V inverse = fma(_mm512_fnmadd_ps(bottom, estimate, real(1)), estimate, estimate);
  return _mm512_scalef_ps(inverse, s.n);
}

inline V piecewise(const jit::cpu::PiecewiseTable& table, V x) {
  const V magnitude = _mm512_min_ps(real(table.highest), _mm512_abs_ps(x));
  const V inside = _mm512_max_ps(real(std::ldexp(1.0f, table.first_exponent)), magnitude);
  const __m512i index = _mm512_srli_epi32(_mm512_castps_si512(inside), 21);
  const V t = _mm512_sub_ps(magnitude, look_up(table.centers, index));
  V sum = look_up(table.coefficients[5], index);
#pragma GCC unroll 5
  for (int k = 4; k >= 0; --k)
    sum = fma(sum, t, look_up(table.coefficients[static_cast<std::size_t>(k)], index));
  const V sign = real(-0.0f);
  return _mm512_or_ps(_mm512_andnot_ps(sign, sum), _mm512_and_ps(sign, x));
}
inline V tanh(V x) { return piecewise(jit::cpu::tanh_table(), x); }
inline V erf(V x) { return piecewise(jit::cpu::erf_table(), x); }

inline V log(V x) {
  const jit::cpu::LogTable& table = jit::cpu::log_table();
  const V m = _mm512_getmant_ps(
      x, _MM_MANT_NORM_p75_1p5,
      static_cast<_MM_MANTISSA_SIGN_ENUM>(_MM_MANT_SIGN_zero | _MM_MANT_SIGN_nan));
  const V e = _mm512_sub_ps(_mm512_getexp_ps(x), _mm512_getexp_ps(m));
  const __m512i index = _mm512_srli_epi32(_mm512_castps_si512(m), 19);
  const V r = fma(m, look_up(table.reciprocals, index), real(-1));
  V rest = real(static_cast<float>(table.rest[3]));
#pragma GCC unroll 3
  for (int k = 2; k >= 0; --k)
    rest = fma(rest, r, real(static_cast<float>(table.rest[static_cast<std::size_t>(k)])));
  const V low = fma(e, real(0x1.efa39ep-25f), fma(_mm512_mul_ps(r, r), rest, r));
  return fma(e, real(0x1.62e42ep-1f), _mm512_add_ps(look_up(table.logarithms, index), low));
}

inline V cheap_ops(V x, V y) {
  V t = _mm512_mul_ps(_mm512_add_ps(x, y), real(0.5f));
  t = _mm512_mul_ps(_mm512_abs_ps(_mm512_sub_ps(t, x)), y);
  return _mm512_add_ps(clamp(t, -3, 3), real(1));
}

/// out[i] = the 20 operations on x[i], y[i]; count is a multiple of 128.
__attribute__((noinline)) inline void mixed_ops(const float* x, const float* y, float* out,
                                                std::int64_t count) {
  constexpr int kInFlight = 8;
  for (std::int64_t i = 0; i < count; i += 16 * kInFlight) {
    V t[kInFlight];
    const auto each = [&](auto step) __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (int k = 0; k < kInFlight; ++k) t[k] = step(k);
    };
    const auto xs = [&](int k)
                        __attribute__((always_inline)) { return _mm512_loadu_ps(x + i + 16 * k); };
    const auto ys = [&](int k)
                        __attribute__((always_inline)) { return _mm512_loadu_ps(y + i + 16 * k); };
    each([&](int k) __attribute__((always_inline)) { return cheap_ops(xs(k), ys(k)); });
    each([&](int k) __attribute__((always_inline)) { return _mm512_mul_ps(tanh(t[k]), xs(k)); });
    each([&](int k) __attribute__((always_inline)) { return _mm512_add_ps(exp(t[k]), real(1)); });
    each([&](int k)
             __attribute__((always_inline)) { return _mm512_div_ps(log(t[k]), real(1.7f)); });
    each([&](int k) __attribute__((always_inline)) { return _mm512_sub_ps(sigmoid(t[k]), ys(k)); });
    each([&](int k) __attribute__((always_inline)) {
      const V root = _mm512_sqrt_ps(_mm512_abs_ps(erf(t[k])));
      return _mm512_xor_ps(root, real(-0.0f));
    });
#pragma GCC unroll 8
    for (int k = 0; k < kInFlight; ++k) _mm512_storeu_ps(out + i + 16 * k, t[k]);
  }
}

}  // namespace heddle::bench::by_hand

#pragma GCC pop_options
