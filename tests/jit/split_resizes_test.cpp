// Resizes of several dimensions one after the other, against the definition of one.
#include "jit/lower/split_resizes.h"

#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

OneOp resize_of(DType dtype, const ir::Sizes& from, const ir::Sizes& to, const std::string& mode,
                std::vector<double> scales = {}, bool exclude_outside = false) {
  return {"resize",
          {noise(dtype, from)},
          {{"sizes", ir::Dims(to.begin(), to.end())},
           {"mode", mode},
           {"scales", std::move(scales)},
           {"exclude_outside", exclude_outside}}};
}

/// How many resizes become of one, which is right.
std::int64_t resizes_of(const OneOp& call) {
  const ir::Graph graph = testing::graph_of(call);
  expect_fast_code_right(graph, call.operands);
  const std::vector<std::string> ops = testing::ops_of(jit::split_resizes(graph, {}));
  return std::ranges::count(ops, "resize");
}

TEST(SplitResizes, OneForEachDimension) {
  for (const DType dtype : {f32, f64, f16, bf16}) {
    for (const char* mode : {"linear", "cubic"}) {
      EXPECT_EQ(resizes_of(resize_of(dtype, {2, 7, 9, 3}, {2, 15, 13, 3}, mode)), 2);
      EXPECT_EQ(resizes_of(resize_of(dtype, {1, 2, 9, 20}, {1, 2, 7, 41}, mode)), 2);
      EXPECT_EQ(resizes_of(resize_of(dtype, {3, 4, 5}, {6, 7, 8}, mode)), 3);
    }
  }
}

TEST(SplitResizes, ScalesAndWeightsThatAreScaled) {
  EXPECT_EQ(resizes_of(resize_of(f32, {1, 8, 9, 3}, {1, 20, 13, 3}, "cubic", {1, 2.5, 1.5, 1})), 2);
  EXPECT_EQ(resizes_of(resize_of(f32, {8, 9}, {8, 13}, "cubic", {1.05, 1.5})), 2);
  EXPECT_EQ(resizes_of(resize_of(f32, {8, 9}, {20, 13}, "cubic", {}, true)), 2);
}

TEST(SplitResizes, SizesAtTheEnds) {
  EXPECT_EQ(resizes_of(resize_of(f32, {1, 1}, {5, 4}, "cubic")), 2);
  EXPECT_EQ(resizes_of(resize_of(f32, {4, 5}, {1, 1}, "cubic")), 1) << "longer between";
  EXPECT_EQ(resizes_of(resize_of(f32, {2, 5}, {4, 0}, "linear")), 2);
}

TEST(SplitResizes, OthersStay) {
  EXPECT_EQ(resizes_of(resize_of(f32, {4, 9}, {4, 13}, "cubic")), 1) << "one dimension";
  EXPECT_EQ(resizes_of(resize_of(f32, {8, 9}, {13, 20}, "nearest")), 1) << "one element each";
  EXPECT_EQ(resizes_of(resize_of(f32, {40, 9}, {13, 20}, "cubic")), 1) << "longer between";
  EXPECT_EQ(resizes_of(resize_of(f32, {20, 9}, {13, 20}, "linear")), 1) << "longer between";
  const ir::Graph graph = testing::graph_of(resize_of(f32, {8, 9}, {13, 20}, "cubic"));
  EXPECT_TRUE(
      jit::split_resizes(graph, {.target = jit::LowerOptions::Target::Cuda}).identical(graph));
}

}  // namespace
}  // namespace heddle::test
