// Constant weights of 4 bits on the device: what a product gives, reads and holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda/support.h"

namespace heddle::testing {
namespace {

constexpr std::int64_t kDepth = 1024, kColumns = 512, kGroup = 32, kGroups = kDepth / kGroup;

Tensor packed_columns() {
  Tensor bytes = Tensor::empty(u8, {kColumns, kDepth / 2});
  for (std::int64_t k = 0; k < bytes.count(); ++k)
    bytes.data_as<std::uint8_t>()[k] =
        static_cast<std::uint8_t>((static_cast<unsigned>(k) * 2654435761u) >> 13);
  return bytes;
}

Tensor product_of_packed(const Tensor& x, const Tensor& bytes) {
  const Tensor numbers = reshape(unpack_bits(bytes, 4, kDepth), {kColumns, kGroups, kGroup});
  const Tensor reals = (cast(numbers, f32) - 8.0f) * (counted(f32, {kColumns, kGroups, 1}) * 1e-5f);
  return matmul(x, transpose(reshape(reals, {kColumns, kDepth}), 0, 1));
}

TEST(CudaFewBits, AreHeldAndReadPacked) {
  const Tensor bytes = packed_columns();
  const auto f = [=](const Tensor& x) { return product_of_packed(x, bytes); };
  Engine engine(f, on_cuda());
  Engine reference(f, {.device = Device::reference()});
  const std::size_t before = engine.memory().device.in_use_bytes;
  for (const std::int64_t rows : {1, 3, 40}) {
    const Tensor x = counted(f32, {rows, kDepth});
    const std::vector<double> want = reference.run({x})[0].to_doubles();
    const std::vector<double> got = engine.run({x})[0].to_doubles();
    ASSERT_EQ(got.size(), want.size());
    double largest = 0;
    for (const double value : want) largest = std::max(largest, std::abs(value));
    for (std::size_t k = 0; k < got.size(); ++k) ASSERT_NEAR(got[k], want[k], 1e-4 * largest) << k;
  }
  const std::vector<Tensor> row{counted(f32, {1, kDepth})};
  EXPECT_THAT(engine.plan_json(row), ::testing::HasSubstr("packed_bits_matmul"));
  engine.trim();
  const std::size_t held = engine.memory().device.in_use_bytes - before;
  EXPECT_GE(held, std::size_t{kDepth * kColumns / 2});
  EXPECT_LT(held, std::size_t{kDepth * kColumns}) << "a byte for each number";
}

}  // namespace
}  // namespace heddle::testing
