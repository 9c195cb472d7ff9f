// A build with every option off: the evaluator runs where it is asked for, and each part that is not
// there is a typed error that names its option.
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "heddle/heddle.h"
#include "heddle/onnx.h"

namespace hd = heddle;

namespace {

hd::Tensor twice_and_one(const hd::Tensor& x) { return x * 2 + 1; }

template <typename F>
std::string unsupported(F&& action) {
  try {
    action();
  } catch (const hd::UnsupportedError& error) {
    return error.what();
  }
  return "no error";
}

void expect_names(const std::string& message, const std::string& option) {
  EXPECT_NE(message.find(option), std::string::npos) << message;
}

}  // namespace

TEST(Minimal, ReferenceDeviceRuns) {
  hd::Engine engine(twice_and_one, {.device = hd::Device::reference()});
  const auto out = engine.run({hd::Tensor::full(hd::f32, {2, 3}, 4)});
  EXPECT_EQ(out[0].to_doubles(), std::vector<double>(6, 9.0));
  EXPECT_GT(engine.stats().evaluator_steps, 0u);
}

TEST(Minimal, CpuNamesTheOptionAndTheWayOut) {
  hd::Engine engine(twice_and_one, {.device = hd::Device::cpu()});
  for (int time = 0; time < 2; ++time) {
    const std::string message =
        unsupported([&] { engine.run({hd::Tensor::full(hd::f32, {2, 3}, 4)}); });
    expect_names(message, "HEDDLE_WITH_LLVM");
    expect_names(message, "Device::reference()");
  }
  EXPECT_EQ(engine.stats().compiles, 0u);
  EXPECT_EQ(engine.stats().evaluator_steps, 0u);
}

#if !HEDDLE_WITH_ONNX
TEST(Minimal, OnnxNamesTheOption) {
  expect_names(unsupported([] { hd::onnx::load("model.onnx"); }), "HEDDLE_WITH_ONNX");
  expect_names(unsupported([] { hd::onnx::load_bytes("", 0); }), "HEDDLE_WITH_ONNX");
  expect_names(unsupported([] { hd::onnx::load_tensor("x.pb"); }), "HEDDLE_WITH_ONNX");
}
#endif

/// What is made of weights alone is made once, by the device itself.
TEST(Minimal, CudaPreparesConstantsOnce) {
  const hd::Tensor weights = hd::Tensor::full(hd::f32, {4, 6}, 0.5);
  const auto f = [=](const hd::Tensor& x) {
    return hd::matmul(x, hd::cumsum(hd::exp(weights), 1));
  };
  hd::Engine engine(f, {.device = hd::Device::cuda_sim()});
  hd::Engine reference(f, {.device = hd::Device::reference()});
  const hd::Tensor x = hd::Tensor::full(hd::f32, {2, 4}, 3);
  const auto got = engine.run({x})[0].to_doubles();
  const auto want = reference.run({x})[0].to_doubles();
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t k = 0; k < got.size(); ++k) EXPECT_NEAR(got[k], want[k], 1e-4) << k;
  const std::string plan = engine.plan_json(std::vector<hd::Tensor>{x});
  EXPECT_EQ(plan.find("\"folded_steps\": 0"), std::string::npos) << plan;
  EXPECT_NE(plan.find("\"folded_steps\""), std::string::npos) << plan;
}
