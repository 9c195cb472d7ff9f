// Loops whose threads take several neighbours at once: rows that begin at odd places, and lengths that are no multiple.
#include <gmock/gmock.h>

#include "tests/cuda/support.h"

namespace heddle::testing {
namespace {

/// Numbers in [-1, 1).
Tensor noise(DType dtype, Sizes sizes) {
  return made_of(dtype, std::move(sizes), [](std::int64_t k) {
    return static_cast<double>((k * 37 + k / 11) % 1024) / 512 - 1;
  });
}

class CudaWideLoops : public ::testing::TestWithParam<DType> {};

/// Reads, writes, a local row and reductions; results of two dtypes.
TEST_P(CudaWideLoops, OfAllLengths) {
  const auto f = [](const Tensor& x, const Tensor& bias) {
    const Tensor shifted = x + bias;
    return std::vector<Tensor>{softmax(shifted, -1), cast(shifted * 2.0f, f32), greater(x, bias)};
  };
  const double tolerance = GetParam() == f32 || GetParam() == f64 ? 1e-5 : 1e-2;
  for (const std::int64_t columns : {1, 511, 512, 1027, 2048, 2051, 4100}) {
    SCOPED_TRACE(columns);
    expect_agrees(f, {noise(GetParam(), {3, columns}), noise(GetParam(), {columns})}, tolerance);
  }
}

/// Memory that begins `offset` elements behind a multiple of 16 bytes; the result may begin elsewhere.
TEST_P(CudaWideLoops, OfMemoryThatBeginsAnywhere) {
  const DType dtype = GetParam();
  Engine engine([](const Tensor& x) { return x + x; }, on_cuda());
  const Tensor values = noise(dtype, {2600});
  for (const std::int64_t offset : {0, 1, 3, 4, 8}) {
    SCOPED_TRACE(offset);
    const Tensor memory = values.to(cuda_device());
    const Tensor x = engine.wrap_device(static_cast<char*>(const_cast<Tensor&>(memory).data()) +
                                            static_cast<std::size_t>(offset) * size_of(dtype),
                                        dtype, {2560});
    const std::vector<double> got = engine.run({x})[0].to_doubles();
    const std::vector<double> all = values.to_doubles();
    for (std::size_t k = 0; k < got.size(); ++k)
      ASSERT_EQ(got[k], 2 * all[k + static_cast<std::size_t>(offset)]) << k;
  }
  EXPECT_EQ(engine.stats().compiles, 1u);
}

/// Many rows, few columns: blocks of rows first, then what they give.
TEST(CudaLongReductions, AcrossRows) {
  const auto f = [](const Tensor& x) {
    return std::vector<Tensor>{sum(reshape(x, {8192, 24}), {0}), amax(reshape(x, {8192, 24}), {0})};
  };
  expect_agrees(f, {noise(f32, {8192, 24})}, 1e-4);
  expect_agrees(f, {noise(f16, {8192, 24})}, 1e-3);
}

/// Columns of which a thread takes several: as many as fill a word, where memory is aligned to words.
TEST_P(CudaWideLoops, OfSeveralColumns) {
  const DType dtype = GetParam();
  const double tolerance = dtype == f32 || dtype == f64 ? 1e-4 : 1e-2;
  const auto f = [](const Tensor& x) {
    return std::vector<Tensor>{sum(x * 0.125f, {0}), amax(exp(x), {0})};
  };
  expect_agrees(f, {noise(dtype, {33792, 64})}, tolerance);
  Engine engine([](const Tensor& x) { return amax(x, {0}); }, on_cuda());
  const std::int64_t rows = 33792;
  const Tensor memory = noise(dtype, {rows * 64 + 4});
  const Tensor there = memory.to(cuda_device());
  const std::vector<double> all = memory.to_doubles();
  for (const std::int64_t offset : {0, 1, 2, 3}) {
    SCOPED_TRACE(offset);
    const Tensor x = engine.wrap_device(static_cast<char*>(const_cast<Tensor&>(there).data()) +
                                            static_cast<std::size_t>(offset) * size_of(dtype),
                                        dtype, {rows, 64});
    const std::vector<double> got = engine.run({x})[0].to_doubles();
    for (std::size_t column = 0; column < 64; ++column) {
      double most = -10;
      for (std::int64_t row = 0; row < rows; ++row)
        most = std::max(most, all[static_cast<std::size_t>(offset + row * 64) + column]);
      ASSERT_EQ(got[column], most) << column;
    }
  }
}

std::string name_of_dtype(const ::testing::TestParamInfo<DType>& info) {
  return std::string(name_of(info.param));
}
INSTANTIATE_TEST_SUITE_P(DTypes, CudaWideLoops, ::testing::Values(f16, bf16, f32, f64),
                         name_of_dtype);

}  // namespace
}  // namespace heddle::testing
