#include "engine/onnx/reals.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/onnx/integers.h"
#include "heddle/error.h"

namespace heddle::onnx {

namespace {

/// Terms of the fractions that factors and summands may be: products of a few of them stay far below 64 bits.
constexpr std::int64_t kLargestTerm = 1024;
/// What takes more to compute is a tensor like any other.
constexpr int kMostSteps = 1000;
constexpr std::int64_t kLargestDenominator = std::int64_t{1} << 30;

double rounded(double number, DType dtype) {
  return dtype == f32 ? static_cast<double>(static_cast<float>(number)) : number;
}

bool is_power_of_two(std::int64_t number) {
  return number > 0 && std::has_single_bit(static_cast<std::uint64_t>(number));
}

double (*unary_of(std::string_view op))(double) {
  using Unary = double (*)(double);
  if (op == "floor") return static_cast<Unary>(std::floor);
  if (op == "ceil") return static_cast<Unary>(std::ceil);
  if (op == "round") return static_cast<Unary>(std::nearbyint);
  if (op == "sqrt") return static_cast<Unary>(std::sqrt);
  if (op == "trunc") return static_cast<Unary>(std::trunc);
  return nullptr;
}

double (*binary_of(std::string_view op))(double, double) {
  if (op == "add") return [](double a, double b) { return a + b; };
  if (op == "sub") return [](double a, double b) { return a - b; };
  if (op == "mul") return [](double a, double b) { return a * b; };
  if (op == "div") return [](double a, double b) { return a / b; };
  return nullptr;
}

}  // namespace

Real::Real(double number, DType dtype)
    : Real([number] { return number; }, fraction_of(number), dtype) {}

Real::Real(const SymInt& size, DType dtype)
    : Real([size, dtype] { return rounded(static_cast<double>(size.value()), dtype); },
           Fraction{size, 1}, dtype) {}

double Real::number() const { return (*number_)(); }

std::int64_t Real::whole() const {
  const double value = number();
  return std::abs(value) < 0x1p62 ? static_cast<std::int64_t>(value) : 0;
}

std::optional<Real::Fraction> Real::fraction_of(double number) {
  std::int64_t denominator = 1;
  while (number != std::floor(number) && denominator < kLargestTerm) {
    number *= 2;
    denominator *= 2;
  }
  if (number != std::floor(number) || std::abs(number) > kLargestTerm) return {};
  return Fraction{static_cast<std::int64_t>(number), denominator};
}

bool Real::is_exact() const {
  if (!fraction_) return false;
  const std::int64_t limit = std::int64_t{1} << (dtype_ == f32 ? 24 : 53);
  return fraction_->numerator < limit && SymInt(-limit) < fraction_->numerator;
}

std::optional<SymInt> Real::cut() const {
  if (!is_exact()) return {};
  return divide_to_zero(fraction_->numerator, fraction_->denominator);
}

std::optional<Real::Fraction> Real::combine(std::string_view op, const Fraction& a,
                                            const Fraction& b) {
  if (op == "div") {
    if (b.numerator.is_symbolic() || !is_power_of_two(b.numerator.value())) return {};
    return combine("mul", a, {b.denominator, b.numerator.value()});
  }
  if (a.denominator > kLargestDenominator / b.denominator) return {};
  if (op == "mul") return Fraction{a.numerator * b.numerator, a.denominator * b.denominator};
  const std::int64_t denominator = std::max(a.denominator, b.denominator);
  const SymInt left = a.numerator * (denominator / a.denominator);
  const SymInt right = b.numerator * (denominator / b.denominator);
  return Fraction{op == "add" ? left + right : left - right, denominator};
}

std::optional<Real::Fraction> Real::combined(std::string_view op, const Real& a, const Real& b) {
  if (!a.fraction_ || !b.fraction_) return {};
  try {
    return combine(op, *a.fraction_, *b.fraction_);
  } catch (const ShapeError&) {
    return {};
  }
}

std::optional<SymInt> Real::difference(const Real& a, const Real& b) {
  if (!a.is_exact() || !b.is_exact()) return {};
  const std::optional<Fraction> left = combined("sub", a, b);
  return left ? std::optional(left->numerator) : std::nullopt;
}

std::optional<SymInt> Real::count(const Real& start, const Real& limit, const Real& step) try {
  if (!step.fraction_ || step.fraction_->numerator.is_symbolic()) return {};
  const std::int64_t along = step.fraction_->numerator.value();
  if (along == 0 || !step.is_exact() || !start.is_exact() || !limit.is_exact()) return {};
  const std::optional<Real> span = apply("sub", limit, start);
  if (!span || !span->is_exact()) return {};
  const auto& [length, parts] = *span->fraction_;
  const SymInt distance =
      length * (along > 0 ? step.fraction_->denominator : -step.fraction_->denominator);
  const SymInt stride = SymInt(parts) * std::abs(along);
  if (distance <= 0) return SymInt(0);
  return (distance + (stride - 1)) / stride;
} catch (const ShapeError&) {
  return {};  // terms beyond 64 bits
}

std::optional<Real> Real::apply(std::string_view op, const Real& a) {
  const auto compute = unary_of(op);
  if (compute == nullptr || a.steps_ >= kMostSteps) return {};
  std::optional<Fraction> fraction;
  if ((op == "floor" || op == "ceil") && a.is_exact()) {
    const auto& [above, below] = *a.fraction_;
    fraction = Fraction{op == "floor" ? above / below : SymInt(0) - (SymInt(0) - above) / below, 1};
  }
  const DType dtype = a.dtype_;
  return Real([compute, number = a.number_, dtype] { return rounded(compute((*number)()), dtype); },
              std::move(fraction), dtype, a.steps_ + 1);
}

std::optional<Real> Real::apply(std::string_view op, const Real& a, const Real& b) {
  const auto compute = binary_of(op);
  if (compute == nullptr || a.steps_ + b.steps_ >= kMostSteps) return {};
  std::optional<Fraction> fraction = combined(op, a, b);
  const DType dtype = a.dtype_;
  return Real([compute, left = a.number_, right = b.number_,
               dtype] { return rounded(compute((*left)(), (*right)()), dtype); },
              std::move(fraction), dtype, a.steps_ + b.steps_ + 1);
}

std::optional<Reals> apply_reals(std::string_view op, std::span<const Reals> operands) {
  std::size_t count = 1;
  for (const Reals& operand : operands) {
    if (count != 1 && operand.size() != 1 && operand.size() != count) return {};
    count = count == 1 ? operand.size() : count;
  }
  Reals results;
  const auto at = [&](std::size_t operand, std::size_t k) -> const Real& {
    return operands[operand][operands[operand].size() == 1 ? 0 : k];
  };
  for (std::size_t k = 0; k < count; ++k) {
    const std::optional<Real> result =
        operands.size() == 1 ? Real::apply(op, at(0, k)) : Real::apply(op, at(0, k), at(1, k));
    if (!result) return {};
    results.push_back(*result);
  }
  return results;
}

}  // namespace heddle::onnx
