// Random programs of custom ops that write arguments, views of them, and plain ops: compiled, step by step
// with freed bytes overwritten, and on the reference device, in every order of steps.
#include <gtest/gtest.h>
#include <random>

#include "tests/api/custom/ops.h"

namespace hd = heddle;

namespace {

/// A program over two inputs [3, 4], the same at every trace.
std::vector<hd::Tensor> program(std::uint32_t seed, const hd::Tensor& x, const hd::Tensor& y) {
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  std::vector<hd::Tensor> pool{x, y, x + 1.0f};
  const auto pick = [&]() -> hd::Tensor { return pool[below(pool.size())]; };
  // A tensor, or a view of one that has the same sizes when `sizes` agree.
  const auto target = [&](int kind) {
    const hd::Tensor base = pick();
    if (kind == 0) return base;
    if (kind == 1) return hd::slice(base, 0, 1, 3);
    return hd::transpose(base, 0, 1);
  };
  const std::size_t length = 3 + below(6);
  for (std::size_t k = 0; k < length; ++k) {
    const int kind = static_cast<int>(below(3));
    switch (below(6)) {
      case 0:
        pool.push_back(pick() + pick());
        break;
      case 1:
        pool.push_back(pick() * 0.5f);
        break;
      case 2:
        pool.push_back(hd::test::accumulate()(pick(), pick())[0]);
        break;
      case 3:
        hd::test::increment()(target(kind));
        break;
      case 4:
        hd::test::swap()(target(kind), target(kind));
        break;
      default:
        pool.push_back(hd::test::halves()(pick())[below(2)]);
        break;
    }
  }
  std::vector<hd::Tensor> results{pick(), pick()};
  if (below(2) == 0) results.push_back(pool.back());
  return results;
}

hd::Tensor filled(float start) {
  hd::Tensor tensor = hd::Tensor::empty(hd::f32, {3, 4});
  for (std::int64_t k = 0; k < 12; ++k)
    tensor.data_as<float>()[k] = start + static_cast<float>(k) / 4;
  return tensor;
}

struct Outcome {
  std::vector<std::vector<double>> values;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome outcome(const std::vector<hd::Tensor>& outputs, const std::vector<hd::Tensor>& inputs) {
  Outcome result;
  for (const hd::Tensor& tensor : outputs) result.values.push_back(tensor.to_doubles());
  for (const hd::Tensor& tensor : inputs) result.values.push_back(tensor.to_doubles());
  return result;
}

}  // namespace

TEST(CustomRandom, WritesAgreeWithTheReferenceInEveryOrder) {
  std::int64_t overwritten = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    const auto f = [seed](const hd::Tensor& x, const hd::Tensor& y) { return program(seed, x, y); };
    hd::EngineOptions options;
    options.device = hd::Device::reference();
    std::vector<hd::Tensor> inputs{filled(1), filled(-2)};
    const auto wanted_outputs = hd::Engine(f, options).run(inputs);
    const Outcome wanted = outcome(wanted_outputs, inputs);
    options.device = hd::Device::cpu();
    for (const hd::StepOrder order : {hd::StepOrder::Smallest, hd::StepOrder::Dfs}) {
      options.order = order;
      hd::Engine engine(f, options);
      inputs = {filled(1), filled(-2)};
      const auto outputs = engine.run(inputs);
      ASSERT_EQ(outcome(outputs, inputs), wanted) << "seed " << seed << "\n"
                                                  << engine.graph_text(inputs);
      inputs = {filled(1), filled(-2)};
      std::vector<hd::Tensor> traced;
      engine.run_trace(inputs, &traced);
      ASSERT_EQ(outcome(traced, inputs), wanted)
          << "seed " << seed << ", with freed bytes overwritten\n"
          << engine.graph_text(inputs);
      overwritten += engine.plan_json(inputs).find("\"clone\"") == std::string::npos ? 1 : 0;
    }
  }
  EXPECT_GT(overwritten, 20);  // programs that need no copy
}
