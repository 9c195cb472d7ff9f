// scan: runs a graph once for each slice of its operands, handing values on from one run to the next.
// map: the same without values that are handed on.
//
//   operands   `carried` values to start with, then `scanned` tensors of leading size `length`, then those
//              that are the same in each iteration; of map: the scanned ones first
//   body       graph of the carried values, one slice of each scanned tensor (its first dimension
//              dropped) and the rest: the next carried values, then the elements of the results
//   length     of scan: how many iterations; of map: the leading size of operand 0
//   reverse    of scan: from the last slice to the first
//   counted    of scan: the operand after the scanned ones, i64[], says how many of the slices are run, the first ones;
//              less than 0 are none, more than `length` are all
//   results    the last carried values, then for each other value of the body all its elements stacked in
//              the order of the slices: [length, ...]; zeros for slices that are not run
//
// Constraints. infer() checks them in this order.
//   C1  carried and scanned are counts of operands; map scans one tensor at least; length is at least 0
//   C2  scanned operands have `length` slices
//   C3  the body takes what is said above, has no parameters and writes nothing back
//   C4  the body gives carried values of the dtypes and sizes that the loop starts with
//   C5  the other values of the body have the same sizes in each iteration
//   C6  a count is i64[]
//
// Without results the call gives a token, u8[0], that order can name.
// Memory: the results are fresh.
// Source: ONNX Scan-9 with the scan axis first.
#include <algorithm>
#include <cstring>
#include <fmt/format.h>

#include "ir/analysis/regions.h"
#include "ir/ops/regions.h"
#include "ir/ops/result_sizes.h"

namespace heddle::ir::ops {
namespace {

struct Counts {
  std::size_t carried = 0;
  std::size_t scanned = 0;
};

std::size_t count(const Attrs& attrs, std::string_view name) {
  const auto found = attrs.find(name);
  return found == attrs.end() ? 0 : static_cast<std::size_t>(std::get<std::int64_t>(found->second));
}
Counts counts(const Attrs& attrs) { return {count(attrs, "carried"), count(attrs, "scanned")}; }

SymExpr length(std::span<const Value> inputs, const Attrs& attrs) {
  const auto found = attrs.find("length");
  return found == attrs.end() ? inputs[0].meta().sizes[0] : std::get<SymExpr>(found->second);
}

TensorMeta slice_of(const TensorMeta& meta) {
  return TensorMeta::of(meta.dtype, Dims(meta.sizes.begin() + 1, meta.sizes.end()));
}

bool is_counted(const Attrs& attrs) {
  const auto found = attrs.find("counted");
  return found != attrs.end() && std::get<bool>(found->second);
}

std::vector<TensorMeta> arguments_scan(std::span<const Value> inputs, const Attrs& attrs) {
  const auto [carried, scanned] = counts(attrs);
  std::vector<TensorMeta> given = plain_arguments(inputs, 0);
  for (std::size_t k = carried; k < carried + scanned; ++k) given[k] = slice_of(given[k]);
  return given;
}

void check_count(const InferContext& context, std::size_t k) {
  if (k >= context.inputs.size())
    context.fail_shape("C6 count", "an operand after the scanned ones", "none");
  if (context.meta(k).dtype != i64 || context.meta(k).rank() != 0)
    context.fail_dtype("C6 count", "i64[]", context.meta(k).to_string());
}

std::vector<TensorMeta> infer_scan(const InferContext& context) {
  const auto [carried, scanned] = counts(context.attrs);
  const bool counted = carried <= context.inputs.size() && scanned <= context.inputs.size() &&
                       carried + scanned <= context.inputs.size();
  if (!counted || (!context.attrs.contains("length") && scanned == 0))
    context.fail_shape("C1 counts", fmt::format("at most {} operands", context.inputs.size()),
                       fmt::format("{} carried and {} scanned", carried, scanned));
  if (context.attrs.contains("length"))
    require_sizes(context, {length(context.inputs, context.attrs)}, "C1 length");
  for (std::size_t k = carried; k < carried + scanned; ++k) {
    if (context.meta(k).rank() == 0)
      context.fail_shape(fmt::format("C2 scanned operand {}", k), "a leading dimension",
                         context.meta(k).to_string());
    context.require_equal(context.meta(k).sizes[0], length(context.inputs, context.attrs),
                          fmt::format("C2 length of scanned operand {}", k));
  }
  const Graph& body = region(context, "body");
  const std::vector<TensorMeta> given = arguments_scan(context.inputs, context.attrs);
  const base::SymbolExprs sizes = check_region(context, body, given, "C3 body");
  if (body.outputs().size() < carried)
    context.fail_shape("C4 carried values", std::to_string(carried),
                       std::to_string(body.outputs().size()));
  std::vector<TensorMeta> results(given.begin(),
                                  given.begin() + static_cast<std::ptrdiff_t>(carried));
  for (std::size_t k = 0; k < body.outputs().size(); ++k) {
    const TensorMeta result = region_result(body, k, sizes);
    check_same_each_time(context, body, k, k < carried ? "C4 carried value" : "C5 result");
    if (k < carried) {
      check_carried(context, given[k], result, k, "C4 the body keeps the shape of carried value");
      continue;
    }
    Dims stacked{length(context.inputs, context.attrs)};
    stacked.insert(stacked.end(), result.sizes.begin(), result.sizes.end());
    results.push_back(TensorMeta::of(result.dtype, std::move(stacked)));
  }
  if (is_counted(context.attrs)) check_count(context, carried + scanned);
  return or_token(std::move(results));
}

/// Slice `at` of the first dimension.
Literal slice(const Literal& tensor, std::int64_t at) {
  const Sizes sizes(tensor.sizes().begin() + 1, tensor.sizes().end());
  const Sizes strides(tensor.strides().begin() + 1, tensor.strides().end());
  return tensor.view(sizes, strides, at * tensor.strides()[0]);
}

/// Row-major, all zeros.
Literal cleared(Literal tensor) {
  if (tensor.bytes() != 0) std::memset(tensor.data(), 0, tensor.bytes());
  return tensor;
}

std::vector<Literal> evaluate_scan(const EvalContext& context) {
  const Attrs& attrs = context.node.attrs();
  const auto [carried, scanned] = counts(attrs);
  const std::int64_t all = length(context.node.inputs(), attrs).evaluate(context.sizes);
  const std::int64_t steps =
      is_counted(attrs)
          ? std::clamp<std::int64_t>(context.inputs[carried + scanned].at_int(0), 0, all)
          : all;
  const bool reverse = context.node.has("reverse") && context.node.flag("reverse");
  std::vector<Literal> results(context.inputs.begin(),
                               context.inputs.begin() + static_cast<std::ptrdiff_t>(carried));
  for (std::size_t k = carried; k < context.node.outputs().size(); ++k)
    results.push_back(cleared(context.make(k)));  // a token among them
  for (std::int64_t step = 0; step < steps; ++step) {
    const std::int64_t at = reverse ? steps - 1 - step : step;
    std::vector<Literal> given(context.inputs.begin(), context.inputs.end());
    for (std::size_t k = 0; k < carried; ++k) given[k] = results[k];
    for (std::size_t k = carried; k < carried + scanned; ++k) given[k] = slice(given[k], at);
    const std::vector<Literal> next = evaluate_region(context, "body", given);
    for (std::size_t k = 0; k < carried; ++k) results[k] = next[k];
    for (std::size_t k = carried; k < next.size(); ++k) {
      const Literal element = next[k].contiguous();
      auto* stacked = static_cast<char*>(results[k].data());
      if (element.bytes() != 0)
        std::memcpy(stacked + static_cast<std::size_t>(at) * element.bytes(), element.data(),
                    element.bytes());
    }
  }
  return results;
}

OpDef loop(std::string_view name) {
  OpDef op;
  op.name = name;
  op.operands = {{"operands", OperandSpec::Arity::Variadic}};
  op.attrs = {{"body", AttrKind::Graph, std::nullopt}};
  op.outputs = -1;
  op.infer = infer_scan;
  op.evaluate = evaluate_scan;
  op.region_arguments = arguments_scan;
  op.lowering.region = RegionKind::Scan;
  return op;
}

}  // namespace

OpDef scan_op() {
  OpDef op = loop("scan");
  op.attrs.push_back({"carried", AttrKind::Int, std::nullopt});
  op.attrs.push_back({"scanned", AttrKind::Int, std::nullopt});
  op.attrs.push_back({"length", AttrKind::SymInt, std::nullopt});
  op.attrs.push_back({"reverse", AttrKind::Bool, false});
  op.attrs.push_back({"counted", AttrKind::Bool, false});
  return op;
}

OpDef map_op() {
  OpDef op = loop("map");
  op.attrs.push_back({"scanned", AttrKind::Int, std::nullopt});
  return op;
}

}  // namespace heddle::ir::ops
