// Times of single steps: each step that a run launches, once, with its bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdexcept>

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

const StepTime& only(const std::vector<StepTime>& steps, const std::string& kernel) {
  const auto found = std::ranges::find(steps, kernel, &StepTime::kernel);
  if (found == steps.end()) throw std::runtime_error("no step " + kernel);
  return *found;
}

/// Steps of what a step runs, with how often they ran, and bytes of all those runs: of a scan, of a loop that only its run counts, and of
/// a branch in that. None is left told when it is over.
TEST_F(Profile, TellsWhatIsInsideOfBranchesAndLoops) {
  using State = std::pair<Tensor, Tensor>;
  const auto f = [](const Tensor& x, const Tensor& w, const Tensor& n) {
    const Tensor sums =
        scan(x, w, [](const Tensor& c, const Tensor& row) { return std::pair(c + row, c); }).second;
    const State grown = while_loop(
        State(slice(sums, 0, 0, 1), n), [](const State& s) { return greater(s.second, 0); },
        [](const State& s) {
          const Tensor last = cond(
              greater(s.second, 2), [&] { return cumsum(s.first, 1); },
              [&] { return s.first * 2.0f; });
          return State(concat({s.first, slice(last, 0, 0, 1)}, 0), s.second - 1);
        });
    return grown.first;
  };
  Engine engine(f, {.threads = 1});
  const std::vector<Tensor> inputs{Tensor::full(f32, {8}, 1), Tensor::full(f32, {5, 8}, 0.5),
                                   Tensor::scalar_int(i64, 4)};
  const std::vector<StepTime> steps = engine.profile(inputs, 3);
  const StepTime& over_rows = only(steps, "scan");
  EXPECT_EQ(over_rows.runs, 1);
  for (const StepTime& inside : over_rows.inside) {
    EXPECT_EQ(inside.runs, 5) << inside.kernel;
    EXPECT_GT(inside.microseconds, 0);
  }
  EXPECT_FALSE(over_rows.inside.empty());
  const StepTime& loop = only(steps, "while_loop");
  const StepTime& appends = only(loop.inside, "slice_scatter");
  EXPECT_EQ(appends.runs, 4);
  EXPECT_GT(appends.bytes, 0);
  const StepTime& branch = only(loop.inside, "cond");
  EXPECT_EQ(branch.runs, 4);
  EXPECT_EQ(only(branch.inside, "cumsum").runs, 2);
  EXPECT_EQ(branch.inside.size(), 2u);
  for (const StepTime& step : engine.profile(inputs, 1, heddle::Profile::Shares))
    EXPECT_TRUE(step.inside.empty());
}

/// A loop whose iterations are counted by its run is shared as its steps are.
TEST_F(Profile, TellsWhatSharesOfALoopTake) {
  const auto f = [](const Tensor& x, const Tensor& w, const Tensor& n) {
    using State = std::pair<Tensor, Tensor>;
    return scan_while(
               State(x, n), [](const State& s) { return greater(s.second, 0); },
               [&](const State& s) {
                 const Tensor y = softmax(matmul(s.first, w), -1);
                 return std::pair(State(y, s.second - 1), sum(y));
               })
        .second;
  };
  Engine engine(f, {.threads = 8});
  const std::vector<StepTime> steps =
      engine.profile(std::vector{Tensor::full(f32, {256, 256}, 0.5),
                                 Tensor::full(f32, {256, 256}, 0.01), Tensor::scalar_int(i64, 4)},
                     5, heddle::Profile::Shares);
  const StepTime& loop = only(steps, "while_loop");
  EXPECT_LT(loop.shared_microseconds, loop.microseconds);
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
