#include "ir/ops/dense.h"

#include "heddle/error.h"
#include "ir/ops/common.h"
#include "ir/ops/host_scalar.h"

namespace heddle::ir::ops {

Literal converted(const Literal& tensor, DType dtype) {
  if (tensor.dtype() == dtype) return tensor;
  Literal result(dtype, tensor.sizes());
  for (std::int64_t k = 0; k < tensor.count(); ++k)
    store(result, k, convert(load(tensor, k), dtype));
  return result;
}

Literal literal_of(DType dtype, const Sizes& sizes, const std::vector<double>& values) {
  Literal result(dtype, sizes);
  for (std::size_t k = 0; k < values.size(); ++k) {
    result.set(static_cast<std::int64_t>(k), values[k]);
  }
  return result;
}

namespace {

template <typename T>
Literal literal_of_whole(DType dtype, const Sizes& sizes, const std::vector<T>& values) {
  Literal result(dtype, sizes);
  for (std::size_t k = 0; k < values.size(); ++k) {
    result.set_int(static_cast<std::int64_t>(k), static_cast<std::int64_t>(values[k]));
  }
  return result;
}

}  // namespace

Literal literal_of(DType dtype, const Sizes& sizes, const std::vector<std::int64_t>& values) {
  return literal_of_whole(dtype, sizes, values);
}
Literal literal_of(DType dtype, const Sizes& sizes, const std::vector<std::uint64_t>& values) {
  return literal_of_whole(dtype, sizes, values);
}

AxisCut cut_at(const Sizes& sizes, std::int64_t axis) {
  AxisCut cut;
  for (std::int64_t d = 0; d < static_cast<std::int64_t>(sizes.size()); ++d) {
    std::int64_t& part = d < axis ? cut.outer : d == axis ? cut.length : cut.inner;
    part *= sizes[static_cast<std::size_t>(d)];
  }
  return cut;
}

bool next_index(Sizes& index, const Sizes& sizes) {
  for (std::size_t d = sizes.size(); d-- > 0;) {
    if (++index[d] < sizes[d]) return true;
    index[d] = 0;
  }
  return false;
}

void require_number(const InferContext& ctx, std::size_t k, std::string_view label) {
  const DType dtype = ctx.meta(k).dtype;
  if (dtype == DType::Bool || is_float8(dtype)) ctx.fail_dtype(label, "a number", text_of(dtype));
}

void require_floating(const InferContext& ctx, std::size_t k, std::string_view label) {
  const DType dtype = ctx.meta(k).dtype;
  if (!is_floating(dtype)) ctx.fail_dtype(label, "a floating dtype", text_of(dtype));
}

void require_multiple(const InferContext& ctx, const SymExpr& value, std::int64_t divisor,
                      std::string_view label) {
  const base::Predicate exact{base::Predicate::Op::Eq, mod(value, divisor), 0};
  const std::string reason = std::string(ctx.op.name) + ": " + std::string(label);
  if (ctx.env.require(exact, reason, ctx.location)) return;
  ctx.fail_shape(label, "a multiple of " + std::to_string(divisor), value.to_string());
}

void require_broadcast_to(const InferContext& ctx, const Dims& part, const Dims& whole,
                          std::string_view label) {
  if (part.size() > whole.size())
    ctx.fail_shape(label, text_of(seen(ctx.env, whole)), text_of(seen(ctx.env, part)));
  const std::size_t skipped = whole.size() - part.size();
  const std::string reason = std::string(ctx.op.name) + ": " + std::string(label);
  for (std::size_t d = 0; d < part.size(); ++d) {
    if (part[d].is_constant(1)) continue;
    const base::Predicate same{base::Predicate::Op::Eq, whole[skipped + d], part[d]};
    const base::Predicate one{base::Predicate::Op::Eq, part[d], 1};
    const bool repeated = !ctx.env.expect(same).value_or(true) &&
                          ctx.env.expect(one).value_or(false) &&
                          ctx.env.decide(one, reason, ctx.location);
    if (!repeated) ctx.require_equal(whole[skipped + d], part[d], label);
  }
}

void fail_argument(const InferContext& ctx, std::string_view label, std::string expected,
                   std::string got) {
  throw ArgumentError({.what = std::string(ctx.op.name) + ": " + std::string(label),
                       .where = ctx.location.to_string(),
                       .expected = std::move(expected),
                       .got = std::move(got)});
}

Alias reuse_first(const Node&, std::uint32_t) {
  return {.kind = Alias::Kind::MayReuse, .operand = 0};
}

Value emit_convert(DecomposeContext& ctx, Value value, DType dtype) {
  if (value.meta().dtype == dtype) return value;
  return ctx.emit("convert", {value}, {{"dtype", dtype}});
}

Value emit_reshape(DecomposeContext& ctx, Value value, Dims sizes) {
  if (value.meta().sizes == sizes) return value;
  return ctx.emit("reshape", {value}, {{"sizes", std::move(sizes)}});
}

Value emit_expand(DecomposeContext& ctx, Value value, Dims sizes) {
  if (value.meta().sizes == sizes) return value;
  return ctx.emit("expand", {value}, {{"sizes", std::move(sizes)}});
}

}  // namespace heddle::ir::ops
