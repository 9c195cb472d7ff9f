// Bodies that many calls share: lowered, compiled and planned once, however many paths of calls lead to them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "engine/executable.h"
#include "heddle/heddle.h"
#include "ir/text.h"

namespace heddle::engine {
namespace {

/// Level k calls level k - 1 twice, so that 2^levels paths of calls lead from @main to @b0.
std::string doubling(int levels) {
  std::string text = fmt::format(
      "graph @main(%p: bool[], %x: f32[4]) {{\n  %y = cond(%p, %x) {{then = @b{}, else = @b0}} : "
      "f32[4]\n  return %y\n}}\n",
      levels);
  text += "graph @b0(%x: f32[4]) {\n  %y = cumsum(%x) {axis = 0}\n  return %y\n}\n";
  for (int k = 1; k <= levels; ++k)
    text += fmt::format(
        "graph @b{0}(%x: f32[4]) {{\n"
        "  %a = invoke(%x) {{body = @b{1}}} : f32[4]\n"
        "  %b = invoke(%a) {{body = @b{1}}} : f32[4]\n"
        "  return %b\n}}\n",
        k, k - 1);
  return text;
}

/// The programs nested in `program`, each once.
std::set<const jit::Program*> programs_in(const jit::Program& program) {
  std::set<const jit::Program*> found;
  std::vector<const jit::Program*> open{&program};
  while (!open.empty()) {
    const jit::Program* next = open.back();
    open.pop_back();
    for (const jit::ProgramKernel& kernel : next->kernels) {
      if (kernel.nested == nullptr) continue;
      for (const jit::NestedCall::Region& region : kernel.nested->regions)
        if (found.insert(region.program.get()).second) open.push_back(region.program.get());
    }
  }
  return found;
}

// Were there one for each path, forty levels would not fit into any memory.
TEST(SharedBodies, AreLoweredOnceHoweverManyPathsLeadToThem) {
  constexpr int kLevels = 40;
  const jit::Program program = jit::lower(ir::parse(doubling(kLevels)), {});
  EXPECT_EQ(programs_in(program).size(), kLevels + 1u);
}

/// What is nested in `unit`, each once: units, and plans at the sizes of `plan`.
void count(const Unit& unit, const BoundSteps& plan, std::set<const Unit*>& units,
           std::set<const BoundSteps*>& plans) {
  for (const auto& region : plan.regions) {
    if (region == nullptr) continue;
    for (const auto& nested : region->plans) {
      units.insert(nested->unit);
      if (plans.insert(nested.get()).second) count(*nested->unit, *nested, units, plans);
    }
  }
  EXPECT_EQ(plan.unit, &unit);
}

TEST(SharedBodies, ArePlannedAndBoundOnce) {
  constexpr int kLevels = 40;
  BuildOptions options;
  options.engine.check_plans = true;
  options.compiler = &jit::CompileService::shared();
  const auto executable =
      std::make_shared<Executable>(ir::parse(doubling(kLevels)), Guards{}, options);
  const auto plan = executable->bind({}, 1);
  std::set<const Unit*> units;
  std::set<const BoundSteps*> plans;
  count(executable->unit(), *plan, units, plans);
  EXPECT_EQ(units.size(), kLevels + 1u);
  EXPECT_EQ(plans.size(), kLevels + 1u);
  EXPECT_EQ(executable->distinct_kernels(), 1u);
}

TEST(SharedBodies, RunOnceForEachPath) {
  Engine engine = parse_ir(doubling(3), {.threads = 1});
  const Tensor p = Tensor::full(boolean, {}, 1);
  const Tensor x = Tensor::full(f32, {4}, 1);
  // cumsum eight times of ones: binomial coefficients.
  EXPECT_THAT(engine.run({p, x})[0].to_doubles(), ::testing::ElementsAre(1, 9, 45, 165));
}

// Bodies of one graph with different weights are units of their own, which fold what only their weights decide.
TEST(SharedBodies, WithDifferentWeightsAreUnitsOfTheirOwn) {
  const std::vector<Tensor> weights{Tensor::full(f32, {4}, 2), Tensor::full(f32, {4}, 3)};
  Engine engine([&](const Tensor& x) {
    const auto body = [](const Tensor& a, const Tensor& w) { return cumsum(a * cumsum(w, 0), 0); };
    Tensor y = x;
    for (const Tensor& w : {weights[0], weights[1], weights[0]})
      y = invoke(RegionOptions{.name = "layer"}, body, y, w);
    return y;
  });
  const Tensor x = Tensor::full(f32, {4}, 1);
  const auto layer = [](std::vector<double> a, double w) {
    for (std::size_t k = 0; k < a.size(); ++k) a[k] *= w * static_cast<double>(k + 1);
    for (std::size_t k = 1; k < a.size(); ++k) a[k] += a[k - 1];
    return a;
  };
  EXPECT_EQ(engine.run({x})[0].to_doubles(), layer(layer(layer({1, 1, 1, 1}, 2), 3), 2));
}

}  // namespace
}  // namespace heddle::engine
