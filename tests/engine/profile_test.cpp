// Times of single steps: each step that a run launches, once, with its bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "heddle/error.h"
#include "heddle/heddle.h"

namespace heddle::testing {
namespace {

using ::testing::ElementsAreArray;

std::vector<std::string> launches_of(const std::vector<RunEvent>& events) {
  std::vector<std::string> names;
  for (const RunEvent& event : events)
    if (event.kind == RunEvent::Kind::Launch) names.push_back(event.value);
  return names;
}

/// Profiles what `run_trace` launches, step by step.
void expect_every_launch(Engine& engine, const std::vector<Tensor>& inputs) {
  const std::vector<StepTime> steps = engine.profile(inputs, 3);
  std::vector<std::string> names;
  for (std::size_t k = 0; k < steps.size(); ++k) {
    names.push_back(steps[k].kernel);
    EXPECT_EQ(steps[k].step, k);
    EXPECT_GT(steps[k].microseconds, 0);
    EXPECT_GT(steps[k].bytes, 0);
  }
  EXPECT_THAT(names, ElementsAreArray(launches_of(engine.run_trace(inputs))));
}

class Profile : public ::testing::Test {
 protected:
  void SetUp() override {
    if (HEDDLE_WITH_LLVM == 0) GTEST_SKIP() << "this build compiles nothing for the CPU";
  }
};

TEST_F(Profile, TellsEachStepWithItsBytesAndWork) {
  Engine engine([](const Tensor& x, const Tensor& w) { return softmax(matmul(x, w), -1); },
                {.threads = 2});
  const std::vector<Tensor> inputs{Tensor::full(f32, {8, 32}, 0.5), Tensor::full(f32, {32, 16}, 1)};
  expect_every_launch(engine, inputs);
  const std::vector<StepTime> steps = engine.profile(inputs);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].bytes, 4 * (8 * 32 + 32 * 16 + 8 * 16));
  EXPECT_GE(steps[0].work, 2 * 8 * 32 * 16);
  EXPECT_EQ(steps[1].bytes, 4 * 2 * 8 * 16);
  EXPECT_EQ(engine.stats().runs, 3u + 20u + 1u);
}

/// The same results, and of each step what the longest of its threads' shares takes.
TEST_F(Profile, TellsWhatSharesTake) {
  const auto layer = [](const Tensor& x, const Tensor& w) { return softmax(matmul(x, w), -1); };
  Engine engine(layer, {.threads = 8});
  const std::vector<Tensor> inputs{Tensor::full(f32, {256, 64}, 0.5),
                                   Tensor::full(f32, {64, 512}, 1)};
  const std::vector<StepTime> steps = engine.profile(inputs, 5, heddle::Profile::Shares);
  ASSERT_EQ(steps.size(), 2u);
  for (const StepTime& step : steps) {
    EXPECT_GT(step.shared_microseconds, 0);
    EXPECT_LT(step.shared_microseconds, step.microseconds) << step.kernel;
  }
  EXPECT_EQ(engine.profile(inputs, 1)[0].shared_microseconds, 0);
  Engine alone(layer, {.threads = 1});
  for (const StepTime& step : alone.profile(inputs, 1, heddle::Profile::Shares))
    EXPECT_EQ(step.shared_microseconds, step.microseconds);
}

/// The second phase is bound when the first has told its sizes.
TEST_F(Profile, GoesThroughPhases) {
  Engine engine([](const Tensor& x) { return nonzero(x) * 2 + 1; }, {.threads = 1});
  expect_every_launch(engine, {Tensor::of<float>({0, 1, 0, 2, 3}, {5})});
}

TEST_F(Profile, RefusesWhatItCannotTime) {
  Engine engine([](const Tensor& x) { return x + 1; });
  const std::vector<Tensor> inputs{Tensor::full(f32, {4}, 0)};
  try {
    engine.profile(inputs, 0);
    FAIL();
  } catch (const ArgumentError& error) {
    EXPECT_STREQ(error.what(), "profile: runs: expected at least 1, got 0");
  }
  Engine reference([](const Tensor& x) { return x + 1; }, {.device = Device::reference()});
  EXPECT_THROW(reference.profile(inputs), DeviceError);
}

}  // namespace
}  // namespace heddle::testing
