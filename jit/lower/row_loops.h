// The loops of a row kernel over the columns of a row.
#pragma once

#include "jit/lower/domain.h"

namespace heddle::jit {

/// Turns each loop over the placeholder `column` in `body` into loops over `columns`, outermost first, after
/// joining those that the loop's body walks over as over one. The innermost gets `kind`, the others are
/// serial; a reduction of the placeholder becomes one of each loop that combines the results of the next
/// inner one. A reduction that cannot be combined so makes its loop a single one over all columns, with
/// divisions.
///
/// Columns that are numbered in runs, as those of a group of channels are, become loops over the runs where `cuts_runs`:
///
///   for c < 8*s0: y[c] = x[c] * scale[floor(c/s0)]
///     ==>
///   for r < 8: for c < s0: y[r*s0+c] = x[r*s0+c] * scale[r]
void expand_column_loops(NestBuilder& builder, Block& body, Symbol column,
                         const std::vector<AxisRun>& columns, ForStmt::Kind kind, bool cuts_runs);

}  // namespace heddle::jit
