// What this machine can do, measured in the same run as what is compared with it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <immintrin.h>
#include <vector>

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

/// Copies floats, four vectors at a time.
__attribute__((target("avx512f"), noinline)) inline void copy_512(const float* from, float* to,
                                                                  std::size_t count) {
  for (std::size_t k = 0; k + 64 <= count; k += 64) {
#pragma GCC unroll 4
    for (std::size_t part = 0; part < 64; part += 16)
      _mm512_storeu_ps(to + k + part, _mm512_loadu_ps(from + k + part));
  }
}

__attribute__((target("avx2"), noinline)) inline void copy_256(const float* from, float* to,
                                                               std::size_t count) {
  for (std::size_t k = 0; k + 32 <= count; k += 32) {
#pragma GCC unroll 4
    for (std::size_t part = 0; part < 32; part += 8)
      _mm256_storeu_ps(to + k + part, _mm256_loadu_ps(from + k + part));
  }
}

/// Bytes a second, read and written together, of copies between arrays of `bytes` in total, one thread, best
/// of several runs: the rate of the cache that such arrays fit, or of memory.
inline double measured_bandwidth(std::int64_t bytes) {
  const bool wide = __builtin_cpu_supports("avx512f");
  const std::size_t count =
      std::max<std::size_t>(64, static_cast<std::size_t>(bytes / 8) / 64 * 64);
  std::vector<float> from(count, 1.0f);
  std::vector<float> to(count, 0.0f);
  const std::size_t repeats = 1 + (std::size_t{4} << 20) / count;
  double best = 0;
  for (int k = 0; k < 12; ++k) {
    const double start = thread_seconds();
    for (std::size_t r = 0; r < repeats; ++r)
      wide ? copy_512(from.data(), to.data(), count) : copy_256(from.data(), to.data(), count);
    const double moved = 8.0 * static_cast<double>(count * repeats);
    best = std::max(best, moved / (thread_seconds() - start));
  }
  return best;
}

}  // namespace heddle::bench
