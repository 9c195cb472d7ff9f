// How a nest that works on rows goes through several of them at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jit/nest.h"

namespace heddle::jit::cpu {

/// Statements of a nest's body that are done for each row of a strip before the next ones are for any.
struct RowPhase {
  std::size_t begin = 0;           ///< number of the first statement
  std::size_t end = 0;             ///< one past the last
  std::vector<ScalarId> recalled;  ///< defined by an earlier phase, used by this one
  std::vector<ScalarId> kept;      ///< defined by this one, used by a later one
};

/// Rows of a strip, and its phases: a loop over a row each, with what follows from it.
///
///   parallel i0                                 for i0 in steps of 2
///     vector i1: %0 = max x[i0, i1]               for r < 2: vector i1: m[r] = max x[i0 + r, i1]
///     vector i2: %1 = sum exp(x[i0, i2] - %0)     for r < 2: vector i2: s[r] = sum exp(x[i0 + r, i2] - m[r])
///
/// A reduction ends with lanes that are joined one step after the other, each waiting for the one before, and the next loop over
/// the row waits for all of them; of several rows, the same loop over the next row has nothing to wait for. Results do
/// not change. Everything is kept in the first-level cache meanwhile, so that rows are no longer than fits.
struct RowStrips {
  std::int64_t rows = 1;  ///< 1: one at a time, in no phases
  std::vector<RowPhase> phases;
};

/// The strips of a nest whose body is loops over a row and what is computed once a row; of any other one row.
/// Cost: linear in the statements.
RowStrips row_strips(const Nest& nest);

}  // namespace heddle::jit::cpu
