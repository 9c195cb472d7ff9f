// Graphs that are one product on CUDA: all ways to multiply, on the simulated device against the reference evaluator.
#pragma once

#include <algorithm>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda/nvrtc.h"
#include "heddle/error.h"
#include "ir/text.h"
#include "jit/cuda/library_product.h"
#include "jit/cuda/product_text.h"
#include "tests/cuda_sim/control.h"
#include "tests/jit/cuda_runner.h"
#include "tests/jit/lower_support.h"
#include "tests/jit/ptxas_report.h"
#include "tests/support/nightly.h"
#include "tests/support/one_op.h"

namespace heddle::tests {

using jit::cuda::Along;
using jit::cuda::ProductDevice;
using jit::cuda::ProductTile;

/// An H200.
inline constexpr ProductDevice kProductDevice{132, 227 * 1024, true, true};

inline jit::Program lowered_for_cuda(const ir::Graph& graph) {
  return jit::lower(graph, {.target = jit::LowerOptions::Target::Cuda, .rest = {.library = false}});
}

/// Where `groups` groups end among `rows`: some go back, some are negative, and rows may be left over.
inline ir::Literal any_ends(std::int64_t rows, std::int64_t groups) {
  std::vector<std::int64_t> ends;
  for (std::int64_t g = 0; g < groups; ++g)
    ends.push_back((7 * g * g + 23 * g + rows / 3) % (rows + 2) - 1);
  return ir::Literal::of_ints(i64, {groups}, ends);
}

/// A graph whose program is one product, and all its kernels; besides it there are at most those that bring operands into
/// another order, which the interpreter runs.
class OneProduct {
 public:
  explicit OneProduct(const std::string& text) : OneProduct(ir::parse(text)) {}
  explicit OneProduct(ir::Graph graph)
      : graph_(std::move(graph)), program_(lowered_for_cuda(graph_)) {
    while (launch_ + 1 < program_.launches.size() && !nest().product) ++launch_;
    const auto parts = jit::cuda::product_parts(nest());
    EXPECT_TRUE(parts) << jit::print(nest());
    if (!parts) return;
    left_ = parts->left();
    right_ = parts->right();
    tiles_ =
        jit::cuda::product_tiles(parts->left_dtype(), left_, right_, kProductDevice,
                                 parts->contract->tf32, parts->contract->b.dequantised.has_value());
    for (const ProductTile& tile : tiles_)
      sources_.push_back(jit::cuda::emit_product(*parts, tile, {}));
  }

  const ir::Graph& graph() const { return graph_; }
  const std::vector<jit::cuda::CudaSource>& sources() const { return sources_; }
  const jit::Nest& nest() const {
    return *program_.kernels.at(program_.record.steps.at(launch_).kernel).nest;
  }
  /// Kernels besides that of the product.
  std::size_t others() const { return program_.launches.size() - 1; }
  /// The nest's size parameters where the graph's are these.
  std::vector<std::int64_t> parameters(const std::vector<std::int64_t>& sizes) const {
    std::vector<std::int64_t> values;
    for (const ir::SymExpr& size : program_.launches.at(launch_).sizes)
      values.push_back(size.evaluate_sizes(sizes));
    return values;
  }
  /// Rows of a matrix, in the graph's symbols.
  std::string rows() const {
    const std::vector<ir::SymExpr>& sizes = program_.launches.at(launch_).sizes;
    base::SymbolExprs meanings;
    for (std::uint32_t k = 0; k < sizes.size(); ++k)
      meanings.emplace(base::Symbol{base::Symbol::Kind::Size, k}, sizes[k]);
    return nest().product->rows.substitute(meanings).to_string();
  }
  std::optional<jit::cuda::LibraryForm> library() const {
    return jit::cuda::library_form(*jit::cuda::product_parts(nest()));
  }
  const std::vector<ProductTile>& tiles() const { return tiles_; }
  Along left() const { return left_; }
  Along right() const { return right_; }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const ProductTile& tile : tiles_) names.push_back(tile.name());
    return names;
  }
  /// Another number for other products.
  std::size_t salt() const { return sources_.empty() ? 0 : sources_.front().kernel.size(); }
  /// @param warpgroups  with the kernels that only sm_90a has
  /// @param step  of all these every `step`th, from `first` on
  std::string text(bool warpgroups = true, std::size_t step = 1, std::size_t first = 0) const {
    std::string kernels;
    for (std::size_t k = first; k < sources_.size(); k += step)
      if (warpgroups || !tiles_[k].warpgroups) kernels += sources_[k].kernel + "\n";
    if (const auto form = library())
      kernels += jit::cuda::emit_after_library(*jit::cuda::product_parts(nest()), *form, {}).kernel;
    return jit::cuda::prelude_for(kernels) + kernels;
  }

  /// What the threads of the product's kernel `k` read of the device's memory; of the simulator alone.
  std::int64_t bytes_read(std::size_t k, const std::vector<std::int64_t>& sizes) const {
    const sim::Control control(test::simulator_path());
    SimulatedKernels device(sources_);
    std::int64_t bytes = 0;
    const auto runner = [&](const jit::Nest& nest, std::span<const test::InterpreterBuffer> buffers,
                            std::span<const std::int64_t> values) {
      if (&nest != &this->nest()) return test::interpret(nest, buffers, values);
      control.bytes_read();
      const std::int32_t status =
          device.run(k, {values.begin(), values.end()}, spans_of(nest, buffers));
      bytes += static_cast<std::int64_t>(control.bytes_read());
      return status;
    };
    test::expect_program_right(graph_, program_, arguments(sizes), {.runner = runner}, 1e-2);
    return bytes;
  }

  /// Each kernel in turn, at all sizes; by day at a third of them, others for each.
  /// @param parts  blocks that share a tile
  void expect_right(const std::vector<std::vector<std::int64_t>>& sizes, double tolerance,
                    std::int64_t parts = 1) const {
    ASSERT_EQ(program_.record.steps.size(), 1 + others()) << test::nests_of(program_);
    SimulatedKernels device(sources_);
    for (std::size_t k = 0; k < sources_.size(); ++k) {
      const auto runner = [&](const jit::Nest& nest,
                              std::span<const test::InterpreterBuffer> buffers,
                              std::span<const std::int64_t> values) {
        if (&nest != &this->nest()) return test::interpret(nest, buffers, values);
        return device.run(k, {values.begin(), values.end()}, spans_of(nest, buffers), parts);
      };
      const std::size_t step = std::clamp<std::size_t>(sizes.size(), 1, 3);
      for (const std::vector<std::int64_t>& one : test::few_by_day(sizes, step, salt() + k)) {
        SCOPED_TRACE(tiles_[k].name());
        SCOPED_TRACE(::testing::PrintToString(one));
        test::expect_program_right(graph_, program_, arguments(one), {.runner = runner}, tolerance);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }

 private:
  static std::vector<std::span<unsigned char>> spans_of(
      const jit::Nest& nest, std::span<const test::InterpreterBuffer> buffers) {
    std::vector<std::span<unsigned char>> spans;
    for (std::size_t b = 0; b < buffers.size(); ++b)
      spans.emplace_back(
          static_cast<unsigned char*>(buffers[b].data),
          static_cast<std::size_t>(buffers[b].count) * size_of(nest.buffers[b].dtype));
    return spans;
  }

  /// Random ones; bytes over their whole range; i64 are ends of groups of s0 rows.
  std::vector<ir::Literal> arguments(const std::vector<std::int64_t>& sizes) const {
    std::vector<ir::Literal> all = test::random_arguments(graph_, sizes);
    for (std::uint32_t k = 0; k < all.size(); ++k)
      if (all[k].dtype() == u8 || all[k].dtype() == i8)
        all[k] = heddle::testing::any_bytes(all[k].dtype(), all[k].sizes(), k + 1);
      else if (all[k].dtype() == i64)
        all[k] = any_ends(sizes[0], all[k].sizes()[0]);
    return all;
  }

  ir::Graph graph_;
  jit::Program program_;
  std::size_t launch_ = 0;  ///< of the product
  Along left_ = Along::Neither;
  Along right_ = Along::Neither;
  std::vector<ProductTile> tiles_;
  std::vector<jit::cuda::CudaSource> sources_;
};

inline double tolerance_of(const std::string& dtype) {
  return dtype == "f32" ? 1e-5 : dtype == "f16" ? 4e-3 : 3e-2;
}

/// Each architecture, by day some kernels for one of them, without a word in the log.
inline void expect_nvrtc_takes(const OneProduct& product) {
  std::unique_ptr<device::cuda::Nvrtc> nvrtc;
  try {
    nvrtc = std::make_unique<device::cuda::Nvrtc>();
  } catch (const DeviceError&) {
    GTEST_SKIP() << "libnvrtc is not on this machine";
  }
  EXPECT_EQ(product.text().find("#include"), std::string::npos);
  const std::vector<std::string> archs{"sm_80", "sm_90a", "sm_100"};
  for (const std::string& arch : test::few_by_day(archs, 3, product.salt())) {
    if (!nvrtc->supports(std::stoi(arch.substr(3)))) continue;
    // By night code for one of them is what an engine would make; else they are taken without optimising it.
    const bool whole = arch == "sm_90a";
    const std::vector<std::string> options = whole && test::is_nightly()
                                                 ? std::vector<std::string>()
                                                 : std::vector<std::string>{"--ptxas-options=-O0"};
    const std::size_t step = test::is_nightly() ? 1 : 3;
    const std::string text = product.text(whole, step, product.salt() / 3 % step);
    const auto compiled = nvrtc->compile_cubin(text, "product", arch, options);
    EXPECT_EQ(without_notes(compiled.log), "") << arch;
    EXPECT_EQ(std::string(compiled.image.data(), 4), "\177ELF");
  }
}

}  // namespace heddle::tests
