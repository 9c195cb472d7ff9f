// Loops that overwrite a part of what they carry where it lies.
#include <gmock/gmock.h>

#include "tests/control_flow/updating_programs.h"

namespace heddle::testing {
namespace {

using ::testing::Contains;
using ::testing::Not;

auto over_span(std::vector<Tensor> (*f)(std::span<const Tensor>)) {
  return [f](std::span<const Tensor> inputs) { return f(inputs); };
}

TEST(UpdatingLoop, OfEachProgram) {
  for (const LateProgram& program : updating_programs()) {
    SCOPED_TRACE(program.name);
    for (const std::vector<Tensor>& call : program.calls) {
      std::vector<Tensor> given;
      for (const Tensor& input : call) given.push_back(input.clone());
      const std::vector<Tensor> got = everywhere(program.function, given);
      const bool runs = call.size() < 3 || call[2].item() != 0;  // else no element tells its sizes
      const std::vector<Tensor> eager = runs ? program.function(call) : got;
      ASSERT_EQ(got.size(), eager.size());
      for (std::size_t k = 0; k < got.size(); ++k) {
        const std::vector<double> a = got[k].to_doubles(), b = eager[k].to_doubles();
        ASSERT_EQ(a.size(), b.size()) << k;
        for (std::size_t i = 0; i < a.size(); ++i)
          EXPECT_NEAR(a[i], b[i], 1e-4 * (1 + std::abs(b[i]))) << k << ", " << i;
      }
      for (std::size_t k = 0; k < given.size(); ++k)
        EXPECT_EQ(given[k].to_doubles(), call[k].to_doubles()) << "the caller's own";
    }
  }
}

std::vector<std::string> kernels_inside(const std::vector<StepTime>& steps) {
  std::vector<std::string> names;
  for (const StepTime& step : steps) {
    for (const StepTime& inside : step.inside) names.push_back(inside.kernel);
    for (const std::string& name : kernels_inside(step.inside)) names.push_back(name);
  }
  return names;
}

std::vector<std::string> kernels_inside(std::vector<Tensor> (*f)(std::span<const Tensor>),
                                        const std::vector<Tensor>& call) {
  Engine engine(over_span(f), {.threads = 1});
  return kernels_inside(engine.profile(call, 1));
}

TEST(UpdatingLoop, CopiesNothingInAnIteration) {
  if (HEDDLE_WITH_LLVM == 0) GTEST_SKIP() << "this build compiles nothing for the CPU";
  const std::vector<Tensor> call{ramp({5, 3}), numbers({1, 2, 3}), count_of(4)};
  for (auto* f : {fill_rows, fill_two, fill_beside_growth})
    EXPECT_THAT(kernels_inside(f, call), Not(Contains("clone")));
  const std::vector<Tensor> pair(call.begin(), call.begin() + 2);
  EXPECT_THAT(kernels_inside(fill_in_a_scan, pair), Not(Contains("clone")));
  EXPECT_THAT(kernels_inside(fill_and_keep, pair), Contains("clone"));
}

/// What is appended to is written behind what there is.
TEST(UpdatingLoop, AppendsWhereItLies) {
  if (HEDDLE_WITH_LLVM == 0) GTEST_SKIP() << "this build compiles nothing for the CPU";
  const std::vector<Tensor> decoded{ramp({1, 8}) * 0.1f, ramp({3, 8}), ramp({3, 8}),
                                    ramp({8, 8}) * 0.1f, count_of(3)};
  for (const auto& names : {kernels_inside(append_sums, {numbers({1, 2}), count_of(3)}),
                            kernels_inside(decode, decoded)}) {
    EXPECT_THAT(names, Contains(::testing::StartsWith("slice_scatter")));
    EXPECT_THAT(names, Not(Contains(::testing::HasSubstr("concat"))));
    EXPECT_THAT(names, Not(Contains("clone")));
  }
  // The condition reads the list, which has to be one.
  const std::vector<std::string> read = kernels_inside(
      [](std::span<const Tensor> in) {
        return std::vector{while_loop(
            in[0], [](const Tensor& s) { return less(sum(s), 10.0f); },
            [](const Tensor& s) { return concat({s, s * 0.0f + 2.0f}, 0); })};
      },
      {numbers({1, 2})});
  EXPECT_THAT(read, Contains(::testing::HasSubstr("concat")));
}

TEST(UpdatingLoop, HasNoSecondPlaceForIt) {
  if (HEDDLE_WITH_LLVM == 0) GTEST_SKIP() << "this build compiles nothing for the CPU";
  const std::vector<Tensor> call{ramp({512, 64}), ramp({64}), count_of(4)};
  Engine engine([](const Tensor& x, const Tensor& row, const Tensor& n) {
    return fill_rows(std::vector{x, row, n})[0];
  });
  engine.run(call);
  EXPECT_LT(engine.stats().arena_peak_bytes, 512u * 64 * 4);
}

}  // namespace
}  // namespace heddle::testing
