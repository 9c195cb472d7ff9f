// Footprints of kernels of random graphs: iterations write nothing outside of theirs, and what they write does not
// depend on what lies outside of what they read.
#include "jit/footprint.h"

#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>

#include "engine/executable.h"
#include "heddle/error.h"
#include "ir/evaluate.h"
#include "tests/fuzz/random_case.h"

namespace heddle::fuzz {
namespace {

using Bytes = std::vector<unsigned char>;

/// A kernel's buffers, each of its own, with bytes that no float, index or bool minds.
class Memory {
 public:
  explicit Memory(std::span<const std::int64_t> sizes) {
    for (const std::int64_t size : sizes) {
      buffers_.emplace_back(static_cast<std::size_t>(size) + 64, 0);
      Bytes& bytes = buffers_.back();
      for (std::size_t k = 0; k < bytes.size(); ++k) bytes[k] = k % 7 == 0 ? 1 : 0;
    }
  }
  std::vector<void*> addresses() {
    std::vector<void*> list;
    for (Bytes& bytes : buffers_) list.push_back(bytes.data());
    return list;
  }
  Bytes& operator[](std::size_t k) { return buffers_[k]; }

 private:
  std::vector<Bytes> buffers_;
};

bool holds(const jit::Interval& interval, std::size_t byte) {
  const auto at = static_cast<std::int64_t>(byte);
  return interval.low <= at && at <= interval.high;
}

struct Checked {
  std::size_t pieces = 0;
  std::size_t narrow = 0;  ///< whose footprint is less than all of what is written
};

/// Iterations [begin, end) of one kernel.
void check_piece(const jit::Nest& nest, const jit::CpuKernel& kernel,
                 std::span<const std::int64_t> sizes, std::span<const std::int64_t> bytes,
                 std::int64_t begin, std::int64_t end, Checked& checked) {
  const std::vector<jit::Touched> touched = jit::Footprints(nest).at(sizes).of(begin, end);
  std::vector<char> scratch(static_cast<std::size_t>(kernel.scratch_bytes.evaluate_sizes(sizes)) +
                            128);
  auto* aligned =
      reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(scratch.data()) + 63) / 64 * 64);
  std::int32_t status = 0;
  Memory before(bytes);
  Memory plain(bytes);
  kernel.entry(plain.addresses().data(), sizes.data(), begin, end, aligned, &status);
  Memory other(bytes);
  for (std::size_t b = 0; b < bytes.size(); ++b)
    for (std::size_t k = 0; k < static_cast<std::size_t>(bytes[b]); ++k)
      if (!holds(touched[b].read, k) && !holds(touched[b].written, k)) other[b][k] ^= 1;
  kernel.entry(other.addresses().data(), sizes.data(), begin, end, aligned, &status);
  ++checked.pieces;
  for (std::size_t b = 0; b < bytes.size(); ++b) {
    const std::int64_t written = touched[b].written.high - touched[b].written.low + 1;
    if (written > 0 && written < bytes[b]) ++checked.narrow;
    for (std::size_t k = 0; k < plain[b].size(); ++k) {
      if (holds(touched[b].written, k)) {
        ASSERT_EQ(plain[b][k], other[b][k]) << "buffer " << b << " byte " << k << "\n"
                                            << jit::print(nest);
      } else {
        ASSERT_EQ(plain[b][k], before[b][k]) << "buffer " << b << " byte " << k << "\n"
                                             << jit::print(nest);
      }
    }
  }
}

TEST(Footprint, OfRandomGraphs) {
  if (HEDDLE_WITH_LLVM == 0) GTEST_SKIP() << "this build compiles nothing for the CPU";
  Checked checked;
  for (std::uint32_t seed = 1; seed <= 150 && !::testing::Test::HasFatalFailure(); ++seed) {
    const Case subject = random_case(seed);
    if (subject.calls.empty()) continue;
    engine::BuildOptions options;
    options.engine.threads = 1;
    options.engine.fuse = seed % 2 == 0;
    options.compiler = &jit::CompileService::shared();
    const base::SymbolValues given = ir::bind_sizes(subject.graph, arguments_of(subject, 0));
    std::shared_ptr<engine::Executable> executable;
    std::unique_ptr<engine::BoundPlan> plan;
    try {
      executable = std::make_shared<engine::Executable>(subject.graph, engine::Guards{}, options);
      plan = executable->bind(given, 1);
    } catch (const Error&) {
      continue;
    }
    const engine::Unit& unit = executable->unit();
    for (std::size_t k = 0; k < plan->steps.size(); ++k) {
      const ir::PlanStep& step = unit.schedule().record.steps[k];
      const jit::Nest* nest = unit.program().kernels[step.kernel].nest.get();
      if (nest == nullptr) continue;
      std::vector<std::int64_t> bytes;
      for (const ir::BufferId buffer : unit.program().launches[unit.schedule().given[k]].buffers)
        bytes.push_back(unit.schedule().record.buffers[buffer].bytes.evaluate(plan->sizes));
      const std::int64_t extent = plan->steps[k].extent;
      const auto* kernel = static_cast<const jit::CpuKernel*>(plan->steps[k].code);
      for (const std::int64_t begin : {std::int64_t{0}, extent / 2, extent - 1})
        if (begin >= 0 && begin < extent)
          check_piece(*nest, *kernel, plan->step_sizes[k], bytes, begin, begin + 1, checked);
    }
  }
  EXPECT_GT(checked.pieces, 600u);
  EXPECT_GT(checked.narrow, 60u);
}

}  // namespace
}  // namespace heddle::fuzz
