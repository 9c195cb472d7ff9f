// Plans that a later engine finds on disk.
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <regex>
#include <span>
#include <string>
#include <vector>

#include "heddle/annotate.h"
#include "heddle/custom_op.h"
#include "heddle/heddle.h"
#include "heddle/mapped_file.h"
#include "tests/base/resident.h"
#include "tests/jit/folder_test.h"

namespace hd = heddle;
namespace fs = std::filesystem;

namespace {

using Tensors = std::vector<hd::Tensor>;
using Callable = std::function<Tensors(std::span<const hd::Tensor>)>;

constexpr std::int64_t kWidth = 520;  // a matrix of so many columns and rows takes more than a MiB

hd::Tensor filled(hd::Sizes sizes, std::size_t seed) {
  hd::Tensor made = hd::Tensor::zeros(hd::f32, std::move(sizes));
  auto* values = made.data_as<float>();
  for (std::int64_t k = 0; k < made.count(); ++k)
    values[k] = static_cast<float>((static_cast<std::size_t>(k) + seed) * 7 % 23) * 0.03f - 0.3f;
  return made;
}

std::string bytes_of(const hd::Tensor& tensor) {
  return {static_cast<const char*>(tensor.data()),
          static_cast<std::size_t>(tensor.count()) * hd::size_of(tensor.dtype())};
}

/// Layers with packed weights, a folded constant, a row kernel, a view and two outputs.
struct Model {
  hd::Tensor first = filled({kWidth, kWidth}, 1);
  hd::Tensor second = filled({kWidth, 64}, 2);
  hd::Tensor scale = filled({64}, 3);

  Tensors operator()(std::span<const hd::Tensor> x) const {
    const hd::Tensor hidden = hd::gelu(hd::matmul(x[0], first) + 0.25f);
    const hd::Tensor last = hd::matmul(hidden, second) * hd::exp(scale);
    return {hd::softmax(last), hd::reshape(hidden, {-1, 2, kWidth / 2})};
  }
};

/// Under which no plans are kept.
constexpr const char* kChecks = "HEDDLE_CHECK_PLANS";

class KeptPlanTest : public hd::tests::FolderTest {
 protected:
  void SetUp() override {
    if (const char* text = std::getenv(kChecks)) checks_ = text;
    ::unsetenv(kChecks);
  }
  void TearDown() override {
    if (!checks_.empty()) ::setenv(kChecks, checks_.c_str(), 1);
  }

  struct Start {
    std::vector<std::string> results;
    hd::EngineStats stats;
  };

  hd::EngineOptions options(hd::EngineOptions given = {}) const {
    given.cache_dir = folder_;
    given.threads = 1;
    return given;
  }
  /// The first call of an engine.
  Start start(const Callable& callable, const Tensors& inputs, hd::EngineOptions given = {}) const {
    hd::Engine engine = engine_of(callable, given);
    Start result;
    for (const hd::Tensor& output : engine.run(inputs)) result.results.push_back(bytes_of(output));
    result.stats = engine.stats();
    return result;
  }
  hd::Engine engine_of(const Callable& callable, const hd::EngineOptions& given = {}) const {
    return hd::Engine(callable, options(given));
  }
  /// The files of plans: those that hold no code.
  std::vector<std::string> plans() const {
    std::vector<std::string> paths;
    for (const auto& entry : fs::directory_iterator(folder_))
      if (entry.is_regular_file() && read(entry.path()).find("plan of ") == 48)
        paths.push_back(entry.path().string());
    return paths;
  }
  void expect_found(const Callable& callable, const Tensors& inputs, bool found,
                    hd::EngineOptions given = {}) const {
    const Start first = start(callable, inputs, given);
    EXPECT_EQ(first.stats.found_plans, 0u);
    const Start second = start(callable, inputs, given);
    EXPECT_EQ(second.stats.found_plans, found ? 1u : 0u);
    EXPECT_EQ(second.results, first.results);
    EXPECT_EQ(second.stats.compiles, 1u);
  }

 private:
  std::string checks_;
};

TEST_F(KeptPlanTest, TheSecondStartFindsIt) {
  const Model model;
  const Tensors x{filled({3, kWidth}, 4)};
  const Start first = start(model, x);
  EXPECT_EQ(first.stats.found_plans, 0u);
  ASSERT_EQ(plans().size(), 1u);
  const Start second = start(model, x);
  EXPECT_EQ(second.stats.found_plans, 1u);
  EXPECT_EQ(second.stats.kernels_compiled, 0u);
  EXPECT_EQ(second.stats.kernels, first.stats.kernels);
  EXPECT_EQ(second.stats.in_place, first.stats.in_place);
  EXPECT_GE(second.stats.found_constant_bytes, std::uint64_t{kWidth * kWidth * 4});
  EXPECT_EQ(second.results, first.results);
}

/// One compile serves any number of rows, in the process that finds its plan too.
TEST_F(KeptPlanTest, ItServesTheSizesThatItsGraphServes) {
  const Model model;
  start(model, {filled({3, kWidth}, 4)});
  const Tensors x{filled({17, kWidth}, 5)};
  hd::Engine found = engine_of(model);
  const Tensors results = found.run(x);
  EXPECT_EQ(found.stats().found_plans, 1u);
  const Tensors want = engine_of(model, {.disk_cache = false}).run(x);
  for (std::size_t k = 0; k < want.size(); ++k) EXPECT_EQ(bytes_of(results[k]), bytes_of(want[k]));
  found.run({filled({5, kWidth}, 6)});
  EXPECT_EQ(found.stats().compiles, 1u);
}

TEST_F(KeptPlanTest, ItTellsWhatTheFirstOneTold) {
  const Model model;
  const Tensors x{filled({3, kWidth}, 4)};
  const auto told = [&](std::uint64_t found) {
    hd::Engine engine = engine_of(model);
    const std::string plan = engine.plan_json(x);
    EXPECT_EQ(engine.stats().found_plans, found);
    std::string events;
    for (const hd::RunEvent& event : engine.run_trace(x))
      events += std::to_string(static_cast<int>(event.kind)) + event.value + " " +
                std::to_string(event.bytes) + "\n";
    return std::vector<std::string>{
        std::regex_replace(plan, std::regex("\"microseconds\": *[0-9.e+-]+"), ""),
        engine.graph_text(x, true), engine.graph_text(x, false), events};
  };
  const std::vector<std::string> first = told(0);
  EXPECT_EQ(told(1), first);
}

TEST_F(KeptPlanTest, WhatDiffersHasAPlanOfItsOwn) {
  const Tensors x{filled({3, kWidth}, 4)};
  const Start first = start(Model(), x);
  const auto expect_other = [&](const char* what, const Callable& callable, const Tensors& inputs,
                                const hd::EngineOptions& given = {}) {
    const std::size_t before = plans().size();
    EXPECT_EQ(start(callable, inputs, given).stats.found_plans, 0u) << what;
    EXPECT_EQ(plans().size(), before + 1) << what;
    EXPECT_EQ(start(callable, inputs, given).stats.found_plans, 1u) << what;
  };
  Model changed;
  changed.first.data_as<float>()[kWidth * kWidth - 1] += 1;
  expect_other("a weight", changed, x);
  changed = Model();
  changed.scale.data_as<float>()[5] = 0;
  expect_other("a small constant", changed, x);
  expect_other("a dtype", Model(), {hd::Tensor::zeros(hd::f64, {3, kWidth})});
  expect_other(
      "known rows",
      [model = Model()](std::span<const hd::Tensor> given) {
        return given[0].size(0) == 3 ? model(given) : Tensors{given[0]};
      },
      x);
  expect_other(
      "an output",
      [model = Model()](std::span<const hd::Tensor> given) {
        Tensors results = model(given);
        results.pop_back();
        return results;
      },
      x);
  expect_other("fuse", Model(), x, {.fuse = false});
  expect_other("library", Model(), x, {.library = false});
  expect_other("skip_passes", Model(), x, {.skip_passes = {"cse"}});
  expect_other("scope", Model(), x, {.scope = hd::CompileScope::Unmarked});
  expect_other("cpu", Model(), x, {.cpu = "x86-64-v3"});
  hd::EngineOptions donating;
  donating.donate = {"input0"};
  const auto given_away = [&] {
    return engine_of(Model(), donating).run({filled({3, kWidth}, 4)}).size();
  };
  const std::size_t before = plans().size();
  given_away();
  EXPECT_EQ(plans().size(), before + 1) << "donate";
  // The first one is still there.
  const Start again = start(Model(), x);
  EXPECT_EQ(again.stats.found_plans, 1u);
  EXPECT_EQ(again.results, first.results);
}

TEST_F(KeptPlanTest, ABrokenFileIsMadeAnew) {
  const Model model;
  const Tensors x{filled({3, kWidth}, 4)};
  const Start first = start(model, x);
  ASSERT_EQ(plans().size(), 1u);
  const std::string path = plans()[0];
  const std::string whole = read(path);
  const auto expect_made_anew = [&](const std::string& content, const char* what) {
    write(path, content);
    const Start again = start(model, x);
    EXPECT_EQ(again.stats.found_plans, 0u) << what;
    EXPECT_EQ(again.results, first.results) << what;
    EXPECT_EQ(read(path), whole) << what;
  };
  std::string changed = whole;
  changed[whole.size() - 100] = static_cast<char>(changed[whole.size() - 100] ^ 1);
  expect_made_anew(changed, "a bit");
  expect_made_anew(whole.substr(0, whole.size() / 2), "half of it");
  expect_made_anew("", "empty");
}

TEST_F(KeptPlanTest, WithoutItsConstantsItIsMadeAnew) {
  const Model model;
  const Tensors x{filled({3, kWidth}, 4)};
  const Start first = start(model, x);
  fs::remove_all(folder_ + "/constants");
  const Start second = start(model, x);
  EXPECT_EQ(second.stats.found_plans, 0u);
  EXPECT_EQ(second.results, first.results);
  const Start third = start(model, x);
  EXPECT_EQ(third.stats.found_plans, 1u);
  EXPECT_EQ(third.results, first.results);
}

/// A plan holds no weights where none are to be kept.
TEST_F(KeptPlanTest, WeightsThatAreNotKeptAreInNoPlan) {
  expect_found(Model(), {filled({3, kWidth}, 4)}, false, {.keep_constants = false});
  Model small;
  small.first = filled({64, kWidth}, 1);
  expect_found(small, {filled({3, 64}, 4)}, true, {.keep_constants = false});
  EXPECT_FALSE(fs::exists(folder_ + "/constants"));
}

TEST_F(KeptPlanTest, NoneIsKeptOfCodeThatNoKeyTells) {
  const Tensors x{filled({3, 64}, 4)};
  const Callable plain = [](std::span<const hd::Tensor> given) {
    return Tensors{hd::tanh(given[0]) * 2};
  };
  hd::EngineOptions passes;
  passes.passes = {{.name = "mine",
                    .point = hd::GraphPass::Point::First,
                    .run = [](std::string_view text) { return std::string(text); }}};
  expect_found(plain, x, false, passes);
  expect_found(plain, x, false, {.check_plans = true});
  expect_found(plain, x, false,
               {.mark = [](const hd::NodeInfo&) { return std::optional<hd::AnnotationValue>(); }});
  static const hd::RegisteredOp op =
      hd::register_op({.schema = "kept_plan::twice(Tensor x) -> Tensor",
                       .shape = [](const hd::ShapeCall& call) -> std::vector<hd::TensorType> {
                         return {call.tensor(0)};
                       },
                       .cpu =
                           [](const hd::KernelCall& call) {
                             for (int k = 0; k < 3 * 64; ++k)
                               static_cast<float*>(call.results[0].data)[k] =
                                   2 * static_cast<const float*>(call.tensor(0).data)[k];
                           }});
  expect_found([](std::span<const hd::Tensor> given) { return Tensors{op(hd::tanh(given[0]))}; }, x,
               false);
  expect_found(plain, x, true);
}

/// Loops and branches, whose steps run programs of their own; sizes that only the run tells, and what must hold of them.
TEST_F(KeptPlanTest, NestedGraphsAreKeptToo) {
  const hd::Tensor weights = filled({kWidth, kWidth}, 1);
  const Callable callable = [weights](std::span<const hd::Tensor> given) {
    const auto [state, stacked] =
        hd::scan(given[1], given[0], [&](const hd::Tensor& carry, const hd::Tensor& slice) {
          const hd::Tensor next = hd::tanh(hd::matmul(carry, weights) + slice);
          return std::pair(next, next * 2.0f);
        });
    const hd::Tensor chosen = hd::cond(
        hd::greater(hd::sum(state), 0.0f), [](const hd::Tensor& x) { return hd::exp(x); },
        [](const hd::Tensor& x) { return x - 1.0f; }, state);
    const hd::Tensor grown = hd::while_loop(
        given[0], [](const hd::Tensor& x) { return hd::less(hd::sum(x), 1e4f); },
        [](const hd::Tensor& x) { return hd::concat({x, x + 10.0f}, 0); });
    return Tensors{chosen, stacked, grown};
  };
  const Tensors inputs{filled({4, 2, kWidth}, 4), filled({2, kWidth}, 5)};
  expect_found(callable, inputs, true);
  const Start found = start(callable, inputs);
  EXPECT_EQ(found.results, start(callable, inputs, {.disk_cache = false}).results);
}

TEST_F(KeptPlanTest, LateSizesAreKeptToo) {
  const Callable callable = [](std::span<const hd::Tensor> given) {
    const hd::Tensor rows = hd::nonzero(given[0]);
    return Tensors{hd::cast(rows, hd::f32) * 0.5f, hd::reshape(rows, {-1})};
  };
  const hd::Tensor x = hd::Tensor::of<float>({0, 1, 0, 2, 3, 0}, {6});
  expect_found(callable, {x}, true);
  // Another count in the process that finds it.
  const Start other = start(callable, {hd::Tensor::full(hd::f32, {6}, 1)});
  EXPECT_EQ(other.stats.found_plans, 1u);
  EXPECT_EQ(other.results[1].size(), 6 * sizeof(std::int64_t));
}

TEST_F(KeptPlanTest, ParametersCanBeUpdated) {
  const Model model;
  const Tensors x{filled({3, kWidth}, 4)};
  const Start first = start(model, x);
  hd::Engine engine = engine_of(model);
  engine.run(x);
  ASSERT_EQ(engine.stats().found_plans, 1u);
  Model updated = model;
  updated.second = filled({kWidth, 64}, 9);
  engine.update_parameter(model.second, updated.second);
  const Tensors results = engine.run(x);
  const Tensors want = engine_of(updated, {.disk_cache = false}).run(x);
  for (std::size_t k = 0; k < want.size(); ++k) EXPECT_EQ(bytes_of(results[k]), bytes_of(want[k]));
  EXPECT_EQ(plans().size(), 1u);  // new values are those of no start
  EXPECT_EQ(start(model, x).results, first.results);
}

TEST_F(KeptPlanTest, ErrorsAreTheSame) {
  const Callable callable = [table = filled({10, 4}, 1)](std::span<const hd::Tensor> given) {
    return Tensors{hd::gather(table, given[0])};
  };
  const auto error = [&](std::uint64_t found) {
    hd::Engine engine = engine_of(callable);
    try {
      engine.run({hd::Tensor::of<std::int64_t>({1, 12}, {2})});
    } catch (const hd::IndexError& thrown) {
      EXPECT_EQ(engine.stats().found_plans, found);
      return std::string(thrown.what());
    }
    return std::string("none");
  };
  const std::string first = error(0);
  EXPECT_NE(first, "none");
  EXPECT_EQ(error(1), first);
}

/// What the graph reads must not be overwritten by a call, though nothing reads it but its packed form.
TEST_F(KeptPlanTest, DonatedInputsMustNotOverlapWeights) {
  const Model model;
  hd::EngineOptions given;
  given.donate = {"input0"};
  for (const std::uint64_t found : {0u, 1u}) {
    hd::Engine engine = engine_of(model, given);
    engine.run({filled({3, kWidth}, 4)});
    EXPECT_EQ(engine.stats().found_plans, found);
    EXPECT_THROW(engine.run({model.first.narrow(0, 0, 3)}), hd::AliasingError);
  }
}

/// Weights of a file are read to tell them from others, and leave memory again.
TEST_F(KeptPlanTest, WeightsOfAFileLeaveMemory) {
  Model model;
  const std::size_t bytes = kWidth * kWidth * sizeof(float);
  const std::string path = folder_ + ".weights";
  write(path, bytes_of(model.first));
  std::string reason;
  const auto file = hd::MappedFile::open(path, reason);
  ASSERT_NE(file, nullptr) << reason;
  model.first = hd::Tensor::wrap_bytes(file->data(), hd::f32, {kWidth, kWidth});
  const Tensors x{filled({3, kWidth}, 4)};
  for (const std::uint64_t found : {0u, 1u}) {
    EXPECT_EQ(start(model, x).stats.found_plans, found);
    EXPECT_LE(hd::tests::resident_bytes(file->data()), bytes / 8);
  }
  fs::remove(path);
}

/// What runs entry by entry (engine/batch_runs.h) does so in a plan from disk, too.
TEST_F(KeptPlanTest, TellsWhatTreatsEntriesOfABatchApart) {
  if (HEDDLE_WITH_LLVM == 0) GTEST_SKIP() << "this build compiles nothing for the CPU";
  ::setenv("HEDDLE_L2_CACHE", "40000", 1);
  const hd::Tensor weights = filled({80, 80}, 4);
  const Callable layers = [&](std::span<const hd::Tensor> x) -> Tensors {
    const hd::Tensor hidden = hd::softmax(hd::matmul(x[0], weights));
    return {hd::matmul(hidden, weights)};
  };
  const Tensors inputs{filled({8, 40, 80}, 5)};
  std::string first;
  for (const std::size_t found : {std::size_t{0}, std::size_t{1}}) {
    hd::Engine engine = engine_of(layers);
    const std::string result = bytes_of(engine.run(inputs)[0]);
    if (found == 0) first = result;
    EXPECT_EQ(result, first);
    EXPECT_EQ(engine.stats().found_plans, found);
    EXPECT_THAT(engine.plan_json(inputs), testing::HasSubstr("\"workers\""));
  }
  ::unsetenv("HEDDLE_L2_CACHE");
}

}  // namespace
