#include "jit/lower/turned_sums.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "jit/lower/decompose.h"
#include "jit/lower/index.h"

namespace heddle::jit {
namespace {

using ir::Dims;
using ir::Node;
using ir::Value;

/// Neighbouring results that fill vectors, and so many that hardly any lanes of the last one are idle.
constexpr std::int64_t kFewResults = 16;
constexpr std::int64_t kManyResults = 48;
/// Terms up to which joining lanes for each result costs more than idle ones.
constexpr std::int64_t kFewTerms = 32;
/// Terms up to which adding them one after the other is as exact as it has to be.
constexpr std::int64_t kMostTerms = 256;
/// How often each element of what is turned is read, at least.
constexpr std::int64_t kLeastReads = 16;

bool is_between(const SymExpr& size, std::int64_t low, std::int64_t high) {
  return size.is_constant() && size.constant() >= low && size.constant() <= high;
}

/// The size of the dimension that is `from_last`-th from behind; 1 where there is none.
SymExpr size_from_last(const Dims& sizes, std::size_t from_last) {
  return from_last > sizes.size() ? SymExpr(1) : sizes[sizes.size() - from_last];
}

class PairTurner {
 public:
  PairTurner(const ir::Graph& graph, const LowerOptions& options) : options_(options) {
    for (const ir::NodePtr& node : graph.nodes())
      for (const Value& input : node->inputs())
        if (input) ++uses_[input.node];
    for (const Value& output : graph.outputs()) ++uses_[output.node];
  }

  std::optional<std::vector<Value>> visit(ir::Rewriter& rewriter, const Node& node) {
    if (!may_be_turned(node)) return std::nullopt;
    pairs_ = node.input(0).meta().sizes;
    std::unordered_map<const Node*, std::size_t> read;
    bool turns = false;
    if (!pays(node.input(0), read, turns) || !turns) return std::nullopt;
    for (const auto& [inner, count] : read)
      if (uses_.at(inner) != count) return std::nullopt;
    made_.clear();
    ir::GraphBuilder& builder = rewriter.builder();
    const Value operand = turned(rewriter, node.input(0));
    const std::vector<std::int64_t> axes{operand.meta().rank() - 2};
    const Value operands[] = {operand};
    const Value sum =
        builder.call(node.op(), operands, {{"axes", axes}, {"keepdims", false}})->value();
    return std::vector<Value>{builder.emit("reshape", {sum}, {{"sizes", node.output().sizes}})};
  }

 private:
  bool is_fused(const Node& node, NodeClass kind) const {
    return classify(node, options_) == kind && unit_of(node, options_).fuse &&
           !ir::wants_fallback(node) && node.after().empty();
  }

  bool may_be_turned(const Node& node) const {
    if (classify(node, options_) != NodeClass::Reduce || !is_fused(node, NodeClass::Reduce))
      return false;
    const ir::ReduceOp op = *node.op().lowering.reduce;
    if (op != ir::ReduceOp::Sum && op != ir::ReduceOp::Max && op != ir::ReduceOp::Min) return false;
    const ir::TensorMeta& x = node.input(0).meta();
    const std::vector<std::int64_t>& axes = node.ints("axes");
    const bool last = axes.size() == 1 && (axes[0] == x.rank() - 1 || axes[0] == -1);
    // The number of pairs is known where there are none, whatever that of results is.
    const SymExpr results = size_from_last(x.sizes, 2);
    return last && x.rank() >= 3 && is_floating(x.dtype) &&
           is_between(x.sizes.back(), 2, kMostTerms) && x.count().is_constant() &&
           results.is_constant() && fills_lanes(results.constant(), x.sizes.back().constant());
  }

  static bool fills_lanes(std::int64_t results, std::int64_t terms) {
    return results >= kManyResults || (results > 0 && results % kFewResults == 0) ||
           (results >= kFewResults && terms <= kFewTerms);
  }

  /// An element of each pair, made of elements of operands.
  bool is_inner(Value value) const {
    const Node& node = *value.node;
    return node.op().scalar && same_dims(value.meta().sizes, pairs_) &&
           is_fused(node, NodeClass::Element);
  }

  /// Whether what `value` is made of is either the same for all neighbouring results or small beside the pairs. Counts what is
  /// read of inner nodes.
  bool pays(Value value, std::unordered_map<const Node*, std::size_t>& read, bool& turns) const {
    if (is_inner(value)) {
      if (++read[value.node] > 1) return true;
      return std::ranges::all_of(value.node->inputs(), [&](const Value& input) {
        return !input || pays(input, read, turns);
      });
    }
    const Dims& sizes = value.meta().sizes;
    if (size_from_last(sizes, 2).is_constant(1)) return true;
    turns = turns || !size_from_last(sizes, 1).is_constant(1);
    const SymExpr count = value.meta().count();
    return count.is_constant() &&
           count.constant() * kLeastReads <= base::product(pairs_).constant();
  }

  Value turned(ir::Rewriter& rewriter, Value value) {
    if (const auto found = made_.find(value); found != made_.end()) return found->second;
    ir::GraphBuilder& builder = rewriter.builder();
    Value result;
    if (is_inner(value)) {
      std::vector<Value> operands;
      for (const Value& input : value.node->inputs())
        operands.push_back(input ? turned(rewriter, input) : Value());
      result = builder.call(value.node->op(), operands, value.node->attrs())->value();
    } else {
      result = turned_operand(builder, rewriter.map(value));
    }
    return made_[value] = result;
  }

  static Value turned_operand(ir::GraphBuilder& builder, Value value) {
    if (value.meta().count().is_constant(1)) return value;
    if (value.meta().rank() == 1)
      value = builder.emit("reshape", {value}, {{"sizes", Dims{1, value.meta().sizes[0]}}});
    const Dims& sizes = value.meta().sizes;
    std::vector<std::int64_t> perm(sizes.size());
    std::iota(perm.begin(), perm.end(), 0);
    std::swap(perm[perm.size() - 2], perm.back());
    const bool moves = !size_from_last(sizes, 2).is_constant(1) && !sizes.back().is_constant(1);
    const Value result = builder.emit("permute", {value}, {{"perm", std::move(perm)}});
    return moves ? builder.emit("clone", {result}) : result;
  }

  const LowerOptions& options_;
  std::unordered_map<const Node*, std::size_t> uses_;
  Dims pairs_;                   ///< sizes of what is reduced
  std::map<Value, Value> made_;  ///< turned
};

}  // namespace

ir::Graph turned_sums(const ir::Graph& graph, const LowerOptions& options) {
  if (options.target != LowerOptions::Target::Cpu) return graph;
  PairTurner turner(graph, options);
  return ir::rewrite(graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) {
    return turner.visit(rewriter, *node);
  });
}

}  // namespace heddle::jit
