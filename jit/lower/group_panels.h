// Right matrices in panels of columns, some elements of the depth side by side.
#pragma once

#include "ir/graph.h"
#include "jit/lower/pack_weights.h"

namespace heddle::jit {

/// The panels [p, q, width, group] of a matrix, whatever is missing to whole ones 0:
///
///   clone(permute(reshape(pad(%matrix, 0)) {sizes = [q, group, p, width]}) {perm = [2, 0, 3, 1]})
///
/// @param matrix  [depth, columns], of constant sizes.
ir::Value emit_group_panels(ir::GraphBuilder& builder, ir::Value matrix, std::int64_t group,
                            std::int64_t width = kPanelColumns);

/// What a conversion from 16 bits to f32 reads; else `value`.
ir::Value without_widening(ir::Value value);
/// `value` in bf16: what it was widened from, if anything.
ir::Value as_bf16(ir::GraphBuilder& builder, ir::Value value);

}  // namespace heddle::jit
