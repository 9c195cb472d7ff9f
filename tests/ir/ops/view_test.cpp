#include <gtest/gtest.h>

#include "ir/op.h"
#include "ir/ops/view_ops.h"
#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Dims;
using ir::Literal;
using ir::Sizes;
using ir::SymExpr;
using Ints = std::vector<std::int64_t>;

const SymExpr s0 = SymExpr::size(0);
const SymExpr s1 = SymExpr::size(1);

Literal counting(const Sizes& sizes) {
  Literal result(i32, sizes);
  for (std::int64_t k = 0; k < result.count(); ++k) result.set_int(k, k);
  return result;
}

/// The index map of a view op's only node, as text.
std::string map_of(std::string_view op, const ir::TensorMeta& operand, ir::Attrs attrs) {
  ir::GraphBuilder builder("main");
  const ir::Node* node = builder.call(op, {builder.input(operand)}, std::move(attrs));
  std::vector<SymExpr> index;
  for (std::int64_t d = 0; d < node->output().rank(); ++d) {
    index.push_back(SymExpr::axis(static_cast<std::uint32_t>(d)));
  }
  std::string text;
  for (const SymExpr& entry : node->op().lowering.view(*node, index)) {
    text += (text.empty() ? "" : ", ") + entry.to_string();
  }
  return text;
}

ir::Alias::Kind alias_kind(const ir::TensorMeta& operand, ir::Attrs attrs) {
  ir::GraphBuilder builder("main");
  const ir::Node* node = builder.call("reshape", {builder.input(operand)}, std::move(attrs));
  return ir::alias_of(*node, 0).kind;
}

// reshape

TEST(Reshape, KeepsRowMajorOrder) {
  const Literal got = value_of({"reshape", {counting({2, 3})}, {{"sizes", Dims{3, 2}}}});
  expect_same(got, ints(i32, {3, 2}, {0, 1, 2, 3, 4, 5}));
}

TEST(Reshape, OfATransposedMatrixCopies) {
  const Literal x = counting({2, 3}).view({3, 2}, {1, 3}, 0);
  const Literal got = value_of({"reshape", {x}, {{"sizes", Dims{6}}}});
  expect_same(got, ints(i32, {6}, {0, 3, 1, 4, 2, 5}));
}

TEST(Reshape, IsAViewWhereStridesCanSayIt) {
  ir::TensorMeta transposed = meta(f32, {3, 2});
  transposed.strides = {1, 3};
  EXPECT_EQ(alias_kind(transposed, {{"sizes", Dims{6}}}), ir::Alias::Kind::Fresh);
  EXPECT_EQ(alias_kind(transposed, {{"sizes", Dims{3, 1, 2}}}), ir::Alias::Kind::View);
  EXPECT_EQ(alias_kind(meta(f32, {s0, 6}), {{"sizes", Dims{2 * s0, 3}}}), ir::Alias::Kind::View);
}

TEST(Reshape, MapsCommonDimensionsWithoutDivision) {
  EXPECT_EQ(map_of("reshape", meta(f32, {s0, 1, s1}), {{"sizes", Dims{1, s0, s1}}}), "i1, 0, i2");
  EXPECT_EQ(map_of("reshape", meta(f32, {s0, 12, s1}), {{"sizes", Dims{s0, 3, 4, s1}}}),
            "i0, 4*i1+i2, i3");
  EXPECT_EQ(map_of("reshape", meta(f32, {s0, 3, 4}), {{"sizes", Dims{s0, 12}}}),
            "i0, floor(i1/4), mod(i1,4)");
}

TEST(Reshape, GroupsTheDimensionsThatHoldTheSameElements) {
  const Dims from{4, 6, s0};
  const Dims to{24, 1, s0};
  const auto groups = ir::ops::group_dims(from, to);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].from, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(groups[0].to, (std::vector<std::size_t>{0}));
  EXPECT_EQ(groups[1].from, (std::vector<std::size_t>{2}));
  EXPECT_EQ(groups[1].to, (std::vector<std::size_t>{2}));
}

TEST(Reshape, TakesEmptyAndScalarOperands) {
  EXPECT_EQ(value_of({"reshape", {counting({0, 3})}, {{"sizes", Dims{7, 0}}}}).sizes(),
            (Sizes{7, 0}));
  expect_same(value_of({"reshape", {counting({1, 1})}, {{"sizes", Dims{}}}}), ints(i32, {}, {0}));
}

TEST(Reshape, C1RefusesNegativeSizes) {
  EXPECT_EQ(error_of("reshape", {meta(f32, {6})}, {{"sizes", Dims{-2, -3}}}),
            "reshape: C1 sizes: expected sizes of at least 0, got [-2, -3]");
}

TEST(Reshape, C2RefusesAnotherElementCount) {
  EXPECT_EQ(error_of("reshape", {meta(f32, {2, 3})}, {{"sizes", Dims{4}}}),
            "reshape: C2 element count: expected 6, got 4");
}

// permute

TEST(Permute, ReordersDimensions) {
  expect_same(value_of({"permute", {counting({2, 3})}, {{"perm", Ints{1, 0}}}}),
              ints(i32, {3, 2}, {0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(type_of("permute", {meta(f32, {s0, 4, s1})}, {{"perm", Ints{2, 0, -2}}}),
            "f32[s1, s0, 4]{1, 4*s1, s1}");
  EXPECT_EQ(map_of("permute", meta(f32, {2, 3, 4}), {{"perm", Ints{2, 0, 1}}}), "i1, i2, i0");
}

TEST(Permute, C1RefusesAnotherNumberOfEntries) {
  EXPECT_EQ(error_of("permute", {meta(f32, {2, 3})}, {{"perm", Ints{0}}}),
            "permute: C1 entries: expected 2 entries in perm, got [0]");
}

TEST(Permute, C2RefusesWhatIsNotAPermutation) {
  for (const Ints& perm : {Ints{0, 0}, Ints{0, 2}, Ints{0, -2}, Ints{-3, 1}}) {
    const std::string text = "[" + std::to_string(perm[0]) + ", " + std::to_string(perm[1]) + "]";
    EXPECT_EQ(error_of("permute", {meta(f32, {2, 3})}, {{"perm", perm}}),
              "permute: C2 permutation: expected each of 2 dimensions once, got " + text);
  }
}

// expand

TEST(Expand, RepeatsDimensionsOfSizeOne) {
  expect_same(value_of({"expand", {counting({2, 1})}, {{"sizes", Dims{2, 2, 3}}}}),
              ints(i32, {2, 2, 3}, {0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(type_of("expand", {meta(f32, {s0, 1})}, {{"sizes", Dims{4, s0, 3}}}),
            "f32[4, s0, 3]{0, 1, 0}");
  EXPECT_EQ(map_of("expand", meta(f32, {s0, 1}), {{"sizes", Dims{4, s0, 3}}}), "i1, 0");
}

TEST(Expand, C1RefusesFewerOrNegativeSizes) {
  EXPECT_EQ(error_of("expand", {meta(f32, {2, 3})}, {{"sizes", Dims{3}}}),
            "expand: C1 sizes: expected at least 2 sizes, got [3]");
  EXPECT_EQ(error_of("expand", {meta(f32, {1})}, {{"sizes", Dims{-1}}}),
            "expand: C1 sizes: expected sizes of at least 0, got [-1]");
}

TEST(Expand, C2RefusesToRepeatMoreThanOneElement) {
  EXPECT_EQ(error_of("expand", {meta(f32, {2})}, {{"sizes", Dims{4}}}),
            "expand: C2 repeatable sizes: expected 2, got 4");
}

// unfold

ir::Attrs windows(std::int64_t axis, std::int64_t size, std::int64_t step) {
  return {{"axis", axis}, {"size", size}, {"step", step}};
}

TEST(Unfold, NamesElementsOfWindowsThatOverlap) {
  expect_same(value_of({"unfold", {counting({5, 1})}, windows(0, 3, 2)}),
              ints(i32, {2, 1, 3}, {0, 1, 2, 2, 3, 4}));
  EXPECT_EQ(type_of("unfold", {meta(f32, {s0, 6})}, windows(-1, 3, 2)), "f32[s0, 2, 3]{6, 2, 1}");
  EXPECT_EQ(map_of("unfold", meta(f32, {s0, 6}), windows(1, 3, 2)), "i0, 2*i1+i2");
}

TEST(Unfold, C1RefusesAnAxisThatIsNotThere) {
  for (const std::int64_t axis : {-3, 2})
    EXPECT_EQ(error_of("unfold", {meta(f32, {2, 3})}, windows(axis, 1, 1)),
              "unfold: C1 axis: expected an axis in [-2, 2), got " + std::to_string(axis));
}

TEST(Unfold, C2RefusesNoSizeOrStep) {
  EXPECT_EQ(error_of("unfold", {meta(f32, {2})}, windows(0, 0, 1)),
            "unfold: C2 size and step: expected size >= 1, got 0");
  EXPECT_EQ(error_of("unfold", {meta(f32, {2})}, windows(0, 1, 0)),
            "unfold: C2 size and step: expected step >= 1, got 0");
}

TEST(Unfold, C3RefusesALongerWindow) {
  EXPECT_EQ(error_of("unfold", {meta(f32, {2})}, windows(0, 3, 1)),
            "unfold: C3 window: expected at least 3, got 2");
}

// slice

ir::Attrs window(Dims start, Dims limit, Dims stride) {
  return {{"start", std::move(start)}, {"limit", std::move(limit)}, {"stride", std::move(stride)}};
}

TEST(Slice, TakesAStridedWindow) {
  expect_same(value_of({"slice", {counting({3, 5})}, window({1, 0}, {3, 5}, {1, 2})}),
              ints(i32, {2, 3}, {5, 7, 9, 10, 12, 14}));
  EXPECT_EQ(type_of("slice", {meta(f32, {s0, 8})}, window({0, 2}, {s0, 8}, {1, 3})),
            "f32[s0, 2]{8, 3}");
  EXPECT_EQ(map_of("slice", meta(f32, {8}), window({2}, {8}, {3})), "3*i0+2");
}

TEST(Slice, MayBeEmpty) {
  EXPECT_EQ(value_of({"slice", {counting({3})}, window({3}, {3}, {1})}).sizes(), (Sizes{0}));
}

TEST(Slice, C1RefusesAnotherNumberOfEntries) {
  EXPECT_EQ(error_of("slice", {meta(f32, {4, 4})}, window({0}, {4, 4}, {1, 1})),
            "slice: C1 entries: expected 2 entries in start, got [0]");
  EXPECT_EQ(error_of("slice", {meta(f32, {4})}, window({0}, {4}, {1, 1})),
            "slice: C1 entries: expected 1 entries in stride, got [1, 1]");
}

TEST(Slice, C2RefusesAStrideBelowOne) {
  EXPECT_EQ(error_of("slice", {meta(f32, {4})}, window({0}, {4}, {0})),
            "slice: C2 stride: expected stride >= 1 in dimension 0, got 0");
}

TEST(Slice, C3RefusesAWindowOutsideTheOperand) {
  const std::string expected = "slice: C3 window: expected 0 <= start <= limit <= 4 in dimension 0";
  EXPECT_EQ(error_of("slice", {meta(f32, {4})}, window({-1}, {4}, {1})),
            expected + ", got start -1, limit 4");
  EXPECT_EQ(error_of("slice", {meta(f32, {4})}, window({3}, {2}, {1})),
            expected + ", got start 3, limit 2");
  EXPECT_EQ(error_of("slice", {meta(f32, {4})}, window({0}, {5}, {1})),
            expected + ", got start 0, limit 5");
}

// reverse

TEST(Reverse, TurnsAxesRound) {
  expect_same(value_of({"reverse", {counting({2, 3})}, {{"axes", Ints{-1}}}}),
              ints(i32, {2, 3}, {2, 1, 0, 5, 4, 3}));
  expect_same(value_of({"reverse", {counting({2, 2})}, {{"axes", Ints{0, 1}}}}),
              ints(i32, {2, 2}, {3, 2, 1, 0}));
  EXPECT_EQ(type_of("reverse", {meta(f32, {s0, 4})}, {{"axes", Ints{0}}}), "f32[s0, 4]{-4, 1}");
}

TEST(Reverse, C1RefusesAnAxisOutOfRange) {
  EXPECT_EQ(error_of("reverse", {meta(f32, {2, 3})}, {{"axes", Ints{2}}}),
            "reverse: C1 axis: expected an axis in [-2, 2), got 2");
}

TEST(Reverse, C2RefusesARepeatedAxis) {
  EXPECT_EQ(error_of("reverse", {meta(f32, {2, 3})}, {{"axes", Ints{1, -1}}}),
            "reverse: C2 repeated axis: expected axes without repeats, got [1, -1]");
}

// clone, alias

TEST(Clone, HasBytesOfItsOwn) {
  Literal x = counting({2, 2});
  const Literal copy = value_of({"clone", {x}});
  x.set_int(0, 99);
  EXPECT_EQ(copy.at_int(0), 0);
}

TEST(AliasOp, SharesTheBytes) {
  Literal x = counting({2, 2});
  const ir::Graph graph = graph_of({"alias", {x}});
  const ir::Node& node = *graph.outputs()[0].node;
  const Literal operands[] = {x};
  const base::SymbolValues sizes;
  const Literal same = node.op().evaluate(ir::EvalContext(node, operands, sizes))[0];
  x.set_int(0, 99);
  EXPECT_EQ(same.at_int(0), 99);
}

}  // namespace
}  // namespace heddle::testing
