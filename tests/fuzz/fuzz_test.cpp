// Random graphs through the whole engine against the reference evaluator.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <unistd.h>

#include "ir/text.h"
#include "tests/fuzz/check_case.h"
#include "tests/fuzz/environment.h"
#include "tests/fuzz/histogram.h"
#include "tests/fuzz/shrink.h"
#include "tests/support/nightly.h"

namespace heddle::fuzz {
namespace {

std::string running;  // what a crash or an exception prints

void print_and_die(int signal) {
  if (write(STDERR_FILENO, running.data(), running.size()) < 0) _exit(3);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void report_crashes() {
  for (const int signal : {SIGSEGV, SIGFPE, SIGABRT, SIGBUS, SIGILL})
    std::signal(signal, print_and_die);
}

std::string describe(const Case& subject) {
  std::string text = "\n// seed " + std::to_string(subject.seed);
  for (const Call& call : subject.calls)
    for (const auto& [symbol, size] : call.sizes)
      text += "\n// " + symbol.to_string() + " = " + std::to_string(size);
  return text + "\n" + ir::print(subject.graph);
}

constexpr std::uint32_t kShards = 8;

/// Seeds of one shard: HEDDLE_FUZZ_COUNT graphs from HEDDLE_FUZZ_SEED on are dealt out to all.
class Fuzz : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  // Kernels of this very build: a cache of their own.
  static void SetUpTestSuite() {
    cache() = std::filesystem::temp_directory_path() / ("heddle_fuzz_" + std::to_string(getpid()));
    setenv("HEDDLE_CACHE_DIR", cache().c_str(), 1);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(cache()); }
  /// Steps run in pieces that take turns (engine/chains.h) in every other shard: what lies between them is large beside so small a
  /// cache.
  void SetUp() override {
    if (GetParam() % 2 == 1) setenv("HEDDLE_L2_CACHE", "64", 1);
  }
  void TearDown() override { unsetenv("HEDDLE_L2_CACHE"); }
  static std::filesystem::path& cache() {
    static std::filesystem::path path;
    return path;
  }
};

TEST_P(Fuzz, EngineAgreesWithTheEvaluator) {
  report_crashes();
  const std::uint32_t first = from_environment("HEDDLE_FUZZ_SEED", 1);
  const std::uint32_t count =
      from_environment("HEDDLE_FUZZ_COUNT", test::is_nightly() ? 20000 : 600);
  int failures = 0;
  Histogram histogram;
  for (std::uint32_t seed = first; seed < first + count && failures < 5; ++seed) {
    if (seed % kShards != GetParam()) continue;
    running.clear();
    try {
      const Case subject = random_case(seed);
      running = describe(subject);
      histogram.add(subject);
      if (!check_case(subject, compile_with_engine)) continue;
      ++failures;
      ADD_FAILURE() << report(subject, compile_with_engine);
    } catch (const std::exception& error) {
      ++failures;
      ADD_FAILURE() << "// seed " << seed << ": " << error.what() << running;
    }
  }
  std::printf("%s", histogram.to_string().c_str());
  if (count >= 1000 && failures == 0) expect_floors(histogram);
}

// Arguments that are given away give the same results, wherever outputs lie.
TEST_P(Fuzz, DonatedArguments) {
  report_crashes();
  const std::uint32_t first = from_environment("HEDDLE_FUZZ_SEED", 1);
  const std::uint32_t count = from_environment("HEDDLE_FUZZ_COUNT", test::is_nightly() ? 400 : 160);
  int failures = 0;
  for (std::uint32_t seed = first; seed < first + count && failures < 5; ++seed) {
    if (seed % kShards != GetParam()) continue;
    const Case subject = random_case(seed);
    running = describe(subject);
    if (!check_case(subject, compile_donating)) continue;
    ++failures;
    ADD_FAILURE() << report(subject, compile_donating);
  }
}

INSTANTIATE_TEST_SUITE_P(Shard, Fuzz, ::testing::Range(0u, kShards));

}  // namespace
}  // namespace heddle::fuzz
