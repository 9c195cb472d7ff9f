// What ops that put elements in order share.
#pragma once

#include "ir/ops/dense.h"

namespace heddle::ir::ops {

OpDef merge_runs_op();

/// Whether `a` comes strictly before `b`: NaN after every number in either direction.
template <typename T>
bool comes_before(T a, T b, bool descending) {
  if (is_nan(a) || is_nan(b)) return !is_nan(a) && is_nan(b);
  return descending ? a > b : a < b;
}

}  // namespace heddle::ir::ops
