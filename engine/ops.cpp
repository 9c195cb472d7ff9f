#include "heddle/ops.h"

#include <fmt/format.h>
#include <numeric>

#include "engine/tensor_impl.h"
#include "heddle/error.h"

namespace heddle {

namespace {

using Ints = std::vector<std::int64_t>;

Tensor one(std::string_view op, std::initializer_list<Tensor> operands, OpAttrs attrs, At where) {
  return apply(op, std::span<const Tensor>(operands.begin(), operands.size()), std::move(attrs),
               where)[0];
}

/// The dtype a number takes beside `other`.
DType number_dtype(const Arg& number, const Arg& other) {
  if (!other.tensor.defined()) return number.integral ? i64 : f32;
  const DType dtype = other.tensor.dtype();
  if (is_floating(dtype)) return dtype;
  if (!number.integral) return f32;
  return dtype == boolean ? i64 : dtype;
}

/// The operand of `op`: a number takes the dtype that `other` gives it.
Tensor tensor_of(std::string_view op, const Arg& arg, const Arg& other) {
  const auto refuse = [&](std::string expected, std::string got) {
    throw ArgumentError({.what = fmt::format("{}: operand", op),
                         .where = engine::location_of(arg.where).to_string(),
                         .expected = std::move(expected),
                         .got = std::move(got)});
  };
  if (arg.is_tensor && !arg.tensor.defined()) refuse("a tensor or a number", "an empty handle");
  if (arg.is_tensor) return arg.tensor;
  const DType dtype = number_dtype(arg, other);
  if (!arg.integral || is_floating(dtype)) return Tensor::scalar(dtype, arg.number);
  if (arg.too_large || !engine::holds(dtype, arg.integer))
    refuse(fmt::format("a number that {} holds", name_of(dtype)),
           arg.too_large ? std::to_string(static_cast<std::uint64_t>(arg.integer))
                         : std::to_string(arg.integer));
  return Tensor::scalar_int(dtype, arg.integer);
}

Tensor binary(std::string_view op, const Arg& a, const Arg& b) {
  return one(op, {tensor_of(op, a, b), tensor_of(op, b, a)}, {}, a.where);
}

Ints all_axes(const Tensor& x, Ints axes) {
  if (!axes.empty()) return axes;
  axes.resize(static_cast<std::size_t>(x.rank()));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

Tensor reduce(std::string_view op, const Tensor& x, Ints axes, bool keepdims, At where) {
  return one(op, {x}, {{"axes", all_axes(x, std::move(axes))}, {"keepdims", keepdims}}, where);
}

std::int64_t positive_axis(std::int64_t axis, std::int64_t rank, std::string_view op, At where) {
  const std::int64_t k = axis < 0 ? axis + rank : axis;
  if (k < 0 || k >= rank)
    throw ShapeError({.what = fmt::format("{}: axis", op),
                      .where = engine::location_of(where).to_string(),
                      .expected = fmt::format("in [{}, {})", -rank, rank),
                      .got = std::to_string(axis)});
  return k;
}

}  // namespace

Tensor operator+(const Arg& a, const Arg& b) { return binary("add", a, b); }
Tensor operator-(const Arg& a, const Arg& b) { return binary("sub", a, b); }
Tensor operator*(const Arg& a, const Arg& b) { return binary("mul", a, b); }
Tensor operator/(const Arg& a, const Arg& b) { return binary("div", a, b); }
Tensor add(const Arg& a, const Arg& b) { return binary("add", a, b); }
Tensor sub(const Arg& a, const Arg& b) { return binary("sub", a, b); }
Tensor mul(const Arg& a, const Arg& b) { return binary("mul", a, b); }
Tensor div(const Arg& a, const Arg& b) { return binary("div", a, b); }
Tensor mod(const Arg& a, const Arg& b) { return binary("mod", a, b); }
Tensor rem(const Arg& a, const Arg& b) { return binary("rem", a, b); }
Tensor pow(const Arg& a, const Arg& b) { return binary("pow", a, b); }
Tensor maximum(const Arg& a, const Arg& b) { return binary("max", a, b); }
Tensor minimum(const Arg& a, const Arg& b) { return binary("min", a, b); }
Tensor atan2(const Arg& a, const Arg& b) { return binary("atan2", a, b); }
Tensor logical_and(const Arg& a, const Arg& b) { return binary("and", a, b); }
Tensor logical_or(const Arg& a, const Arg& b) { return binary("or", a, b); }
Tensor logical_xor(const Arg& a, const Arg& b) { return binary("xor", a, b); }
Tensor equal(const Arg& a, const Arg& b) { return binary("eq", a, b); }
Tensor not_equal(const Arg& a, const Arg& b) { return binary("ne", a, b); }
Tensor less(const Arg& a, const Arg& b) { return binary("lt", a, b); }
Tensor less_equal(const Arg& a, const Arg& b) { return binary("le", a, b); }
Tensor greater(const Arg& a, const Arg& b) { return binary("gt", a, b); }
Tensor greater_equal(const Arg& a, const Arg& b) { return binary("ge", a, b); }
Tensor operator-(const Tensor& a) { return neg(a); }

Tensor where(const Arg& condition, const Arg& a, const Arg& b) {
  return one("where",
             {tensor_of("where", condition, condition), tensor_of("where", a, b),
              tensor_of("where", b, a)},
             {}, condition.where);
}

Tensor clamp(const Tensor& x, const Arg& low, const Arg& high) {
  return one("clamp", {x, tensor_of("clamp", low, x), tensor_of("clamp", high, x)}, {}, low.where);
}

Tensor neg(const Tensor& x, At where) { return one("neg", {x}, {}, where); }
Tensor abs(const Tensor& x, At where) { return one("abs", {x}, {}, where); }
Tensor sign(const Tensor& x, At where) { return one("sign", {x}, {}, where); }
Tensor ceil(const Tensor& x, At where) { return one("ceil", {x}, {}, where); }
Tensor floor(const Tensor& x, At where) { return one("floor", {x}, {}, where); }
Tensor round(const Tensor& x, At where) { return one("round", {x}, {}, where); }
Tensor trunc(const Tensor& x, At where) { return one("trunc", {x}, {}, where); }
Tensor sqrt(const Tensor& x, At where) { return one("sqrt", {x}, {}, where); }
Tensor rsqrt(const Tensor& x, At where) { return one("rsqrt", {x}, {}, where); }
Tensor reciprocal(const Tensor& x, At where) { return one("reciprocal", {x}, {}, where); }
Tensor exp(const Tensor& x, At where) { return one("exp", {x}, {}, where); }
Tensor expm1(const Tensor& x, At where) { return one("expm1", {x}, {}, where); }
Tensor log(const Tensor& x, At where) { return one("log", {x}, {}, where); }
Tensor log1p(const Tensor& x, At where) { return one("log1p", {x}, {}, where); }
Tensor sin(const Tensor& x, At where) { return one("sin", {x}, {}, where); }
Tensor cos(const Tensor& x, At where) { return one("cos", {x}, {}, where); }
Tensor tan(const Tensor& x, At where) { return one("tan", {x}, {}, where); }
Tensor tanh(const Tensor& x, At where) { return one("tanh", {x}, {}, where); }
Tensor erf(const Tensor& x, At where) { return one("erf", {x}, {}, where); }
Tensor sigmoid(const Tensor& x, At where) { return one("sigmoid", {x}, {}, where); }
Tensor is_nan(const Tensor& x, At where) { return one("is_nan", {x}, {}, where); }
Tensor relu(const Tensor& x, At where) { return one("relu", {x}, {}, where); }
Tensor silu(const Tensor& x, At where) { return one("silu", {x}, {}, where); }
Tensor softplus(const Tensor& x, At where) { return one("softplus", {x}, {}, where); }
Tensor logical_not(const Tensor& x, At where) { return one("not", {x}, {}, where); }

Tensor gelu(const Tensor& x, bool tanh_form, At where) {
  return one("gelu", {x}, {{"approximate", std::string(tanh_form ? "tanh" : "none")}}, where);
}
Tensor cast(const Tensor& x, DType dtype, At where) {
  return one("convert", {x}, {{"dtype", dtype}}, where);
}
Tensor unpack_bits(const Tensor& packed, std::int64_t bits, std::int64_t count, bool is_signed,
                   At where) {
  return one("unpack_bits", {packed}, {{"bits", bits}, {"count", count}, {"signed", is_signed}},
             where);
}

Tensor sum(const Tensor& x, Ints axes, bool keepdims, At where) {
  return reduce("reduce_sum", x, std::move(axes), keepdims, where);
}
Tensor mean(const Tensor& x, Ints axes, bool keepdims, At where) {
  return reduce("reduce_mean", x, std::move(axes), keepdims, where);
}
Tensor amax(const Tensor& x, Ints axes, bool keepdims, At where) {
  return reduce("reduce_max", x, std::move(axes), keepdims, where);
}
Tensor amin(const Tensor& x, Ints axes, bool keepdims, At where) {
  return reduce("reduce_min", x, std::move(axes), keepdims, where);
}
Tensor prod(const Tensor& x, Ints axes, bool keepdims, At where) {
  return reduce("reduce_prod", x, std::move(axes), keepdims, where);
}
Tensor all(const Tensor& x, Ints axes, bool keepdims, At where) {
  return reduce("reduce_and", x, std::move(axes), keepdims, where);
}
Tensor any(const Tensor& x, Ints axes, bool keepdims, At where) {
  return reduce("reduce_or", x, std::move(axes), keepdims, where);
}
Tensor variance(const Tensor& x, Ints axes, bool keepdims, std::int64_t correction, At where) {
  return one(
      "variance", {x},
      {{"axes", all_axes(x, std::move(axes))}, {"keepdims", keepdims}, {"correction", correction}},
      where);
}
Tensor argmax(const Tensor& x, std::int64_t axis, bool keepdims, At where) {
  return one("argmax", {x}, {{"axis", axis}, {"keepdims", keepdims}}, where);
}
Tensor argmin(const Tensor& x, std::int64_t axis, bool keepdims, At where) {
  return one("argmin", {x}, {{"axis", axis}, {"keepdims", keepdims}}, where);
}
Tensor cumsum(const Tensor& x, std::int64_t axis, At where) {
  return one("cumsum", {x}, {{"axis", axis}}, where);
}

Tensor matmul(const Tensor& a, const Tensor& b, At where) {
  return one("matmul", {a, b}, {}, where);
}
Tensor grouped_matmul(const Tensor& x, const Tensor& w, const Tensor& ends, At where) {
  return one("grouped_matmul", {x, w, ends}, {}, where);
}
Tensor softmax(const Tensor& x, std::int64_t axis, At where) {
  return one("softmax", {x}, {{"axis", axis}}, where);
}
Tensor log_softmax(const Tensor& x, std::int64_t axis, At where) {
  return one("log_softmax", {x}, {{"axis", axis}}, where);
}
Tensor layer_norm(const Tensor& x, const Tensor& scale, const Tensor& bias, std::int64_t axis,
                  double epsilon, At where) {
  return one("layer_norm", {x, scale, bias}, {{"axis", axis}, {"epsilon", epsilon}}, where);
}
Tensor rms_norm(const Tensor& x, const Tensor& scale, std::int64_t axis, double epsilon, At where) {
  return one("rms_norm", {x, scale}, {{"axis", axis}, {"epsilon", epsilon}}, where);
}
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool causal,
                 double scale, double softcap, At where) {
  return one("attention", {q, k, v, mask},
             {{"causal", causal}, {"scale", scale}, {"softcap", softcap}}, where);
}

Tensor reshape(const Tensor& x, std::vector<SymInt> sizes, At where) {
  SymInt known = 1;
  std::ptrdiff_t open = -1;
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    if (sizes[k].is_symbolic() || sizes[k].value() != -1) {
      known = known * sizes[k];
      continue;
    }
    if (open >= 0)
      throw ShapeError({.what = "reshape: sizes",
                        .where = engine::location_of(where).to_string(),
                        .expected = "at most one -1",
                        .got = "several"});
    open = static_cast<std::ptrdiff_t>(k);
  }
  if (open >= 0) {
    SymInt total = 1;
    for (const SymInt& size : x.shape()) total = total * size;
    if (!known.is_symbolic() && known.value() == 0)
      throw ShapeError({.what = "reshape: -1 beside a zero size",
                        .where = engine::location_of(where).to_string(),
                        .expected = "sizes whose product decides the open one",
                        .got = "a product of 0"});
    sizes[static_cast<std::size_t>(open)] = total / known;
  }
  return one("reshape", {x}, {{"sizes", std::move(sizes)}}, where);
}

Tensor permute(const Tensor& x, Ints perm, At where) {
  return one("permute", {x}, {{"perm", std::move(perm)}}, where);
}

Tensor transpose(const Tensor& x, std::int64_t a, std::int64_t b, At where) {
  Ints perm(static_cast<std::size_t>(x.rank()));
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[static_cast<std::size_t>(positive_axis(a, x.rank(), "transpose", where))],
            perm[static_cast<std::size_t>(positive_axis(b, x.rank(), "transpose", where))]);
  return permute(x, std::move(perm), where);
}

Tensor expand(const Tensor& x, std::vector<SymInt> sizes, At where) {
  return one("expand", {x}, {{"sizes", std::move(sizes)}}, where);
}

Tensor unsqueeze(const Tensor& x, std::int64_t axis, At where) {
  std::vector<SymInt> sizes = x.shape();
  const std::int64_t k = positive_axis(axis, x.rank() + 1, "unsqueeze", where);
  sizes.insert(sizes.begin() + k, SymInt(1));
  return one("reshape", {x}, {{"sizes", std::move(sizes)}}, where);
}

Tensor squeeze(const Tensor& x, std::int64_t axis, At where) {
  std::vector<SymInt> sizes = x.shape();
  const std::int64_t k = positive_axis(axis, x.rank(), "squeeze", where);
  sizes.erase(sizes.begin() + k);
  return one("reshape", {x}, {{"sizes", std::move(sizes)}}, where);
}

Tensor slice(const Tensor& x, std::int64_t axis, SymInt start, SymInt limit, SymInt stride,
             At where) {
  const auto k = static_cast<std::size_t>(positive_axis(axis, x.rank(), "slice", where));
  std::vector<SymInt> starts(static_cast<std::size_t>(x.rank()), SymInt(0));
  std::vector<SymInt> limits = x.shape();
  std::vector<SymInt> strides(starts.size(), SymInt(1));
  starts[k] = std::move(start);
  limits[k] = std::move(limit);
  strides[k] = std::move(stride);
  return one(
      "slice", {x},
      {{"start", std::move(starts)}, {"limit", std::move(limits)}, {"stride", std::move(strides)}},
      where);
}

Tensor slice_scatter(const Tensor& x, const Tensor& update, std::int64_t axis, SymInt start,
                     At where) {
  return one("slice_scatter", {x, update}, {{"axis", axis}, {"start", std::move(start)}}, where);
}

Tensor unfold(const Tensor& x, std::int64_t axis, std::int64_t size, std::int64_t step, At where) {
  return one("unfold", {x}, {{"axis", axis}, {"size", size}, {"step", step}}, where);
}

Tensor concat(const std::vector<Tensor>& parts, std::int64_t axis, At where) {
  return apply("concat", parts, {{"axis", axis}}, where)[0];
}
std::vector<Tensor> split(const Tensor& x, std::vector<SymInt> sizes, std::int64_t axis, At where) {
  const Tensor operands[] = {x};
  return apply("split", operands, {{"axis", axis}, {"sizes", std::move(sizes)}}, where);
}
Tensor gather(const Tensor& x, const Tensor& indices, std::int64_t axis, At where) {
  return one("gather", {x, indices}, {{"axis", axis}}, where);
}
std::pair<Tensor, Tensor> topk(const Tensor& x, SymInt k, std::int64_t axis, bool largest,
                               At where) {
  const Tensor operands[] = {x};
  auto results =
      apply("topk", operands, {{"k", std::move(k)}, {"axis", axis}, {"largest", largest}}, where);
  return {results[0], results[1]};
}
std::pair<Tensor, Tensor> sort(const Tensor& x, std::int64_t axis, bool descending, At where) {
  const Tensor operands[] = {x};
  auto results = apply("sort", operands, {{"axis", axis}, {"descending", descending}}, where);
  return {results[0], results[1]};
}
Tensor iota(std::vector<SymInt> sizes, std::int64_t axis, DType dtype, At where) {
  return apply("iota", {}, {{"sizes", std::move(sizes)}, {"axis", axis}, {"dtype", dtype}},
               where)[0];
}
Tensor size_tensor(const SymInt& size, At where) {
  return apply("symint", {}, {{"value", size}}, where)[0];
}
SymInt as_size(const Tensor& number, At where) {
  if (!number.is_symbolic() && number.rank() == 0 && number.dtype() == i64) {
    const Tensor here = number.to(Device::cpu());
    return *here.data_as<const std::int64_t>();
  }
  return one("heddle::as_size", {number}, {}, where).size(0);
}

namespace {

/// Row-major positions of the elements of `x` that are not 0: these go to the front, in their order, the others behind
/// them, and the front is read.
Tensor kept_positions(const Tensor& x, At where) {
  const Tensor flat = reshape(x, {-1}, where);
  const Tensor is_kept = flat.dtype() == boolean ? flat : not_equal(Arg(flat, where), 0);
  const Tensor ones = cast(is_kept, i64, where);
  const Tensor ends = cumsum(ones, 0, where);
  const Tensor count = sum(ones, {}, false, where);
  const Tensor at = iota({flat.size(0)}, 0, i64, where);
  const Tensor place = heddle::where(is_kept, ends - 1, count + at - ends);
  const Tensor order = one("scatter_elements", {at, place, at}, {{"axis", std::int64_t{0}}}, where);
  return gather(order, iota({as_size(count, where)}, 0, i64, where), 0, where);
}

}  // namespace

Tensor nonzero(const Tensor& x, At where) {
  const Tensor positions = kept_positions(x, where);
  std::vector<Tensor> rows;
  SymInt inner = 1;
  for (std::int64_t d = x.rank(); d-- > 0;) {
    const Tensor left = inner.is_symbolic() || inner.value() != 1
                            ? div(positions, size_tensor(inner, where))
                            : positions;
    const Tensor row = d == 0 ? left : rem(left, size_tensor(x.size(d), where));
    rows.insert(rows.begin(), unsqueeze(row, 0, where));
    inner = inner * x.size(d);
  }
  if (rows.empty()) return iota({0, positions.size(0)}, 0, i64, where);
  return concat(rows, 0, where);
}

Tensor compress(const Tensor& x, const Tensor& condition, std::int64_t axis, At where) {
  return gather(x, kept_positions(condition, where), axis, where);
}

Tensor pad(const Tensor& x, std::vector<SymInt> low, std::vector<SymInt> high, const Arg& value,
           At where) {
  return one("pad", {x, tensor_of("pad", value, x)},
             {{"low", std::move(low)}, {"high", std::move(high)}}, where);
}
Tensor conv(const Tensor& x, const Tensor& w, const Tensor& bias, Ints strides, Ints pads_low,
            Ints pads_high, std::int64_t groups, At where) {
  const Ints dilations(strides.size(), 1);
  return one("conv", {x, w, bias},
             {{"strides", std::move(strides)},
              {"pads_low", std::move(pads_low)},
              {"pads_high", std::move(pads_high)},
              {"dilations", dilations},
              {"groups", groups}},
             where);
}

}  // namespace heddle
