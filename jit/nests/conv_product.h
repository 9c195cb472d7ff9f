// conv as a nest in product form (jit/nest.h), whose tiles the emitter chooses.
#pragma once

#include "jit/lower/nest_context.h"

namespace heddle::jit {

/// Whether the node's convolution is built in this form: of f16, bf16 and f32 on CUDA, with one to three spatial
/// dimensions, weights that lie in one piece and known sizes of these, and enough channels in a group.
bool is_conv_product(NestContext& ctx);

/// Whether the node is a convolution of each channel by itself whose vector loop, on CUDA, is that of the channels: they lie side
/// by side, and are enough to fill sectors of memory.
bool channels_are_lanes(const ir::Node& node, const LowerOptions& options);
inline constexpr std::int64_t kFewestLanes = 16;

/// What is read at a time where neighbours in memory are neighbours in a window.
inline constexpr std::int64_t kPieceBytes = 16;

/// Whether a convolution by weights of these sizes, which lie in one piece, can be built in this form. int8_conv has no other.
bool may_be_conv_product(const ir::Dims& weights, std::int64_t groups = 1);

/// A product for each group: the weights are the left matrix as they lie, [channels, channels of x * taps], and the windows
/// of all images are the columns of the right one, which is nowhere in memory.
///
///   for p in groups x column tiles x row tiles (parallel)
///     group, row, column = where tile p begins
///     acc[rows, columns] = w[rows, k] . windows(x)[k, columns]
///     for row in rows: for column in columns (vector):
///       result(image and window of column, channel row, acc[row, column] + bias[row])
///
/// Where x and the weights lie with their channels inside of all other dimensions, so are the products of a sum: tap by tap.
/// The tiles of this text are what an emitter uses that knows nothing better. int8_conv has one group, sums of i32, no bias, and
/// its zero point outside of images.
/// Source: Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning" (2014), section 3.
void build_conv_product(NestContext& ctx);

}  // namespace heddle::jit
