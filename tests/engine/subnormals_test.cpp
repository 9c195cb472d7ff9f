// Subnormal numbers: kept unless the caller's thread, or the engine's options, say otherwise, on all threads alike.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <gtest/gtest.h>

#include "base/float_control.h"
#include "heddle/heddle.h"

namespace hd = heddle;

namespace {

using heddle::base::SubnormalMode;
using heddle::base::SubnormalScope;

/// Large enough for all threads.
constexpr std::int64_t kCount = 1 << 21;

/// How many halves of the least normal number are 0.
std::int64_t zeros_of(hd::Engine& engine) {
  hd::Tensor x = hd::Tensor::empty(hd::f32, {kCount});
  std::fill_n(x.data_as<float>(), kCount, 0x1p-126f);
  const hd::Tensor y = engine.run({x})[0];
  const auto* first = y.data_as<float>();
  // As bits: with the mode set, a comparison would take them for 0.
  std::int64_t zeros = 0;
  for (std::int64_t k = 0; k < kCount; ++k) {
    const auto bits = std::bit_cast<std::uint32_t>(first[k]);
    if (bits == 0) ++zeros;
    EXPECT_TRUE(bits == 0 || bits == 0x00400000u) << bits;
  }
  return zeros;
}

hd::Engine halving(const hd::EngineOptions& options) {
  return hd::parse_ir(R"(
graph @main(%x: f32[s0]) {
  %y = mul(%x, 0.5: f32)
  return %y
}
)",
                      options);
}

class Subnormals : public ::testing::Test {
 protected:
  void SetUp() override {
    if (SubnormalMode::flushing() == SubnormalMode::current())
      GTEST_SKIP() << "needs a processor that can flush subnormal numbers";
  }
};

TEST_F(Subnormals, AreKept) {
  hd::Engine engine = halving({.threads = 4});
  for (int call = 0; call < 3; ++call) EXPECT_EQ(zeros_of(engine), 0);
}

TEST_F(Subnormals, AreZeroWhereOptionsSaySo) {
  const SubnormalMode before = SubnormalMode::current();
  hd::Engine flushing = halving({.threads = 4, .flush_subnormals = true});
  hd::Engine keeping = halving({.threads = 4, .flush_subnormals = false});
  for (int call = 0; call < 3; ++call) {
    EXPECT_EQ(zeros_of(flushing), kCount);
    EXPECT_TRUE(SubnormalMode::current() == before);
    EXPECT_EQ(zeros_of(keeping), 0) << "threads that worked for the other engine go on so";
  }
}

TEST_F(Subnormals, AreWhatTheCallersThreadTakesThemFor) {
  hd::Engine engine = halving({.threads = 4});
  for (int call = 0; call < 3; ++call) {
    {
      const SubnormalScope scope(SubnormalMode::flushing());
      EXPECT_EQ(zeros_of(engine), kCount);
    }
    EXPECT_EQ(zeros_of(engine), 0);
  }
}

TEST_F(Subnormals, AreZeroWhereTheEnvironmentSaysSo) {
  ::setenv("HEDDLE_FLUSH_SUBNORMALS", "1", 1);
  hd::Engine engine = halving({.threads = 2});
  ::setenv("HEDDLE_FLUSH_SUBNORMALS", "maybe", 1);
  EXPECT_THROW(halving({}), hd::OptionError);
  ::unsetenv("HEDDLE_FLUSH_SUBNORMALS");
  EXPECT_EQ(zeros_of(engine), kCount);
}

}  // namespace
