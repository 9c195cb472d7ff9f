// Engines whose kernels compete with a library, which the simulator brings too.
#pragma once

#include <cstdlib>
#include <gmock/gmock.h>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/half.h"
#include "tests/cuda/support.h"
#include "tests/jit/folder_test.h"
#include "tests/support/json.h"

namespace heddle::testing {

inline constexpr double kForAges = 1e6;  ///< milliseconds on the clock of events
inline constexpr int kRefused = 1;
/// Part of the names of our variants, tensor_64x64x64 and so on, and of none of a library's.
inline constexpr const char* kOurs = "x";

/// Of f32, f16 or bf16.
inline Tensor fractions(DType dtype, Sizes sizes, int start = 0) {
  Tensor tensor = Tensor::empty(dtype, std::move(sizes));
  for (std::int64_t k = 0; k < tensor.count(); ++k) {
    const float value = static_cast<float>((k * 7 + start) % 23) / 12 - 0.9f;
    if (dtype == f32) {
      static_cast<float*>(tensor.data())[k] = value;
    } else {
      static_cast<std::uint16_t*>(tensor.data())[k] =
          dtype == f16 ? base::Half(value).bits : base::BFloat16(value).bits;
    }
  }
  return tensor;
}

/// Of a callable, or of a graph's text.
template <typename F>
Engine engine_of(const F& f, EngineOptions options) {
  if constexpr (std::is_convertible_v<F, std::string_view>)
    return parse_ir(std::string(f), std::move(options));
  else
    return Engine(f, std::move(options));
}

class LibraryTest : public tests::FolderTest {
 protected:
  /// @param variable  says where the library is. @param variant  the name of what it does
  LibraryTest(const char* variable, const char* variant) : variable_(variable), variant_(variant) {}

  void SetUp() override {
    FolderTest::SetUp();
    if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
    ::setenv(variable_, test::simulator_path().c_str(), 1);
  }
  void TearDown() override {
    if (on_simulator()) {
      control().slow(nullptr, 0);
      control().fail(0, 0);
      control().seed(0);
    }
    ::unsetenv(variable_);
    FolderTest::TearDown();
  }

  EngineOptions options() {
    EngineOptions options = on_cuda(0, true);
    options.cache_dir = folder_;
    options.autotune = true;
    options.log = [this](std::string_view line) {
      const std::scoped_lock lock(mutex_);
      lines_.emplace_back(line);
    };
    return options;
  }
  static std::string variant_of(Engine& engine, const std::vector<Tensor>& inputs) {
    const auto plan = test::Json::parse(engine.plan_json(inputs));
    for (const auto& step : plan.at("steps"))
      if (step.contains("variant")) return step.at("variant");
    return {};
  }
  /// Runs until the library has taken over, and again.
  template <typename F>
  void expect_taken_over(F f, const std::vector<Tensor>& inputs, double tolerance) {
    Engine reference = engine_of(f, {.device = Device::reference()});
    const Tensor want = reference.run(inputs)[0];
    control().slow(kOurs, kForAges);
    Engine engine = engine_of(f, options());
    EXPECT_NE(variant_of(engine, inputs), variant_);
    expect_near(engine.run(inputs)[0], want, tolerance);
    engine.wait_for_specialisations();
    EXPECT_EQ(variant_of(engine, inputs), variant_);
    for (int repeat = 0; repeat < 3; ++repeat) {
      interleave(static_cast<unsigned long>(repeat));
      expect_near(engine.run(inputs)[0], want, tolerance);
    }
    EXPECT_EQ(engine.stats().compiles, 1u);
    EXPECT_THAT(lines_, ::testing::IsEmpty());
  }
  /// Whichever call fails while an engine that made use of the library is given back.
  template <typename F>
  void expect_all_given_back(F f, const std::vector<Tensor>& inputs) {
    control().slow(kOurs, kForAges);
    control().leaked();
    std::string failed = "any";
    unsigned long n = 0;
    while (!failed.empty()) {
      auto engine = std::make_unique<Engine>(engine_of(f, options()));
      engine->run(inputs);
      engine->wait_for_specialisations();
      control().fail(++n, kRefused);
      engine.reset();
      failed = control().failed();
      control().fail(0, 0);
      EXPECT_EQ(control().leaked(), 0u) << failed << ", call " << n;
      ASSERT_LT(n, 1000) << "calls end";
    }
    EXPECT_GT(n, 10);
  }

  const char* variable_;
  const char* variant_;
  std::mutex mutex_;
  std::vector<std::string> lines_;  ///< under `mutex_`
};

}  // namespace heddle::testing
