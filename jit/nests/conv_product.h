// conv as a nest in product form (jit/nest.h), whose tiles the emitter chooses.
#pragma once

#include "jit/lower/nest_context.h"

namespace heddle::jit {

/// Whether the node's convolution is built in this form: of f16, bf16 and f32 on CUDA, with one to three spatial
/// dimensions, weights that lie in one piece and known sizes of these, and enough channels in a group.
bool is_conv_product(NestContext& ctx);

/// Whether int8_conv by weights of these sizes, which lie in one piece, can be built in this form: it has no other.
bool may_be_byte_conv_product(const ir::Dims& weights);

/// A product for each group: the weights are the left matrix as they lie, [channels, channels of x * taps], and the windows
/// of all images are the columns of the right one, which is nowhere in memory.
///
///   for p in groups x column tiles x row tiles (parallel)
///     group, row, column = where tile p begins
///     acc[rows, columns] = w[rows, k] . windows(x)[k, columns]
///     for row in rows: for column in columns (vector):
///       result(image and window of column, channel row, acc[row, column] + bias[row])
///
/// The tiles of this text are what an emitter uses that knows nothing better. int8_conv has one group, sums of i32, no bias, and
/// its zero point outside of images.
/// Source: Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning" (2014), section 3.
void build_conv_product(NestContext& ctx);

}  // namespace heddle::jit
