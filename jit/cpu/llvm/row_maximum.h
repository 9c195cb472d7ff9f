// What kernels of rows may leave out where the largest element of a row is subtracted from each of them, as softmax does.
#pragma once

#include <unordered_set>

#include "jit/nest.h"

namespace heddle::jit::cpu {

/// Scalars of a nest whose body is loops over a row.
///
///   vector i1: %1 = max of %0 = load b0[1024*i0+i1]
///   vector i2: %3 = sub(load b0[1024*i0+i2], %1), %4 = exp(%3), %5 = sum of %4
///   vector i3: store b1[1024*i0+i3] = div(…, %5)
///
/// Here %3 is in `differences`, whose exponentials need no upper bound, and %1 in `without_nan`: a NaN in the row makes %5
/// one, and by that all that is stored, so that %1 may be that of the other elements, which one instruction gives and not
/// four.
struct RowMaxima {
  std::unordered_set<ScalarId> differences;  ///< 0 or less, or NaN
  std::unordered_set<ScalarId>
      without_nan;  ///< largest elements of which any will do if there is a NaN
};

/// Cost: linear in the statements, for each maximum.
RowMaxima row_maxima(const Nest& nest);

}  // namespace heddle::jit::cpu
