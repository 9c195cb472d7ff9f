// Races inside a launch: the simulated driver reports accesses of two threads that no barrier orders, in shared and in
// global memory; and does so when a barrier is left out.
#include <gmock/gmock.h>

#include "tests/cuda/sim_problem.h"
#include "tests/cuda/support.h"

namespace heddle::testing {
namespace {

using ::testing::HasSubstr;

TEST(CudaSimRaces, SharedMemoryWithoutABarrier) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const std::string store = "  __shared__ unsigned int s[64];\n  s[t] = t;\n";
  const std::string load = "  memory[t] = s[63 - t];";
  EXPECT_EQ(problem_of(store + "  __syncthreads();\n" + load), "");
  EXPECT_THAT(problem_of(store + load),
              ::testing::AllOf(HasSubstr("f: block 0: thread "),
                               HasSubstr(" of block 0 touched in the same launch: no barrier")));
  EXPECT_EQ(problem_of(store + "  memory[t] = s[t];"), "") << "each thread its own";
}

TEST(CudaSimRaces, ABarrierOrdersWhatComesNextOnly) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const std::string twice =
      "  __shared__ unsigned int s[64];\n  for (int k = 0; k < 2; ++k) {\n    s[t] = t;\n    "
      "__syncthreads();\n    memory[t] += s[63 - t];\n";
  EXPECT_THAT(problem_of(twice + "  }"), HasSubstr("no barrier lies between"))
      << "the second round's stores meet the first one's loads";
  EXPECT_EQ(problem_of(twice + "    __syncthreads();\n  }"), "");
}

TEST(CudaSimRaces, GlobalMemoryWithinABlock) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  EXPECT_EQ(problem_of("  memory[t] = t;\n  __syncthreads();\n  memory[63 - t] += 1;"), "");
  EXPECT_THAT(problem_of("  memory[t] = t;\n  memory[63 - t] += 1;"),
              HasSubstr("no barrier lies between"));
}

/// What is read and written at once is written.
TEST(CudaSimRaces, AnUpdateWithoutABarrier) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  EXPECT_EQ(problem_of("  memory[t] += 1;"), "");
  for (const char* update : {"memory[0] += 1;", "memory[0] = memory[0] + t;", "++memory[0];"})
    EXPECT_THAT(problem_of(std::string("  ") + update), HasSubstr("no barrier lies between"));
  const std::string shared = "  __shared__ unsigned int s[64];\n  s[t] = t;\n  __syncthreads();\n";
  EXPECT_EQ(problem_of(shared + "  s[t] *= 2;"), "");
  EXPECT_THAT(problem_of(shared + "  s[t / 2] *= 2;"), HasSubstr("no barrier lies between"));
}

TEST(CudaSim, SaysWhereAKernelIsUndefined) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  EXPECT_EQ(problem_of("  memory[t] = 1u << (t % 32);"), "");
  EXPECT_THAT(problem_of("  memory[t] = 1u << t;"),
              HasSubstr("f: block 0: thread 32 shifts by too much in line "));
  EXPECT_THAT(problem_of("  memory[t] = 7u / (40 - t);"),
              HasSubstr("thread 40 divides an integer by 0"));
  EXPECT_THAT(problem_of("  __shared__ unsigned int s[8];\n  s[t] = t;"),
              HasSubstr("thread 8 has an index beyond its array"));
  EXPECT_THAT(problem_of("  if (t == 3) *(double*)(memory + 1) = 1;"),
              HasSubstr("thread 3 uses an address that is null or not aligned"));
  EXPECT_THAT(problem_of("  if (t == 5) *(unsigned int*)(t - 5) = 1;"),
              HasSubstr("thread 5 uses an address that is null or not aligned"));
  EXPECT_EQ(problem_of("  memory[t] = (unsigned int)(2147483647 + (int)t);"), "")
      << "integers wrap";
}

TEST(CudaSimRaces, NoBarrierOrdersBlocks) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  EXPECT_EQ(problem_of("  memory[32 * blockIdx.x + t] = t;", 2, 32), "");
  EXPECT_THAT(
      problem_of("  __syncthreads();\n  if (t == 0) memory[0] = blockIdx.x;\n  __syncthreads();",
                 2),
      HasSubstr("thread 0 of block 0 touched"));
  EXPECT_EQ(problem_of("  if (memory[0] != 0) memory[t] = 1;", 2), "") << "reads alone are none";
}

TEST(CudaSimRaces, SharedMemoryIsAnotherOneForEachBlock) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  EXPECT_EQ(problem_of("  __shared__ unsigned int s;\n  if (t == 0) s = blockIdx.x;\n  "
                       "__syncthreads();\n  if (t == 0) memory[blockIdx.x] = s;",
                       3),
            "");
}

TEST(CudaSimRaces, AtomicUpdatesAreNoneButWithPlainAccesses) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  EXPECT_EQ(problem_of("  atomicAdd(memory, 1u);", 3), "");
  EXPECT_THAT(problem_of("  atomicAdd(memory, 1u);\n  if (t == 5) memory[1] = memory[0];"),
              HasSubstr("no barrier lies between"));
  EXPECT_EQ(problem_of("  atomicAdd(memory, 1u);\n  __syncthreads();\n  if (t == 5) memory[1] = "
                       "memory[0];"),
            "");
}

TEST(CudaSimRaces, BytesOfAWordAreToldApart) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  EXPECT_EQ(problem_of("  ((unsigned char*)memory)[t] = 1;"), "");
  EXPECT_THAT(problem_of("  ((unsigned char*)memory)[t / 2] = 1;"),
              HasSubstr("no barrier lies between"));
  EXPECT_THAT(problem_of("  ((unsigned char*)memory)[t] = 1;\n  if (t == 9) memory[0] = 2;"),
              HasSubstr("no barrier lies between"));
}

/// Blocks hand words on: each writes its own, and the one that comes last to the counter reads all of them.
std::string handing_over(const std::string& release, const std::string& acquire) {
  return "  __shared__ unsigned int last;\n  memory[32 + 2 * blockIdx.x + t % 2] = t;\n  "
         "__syncthreads();\n"
         "  if (t == 0) {\n" +
         release + "    last = atomicInc(memory, gridDim.x - 1) == gridDim.x - 1;\n" + acquire +
         "  }\n  __syncthreads();\n"
         "  if (last != 0) memory[t + 1] = memory[32 + 2 * t] + memory[33 + 2 * t];";
}

TEST(CudaSimRaces, AFenceAndACounterHandMemoryFromBlockToBlock) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const std::string fence = "    __threadfence();\n";
  for (const unsigned long seed : {0ul, 1ul, 2ul, 3ul}) {
    interleave(seed);
    EXPECT_EQ(problem_of(handing_over(fence, fence), 4, 2), "") << seed;
    for (const auto& [release, acquire] : {std::pair{fence, std::string()}, {"", fence}, {"", ""}})
      EXPECT_THAT(problem_of(handing_over(release, acquire), 4, 2),
                  HasSubstr("touched in the same launch: no barrier lies between"))
          << seed;
  }
  interleave(0);
}

/// What the thread writes after its fence, and what its neighbours write without a barrier, is not handed on.
TEST(CudaSimRaces, AFenceHandsOnWhatComesBeforeIt) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const auto told = [](const std::string& before, const std::string& after) {
    return problem_of(before + "  if (t == 0) {\n    __threadfence();\n" + after +
                          "    const bool last = atomicInc(memory, 1) == 1;\n    __threadfence();\n"
                          "    if (last) memory[1] = memory[8] + memory[9];\n  }",
                      2, 2);
  };
  EXPECT_EQ(told("  if (t == 0) memory[8 + blockIdx.x] = 1;\n", ""), "") << "its own";
  EXPECT_EQ(told("  if (t == 1) memory[8 + blockIdx.x] = 1;\n  __syncthreads();\n", ""), "");
  EXPECT_THAT(told("  if (t == 1) memory[8 + blockIdx.x] = 1;\n", ""),
              HasSubstr("no barrier lies between"));
  EXPECT_THAT(told("", "    memory[8 + blockIdx.x] = 1;\n"), HasSubstr("no barrier lies between"));
}

/// Another word's update hands nothing on.
TEST(CudaSimRaces, OnlyTheSameCounterOrdersBlocks) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  EXPECT_THAT(
      problem_of(
          "  memory[8] = memory[8] + 1;\n  __threadfence();\n  atomicInc(memory + blockIdx.x, "
          "1);\n  __threadfence();",
          2, 1),
      HasSubstr("no barrier lies between"));
  EXPECT_EQ(problem_of(
                "  if (atomicInc(memory, 1) == 0) {\n    memory[8] = 1;\n    __threadfence();\n    "
                "atomicInc(memory, 3);\n  } else {\n    __threadfence();\n    memory[8] = 2;\n  }",
                2, 1),
            "")
      << "in turn";
}

/// A counter that wraps means something only to launches in order: two streams that nothing orders may not share one.
TEST(CudaSimRaces, ACounterBelongsToLaunchesInOrder) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  for (const auto& [update, ordered, objects] : {std::tuple{"atomicInc(memory, 3)", false, true},
                                                 {"atomicInc(memory, 3)", true, false},
                                                 {"atomicAdd(memory, 1u)", false, false}}) {
    const auto device = device::cuda::open_cuda(0, test::simulator_path());
    const device::cuda::Nvrtc nvrtc(test::simulator_path());
    const std::string text =
        std::string("extern \"C\" __global__ void f(unsigned int* memory) { ") + update + "; }\n";
    const auto module = device->load(nvrtc.compile_cubin(text, "f", "sm_90a").image);
    const auto first = device->make_stream();
    const auto second = device->make_stream();
    const device::Allocation memory(*device, 4);
    device->fill(memory.get(), 0, 4, *first);
    first->synchronize();
    void* address = memory.get();
    void* const arguments[] = {&address};
    bool objected = false;
    try {
      device->launch(module->kernel("f"), {.blocks = 2, .threads = 1}, arguments, *first);
      if (ordered) first->synchronize();
      device->launch(module->kernel("f"), {.blocks = 2, .threads = 1}, arguments, *second);
      first->synchronize();
      second->synchronize();
    } catch (const DeviceLost&) {
      objected = true;
    }
    EXPECT_EQ(objected, objects) << update << (ordered ? ", in order" : "");
  }
}

/// Mutation: each barrier that the kernels of a row-wise softmax, a product and a row sum pass is left out in turn.
TEST(CudaSimRaces, ABarrierThatIsLeftOutIsNoticed) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const auto rows = [](const Tensor& x) {
    return std::vector<Tensor>{softmax(x, -1), matmul(x, x), sum(x * x, {1})};
  };
  const std::vector<Tensor> inputs = {counted(f32, {3, 3})};
  std::uint64_t barriers = 0;
  {
    Engine engine(rows, on_cuda(1, false));
    engine.run(inputs);
    control().skip_barrier(0);
    engine.run(inputs);
    barriers = control().skip_barrier(0);
  }
  ASSERT_GE(barriers, 6u);
  std::uint64_t noticed = 0;
  for (std::uint64_t n = 1; n <= barriers; ++n) {
    Engine engine(rows, on_cuda(1, false));
    control().skip_barrier(n);
    try {
      engine.run(inputs);
    } catch (const DeviceLost&) {
      EXPECT_THAT(std::string(control().problem()), HasSubstr("no barrier lies between"));
      ++noticed;
    }
    control().skip_barrier(0);
  }
  // The first barrier of a block's first reduction guards scratch that nobody has used yet.
  EXPECT_GE(noticed, barriers / 2);
  RecordProperty("barriers", static_cast<int>(barriers));
  RecordProperty("noticed", static_cast<int>(noticed));
}

}  // namespace
}  // namespace heddle::testing
