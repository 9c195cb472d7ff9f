#include "jit/lower/conv_channels.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "jit/lower/decompose.h"
#include "jit/lower/fixed_values.h"
#include "jit/nests/conv_product.h"

namespace heddle::jit {
namespace {

using ir::Node;
using ir::Value;
using Ints = std::vector<std::int64_t>;

/// What brings a dimension behind all others, and back.
Ints to_last(std::int64_t rank, std::int64_t dimension) {
  Ints perm(static_cast<std::size_t>(rank));
  std::iota(perm.begin(), perm.end(), 0);
  std::rotate(perm.begin() + dimension, perm.begin() + dimension + 1, perm.end());
  return perm;
}
Ints from_last(std::int64_t rank, std::int64_t dimension) {
  Ints perm(static_cast<std::size_t>(rank));
  std::iota(perm.begin(), perm.end(), 0);
  std::rotate(perm.begin() + dimension, perm.end() - 1, perm.end());
  return perm;
}

class Turner {
 public:
  explicit Turner(const LowerOptions& options) : options_(options), fixed_(options) {}

  std::optional<std::vector<Value>> visit(ir::Rewriter& rewriter, const Node& node) {
    const bool reads = reads_windows(node);
    const bool lanes = !reads && channels_are_lanes(node, options_) && is_own_nest(node);
    if ((!reads && !lanes) || !fixed_.contains(node.input(1).node)) return std::nullopt;
    std::vector<Value> operands = rewriter.map(node.inputs());
    if (!node.flag("channels_last")) operands[0] = turned(rewriter.builder(), operands[0], 1);
    operands[1] = turned(rewriter.builder(), operands[1], lanes ? 0 : 1);
    return std::vector<Value>{rewriter.builder().call(node.op(), operands, node.attrs())->value()};
  }

 private:
  /// Windows of several elements, whose channels fill pieces, by weights that fill tiles of tensor cores.
  bool reads_windows(const Node& node) const {
    const bool bytes = node.op_name() == "int8_conv";
    if (!bytes && node.op_name() != "conv") return false;
    const ir::TensorMeta& weights = node.input(1).meta();
    const DType dtype = node.input(0).meta().dtype;
    const bool tensor = bytes || dtype == DType::F16 || dtype == DType::BF16 ||
                        (dtype == DType::F32 && node.flag("tf32"));
    if (!tensor || !may_be_conv_product(weights.sizes, bytes ? 1 : node.integer("groups")))
      return false;
    const SymExpr taps = base::product(std::span(weights.sizes).subspan(2));
    const std::int64_t piece = kPieceBytes / static_cast<std::int64_t>(size_of(dtype));
    return !taps.is_constant(1) && weights.sizes[1].constant() % piece == 0 && is_own_nest(node);
  }

  bool is_own_nest(const Node& node) const {
    return classify(node, options_) == NodeClass::Nest && unit_of(node, options_).fuse &&
           !ir::wants_fallback(node);
  }

  /// The same tensor, in memory with `dimension` behind all others.
  Value turned(ir::GraphBuilder& builder, Value x, std::int64_t dimension) {
    const std::int64_t rank = x.meta().rank();
    if (lies_turned(*x.node, rank, dimension)) return x;
    Value& made = turned_[{x, dimension}];
    if (!made) {
      const Value moved = builder.emit("permute", {x}, {{"perm", to_last(rank, dimension)}});
      made = builder.emit("permute", {builder.emit("clone", {moved})},
                          {{"perm", from_last(rank, dimension)}});
    }
    return made;
  }

  bool lies_turned(const Node& node, std::int64_t rank, std::int64_t dimension) const {
    return node.op_name() == "permute" && node.ints("perm") == from_last(rank, dimension) &&
           classify(*node.input(0).node, options_) != NodeClass::View;
  }

  const LowerOptions& options_;
  FixedValues fixed_;
  std::map<std::pair<Value, std::int64_t>, Value> turned_;
};

}  // namespace

ir::Graph conv_channels(const ir::Graph& graph, const LowerOptions& options) {
  if (options.target != LowerOptions::Target::Cuda) return graph;
  Turner turner(options);
  return ir::rewrite(graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) {
    return turner.visit(rewriter, *node);
  });
}

}  // namespace heddle::jit
