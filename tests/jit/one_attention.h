// Graphs that are attention in one kernel on CUDA: all ways to attend, on the simulated device against the reference evaluator.
#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/text.h"
#include "jit/cuda/attention_text.h"
#include "tests/cuda_sim/control.h"
#include "tests/jit/cuda_runner.h"
#include "tests/jit/lower_support.h"

namespace heddle::tests {

using jit::cuda::AttentionTile;

/// An H200.
inline constexpr jit::cuda::ProductDevice kAttentionDevice{132, 227 * 1024, true, true};

inline double attention_tolerance(const std::string& dtype) {
  return dtype == "f16" ? 2e-3 : dtype == "bf16" ? 1.6e-2 : 2e-6;
}

/// A graph whose program is attention in one kernel, and all its variants.
class OneAttention {
 public:
  explicit OneAttention(const std::string& text)
      : graph_(ir::parse(text)),
        program_(jit::lower(
            graph_, {.target = jit::LowerOptions::Target::Cuda, .rest = {.library = false}})) {
    const auto parts = jit::cuda::attention_parts(nest());
    EXPECT_TRUE(parts) << jit::print(nest());
    if (!parts) return;
    tiles_ = jit::cuda::attention_tiles(parts->dtype(), parts->depth(), parts->value_columns(),
                                        nest().attention->masked, kAttentionDevice);
    for (const AttentionTile& tile : tiles_)
      sources_.push_back(jit::cuda::emit_attention(*parts, tile, {}));
  }

  const ir::Graph& graph() const { return graph_; }
  const jit::Nest& nest() const { return *program_.kernels.at(0).nest; }
  const std::vector<jit::cuda::CudaSource>& sources() const { return sources_; }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const AttentionTile& tile : tiles_) names.push_back(tile.name());
    return names;
  }
  /// @param warpgroups  with the kernels that only sm_90a has
  std::string text(bool warpgroups = true) const {
    std::string kernels;
    for (std::size_t k = 0; k < sources_.size(); ++k)
      if (warpgroups || !tiles_[k].warpgroups) kernels += sources_[k].kernel + "\n";
    return jit::cuda::prelude_for(kernels) + kernels;
  }

  void expect_right(const std::vector<std::vector<std::int64_t>>& sizes, double tolerance) {
    for (const std::vector<std::int64_t>& one : sizes) {
      SCOPED_TRACE(::testing::PrintToString(one));
      expect_right(test::random_arguments(graph_, one), tolerance);
    }
  }
  /// Each kernel in turn, its keys parted among so many blocks.
  void expect_right(const std::vector<ir::Literal>& arguments, double tolerance) {
    ASSERT_EQ(program_.record.steps.size(), 1u) << test::nests_of(program_);
    if (device_ == nullptr) device_ = std::make_unique<SimulatedKernels>(sources_);
    for (std::size_t k = 0; k < sources_.size() && !::testing::Test::HasFailure(); ++k) {
      if (only_.value_or(k) != k) continue;
      SCOPED_TRACE(tiles_[k].name() + " / " + std::to_string(parts_));
      const auto runner = [&](const jit::Nest& nest,
                              std::span<const test::InterpreterBuffer> buffers,
                              std::span<const std::int64_t> values) {
        std::vector<std::span<unsigned char>> spans;
        for (std::size_t b = 0; b < buffers.size(); ++b)
          spans.emplace_back(
              static_cast<unsigned char*>(buffers[b].data),
              static_cast<std::size_t>(buffers[b].count) * size_of(nest.buffers[b].dtype));
        std::list<std::vector<unsigned char>> copies;
        for (auto& span : spans)
          if (poison_ && span.size() == key_bytes_) {
            span = copies.emplace_back(span.begin(), span.end());
            poison_(span);
          }
        return device_->run(k, {values.begin(), values.end()}, spans, parts_);
      };
      test::expect_program_right(graph_, program_, arguments, {.runner = runner}, tolerance);
    }
  }

  /// What is done to the `bytes` of the keys, and of the values, that kernels see and the evaluator does not.
  void poison(std::size_t bytes, std::function<void(std::span<unsigned char>)> with) {
    key_bytes_ = bytes;
    poison_ = std::move(with);
  }
  /// What the threads of kernel `k` read of the device's memory; of the simulator alone.
  std::int64_t bytes_read(std::size_t k, const std::vector<std::int64_t>& sizes) {
    const sim::Control control(test::simulator_path());
    only_ = k;
    control.bytes_read();
    expect_right({sizes}, 1e-2);
    only_.reset();
    return static_cast<std::int64_t>(control.bytes_read());
  }
  /// Among how many blocks keys are parted.
  void part_keys(std::int64_t parts) { parts_ = parts; }

 private:
  ir::Graph graph_;
  jit::Program program_;
  std::size_t key_bytes_ = 0;
  std::int64_t parts_ = 1;
  std::optional<std::size_t> only_;
  std::function<void(std::span<unsigned char>)> poison_;
  std::vector<AttentionTile> tiles_;
  std::vector<jit::cuda::CudaSource> sources_;
  std::unique_ptr<SimulatedKernels> device_;
};

/// s0 queries and s1 keys; `heads` of the queries and `shared` of the keys.
inline std::string attention_text(const std::string& dtype, int size, int value_size,
                                  const std::string& attrs = "", const std::string& mask = "",
                                  int heads = 2, int shared = 2) {
  const auto input = [&](const std::string& name, int count, const std::string& length, int d) {
    return "%" + name + ": " + dtype + "[1, " + std::to_string(count) + ", " + length + ", " +
           std::to_string(d) + "]";
  };
  return "graph @attention(" + input("q", heads, "s0", size) + ", " +
         input("k", shared, "s1", size) + ", " + input("v", shared, "s1", value_size) +
         (mask.empty() ? "" : ", %mask: " + mask) + ") {\n  %o = attention(%q, %k, %v" +
         (mask.empty() ? ")" : ", %mask)") + (attrs.empty() ? "" : " {" + attrs + "}") +
         "\n  return %o\n}\n";
}

}  // namespace heddle::tests
