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
constexpr std::int64_t kLargestDenominator = std::int64_t{1} << 30;
/// Steps that may round one number; room is left for twice as many.
constexpr std::size_t kMostRounded = 8;

/// Of the IR's ops, what they are called among sizes; reciprocal and neg are made of others.
struct Function {
  std::string_view op;
  std::string_view name;
};
constexpr Function kUnary[] = {{"floor", "rfloor"},
                               {"ceil", "rceil"},
                               {"round", "rround"},
                               {"sqrt", "rsqrt"},
                               {"abs", "rabs"}};
constexpr Function kBinary[] = {{"add", "radd"}, {"sub", "rsub"}, {"mul", "rmul"},
                                {"div", "rdiv"}, {"min", "rmin"}, {"max", "rmax"}};

std::string_view name_in(std::span<const Function> functions, std::string_view op) {
  const auto found = std::ranges::find(functions, op, &Function::op);
  return found == functions.end() ? std::string_view() : found->name;
}

SymInt rounded(const SymInt& real, DType dtype) {
  return dtype == f32 ? detail::apply_real("single", real) : real;
}

/// What is left of a number above 0 when it has been halved as often as it can be.
std::int64_t odd_part(std::int64_t number) {
  return number >> std::countr_zero(static_cast<std::uint64_t>(number));
}

}  // namespace

Real::Real(double number, DType dtype)
    : real_(detail::real_of(number)), fraction_(fraction_of(number)), dtype_(dtype) {}

Real::Real(const SymInt& size, DType dtype)
    : real_(rounded(detail::real_of(size), dtype)), fraction_(Fraction{size, 1}), dtype_(dtype) {}

Real Real::of(SymInt real, DType dtype) {
  Real made;
  made.real_ = std::move(real);
  made.dtype_ = dtype;
  if (!made.real_.is_symbolic()) made.fraction_ = fraction_of(made.number());
  return made;
}

double Real::number() const { return detail::real_number(real_); }

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

Real Real::as(DType dtype) const {
  if (dtype == dtype_) return *this;
  Real converted = of(rounded(real_, dtype), dtype);
  // The bounds of is_exact() and is_near() are those of the narrower one.
  if (dtype == f32 && converted.real_.is_symbolic()) {
    converted.fraction_ = fraction_;
    converted.rounded_ = rounded_;
  }
  return converted;
}

SymInt Real::cut() const {
  if (real_.is_symbolic() && is_near())
    return divide_to_zero(fraction_->numerator, fraction_->denominator);
  return detail::whole_of(real_);
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
  if (op == "max") return Fraction{detail::simplified(max(left, right)), denominator};
  if (op == "min") return Fraction{detail::simplified(min(left, right)), denominator};
  return Fraction{op == "add" ? left + right : left - right, denominator};
}

bool Real::may_follow_division(std::string_view op, const Real& divided, const Real& other,
                               bool other_is_left) {
  if (!other.rounded_.empty()) return false;
  if (op == "add" || op == "sub") return true;
  if (other.real_.is_symbolic() || (op == "div" && other_is_left)) return false;
  if (op != "mul" && op != "div") return false;
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

std::optional<SymInt> Real::exact_count(const Real& start, const Real& limit,
                                        const Real& step) try {
  if (!step.fraction_ || step.fraction_->numerator.is_symbolic()) return {};
  const std::int64_t along = step.fraction_->numerator.value();
  if (along == 0 || !step.is_exact() || !start.is_exact() || !limit.is_exact()) return {};
  const std::optional<Real> span = apply("sub", limit, start);
  if (!span || !span->is_exact()) return {};
  const auto& [length, parts] = *span->fraction_;
  const SymInt distance =
      length * (along > 0 ? step.fraction_->denominator : -step.fraction_->denominator);
  const SymInt stride = SymInt(parts) * std::abs(along);
  const auto is_empty = detail::less_before_run(distance, 1);
  if (is_empty == true) return SymInt(0);
  const SymInt count = (distance + (stride - 1)) / stride;
  return is_empty ? count : max(count, 0);
} catch (const ShapeError&) {
  return {};  // terms beyond 64 bits
}

// The span is one of its dtype, the quotient a double.
SymInt Real::count(const Real& start, const Real& limit, const Real& step) {
  if (const auto exact = exact_count(start, limit, step)) return *exact;
  const SymInt span = rounded(detail::apply_real("rsub", limit.real_, start.real_), limit.dtype_);
  const SymInt steps = detail::apply_real("rdiv", span, step.real_);
  return max(detail::whole_of(detail::apply_real("rceil", steps)), 0);
}

std::optional<Real> Real::apply(std::string_view op, const Real& a) {
  if (op == "neg") return apply("mul", a, Real(-1, a.dtype_));
  if (op == "reciprocal") return apply("div", Real(1, a.dtype_), a);
  const std::string_view function = name_in(kUnary, op);
  if (function.empty() || !detail::is_short(a.real_)) return {};
  if ((op == "floor" || op == "ceil") && a.real_.is_symbolic() && a.is_near()) {
    const auto& [above, below] = *a.fraction_;
    return Real(op == "floor" ? above / below : SymInt(0) - (SymInt(0) - above) / below, a.dtype_);
  }
  return of(rounded(detail::apply_real(function, a.real_), a.dtype_), a.dtype_);
}

std::optional<Real> Real::apply(std::string_view op, const Real& a, const Real& b) {
  const std::string_view function = name_in(kBinary, op);
  if (function.empty() || !detail::is_short(a.real_) || !detail::is_short(b.real_)) return {};
  Real result = of(rounded(detail::apply_real(function, a.real_, b.real_), a.dtype_), a.dtype_);
  if (result.real_.is_symbolic()) result.combined(op, a, b);
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
