#include "jit/lower/tap_products.h"

#include <algorithm>

#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "jit/lower/conv_windows.h"
#include "jit/lower/decompose.h"
#include "jit/lower/fixed_values.h"

namespace heddle::jit {
namespace {

using ir::Dims;
using ir::GraphBuilder;
using ir::Node;
using ir::Value;
using Ints = std::vector<std::int64_t>;

/// Channels of the result that leave at least half of a vector empty.
constexpr std::int64_t kMostResults = 4;
/// Channels of x from which on what is added up afterwards is little beside the product.
constexpr std::int64_t kLeastDepth = 16;

class TapConverter {
 public:
  explicit TapConverter(const LowerOptions& options) : options_(options), fixed_(options) {}

  std::optional<std::vector<Value>> visit(ir::Rewriter& rewriter, const Node& node) {
    if (!takes(node)) return std::nullopt;
    GraphBuilder& builder = rewriter.builder();
    const Value weights = rewriter.map(node.input(1));
    const Dims& kernel = weights.meta().sizes;
    Value result = summed(builder, node, products(builder, rewriter.map(node.input(0)), weights));
    if (kernel[0].is_constant(1))
      result = builder.emit("reshape", {result}, {{"sizes", node.output().sizes}});
    else
      result = builder.emit("permute", {result}, {{"perm", channels_to_last(kernel.size())}});
    if (node.inputs().size() > 2 && node.input(2))
      result = builder.emit("add", {result, rewriter.map(node.input(2))});
    return std::vector<Value>{result};
  }

 private:
  bool takes(const Node& node) {
    if (node.op_name() != "conv" || !node.flag("channels_last") || node.integer("groups") != 1 ||
        node.output().dtype != DType::F32 || classify(node, options_) != NodeClass::Library ||
        !unit_of(node, options_).fuse || ir::wants_fallback(node) ||
        !fixed_.contains(node.input(1).node))
      return false;
    const Dims& weights = node.input(1).meta().sizes;
    if (!std::ranges::all_of(weights, [](const SymExpr& size) { return size.is_constant(); }) ||
        !std::ranges::all_of(node.ints("strides"), [](std::int64_t step) { return step == 1; }))
      return false;
    const std::int64_t results = weights[0].constant(), depth = weights[1].constant();
    const std::int64_t taps = base::product(std::span(weights).subspan(2)).constant();
    return taps > 1 && results <= kMostResults && depth >= kLeastDepth && taps * results <= depth;
  }

  /// What each tap adds to each channel of the result, of each position of x: [n, taps, m, in…].
  static Value products(GraphBuilder& builder, Value x, Value weights) {
    const Dims& kernel = weights.meta().sizes;
    const std::size_t rank = kernel.size();
    // [m, c, k…] to [k…, m, c].
    Ints perm;
    for (std::size_t d = 2; d < rank; ++d) perm.push_back(static_cast<std::int64_t>(d));
    perm.insert(perm.end(), {0, 1});
    const SymExpr taps = base::product(std::span(kernel).subspan(2));
    const SymExpr rows = taps * kernel[0];
    const Value filters =
        builder.emit("reshape", {builder.emit("permute", {weights}, {{"perm", perm}})},
                     {{"sizes", Dims{rows, kernel[1]}}});
    Dims sizes = x.meta().sizes;
    sizes.pop_back();
    sizes.insert(sizes.begin() + 1, {taps, kernel[0]});
    Value made;
    if (x.node->op_name() == "permute" && x.node->ints("perm") == channels_to_last(rank)) {
      const Dims flat{sizes[0], kernel[1], base::product(std::span(sizes).subspan(3))};
      const Value planes = builder.emit("reshape", {x.node->input(0)}, {{"sizes", flat}});
      made = builder.emit("matmul", {filters, planes});
    } else {
      const Value columns = builder.emit("permute", {filters}, {{"perm", Ints{1, 0}}});
      made = builder.emit("matmul", {x, columns});
      made = builder.emit("clone",
                          {builder.emit("permute", {made}, {{"perm", channels_to_front(rank)}})});
    }
    return builder.emit("reshape", {made}, {{"sizes", sizes}});
  }

  /// The sum over the taps where they meet: [n, m, out…].
  static Value summed(GraphBuilder& builder, const Node& node, Value products) {
    const Ints& low = node.ints("pads_low");
    const Ints& high = node.ints("pads_high");
    const Ints& dilations = node.ints("dilations");
    const Dims& kernel = node.input(1).meta().sizes;
    if (has_padding(node)) {
      const auto around = [](const Ints& pads) {
        Dims sizes(3, SymExpr(0));
        sizes.insert(sizes.end(), pads.begin(), pads.end());
        return sizes;
      };
      const Value zero = builder.constant(ir::Literal::scalar(DType::F32, 0));
      products =
          builder.emit("pad", {products, zero}, {{"low", around(low)}, {"high", around(high)}});
    }
    const std::int64_t taps = products.meta().sizes[1].constant();
    Value sum;
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      Dims start(products.meta().sizes.size(), SymExpr(0));
      Dims limit = products.meta().sizes;
      start[1] = tap;
      limit[1] = tap + 1;
      std::int64_t rest = tap;
      for (std::size_t d = low.size(); d-- > 0;) {
        const std::int64_t size = kernel[d + 2].constant();
        start[d + 3] = rest % size * dilations[d];
        limit[d + 3] = limit[d + 3] - (size - 1 - rest % size) * dilations[d];
        rest /= size;
      }
      const Value part = builder.emit(
          "slice", {products},
          {{"start", start}, {"limit", limit}, {"stride", Dims(start.size(), SymExpr(1))}});
      sum = tap == 0 ? part : builder.emit("add", {sum, part});
    }
    Dims sizes = sum.meta().sizes;
    sizes.erase(sizes.begin() + 1);
    return builder.emit("reshape", {sum}, {{"sizes", sizes}});
  }

  const LowerOptions& options_;
  FixedValues fixed_;
};

}  // namespace

ir::Graph tap_products(const ir::Graph& graph, const LowerOptions& options) {
  if (options.target != LowerOptions::Target::Cpu) return graph;
  TapConverter converter(options);
  return ir::rewrite(graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) {
    return converter.visit(rewriter, *node);
  });
}

}  // namespace heddle::jit
