// Bodies that many calls share: lowered, compiled and planned once, however many paths of calls lead to them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "engine/executable.h"
#include "heddle/heddle.h"
#include "ir/structural_key.h"
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

/// A graph that finds a size at run time before it calls `levels` of doubling.
std::string late_doubling(int levels) {
  std::string text = doubling(levels);
  const std::string call = "  %y = cond(";
  text.insert(text.find(call), "  %c = cond(%p, %x) {then = @l1, else = @l2} : f32[u0]\n");
  return text +
         "graph @l1(%x: f32[4]) {\n  %y = exp(%x)\n  return %y\n}\n"
         "graph @l2(%x: f32[4]) {\n  %y = concat(%x, %x) {axis = 0}\n  return %y\n}\n";
}

TEST(SharedBodies, HaveTheirKeyOnceBesideLateSizes) {
  const base::Hash128 key = ir::body_key(ir::parse(late_doubling(60)));
  EXPECT_EQ(key, ir::body_key(ir::parse(late_doubling(60))));
  EXPECT_NE(key, ir::body_key(ir::parse(late_doubling(59))));
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

// Nor would frames for each path: there is one for each call in each body.
TEST(SharedBodies, HaveFramesForEachCallOnce) {
  Engine engine = parse_ir(doubling(40), {.threads = 1});
  const Tensor p = Tensor::full(boolean, {}, 0);
  const Tensor x = Tensor::full(f32, {4}, 1);
  EXPECT_THAT(engine.run({p, x})[0].to_doubles(), ::testing::ElementsAre(1, 2, 3, 4));
  const std::string plan = engine.plan_json(std::vector{p, x});
  EXPECT_LT(plan.size(), 1'000'000u) << "and is described once";
}

/// Bodies with memory of their own that are called from bodies, a loop and branches, at different places of it.
constexpr const char* kManyPaths = R"(
graph @main(%p: bool[], %x: f32[6], %k: f32[1]) {
  %a = invoke(%x) {body = @outer} : f32[6]
  %b = cumsum(%a) {axis = 0}
  %c = invoke(%b) {body = @outer} : f32[6]
  %d = cond(%p, %c) {then = @outer, else = @inner} : f32[6]
  %n, %e = while_loop(%k, %d) {condition = @more, body = @step, carried = 2} : f32[1], f32[6]
  %f = invoke(%e) {body = @inner} : f32[6]
  return %a, %c, %d, %e, %f
}
graph @outer(%x: f32[6]) {
  %t = cumsum(%x) {axis = 0}
  %u = invoke(%t) {body = @inner} : f32[6]
  %v = invoke(%u) {body = @inner} : f32[6]
  %w = cumsum(%v) {axis = 0, reverse = true}
  %y = add(%w, %t)
  %z = tanh(%y)
  return %z
}
graph @inner(%x: f32[6]) {
  %a = cumsum(%x) {axis = 0}
  %b = invoke(%a) {body = @leaf} : f32[6]
  %c = cumsum(%b) {axis = 0, reverse = true}
  %d = add(%c, %a)
  %e = tanh(%d)
  return %e
}
graph @leaf(%x: f32[6]) {
  %a = cumsum(%x) {axis = 0}
  %b = cumsum(%a) {axis = 0, reverse = true}
  %c = sub(%a, %b)
  %d = cumsum(%c) {axis = 0}
  return %d
}
graph @more(%k: f32[1], %x: f32[6]) {
  %y = invoke(%x) {body = @leaf} : f32[6]
  %z = mul(%y, 0.0: f32)
  %s = reduce_sum(%z) {axes = [0]}
  %t = reduce_sum(%k) {axes = [0]}
  %u = add(%s, %t)
  %m = lt(%u, 4.0: f32)
  return %m
}
graph @step(%k: f32[1], %x: f32[6]) {
  %n = add(%k, 1.0: f32)
  %y = invoke(%x) {body = @inner} : f32[6]
  %z = invoke(%y) {body = @outer} : f32[6]
  return %n, %z
}
)";

TEST(SharedBodies, AreRightOnEveryPath) {
  Engine reference = parse_ir(kManyPaths, {.device = Device::reference()});
  for (const int threads : {1, 3}) {
    Engine engine = parse_ir(kManyPaths, {.threads = threads, .check_plans = true});
    for (const bool taken : {true, false, true}) {
      const Tensor x = Tensor::of<float>({1, -2, 3, -1, 0.5, 2}, {6});
      const std::vector inputs{Tensor::full(boolean, {}, taken), x, Tensor::full(f32, {1}, 0)};
      const auto want = reference.run(inputs);
      const auto got = engine.run(inputs);
      for (std::size_t k = 0; k < want.size(); ++k)
        EXPECT_THAT(got[k].to_doubles(),
                    ::testing::Pointwise(::testing::DoubleNear(1e-4), want[k].to_doubles()))
            << threads << ", output " << k;
    }
  }
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
