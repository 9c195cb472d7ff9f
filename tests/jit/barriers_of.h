// Mutation: barriers and fences of a launch are left out, one at a time; the simulator has to object.
#pragma once

#include <array>
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

/// A launch whose barriers, the fences by which products of warpgroups see what threads wrote, and waits at mbarriers can be left
/// out; on the simulator alone.
class BarriersOf {
 public:
  enum class What { Barrier, ProxyFence, MbarrierWait };

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
    for (const What what : {What::Barrier, What::ProxyFence, What::MbarrierWait}) {
      EXPECT_EQ(problem_without(what, 0), "");
      counts_[static_cast<std::size_t>(what)] = passed_;
    }
  }

  /// Those that the launch passes.
  std::uint64_t count(What what = What::Barrier) const {
    return counts_[static_cast<std::size_t>(what)];
  }
  /// Those, from 1 on, without which the simulator finds nothing wrong; of all others it says that something is missing.
  /// @param step   every which one is left out
  /// @param first  of them
  std::vector<std::uint64_t> unnoticed(What what = What::Barrier, std::uint64_t step = 1,
                                       std::uint64_t first = 1) {
    const std::string objection = what == What::ProxyFence
                                      ? "no fence of the asynchronous proxy lies between"
                                  : what == What::Barrier ? "no barrier lies between"
                                                          : "lies between";
    std::vector<std::uint64_t> numbers;
    for (std::uint64_t k = first; k <= count(what); k += step) {
      const std::string problem = problem_without(what, k);
      if (problem.empty())
        numbers.push_back(k);
      else
        EXPECT_THAT(problem, ::testing::HasSubstr(objection)) << "number " << k;
    }
    return numbers;
  }

 private:
  /// What the simulator objects to when number `skipped` is left out; empty: nothing. 0: none is.
  std::string problem_without(What what, std::uint64_t skipped) {
    static const sim::Control control(test::simulator_path());
    const auto skip = what == What::Barrier      ? control.skip_barrier
                      : what == What::ProxyFence ? control.skip_proxy_fence
                                                 : control.skip_mbarrier_wait;
    std::vector<std::span<unsigned char>> spans;
    for (ir::Literal& literal : buffers_)
      spans.emplace_back(static_cast<unsigned char*>(literal.data()), literal.bytes());
    std::string problem;
    try {
      SimulatedKernels device(sources_);
      skip(skipped);
      device.run(kernel_, sizes_, spans, parts_);
    } catch (const DeviceLost&) {
      problem = control.problem();
    }
    passed_ = skip(0);
    return problem;
  }

  std::vector<jit::cuda::CudaSource> sources_;
  std::size_t kernel_;
  std::vector<std::int64_t> sizes_;
  std::vector<ir::Literal> buffers_;
  std::int64_t parts_;
  std::uint64_t passed_ = 0;               ///< by the last launch
  std::array<std::uint64_t, 3> counts_{};  ///< by What
};

}  // namespace heddle::tests
