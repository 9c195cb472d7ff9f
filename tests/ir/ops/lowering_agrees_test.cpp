// The two sides of an op's definition against each other: its element or view lowering, interpreted
// point by point, gives what evaluate gives.
#include <gtest/gtest.h>
#include <set>

#include "ir/evaluate.h"
#include "ir/op.h"
#include "tests/support/element_interpreter.h"
#include "tests/support/op_samples.h"

namespace heddle::testing {
namespace {

using ir::Literal;

/// A tolerance that fits one element: lowerings may round between instructions.
double tolerance_of_result(const Literal& want) { return 4 * tolerance_of(want.dtype()); }

std::vector<Literal> present(const OneOp& call) {
  std::vector<Literal> result;
  for (const Literal& operand : call.operands) {
    if (operand.data() != nullptr || operand.rank() != 0) result.push_back(operand);
  }
  return result;
}

/// The call with every size of every operand a symbol of its own, which the trace has seen as it is.
ir::Graph symbolic_graph_of(const OneOp& call) {
  auto env = std::make_shared<ir::ShapeEnv>();
  ir::GraphBuilder builder("main", env);
  std::uint32_t symbols = 0;
  std::vector<ir::Value> values;
  for (const Literal& operand : call.operands) {
    if (operand.data() == nullptr && operand.rank() == 0) {
      values.push_back({});
      continue;
    }
    ir::Dims sizes;
    for (const std::int64_t size : operand.sizes()) {
      sizes.push_back(ir::SymExpr::size(symbols));
      env->hints[sizes.back().symbol()] = size;
      ++symbols;
    }
    values.push_back(builder.input(ir::TensorMeta::of(operand.dtype(), sizes)));
  }
  builder.output(builder.call(call.op, values, call.attrs)->value());
  return builder.finish();
}

void expect_lowering_agrees(const OneOp& call, const ir::Graph& graph) {
  const ir::Node& node = *graph.outputs()[0].node;
  if (!interpretable(node.op())) return;
  const auto arguments = present(call);
  const auto want = ir::evaluate(graph, arguments);
  const auto sizes = ir::bind_sizes(graph, arguments);
  ASSERT_NO_THROW(
      expect_close(interpret(node, call.operands, sizes), want[0], tolerance_of_result(want[0])));
}

OneOp spread(OneOp call) {
  for (Literal& operand : call.operands) {
    if (operand.data() != nullptr || operand.rank() != 0) operand = spread_out(operand);
  }
  return call;
}

/// gather_nd's tuple length must be a number.
bool takes_symbolic_sizes(const OneOp& call) { return call.op != "gather_nd"; }

TEST(LoweringAgrees, EveryOpWithALoweringHasASample) {
  std::set<std::string_view> sampled;
  for (const OneOp& call : op_samples()) sampled.insert(call.op);
  for (const ir::OpDef* op : ir::all_ops()) {
    if (!interpretable(*op)) continue;
    EXPECT_TRUE(sampled.contains(op->name)) << op->name;
  }
}

TEST(LoweringAgrees, OnRowMajorOperands) {
  for (const OneOp& call : op_samples()) {
    SCOPED_TRACE(describe(call));
    expect_lowering_agrees(call, graph_of(call));
  }
}

TEST(LoweringAgrees, OnSpreadOutOperands) {
  for (const OneOp& call : op_samples()) {
    SCOPED_TRACE(describe(call));
    const OneOp strided = spread(call);
    expect_lowering_agrees(strided, graph_of(strided));
  }
}

TEST(LoweringAgrees, OnSymbolicSizes) {
  for (const OneOp& call : op_samples()) {
    if (!takes_symbolic_sizes(call)) continue;
    SCOPED_TRACE(describe(call));
    expect_lowering_agrees(call, symbolic_graph_of(call));
  }
}

TEST(LoweringAgrees, OnNanOperands) {
  for (OneOp call : op_samples()) {
    if (call.operands.empty() || !is_floating(call.operands[0].dtype())) continue;
    if (call.operands[0].count() == 0) continue;
    SCOPED_TRACE(describe(call));
    call.operands[0] = with_nan(call.operands[0], 0);
    expect_lowering_agrees(call, graph_of(call));
  }
}

}  // namespace
}  // namespace heddle::testing
