// Kernels with several variants are timed in the background, the fastest takes its place in plans, and what was measured
// is kept on disk.
#include <filesystem>
#include <gmock/gmock.h>
#include <mutex>
#include <set>

#include "base/half.h"
#include "engine/cuda_runtime.h"
#include "ir/text.h"
#include "jit/cuda/measure.h"
#include "jit/program.h"
#include "tests/cuda/support.h"
#include "tests/jit/folder_test.h"
#include "tests/support/json.h"

namespace heddle::testing {
namespace {

using test::Json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr double kLong = 1e6;  ///< milliseconds on the clock of events

Tensor halves(Sizes sizes, int start = 0) {
  Tensor tensor = Tensor::empty(f16, std::move(sizes));
  for (std::int64_t k = 0; k < tensor.count(); ++k)
    static_cast<std::uint16_t*>(tensor.data())[k] =
        base::Half(static_cast<float>((k * 7 + start) % 23) / 12 - 0.9f).bits;
  return tensor;
}

Tensor scaled_product(const Tensor& x, const Tensor& w) { return matmul(x, w) * 0.5f; }

class CudaAutotune : public tests::FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  }
  void TearDown() override {
    if (on_simulator()) control().slow(nullptr, 0);
    FolderTest::TearDown();
  }

  EngineOptions options(bool autotune = true) {
    EngineOptions options = on_cuda();
    options.cache_dir = folder_;
    options.autotune = autotune;
    options.log = [this](std::string_view line) {
      const std::scoped_lock lock(mutex_);
      lines_.emplace_back(line);
    };
    return options;
  }
  static std::vector<Tensor> inputs(std::int64_t rows, std::int64_t depth = 96) {
    return {halves({rows, depth}), halves({depth, 64}, 3)};
  }
  struct Choice {
    std::string variant;
    bool measured;
    friend bool operator==(const Choice&, const Choice&) = default;
  };
  static Choice choice(Engine& engine, std::int64_t rows) {
    const auto plan = Json::parse(engine.plan_json(inputs(rows)));
    for (const auto& step : plan.at("steps"))
      if (step.contains("variant")) return {step.at("variant"), step.contains("measured")};
    return {};
  }
  static void expect_right(Engine& engine, std::int64_t rows, std::int64_t depth = 96) {
    Engine reference(scaled_product, {.device = Device::reference()});
    const std::vector<Tensor> given = inputs(rows, depth);
    expect_near(engine.run(given)[0], reference.run(given)[0], 4e-3);
  }

  std::mutex mutex_;
  std::vector<std::string> lines_;  ///< under `mutex_`
};

TEST_F(CudaAutotune, TheFastestVariantTakesThePlaceOfTheExpectedOne) {
  Engine expected(scaled_product, options(false));
  const std::string first = choice(expected, 16).variant;
  ASSERT_NE(first, "");
  control().slow(first.c_str(), kLong);
  Engine engine(scaled_product, options());
  expect_right(engine, 16);
  engine.wait_for_specialisations();
  const Choice after = choice(engine, 16);
  EXPECT_TRUE(after.measured);
  EXPECT_NE(after.variant, first);
  const auto plan = Json::parse(engine.plan_json(inputs(16)));
  for (const auto& step : plan.at("steps")) {
    if (!step.contains("variant")) continue;
    const Json& taken = step.at("variant_us");
    for (const auto& [variant, time] : taken.items())
      EXPECT_LE(taken.at(after.variant).get<double>(), time.get<double>()) << variant;
    EXPECT_GE(taken.size(), 2u);
  }
  EXPECT_EQ(engine.stats().measurements, 1u);
  for (int repeat = 0; repeat < 3; ++repeat) expect_right(engine, 16);  // the graph is updated
  EXPECT_EQ(engine.stats().compiles, 1u);
  EXPECT_THAT(lines_, IsEmpty());
  // What was measured is not for those who did not ask.
  expect_right(expected, 16);
  EXPECT_EQ(choice(expected, 16), (Choice{first, false}));
}

/// Equal bytes flatter memory and the multipliers' power.
TEST_F(CudaAutotune, OperandsLookLikeData) {
  for (const DType dtype : {f16, bf16, f32}) {
    const std::string name(name_of(dtype));
    const ir::Graph graph = ir::parse("graph @main(%x: " + name + "[16, 256], %w: " + name +
                                      "[256, 48]) {\n  %y = matmul(%x, %w)\n  return %y\n}\n");
    jit::LowerOptions lower;
    lower.target = jit::LowerOptions::Target::Cuda;
    const jit::Program program = jit::lower(graph, lower);
    const auto runtime = engine::CudaRuntime::get(cuda_device());
    const jit::Nest* nest = program.kernels[program.record.steps.back().kernel].nest.get();
    const auto kernel = runtime->compiler().compile_all(std::span(&nest, 1), nullptr)[0].get();
    std::vector<std::shared_ptr<memory::PoolBlock>> blocks;
    const auto memory = [&](std::size_t bytes) -> std::shared_ptr<void> {
      const auto& block =
          blocks.emplace_back(std::make_shared<memory::PoolBlock>(runtime->pool(), bytes));
      return {block, block->get()};
    };
    std::vector<std::int64_t> sizes;
    for (const ir::SymExpr& size : program.launches.back().sizes) sizes.push_back(size.constant());
    jit::cuda::measure_variants(*kernel, runtime->device(), sizes, memory);
    for (std::size_t k = 0; k < 2; ++k) {
      ir::Literal there(dtype, {k == 0 ? 16 : 48, 256});
      ASSERT_EQ(blocks[k]->bytes(), there.bytes());
      runtime->copy_out(there.data(), blocks[k]->get(), there.bytes());
      std::set<double> values;
      int negative = 0;
      for (std::int64_t at = 0; at < there.count(); ++at) {
        ASSERT_TRUE(std::isnormal(there.at(at))) << name;
        values.insert(there.at(at));
        negative += there.at(at) < 0;
      }
      EXPECT_GT(values.size(), 500u) << name;
      EXPECT_NEAR(negative, there.count() / 2, there.count() / 20) << name;
    }
  }
}

TEST_F(CudaAutotune, SizesOfOneClassAreMeasuredOnce) {
  control().slow("tensor_16x", kLong);  // which is expected: else plans stay as they are
  Engine engine(scaled_product, options());
  for (const std::int64_t rows : {17, 24, 20, 25, 32}) {
    expect_right(engine, rows);
    engine.wait_for_specialisations();
    EXPECT_TRUE(choice(engine, rows).measured) << rows;
  }
  EXPECT_EQ(engine.stats().measurements, 2u);
}

TEST_F(CudaAutotune, WhatWasMeasuredIsOnDisk) {
  Choice measured;
  {
    Engine expected(scaled_product, options(false));
    control().slow(choice(expected, 16).variant.c_str(), kLong);
    Engine engine(scaled_product, options());
    expect_right(engine, 16);
    engine.wait_for_specialisations();
    measured = choice(engine, 16);
    EXPECT_NE(measured.variant, choice(expected, 16).variant);
  }
  control().slow(nullptr, 0);
  Engine second(scaled_product, options());  // on a device that is opened for it
  EXPECT_EQ(choice(second, 16), measured);
  expect_right(second, 16);
  second.wait_for_specialisations();
  EXPECT_EQ(second.stats().measurements, 0u);
  EXPECT_EQ(second.stats().kernels_compiled, 0u);
}

TEST_F(CudaAutotune, ASimulatedDeviceIsNotMeasuredUnlessAsked) {
  EngineOptions plain = on_cuda();
  plain.cache_dir = folder_;
  Engine engine(scaled_product, plain);
  expect_right(engine, 16);
  engine.wait_for_specialisations();
  EXPECT_EQ(engine.stats().measurements, 0u);
  EXPECT_FALSE(choice(engine, 16).measured);
}

TEST_F(CudaAutotune, ProductsInLoopsAreMeasuredToo) {
  const auto power = [](const Tensor& x, const Tensor& w) {
    return while_loop(
        std::vector<Tensor>{x, Tensor::scalar(i64, 0)},
        [](const std::vector<Tensor>& s) { return less(s[1], Tensor::scalar(i64, 3)); },
        [w](const std::vector<Tensor>& s) {
          return std::vector<Tensor>{matmul(s[0], w) * 0.1f, s[1] + Tensor::scalar(i64, 1)};
        })[0];
  };
  const std::vector<Tensor> inputs = {halves({16, 64}), halves({64, 64}, 3)};
  Engine reference(power, {.device = Device::reference()});
  Engine engine(power, options());
  const Tensor want = reference.run(inputs)[0];
  control().slow("tensor_16x", kLong);
  expect_near(engine.run(inputs)[0], want, 1e-2);
  engine.wait_for_specialisations();
  EXPECT_EQ(engine.stats().measurements, 1u);
  const std::string plan = engine.plan_json(inputs);
  EXPECT_THAT(plan, HasSubstr("\"measured\": true"));
  EXPECT_THAT(plan, Not(HasSubstr("\"variant\": \"tensor_16x")));
  expect_near(engine.run(inputs)[0], want, 1e-2);
}

TEST_F(CudaAutotune, ExecutablesForExactSizesAreMeasuredToo) {
  EngineOptions exact = options();
  exact.specialise_after = 1;
  control().slow("tensor_16x", kLong);
  Engine engine(scaled_product, exact);
  expect_right(engine, 16);
  engine.wait_for_specialisations();
  EXPECT_EQ(engine.stats().specialisations, 1u);
  EXPECT_TRUE(choice(engine, 16).measured);
  expect_right(engine, 16);
}

TEST_F(CudaAutotune, AMeasurementThatFailsLeavesTheExpectedVariant) {
  // Kernels are on disk from the first on; what was measured of these sizes never is. Some calls fail, by night
  // each: a launch that is measured makes twenty.
  const auto run = [&](std::int64_t rows) {
    Engine engine(scaled_product, options());
    expect_right(engine, rows, 7);
    engine.wait_for_specialisations();
    expect_right(engine, rows, 7);
  };
  run(2);
  control().leaked();
  const std::filesystem::path kept = folder_ + "_kept";
  std::filesystem::copy(folder_, kept, std::filesystem::copy_options::recursive);
  int told = 0;
  std::string failed = "any";
  for (std::int64_t n = 1; !failed.empty(); n += is_nightly() ? 1 : 31) {
    SCOPED_TRACE("call " + std::to_string(n));
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(kept, folder_, std::filesystem::copy_options::recursive);
    lines_.clear();
    control().fail(static_cast<unsigned long>(n), n % 2 == 0 ? kOutOfMemory : kInvalidValue);
    try {
      run(3);
    } catch (const Error& typed) {
      EXPECT_THAT(std::string(typed.what()), Not(IsEmpty()));
    }
    failed = control().failed();
    told += lines_.empty() ? 0 : 1;
    for (const std::string& line : lines_)
      EXPECT_THAT(line, StartsWith("heddle: kernels were not measured: "));
    EXPECT_EQ(control().leaked(), 0u) << failed;
    control().fail(0, 0);
    run(4);  // of which nothing was measured yet
    ASSERT_LT(n, 4000) << "calls end";
  }
  std::filesystem::remove_all(kept);
  control().fail(0, 0);
  // How many calls there are depends on how long measured launches take: 8 and 10 were told on a busy machine.
  EXPECT_GE(told, 5);
}

TEST_F(CudaAutotune, TheEnvironmentSaysZeroOrOne) {
  ::setenv("HEDDLE_AUTOTUNE", "yes", 1);
  try {
    const Engine engine(scaled_product, on_cuda());
    ADD_FAILURE() << "no error";
  } catch (const OptionError& error) {
    EXPECT_STREQ(error.what(), "HEDDLE_AUTOTUNE: expected 0 or 1, got yes");
  }
  ::unsetenv("HEDDLE_AUTOTUNE");
}

}  // namespace
}  // namespace heddle::testing
