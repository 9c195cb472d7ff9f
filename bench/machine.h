// What this machine can do, measured in the same run as what is compared with it.
#pragma once

#include <algorithm>
#include <ctime>
#include <immintrin.h>

namespace heddle::bench {

/// Processor time of this thread: what other processes take away does not count.
inline double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// `steps` times 16 multiply-adds of 16 floats each.
__attribute__((target("avx512f"), noinline)) inline float fma_chains_512(long steps) {
  __m512 sums[16];
#pragma GCC unroll 16
  for (int k = 0; k < 16; ++k) sums[k] = _mm512_set1_ps(static_cast<float>(k));
  const __m512 a = _mm512_set1_ps(0.999f);
  const __m512 b = _mm512_set1_ps(0.001f);
  for (long step = 0; step < steps; ++step) {
#pragma GCC unroll 16
    for (int k = 0; k < 16; ++k) {
      sums[k] = _mm512_fmadd_ps(sums[k], a, b);
      asm volatile("" : "+v"(sums[k]));
    }
  }
  float total = 0;
#pragma GCC unroll 16
  for (int k = 0; k < 16; ++k) total += _mm512_cvtss_f32(sums[k]);
  return total;
}

/// `steps` times 12 multiply-adds of 8 floats each.
__attribute__((target("avx2,fma"), noinline)) inline float fma_chains_256(long steps) {
  __m256 sums[12];
#pragma GCC unroll 12
  for (int k = 0; k < 12; ++k) sums[k] = _mm256_set1_ps(static_cast<float>(k));
  const __m256 a = _mm256_set1_ps(0.999f);
  const __m256 b = _mm256_set1_ps(0.001f);
  for (long step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (int k = 0; k < 12; ++k) {
      sums[k] = _mm256_fmadd_ps(sums[k], a, b);
      asm volatile("" : "+x"(sums[k]));
    }
  }
  float total = 0;
#pragma GCC unroll 12
  for (int k = 0; k < 12; ++k) total += _mm256_cvtss_f32(sums[k]);
  return total;
}

/// Fused multiply-adds on f32 vectors in registers, one thread, best of several short runs: 10^9
/// floating operations a second.
inline double measured_fma_gflops() {
  const bool wide = __builtin_cpu_supports("avx512f");
  constexpr long kSteps = 200000;
  const double flops = 2.0 * kSteps * (wide ? 16 * 16 : 12 * 8);
  double best = 0;
  for (int k = 0; k < 10; ++k) {
    const double start = thread_seconds();
    volatile float sink = wide ? fma_chains_512(kSteps) : fma_chains_256(kSteps);
    (void)sink;
    best = std::max(best, flops / (thread_seconds() - start) / 1e9);
  }
  return best;
}

}  // namespace heddle::bench
