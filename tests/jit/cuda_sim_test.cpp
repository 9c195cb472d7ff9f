// The CUDA text of the corpus runs on the simulated device and gives what the CPU's code gives.
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "tests/jit/cuda_runner.h"
#include "tests/jit/nest_interpreter.h"
#if HEDDLE_WITH_LLVM
#include "tests/jit/nest_runner.h"
#endif

namespace heddle::tests {
namespace {

#if HEDDLE_WITH_LLVM

bool agrees(double got, double want, double tolerance) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (got == want) return true;
  return std::abs(got - want) <= tolerance * (std::abs(want) + 1);
}

/// Sums and products that meet infinities depend on the order, but not on it whether they are finite.
bool agrees_loosely(double got, double want, double tolerance) {
  if (!std::isfinite(want)) return !std::isfinite(got);
  return agrees(got, want, tolerance);
}

void expect_same(const CorpusCase& one, const std::vector<CorpusBuffer>& got,
                 const std::vector<CorpusBuffer>& want) {
  const bool loosely = one.nest.name.ends_with("_special");
  for (std::size_t b = 0; b < got.size(); ++b) {
    const double tolerance = is_floating(got[b].dtype) ? one.tolerance : 0;
    for (std::int64_t k = 0; k < got[b].count(); ++k) {
      const double g = got[b].number(k);
      const double w = want[b].number(k);
      ASSERT_TRUE(loosely ? agrees_loosely(g, w, tolerance) : agrees(g, w, tolerance))
          << one.nest.name << ": b" << b << "[" << k << "] is " << g << ", the CPU has " << w;
    }
  }
}

std::vector<CorpusBuffer> interpreted(const CorpusCase& one) {
  std::vector<CorpusBuffer> result = one.buffers;
  std::vector<test::InterpreterBuffer> memory;
  for (CorpusBuffer& buffer : result) memory.push_back({buffer.bytes.data(), buffer.count()});
  test::interpret(one.nest, memory, one.sizes);
  return result;
}

void compare_with_cpu(const std::vector<CorpusCase>& cases) {
  std::vector<jit::cuda::CudaSource> sources;
  for (const CorpusCase& one : cases) sources.push_back(jit::cuda::emit_cuda(one.nest));
  SimulatedKernels kernels(std::move(sources));
  for (std::size_t k = 0; k < cases.size(); ++k) {
    const CorpusCase& one = cases[k];
    std::vector<CorpusBuffer> want = one.buffers;
    std::vector<void*> pointers;
    for (CorpusBuffer& buffer : want) pointers.push_back(buffer.bytes.data());
    const std::int32_t cpu_status = CompiledNest(one.nest).run(pointers, one.sizes);
    std::vector<CorpusBuffer> got = one.buffers;
    EXPECT_EQ(kernels.run(k, one.sizes, got), cpu_status) << one.nest.name;
    // The CPU's code ends where a check fails; on CUDA the index is clamped.
    expect_same(one, got, cpu_status == 0 ? want : interpreted(one));
  }
}

TEST(CudaSim, ScalarsAgreeWithTheCpu) { compare_with_cpu(scalar_corpus()); }
TEST(CudaSim, LoopsAgreeWithTheCpu) { compare_with_cpu(loop_corpus()); }

#endif

/// Runs one case of the corpus by name.
std::vector<CorpusBuffer> run_case(const std::string& name, std::int32_t status = 0) {
  for (const CorpusCase& one : corpus()) {
    if (one.nest.name != name) continue;
    SimulatedKernels kernels({jit::cuda::emit_cuda(one.nest)});
    std::vector<CorpusBuffer> buffers = one.buffers;
    EXPECT_EQ(kernels.run(0, one.sizes, buffers), status);
    return buffers;
  }
  ADD_FAILURE() << "no case " << name;
  return {};
}

TEST(CudaSim, SoftmaxIsSoftmax) {
  for (const char* name : {"softmax_local_256", "softmax_local_0"}) {
    const std::vector<CorpusBuffer> b = run_case(name);
    for (std::int64_t row = 0; row < 4; ++row) {
      double total = 0;
      for (std::int64_t k = 0; k < 150; ++k) total += std::exp(b[0].number(row * 150 + k));
      for (std::int64_t k = 0; k < 150; ++k)
        ASSERT_NEAR(b[1].number(row * 150 + k), std::exp(b[0].number(row * 150 + k)) / total, 1e-7);
    }
  }
}

TEST(CudaSim, ContractionIsMatmul) {
  const std::vector<CorpusBuffer> b = run_case("contract_f16_f32");
  for (std::int64_t i = 0; i < 21; ++i)
    for (std::int64_t j = 0; j < 19; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < 26; ++k)
        sum += b[0].number(i * 26 + k) * b[1].number(j * 26 + k);
      ASSERT_NEAR(b[2].number(i * 19 + j), std::max(sum, -3.0), 1e-4);
    }
}

TEST(CudaSim, OnlineAttentionIsAttention) {
  const std::vector<CorpusBuffer> b = run_case("online_attention");
  constexpr std::int64_t kQueries = 7, kKeys = 37, kDepth = 8;
  for (std::int64_t head = 0; head < 2; ++head)
    for (std::int64_t i = 0; i < kQueries; ++i) {
      std::vector<double> weights;
      double total = 0;
      for (std::int64_t j = 0; j < kKeys; ++j) {
        double score = 0;
        for (std::int64_t d = 0; d < kDepth; ++d)
          score += b[0].number((head * kQueries + i) * kDepth + d) *
                   b[1].number((head * kKeys + j) * kDepth + d);
        weights.push_back(std::exp(score));
        total += weights.back();
      }
      for (std::int64_t d = 0; d < kDepth; ++d) {
        double want = 0;
        for (std::int64_t j = 0; j < kKeys; ++j)
          want += weights[static_cast<std::size_t>(j)] / total *
                  b[2].number((head * kKeys + j) * kDepth + d);
        ASSERT_NEAR(b[3].number((head * kQueries + i) * kDepth + d), want, 2e-5);
      }
    }
}

TEST(CudaSim, RotationsWaitForEachOther) {
  const std::vector<CorpusBuffer> b = run_case("rotations");
  for (std::int64_t row = 0; row < 3; ++row) {
    std::vector<std::int64_t> front;
    for (std::int64_t k = 0; k < 70; ++k)
      front.push_back(static_cast<std::int64_t>(b[0].number(row * 70 + k)));
    for (std::size_t step = 0; step < 5; ++step) {
      const std::int64_t head = front[step];
      std::vector<std::int64_t> next(70);
      for (std::size_t k = 0; k < 70; ++k) next[k] = front[(69 - k + 33) % 70] + head;
      next[69 - step] = head;
      if (head % 2 != 0) next[7] = head;
      front = next;
    }
    for (std::int64_t k = 0; k < 70; ++k)
      ASSERT_EQ(b[1].number(row * 70 + k), front[static_cast<std::size_t>(k)]);
  }
}

TEST(CudaSim, ScatterAddsEverything) {
  for (const char* dtype : {"f32", "i64", "u8", "i16"}) {
    const std::vector<CorpusBuffer> before = [&] {
      for (CorpusCase& one : loop_corpus())
        if (one.nest.name == std::string("scatter_") + dtype + "_sum") return one.buffers;
      return std::vector<CorpusBuffer>();
    }();
    const std::vector<CorpusBuffer> b = run_case(std::string("scatter_") + dtype + "_sum");
    for (std::int64_t slot = 0; slot < 3; ++slot) {
      double sum = before[1].number(slot);
      for (std::int64_t k = slot; k < 40; k += 3) sum += b[0].number(k);
      if (dtype == std::string("u8")) sum = std::fmod(sum, 256);
      EXPECT_NEAR(b[1].number(slot), sum, 1e-4) << dtype;
    }
  }
}

TEST(CudaSim, GatherReportsAnIndexOutOfRange) {
  run_case("gather_checked", 42);
  const std::vector<CorpusBuffer> b = run_case("gather_masked", 0);
  for (std::int64_t column = 0; column < 20; ++column) {
    EXPECT_EQ(b[2].number(column), 0);
    EXPECT_EQ(b[2].number(3 * 20 + column), b[0].number(2 * 20 + column));
  }
}

TEST(CudaSim, EmptyLoopsKeepWhatTheyBeginWith) {
  const std::vector<CorpusBuffer> b = run_case("empty_loops");
  for (std::int64_t k = 0; k < 3; ++k) {
    EXPECT_EQ(b[0].number(k), 0);
    EXPECT_EQ(b[1].number(k), 7);
  }
}

}  // namespace
}  // namespace heddle::tests
