// Layers whose sizes are those of the input, rounded again and again, share kernels.
#include <gtest/gtest.h>

#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

/// `layers` convolutions of each of 8 channels by itself that take every other position, with a relu behind each.
ir::Graph halving_layers(std::int64_t layers) {
  ir::GraphBuilder b("main");
  ir::Value x = b.input(tensor(f32, {"s0", "s1", "s2", "8"}), "x");
  for (std::int64_t k = 0; k < layers; ++k) {
    const auto seed = static_cast<std::uint32_t>(k);
    const ir::Value w = b.constant(random_literal(f32, {8, 1, 3, 3}, 7 + seed));
    x = b.emit("conv", {x, w},
               {{"strides", Ints{2, 2}},
                {"pads_low", Ints{1, 1}},
                {"pads_high", Ints{1, 1}},
                {"dilations", Ints{1, 1}},
                {"groups", std::int64_t{8}},
                {"channels_last", true}});
    x = b.emit("relu", {x});
  }
  b.output(x);
  return b.finish();
}

TEST(SharedSizes, LayersOfAllDepthsAreOneKernel) {
  const ir::Graph graph = halving_layers(4);
  const jit::Program program = lowered(graph);
  ASSERT_EQ(program.kernels.size(), 5u) << "and one that lays out weights";
  EXPECT_EQ(distinct_nests(program).size(), 2u) << nests_of(program);
  for (const Ints& sizes : {Ints{1, 37, 50}, Ints{2, 16, 16}, Ints{1, 1, 3}})
    expect_code_right_at(graph, sizes);
}

TEST(SharedSizes, ParametersAreWhatTheSizesStandFor) {
  const jit::Program program = lowered(halving_layers(2));
  std::vector<std::string> sizes;
  for (const base::SymExpr& size : program.launches.back().sizes) sizes.push_back(size.to_string());
  EXPECT_EQ(sizes, (std::vector<std::string>{"s0", "floor((s1+1)/2)", "floor((s2+1)/2)"}));
}

/// Positions of all rows and columns are one number, whatever they are a product of.
TEST(SharedSizes, AProductOfSizesIsOne) {
  ir::GraphBuilder b("main");
  b.output(b.emit("tanh", {b.input(tensor(f32, {"s0", "s1", "64"}), "x")}));
  b.output(b.emit("tanh", {b.input(tensor(f32, {"s2", "64"}), "y")}));
  const jit::Program program = lowered(b.finish());
  ASSERT_EQ(program.kernels.size(), 2u);
  EXPECT_EQ(distinct_nests(program).size(), 1u);
  EXPECT_EQ(program.launches[0].sizes, std::vector<base::SymExpr>{base::parse_symexpr("s0*s1")});
}

}  // namespace
}  // namespace heddle::test
