// Short rows: a block has several, each of a few threads.
#include <gmock/gmock.h>

#include "tests/cuda/metered.h"

namespace heddle::testing {
namespace {

/// Numbers in [-1, 1) that differ.
Tensor varied(DType dtype, Sizes sizes, int start = 0) {
  return made_of(dtype, std::move(sizes), [=](std::int64_t k) {
    return static_cast<double>((k * 37 + k / 11 + start) % 1024) / 512 - 1;
  });
}

/// All sizes as numbers, so that kernels know them.
void use_as_numbers(std::initializer_list<Tensor> tensors) {
  for (const Tensor& tensor : tensors)
    for (std::int64_t d = 0; d < tensor.rank(); ++d) (void)tensor.size(d).value();
}

class CudaRowLanes : public ::testing::TestWithParam<unsigned long> {
 protected:
  void SetUp() override { interleave(GetParam()); }
  void TearDown() override { interleave(0); }
};

/// Of one block and of several, the last of which has groups of threads without a row.
TEST_P(CudaRowLanes, ReduceRowsOfAllLengths) {
  const auto f = [](const Tensor& x, const Tensor& bias) {
    use_as_numbers({x, bias});
    const Tensor shifted = x + bias;
    return std::vector<Tensor>{softmax(shifted, -1), sum(x, {1}), argmax(shifted, 1),
                               variance(x, {1}), amin(x * bias, {1}, true)};
  };
  for (const std::int64_t rows : {5, 64, 133})
    for (const std::int64_t columns : {2, 3, 4, 7, 8, 16, 31}) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns));
      expect_agrees(f, {varied(f32, {rows, columns}), varied(f32, {columns}, 3)});
    }
}

TEST_P(CudaRowLanes, LongerRowsAreReducedByAWarp) {
  const auto f = [](const Tensor& x) {
    use_as_numbers({x});
    return std::vector<Tensor>{sum(x, {1}), argmax(x, 1), mean(x * x, {1})};
  };
  for (const DType dtype : {f32, f16, f64})
    for (const std::int64_t columns : {32, 33, 100, 256})
      expect_agrees(f, {varied(dtype, {77, columns})}, dtype == f16 ? 2e-3 : 1e-5);
}

TEST_P(CudaRowLanes, MoveElementsOfShortRows) {
  const auto f = [](const Tensor& x, const Tensor& bias) {
    use_as_numbers({x, bias});
    return std::vector<Tensor>{permute(x, {1, 0, 2}) + bias, slice(x, 2, 1, x.size(2)) * 2.0f,
                               concat({x, x + 1.0f}, 1), pad(x, {0, 1, 2}, {1, 0, 0})};
  };
  for (const DType dtype : {f32, f16})
    for (const std::int64_t columns : {16, 17, 40, 64, 250})
      expect_agrees(f, {varied(dtype, {6, 5, columns}), varied(dtype, {columns}, 7)}, 2e-3);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CudaRowLanes, ::testing::Values(0ul, 1ul, 2ul));

/// Rows of heads: [2, 8, 128, 64] with the halves of each turned, 16 bytes a thread.
TEST(CudaRowLanesTraffic, RowsOf64HaveEightThreadsEach) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  Engine engine(
      [](const Tensor& x) {
        use_as_numbers({x});
        return permute(x, {0, 2, 1, 3}) * 2.0f;
      },
      on_cuda());
  const std::vector<Tensor> inputs = {varied(f16, {2, 8, 128, 64})};
  const auto launches = metered([&] { engine.run(inputs)[0].wait(); });
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_EQ(launches[0].threads, 2u * 8 * 128 * 8);
  EXPECT_EQ(launches[0].most, 2u);
  EXPECT_EQ(launches[0].total(false).parts, launches[0].total(false).least);
}

/// What is stored over an operand is not read by groups of threads that have no row.
TEST(CudaRowLanesTraffic, RowsThatDoNotExistTouchNothing) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  Engine engine(
      [](const Tensor& x) {
        use_as_numbers({x});
        return sum(x, {1});
      },
      on_cuda());
  const std::vector<Tensor> inputs = {varied(f32, {101, 8})};
  const auto launches = metered([&] { engine.run(inputs)[0].wait(); });
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_EQ(launches[0].threads, 128u * 2);
  EXPECT_EQ(launches[0].working, 101u * 2);
}

}  // namespace
}  // namespace heddle::testing
