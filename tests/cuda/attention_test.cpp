// Attention of engines on the simulated CUDA device: which kernel a plan takes, one compile for all sizes, and the
// evaluator's results.
#include <gmock/gmock.h>
#include <limits>

#include "base/half.h"
#include "tests/cuda/support.h"
#include "tests/support/json.h"

namespace heddle::testing {
namespace {

/// [2, length, count * 32]
Tensor rows(std::int64_t count, std::int64_t length, int start) {
  Tensor tensor = Tensor::empty(f16, {2, length, count * 32});
  for (std::int64_t k = 0; k < tensor.count(); ++k)
    static_cast<std::uint16_t*>(tensor.data())[k] =
        base::Half(static_cast<float>((k * 7 + start) % 23) / 12 - 0.9f).bits;
  return tensor;
}

std::vector<Tensor> lengths(std::int64_t queries, std::int64_t keys) {
  return {rows(4, queries, 0), rows(2, keys, 3), rows(2, keys, 5)};
}

/// Heads of 32, whatever the lengths.
Tensor heads_of(const Tensor& x, std::int64_t count) {
  return permute(reshape(x, {2, -1, count, 32}), {0, 2, 1, 3});
}

TEST(CudaAttentions, OneCompileServesAllSizesWithTheKernelThatFitsThem) {
  const auto f = [](const Tensor& q, const Tensor& k, const Tensor& v) {
    return attention(heads_of(q, 4), heads_of(k, 2), heads_of(v, 2), {}, true) * 2.0f;
  };
  Engine engine(f, on_cuda(0, true));
  Engine reference(f, {.device = Device::reference()});
  struct Case {
    std::int64_t queries, keys;
    const char* variant;
  };
  for (const Case& one : {Case{1, 200, "flash_16x64"},
                          {128, 128, "flash_64x64"},
                          {33, 0, ""},
                          {64, 10, "flash_64x64"},
                          {1, 200, ""},
                          {0, 4, ""}}) {
    SCOPED_TRACE(std::to_string(one.queries) + " x " + std::to_string(one.keys));
    const std::vector<Tensor> inputs = lengths(one.queries, one.keys);
    const Tensor want = reference.run(inputs)[0];
    for (const unsigned long seed : {0ul, 1ul, 5ul}) {
      interleave(seed);
      expect_near(engine.run(inputs)[0], want, 2e-3);
    }
    interleave(0);
    if (*one.variant == 0 || !on_simulator()) continue;
    const auto plan = test::Json::parse(engine.plan_json(inputs));
    EXPECT_EQ(plan.at("steps").at(0).at("variant"), one.variant);
  }
  EXPECT_EQ(engine.stats().compiles, 1u);
}

/// A cache of which a part is filled: keys and values are windows of it.
TEST(CudaAttentions, KeysOfACache) {
  const auto f = [](const Tensor& q, const Tensor& k, const Tensor& v) {
    return attention(heads_of(q, 4), slice(heads_of(k, 2), 2, 0, 70),
                     slice(heads_of(v, 2), 2, 0, 70));
  };
  expect_agrees(f, lengths(1, 100), 2e-3);
}

/// All keys of a row hidden by the smallest float weigh the same; by minus infinity they weigh nothing.
TEST(CudaAttentions, RowsThatAMaskHidesAltogether) {
  for (const DType dtype : {f16, bf16}) {
    SCOPED_TRACE(std::string(name_of(dtype)));
    const auto f = [dtype](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) {
      const auto heads = [dtype](const Tensor& x, std::int64_t count) {
        return heads_of(cast(x, dtype), count);
      };
      return attention(heads(q, 4), heads(k, 2), heads(v, 2), mask);
    };
    for (const float hidden : {-3.389e38f, -std::numeric_limits<float>::infinity()}) {
      Tensor mask = Tensor::full(f32, {20, 70}, 0);
      std::fill_n(static_cast<float*>(mask.data()) + 5 * 70, 70, hidden);
      std::fill_n(static_cast<float*>(mask.data()) + 7 * 70 + 30, 40, hidden);
      std::vector<Tensor> inputs = lengths(20, 70);
      inputs.push_back(mask);
      expect_agrees(f, inputs, 4e-3);
    }
  }
}

}  // namespace
}  // namespace heddle::testing
