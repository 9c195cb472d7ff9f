#include "jit/lower/split_reductions.h"

#include <algorithm>
#include <unordered_set>

#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "jit/lower/reduction_parts.h"

namespace heddle::jit {
namespace {

using base::SymExpr;
using ir::Node;
using ir::ReduceOp;
using ir::Value;

/// Elements of a block: a parallel iteration's worth.
constexpr std::int64_t kBlock = 16384;
/// Tensors with fewer elements are reduced at once.
constexpr std::int64_t kMinCount = 4 * kBlock;

bool reduces_everything(const Node& node) {
  return node.output().count().is_constant(1) && !node.ints("axes").empty();
}

/// Nodes with a result that some tensor of more than one element is computed from.
std::unordered_set<const Node*> read_by_tensors(const ir::Graph& graph) {
  std::unordered_set<const Node*> found;
  for (std::size_t k = graph.nodes().size(); k-- > 0;) {
    const Node* node = graph.nodes()[k].get();
    const bool tensor = !node->output().count().is_constant(1) || found.count(node) != 0;
    for (const Value& input : node->inputs())
      if (input && tensor) found.insert(input.node);
  }
  return found;
}

Value reduce_axis(ir::GraphBuilder& builder, const Node& node, Value value, std::int64_t axis) {
  const ir::Attrs attrs{{"axes", std::vector<std::int64_t>{axis}}, {"keepdims", false}};
  const Value operands[] = {value};
  return builder.call(node.op(), operands, attrs)->value();
}

Value split(ir::GraphBuilder& builder, const Node& node, Value x) {
  const DType dtype = x.meta().dtype;
  const ReduceOp op = *node.op().lowering.reduce;
  const DType wide = partial_dtype(op, dtype);
  const SymExpr count = x.meta().count();
  const SymExpr blocks = ceildiv(count, kBlock);
  const Value flat =
      builder.emit("reshape", {converted(builder, x, wide)}, {{"sizes", ir::Dims{count}}});
  const auto of_blocks = [&](Value all, const SymExpr& number) {
    const SymExpr sizes[] = {number, kBlock};
    const Value rows =
        in_parts(builder, all, 0, sizes, [&] { return reduction_identity(builder, op, wide); });
    return reduce_axis(builder, node, rows, 1);
  };
  Value parts;
  if (count.is_constant() && count.constant() % kBlock != 0) {
    // Whole blocks and the rest: elements of a block that is filled up are asked for one by one.
    const std::int64_t whole = count.constant() / kBlock;
    const auto piece = [&](std::int64_t begin, std::int64_t end) {
      return builder.emit(
          "slice", {flat},
          {{"start", ir::Dims{begin}}, {"limit", ir::Dims{end}}, {"stride", ir::Dims{1}}});
    };
    const Value rest = reduce_axis(builder, node, piece(whole * kBlock, count.constant()), 0);
    parts = builder.emit("concat",
                         {of_blocks(piece(0, whole * kBlock), whole),
                          builder.emit("reshape", {rest}, {{"sizes", ir::Dims{1}}})},
                         {{"axis", std::int64_t{0}}});
  } else {
    parts = of_blocks(flat, blocks);
  }
  const Value result = reduce_axis(builder, node, parts, 0);
  const Value narrow = converted(builder, result, dtype);
  return builder.emit("reshape", {narrow}, {{"sizes", node.output().sizes}});
}

using Values = std::vector<Value>;

/// Nodes that `chosen` picks among the reductions of large whole tensors, replaced by `replace`.
template <typename Chosen, typename Replace>
ir::Graph rewrite_large(const ir::Graph& graph, Chosen chosen, Replace replace) {
  const auto tensors = read_by_tensors(graph);
  return ir::rewrite(
      graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) -> std::optional<Values> {
        if (!chosen(*node) || !reduces_everything(*node)) return std::nullopt;
        const SymExpr count = node->input(0).meta().count();
        const bool large =
            count.is_constant() ? count.constant() >= kMinCount : tensors.count(node.get()) == 0;
        if (!large) return std::nullopt;
        return replace(rewriter, node);
      });
}

/// A reduction over dimensions behind which others are kept: neighbouring results are the lanes of one serial loop.
class Across {
 public:
  explicit Across(const Node& node) : node_(node), sizes_(node.input(0).meta().sizes) {
    std::vector<bool> reduced(sizes_.size(), false);
    for (const std::int64_t axis : reduced_axes(node))
      reduced[static_cast<std::size_t>(axis)] = true;
    for (std::size_t d = 0; d < sizes_.size(); ++d) {
      if (sizes_[d].is_constant(1)) continue;
      if (reduced[d])
        reduced_.push_back(d);
      else
        (reduced_.empty() ? outer_ : inner_) *= sizes_[d];
      is_one_run_ = is_one_run_ && !(reduced[d] && !inner_.is_constant(1));
    }
  }

  /// Whether few parallel iterations would read much.
  bool is_long() const {
    const SymExpr count = base::product(sizes_);
    const bool few = outer_.is_constant() ? outer_.constant() <= kFewRows : true;
    if (reduced_.empty() || !is_one_run_ || !few || !has_lanes()) return false;
    if (count.is_constant() && count.constant() < kMinCount) return false;
    return reduced_.size() > 1 || block() != 0;
  }

  /// The last dimensions first, each index of the first by itself; of one dimension blocks of it.
  Value split(ir::GraphBuilder& builder, Value x) const {
    const DType dtype = x.meta().dtype;
    const ReduceOp op = *node_.op().lowering.reduce;
    x = converted(builder, x, partial_dtype(op, dtype));
    std::vector<std::int64_t> last(reduced_.begin() + 1, reduced_.end());
    const auto first = static_cast<std::int64_t>(reduced_[0]);
    if (last.empty()) {
      const SymExpr parts[] = {sizes_[reduced_[0]].constant() / block(), block()};
      x = in_parts(builder, x, reduced_[0], parts,
                   [&] { return reduction_identity(builder, op, x.meta().dtype); });
      last.push_back(first + 1);
    }
    x = reduced(builder, reduced(builder, x, last), {first});
    return builder.emit("reshape", {converted(builder, x, dtype)},
                        {{"sizes", node_.output().sizes}});
  }

 private:
  static constexpr std::int64_t kFewRows = 4;
  static constexpr std::int64_t kMaxLanes = 1024;

  bool has_lanes() const {
    return inner_.is_constant() && inner_.constant() > 1 && inner_.constant() <= kMaxLanes;
  }

  /// Of one reduced dimension: indices that are reduced together; 0: none divides it well.
  std::int64_t block() const {
    const SymExpr& size = sizes_[reduced_[0]];
    if (!size.is_constant()) return 0;
    for (std::int64_t wanted = 256; wanted >= 16; --wanted)
      if (size.constant() % wanted == 0 && size.constant() / wanted >= 8) return wanted;
    return 0;
  }

  Value reduced(ir::GraphBuilder& builder, Value x, std::vector<std::int64_t> axes) const {
    const Value operands[] = {x};
    return builder.call(node_.op(), operands, {{"axes", std::move(axes)}, {"keepdims", true}})
        ->value();
  }

  const Node& node_;
  const ir::Dims& sizes_;
  std::vector<std::size_t> reduced_;  ///< dimensions that are not 1
  SymExpr outer_ = 1, inner_ = 1;     ///< elements of those kept, before and behind
  bool is_one_run_ = true;
};

/// Reductions that split_across() may take apart, as far as they alone tell.
Reductions long_reductions(const ir::Graph& graph) {
  Reductions found;
  for (const ir::NodePtr& node : graph.nodes())
    if (combines(*node) && !ir::wants_fallback(*node) && Across(*node).is_long())
      found.insert(node.get());
  return found;
}

}  // namespace

ir::Graph decompose_variances(const ir::Graph& graph) {
  return rewrite_large(graph, is_variance, [](ir::Rewriter& rewriter, const ir::NodePtr& node) {
    ir::DecomposeContext context(rewriter.builder(), node, rewriter.map(node->inputs()));
    return node->op().lowering.decompose(context);
  });
}

ir::Graph split_reductions(const ir::Graph& graph) {
  return rewrite_large(graph, combines, [](ir::Rewriter& rewriter, const ir::NodePtr& node) {
    return Values{split(rewriter.builder(), *node, rewriter.map(node->input(0)))};
  });
}

ir::Graph split_across(const ir::Graph& graph, const LowerOptions& options) {
  if (options.target == LowerOptions::Target::Cuda) return graph;
  Reductions chosen = long_reductions(graph);
  if (chosen.empty()) return graph;
  leave_rows_out(chosen, graph, options);
  return ir::rewrite(
      graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) -> std::optional<Values> {
        if (!chosen.contains(node.get())) return {};
        return Values{Across(*node).split(rewriter.builder(), rewriter.map(node->input(0)))};
      });
}

}  // namespace heddle::jit
