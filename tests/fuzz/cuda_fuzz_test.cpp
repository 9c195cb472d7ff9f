// Random graphs on the CUDA device, simulated or not: with one stream and with several, in interleavings of their
// own, against the reference evaluator.
#include <cstdlib>
#include <gtest/gtest.h>
#include <optional>

#include "ir/text.h"
#include "tests/cuda_sim/control.h"
#include "tests/fuzz/check_case.h"
#include "tests/fuzz/environment.h"
#include "tests/support/cuda_driver.h"
#include "tests/support/nightly.h"
#include "tests/support/primary_context.h"

namespace heddle::fuzz {
namespace {

constexpr std::uint32_t kCudaShards = 8;

class CudaFuzz : public ::testing::TestWithParam<std::uint32_t> {};

/// HEDDLE_CUDA_FUZZ_COUNT graphs, or `usual`, or `by_night`, from HEDDLE_CUDA_FUZZ_SEED on, dealt out to all shards.
void fuzz_on_cuda(std::uint32_t shard, const Compile& on_streams, std::uint32_t usual,
                  std::uint32_t by_night) {
  std::optional<sim::Control> control;
  if (test::on_simulator()) control.emplace(test::simulator_path());
  const std::uint32_t first = from_environment("HEDDLE_CUDA_FUZZ_SEED", 1);
  const std::uint32_t count =
      from_environment("HEDDLE_CUDA_FUZZ_COUNT", test::is_nightly() ? by_night : usual);
  int failures = 0;
  for (std::uint32_t seed = first; seed < first + count && failures < 3; ++seed) {
    if (seed % kCudaShards != shard) continue;
    const Case subject = random_case(seed);
    for (const std::uint32_t interleaving : {seed, seed + 1000, seed + 2000}) {
      if (control) control->seed(interleaving);
      // One stream stands for one thread, four for two.
      const auto compile = [&](const ir::Graph& graph, int threads) {
        return on_streams(graph, threads == 1 ? 1 : 4);
      };
      const std::optional<Failure> failure = check_case(subject, compile);
      if (!failure) continue;
      ++failures;
      ADD_FAILURE() << "seed " << seed << ", interleaving " << interleaving << ", call "
                    << failure->call << ", output " << failure->output << ": " << failure->what
                    << "\n"
                    << ir::print(subject.graph);
      break;
    }
  }
  if (control) control->seed(0);
}

TEST_P(CudaFuzz, EngineAgreesWithTheEvaluator) {
  fuzz_on_cuda(GetParam(), compile_on_cuda, 64, 500);
}

TEST_P(CudaFuzz, DonatedArguments) { fuzz_on_cuda(GetParam(), compile_donating_on_cuda, 24, 500); }

INSTANTIATE_TEST_SUITE_P(Shard, CudaFuzz, ::testing::Range(0u, kCudaShards));

}  // namespace
}  // namespace heddle::fuzz
