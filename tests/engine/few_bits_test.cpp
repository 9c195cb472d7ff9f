// Weights of a few bits in a callable: read as they are packed, updated like others, shared by threads.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

#include "heddle/heddle.h"

namespace hd = heddle;

namespace {

constexpr std::int64_t kFewDepth = 256;
constexpr std::int64_t kFewColumns = 80;
constexpr std::int64_t kFewGroup = 32;
constexpr std::int64_t kFewGroups = kFewDepth / kFewGroup;

hd::Tensor packed_bytes(unsigned seed) {
  hd::Tensor bytes = hd::Tensor::empty(hd::u8, {kFewColumns, kFewDepth / 2});
  for (std::int64_t k = 0; k < bytes.count(); ++k)
    bytes.data_as<std::uint8_t>()[k] =
        static_cast<std::uint8_t>((static_cast<unsigned>(k) * 2654435761u + seed) >> 13);
  return bytes;
}

hd::Tensor block_scales() {
  hd::Tensor scales = hd::Tensor::empty(hd::f32, {kFewColumns, kFewGroups, 1});
  for (std::int64_t k = 0; k < scales.count(); ++k)
    scales.data_as<float>()[k] = 0.01f * static_cast<float>(1 + k % 7);
  return scales;
}

hd::Tensor few_bits_product(const hd::Tensor& x, const hd::Tensor& bytes,
                            const hd::Tensor& scales) {
  const hd::Tensor numbers =
      hd::reshape(hd::unpack_bits(bytes, 4, kFewDepth), {kFewColumns, kFewGroups, kFewGroup});
  const hd::Tensor reals = (hd::cast(numbers, hd::f32) - 8.0f) * scales;
  return hd::matmul(x, hd::transpose(hd::reshape(reals, {kFewColumns, kFewDepth}), 0, 1));
}

hd::Tensor rows_of_waves(std::int64_t rows) {
  hd::Tensor x = hd::Tensor::empty(hd::f32, {rows, kFewDepth});
  for (std::int64_t k = 0; k < x.count(); ++k)
    x.data_as<float>()[k] = static_cast<float>(std::sin(0.37 * static_cast<double>(k)));
  return x;
}

void expect_product(const hd::Tensor& y, const hd::Tensor& x, const hd::Tensor& bytes,
                    const hd::Tensor& scales) {
  for (std::int64_t i = 0; i < x.shape()[0].value(); ++i)
    for (std::int64_t j = 0; j < kFewColumns; ++j) {
      double sum = 0;
      double magnitude = 0;
      for (std::int64_t k = 0; k < kFewDepth; ++k) {
        const int byte = bytes.data_as<std::uint8_t>()[(j * kFewDepth + k) / 2];
        const double number = (k % 2 == 0 ? byte & 15 : byte >> 4) - 8;
        const double term =
            number * static_cast<double>(scales.data_as<float>()[j * kFewGroups + k / kFewGroup]) *
            static_cast<double>(x.data_as<float>()[i * kFewDepth + k]);
        sum += term;
        magnitude += std::abs(term);
      }
      ASSERT_NEAR(static_cast<double>(y.data_as<float>()[i * kFewColumns + j]), sum,
                  1e-6 * magnitude)
          << i << ", " << j;
    }
}

TEST(FewBits, ProductsReadWhatIsPacked) {
  const hd::Tensor bytes = packed_bytes(1);
  const hd::Tensor scales = block_scales();
  hd::Engine engine([=](const hd::Tensor& x) { return few_bits_product(x, bytes, scales); });
  for (const std::int64_t rows : {1, 5, 40}) {
    const hd::Tensor x = rows_of_waves(rows);
    expect_product(engine.run({x})[0], x, bytes, scales);
  }
  const std::vector<hd::Tensor> row{rows_of_waves(1)};
  EXPECT_THAT(engine.plan_json(row), ::testing::HasSubstr("bits_matmul"));
}

TEST(FewBits, FollowUpdatesOfTheirParameters) {
  const hd::Tensor bytes = packed_bytes(1);
  const hd::Tensor scales = block_scales();
  hd::Engine engine([=](const hd::Tensor& x) { return few_bits_product(x, bytes, scales); });
  const hd::Tensor x = rows_of_waves(3);
  engine.run({x});
  const hd::Tensor others = packed_bytes(77);
  for (const auto& parameter : engine.parameters())
    if (parameter.value.dtype() == hd::u8) engine.update_parameters({{parameter.name, others}});
  expect_product(engine.run({x})[0], x, others, scales);
}

TEST(FewBits, AreSharedByThreads) {
  const hd::Tensor bytes = packed_bytes(1);
  const hd::Tensor scales = block_scales();
  hd::Engine engine([=](const hd::Tensor& x) { return few_bits_product(x, bytes, scales); });
  std::vector<std::thread> threads;
  std::vector<hd::Tensor> results(4);
  for (std::size_t k = 0; k < results.size(); ++k)
    threads.emplace_back([&, k] {
      for (int round = 0; round < 5; ++round)
        results[k] = engine.run({rows_of_waves(static_cast<std::int64_t>(k) + 1)})[0];
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t k = 0; k < results.size(); ++k)
    expect_product(results[k], rows_of_waves(static_cast<std::int64_t>(k) + 1), bytes, scales);
}

/// Op by op, outside of a callable.
TEST(FewBits, AreUnpackedAtOnceToo) {
  hd::Tensor bytes = hd::Tensor::empty(hd::u8, {1, 2});
  bytes.data_as<std::uint8_t>()[0] = 0x2f;
  bytes.data_as<std::uint8_t>()[1] = 0x07;
  const hd::Tensor numbers = hd::unpack_bits(bytes, 4, 3, true);
  ASSERT_EQ(numbers.dtype(), hd::i8);
  EXPECT_EQ(numbers.to_doubles(), (std::vector<double>{-1, 2, 7}));
}

}  // namespace
