#include "ir/ops/host_scalar.h"

#include <cmath>
#include <limits>
#include <optional>

#include "base/check.h"
#include "base/float8.h"
#include "base/half.h"

namespace heddle::ir::ops {
namespace {

double rounded(DType dtype, double value) {
  switch (dtype) {
    case DType::F32:
      return static_cast<float>(value);
    case DType::F16:
      return static_cast<float>(base::Half(static_cast<float>(value)));
    case DType::BF16:
      return static_cast<float>(base::BFloat16(static_cast<float>(value)));
    default:
      return is_float8(dtype)
                 ? base::float8_value(dtype, base::float8_code(dtype, static_cast<float>(value)))
                 : value;
  }
}

std::int64_t wrapped(DType dtype, std::int64_t value) {
  switch (dtype) {
    case DType::I8:
      return static_cast<std::int8_t>(value);
    case DType::U8:
      return static_cast<std::uint8_t>(value);
    case DType::I16:
      return static_cast<std::int16_t>(value);
    case DType::U16:
      return static_cast<std::uint16_t>(value);
    case DType::I32:
      return static_cast<std::int32_t>(value);
    case DType::U32:
      return static_cast<std::uint32_t>(value);
    case DType::Bool:
      return value != 0 ? 1 : 0;
    default:
      return value;
  }
}

int width_in_bits(DType dtype) { return static_cast<int>(8 * size_of(dtype)); }

std::int64_t lowest(DType dtype) {
  return is_signed(dtype) ? -(std::int64_t{1} << (width_in_bits(dtype) - 2)) * 2 : 0;
}

std::int64_t highest(DType dtype) {
  const int value_bits = width_in_bits(dtype) - (is_signed(dtype) ? 1 : 0);
  return static_cast<std::int64_t>((std::uint64_t{1} << value_bits) - 1);
}

std::int64_t saturated(DType dtype, double value) {
  if (std::isnan(value)) return 0;
  if (dtype == DType::U64) {
    if (value >= 0x1p64) return -1;
    return value <= 0 ? 0 : static_cast<std::int64_t>(static_cast<std::uint64_t>(value));
  }
  // 2^63 is the first double above the i64 range, and compares exactly.
  if (value >= static_cast<double>(highest(dtype))) return highest(dtype);
  if (value <= static_cast<double>(lowest(dtype))) return lowest(dtype);
  return static_cast<std::int64_t>(value);
}

double sign_of(double x) { return std::isnan(x) ? x : static_cast<double>((x > 0) - (x < 0)); }

std::optional<double> unary_real(ScalarOp op, double x) {
  switch (op) {
    case ScalarOp::Neg:
      return -x;
    case ScalarOp::Abs:
      return std::fabs(x);
    case ScalarOp::Sign:
      return sign_of(x);
    case ScalarOp::Ceil:
      return std::ceil(x);
    case ScalarOp::Floor:
      return std::floor(x);
    case ScalarOp::Round:
      return std::nearbyint(x);
    case ScalarOp::Trunc:
      return std::trunc(x);
    case ScalarOp::Sqrt:
      return std::sqrt(x);
    case ScalarOp::Rsqrt:
      return 1.0 / std::sqrt(x);
    case ScalarOp::Reciprocal:
      return 1.0 / x;
    case ScalarOp::Exp:
      return std::exp(x);
    case ScalarOp::Exp2:
      return std::exp2(x);
    case ScalarOp::Expm1:
      return std::expm1(x);
    case ScalarOp::Log:
      return std::log(x);
    case ScalarOp::Log2:
      return std::log2(x);
    case ScalarOp::Log1p:
      return std::log1p(x);
    case ScalarOp::Sin:
      return std::sin(x);
    case ScalarOp::Cos:
      return std::cos(x);
    case ScalarOp::Tan:
      return std::tan(x);
    case ScalarOp::Asin:
      return std::asin(x);
    case ScalarOp::Acos:
      return std::acos(x);
    case ScalarOp::Atan:
      return std::atan(x);
    case ScalarOp::Sinh:
      return std::sinh(x);
    case ScalarOp::Cosh:
      return std::cosh(x);
    case ScalarOp::Asinh:
      return std::asinh(x);
    case ScalarOp::Acosh:
      return std::acosh(x);
    case ScalarOp::Atanh:
      return std::atanh(x);
    case ScalarOp::Tanh:
      return std::tanh(x);
    case ScalarOp::Erf:
      return std::erf(x);
    case ScalarOp::Sigmoid:
      return 1.0 / (1.0 + std::exp(-x));
    default:
      return std::nullopt;
  }
}

double floored_remainder(double a, double b) {
  const double r = std::fmod(a, b);
  return r != 0.0 && (r < 0.0) != (b < 0.0) ? r + b : r;
}

double either_nan_or(double a, double b, double otherwise) {
  return std::isnan(a) ? a : std::isnan(b) ? b : otherwise;
}

std::optional<double> binary_real(ScalarOp op, double a, double b) {
  switch (op) {
    case ScalarOp::Add:
      return a + b;
    case ScalarOp::Sub:
      return a - b;
    case ScalarOp::Mul:
      return a * b;
    case ScalarOp::Div:
      return a / b;
    case ScalarOp::Mod:
      return floored_remainder(a, b);
    case ScalarOp::Rem:
      return std::fmod(a, b);
    case ScalarOp::Pow:
      return std::pow(a, b);
    case ScalarOp::Atan2:
      return std::atan2(a, b);
    case ScalarOp::Max:
      return either_nan_or(a, b, a < b ? b : a);
    case ScalarOp::Min:
      return either_nan_or(a, b, b < a ? b : a);
    default:
      return std::nullopt;
  }
}

template <typename T>
std::optional<bool> comparison(ScalarOp op, T a, T b) {
  switch (op) {
    case ScalarOp::Eq:
      return a == b;
    case ScalarOp::Ne:
      return a != b;
    case ScalarOp::Lt:
      return a < b;
    case ScalarOp::Le:
      return a <= b;
    case ScalarOp::Gt:
      return a > b;
    case ScalarOp::Ge:
      return a >= b;
    default:
      return std::nullopt;
  }
}

std::optional<std::int64_t> unary_integer(ScalarOp op, DType dtype, std::int64_t x) {
  if (dtype == DType::U64 && op == ScalarOp::Abs) return x;
  if (dtype == DType::U64 && op == ScalarOp::Sign) return x != 0 ? 1 : 0;
  const auto negated = static_cast<std::int64_t>(-static_cast<std::uint64_t>(x));
  switch (op) {
    case ScalarOp::Neg:
      return negated;
    case ScalarOp::Abs:
      return x < 0 ? negated : x;
    case ScalarOp::Sign:
      return (x > 0) - (x < 0);
    case ScalarOp::Ceil:
    case ScalarOp::Floor:
    case ScalarOp::Round:
    case ScalarOp::Trunc:
      return x;
    case ScalarOp::Not:
      return dtype == DType::Bool ? 1 - x : ~x;
    default:
      return std::nullopt;
  }
}

std::int64_t quotient(std::int64_t a, std::int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return static_cast<std::int64_t>(-static_cast<std::uint64_t>(a));
  return a / b;
}

std::int64_t remainder_of(std::int64_t a, std::int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }

std::int64_t floored_remainder(std::int64_t a, std::int64_t b) {
  const std::int64_t r = remainder_of(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/// a^b modulo 2^64.
std::uint64_t power(std::uint64_t a, std::uint64_t b) {
  std::uint64_t result = 1;
  for (; b != 0; b >>= 1, a *= a) {
    if (b & 1) result *= a;
  }
  return result;
}

/// The same; for b < 0 the real power rounded towards zero, and 0^b = 0.
std::int64_t power(std::int64_t a, std::int64_t b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 == 0 ? 1 : -1) : 0;
  return static_cast<std::int64_t>(
      power(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
}

bool shifts_all_out(DType dtype, std::int64_t count) {
  return count < 0 || count >= width_in_bits(dtype);
}

std::int64_t shifted_left(DType dtype, std::int64_t a, std::int64_t count) {
  if (shifts_all_out(dtype, count)) return 0;
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) << count);
}

std::int64_t shifted_right(DType dtype, std::int64_t a, std::int64_t count) {
  if (shifts_all_out(dtype, count)) return a < 0 ? -1 : 0;
  return a >> count;  // `a` is sign-extended from signed dtypes, zero-extended from others
}

/// Where operands of u64 are not treated as others are.
std::optional<std::uint64_t> binary_u64(ScalarOp op, std::uint64_t a, std::uint64_t b) {
  switch (op) {
    case ScalarOp::Div:
      return b == 0 ? 0 : a / b;
    case ScalarOp::Mod:
    case ScalarOp::Rem:
      return b == 0 ? 0 : a % b;
    case ScalarOp::Pow:
      return power(a, b);
    case ScalarOp::Max:
      return a < b ? b : a;
    case ScalarOp::Min:
      return b < a ? b : a;
    case ScalarOp::Shr:
      return b >= 64 ? 0 : a >> b;
    default:
      return std::nullopt;
  }
}

std::optional<std::int64_t> binary_integer(ScalarOp op, DType dtype, std::int64_t a,
                                           std::int64_t b) {
  const auto ua = static_cast<std::uint64_t>(a);
  const auto ub = static_cast<std::uint64_t>(b);
  if (dtype == DType::U64)
    if (const auto result = binary_u64(op, ua, ub)) return static_cast<std::int64_t>(*result);
  switch (op) {
    case ScalarOp::Add:
      return static_cast<std::int64_t>(ua + ub);
    case ScalarOp::Sub:
      return static_cast<std::int64_t>(ua - ub);
    case ScalarOp::Mul:
      return static_cast<std::int64_t>(ua * ub);
    case ScalarOp::Div:
      return quotient(a, b);
    case ScalarOp::Mod:
      return floored_remainder(a, b);
    case ScalarOp::Rem:
      return remainder_of(a, b);
    case ScalarOp::Pow:
      return power(a, b);
    case ScalarOp::Max:
      return a < b ? b : a;
    case ScalarOp::Min:
      return b < a ? b : a;
    case ScalarOp::And:
      return a & b;
    case ScalarOp::Or:
      return a | b;
    case ScalarOp::Xor:
      return a ^ b;
    case ScalarOp::Shl:
      return shifted_left(dtype, a, b);
    case ScalarOp::Shr:
      return shifted_right(dtype, a, b);
    default:
      return std::nullopt;
  }
}

HostScalar apply_unary(ScalarOp op, const HostScalar& x) {
  if (op == ScalarOp::IsNan) return HostScalar::of_bool(std::isnan(x.real));
  if (op == ScalarOp::IsInf) return HostScalar::of_bool(std::isinf(x.real));
  if (is_floating(x.dtype)) {
    if (const auto result = unary_real(op, x.real)) return HostScalar::of_real(x.dtype, *result);
  } else if (const auto result = unary_integer(op, x.dtype, x.integer)) {
    return HostScalar::of_integer(x.dtype, *result);
  }
  HD_CHECK(false, "no definition of " + std::string(name_of(op)) + " on this dtype");
  return x;
}

HostScalar apply_binary(ScalarOp op, const HostScalar& a, const HostScalar& b) {
  HD_CHECK(a.dtype == b.dtype);
  if (is_floating(a.dtype)) {
    if (const auto truth = comparison(op, a.real, b.real)) return HostScalar::of_bool(*truth);
    if (const auto result = binary_real(op, a.real, b.real)) {
      return HostScalar::of_real(a.dtype, *result);
    }
  } else {
    const auto truth = a.dtype == DType::U64 ? comparison(op, static_cast<std::uint64_t>(a.integer),
                                                          static_cast<std::uint64_t>(b.integer))
                                             : comparison(op, a.integer, b.integer);
    if (truth) return HostScalar::of_bool(*truth);
    if (const auto result = binary_integer(op, a.dtype, a.integer, b.integer)) {
      return HostScalar::of_integer(a.dtype, *result);
    }
  }
  HD_CHECK(false, "no definition of " + std::string(name_of(op)) + " on this dtype");
  return a;
}

HostScalar multiply_add(const HostScalar& a, const HostScalar& b, const HostScalar& c) {
  if (is_floating(a.dtype)) return HostScalar::of_real(a.dtype, std::fma(a.real, b.real, c.real));
  return apply(ScalarOp::Add, {apply(ScalarOp::Mul, {a, b}), c});
}

}  // namespace

HostScalar HostScalar::of_real(DType dtype, double value) {
  HD_CHECK(is_floating(dtype));
  return {.dtype = dtype, .real = rounded(dtype, value)};
}

HostScalar HostScalar::of_integer(DType dtype, std::int64_t value) {
  HD_CHECK(!is_floating(dtype));
  return {.dtype = dtype, .integer = wrapped(dtype, value)};
}

HostScalar load(const Literal& tensor, std::int64_t position) {
  const DType dtype = tensor.dtype();
  if (is_floating(dtype)) return HostScalar::of_real(dtype, tensor.at(position));
  return HostScalar::of_integer(dtype, tensor.at_int(position));
}

void store(Literal& tensor, std::int64_t position, const HostScalar& value) {
  HD_CHECK(tensor.dtype() == value.dtype);
  if (is_floating(value.dtype)) {
    tensor.set(position, value.real);
  } else {
    tensor.set_int(position, value.integer);
  }
}

HostScalar convert(const HostScalar& value, DType dtype) {
  if (value.dtype == dtype) return value;
  if (dtype == DType::Bool) return HostScalar::of_bool(value.truth());
  if (is_floating(value.dtype)) {
    if (is_floating(dtype)) return HostScalar::of_real(dtype, value.real);
    return HostScalar::of_integer(dtype, saturated(dtype, value.real));
  }
  if (!is_floating(dtype)) return HostScalar::of_integer(dtype, value.integer);
  if (value.dtype == DType::U64) {
    const auto number = static_cast<std::uint64_t>(value.integer);
    return HostScalar::of_real(
        dtype, dtype == DType::F64 ? static_cast<double>(number) : static_cast<float>(number));
  }
  if (dtype == DType::F64) return HostScalar::of_real(dtype, static_cast<double>(value.integer));
  return HostScalar::of_real(dtype, static_cast<float>(value.integer));
}

HostScalar apply(ScalarOp op, std::span<const HostScalar> operands) {
  HD_CHECK(static_cast<int>(operands.size()) == arity_of(op));
  if (operands.size() == 1) return apply_unary(op, operands[0]);
  if (operands.size() == 2) return apply_binary(op, operands[0], operands[1]);
  if (op == ScalarOp::Select) return operands[0].truth() ? operands[1] : operands[2];
  return multiply_add(operands[0], operands[1], operands[2]);
}

}  // namespace heddle::ir::ops
