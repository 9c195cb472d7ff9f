// Steps that run for some entries of a batch after others give what they give for all, bit by bit, in less memory.
#include "engine/batch_runs.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stop_token>
#include <thread>

#include "engine/context.h"
#include "engine/executable.h"
#include "heddle/heddle.h"
#include "ir/evaluate.h"
#include "ir/text.h"
#include "scheduler/stop.h"
#include "tests/support/json.h"
#include "tests/support/one_op.h"

namespace heddle::engine {
namespace {

class BatchRuns : public ::testing::Test {
 protected:
  void SetUp() override {
    if (HEDDLE_WITH_LLVM == 0) GTEST_SKIP() << "this build compiles nothing for the CPU";
  }
};

/// A graph compiled and bound for sizes and a thread's cache of so many bytes.
class Bound {
 public:
  Bound(const std::string& text, base::SymbolValues sizes, int threads, std::int64_t cache_bytes)
      : graph_(ir::parse(text)), sizes_(std::move(sizes)), executor_(threads) {
    BuildOptions options;
    options.engine.threads = threads;
    options.engine.check_plans = true;
    options.compiler = &jit::CompileService::shared();
    options.cache_bytes = cache_bytes;
    options.threads = threads;
    executable_ = std::make_shared<Executable>(graph_, Guards{}, options);
    plan_ = executable_->bind(sizes_, threads);
  }

  BoundPlan& plan() { return *plan_; }

  std::int32_t run(std::vector<ir::Literal>& results, std::int64_t bad_index = 0) {
    std::vector<Tensor> inputs, outputs;
    std::vector<ir::Literal> arguments;
    for (const ir::Value& input : graph_.inputs()) {
      if (graph_.parameter(input.node) != nullptr) continue;
      ir::Sizes sizes;
      for (const ir::SymExpr& size : input.meta().sizes) sizes.push_back(size.evaluate(sizes_));
      const auto seed = static_cast<std::uint32_t>(arguments.size() + 1);
      arguments.push_back(testing::noise(input.meta().dtype, sizes, seed));
      if (input.meta().dtype == i64) {
        for (std::int64_t k = 0; k < arguments.back().count(); ++k)
          arguments.back().set_int(k, k % 3);
        arguments.back().set_int(arguments.back().count() - 1, bad_index);
      }
      inputs.push_back(wrapped(arguments.back()));
    }
    results.clear();
    for (std::size_t k = 0; k < plan_->output_sizes.size(); ++k) {
      results.emplace_back(graph_.outputs()[k].meta().dtype, plan_->output_sizes[k]);
      outputs.push_back(wrapped(results.back()));
    }
    context_.use(*plan_);
    context_.set_io(*plan_, inputs, outputs);
    return context_.run(executor_);
  }
  ExecutionContext& context() { return context_; }

 private:
  static Tensor wrapped(const ir::Literal& literal) {
    return Tensor::wrap(const_cast<void*>(literal.data()), literal.dtype(), literal.sizes());
  }

  ir::Graph graph_;
  base::SymbolValues sizes_;
  scheduler::Executor executor_;
  std::shared_ptr<Executable> executable_;
  std::unique_ptr<BoundPlan> plan_;
  ExecutionContext context_;
};

const base::Symbol kBatch{base::Symbol::Kind::Size, 0};

bool same(const std::vector<ir::Literal>& a, const std::vector<ir::Literal>& b) {
  return std::ranges::equal(a, b, [](const ir::Literal& x, const ir::Literal& y) {
    return x.sizes() == y.sizes() && std::memcmp(x.data(), y.data(), x.bytes()) == 0;
  });
}

void expect_same(Bound& whole, Bound& apart) {
  std::vector<ir::Literal> want, got;
  EXPECT_EQ(whole.run(want), 0);
  EXPECT_EQ(apart.run(got), 0);
  EXPECT_TRUE(same(want, got));
}

/// A network as those of images: what is between its layers shrinks, and its last product has many weights.
const char* const kImages =
    R"(graph @main(%x: f32[s0, 3, 24, 24], %v: f32[16, 3, 3, 3], %w: f32[16, 1, 3, 3], %p: f32[32, 16, 1, 1], %m: f32[32, 200]) {
  %a = conv(%x, %v) {strides = [1, 1], pads_low = [1, 1], pads_high = [1, 1], dilations = [1, 1]}
  %b = relu(%a)
  %c = conv(%b, %w) {strides = [1, 1], pads_low = [1, 1], pads_high = [1, 1], dilations = [1, 1], groups = 16}
  %d = relu(%c)
  %r = add(%d, %b)
  %e = conv(%r, %p) {strides = [2, 2], pads_low = [0, 0], pads_high = [0, 0], dilations = [1, 1]}
  %f = reduce_mean(%e) {axes = [2, 3], keepdims = false}
  %y = matmul(%f, %m)
  return %y, %e
}
)";

TEST_F(BatchRuns, GiveTheSameBitsInLessMemory) {
  for (const int threads : {1, 2, 3})
    for (const std::int64_t entries : {3, 4, 8, 11}) {
      SCOPED_TRACE(fmt::format("{} threads, {} entries", threads, entries));
      Bound whole(kImages, {{kBatch, entries}}, threads, 0);
      Bound apart(kImages, {{kBatch, entries}}, threads, 40'000);
      EXPECT_TRUE(whole.plan().batches.empty());
      ASSERT_EQ(apart.plan().batches.size(), 1u);
      EXPECT_GE(apart.plan().batches[0]->times, std::max(2, threads));
      EXPECT_GE(apart.plan().batches[0]->steps->steps.size(), 3u);
      std::vector<ir::Literal> want, got;
      EXPECT_EQ(whole.run(want), 0);
      EXPECT_EQ(apart.run(got), 0);
      EXPECT_TRUE(same(want, got));
      EXPECT_EQ(apart.run(got), 0);
      EXPECT_TRUE(same(want, got));
      if (entries >= 2 * threads) {
        EXPECT_LT(apart.plan().memory.peak_bytes,
                  whole.plan().memory.peak_bytes * (threads + 1) / entries);
      }
      EXPECT_GE(apart.plan().memory.peak_bytes, apart.plan().memory.lower_bound_bytes);
    }
}

TEST_F(BatchRuns, WantAsManyTimesAsThreads) {
  EXPECT_TRUE(Bound(kImages, {{kBatch, 3}}, 4, 40'000).plan().batches.empty());
  EXPECT_TRUE(Bound(kImages, {{kBatch, 1}}, 1, 40'000).plan().batches.empty());
}

/// What is small stays in the caches anyway.
TEST_F(BatchRuns, WantMoreThanTheCachesHold) {
  EXPECT_TRUE(Bound(kImages, {{kBatch, 8}}, 1, 40'000'000).plan().batches.empty());
}

/// Weights that come again each time are dearer than what is kept.
TEST_F(BatchRuns, LeaveProductsByManyWeightsWhole) {
  Bound bound(kImages, {{kBatch, 8}}, 1, 40'000);
  const BoundBatch& batch = *bound.plan().batches.at(0);
  EXPECT_LT(batch.first + batch.steps->steps.size(), bound.plan().steps.size());
}

/// Several entries at a time, where one is little.
TEST_F(BatchRuns, OfSeveralEntriesAtATime) {
  const std::string text =
      "graph @main(%x: f32[s0, 64], %v: f32[64, 64], %w: f32[64, 64]) {\n"
      "  %a = matmul(%x, %v)\n"
      "  %b = softmax(%a) {axis = -1}\n"
      "  %y = matmul(%b, %w)\n"
      "  return %y\n"
      "}\n";
  for (const int threads : {1, 2}) {
    Bound whole(text, {{kBatch, 6000}}, threads, 0);
    Bound apart(text, {{kBatch, 6000}}, threads, 200'000);
    ASSERT_EQ(apart.plan().batches.size(), 1u);
    EXPECT_GT(apart.plan().batches[0]->steps->sizes.at(kBatch), 50);
    expect_same(whole, apart);
  }
}

/// A step that looks at all entries ends a run.
TEST_F(BatchRuns, EndWhereEntriesMeet) {
  const std::string text =
      "graph @main(%x: f32[s0, 4000]) {\n"
      "  %a = softmax(%x) {axis = -1}\n"
      "  %b = layer_norm(%a) {axis = -1, epsilon = 0.1}\n"
      "  %c = softmax(%b) {axis = 0}\n"
      "  %d = softmax(%c) {axis = -1}\n"
      "  %y = layer_norm(%d) {axis = -1, epsilon = 0.1}\n"
      "  return %y\n"
      "}\n";
  Bound whole(text, {{kBatch, 12}}, 2, 0);
  Bound apart(text, {{kBatch, 12}}, 2, 40'000);
  for (const auto& batch : apart.plan().batches)
    EXPECT_LT(batch->steps->steps.size(), apart.plan().steps.size() - 1);
  expect_same(whole, apart);
}

/// What was there before a run of steps, and what is read after it, is there all the while.
TEST_F(BatchRuns, KeepWhatTheyShareWithOthers) {
  const std::string text =
      "graph @main(%x: f32[s0, 40, 80], %z: f32[s0, 40, 80], %w: f32[80, 80]) {\n"
      "  %k = softmax(%z) {axis = 0}\n"
      "  %a = matmul(%x, %w)\n"
      "  %b = matmul(%a, %w)\n"
      "  %c = add(%b, %k)\n"
      "  %d = matmul(%c, %w)\n"
      "  %e = softmax(%d) {axis = -1}\n"
      "  %f = matmul(%e, %w)\n"
      "  %g = softmax(%f) {axis = 0}\n"
      "  %h = add(%g, %c)\n"
      "  %i = matmul(%h, %w)\n"
      "  %y = add(%i, %a)\n"
      "  return %y, %e\n"
      "}\n";
  for (const int threads : {1, 2, 3}) {
    Bound whole(text, {{kBatch, 12}}, threads, 0);
    Bound apart(text, {{kBatch, 12}}, threads, 60'000);
    EXPECT_FALSE(apart.plan().batches.empty());
    expect_same(whole, apart);
  }
}

/// An index out of range in one entry is the call's error, and the next call is right.
TEST_F(BatchRuns, PassErrorsOn) {
  const std::string text =
      "graph @main(%i: i64[s0, 1000], %t: f32[3, 16]) {\n"
      "  %x = gather(%t, %i) {axis = 0}\n"
      "  %a = softmax(%x) {axis = -1}\n"
      "  %b = softmax(%a) {axis = 1}\n"
      "  %y = softmax(%b) {axis = -1}\n"
      "  return %y\n"
      "}\n";
  for (const int threads : {1, 2}) {
    Bound apart(text, {{kBatch, 8}}, threads, 40'000);
    ASSERT_FALSE(apart.plan().batches.empty());
    std::vector<ir::Literal> want, got;
    EXPECT_EQ(apart.run(want), 0);
    const std::int32_t status = apart.run(got, 7);
    EXPECT_NE(status, 0);
    EXPECT_THROW(std::rethrow_exception(apart.context().take_failure(apart.plan(), status)),
                 IndexError);
    EXPECT_EQ(apart.run(got), 0);
    EXPECT_TRUE(same(want, got));
  }
}

TEST_F(BatchRuns, EndEarly) {
  std::stop_source stop;
  stop.request_stop();
  const std::stop_token token = stop.get_token();
  for (const int threads : {1, 2}) {
    Bound apart(kImages, {{kBatch, 8}}, threads, 40'000);
    std::vector<ir::Literal> want, got;
    EXPECT_EQ(apart.run(want), 0);
    {
      const scheduler::StopScope scope(token);
      EXPECT_THROW(static_cast<void>(apart.run(got)), Cancelled);
    }
    EXPECT_EQ(apart.run(got), 0);
    EXPECT_TRUE(same(want, got));
  }
}

/// Engines whose threads have small caches.
class SmallCaches : public BatchRuns {
 protected:
  void SetUp() override {
    BatchRuns::SetUp();
    ::setenv("HEDDLE_L2_CACHE", "40000", 1);
  }
  void TearDown() override { ::unsetenv("HEDDLE_L2_CACHE"); }

  static Tensor images(std::int64_t count) {
    const ir::Literal noise = testing::noise(f32, {count, 40, 80});
    return Tensor::wrap(const_cast<void*>(noise.data()), f32, noise.sizes()).clone();
  }
  /// Three steps that treat the images apart.
  static EngineOptions options(int threads) {
    EngineOptions options;
    options.threads = threads;
    options.check_plans = true;
    options.disk_cache = false;
    return options;
  }
  static Tensor layers(const Tensor& x) {
    static const Tensor weights = Tensor::full(f32, {80, 80}, 0.01);
    return matmul(softmax(matmul(relu(matmul(x, weights)), weights), -1), weights);
  }
};

TEST_F(SmallCaches, PlansTellWhatRunsEntryByEntry) {
  Engine engine(layers, options(2));
  const std::vector<Tensor> inputs{images(8)};
  const test::Json plan = test::Json::parse(engine.plan_json(inputs));
  ASSERT_EQ(plan["batches"].size(), 1u);
  const test::Json& batch = plan["batches"][0];
  EXPECT_EQ(batch["first_step"], 0);
  EXPECT_EQ(batch["last_step"], plan["steps"].size() - 1);
  EXPECT_EQ(batch["times"].get<int>() * batch["entries"].get<int>(), 8);
  EXPECT_EQ(batch["workers"], 2);
  std::int64_t between = 0;
  for (const test::Json& buffer : plan["buffers"])
    if (buffer["role"] == "intermediate")
      between = std::max(between, buffer["bytes"].get<std::int64_t>());
  EXPECT_EQ(between, 40 * 80 * 4 * batch["entries"].get<int>());
  EXPECT_LE(plan["lower_bound_bytes"], plan["peak_bytes"]);
}

TEST_F(SmallCaches, ProfilesTellStepsInside) {
  for (const int threads : {1, 2}) {
    Engine engine(layers, options(threads));
    const std::vector<Tensor> inputs{images(8)};
    const std::vector<double> want = engine.run(inputs)[0].to_doubles();
    const std::vector<StepTime> steps = engine.profile(inputs, 2);
    ASSERT_EQ(steps.size(), 1u);
    EXPECT_EQ(steps[0].kernel, fmt::format("steps 0 to {}", steps[0].inside.size() - 1));
    EXPECT_GT(steps[0].microseconds, 0);
    ASSERT_GE(steps[0].inside.size(), 3u);
    for (const StepTime& inside : steps[0].inside) {
      EXPECT_GT(inside.microseconds, 0) << inside.kernel;
      EXPECT_GE(inside.runs, 2);
    }
    EXPECT_GT(engine.profile(inputs, 1, Profile::Shares)[0].shared_microseconds, 0);
    EXPECT_EQ(engine.run(inputs)[0].to_doubles(), want);
    std::vector<Tensor> traced;
    EXPECT_GE(engine.run_trace(inputs, &traced).size(), steps[0].inside.size());
    EXPECT_EQ(traced[0].to_doubles(), want);
  }
}

/// Sizes of other dimensions are put in; that of the batch stays open.
TEST_F(SmallCaches, SpecialisedExecutablesKeepTheBatchOpen) {
  EngineOptions some = options(1);
  some.specialise_after = 2;
  Engine engine(layers, some);
  const std::vector<Tensor> inputs{images(8)};
  const std::vector<double> want = engine.run(inputs)[0].to_doubles();
  for (int k = 0; k < 3; ++k) engine.run(inputs);
  engine.wait_for_specialisations();
  EXPECT_EQ(engine.stats().specialisations, 1u);
  EXPECT_FALSE(test::Json::parse(engine.plan_json(inputs))["batches"].empty());
  EXPECT_EQ(engine.run(inputs)[0].to_doubles(), want);
  EXPECT_EQ(engine.run({images(5)})[0].sizes()[0], 5);
}

/// Of what follows a size that only the run tells.
TEST_F(SmallCaches, OfALaterPhase) {
  const auto late = [](const Tensor& x) {
    const Tensor places = nonzero(sum(x, {0, 2}));
    return std::vector<Tensor>{layers(x + cast(sum(places), f32)), places * 2};
  };
  for (const int threads : {1, 2}) {
    Engine apart(late, options(threads));
    ::unsetenv("HEDDLE_L2_CACHE");
    Engine whole(late, options(threads));
    const std::vector<Tensor> inputs{images(8)};
    const std::vector<double> want = whole.run(inputs)[0].to_doubles();
    ::setenv("HEDDLE_L2_CACHE", "40000", 1);
    EXPECT_EQ(apart.run(inputs)[0].to_doubles(), want);
    EXPECT_EQ(apart.run(inputs)[0].to_doubles(), want);
    const auto has_inside = [](const StepTime& step) { return !step.inside.empty(); };
    EXPECT_TRUE(std::ranges::any_of(apart.profile(inputs, 1), has_inside));
    EXPECT_TRUE(std::ranges::none_of(whole.profile(inputs, 1), has_inside));
  }
}

TEST_F(SmallCaches, OfManyCallersAtOnce) {
  Engine engine(layers, options(2));
  const std::vector<Tensor> inputs{images(8)};
  const std::vector<double> want = engine.run(inputs)[0].to_doubles();
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int k = 0; k < 4; ++k)
    callers.emplace_back([&] {
      for (int call = 0; call < 5; ++call)
        if (engine.run(inputs)[0].to_doubles() != want) ++wrong;
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace heddle::engine
