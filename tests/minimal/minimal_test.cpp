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
