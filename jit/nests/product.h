// matmul as a nest in product form (jit/nest.h), whose tiles the emitter chooses.
#pragma once

#include "jit/lower/nest_context.h"

namespace heddle::jit {

/// Whether the node's product is built in this form: products of f16, bf16, f32 and bytes on CUDA, and by one panel of
/// numbers of 2 or 4 bits.
bool is_product(const NestContext& ctx);

///   for p in batches x column tiles x row tiles (parallel)
///     batch, row, column = where tile p begins
///     acc[rows, columns] = a[rows, k] . b[k, columns]
///     for row in rows: for column in columns (vector): result(row, column, acc[row, column])
///
/// The tiles of this text are what an emitter uses that knows nothing better.
void build_product(NestContext& ctx);

}  // namespace heddle::jit
