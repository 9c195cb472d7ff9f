// The transformer example over many sizes: one trace, one compile, the evaluator's numbers.
#include "examples/transformer/encoder.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

namespace hd = heddle;

namespace {

hd::Tensor random_ids(std::int64_t batch, std::int64_t length, std::mt19937& random) {
  hd::Tensor ids = hd::Tensor::empty(hd::i64, {batch, length});
  for (std::int64_t k = 0; k < ids.count(); ++k)
    ids.data_as<std::int64_t>()[k] = static_cast<std::int64_t>(random() % 50);
  return ids;
}

}  // namespace

TEST(Encoder, AThousandSizesCompileOnce) {
  const example::Encoder encoder(
      {.layers = 2, .width = 16, .heads = 2, .vocabulary = 50, .positions = 64});
  hd::Engine engine(encoder);
  hd::Engine reference(encoder, {.device = hd::Device::reference()});
  std::mt19937 random(1);
  for (int k = 0; k < 1000; ++k) {
    const std::int64_t batch = 1 + random() % 6;
    const std::int64_t length = 1 + random() % 40;
    const hd::Tensor ids = random_ids(batch, length, random);
    const auto got = engine.run({ids})[0].to_doubles();
    if (k % 200 != 0) continue;
    const auto want = reference.run({ids})[0].to_doubles();
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 1e-4 * std::abs(want[i]) + 1e-5) << batch << " x " << length;
  }
  EXPECT_EQ(engine.stats().compiles, 1u);
  EXPECT_EQ(engine.stats().traces, 1u);
}

TEST(Encoder, LayersOfOneStructureShareTheirKernels) {
  const auto kernels = [](std::int64_t layers) {
    const example::Encoder encoder(
        {.layers = layers, .width = 16, .heads = 2, .vocabulary = 50, .positions = 64});
    hd::Engine engine(encoder, {.disk_cache = false});
    std::mt19937 random(1);
    engine.run({random_ids(2, 7, random)});
    return engine.stats().kernels;
  };
  const auto three = kernels(3);
  EXPECT_GT(three, 3u);
  // The first and the last layer have neighbours of their own; those between add nothing.
  EXPECT_EQ(kernels(6), three);
}
