// Decompositions of calls whose sizes are symbols: they keep the result's type, ask for nothing
// that the call itself did not, and agree at more than one size.
#include <gtest/gtest.h>
#include <memory>

#include "ir/evaluate.h"
#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Dims;
using ir::Literal;

const base::SymExpr kS0 = base::SymExpr::size(0);
const base::SymExpr kS1 = base::SymExpr::size(1);

struct SymbolicCall {
  std::string_view op;
  std::vector<ir::TensorMeta> operands;
  ir::Attrs attrs = {};
};

ir::Graph symbolic_graph_of(const SymbolicCall& call) {
  ir::GraphBuilder builder("main");
  std::vector<ir::Value> values;
  for (const ir::TensorMeta& operand : call.operands) values.push_back(builder.input(operand));
  builder.output(builder.call(call.op, values, call.attrs)->value());
  return builder.finish();
}

std::vector<Literal> arguments(const SymbolicCall& call, std::int64_t s0, std::int64_t s1) {
  const base::SymbolValues values = {{kS0.symbol(), s0}, {kS1.symbol(), s1}};
  std::vector<Literal> result;
  for (const ir::TensorMeta& operand : call.operands) {
    ir::Sizes sizes;
    for (const base::SymExpr& size : operand.sizes) sizes.push_back(size.evaluate(values));
    result.push_back(noise(operand.dtype, sizes, static_cast<std::uint32_t>(result.size()) + 1));
  }
  return result;
}

void expect_agreement(const SymbolicCall& call) {
  SCOPED_TRACE(call.op);
  const ir::Graph whole = symbolic_graph_of(call);
  const ir::Graph parts = decomposed(whole);
  EXPECT_EQ(parts.outputs()[0].meta().to_string(), whole.outputs()[0].meta().to_string());
  EXPECT_EQ(parts.assumptions().size(), whole.assumptions().size());
  for (const auto& [s0, s1] : {std::pair{2, 3}, std::pair{1, 5}, std::pair{3, 1}}) {
    const std::vector<Literal> operands = arguments(call, s0, s1);
    expect_close(ir::evaluate(parts, operands)[0], ir::evaluate(whole, operands)[0], 1e-5);
  }
}

TEST(SymbolicDecompose, Matmul) {
  expect_agreement({"matmul", {meta(f32, {4}), meta(f32, {kS0, 4, kS1})}});
  expect_agreement({"matmul", {meta(f32, {kS0, kS1}), meta(f32, {kS1})}});
  expect_agreement({"matmul", {meta(f16, {kS0, kS1, 4}), meta(f32, {4, 2})}});
}

TEST(SymbolicDecompose, Norms) {
  const ir::TensorMeta x = meta(f32, {kS0, 4, kS1});
  const ir::TensorMeta four = meta(f32, {4});
  expect_agreement({"softmax", {x}});
  expect_agreement({"log_softmax", {x}, {{"axis", std::int64_t{1}}}});
  expect_agreement({"layer_norm", {x, meta(f32, {kS1}), meta(f32, {kS1})}});
  expect_agreement({"layer_norm", {meta(f16, {kS0, kS1, 4}), four, four}});
  expect_agreement({"rms_norm", {meta(f32, {kS0, kS1, 4}), four}});
  expect_agreement({"group_norm", {x, four, four}, {{"groups", std::int64_t{2}}}});
}

TEST(SymbolicDecompose, BatchNorm) {
  const ir::TensorMeta four = meta(f32, {4});
  // The variance is noise: a large epsilon keeps the root real.
  expect_agreement(
      {"batch_norm", {meta(f32, {kS0, 4, kS1}), four, four, four, four}, {{"epsilon", 3.0}}});
}

TEST(SymbolicDecompose, Attention) {
  const ir::TensorMeta q = meta(f32, {kS0, 4, kS1, 8});
  const ir::TensorMeta shared = meta(f32, {kS0, 2, kS1, 8});
  expect_agreement({"attention", {q, q, q, meta(boolean, {kS0, 1, 1, kS1})}});
  expect_agreement({"attention", {q, shared, shared}, {{"causal", true}}});
  expect_agreement({"attention", {q, shared, shared, meta(f32, {kS1, kS1})}});
  const ir::TensorMeta longer = meta(f32, {kS0, 2, kS0 + kS1, 8});
  expect_agreement({"attention", {q, longer, longer}, {{"causal", true}}});
}

TEST(SymbolicDecompose, IndexPut) {
  expect_agreement(
      {"index_put",
       {meta(f32, {20, kS0 + 7, 4}), meta(f32, {kS1, 1, 4}), meta(i64, {kS1, 1}), meta(u8, {1})}});
}

}  // namespace
}  // namespace heddle::testing
