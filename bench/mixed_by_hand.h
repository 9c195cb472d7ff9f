// The 20 mixed operations of pointwise_bench written by hand with AVX-512 intrinsics: the floor that their
// arithmetic sets. The same polynomials, limits and special cases as the code generator's, four vectors
// in flight.
#pragma once

#include <cmath>
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,fma")

namespace heddle::bench::by_hand {

using V = __m512;

inline V real(float x) { return _mm512_set1_ps(x); }
inline V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
inline V where(__mmask16 m, V yes, V no) { return _mm512_mask_blend_ps(m, no, yes); }
inline __mmask16 less(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }

template <std::size_t N>
inline V polynomial(const float (&c)[N], V x) {
  V sum = real(c[N - 1]);
#pragma GCC unroll 16
  for (int k = static_cast<int>(N) - 2; k >= 0; --k) sum = fma(sum, x, real(c[k]));
  return sum;
}

inline V clamp(V x, float low, float high) {
  x = where(less(x, real(low)), real(low), x);
  return where(less(real(high), x), real(high), x);
}

struct Split {
  V n, r;
};
/// x = n ln 2 + r.
inline Split split(V x) {
  const V rounder = real(0x1.8p23f);
  const V n = _mm512_sub_ps(fma(x, real(0x1.715476p+0f), rounder), rounder);
  return {n, fma(n, real(0x1.05c61p-29f), fma(n, real(-0x1.62e43p-1f), x))};
}

inline V exp(V x) {
  static constexpr float kExp[] = {5.000000095e-01f, 1.666651884e-01f, 4.166620583e-02f,
                                   8.368889558e-03f, 1.395048916e-03f};
  const Split s = split(clamp(x, -104, 89));
  const V rest = fma(_mm512_mul_ps(s.r, s.r), polynomial(kExp, s.r), s.r);
  return _mm512_scalef_ps(_mm512_add_ps(rest, real(1)), s.n);
}

inline V expm1(V x) {
  static constexpr float kExpm1[] = {5.000000044e-01f, 1.666666637e-01f, 4.166636091e-02f,
                                     8.333389372e-03f, 1.394062765e-03f, 1.984587709e-04f};
  const Split s = split(clamp(x, -20, 89));
  const V p = fma(_mm512_mul_ps(s.r, s.r), polynomial(kExpm1, s.r), s.r);
  const V half = _mm512_scalef_ps(real(0.5f), s.n);
  const V sum = fma(p, half, _mm512_sub_ps(half, real(0.5f)));
  return where(less(_mm512_abs_ps(x), real(0x1p-60f)), x, _mm512_add_ps(sum, sum));
}

inline V tanh(V x) {
  const V t = expm1(_mm512_mul_ps(_mm512_abs_ps(x), real(-2)));
  const V ratio = _mm512_div_ps(t, _mm512_add_ps(t, real(2)));
  const V sign = real(-0.0f);
  return _mm512_or_ps(_mm512_andnot_ps(sign, ratio), _mm512_and_ps(sign, x));
}

inline V log(V x) {
  static constexpr float kLog[] = {3.333331258e-01f,  -2.500000961e-01f, 2.000212022e-01f,
                                   -1.666799677e-01f, 1.421951817e-01f,  -1.240554616e-01f,
                                   1.188839056e-01f,  -1.167604120e-01f, 6.746596987e-02f};
  const __mmask16 subnormal = less(x, real(0x1p-126f));
  const V normal = where(subnormal, _mm512_mul_ps(x, real(0x1p23f)), x);
  const __m512i root_half = _mm512_set1_epi32(0x3f3504f3);
  const __m512i bits = _mm512_sub_epi32(_mm512_castps_si512(normal), root_half);
  V e = _mm512_cvtepi32_ps(_mm512_srai_epi32(bits, 23));
  e = where(subnormal, _mm512_sub_ps(e, real(23)), e);
  const __m512i mantissa = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffff));
  const V f = _mm512_sub_ps(_mm512_castsi512_ps(_mm512_add_epi32(mantissa, root_half)), real(1));
  const V square = _mm512_mul_ps(f, f);
  const V rest = _mm512_mul_ps(_mm512_mul_ps(square, f), polynomial(kLog, f));
  V low = fma(e, real(-0x1.05c61p-29f), rest);
  low = fma(square, real(-0.5f), low);
  const V finite = fma(e, real(0x1.62e43p-1f), _mm512_add_ps(f, low));
  const V infinity = real(INFINITY);
  const V zero = _mm512_setzero_ps();
  const __mmask16 inside = less(zero, x) & less(x, infinity);
  V edge = where(_mm512_cmp_ps_mask(x, zero, _CMP_EQ_OQ), real(-INFINITY), real(NAN));
  edge = where(_mm512_cmp_ps_mask(x, infinity, _CMP_EQ_OQ), x, edge);
  return where(inside, finite, edge);
}

inline V sigmoid(V x) {
  const V e = exp(_mm512_sub_ps(real(-0.0f), _mm512_abs_ps(x)));
  const V top = where(less(x, _mm512_setzero_ps()), e, real(1));
  return _mm512_div_ps(top, _mm512_add_ps(e, real(1)));
}

inline V erf(V x) {
  static constexpr float kSmall[] = {1.283791657e-01f,  -3.761262584e-01f, 1.128358526e-01f,
                                     -2.685381563e-02f, 5.188333773e-03f,  -8.010241894e-04f,
                                     7.854008753e-05f};
  static constexpr float kLarge[] = {-3.415125920e-04f, -1.127089234e+00f, -6.381447582e-01f,
                                     -1.031068214e-01f, 2.183809696e-02f,  -2.947666796e-03f,
                                     1.863800842e-04f};
  const V magnitude = _mm512_abs_ps(x);
  const V small = fma(x, polynomial(kSmall, _mm512_mul_ps(x, x)), x);
  const V bounded = where(less(real(4), magnitude), real(4), magnitude);
  const V large = _mm512_sub_ps(real(1), exp(polynomial(kLarge, bounded)));
  const V sign = real(-0.0f);
  const V signed_large = _mm512_or_ps(_mm512_andnot_ps(sign, large), _mm512_and_ps(sign, x));
  return where(less(magnitude, real(1)), small, signed_large);
}

/// max and min keep NaN, which the compare passes on from its second operand.
inline V cheap_ops(V x, V y) {
  V t = _mm512_mul_ps(_mm512_add_ps(x, y), real(0.5f));
  t = _mm512_mul_ps(_mm512_abs_ps(_mm512_sub_ps(t, x)), y);
  t = where(less(t, real(-3)), real(-3), t);
  t = where(less(real(3), t), real(3), t);
  return _mm512_add_ps(t, real(1));
}

/// out[i] = the 20 operations on x[i], y[i]; count is a multiple of 64.
__attribute__((noinline)) inline void mixed_ops(const float* x, const float* y, float* out,
                                                std::int64_t count) {
  constexpr int kInFlight = 4;
  for (std::int64_t i = 0; i < count; i += 16 * kInFlight) {
    V t[kInFlight];
    const auto each = [&](auto step) __attribute__((always_inline)) {
#pragma GCC unroll 4
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
#pragma GCC unroll 4
    for (int k = 0; k < kInFlight; ++k) _mm512_storeu_ps(out + i + 16 * k, t[k]);
  }
}

}  // namespace heddle::bench::by_hand

#pragma GCC pop_options
