// Sizes that only the run tells: of a branch that was taken, or of an op's results.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <gmock/gmock.h>
#include <thread>

#include "tests/control_flow/late_programs.h"
#include "tests/support/json.h"

namespace heddle::testing {
namespace {

using test::Json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> elements(const Tensor& tensor) {
  const std::vector<double> numbers = tensor.to_doubles();
  return {numbers.begin(), numbers.end()};
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

TEST(LateSizes, OfEachProgram) {
  for (const LateProgram& program : late_programs()) {
    SCOPED_TRACE(program.name);
    for (const std::vector<Tensor>& call : program.calls) everywhere(program.function, call);
  }
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

/// A copy of x; counts how often it is bound to sizes.
std::atomic<int> copies_bound = 0;
Tensor counted_copy(const Tensor& x) {
  static const RegisteredOp op =
      register_op({.schema = "late::counted_copy(Tensor x) -> Tensor",
                   .shape = [](const ShapeCall& call) { return std::vector{call.tensor(0)}; },
                   .cpu =
                       [](const KernelCall& call) {
                         std::copy_n(call.tensor(0).as<const float>(), call.tensor(0).count(),
                                     call.results[0].as<float>());
                       },
                   .workspace_bytes =
                       [](const KernelCall&) {
                         ++copies_bound;
                         return std::int64_t{64};
                       }});
  return op(x)[0];
}

/// How often copies are bound in each of three runs of `f` on `inputs`.
template <typename F>
std::vector<int> binds_of_runs(F f, const std::vector<Tensor>& inputs) {
  everywhere(f, inputs);
  Engine engine(f, {.threads = 1});
  std::vector<int> binds;
  for (int run = 0; run < 3; ++run) {
    const int before = copies_bound;
    engine.run(inputs);
    binds.push_back(copies_bound - before);
  }
  return binds;
}

// Eight paths of calls lead to the body, and all are told the same size.
TEST(LateSizes, OfASharedBodyAreBoundOnceForAllItsUses) {
  const auto once = [](const Tensor& x) {
    return x + sum(counted_copy(positive()(x)[0]), {0}, true) * 0.5f;
  };
  const auto twice = [&](const auto& body) {
    return [&body](const Tensor& x) {
      return invoke({.name = "g"}, body, invoke({.name = "g"}, body, x));
    };
  };
  const auto f = twice(once);
  const auto g = twice(f);
  EXPECT_THAT(binds_of_runs(twice(g), {numbers({1, 2, 3})}), ElementsAre(1, 0, 0));
}

// What runs of a body before the sizes of its results are known is bound by the first request, and by no later one.
TEST(LateSizes, ThatABodyTellsAreBoundOnceForAllRequests) {
  const auto body = [](const Tensor& x) { return positive()(counted_copy(x) - 1.0f)[0]; };
  const auto f = [&](const Tensor& x) {
    return invoke({.name = "g"}, body, invoke({.name = "g"}, body, x));
  };
  EXPECT_THAT(binds_of_runs(f, {numbers({1, 2, 3, 4})}), ElementsAre(::testing::Gt(0), 0, 0));
}

/// What the trace of `f` on `inputs` is refused with.
template <typename F>
std::string refused(F f, const std::vector<Tensor>& inputs) {
  Engine engine(f);
  try {
    engine.run(inputs);
  } catch (const TraceError& error) {
    return error.what();
  }
  return "no TraceError";
}

/// What a run on `device` is refused with; nothing if it is not.
template <typename F>
std::string refused_by(F f, const std::vector<Tensor>& inputs, Device device) {
  Engine engine(f, {.device = device});
  std::string text;
  try {
    engine.run(inputs);
  } catch (const ShapeError& error) {
    text = error.what();
  }
  return text;
}

constexpr auto kAllButTwo = [](const Tensor& x) {
  return iota({positive()(x)[0].size(0) - 2}, 0, f32);
};

// What is computed from a size that the run tells may be below 0, whether it lies in memory or in no kernel's result.
TEST(LateSizes, ThatComeOutNegativeAreRefusedByOpAndLine) {
  const auto in_memory = kAllButTwo;
  const auto in_a_kernel = [](const Tensor& x) { return sum(kAllButTwo(x)); };
  const auto in_a_body = [](const Tensor& x) {
    return invoke({.name = "g"}, [](const Tensor& y) { return sum(kAllButTwo(y)); }, x);
  };
  const auto iterations = [](const Tensor& x) {
    const auto body = [](const Tensor& c, std::tuple<>) { return std::pair(c + 1.0f, 0); };
    return scan(sum(x), std::tuple<>(), body, {.length = positive()(x)[0].size(0) - 2}).first;
  };
  const std::vector<std::pair<std::function<Tensor(const Tensor&)>, const char*>> programs{
      {in_memory, "iota: sizes of the result at "},
      {in_a_kernel, "iota: sizes of the result at "},
      {in_a_body, "iota: sizes of the result at "},
      {iterations, "scan: number of iterations at "}};
  for (const auto& [f, begin] : programs) {
    SCOPED_TRACE(begin);
    for (const Device device : {Device::cpu(), Device::reference()}) {
      EXPECT_EQ(refused_by(f, {numbers({1, -1, 2})}, device), "");
      const std::string text = refused_by(f, {numbers({1, -1, -2})}, device);
      EXPECT_THAT(text, HasSubstr(begin));
      EXPECT_THAT(text, HasSubstr("late_sizes_test.cpp:"));
      EXPECT_THAT(text, HasSubstr("expected sizes of at least 0, got "));
      EXPECT_THAT(text, HasSubstr(" = -1"));
    }
  }
}

TEST(LateSizes, ThatComeOutNegativeLeaveTheEngineAsItWas) {
  Engine engine(kAllButTwo);
  for (int repeat = 0; repeat < 2; ++repeat) {
    EXPECT_THROW(engine.run({numbers({1, -1, -2})}), ShapeError);
    EXPECT_THAT(engine.run({numbers({1, 3, 2})})[0].to_doubles(), ElementsAre(0));
    EXPECT_THAT(engine.run({numbers({1, -1, 2})})[0].sizes(), ElementsAre(0));
  }
  EXPECT_EQ(engine.stats().compiles, 1u);
}

// A branch that is not taken may have sizes that are none.
TEST(LateSizes, ThatComeOutNegativeDoNoHarmInABranchThatIsNotTaken) {
  const auto f = [](const Tensor& p, const Tensor& x) {
    const SymInt count = positive()(x)[0].size(0);
    return cond(
        p, [&] { return sum(iota({count - 2}, 0, f32) + 1.0f); },
        [&] { return sum(iota({count}, 0, f32) + 1.0f); });
  };
  const Tensor three = numbers({1, 2, 3});
  EXPECT_THAT(everywhere(f, {flag(true), three})[0].to_doubles(), ElementsAre(1));
  const Tensor one = numbers({1, -2, -3});
  EXPECT_THAT(everywhere(f, {flag(false), one})[0].to_doubles(), ElementsAre(1));
  Engine engine(f);
  EXPECT_THROW(engine.run({flag(true), one}), ShapeError);
  EXPECT_THAT(engine.run({flag(false), one})[0].to_doubles(), ElementsAre(1));
}

// A plan tells of branches as far as it knows their sizes.
TEST(LateSizes, OfBranchesAreNotInThePlan) {
  Engine engine([](const Tensor& p, const Tensor& x) {
    const Tensor kept = positive()(x)[0];
    return cond(
        p, [&] { return sum(softmax(cumsum(kept, 0), 0) * kept); },
        [&] { return sum(cumsum(sin(kept), 0)); });
  });
  const std::vector<Tensor> inputs{flag(true), numbers({1, -2, 3})};
  const Json plan = Json::parse(engine.plan_json(inputs));
  EXPECT_FALSE(plan.at("steps").empty());
  EXPECT_NEAR(engine.run(inputs)[0].item(), 1 / (1 + std::exp(3)) + 3 / (1 + std::exp(-3)), 1e-5);
}

// S0-2: a size is a result, also one that the body found.
TEST(LateSizes, ThatABodyReturnsAreThoseOfItsResults) {
  const auto f = [](const Tensor& x) {
    const auto found = [](const Tensor& y) {
      const Tensor kept = positive()(y)[0];
      return std::pair(kept, kept.size(0) * 2);
    };
    const auto [a, twice] = invoke({.name = "found"}, found, x);
    const auto [b, again] = invoke({.name = "found"}, found, a - 1.0f);
    return std::tuple(iota({twice}, 0, f32), iota({again + 1}, 0, f32), b);
  };
  const std::vector<Tensor> got = everywhere(f, {numbers({1, -1, 2})});
  EXPECT_THAT(got[0].sizes(), ElementsAre(4));
  EXPECT_THAT(got[1].sizes(), ElementsAre(3));
}

TEST(LateSizes, ThatNoResultOfTheBodyHasAreRefusedWhereTheyAreUsed) {
  const auto f = [](const Tensor& x) {
    const auto [total, count] = invoke(
        {},
        [](const Tensor& y) {
          const Tensor kept = positive()(y)[0];
          return std::pair(sum(kept), kept.size(0));
        },
        x);
    return iota({count}, 0, f32) + total;
  };
  const std::string text = refused(f, {numbers({1, -1})});
  EXPECT_THAT(text, HasSubstr("iota: a size that is known only at run time at "));
  EXPECT_THAT(text, HasSubstr("late_sizes_test.cpp:"));
  EXPECT_THAT(text, HasSubstr("got u0"));
}

TEST(LateSizes, CannotBeComparedInHostCode) {
  const std::vector<Tensor> inputs{numbers({1, -1, 2})};
  const auto branch = [](const Tensor& x) {
    const Tensor kept = positive()(x)[0];
    if (kept.size(0) > 3) return kept;
    return x;
  };
  EXPECT_THAT(refused(branch, inputs), HasSubstr("a comparison of sizes at "));
  EXPECT_THAT(refused(branch, inputs), HasSubstr("late_sizes_test.cpp:"));
  EXPECT_THAT(refused([&](const Tensor& x) { return invoke({.name = "g"}, branch, x); }, inputs),
              HasSubstr("region g: a comparison of sizes at "));
}

/// What `f` says of inputs that the trace was not made with; then those of the trace still run.
template <typename F>
std::string refused_in_the_run(F f, const std::vector<Tensor>& good,
                               const std::vector<Tensor>& bad) {
  everywhere(f, good);
  EXPECT_EQ(refused_by(f, good, Device::reference()), "");
  EXPECT_NE(refused_by(f, bad, Device::reference()), "");
  Engine engine(f);
  EXPECT_THROW(engine.run(bad), ShapeError) << "the first call is the one that does not fit";
  EXPECT_NO_THROW(engine.run(good));
  EXPECT_THROW(engine.run(bad), ShapeError);
  EXPECT_EQ(engine.stats().compiles, 1u);
  return refused_by(f, bad, Device::cpu());
}

/// What a product needs is asked where a loop comes to it, though it stays the same in each iteration.
TEST(LateSizes, ThatALoopWouldNeedAreNotAskedWhereItDoesNotRun) {
  using State = std::pair<Tensor, Tensor>;
  const auto goes_on = [](const State& s) { return greater(s.second, 0); };
  const auto next = [](const State& s, const Tensor& a, const Tensor& b) {
    const Tensor product = matmul(reshape(a, {1, -1}), reshape(b, {-1, 1}));
    return State(s.first + reshape(product, {}), s.second - 1);
  };
  Engine plain([&](const Tensor& x, const Tensor& y, const Tensor& times) {
    const Tensor a = positive()(x)[0];
    const Tensor b = positive()(y)[0];
    return while_loop(State(sum(x), times), goes_on, [&](const State& s) { return next(s, a, b); });
  });
  Engine stacking([&](const Tensor& x, const Tensor& y, const Tensor& times) {
    const Tensor a = positive()(x)[0];
    const Tensor b = positive()(y)[0];
    const auto body = [&](const State& s) { return std::pair(next(s, a, b), s.first); };
    return scan_while(State(sum(x), times), goes_on, body).first;
  });
  for (Engine* engine : {&plain, &stacking}) {
    const auto run = [&](const Tensor& y, std::int64_t times) {
      return engine->run({numbers({1, -1, 2}), y, Tensor::scalar_int(i64, times)})[0].item();
    };
    EXPECT_EQ(run(numbers({3, 4}), 2), 2 + 2 * 11);
    EXPECT_EQ(run(numbers({3, 4, 5}), 0), 2);
    EXPECT_THROW(run(numbers({3, 4, 5}), 1), ShapeError);
    EXPECT_EQ(run(numbers({3, 4}), 1), 2 + 11);
  }
}

TEST(LateSizes, ThatAnOpNeedsEqualAreComparedInTheRun) {
  const auto both = [](const Tensor& x, const Tensor& y) {
    const Tensor a = positive()(x)[0];
    return a + positive()(y)[0];
  };
  const Tensor two = numbers({1, -1, 2});
  const auto late = refused_in_the_run(both, {two, numbers({3, 4})}, {two, numbers({3, 4, 5})});
  EXPECT_THAT(late, HasSubstr("late_sizes_test.cpp:"));
  EXPECT_THAT(late, HasSubstr("(%add.reshape"));
  EXPECT_THAT(late, HasSubstr("expected u1 == u0, got u1 = 3, u0 = 2"));
  EXPECT_THAT(elements(Engine(both).run({two, numbers({3, 4})})[0]), ElementsAre(4, 6));

  const auto known = refused_in_the_run([](const Tensor& x) { return positive()(x)[0] + x; },
                                        {numbers({1, 2, 3})}, {numbers({1, -2, 3})});
  EXPECT_THAT(known, HasSubstr("expected u0 == s0, got u0 = 2, s0 = 3"));
}

TEST(LateSizes, ThatEachOpNeedsAreCheckedInTheRun) {
  const Tensor two = numbers({1, -1, 2});
  const Tensor three = numbers({1, 5, 2});
  const auto check = [&](auto f) { refused_in_the_run(f, {two}, {three}); };
  const Tensor weights = ramp({2, 5});
  check([&](const Tensor& x) { return matmul(reshape(positive()(x)[0], {1, -1}), weights); });
  check([](const Tensor& x) { return reshape(positive()(x)[0], {2, 1}) * 3.0f; });
  check([](const Tensor& x) {
    const Tensor kept = positive()(x)[0];
    return concat({unsqueeze(kept, 0), ramp({3, 2}) * sum(kept)}, 0);
  });
  check([](const Tensor& x) {
    const Tensor kept = positive()(x)[0];
    return where(greater(kept, 1.0f), ramp({2}) * sum(kept), kept);
  });
  check([](const Tensor& x) { return expand(positive()(x)[0], {3, 2}); });
  refused_in_the_run([](const Tensor& x) { return slice(positive()(x)[0], 0, 1, 3); }, {three},
                     {two});
}

TEST(LateSizes, ThatABodyNeedsEqualAreComparedInTheRun) {
  const auto f = [](const Tensor& p, const Tensor& x, const Tensor& y) {
    return cond(
        p, [&] { return sum(positive()(x)[0] * positive()(y)[0]); }, [&] { return sum(x); });
  };
  const Tensor x = numbers({1, -1, 2});
  const std::vector<Tensor> good{flag(true), x, numbers({3, 4})};
  const auto text = refused_in_the_run(f, good, {flag(true), x, numbers({3, 4, 5})});
  EXPECT_THAT(text, HasSubstr("expected u"));
  Engine engine(f);
  EXPECT_THAT(elements(engine.run(good)[0]), ElementsAre(11));
  EXPECT_THAT(elements(engine.run({flag(false), x, numbers({3, 4, 5})})[0]), ElementsAre(2))
      << "the branch that does not fit does not run";
}

// What is at least 0 whatever the run finds needs no comparison.
TEST(LateSizes, ThatAreKnownToCompareDo) {
  const auto f = [](const Tensor& x) {
    const Tensor kept = positive()(x)[0];
    return kept.size(0) >= 0 ? kept * 2.0f : kept;
  };
  EXPECT_THAT(elements(everywhere(f, {numbers({1, -1, 2})})[0]), ElementsAre(2, 4));
}

}  // namespace
}  // namespace heddle::testing
