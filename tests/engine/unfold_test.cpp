// unfold in the C++ interface: windows that overlap, at once and traced.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "heddle/heddle.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;

std::vector<Tensor> window_sums(std::span<const Tensor> inputs) {
  const Tensor windows = unfold(inputs[0], 0, 3, 2);
  return {windows, sum(windows * windows, {1})};
}

TEST(Unfold, WindowsOverlapAtOnceAndTraced) {
  const Tensor x = Tensor::of<float>({1, 2, 3, 4, 5, 6, 7, 8}, {8});
  Engine engine(window_sums);
  const std::vector<Tensor> at_once = window_sums(std::vector{x});
  for (const std::vector<Tensor>& got : {at_once, engine.run({x})}) {
    EXPECT_THAT(got[0].sizes(), ElementsAre(3, 3));
    EXPECT_THAT(got[0].to_doubles(), ElementsAre(1, 2, 3, 3, 4, 5, 5, 6, 7));
    EXPECT_THAT(got[1].to_doubles(), ElementsAre(14, 50, 110));
  }
  EXPECT_THAT(engine.run({slice(x, 0, 0, 5)})[1].to_doubles(), ElementsAre(14, 50));
  EXPECT_THAT(engine.run({slice(x, 0, 0, 3)})[1].to_doubles(), ElementsAre(14));
  EXPECT_THROW(engine.run({slice(x, 0, 0, 2)}), ShapeError);
}

}  // namespace
}  // namespace heddle
