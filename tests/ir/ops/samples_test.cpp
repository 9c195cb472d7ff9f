// What holds for every op that has samples: aliases are what evaluate does, decompositions agree.
#include <cstddef>
#include <gtest/gtest.h>

#include "ir/evaluate.h"
#include "ir/op.h"
#include "tests/support/op_samples.h"

namespace heddle::testing {
namespace {

using ir::Alias;
using ir::Literal;

/// The elements of `outer` lie in these bytes; whether `inner` begins among them.
bool lies_in(const Literal& inner, const Literal& outer) {
  const auto* base = static_cast<const std::byte*>(outer.data());
  std::int64_t low = 0;
  std::int64_t high = 0;
  for (std::size_t d = 0; d < outer.sizes().size(); ++d) {
    const std::int64_t reach = (outer.sizes()[d] - 1) * outer.strides()[d];
    (reach < 0 ? low : high) += reach;
  }
  const auto width = static_cast<std::int64_t>(size_of(outer.dtype()));
  const auto* at = static_cast<const std::byte*>(inner.data());
  return at >= base + low * width && at <= base + high * width;
}

/// Strides of dimensions that are walked at all.
void expect_strides(const Literal& got, const ir::Dims& inferred) {
  for (std::size_t d = 0; d < inferred.size(); ++d) {
    if (got.sizes()[d] <= 1) continue;
    EXPECT_EQ(ir::SymExpr(got.strides()[d]), inferred[d]) << "dim " << d;
  }
}

void expect_alias_holds(const OneOp& call) {
  const ir::Graph graph = graph_of(call);
  const ir::Node& node = *graph.outputs()[0].node;
  const base::SymbolValues sizes;
  const auto results = node.op().evaluate(ir::EvalContext(node, call.operands, sizes));
  for (std::uint32_t k = 0; k < results.size(); ++k) {
    if (results[k].count() == 0) continue;
    const Alias alias = ir::alias_of(node, k);
    for (std::size_t operand = 0; operand < call.operands.size(); ++operand) {
      if (call.operands[operand].data() == nullptr) continue;
      const bool viewed = alias.kind == Alias::Kind::View && alias.operand == operand;
      EXPECT_EQ(lies_in(results[k], call.operands[operand]), viewed) << "operand " << operand;
    }
    expect_strides(results[k], node.output(k).strides);
  }
}

OneOp spread(OneOp call) {
  for (Literal& operand : call.operands) {
    if (operand.data() != nullptr) operand = spread_out(operand);
  }
  return call;
}

TEST(Alias, IsWhatEvaluateDoes) {
  for (const OneOp& call : op_samples()) {
    SCOPED_TRACE(describe(call));
    expect_alias_holds(call);
    expect_alias_holds(spread(call));
  }
}

TEST(Alias, ReusesOnlyBytesOfTheResultsOwnSizeAndLayout) {
  for (const OneOp& call : op_samples()) {
    SCOPED_TRACE(describe(call));
    const ir::Graph graph = graph_of(call);
    const ir::Node& node = *graph.outputs()[0].node;
    const Alias alias = ir::alias_of(node, 0);
    if (alias.kind != Alias::Kind::MayReuse) continue;
    const ir::TensorMeta& operand = node.input(alias.operand).meta();
    EXPECT_EQ(operand.sizes, node.output().sizes);
    EXPECT_EQ(operand.strides, node.output().strides);
    EXPECT_EQ(size_of(operand.dtype), size_of(node.output().dtype));
  }
}

TEST(Decomposition, AgreesWithEvaluate) {
  std::size_t decomposed = 0;
  for (const OneOp& call : op_samples()) {
    if (!can_decompose(call)) continue;
    SCOPED_TRACE(describe(call));
    expect_decomposition_agrees(call, 4 * tolerance_of(call.operands[0].dtype()));
    ++decomposed;
  }
  EXPECT_GT(decomposed, 50u);
}

TEST(Evaluate, DoesNotDependOnStrides) {
  for (const OneOp& call : op_samples()) {
    SCOPED_TRACE(describe(call));
    const auto want = evaluate(call);
    const auto got = evaluate(spread(call));
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t k = 0; k < got.size(); ++k) expect_same(got[k], want[k]);
  }
}

}  // namespace
}  // namespace heddle::testing
