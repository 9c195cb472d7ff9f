// Reductions, running sums and selections along an axis.

#include "engine/onnx/converters.h"
#include "engine/onnx/integers.h"
#include "heddle/control_flow.h"

namespace heddle::onnx {

namespace {

/// What a row reduces with, as a function of one tensor and its axes.
using Reduce = Tensor (*)(const Tensor&, const Ints&, bool);

/// Axes come from an attribute, or from an input in later versions. Nothing: reduce nothing.
std::optional<Ints> axes_of(const Node& node, std::int64_t rank) {
  Ints axes = node.integers("axes");
  if (node.has(1)) axes = node.known_numbers(1, "axes");
  if (!axes.empty()) return node.axes(std::move(axes), rank);
  if (node.integer("noop_with_empty_axes", 0) != 0) return {};
  return range_of(0, rank);
}

Tensor reduced(std::string_view op, const Tensor& x, const Ints& axes, bool keepdims) {
  return one(op, {x}, {{"axes", axes}, {"keepdims", keepdims}});
}

Tensor sum_of(const Tensor& x, const Ints& axes, bool keep) {
  return reduced("reduce_sum", x, axes, keep);
}

Tensor l1(const Tensor& x, const Ints& axes, bool keep) { return sum_of(abs(x), axes, keep); }

Tensor sum_square(const Tensor& x, const Ints& axes, bool keep) {
  return sum_of(x * x, axes, keep);
}

Tensor l2(const Tensor& x, const Ints& axes, bool keep) { return sqrt(sum_square(x, axes, keep)); }

Tensor log_sum(const Tensor& x, const Ints& axes, bool keep) { return log(sum_of(x, axes, keep)); }

/// The largest element is taken out first, so that exp does not overflow.
Tensor log_sum_exp(const Tensor& x, const Ints& axes, bool keep) {
  const Tensor top = reduced("reduce_max", x, axes, true);
  const Tensor shift = where(one("is_inf", {top}), 0.0, top);
  const Tensor total = log(sum_of(exp(x - shift), axes, true)) + shift;
  if (keep) return total;
  return reshape(total, reduced("reduce_max", x, axes, false).shape());
}

template <Reduce reduce>
Outputs composite(const Node& node) {
  const Tensor x = node.tensor(0);
  const auto axes = axes_of(node, x.rank());
  return {reduce(x, axes.value_or(Ints{}), node.integer("keepdims", 1) != 0)};
}

/// Means, norms and logarithms of integers are those of real numbers, cut to integers again.
template <Reduce reduce>
Outputs real(const Node& node) {
  const DType dtype = node.value(0).dtype();
  if (is_floating(dtype)) return composite<reduce>(node);
  if (dtype == boolean) node.unsupported("reduction of bool");
  const Tensor x = cast(node.tensor(0), f64);
  const auto axes = axes_of(node, x.rank());
  return {cast(reduce(x, axes.value_or(Ints{}), node.integer("keepdims", 1) != 0), dtype)};
}

SymInt fold_ints(std::string_view op, const SymInts& ints) {
  SymInt result = ints[0];
  for (std::size_t k = 1; k < ints.size(); ++k) {
    if (op == "reduce_sum") result = wrapping_add(result, ints[k]);
    if (op == "reduce_prod") result = wrapping_multiply(result, ints[k]);
    if (op == "reduce_max") result = larger(result, ints[k]);
    if (op == "reduce_min") result = smaller(result, ints[k]);
  }
  return result;
}

/// The smallest or largest of reals that are known or follow from sizes; sums depend on the order in which they are added.
std::optional<Reals> fold_reals(std::string_view op, const Value& x) {
  if (x.rank() != 1 || (op != "reduce_max" && op != "reduce_min")) return {};
  const std::optional<Reals> reals = x.reals();
  if (!reals || reals->empty()) return {};
  std::optional<Real> result = reals->front();
  for (std::size_t k = 1; k < reals->size() && result; ++k)
    result = Real::apply(op == "reduce_max" ? "max" : "min", *result, (*reals)[k]);
  return result ? std::optional(Reals{*result}) : std::nullopt;
}

Tensor mean_of(const Tensor& x, const Ints& axes, bool keep) {
  return reduced("reduce_mean", x, axes, keep);
}

Outputs direct(const Node& node) {
  const Value& x = node.value(0);
  const bool keep = node.integer("keepdims", 1) != 0;
  const auto axes = axes_of(node, x.rank());
  if (!axes) return {x};
  if (x.is_shape_like() && x.rank() == 1 && !x.ints()->empty())
    return {Value::of_ints({fold_ints(node.ir_op(), *x.ints())}, !keep, x.dtype())};
  if (auto reals = fold_reals(node.ir_op(), x))
    return {Value::of_reals(reduced(node.ir_op(), x.tensor(), *axes, keep), std::move(*reals))};
  if (x.dtype() != boolean) return {reduced(node.ir_op(), x.tensor(), *axes, keep)};
  if (node.ir_op() == "reduce_max") return {reduced("reduce_or", x.tensor(), *axes, keep)};
  if (node.ir_op() == "reduce_min") return {reduced("reduce_and", x.tensor(), *axes, keep)};
  node.unsupported("reduction of bool");
}

/// With no axes to reduce, the operand: an empty list of the IR's op means none.
Outputs reduce_mean(const Node& node) {
  const Value& x = node.value(0);
  return axes_of(node, x.rank()) ? real<mean_of>(node) : Outputs{x};
}

Outputs arg_reduce(const Node& node) {
  const Tensor x = node.tensor(0);
  return {one(node.ir_op(), {x},
              {{"axis", node.axis(node.integer("axis", 0), x.rank())},
               {"keepdims", node.integer("keepdims", 1) != 0},
               {"last", node.integer("select_last_index", 0) != 0}})};
}

Outputs cumulative_sum(const Node& node) {
  const Tensor x = node.tensor(0);
  return {one("cumsum", {x},
              {{"axis", node.axis(node.known_number(1, "axis"), x.rank())},
               {"exclusive", node.integer("exclusive", 0) != 0},
               {"reverse", node.integer("reverse", 0) != 0}})};
}

/// One product after the other, each of all other dimensions at once.
Outputs cumulative_product(const Node& node) {
  const Tensor x = node.tensor(0);
  const std::int64_t axis = node.axis(node.known_number(1, "axis"), x.rank());
  const bool exclusive = node.integer("exclusive", 0) != 0;
  Ints order = range_of(0, x.rank());
  std::swap(order[0], order[static_cast<std::size_t>(axis)]);
  const Tensor slices = permute(x, order);
  SymInts sizes = slices.shape();
  sizes.erase(sizes.begin());
  const Tensor ones = expand(Tensor::scalar_int(x.dtype(), 1), sizes);
  const auto step = [&](const Tensor& before, const Tensor& slice) {
    const Tensor after = before * slice;
    return std::pair(after, exclusive ? before + Tensor::scalar_int(x.dtype(), 0) : after);
  };
  const Tensor products =
      scan(ones, slices, step, {.reverse = node.integer("reverse", 0) != 0}).second;
  return {permute(products, order)};
}

Outputs top_k(const Node& node) {
  const Tensor x = node.tensor(0);
  const SymInt k = node.has(1) ? node.known_size(1, "K") : SymInt(node.integer("k", 1));
  const Tensor operands[] = {x};
  std::vector<Tensor> results = apply("topk", operands,
                                      {{"k", k},
                                       {"axis", node.axis(node.integer("axis", -1), x.rank())},
                                       {"largest", node.integer("largest", 1) != 0},
                                       {"sorted", node.integer("sorted", 1) != 0}});
  return {results[0], results[1]};
}

}  // namespace

std::span<const Converter> reduce_converters() {
  static constexpr Converter kConverters[] = {
      {"ArgMax", arg_reduce, "argmax"},
      {"ArgMin", arg_reduce, "argmin"},
      {"CumProd", cumulative_product},
      {"CumSum", cumulative_sum},
      {"ReduceL1", composite<l1>},
      {"ReduceL2", real<l2>},
      {"ReduceLogSum", real<log_sum>},
      {"ReduceLogSumExp", real<log_sum_exp>},
      {"ReduceMax", direct, "reduce_max"},
      {"ReduceMean", reduce_mean},
      {"ReduceMin", direct, "reduce_min"},
      {"ReduceProd", direct, "reduce_prod"},
      {"ReduceSum", direct, "reduce_sum"},
      {"ReduceSumSquare", composite<sum_square>},
      {"TopK", top_k},
  };
  return kConverters;
}

}  // namespace heddle::onnx
