// Scales of 8-bit floats move behind products, where their weights then stay bytes.
#include "jit/lower/float8_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "ir/text.h"
#include "jit/lower/pack_weights.h"
#include "tests/jit/lower_support.h"
#include "tests/support/one_op.h"

namespace heddle::test {
namespace {

using ir::GraphBuilder;
using ir::Value;
using ::testing::Contains;
using testing::ops_of;
using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kDepth = 300;
constexpr std::int64_t kColumns = 130;

/// x [s0, depth] times dequantised codes; `scale`: its sizes; `turned`: codes are [columns, depth].
ir::Graph product(DType codes, ir::Sizes scale, bool turned, DType dtype = f32) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(dtype, {"s0", "300"}));
  const ir::Sizes sizes = turned ? ir::Sizes{kColumns, kDepth} : ir::Sizes{kDepth, kColumns};
  const Value q = b.constant(random_literal(codes, sizes, 7));
  const Value s = b.constant(random_literal(dtype, std::move(scale), 8));
  Value w = b.emit("mul", {b.emit("convert", {q}, {{"dtype", dtype}}), s});
  if (turned) w = b.emit("permute", {w}, {{"perm", Ints{1, 0}}});
  b.output(b.emit("relu", {b.emit("matmul", {x, w})}));
  return b.finish();
}

DType panels_of(const ir::Graph& graph) {
  const ir::Graph packed = jit::pack_weights(jit::float8_products(graph, {}), {});
  for (const ir::NodePtr& node : packed.nodes())
    if (node->op_name() == "packed_matmul") return node->input(1).meta().dtype;
  ADD_FAILURE() << "no packed_matmul in " << ir::print(packed);
  return f32;
}

TEST(Float8Products, KeepBytesAndAreRight) {
  for (const DType codes : {f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz}) {
    const bool turned = codes == f8e5m2 || codes == f8e5m2fnuz;
    const ir::Graph graph =
        product(codes, turned ? ir::Sizes{kColumns, 1} : ir::Sizes{kColumns}, turned);
    EXPECT_EQ(panels_of(graph), codes) << ir::print(graph);
    for (const std::int64_t rows : {2, 33}) expect_right_at(graph, {rows}, 1e-4);
  }
}

TEST(Float8Products, TakeScalesOfAllOrEachColumn) {
  for (const ir::Sizes& scale : {ir::Sizes{}, {1}, {1, 1}, {1, kColumns}}) {
    const ir::Graph graph = product(f8e4m3fn, scale, false);
    EXPECT_EQ(panels_of(graph), f8e4m3fn) << ir::print(graph);
    expect_right_at(graph, {1}, 1e-4);
  }
  EXPECT_EQ(panels_of(product(f8e4m3fn, {}, true)), f8e4m3fn);
}

TEST(Float8Products, OfOneMatrixSharePanels) {
  GraphBuilder b("main");
  const Value q = b.constant(random_literal(f8e5m2, {kDepth, kColumns}, 7));
  const Value s = b.constant(random_literal(f32, {kColumns}, 8));
  const Value w = b.emit("mul", {b.emit("convert", {q}, {{"dtype", f32}}), s});
  for (int k = 0; k < 2; ++k) b.output(b.emit("matmul", {b.input(tensor(f32, {"s0", "300"})), w}));
  const ir::Graph packed = jit::pack_weights(jit::float8_products(b.finish(), {}), {});
  std::set<const ir::Node*> panels;
  for (const ir::NodePtr& node : packed.nodes())
    if (node->op_name() == "packed_matmul") panels.insert(node->input(1).node);
  EXPECT_EQ(panels.size(), 1u) << ir::print(packed);
}

TEST(Float8Products, LeaveScalesAlongTheDepthAndOtherDTypes) {
  for (const ir::Graph& graph :
       {product(f8e4m3fn, {kDepth, 1}, false), product(f8e4m3fn, {kDepth}, true),
        product(f8e4m3fn, {kColumns}, false, bf16), product(i8, {kColumns}, false)}) {
    EXPECT_EQ(ir::print(jit::float8_products(graph, {})), ir::print(graph));
    expect_right_at(graph, {3}, 1e-2);
  }
}

}  // namespace
}  // namespace heddle::test
