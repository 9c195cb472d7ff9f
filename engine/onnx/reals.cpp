#include "engine/onnx/reals.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "engine/onnx/integers.h"
#include "heddle/error.h"
#include "heddle/frontend.h"

namespace heddle::onnx {

namespace {

/// Terms of the fractions that factors and summands may be: products of a few of them stay far below 64 bits.
constexpr std::int64_t kLargestTerm = 1024;
/// What takes more to compute is a tensor like any other.
constexpr int kMostSteps = 1000;
constexpr std::int64_t kLargestDenominator = std::int64_t{1} << 30;
/// Steps that may round one number; room is left for twice as many.
constexpr std::size_t kMostRounded = 8;

double rounded(double number, DType dtype) {
  return dtype == f32 ? static_cast<double>(static_cast<float>(number)) : number;
}

/// What is left of a number above 0 when it has been halved as often as it can be.
std::int64_t odd_part(std::int64_t number) {
  return number >> std::countr_zero(static_cast<std::uint64_t>(number));
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
    : Real([number] { return number; }, fraction_of(number), dtype, Origin::Numbers) {}

Real::Real(const SymInt& size, DType dtype)
    : Real([size, dtype] { return rounded(static_cast<double>(size.value()), dtype); },
           Fraction{size, 1}, dtype,
           detail::is_late(size) ? Origin::Run
           : size.is_symbolic()  ? Origin::OpenSizes
                                 : Origin::Numbers) {}

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

bool Real::is_below(const SymInt& term, std::int64_t limit) {
  return detail::less_before_run(term, limit).value_or(false) &&
         detail::less_before_run(-limit, term).value_or(false);
}

bool Real::is_exact() const {
  return fraction_ && rounded_.empty() &&
         is_below(fraction_->numerator, std::int64_t{1} << digits());
}

// A step's result v is off by at most |v| 2^-digits. What follows a division is added to or made smaller, so that is what it adds to
// the error of the end, and all together stay below half the distance of two numbers with the end's denominator. Where the
// fraction is whole so was the quotient, for what was added has powers of two below and factors share none with the divisor:
// nothing was rounded.
bool Real::is_near() const {
  if (!fraction_) return false;
  if (rounded_.empty()) return is_exact();
  const std::int64_t unit =
      (std::int64_t{1} << digits()) / static_cast<std::int64_t>(2 * kMostRounded);
  return std::ranges::all_of(rounded_, [&](const Fraction& step) {
    return is_below(step.numerator, unit / fraction_->denominator * step.denominator);
  });
}

std::optional<SymInt> Real::cut() const {
  if (origin_ == Origin::Numbers) return whole();
  if (!is_near()) return {};
  return divide_to_zero(fraction_->numerator, fraction_->denominator);
}

std::optional<Real::Fraction> Real::combine(std::string_view op, const Fraction& a,
                                            const Fraction& b) {
  if (op == "div") {
    if (b.numerator.is_symbolic()) return {};
    const std::int64_t divisor = b.numerator.value();
    if (divisor == 0 || std::abs(divisor) > kLargestTerm) return {};
    return combine("mul", a, {divisor > 0 ? b.denominator : -b.denominator, std::abs(divisor)});
  }
  if (a.denominator > kLargestDenominator / b.denominator) return {};
  if (op == "mul") return Fraction{a.numerator * b.numerator, a.denominator * b.denominator};
  const std::int64_t denominator = std::lcm(a.denominator, b.denominator);
  const SymInt left = a.numerator * (denominator / a.denominator);
  const SymInt right = b.numerator * (denominator / b.denominator);
  return Fraction{op == "add" ? left + right : left - right, denominator};
}

bool Real::may_follow_division(std::string_view op, const Real& divided, const Real& other,
                               bool other_is_left) {
  if (!other.rounded_.empty()) return false;
  if (op == "add" || op == "sub") return true;
  if (other.origin_ != Origin::Numbers || (op == "div" && other_is_left)) return false;
  const auto& [numerator, denominator] = *other.fraction_;
  const std::int64_t above = std::abs(numerator.value());
  if (op == "div") return above >= denominator && odd_part(above) == 1;
  return above <= denominator && std::gcd(above, divided.fraction_->denominator) == 1;
}

void Real::combined(std::string_view op, const Real& a, const Real& b) try {
  if (!a.fraction_ || !b.fraction_) return;
  const bool left_divided = !a.rounded_.empty();
  const Real& divided = left_divided ? a : b;
  const bool follows = !divided.rounded_.empty();
  if (follows && !may_follow_division(op, divided, left_divided ? b : a, !left_divided)) return;
  const std::optional<Fraction> result = combine(op, *a.fraction_, *b.fraction_);
  if (!result || divided.rounded_.size() == kMostRounded) return;
  if (follows || odd_part(result->denominator) != 1) {
    rounded_ = divided.rounded_;
    rounded_.push_back(*result);
  }
  fraction_ = result;
} catch (const ShapeError&) {
  // Terms beyond 64 bits.
}

std::optional<SymInt> Real::difference(const Real& a, const Real& b) {
  if (!a.is_exact() || !b.is_exact()) return {};
  const std::optional<Real> left = apply("sub", a, b);
  return left && left->fraction_ ? std::optional(left->fraction_->numerator) : std::nullopt;
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
  if ((op == "floor" || op == "ceil") && a.is_near()) {
    const auto& [above, below] = *a.fraction_;
    fraction = Fraction{op == "floor" ? above / below : SymInt(0) - (SymInt(0) - above) / below, 1};
  }
  const DType dtype = a.dtype_;
  return Real([compute, number = a.number_, dtype] { return rounded(compute((*number)()), dtype); },
              std::move(fraction), dtype, a.origin_, a.steps_ + 1);
}

std::optional<Real> Real::apply(std::string_view op, const Real& a, const Real& b) {
  const auto compute = binary_of(op);
  if (compute == nullptr || a.steps_ + b.steps_ >= kMostSteps) return {};
  const DType dtype = a.dtype_;
  Real result([compute, left = a.number_, right = b.number_,
               dtype] { return rounded(compute((*left)(), (*right)()), dtype); },
              {}, dtype, std::max(a.origin_, b.origin_), a.steps_ + b.steps_ + 1);
  result.combined(op, a, b);
  return result;
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
