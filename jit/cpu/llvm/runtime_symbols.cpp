#include "jit/cpu/llvm/runtime_symbols.h"

#include <cstdint>
#include <math.h>
#include <string.h>

#include "jit/index_report.h"

namespace heddle::jit::cpu {
namespace {

/// a^b modulo 2^64.
std::uint64_t unsigned_power(std::uint64_t a, std::uint64_t b) {
  std::uint64_t result = 1;
  for (; b != 0; b >>= 1, a *= a)
    if ((b & 1) != 0) result *= a;
  return result;
}

/// The same; for b < 0 the real power rounded towards zero, and 0^b = 0.
std::int64_t integer_power(std::int64_t a, std::int64_t b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 == 0 ? 1 : -1) : 0;
  return static_cast<std::int64_t>(
      unsigned_power(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
}

float sigmoid_f32(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}

double sigmoid_f64(double x) {
  const double e = exp(-fabs(x));
  return (x < 0 ? e : 1.0) / (1.0 + e);
}

template <typename Function>
constexpr void* address(Function* function) {
  return reinterpret_cast<void*>(function);
}

using Unary32 = float(float);
using Unary64 = double(double);
using Binary32 = float(float, float);
using Binary64 = double(double, double);

#define HEDDLE_UNARY(name)                              \
  {"heddle_f32_" #name, address<Unary32>(::name##f)}, { \
    "heddle_f64_" #name, address<Unary64>(::name)       \
  }

const RuntimeSymbol kSymbols[] = {
    HEDDLE_UNARY(exp),
    HEDDLE_UNARY(exp2),
    HEDDLE_UNARY(expm1),
    HEDDLE_UNARY(log),
    HEDDLE_UNARY(log2),
    HEDDLE_UNARY(log1p),
    HEDDLE_UNARY(sin),
    HEDDLE_UNARY(cos),
    HEDDLE_UNARY(tan),
    HEDDLE_UNARY(asin),
    HEDDLE_UNARY(acos),
    HEDDLE_UNARY(atan),
    HEDDLE_UNARY(sinh),
    HEDDLE_UNARY(cosh),
    HEDDLE_UNARY(asinh),
    HEDDLE_UNARY(acosh),
    HEDDLE_UNARY(atanh),
    HEDDLE_UNARY(tanh),
    HEDDLE_UNARY(erf),
    {"heddle_f32_sigmoid", address(sigmoid_f32)},
    {"heddle_f64_sigmoid", address(sigmoid_f64)},
    {"heddle_f32_pow", address<Binary32>(::powf)},
    {"heddle_f64_pow", address<Binary64>(::pow)},
    {"heddle_f32_rem", address<Binary32>(::fmodf)},
    {"heddle_f64_rem", address<Binary64>(::fmod)},
    {"heddle_f32_atan2", address<Binary32>(::atan2f)},
    {"heddle_f64_atan2", address<Binary64>(::atan2)},
    {"heddle_i64_pow", address(integer_power)},
    {"heddle_u64_pow", address(unsigned_power)},
    {"heddle_report_index", address(report_index)},
    // What the code generator itself calls: block operations, and roundings on machines without SSE4.1.
    {"memcpy", address<void*(void*, const void*, size_t)>(::memcpy)},
    {"memmove", address<void*(void*, const void*, size_t)>(::memmove)},
    {"memset", address<void*(void*, int, size_t)>(::memset)},
    {"floorf", address<Unary32>(::floorf)},
    {"floor", address<Unary64>(::floor)},
    {"ceilf", address<Unary32>(::ceilf)},
    {"ceil", address<Unary64>(::ceil)},
    {"truncf", address<Unary32>(::truncf)},
    {"trunc", address<Unary64>(::trunc)},
    {"roundevenf", address<Unary32>(::roundevenf)},
    {"roundeven", address<Unary64>(::roundeven)},
    {"rintf", address<Unary32>(::rintf)},
    {"rint", address<Unary64>(::rint)},
    {"fmaf", address<float(float, float, float)>(::fmaf)},
    {"fma", address<double(double, double, double)>(::fma)},
    {"fmodf", address<Binary32>(::fmodf)},
    {"fmod", address<Binary64>(::fmod)},
    {"sqrtf", address<Unary32>(::sqrtf)},
    {"sqrt", address<Unary64>(::sqrt)},
};

#undef HEDDLE_UNARY

}  // namespace

std::span<const RuntimeSymbol> runtime_symbols() { return kSymbols; }

}  // namespace heddle::jit::cpu
