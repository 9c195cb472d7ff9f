// How a nest that works on rows goes through several of them at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jit/nest.h"

namespace heddle::jit::cpu {

/// Statements of a nest's body that go through a row once: a loop, and what follows from it.
struct RowPhase {
  struct Scalar {
    ScalarId id;
    DType dtype;
    bool operator==(const Scalar&) const = default;
  };
  std::size_t begin = 0;         ///< number of the first statement
  std::size_t loop = 0;          ///< of the loop
  std::size_t end = 0;           ///< one past the last
  std::vector<Scalar> recalled;  ///< defined by an earlier phase, used by this one
  std::vector<Scalar> kept;      ///< defined by this one, used by a later one
};

/// Several rows at a time, in strips: a phase of each before the next phase of any.
///
///   parallel i0                                 for i0 in steps of 2
///     vector i1: %0 = max x[i0, i1]               for r < 2: vector i1: m[r] = max x[i0 + r, i1]
///     vector i2: %1 = sum exp(x[i0, i2] - %0)     for r < 2: vector i2: s[r] = sum exp(x[i0 + r, i2] - m[r])
///
/// Or merged: a phase of one row in the same loop as the next phase of the row before it.
///
///   parallel i0                                 for t:
///     vector i1: %0 = max x[i0, i1]               vector i: %0 = max x[t, i], %1 = sum exp(x[t-1, i] - %0 of t-1)
///     vector i2: %1 = sum exp(x[i0, i2] - %0)
///
/// Loops that wait for the caches then do so while others compute: softmax takes 0.82 of the time of strips, layer norm 0.83.
///
/// A reduction ends with lanes that are joined one step after the other, each waiting for the one before, and the next loop over
/// the row waits for all of them; of several rows, the same loop over the next row has nothing to wait for. Results do
/// not change. Everything is kept in the first-level cache meanwhile, so that rows are no longer than fits.
struct RowStrips {
  std::int64_t rows = 1;  ///< 1: one at a time, in no phases
  bool is_merged = false;
  unsigned most_vectors =
      16;  ///< of an iteration of a loop, merged or by itself: sums do not depend on which
  std::vector<RowPhase> phases;

  /// Rows whose scalars and local buffers are held at a time; a power of two.
  std::int64_t held() const;
  /// Rows from one that a phase but the first goes through to one that is not in the first-level cache yet.
  std::int64_t fetched() const { return is_merged ? 2 : rows; }
};

/// The strips of a nest whose body is loops over a row and what is computed once a row; of any other one row.
/// Cost: linear in the statements.
RowStrips row_strips(const Nest& nest, std::int64_t vector_bytes);

}  // namespace heddle::jit::cpu
