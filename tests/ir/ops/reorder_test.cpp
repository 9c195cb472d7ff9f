// Every op that says how it is called on reordered dimensions means it.
#include <algorithm>
#include <gtest/gtest.h>
#include <map>

#include "ir/evaluate.h"
#include "ir/op.h"
#include "ir/passes/layouts.h"
#include "tests/support/op_samples.h"

namespace heddle::testing {
namespace {

using ir::Perm;
using ir::Value;

/// `value` with leading dimensions of size 1 up to the rank of `order`, reordered.
Value reordered(ir::GraphBuilder& builder, Value value, const Perm& order) {
  if (value.meta().rank() == 0) return value;
  ir::Dims sizes(order.size() - value.meta().sizes.size(), ir::SymExpr(1));
  sizes.insert(sizes.end(), value.meta().sizes.begin(), value.meta().sizes.end());
  if (value.meta().sizes != sizes) value = builder.emit("reshape", {value}, {{"sizes", sizes}});
  return builder.emit("permute", {value}, {{"perm", order}});
}

/// The call on reordered operands, its result back in the old order; nothing where there is no such call.
std::optional<ir::Graph> reordered(const OneOp& call, const Perm& order) {
  const ir::Graph graph = graph_of(call);
  const ir::Node& node = *graph.outputs()[0].node;
  const auto made = node.op().reorder(node, order);
  if (!made) return {};
  ir::GraphBuilder builder("main");
  std::vector<Value> operands;
  for (const Value& input : node.inputs()) {
    operands.push_back(input ? builder.input(input.meta()) : Value());
    if (input) operands.back() = reordered(builder, operands.back(), order);
  }
  const Value result = builder.call(node.op(), operands, made->attrs)->value();
  const Perm back = ir::inverse(made->result);
  builder.output(back.empty() ? result : builder.emit("permute", {result}, {{"perm", back}}));
  return builder.finish();
}

TEST(Reorder, GivesTheSameElementsInAnotherOrder) {
  std::map<std::string_view, int> checked;
  std::vector<OneOp> calls = op_samples();
  calls.push_back({"softmax", {noise(f32, {3, 4, 2})}, {{"axis", std::int64_t{-1}}}});
  calls.push_back({"log_softmax", {noise(f32, {3, 4, 2})}, {{"axis", std::int64_t{1}}}});
  calls.push_back({"cumsum", {noise(i32, {3, 4})}, {{"axis", std::int64_t{-2}}}});
  using Ints = std::vector<std::int64_t>;
  for (const std::string_view pool : {"max_pool", "avg_pool"})
    calls.push_back({pool,
                     {noise(f32, {2, 3, 7, 6})},
                     {{"kernel", Ints{3, 2}},
                      {"strides", Ints{2, 1}},
                      {"pads_low", Ints{1, 0}},
                      {"pads_high", Ints{0, 1}},
                      {"dilations", Ints{1, 2}}}});
  for (const OneOp& call : calls) {
    const ir::OpDef& op = ir::op_named(call.op);
    if (op.reorder == nullptr) continue;
    const ir::Graph graph = graph_of(call);
    const std::int64_t rank = ir::widest_rank(*graph.outputs()[0].node);
    if (rank < 2) continue;
    Perm turned = ir::identity_perm(rank);
    std::rotate(turned.begin(), turned.begin() + 1, turned.end());
    const auto other = reordered(call, turned);
    if (!other) continue;
    SCOPED_TRACE(describe(call));
    std::vector<ir::Literal> operands;
    for (const ir::Literal& operand : call.operands)
      if (operand.data() != nullptr || operand.rank() != 0) operands.push_back(operand);
    expect_close(ir::evaluate(*other, operands)[0], ir::evaluate(graph, operands)[0], 1e-5);
    ++checked[call.op];
  }
  for (const ir::OpDef* op : ir::all_ops()) {
    if (op->reorder == nullptr) continue;
    EXPECT_GT(checked[op->name], 0) << op->name;
  }
}

}  // namespace
}  // namespace heddle::testing
