// Convolutions by the direct algorithm, on memory with the channels last, by a kernel that takes any sizes: nothing is made for each of them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "jit/cpu/onednn/panels.h"
#include "jit/cpu/onednn/problem.h"
#include "jit/cpu/onednn/tail.h"

namespace heddle::jit::onednn {

/// Whether the kernel below runs `problem`: images or volumes with the channels last. The weights must be finite: elements of x that lie outside
/// are zeros which they multiply.
bool has_windows(const Problem& problem);
/// Whether it then takes about as long as the library's kernels, or less, or the call is short. With AVX-512 those multiply by more positions at a
/// time where the result, or a group of it, fills one vector (0.83 of the time), and by several groups at once where it fills half of one (0.5); depthwise
/// ones are of another kind.
bool suits_windows(const Problem& problem);

/// Panels of the result's channels, those of all groups.
std::int64_t window_panels(const Problem& problem, KernelIsa isa = kernel_isas().front());
/// Sizes of the packed weights: [taps, channels of a group of x, those of the result, of each group up to a multiple of the lanes of a vector], as many
/// panels [taps, channels, columns of the panel] behind each other. Zeros fill the last one of a group.
Ints window_weights(const Problem& problem, KernelIsa isa = kernel_isas().front());
/// `weights`: [m, c, taps…].
void pack_window_weights(const Problem& problem, const float* weights, float* packed,
                         KernelIsa isa = kernel_isas().front());

/// Bytes of scratch of a run.
std::int64_t window_scratch(const Problem& problem, KernelIsa isa = kernel_isas().front());

/// x [n, in…, c] to out [n, out…, m]; then `added`, laid out like out and maybe the same memory, where it is not null, and `tail`, whose
/// operands are those of the whole result.
///
/// A block of positions of the result at a time, by each panel: where each of them reads x at each tap is looked up once, so that a tile is of
/// any positions, and taps at which all of a tile lie outside are left out. An element is summed up in the order of taps, then channels,
/// whatever the sizes are and however the result is cut into parts.
///
/// @param bias     by channel, or null.
/// @param scratch  64-aligned.
/// @param panels   nothing: all; else only their channels of the result are computed and written.
void run_windows(const Problem& problem, const float* x, const float* packed, const float* bias,
                 const float* added, std::span<const TailOp> tail, float* out, void* scratch,
                 std::optional<Panels> panels = {}, KernelIsa isa = kernel_isas().front());

}  // namespace heddle::jit::onednn
