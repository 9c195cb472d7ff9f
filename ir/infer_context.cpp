#include <algorithm>
#include <fmt/format.h>

#include "base/check.h"
#include "heddle/error.h"
#include "ir/known_sizes.h"
#include "ir/op.h"

namespace heddle::ir {

using base::Predicate;

namespace {

template <typename T>
const T& typed(const InferContext& ctx, std::string_view name) {
  const auto found = ctx.attrs.find(name);
  HD_CHECK(found != ctx.attrs.end(), std::string(ctx.op.name) + "." + std::string(name));
  const T* value = std::get_if<T>(&found->second);
  HD_CHECK(value != nullptr, std::string(ctx.op.name) + "." + std::string(name));
  return *value;
}

}  // namespace

bool InferContext::flag(std::string_view name) const { return typed<bool>(*this, name); }
std::int64_t InferContext::integer(std::string_view name) const {
  return typed<std::int64_t>(*this, name);
}
double InferContext::number(std::string_view name) const { return typed<double>(*this, name); }
const std::string& InferContext::string(std::string_view name) const {
  return typed<std::string>(*this, name);
}
DType InferContext::dtype(std::string_view name) const { return typed<DType>(*this, name); }
const std::vector<std::int64_t>& InferContext::ints(std::string_view name) const {
  return typed<std::vector<std::int64_t>>(*this, name);
}
const Dims& InferContext::symints(std::string_view name) const { return typed<Dims>(*this, name); }
const Literal& InferContext::literal(std::string_view name) const {
  return *typed<LiteralPtr>(*this, name);
}

namespace {

/// The size that `a` and `b` broadcast to; nothing if they cannot. Where nobody knows they are taken to
/// be equal; a size is only said to be 1 when the result depends on it.
std::optional<SymExpr> broadcast_size(ShapeEnv& env, const SymExpr& a, const SymExpr& b,
                                      const std::string& reason, const base::Location& location) {
  if (a == b || b.is_constant(1)) return a;
  if (a.is_constant(1)) return b;
  const Predicate same{Predicate::Op::Eq, a, b};
  const std::optional<bool> expected = env.expect(same);
  const auto equal = [&] { return env.require(same, reason, location); };
  const SymExpr& kept = b.is_constant() ? b : a;
  if (expected.value_or(false) && equal()) return kept;
  const auto is_one = [&](const SymExpr& size) {
    const Predicate one{Predicate::Op::Eq, size, 1};
    return env.expect(one).value_or(false) && env.decide(one, reason, location);
  };
  if (is_one(a)) return b;
  if (is_one(b)) return a;
  if (!expected && equal()) return kept;
  return {};
}

}  // namespace

Dims InferContext::broadcast(const Dims& a, const Dims& b, std::string_view label) const {
  const Dims& longer = a.size() >= b.size() ? a : b;
  const Dims& shorter = a.size() >= b.size() ? b : a;
  Dims result = longer;
  const std::size_t lead = longer.size() - shorter.size();
  for (std::size_t k = lead; k < longer.size(); ++k) {
    const SymExpr& other = shorter[k - lead];
    if (result[k] == other) continue;
    const auto size =
        broadcast_size(env, result[k], other,
                       fmt::format("broadcast of dimension {} in {}", k, op.name), location);
    if (!size)
      fail_shape(label, "sizes that are equal or 1",
                 fmt::format("{} and {} in dimension {}", seen(env, result[k]).to_string(),
                             seen(env, other).to_string(), k));
    result[k] = *size;
  }
  return result;
}

std::int64_t InferContext::axis(std::int64_t axis, std::int64_t rank,
                                std::string_view label) const {
  if (axis < -rank || axis >= rank)
    fail_shape(label, fmt::format("an axis in [{}, {})", -rank, rank), std::to_string(axis));
  return axis < 0 ? axis + rank : axis;
}

void InferContext::require_equal(const SymExpr& a, const SymExpr& b, std::string_view label) const {
  if (a == b) return;
  if (!env.require({Predicate::Op::Eq, a, b}, fmt::format("{}: {}", op.name, label), location))
    fail_shape(label, seen(env, a).to_string(), seen(env, b).to_string());
}

void InferContext::check_float8() const {
  if (op.takes_float8 || op.custom != nullptr || op.lowering.region) return;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (!has(k) || !is_float8(meta(k).dtype)) continue;
    const OperandSpec& spec = op.operands[std::min(k, op.operands.size() - 1)];
    fail_dtype(spec.name, "a dtype with arithmetic (8-bit floats are converted before)",
               std::string(name_of(meta(k).dtype)));
  }
}

void InferContext::fail_shape(std::string_view label, std::string expected, std::string got) const {
  throw ShapeError({.what = fmt::format("{}: {}", op.name, label),
                    .where = location.to_string(),
                    .expected = std::move(expected),
                    .got = std::move(got)});
}

void InferContext::fail_dtype(std::string_view label, std::string expected, std::string got) const {
  throw DTypeError({.what = fmt::format("{}: {}", op.name, label),
                    .where = location.to_string(),
                    .expected = std::move(expected),
                    .got = std::move(got)});
}

Sizes EvalContext::concrete(std::span<const SymExpr> dims) const {
  Sizes result;
  for (const SymExpr& dim : dims) result.push_back(dim.evaluate(sizes));
  return result;
}
Sizes EvalContext::concrete_attr(std::string_view symints) const {
  return concrete(node.symints(symints));
}
Sizes EvalContext::output_sizes(std::size_t k) const { return concrete(node.output(k).sizes); }
Literal EvalContext::make(std::size_t k) const { return {node.output(k).dtype, output_sizes(k)}; }

}  // namespace heddle::ir
