// pad: elements put before and after each dimension, or cut off there.
//
//   x          T[d0 .. dn-1]
//   value      V[], optional: what mode "constant" puts in, converted to T; 0 without
//   low, high  symint[n]: how many elements before and after; negative ones cut (mode "constant"
//              only)
//   mode       "constant", or from x itself: "edge" repeats the outermost element, "reflect"
//              mirrors without repeating it, "wrap" goes round
//   result     T[low_k + d_k + high_k]
//
// Constraints. infer() checks them in this order; tests are named pad_c1 ...
//   C1  low and high have n entries each
//   C2  mode is one of the four
//   C3  value is a scalar
//   C4  no size of the result is negative
//   C5  in modes other than "constant" no entry is negative, and a padded dimension has at least 1
//       element; of "reflect" at least one more than is put on either side
//
// Memory: fresh.
// Source: ONNX Pad-21; NumPy pad.
#include <algorithm>

#include "heddle/error.h"
#include "ir/ops/common.h"
#include "ir/ops/families.h"
#include "ir/ops/host_scalar.h"

namespace heddle::ir {
namespace {

void check_entries(const InferContext& ctx, std::string_view attr) {
  const Dims& entries = ctx.symints(attr);
  if (entries.size() == ctx.meta(0).sizes.size()) return;
  ctx.fail_shape("C1 entries",
                 std::to_string(ctx.meta(0).rank()) + " entries in " + std::string(attr),
                 ops::text_of(entries));
}

void check_mode(const InferContext& ctx) {
  const std::string& mode = ctx.string("mode");
  if (mode == "constant" || mode == "reflect" || mode == "edge" || mode == "wrap") return;
  throw ArgumentError({.what = "pad: C2 mode",
                       .where = ctx.location.to_string(),
                       .expected = "\"constant\", \"reflect\", \"edge\" or \"wrap\"",
                       .got = "\"" + mode + "\""});
}

void check_reach(const InferContext& ctx, std::size_t d) {
  const SymExpr& size = ctx.meta(0).sizes[d];
  const bool reflect = ctx.string("mode") == "reflect";
  for (const std::string_view side : {"low", "high"}) {
    const SymExpr& amount = ctx.symints(side)[d];
    const std::string got = std::string(side) + " " + seen(ctx.env, amount).to_string() +
                            " in dimension " + std::to_string(d) + " of size " +
                            seen(ctx.env, size).to_string();
    if (amount.is_constant(0)) continue;
    ops::require_le(ctx, 0, amount, "C5 reach", "no negative entry", got);
    ops::require_le(ctx, reflect ? amount + 1 : SymExpr(1), size, "C5 reach",
                    reflect ? "more elements than are put on a side" : "an element to repeat", got);
  }
}

std::vector<TensorMeta> infer_pad(const InferContext& ctx) {
  for (const std::string_view attr : {"low", "high"}) check_entries(ctx, attr);
  check_mode(ctx);
  if (ctx.has(1) && ctx.meta(1).rank() != 0) {
    ctx.fail_shape("C3 value", "a scalar", ops::text_of(seen(ctx.env, ctx.meta(1).sizes)));
  }
  Dims sizes = ctx.meta(0).sizes;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    sizes[d] = ctx.symints("low")[d] + sizes[d] + ctx.symints("high")[d];
    ops::require_le(ctx, 0, sizes[d], "C4 size",
                    "a size of at least 0 in dimension " + std::to_string(d),
                    seen(ctx.env, sizes[d]).to_string());
    if (ctx.string("mode") != "constant") check_reach(ctx, d);
  }
  return ops::one(ops::fresh(ctx, ctx.meta(0).dtype, std::move(sizes)));
}

/// Where position `at` outside [0, size) takes its element from.
std::int64_t source_of(const std::string& mode, std::int64_t at, std::int64_t size) {
  if (mode == "edge") return std::clamp<std::int64_t>(at, 0, size - 1);
  if (mode == "wrap") return ((at % size) + size) % size;
  if (at < 0) return -at;
  return at < size ? at : 2 * (size - 1) - at;
}

/// The index in x of the result element at `index`; nothing where mode "constant" puts the value.
std::optional<Sizes> source_index(const std::string& mode, Sizes index, const Sizes& low,
                                  const Sizes& sizes) {
  for (std::size_t d = 0; d < index.size(); ++d) {
    index[d] -= low[d];
    if (index[d] >= 0 && index[d] < sizes[d]) continue;
    if (mode == "constant") return std::nullopt;
    index[d] = source_of(mode, index[d], sizes[d]);
  }
  return index;
}

std::vector<Literal> evaluate_pad(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const Sizes low = ctx.concrete_attr("low");
  const Sizes high = ctx.concrete_attr("high");
  Sizes sizes = x.sizes();
  for (std::size_t d = 0; d < sizes.size(); ++d) sizes[d] += low[d] + high[d];
  Literal result(x.dtype(), sizes);
  ops::HostScalar value{.dtype = x.dtype()};
  if (ctx.has(1)) value = ops::convert(ops::load(ctx.inputs[1], 0), x.dtype());
  for (std::int64_t p = 0; p < result.count(); ++p) {
    const auto from =
        source_index(ctx.node.string("mode"), ops::index_at(p, sizes), low, x.sizes());
    ops::store(result, p, from ? ops::load(x, ops::position_of(*from, x.sizes())) : value);
  }
  return {std::move(result)};
}

SymExpr mirrored(const std::string& mode, const SymExpr& at, const SymExpr& size) {
  if (mode == "edge") return min(max(at, 0), size - 1);
  if (mode == "wrap") return mod(at, size);
  const SymExpr distance = max(at, -at);
  return min(distance, 2 * (size - 1) - distance);
}

Scalar both(ElementBuilder& builder, std::optional<Scalar> a, Scalar b) {
  return a ? builder.apply2(ScalarOp::And, *a, b) : b;
}

/// Whether every index in `at` lies within x, as far as padding could put it outside.
std::optional<Scalar> inside(ElementBuilder& builder, const Node& node,
                             std::span<const SymExpr> at) {
  using Op = base::Predicate::Op;
  std::optional<Scalar> all;
  for (std::size_t d = 0; d < at.size(); ++d) {
    const SymExpr& low = node.symints("low")[d];
    const SymExpr& high = node.symints("high")[d];
    const auto harmless = [](const SymExpr& e) { return e.is_constant() && e.constant() <= 0; };
    if (!harmless(low)) all = both(builder, all, builder.predicate({Op::Le, 0, at[d]}));
    if (!harmless(high)) {
      const SymExpr& size = node.input(0).meta().sizes[d];
      all = both(builder, all, builder.predicate({Op::Lt, at[d], size}));
    }
  }
  return all;
}

Scalar padding_value(ElementBuilder& builder, const Node& node, DType dtype) {
  if (node.inputs().size() < 2 || !node.input(1)) return builder.constant(dtype, 0.0);
  const Scalar value = builder.operand(1, {});
  return value.dtype == dtype ? value : builder.convert(value, dtype);
}

Scalar element_pad(ElementBuilder& builder, const Node& node, std::uint32_t,
                   std::span<const SymExpr> index) {
  const TensorMeta& x = node.input(0).meta();
  const std::string& mode = node.string("mode");
  std::vector<SymExpr> at;
  for (std::size_t d = 0; d < index.size(); ++d) {
    const SymExpr shifted = index[d] - node.symints("low")[d];
    const bool padded =
        !node.symints("low")[d].is_constant(0) || !node.symints("high")[d].is_constant(0);
    at.push_back(padded && mode != "constant" ? mirrored(mode, shifted, x.sizes[d]) : shifted);
  }
  const auto condition = mode == "constant" ? inside(builder, node, at) : std::nullopt;
  if (!condition) return builder.operand(0, at);
  builder.begin_guard(*condition);
  const Scalar value = builder.operand(0, at);
  builder.end_guard();
  return builder.select(*condition, value, padding_value(builder, node, x.dtype));
}

}  // namespace

std::span<const OpDef> pad_ops() {
  static const OpDef ops[] = {{
      .name = "pad",
      .takes_float8 = true,
      .operands = {{"x"}, {"value", OperandSpec::Arity::Optional}},
      .attrs = {{"low", AttrKind::SymInts},
                {"high", AttrKind::SymInts},
                {"mode", AttrKind::String, Attr(std::string("constant"))}},
      .infer = infer_pad,
      .evaluate = evaluate_pad,
      .lowering = {.element = element_pad},
      .reorder = ops::reorder_entries,
  }};
  return ops;
}

}  // namespace heddle::ir
