#include "jit/lower/split_resizes.h"

#include <vector>

#include "ir/op.h"
#include "ir/ops/resize_ops.h"
#include "ir/passes/form_regions.h"

namespace heddle::jit {
namespace {

using ir::Node;
using ir::Value;

/// Elements between two resizes for each two of the last result, at most: more take longer than the taps that are spared.
constexpr std::int64_t kMostOfCubic = 6;
constexpr std::int64_t kMostOfLinear = 3;

std::vector<std::size_t> resized_dimensions(const Node& node) {
  std::vector<std::size_t> resized;
  for (std::size_t d = 0; d < node.output().sizes.size(); ++d)
    if (ir::ops::is_resized(node, d)) resized.push_back(d);
  return resized;
}

bool is_split(const Node& node) {
  using ir::ops::ResizeMode;
  if (node.op_name() != "resize" || ir::wants_fallback(node)) return false;
  const ResizeMode mode = ir::ops::resize_mode(node);
  if (mode == ResizeMode::Nearest) return false;
  const std::vector<std::size_t> resized = resized_dimensions(node);
  if (resized.size() < 2) return false;
  // The longest result between has all but the first dimension resized.
  const auto in = node.input(0).meta().sizes[resized[0]].as_constant();
  const auto out = node.output().sizes[resized[0]].as_constant();
  const std::int64_t most = mode == ResizeMode::Cubic ? kMostOfCubic : kMostOfLinear;
  return in && out && 2 * *in <= most * *out;
}

Value converted(ir::GraphBuilder& builder, Value x, DType dtype) {
  return x.meta().dtype == dtype ? x : builder.emit("convert", {x}, {{"dtype", dtype}});
}

Value one_by_one(ir::GraphBuilder& builder, const Node& node, Value x) {
  const DType dtype = node.output().dtype;
  const std::vector<std::size_t> resized = resized_dimensions(node);
  Value now = converted(builder, x, accumulator_of(dtype));
  for (auto d = resized.rbegin(); d != resized.rend(); ++d) {
    ir::Attrs attrs = node.attrs();
    ir::Dims sizes = now.meta().sizes;
    sizes[*d] = node.output().sizes[*d];
    attrs["sizes"] = std::move(sizes);
    auto& scales = std::get<std::vector<double>>(attrs["scales"]);
    for (std::size_t other = 0; other < scales.size(); ++other)
      if (other != *d) scales[other] = 1;
    now = builder.emit("resize", {now}, std::move(attrs));
  }
  return converted(builder, now, dtype);
}

}  // namespace

ir::Graph split_resizes(const ir::Graph& graph, const LowerOptions& options) {
  if (options.target == LowerOptions::Target::Cuda) return graph;
  return ir::rewrite(
      graph,
      [&](ir::Rewriter& rewriter, const ir::NodePtr& node) -> std::optional<std::vector<Value>> {
        if (!is_split(*node)) return std::nullopt;
        return std::vector<Value>{
            one_by_one(rewriter.builder(), *node, rewriter.map(node->input(0)))};
      });
}

}  // namespace heddle::jit
