// Arithmetic, comparisons and functions of one element.

#include <algorithm>

#include "engine/onnx/converters.h"
#include "engine/onnx/float8.h"
#include "engine/onnx/integers.h"
#include "engine/onnx/reader.h"
#include "heddle/custom_op.h"
#include "heddle/frontend.h"

namespace heddle::onnx {

namespace {

using Combine = SymInt (*)(const SymInt&, const SymInt&);

using Compare = std::optional<bool> (*)(const SymInt&, const SymInt&);

struct ShapeRule {
  std::string_view op;
  Combine combine;     ///< null: it compares
  bool plain = false;  ///< of numbers only: bits, which of a bool are its truth
  Compare compare = nullptr;
};

std::optional<bool> negated(std::optional<bool> truth) {
  return truth ? std::optional(!*truth) : truth;
}

constexpr ShapeRule kShapeRules[] = {
    {"add", wrapping_add},
    {"sub", wrapping_subtract},
    {"mul", wrapping_multiply},
    {"div", divide_to_zero},
    {"max", larger},
    {"min", smaller},
    {"and", [](const SymInt& a, const SymInt& b) { return SymInt(a.value() & b.value()); }, true},
    {"or", [](const SymInt& a, const SymInt& b) { return SymInt(a.value() | b.value()); }, true},
    {"xor", [](const SymInt& a, const SymInt& b) { return SymInt(a.value() ^ b.value()); }, true},
    {"eq", nullptr, false, detail::equal_before_run},
    {"lt", nullptr, false, detail::less_before_run},
    {"gt", nullptr, false,
     [](const SymInt& a, const SymInt& b) { return detail::less_before_run(b, a); }},
    {"le", nullptr, false,
     [](const SymInt& a, const SymInt& b) { return negated(detail::less_before_run(b, a)); }},
    {"ge", nullptr, false,
     [](const SymInt& a, const SymInt& b) { return negated(detail::less_before_run(a, b)); }},
};

/// Element k of known integers, a single one repeating.
const SymInt& repeated(const SymInts& ints, std::size_t k) {
  return ints[ints.size() == 1 ? 0 : k];
}

bool fits(const SymInts& a, const SymInts& b) {
  return a.size() == b.size() || a.size() == 1 || b.size() == 1;
}

/// How many elements two known vectors that fit each other give: none with a single one too.
std::size_t fitted(std::size_t a, std::size_t b) { return a == 1 ? b : a; }

bool is_plain(const SymInts& ints) {
  return std::none_of(ints.begin(), ints.end(), [](const SymInt& x) { return x.is_symbolic(); });
}

bool applies(const ShapeRule& rule, const Value& a, const Value& b) {
  const SymInts left = *a.ints();
  const SymInts right = *b.ints();
  return fits(left, right) && (!rule.plain || (is_plain(left) && is_plain(right)));
}

/// Nothing where only the run tells how two sizes compare.
std::optional<Value> combine_ints(const ShapeRule& rule, const Value& a, const Value& b) {
  const SymInts left = *a.ints();
  const SymInts right = *b.ints();
  SymInts result;
  const std::size_t count = fitted(left.size(), right.size());
  for (std::size_t k = 0; k < count; ++k) {
    const SymInt& x = repeated(left, k);
    const SymInt& y = repeated(right, k);
    if (rule.combine != nullptr) {
      result.push_back(rule.combine(x, y));
    } else if (const auto truth = rule.compare(x, y)) {
      result.emplace_back(*truth ? 1 : 0);
    } else {
      return {};
    }
  }
  return Value::of_ints(std::move(result), a.rank() == 0 && b.rank() == 0,
                        rule.compare != nullptr ? boolean : a.dtype());
}

/// Until version 7 an attribute says with which dimension of `a` the first one of `b` is aligned.
Tensor aligned(const Node& node, const Tensor& a, const Tensor& b) {
  if (node.opset() >= 7 || !node.has_attr("axis")) return b;
  const std::int64_t axis = node.axis(node.integer("axis", 0), a.rank());
  const std::int64_t missing = a.rank() - axis - b.rank();
  if (missing < 0) node.malformed("axis", "an axis that leaves room for b", std::to_string(axis));
  return unsqueeze_all(b, range_of(b.rank(), b.rank() + missing));
}

const ShapeRule* rule_of(std::string_view op) {
  for (const ShapeRule& rule : kShapeRules) {
    if (rule.op == op) return &rule;
  }
  return nullptr;
}

const ShapeRule* shape_rule(const Node& node) {
  return node.is_shape_arithmetic() ? rule_of(node.ir_op()) : nullptr;
}

/// A comparison of two numbers that follow from sizes, and are exact.
std::optional<Value> compared_reals(const Node& node) {
  const ShapeRule* rule = rule_of(node.ir_op());
  if (rule == nullptr || rule->compare == nullptr || !node.has_reals()) return {};
  const auto a = node.value(0).reals();
  const auto b = node.value(1).reals();
  if (!a || !b || a->size() != 1 || b->size() != 1) return {};
  const std::optional<SymInt> difference = Real::difference((*a)[0], (*b)[0]);
  if (!difference) return {};
  const auto truth = rule->compare(*difference, 0);
  if (!truth) return {};
  return Value::of_ints({*truth ? 1 : 0}, node.value(0).rank() == 0 && node.value(1).rank() == 0,
                        boolean);
}

/// A result, known, or to follow from sizes, where its operands are.
Value with_reals(std::string_view op, std::span<const Value> values, const Tensor& result) {
  const auto may_be_known = [](const Value& value) {
    return value.has_reals() || value.concrete();
  };
  if (!is_floating(result.dtype()) || !std::ranges::all_of(values, may_be_known)) return result;
  std::vector<Reals> operands;
  for (const Value& value : values) {
    const auto reals = value.reals();
    if (!reals) return result;
    operands.push_back(*reals);
  }
  const auto reals = apply_reals(op, operands);
  return reals ? Value::of_reals(result, *reals) : Value(result);
}

Outputs unary(const Node& node) {
  return {with_reals(node.ir_op(), node.values(), one(node.ir_op(), {node.tensor(0)}))};
}

Outputs variadic(const Node& node) {
  const ShapeRule* rule = shape_rule(node);
  Value result = node.value(0);
  for (std::size_t k = 1; k < node.input_count(); ++k) {
    const Value& next = node.value(k);
    const bool ints = rule != nullptr && result.is_shape_like() && applies(*rule, result, next);
    if (ints) {
      result = *combine_ints(*rule, result, next);
      continue;
    }
    const Value operands[] = {result, next};
    result =
        with_reals(node.ir_op(), operands, one(node.ir_op(), {result.tensor(), next.tensor()}));
  }
  return {result};
}

Outputs mean_of(const Node& node) {
  const Tensor sum = variadic(node)[0].tensor();
  return {sum / static_cast<double>(node.input_count())};
}

/// The result has the dtype of the base, whatever that of the exponent.
Outputs power(const Node& node) {
  const Tensor base = node.tensor(0);
  const Tensor result = one("pow", {base, aligned(node, base, node.tensor(1))});
  return {result.dtype() == base.dtype() ? result : cast(result, base.dtype())};
}

SymInt remainder(const SymInt& a, const SymInt& b) {
  if (!b.is_symbolic() && (b.value() == 0 || b.value() == -1)) return 0;
  if (a.is_symbolic() || b.is_symbolic()) return a % b;
  const std::int64_t rest = a.value() % b.value();
  return rest != 0 && (rest < 0) != (b.value() < 0) ? rest + b.value() : rest;
}

Outputs modulo(const Node& node) {
  constexpr ShapeRule kRemainder{"mod", remainder};
  const bool floors = node.integer("fmod", 0) == 0;
  if (floors && node.is_shape_arithmetic() && applies(kRemainder, node.value(0), node.value(1)))
    return {*combine_ints(kRemainder, node.value(0), node.value(1))};
  return {one(node.integer("fmod", 0) != 0 ? "rem" : "mod", {node.tensor(0), node.tensor(1)})};
}

Outputs bit_shift(const Node& node) {
  const std::string direction = node.string("direction", "");
  if (direction != "LEFT" && direction != "RIGHT")
    node.malformed("direction", "LEFT or RIGHT", direction);
  return {one(direction == "LEFT" ? "shl" : "shr", {node.tensor(0), node.tensor(1)})};
}

Outputs is_inf(const Node& node) {
  const Tensor x = node.tensor(0);
  const bool negative = node.integer("detect_negative", 1) != 0;
  const bool positive = node.integer("detect_positive", 1) != 0;
  const Tensor infinite = one("is_inf", {x});
  if (negative && positive) return {infinite};
  if (positive) return {logical_and(infinite, greater(x, 0.0))};
  if (negative) return {logical_and(infinite, less(x, 0.0))};
  return {logical_and(infinite, logical_not(infinite))};
}

Outputs select(const Node& node) {
  if (node.is_shape_arithmetic()) {
    const SymInts condition = *node.value(0).ints();
    const SymInts a = *node.value(1).ints();
    const SymInts b = *node.value(2).ints();
    const std::size_t count = fitted(condition.size(), fitted(a.size(), b.size()));
    if (fits(condition, a) && fits(condition, b) && fits(a, b)) {
      SymInts result;
      for (std::size_t k = 0; k < count; ++k)
        result.push_back(repeated(repeated(condition, k).value() != 0 ? a : b, k));
      const bool scalar =
          node.value(0).rank() == 0 && node.value(1).rank() == 0 && node.value(2).rank() == 0;
      return {Value::of_ints(std::move(result), scalar, node.value(1).dtype())};
    }
  }
  return {where(node.tensor(0), node.tensor(1), node.tensor(2))};
}

Outputs negate(const Node& node) {
  if (!node.is_shape_arithmetic()) return unary(node);
  SymInts result = *node.value(0).ints();
  for (SymInt& number : result) number = wrapping_subtract(0, number);
  return {Value::of_ints(std::move(result), node.value(0).rank() == 0, node.value(0).dtype())};
}

Outputs logical_negation(const Node& node) {
  if (!node.is_shape_arithmetic()) return unary(node);
  SymInts result = *node.value(0).ints();
  for (SymInt& number : result) number = number == 0 ? 1 : 0;
  return {Value::of_ints(std::move(result), node.value(0).rank() == 0, boolean)};
}

/// Of reals, or integers, that follow from sizes, with ends that are known.
std::optional<Value> clipped_reals(const Node& node, const Value& result) {
  Value kept = node.value(0);
  for (const auto& [k, op] : {std::pair<std::size_t, std::string_view>{1, "max"}, {2, "min"}}) {
    if (!node.has(k)) continue;
    const Value operands[] = {kept, node.value(k)};
    kept = with_reals(op, operands, result.tensor());
  }
  return kept.has_reals() ? std::optional(kept) : std::nullopt;
}

/// The same of sizes.
std::optional<Value> clipped_sizes(const Node& node) {
  if (node.opset() < 11 || !node.is_shape_arithmetic()) return {};
  Value kept = node.value(0);
  for (const auto& [k, op] : {std::pair<std::size_t, std::string_view>{1, "max"}, {2, "min"}}) {
    if (!node.has(k)) continue;
    const ShapeRule* rule = rule_of(op);
    if (!applies(*rule, kept, node.value(k))) return {};
    kept = *combine_ints(*rule, kept, node.value(k));
  }
  return kept;
}

Outputs clip(const Node& node) {
  if (const auto sizes = clipped_sizes(node)) return {*sizes};
  const Tensor x = node.tensor(0);
  Tensor low = node.optional(1);
  Tensor high = node.optional(2);
  if (node.opset() < 11) {
    if (node.has_attr("min")) low = Tensor::scalar(x.dtype(), node.number("min", 0));
    if (node.has_attr("max")) high = Tensor::scalar(x.dtype(), node.number("max", 0));
  }
  if (!low.defined() && !high.defined()) return {node.value(0)};
  const Value result(one("clamp", {x, low, high}));
  if (node.opset() < 11) return {result};
  return {clipped_reals(node, result).value_or(result)};
}

Outputs identity(const Node& node) { return {node.value(0)}; }

/// Of a tensor, which is there, or of nothing: other optional values are no tensors.
Outputs optional_has_element(const Node& node) {
  return {Value::of_ints({node.has(0) ? 1 : 0}, true, boolean)};
}

/// A few known numbers in another dtype, still known: what sizes and scales are computed from.
std::optional<Tensor> cast_known(const Value& x, DType dtype) {
  constexpr std::int64_t kMaxNumbers = 64;
  if (dtype != f32 && dtype != f64) return {};
  const auto known = x.concrete();
  if (!known || known->count() > kMaxNumbers) return {};
  const std::vector<double> numbers = known->to_doubles();
  Tensor result = Tensor::empty(dtype, Sizes(known->sizes().begin(), known->sizes().end()));
  for (std::size_t k = 0; k < numbers.size(); ++k) {
    if (dtype == f64)
      result.data_as<double>()[k] = numbers[k];
    else
      result.data_as<float>()[k] = static_cast<float>(numbers[k]);
  }
  return result;
}

Value cut_reals(const Value& x, DType dtype) {
  SymInts cut;
  const Reals reals = *x.reals();
  for (const Real& real : reals) cut.push_back(real.cut());
  return Value::of_ints(std::move(cut), x.rank() == 0, dtype);
}

/// Sizes and what follows from them in another dtype, still known.
Value cast_reals(const Value& x, DType dtype) {
  const bool to_real = dtype == f32 || dtype == f64;
  if (x.has_reals() && (dtype == i64 || dtype == i32)) return cut_reals(x, dtype);
  if (x.has_reals() && to_real && is_floating(x.dtype())) {
    Reals reals = *x.reals();
    for (Real& real : reals) real = real.as(dtype);
    return Value::of_reals(cast(x.tensor(), dtype), std::move(reals));
  }
  const std::optional<Tensor> numbers = cast_known(x, dtype);
  const Tensor result = numbers ? *numbers : cast(x.tensor(), dtype);
  if (!to_real || !x.is_shape_like()) return result;
  const SymInts sizes = *x.ints();
  Reals reals;
  for (const SymInt& size : sizes) reals.emplace_back(size, dtype);
  return Value::of_reals(result, std::move(reals));
}

/// The lowest `bits` of whole numbers.
Tensor lowest_bits(const Tensor& x, std::int64_t bits) {
  const auto number = [&](std::int64_t value) { return Tensor::scalar_int(x.dtype(), value); };
  const std::int64_t half = std::int64_t{1} << (bits - 1);
  const Tensor low = one("and", {x, number(2 * half - 1)});
  return x.dtype() == i8 ? one("xor", {low, number(half)}) - number(half) : low;
}

/// @param bits  of the element type, if it has less than a byte; else 0
Outputs cast_to(const Node& node, DType dtype, std::int64_t bits) {
  const Value& x = node.value(0);
  if (is_float8(dtype) && (x.dtype() != dtype || (bits != 0 && bits != x.bits())))
    return {Value(as_float8(node, x.tensor(), dtype, bits)).with_bits(bits)};
  if (bits != 0 && bits != x.bits())
    return {Value(lowest_bits(cast(cast(x.tensor(), i32), dtype), bits)).with_bits(bits)};
  if (x.dtype() == dtype) return {bits == x.bits() ? x : x.with_bits(bits)};
  if (auto ints = x.known_ints(); ints && (dtype == i64 || dtype == i32 || dtype == boolean)) {
    if (dtype == boolean) {
      for (SymInt& number : ints->ints) number = number != 0 ? 1 : 0;
    }
    return {Value::of_known(std::move(*ints), dtype)};
  }
  if (auto parts = x.parts(); parts && (dtype == i64 || dtype == i32) && is_late(*parts)) {
    for (std::optional<SymInt>& part : *parts)
      if (part) part = wrapped(*part, dtype);
    return {Value::of_parts(cast(x.tensor(), dtype), std::move(*parts))};
  }
  return {cast_reals(x, dtype)};
}

Outputs cast_attr(const Node& node) {
  if (!node.has_attr("to")) node.malformed("to", "a dtype", "none");
  if (node.value(0).is_text()) {
    if (!is_string(static_cast<int>(node.integer("to", 0)))) node.unsupported("strings as numbers");
    return {node.value(0)};
  }
  return cast_to(node, node.dtype("to", f32), node.bits("to"));
}

/// Equally wide integers wrap, and bools are bytes already.
Outputs bit_cast(const Node& node) {
  if (!node.has_attr("to")) node.malformed("to", "a dtype", "none");
  const Tensor x = node.tensor(0);
  const DType dtype = node.dtype("to", f32);
  if (x.dtype() == dtype) return {node.value(0)};
  if (heddle::size_of(x.dtype()) != heddle::size_of(dtype))
    node.malformed("to", "a dtype as wide as " + std::string(name_of(x.dtype())),
                   std::string(name_of(dtype)));
  if (dtype == boolean) node.unsupported("bits as bool");
  if (node.bits("to") != 0 || node.value(0).bits() != 0)
    node.unsupported("numbers of less than a byte");
  if (!is_floating(x.dtype()) && !is_floating(dtype)) return {cast(x, dtype)};
  return {call("heddle::bit_cast", {x, dtype})[0]};
}

Outputs cast_like(const Node& node) {
  return cast_to(node, node.value(1).dtype(), node.value(1).bits());
}

}  // namespace

Outputs convert_binary(const Node& node) {
  const ShapeRule* rule = shape_rule(node);
  if (rule != nullptr && applies(*rule, node.value(0), node.value(1)))
    if (const auto known = combine_ints(*rule, node.value(0), node.value(1))) return {*known};
  if (const auto known = compared_reals(node)) return {*known};
  const Tensor a = node.tensor(0);
  const Tensor result = one(node.ir_op(), {a, aligned(node, a, node.tensor(1))});
  return {with_reals(node.ir_op(), node.values(), result)};
}

std::span<const Converter> pointwise_converters() {
  static constexpr Converter kConverters[] = {
      {"Abs", unary, "abs"},
      {"Acos", unary, "acos"},
      {"Acosh", unary, "acosh"},
      {"Add", convert_binary, "add"},
      {"And", convert_binary, "and"},
      {"Asin", unary, "asin"},
      {"Asinh", unary, "asinh"},
      {"Atan", unary, "atan"},
      {"Atanh", unary, "atanh"},
      {"BitCast", bit_cast},
      {"BitShift", bit_shift},
      {"BitwiseAnd", convert_binary, "and"},
      {"BitwiseNot", unary, "not"},
      {"BitwiseOr", convert_binary, "or"},
      {"BitwiseXor", convert_binary, "xor"},
      {"Cast", cast_attr, {}, false, Texts::Moves},
      {"CastLike", cast_like},
      {"Ceil", unary, "ceil"},
      {"Clip", clip},
      {"Cos", unary, "cos"},
      {"Cosh", unary, "cosh"},
      {"Div", convert_binary, "div"},
      {"Equal", convert_binary, "eq", false, Texts::Reads},
      {"Erf", unary, "erf"},
      {"Exp", unary, "exp"},
      {"Floor", unary, "floor"},
      {"Greater", convert_binary, "gt"},
      {"GreaterOrEqual", convert_binary, "ge"},
      {"Identity", identity, {}, true, Texts::Moves},
      {"IsInf", is_inf},
      {"IsNaN", unary, "is_nan"},
      {"Less", convert_binary, "lt"},
      {"LessOrEqual", convert_binary, "le"},
      {"Log", unary, "log"},
      {"Max", variadic, "max"},
      {"Mean", mean_of, "add"},
      {"Min", variadic, "min"},
      {"Mod", modulo},
      {"Mul", convert_binary, "mul"},
      {"Neg", negate, "neg"},
      {"Not", logical_negation, "not"},
      {"OptionalGetElement", identity},
      {"OptionalHasElement", optional_has_element},
      {"Or", convert_binary, "or"},
      {"Pow", power},
      {"Reciprocal", unary, "reciprocal"},
      {"Round", unary, "round"},
      {"Sigmoid", unary, "sigmoid"},
      {"Sign", unary, "sign"},
      {"Sin", unary, "sin"},
      {"Sinh", unary, "sinh"},
      {"Sqrt", unary, "sqrt"},
      {"Sub", convert_binary, "sub"},
      {"Sum", variadic, "add"},
      {"Tan", unary, "tan"},
      {"Tanh", unary, "tanh"},
      {"Where", select, {}, false, Texts::Moves},
      {"Xor", convert_binary, "xor"},
  };
  return kConverters;
}

}  // namespace heddle::onnx
