// A layer of bytes in a loop gives what its definition gives, with panels made before the loop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "heddle/heddle.h"

namespace heddle {
namespace {

Tensor bytes_of(DType dtype, Sizes sizes, std::int64_t seed) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  std::vector<std::int64_t> numbers;
  for (std::int64_t k = 0; k < count; ++k)
    numbers.push_back((k * 37 + k / 7 * 11 + seed) % 256 - (dtype == i8 ? 128 : 0));
  const Tensor whole = Tensor::of(std::span<const std::int64_t>(numbers), std::move(sizes));
  return cast(whole, dtype);
}

Tensor centred(const Tensor& bytes, const Tensor& zero) {
  return zero.defined() ? cast(bytes, i32) - cast(zero, i32) : cast(bytes, i32);
}

/// The state u8 [2, 70] times weights, both less their zero points, plus a slice of inputs[1], is scaled to bytes again.
std::vector<Tensor> layer(std::span<const Tensor> inputs, const Tensor& weights,
                          const Tensor& zero) {
  const auto step = [&](const Tensor& state, const Tensor& slice) {
    const Tensor sum =
        matmul(centred(state, Tensor::scalar_int(u8, 3)), centred(weights, zero)) + slice;
    const Tensor real = clamp(cast(sum, f32) * (1.0 / 512), 0.0, 255.0);
    return std::pair(cast(real, u8), sum);
  };
  const auto [last, sums] = scan(inputs[0], inputs[1], step);
  return {last, sums};
}

TEST(ByteLoop, GivesWhatItsDefinitionGives) {
  for (const DType dtype : {i8, u8}) {
    const Tensor weights = bytes_of(dtype, {70, 70}, 5);
    for (const Tensor& zero : {Tensor(), Tensor::scalar_int(dtype, 5), bytes_of(dtype, {70}, 9)}) {
      Engine engine([&](std::span<const Tensor> inputs) { return layer(inputs, weights, zero); });
      for (const std::int64_t steps : {5, 2}) {
        const std::vector<Tensor> inputs{bytes_of(u8, {2, 70}, 1),
                                         cast(bytes_of(u8, {steps, 2, 70}, 2), i32)};
        const std::vector<Tensor> wanted = layer(inputs, weights, zero);
        const std::vector<Tensor> got = engine.run(inputs);
        for (const std::size_t k : {0u, 1u})
          EXPECT_EQ(got[k].to_doubles(), wanted[k].to_doubles()) << steps;
      }
    }
  }
}

}  // namespace
}  // namespace heddle
