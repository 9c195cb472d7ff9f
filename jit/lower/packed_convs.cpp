#include "jit/lower/packed_convs.h"

#include <algorithm>
#include <map>

#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "jit/lower/conv_windows.h"
#include "jit/lower/decompose.h"
#include "jit/lower/fixed_values.h"
#include "jit/lower/pack_weights.h"

namespace heddle::jit {
namespace {

using ir::Dims;
using ir::Node;
using ir::Value;
using Ints = std::vector<std::int64_t>;

/// Bytes of vectors with which more than what the library is slowest at pays.
constexpr std::int64_t kMostVectorBytes = 32;
/// Channels of a group, in and out, below which most of a vector, or of the time, is lost.
constexpr std::int64_t kLeastColumns = 8;
/// Elements of a window that lie behind each other, at least: a block keeps its sums in memory from one such piece to the next.
constexpr std::int64_t kLeastPiece = 8;
/// Panels are a multiple of two vectors wide.
constexpr std::int64_t kColumnUnit = 16;

/// Padding along a row up to which the library has a kernel, and what the channels of each of several groups are a multiple of there.
constexpr std::int64_t kBlockedPadding = 3;
constexpr std::int64_t kBlockedChannels = 8;
/// Products of a convolution that takes the library as long to begin as to compute.
constexpr std::int64_t kFewProducts = std::int64_t{1} << 18;

/// The same with wider vectors, where the result has more channels than one of them: the library's times are 1.4 to 5 times as long.
constexpr std::int64_t kWidePadding = 15;
constexpr std::int64_t kWideLanes = 16;

bool lacks_wide_kernel(const Node& node) {
  const Dims& weights = node.input(1).meta().sizes;
  return node.integer("groups") == 1 && weights[0].constant() > kWideLanes &&
         std::max(node.ints("pads_low").back(), node.ints("pads_high").back()) > kWidePadding;
}

bool lacks_kernel(const Node& node) {
  const Dims& weights = node.input(1).meta().sizes;
  const std::int64_t groups = node.integer("groups");
  const bool fills = weights[1].constant() % kBlockedChannels == 0 &&
                     weights[0].constant() / groups % kBlockedChannels == 0;
  return node.ints("pads_low").back() > kBlockedPadding ||
         node.ints("pads_high").back() > kBlockedPadding || (groups > 1 && !fills);
}

/// What the library's kernels take longer for, from so many elements of a window on that lie behind each other: windows with gaps, an even number
/// of taps along a row, and windows that move by more than one element.
constexpr std::int64_t kLeastDilated = 64;
constexpr std::int64_t kLeastEven = 128;
constexpr std::int64_t kLeastStrided = 384;

/// Elements of a window of one group that lie behind each other.
std::int64_t piece_of(const Node& node) {
  const Dims& weights = node.input(1).meta().sizes;
  const bool joined = node.integer("groups") == 1 && node.ints("dilations").back() == 1;
  return weights[1].constant() * (joined ? weights.back().constant() : 1);
}

bool takes_longer(const Node& node) {
  const std::int64_t piece = piece_of(node);
  const Dims& weights = node.input(1).meta().sizes;
  const Ints& dilations = node.ints("dilations");
  bool dilated = false;
  for (std::size_t d = 0; d < dilations.size(); ++d)
    dilated = dilated || (dilations[d] > 1 && !weights[d + 2].is_constant(1));
  return (dilated && piece >= kLeastDilated) ||
         (weights.back().constant() % 2 == 0 && piece >= kLeastEven) ||
         (node.ints("strides").back() > 1 && piece >= kLeastStrided);
}

bool has_few_products(const Node& node) {
  const SymExpr products = base::product(node.output().sizes) *
                           base::product(std::span(node.input(1).meta().sizes).subspan(1));
  return products.is_constant() && products.constant() <= kFewProducts;
}

/// Columns of each panel of a group's: as many panels as hold them in tiles, evenly filled.
std::int64_t width_of(std::int64_t columns) {
  const std::int64_t panels = (columns + kPanelColumns - 1) / kPanelColumns;
  const std::int64_t each = (columns + panels - 1) / panels;
  return (each + kColumnUnit - 1) / kColumnUnit * kColumnUnit;
}

class ConvPacker {
 public:
  explicit ConvPacker(const LowerOptions& options) : options_(options), fixed_(options) {}

  std::optional<std::vector<Value>> visit(ir::Rewriter& rewriter, const Node& node) {
    if (!is_packable(node)) return std::nullopt;
    ir::GraphBuilder& builder = rewriter.builder();
    const Dims& weights = node.input(1).meta().sizes;
    Value x = rewriter.map(node.input(0));
    if (has_padding(node))
      x = with_padding(builder, node, x, builder.constant(ir::Literal::scalar(DType::F32, 0)));
    else if (x.node->op_name() == "permute")
      x = builder.emit("clone", {x});
    Ints kernel;
    for (std::size_t d = 2; d < weights.size(); ++d) kernel.push_back(weights[d].constant());
    Value result = builder.emit("packed_conv", {x, panels(rewriter, node)},
                                {{"columns", weights[0].constant()},
                                 {"kernel", kernel},
                                 {"strides", node.ints("strides")},
                                 {"dilations", node.ints("dilations")}});
    if (node.inputs().size() > 2 && node.input(2))
      result = builder.emit("add", {result, rewriter.map(node.input(2))});
    return std::vector<Value>{result};
  }

 private:
  bool is_packable(const Node& node) {
    if (node.op_name() != "conv" || !node.flag("channels_last") ||
        node.output().dtype != DType::F32 || classify(node, options_) != NodeClass::Library ||
        !unit_of(node, options_).fuse || ir::wants_fallback(node) ||
        !fixed_.contains(node.input(1).node))
      return false;
    const Dims& weights = node.input(1).meta().sizes;
    if (!std::ranges::all_of(weights, [](const SymExpr& size) { return size.is_constant(); }))
      return false;
    const std::int64_t groups = node.integer("groups");
    const std::int64_t taps = base::product(std::span(weights).subspan(2)).constant();
    if (taps <= 1 || piece_of(node) < kLeastPiece) return false;
    if (options_.vector_bytes > kMostVectorBytes) return lacks_wide_kernel(node);
    return (groups == 1 || weights[0].constant() / groups >= kLeastColumns) &&
           (lacks_kernel(node) || has_few_products(node) || takes_longer(node));
  }

  /// Weights [m, c, k…] as panels [groups, p, taps * c, w], made once for a unit.
  Value panels(ir::Rewriter& rewriter, const Node& node) {
    const std::int64_t groups = node.integer("groups");
    Value& made = panels_[{{node.input(1), region_of(node)}, groups}];
    if (made) return made;
    ir::GraphBuilder& builder = rewriter.builder();
    const Value weights = rewriter.map(node.input(1));
    const Dims& sizes = weights.meta().sizes;
    Dims split{groups, floordiv(sizes[0], groups)};
    split.insert(split.end(), sizes.begin() + 1, sizes.end());
    // [groups, m, c, k…] to [groups, k…, c, m].
    Ints perm{0};
    for (std::size_t d = 3; d < split.size(); ++d) perm.push_back(static_cast<std::int64_t>(d));
    perm.insert(perm.end(), {2, 1});
    const SymExpr columns = split[1];
    const SymExpr depth = base::product(std::span(sizes).subspan(1));
    const Value turned = builder.emit(
        "permute", {builder.emit("reshape", {weights}, {{"sizes", split}})}, {{"perm", perm}});
    const Value matrices =
        builder.emit("reshape", {turned}, {{"sizes", Dims{groups, depth, columns}}});
    return made = emit_panels(builder, matrices, width_of(columns.constant()));
  }

  const LowerOptions& options_;
  FixedValues fixed_;
  /// By the weights, the unit that reads them, and their groups.
  std::map<std::pair<std::pair<Value, std::string>, std::int64_t>, Value> panels_;
};

}  // namespace

ir::Graph packed_convs(const ir::Graph& graph, const LowerOptions& options) {
  if (options.target != LowerOptions::Target::Cpu) return graph;
  ConvPacker packer(options);
  return ir::rewrite(graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) {
    return packer.visit(rewriter, *node);
  });
}

}  // namespace heddle::jit
