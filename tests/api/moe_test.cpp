// The example's mixture of experts: right, counting, and with its routing results freed early.
#include <gtest/gtest.h>

#include "examples/moe/layer.h"

namespace hd = heddle;

namespace {

hd::Tensor rows(std::int64_t count, std::int64_t width) {
  hd::Tensor x = hd::Tensor::empty(hd::f32, {count, width});
  for (std::int64_t k = 0; k < x.count(); ++k)
    x.data_as<float>()[k] = static_cast<float>((k * 7919 + 13) % 997) / 997 - 0.5f;
  return x;
}

hd::Engine engine_on(hd::Device device) {
  hd::EngineOptions options;
  options.device = device;
  options.threads = 1;
  return hd::Engine([layer = example::MoeLayer(4)](
                        const hd::Tensor& x, const hd::Tensor& counts) { return layer(x, counts); },
                    options);
}

}  // namespace

TEST(Moe, AgreesWithTheReferenceAndCounts) {
  hd::Engine compiled = engine_on(hd::Device::cpu());
  hd::Engine reference = engine_on(hd::Device::reference());
  const hd::Tensor counts = hd::Tensor::zeros(hd::i64, {4});
  const hd::Tensor expected = hd::Tensor::zeros(hd::i64, {4});
  for (const std::int64_t n : {3, 5}) {
    const auto got = compiled.run({rows(n, 64), counts})[0].to_doubles();
    const auto want = reference.run({rows(n, 64), expected})[0].to_doubles();
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t k = 0; k < got.size(); ++k) EXPECT_NEAR(got[k], want[k], 1e-4);
    EXPECT_EQ(counts.to_doubles(), expected.to_doubles());
  }
  double picked = 0;
  for (const double count : counts.to_doubles()) picked += count;
  EXPECT_EQ(picked, 2 * (3 + 5));
}

TEST(Moe, EachRowGoesThroughTheExpertsItPicked) {
  const example::MoeLayer layer(4);
  const hd::Tensor x = rows(6, 64);
  const hd::Tensor counts = hd::Tensor::zeros(hd::i64, {4});
  const auto picked = example::routing_op()(hd::matmul(x, layer.gate), counts, layer.k);
  const std::vector<double> shares = picked[0].to_doubles();
  const std::vector<double> experts = picked[1].to_doubles();
  std::vector<double> expected(6 * 64);
  for (std::int64_t choice = 0; choice < 6 * layer.k; ++choice) {
    const std::int64_t row = choice / layer.k;
    const auto expert = static_cast<std::int64_t>(experts[static_cast<std::size_t>(choice)]);
    const auto of = [&](const hd::Tensor& all) {
      return hd::squeeze(hd::slice(all, 0, expert, expert + 1), 0);
    };
    const hd::Tensor inner = hd::gelu(hd::matmul(hd::slice(x, 0, row, row + 1), of(layer.up)));
    const std::vector<double> out = hd::matmul(inner, of(layer.down)).to_doubles();
    for (std::size_t k = 0; k < out.size(); ++k)
      expected[static_cast<std::size_t>(row) * 64 + k] +=
          shares[static_cast<std::size_t>(choice)] * out[k];
  }
  hd::Engine engine = engine_on(hd::Device::cpu());
  const auto got = engine.run({x, hd::Tensor::zeros(hd::i64, {4})})[0].to_doubles();
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t k = 0; k < got.size(); ++k) EXPECT_NEAR(got[k], expected[k], 1e-4);
}

TEST(Moe, RoutingResultsAreFreedBeforeTheLastExpert) {
  hd::Engine engine = engine_on(hd::Device::cpu());
  const std::vector inputs{rows(32, 64), hd::Tensor::zeros(hd::i64, {4})};
  const auto events = engine.run_trace(inputs);
  std::size_t routed = 0;
  for (const hd::RunEvent& event : events)
    if (event.kind == hd::RunEvent::Kind::Launch && event.value == "moe::route")
      routed = event.step;
  std::vector<std::string> results;
  std::size_t freed = 0;
  for (const hd::RunEvent& event : events) {
    const bool taken = event.kind == hd::RunEvent::Kind::Alloc;
    if (taken && event.step == routed) results.push_back(event.value);
    if (event.kind == hd::RunEvent::Kind::Free &&
        std::find(results.begin(), results.end(), event.value) != results.end())
      freed = std::max(freed, event.step);
  }
  EXPECT_EQ(results.size(), 2u);
  EXPECT_GT(freed, routed);
  EXPECT_LT(freed, events.back().step);
}
