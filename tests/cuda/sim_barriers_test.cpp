// Barriers that not all threads wait at: the simulated driver orders what comes before an arrival and what follows a wait, and
// nothing else.
#include <gmock/gmock.h>

#include "tests/cuda/sim_problem.h"
#include "tests/cuda/support.h"

namespace heddle::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kNoBarrier = "no barrier lies between";

/// Threads of the first warp write, those of the second read, behind an mbarrier for so many arrivals.
std::string handed_over(int arrivals, const std::string& first, const std::string& second) {
  return "  __shared__ hd_mbarrier full;\n  __shared__ unsigned int s[64];\n"
         "  if (t == 0) hd_mbarrier_init(&full, " +
         std::to_string(arrivals) +
         ");\n  __syncthreads();\n"
         "  if (t < 32) {\n    s[t] = t;\n" +
         first + "  } else {\n" + second + "    memory[t] = s[t - 32];\n  }";
}

TEST(CudaSimBarriers, AnArrivalOrdersWhatCameBeforeIt) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const std::string arrive = "    hd_mbarrier_arrive(&full);\n";
  const std::string wait = "    hd_mbarrier_wait(&full, 0);\n";
  EXPECT_EQ(problem_of(handed_over(32, arrive, wait)), "");
  EXPECT_THAT(problem_of(handed_over(32, arrive, "")), HasSubstr(kNoBarrier)) << "nobody waits";
  EXPECT_THAT(problem_of(handed_over(32, arrive + "    s[t] += 1;\n", wait)), HasSubstr(kNoBarrier))
      << "what follows the arrival";
  EXPECT_THAT(problem_of(handed_over(32, arrive, "    hd_mbarrier_wait(&full, 1);\n")),
              HasSubstr(kNoBarrier))
      << "the phase before the first is over";
  EXPECT_THAT(problem_of(handed_over(1, "    if (t == 3) hd_mbarrier_arrive(&full);\n", wait)),
              HasSubstr(kNoBarrier))
      << "one thread's arrival says nothing of the others'";
}

TEST(CudaSimBarriers, PhasesFollowOneAnother) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const std::string turns =
      "  __shared__ hd_mbarrier full, free;\n  __shared__ unsigned int s;\n"
      "  if (t == 0) {\n    hd_mbarrier_init(&full, 1);\n    hd_mbarrier_init(&free, 1);\n  }\n"
      "  __syncthreads();\n  for (unsigned int k = 0; k < 4; ++k) {\n    if (t == 0) {\n";
  const std::string wait = "      if (k > 0) hd_mbarrier_wait(&free, k - 1);\n";
  const std::string rest =
      "      s = k;\n      hd_mbarrier_arrive(&full);\n    } else if (t == 32) {\n"
      "      hd_mbarrier_wait(&full, k);\n      memory[k] = s;\n      hd_mbarrier_arrive(&free);\n"
      "    }\n  }";
  EXPECT_EQ(problem_of(turns + wait + rest), "");
  EXPECT_THAT(problem_of(turns + rest), HasSubstr("threads wait for others that never come"))
      << "the phase that is waited for is over, and another of its parity is not";
}

TEST(CudaSimBarriers, CopiesArriveByThemselves) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const auto copied = [](const std::string& before, const std::string& arrive) {
    return "  __shared__ hd_mbarrier full;\n  __shared__ __align__(16) unsigned int s[128];\n"
           "  if (t == 0) hd_mbarrier_init(&full, 32);\n  __syncthreads();\n"
           "  if (t < 32) {\n" +
           before + "    hd_copy_async(s + 4 * t, memory + t / 8 * 4);\n" + arrive +
           "  } else {\n    hd_mbarrier_wait(&full, 0);\n    if (s[t + 17] != 0) memory[t] = 1;\n  "
           "}";
  };
  EXPECT_EQ(problem_of(copied("", "    hd_mbarrier_arrive_copies(&full);\n")), "");
  EXPECT_THAT(problem_of(copied("", "    hd_mbarrier_arrive(&full);\n")), HasSubstr(kNoBarrier))
      << "the thread's own arrival does not wait for its copies";
  EXPECT_THAT(problem_of(copied("    s[t + 64] = 1;\n", "    hd_mbarrier_arrive_copies(&full);\n")),
              HasSubstr(kNoBarrier))
      << "nor does that of its copies say what it wrote itself";
}

TEST(CudaSimBarriers, NamedOnesAreForThoseThatCome) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const auto turns = [](const std::string& first, const std::string& second) {
    return "  __shared__ unsigned int s[32];\n  if (t < 32) {\n    s[t] = t;\n    " + first +
           "\n  } else if (t < 64) {\n    " + second +
           "\n    memory[t] = s[63 - t];\n  } else {\n    memory[t % 64] += 0;\n  }";
  };
  EXPECT_EQ(problem_of(turns("hd_barrier_arrive<64>(1);", "hd_barrier_sync<64>(1);")), "");
  EXPECT_THAT(problem_of(turns("hd_barrier_arrive<64>(1);", "")), HasSubstr(kNoBarrier));
  EXPECT_THAT(problem_of(turns("hd_barrier_arrive<64>(1);", "hd_barrier_sync<64>(2);")),
              HasSubstr("threads wait for others that never come"));
  EXPECT_THAT(problem_of(turns("hd_barrier_arrive<64>(1);", "hd_barrier_sync<96>(1);")),
              HasSubstr("expect other numbers of threads"));
  EXPECT_THAT(problem_of(turns("hd_barrier_arrive<64>(16);", "hd_barrier_sync<64>(16);")),
              HasSubstr("a barrier that there is not"));
}

TEST(CudaSimBarriers, WhatIsMissingIsSaid) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  EXPECT_THAT(problem_of(handed_over(33, "    hd_mbarrier_arrive(&full);\n",
                                     "    hd_mbarrier_wait(&full, 0);\n")),
              HasSubstr("threads wait for others that never come"));
  EXPECT_THAT(problem_of("  __shared__ hd_mbarrier full;\n  hd_mbarrier_arrive(&full);"),
              HasSubstr("uses an mbarrier that nobody made"));
  EXPECT_THAT(
      problem_of("  __shared__ hd_mbarrier full;\n  if (t == 0) hd_mbarrier_init(&full, 64);\n"
                 "  hd_mbarrier_arrive(&full);"),
      HasSubstr(kNoBarrier))
      << "not before all know of it";
}

}  // namespace
}  // namespace heddle::testing
