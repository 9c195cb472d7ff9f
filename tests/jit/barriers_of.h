// Mutation: barriers of a launch are left out, one at a time; the simulator has to object.
#pragma once

#include <gmock/gmock.h>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "heddle/error.h"
#include "ir/literal.h"
#include "tests/cuda_sim/control.h"
#include "tests/jit/cuda_runner.h"

namespace heddle::tests {

/// A launch whose barriers can be left out; on the simulator alone.
class BarriersOf {
 public:
  /// @param buffers  what the kernel's parameters point to, results last
  /// @param parts    blocks that share a tile
  BarriersOf(std::vector<jit::cuda::CudaSource> sources, std::size_t kernel,
             std::vector<std::int64_t> sizes, std::vector<ir::Literal> buffers,
             std::int64_t parts = 1)
      : sources_(std::move(sources)),
        kernel_(kernel),
        sizes_(std::move(sizes)),
        buffers_(std::move(buffers)),
        parts_(parts) {
    EXPECT_EQ(problem_without(0), "");
  }

  /// Those that the launch passes.
  std::uint64_t count() const { return count_; }
  /// Those, from 1 on, without which the simulator finds nothing wrong; of all others it says that a barrier is missing.
  std::vector<std::uint64_t> unnoticed() {
    std::vector<std::uint64_t> numbers;
    const std::uint64_t count = count_;
    for (std::uint64_t k = 1; k <= count; ++k) {
      const std::string problem = problem_without(k);
      if (problem.empty())
        numbers.push_back(k);
      else
        EXPECT_THAT(problem, ::testing::HasSubstr("no barrier lies between")) << "barrier " << k;
    }
    return numbers;
  }

 private:
  /// What the simulator objects to when barrier `skipped` is left out; empty: nothing. 0: none is.
  std::string problem_without(std::uint64_t skipped) {
    static const sim::Control control(test::simulator_path());
    std::vector<std::span<unsigned char>> spans;
    for (ir::Literal& literal : buffers_)
      spans.emplace_back(static_cast<unsigned char*>(literal.data()), literal.bytes());
    std::string problem;
    try {
      SimulatedKernels device(sources_);
      control.skip_barrier(skipped);
      device.run(kernel_, sizes_, spans, parts_);
    } catch (const DeviceLost&) {
      problem = control.problem();
    }
    count_ = control.skip_barrier(0);
    return problem;
  }

  std::vector<jit::cuda::CudaSource> sources_;
  std::size_t kernel_;
  std::vector<std::int64_t> sizes_;
  std::vector<ir::Literal> buffers_;
  std::int64_t parts_;
  std::uint64_t count_ = 0;
};

}  // namespace heddle::tests
