// Sizes that only the run tells: of a branch that was taken, or of an op's results.
#include <gmock/gmock.h>
#include <thread>

#include "heddle/custom_op.h"
#include "tests/control_flow/support.h"

namespace heddle::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// One copy of x, or two.
Tensor once_or_twice(const Tensor& p, const Tensor& x) {
  return cond(p, [&] { return x * 3.0f; }, [&] { return concat({x, x + 1.0f}, 0); });
}

std::vector<float> elements(const Tensor& tensor) {
  const std::vector<double> numbers = tensor.to_doubles();
  return {numbers.begin(), numbers.end()};
}

/// The positive elements of a vector, in order.
const RegisteredOp& positive() {
  static const RegisteredOp op =
      register_op({.schema = "late::positive(Tensor x) -> Tensor",
                   .shape =
                       [](const ShapeCall& call) {
                         return std::vector{TensorType{call.tensor(0).dtype, {call.unbacked()}}};
                       },
                   .cpu =
                       [](const KernelCall& call) {
                         const auto* x = call.tensor(0).as<float>();
                         auto* out = call.results[0].as<float>();
                         for (std::int64_t k = 0; k < call.tensor(0).count(); ++k)
                           if (x[k] > 0) *out++ = x[k];
                       },
                   .sizes =
                       [](const KernelCall& call) {
                         const auto* x = call.tensor(0).as<float>();
                         std::int64_t count = 0;
                         for (std::int64_t k = 0; k < call.tensor(0).count(); ++k)
                           count += x[k] > 0 ? 1 : 0;
                         return std::vector<Sizes>{{count}};
                       }});
  return op;
}

TEST(LateSizes, OfABranchAreThoseOfTheGraphThatRan) {
  const auto f = [](const Tensor& p, const Tensor& x) {
    const Tensor y = once_or_twice(p, x);
    return std::pair(softmax(y * 0.5f, 0), sum(y, {0}));
  };
  for (const bool taken : {true, false})
    for (const std::int64_t rows : {1, 5, 0}) everywhere(f, {flag(taken), ramp({rows, 3})});
  Engine engine(f);
  const std::vector<Tensor> inputs{flag(false), ramp({4, 3})};
  EXPECT_THAT(engine.run(inputs)[0].sizes(), ElementsAre(8, 3));
  EXPECT_THAT(engine.run({flag(true), ramp({4, 3})})[0].sizes(), ElementsAre(4, 3));
  EXPECT_THAT(engine.run({flag(false), ramp({7, 3})})[0].sizes(), ElementsAre(14, 3));
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.compiles, 1u);
  EXPECT_EQ(stats.traces, 1u);
  EXPECT_EQ(stats.evaluator_steps, 0u);
}

TEST(LateSizes, NoKernelIsCompiledForASizeThatWasNeverSeen) {
  Engine engine([](const Tensor& x) { return exp(positive()(x)[0]) * 2.0f; },
                {.disk_cache = false});
  for (const std::int64_t count : {3, 17, 100, 0, 1}) {
    const Tensor got = engine.run({Tensor::full(f32, {count}, 1.0)})[0];
    EXPECT_THAT(got.sizes(), ElementsAre(count));
    for (const double value : got.to_doubles()) EXPECT_NEAR(value, 2 * std::exp(1.0), 1e-5);
    static std::uint64_t compiled = engine.stats().kernels_compiled;
    EXPECT_EQ(engine.stats().kernels_compiled, compiled);
  }
  EXPECT_EQ(engine.stats().compiles, 1u);
}

TEST(LateSizes, OneAfterAnother) {
  const auto f = [](const Tensor& x, const Tensor& w) {
    const Tensor a = positive()(x)[0];         // u0
    const Tensor b = positive()(a - 2.0f)[0];  // u1
    const Tensor c = concat({a, b, x}, 0);     // u0 + u1 + s0
    return std::vector{a + 1.0f, b * b, c, matmul(unsqueeze(b, 1), unsqueeze(w, 0))};
  };
  for (const auto& x :
       {numbers({1, -1, 2, 3, 4}), numbers({-1, -2}), numbers({1, 2, 1}), numbers({9, 9})})
    everywhere(f, {x, numbers({1, 2, 3})});
}

TEST(LateSizes, WhereOnlyTheSizeIsUsed) {
  const auto f = [](const Tensor& x) {
    const SymInt count = positive()(x)[0].size(0);
    return std::pair(iota({count}, 0, f32) * 2.0f, size_tensor(count * 3));
  };
  const std::vector<Tensor> got = everywhere(f, {numbers({1, -1, 2, 3})});
  EXPECT_THAT(got[0].to_doubles(), ElementsAre(0, 2, 4));
  EXPECT_THAT(got[1].to_doubles(), ElementsAre(9));
}

TEST(LateSizes, InLoops) {
  // Lowered by their mean until the sum of the positive ones is small.
  const auto lowered = [](const Tensor& x) {
    return while_loop(
        x, [](const Tensor& y) { return greater(sum(positive()(y)[0]), 3.0f); },
        [](const Tensor& y) { return y - sum(positive()(y)[0]) / 8.0f; });
  };
  everywhere(lowered, {numbers({5, -1, 2, 3})});
  everywhere(lowered, {numbers({1, -1})});
  const auto sums = [](const Tensor& x) {
    return scan(Tensor::full(f32, {}, 0.0), x,
                [](const Tensor& total, const Tensor& row) {
                  const Tensor kept = positive()(row)[0];
                  return std::pair(total + sum(kept), amax(concat({kept, numbers({0.5})}, 0)));
                })
        .second;
  };
  everywhere(sums, {Tensor::of<float>({1, -2, 3, -4, -5, -6, 7, 8, 9}, {3, 3})});
}

TEST(LateSizes, OfABranchThatFindsThemItself) {
  const auto f = [](const Tensor& p, const Tensor& x) {
    const auto [kept, total, plain] = cond(
        p,
        [&] {
          const Tensor a = positive()(x)[0];
          const Tensor b = positive()(a - 1.0f)[0];
          return std::tuple(concat({a, b}, 0), sum(a), b + 0.5f);
        },
        [&] { return std::tuple(x * 2.0f, sum(x), x); });
    return std::tuple(kept + 1.0f, total, exp(plain), concat({kept, plain}, 0));
  };
  for (const bool taken : {true, false})
    for (const auto& x : {numbers({1, -1, 2, 3}), numbers({-1, -2, -3}), numbers({4})})
      everywhere(f, {flag(taken), x});
}

TEST(LateSizes, OfEachCallOfARegion) {
  const auto f = [](const Tensor& x) {
    const auto kept = [](const Tensor& y) { return positive()(y)[0] * 2.0f; };
    const Tensor a = invoke({.name = "kept"}, kept, x);
    const Tensor b = invoke({.name = "kept"}, kept, a - 3.0f);
    return std::tuple(a, b, concat({a, b}, 0));
  };
  const std::vector<Tensor> got = everywhere(f, {numbers({1, -1, 2, 3})});
  EXPECT_THAT(elements(got[0]), ElementsAre(2, 4, 6));
  EXPECT_THAT(elements(got[1]), ElementsAre(2, 6));
  EXPECT_THAT(elements(got[2]), ElementsAre(2, 4, 6, 2, 6));
}

}  // namespace
}  // namespace heddle::testing
