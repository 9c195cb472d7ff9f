#include "jit/lower/split_reductions.h"

#include <limits>
#include <unordered_set>

#include "ir/op.h"

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

bool is_variance(const Node& node) { return node.op().lowering.reduce == ReduceOp::Welford; }

bool combines(const Node& node) {
  const auto& reduce = node.op().lowering.reduce;
  return reduce && *reduce <= ReduceOp::Or;
}

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

/// What changes nothing when it is combined: the value that fills the last block.
Value identity(ir::GraphBuilder& builder, ReduceOp op, DType dtype) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr auto kLowest = std::numeric_limits<std::int64_t>::min();
  const bool floating = is_floating(dtype);
  // Integers are combined in i64 for sums and products, in their own dtype for extremes.
  const int bits = static_cast<int>(size_of(dtype) * 8);
  const std::int64_t low = is_signed(dtype) ? kLowest >> (64 - bits) : 0;
  const std::int64_t high = is_signed(dtype) ? ~low : (std::int64_t{1} << bits) - 1;
  const auto constant = [&](double number, std::int64_t integer) {
    return builder.constant(floating ? ir::Literal::scalar(dtype, number)
                                     : ir::Literal::scalar_int(dtype, integer));
  };
  switch (op) {
    case ReduceOp::Prod:
    case ReduceOp::And:
      return constant(1, 1);
    case ReduceOp::Max:
      return constant(-kInfinity, low);
    case ReduceOp::Min:
      return constant(kInfinity, high);
    default:
      return constant(0, 0);
  }
}

Value converted(ir::GraphBuilder& builder, Value value, DType dtype) {
  if (value.meta().dtype == dtype) return value;
  return builder.emit("convert", {value}, {{"dtype", dtype}});
}

Value reduce_axis(ir::GraphBuilder& builder, const Node& node, Value value, std::int64_t axis) {
  const ir::Attrs attrs{{"axes", std::vector<std::int64_t>{axis}}, {"keepdims", false}};
  const Value operands[] = {value};
  return builder.call(node.op(), operands, attrs)->value();
}

Value split(ir::GraphBuilder& builder, const Node& node, Value x) {
  const DType dtype = x.meta().dtype;
  const ReduceOp op = *node.op().lowering.reduce;
  const bool widens = op == ReduceOp::Sum || op == ReduceOp::Prod;
  const DType wide = widens ? accumulator_of(dtype) : dtype;
  const SymExpr count = x.meta().count();
  const SymExpr blocks = ceildiv(count, kBlock);
  Value flat = builder.emit("reshape", {converted(builder, x, wide)}, {{"sizes", ir::Dims{count}}});
  const SymExpr missing = blocks * kBlock - count;
  if (!missing.is_constant(0)) {
    flat = builder.emit("pad", {flat, identity(builder, op, wide)},
                        {{"low", ir::Dims{0}}, {"high", ir::Dims{missing}}});
  }
  const Value rows =
      builder.emit("reshape", {flat}, {{"sizes", ir::Dims{blocks, SymExpr(kBlock)}}});
  const Value result = reduce_axis(builder, node, reduce_axis(builder, node, rows, 1), 0);
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

}  // namespace heddle::jit
