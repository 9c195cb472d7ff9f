// Winograd's F(4x4, 3x3), F(2x2, 3x3), F(4, 3) and F(2, 5) on memory with the channels last.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "jit/cpu/onednn/panels.h"
#include "jit/cpu/onednn/problem.h"
#include "jit/cpu/onednn/tail.h"

namespace heddle::jit::onednn {

/// Which of the kernels: weights transformed for one are of use to that one alone.
struct WinogradKernel {
  TileForm form = kTiles4;
  KernelIsa isa = kernel_isas().front();  ///< not Any
};

/// Whether a kernel below runs `problem` here: a convolution as algorithm_for() takes it, of multiples of 16 channels to multiples of 8,
/// on a processor that has an instruction set of theirs.
bool has_winograd(const Problem& problem);

/// Panels of the result's channels.
std::int64_t winograd_panels(const Problem& problem, const WinogradKernel& kernel = {});
/// Sizes of the transformed weights: [channels of the result filled up to multiples of 16 with zeros, points of a tile, channels of x], as many panels
/// [points, channels of x, columns of the panel] behind each other.
Ints winograd_weights(const Problem& problem, const WinogradKernel& kernel = {});
/// `weights`: [m, c, taps down, taps across].
void transform_weights(const Problem& problem, const float* weights, float* transformed,
                       const WinogradKernel& kernel = {});

/// Bytes of scratch of a run.
std::int64_t winograd_scratch(const Problem& problem, const WinogradKernel& kernel = {});

/// x [n, h, w, c] to out [n, h', w', m]; then `added`, laid out like out and maybe the same memory, where it is not null,
/// and `tail`, whose operands are those of the whole result.
///
/// A block of tiles at a time: their elements are transformed, then multiplied by one panel of weights after another, which is fetched while
/// the one before is used, and its sums transformed back. What follows runs on rows of tiles as they are complete.
///
/// @param bias     by channel, or null.
/// @param scratch  64-aligned.
/// @param panels   nothing: all; else only their channels of the result are computed and written.
/// Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015, section 4.
void run_winograd(const Problem& problem, const float* x, const float* transformed,
                  const float* bias, const float* added, std::span<const TailOp> tail, float* out,
                  void* scratch, std::optional<Panels> panels = {},
                  const WinogradKernel& kernel = {});

}  // namespace heddle::jit::onednn
