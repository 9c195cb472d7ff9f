// What a row kernel computes in which of its passes over the row.
#pragma once

#include <map>
#include <vector>

#include "jit/lower/kernel.h"

namespace heddle::jit {

/// Pass k over a row computes what depends on the reductions of passes before k, and reduces it.
struct RowPass {
  std::vector<const Node*> reductions;
  std::vector<Value> stores;  ///< of each element, in this pass
  std::vector<Value> keeps;   ///< of each element, in a local buffer for later passes
  std::vector<Value> rows;    ///< one value a row, known after this pass; stored then
  bool empty() const { return reductions.empty() && stores.empty() && keeps.empty(); }
};

struct RowPlan {
  std::vector<RowPass> passes;
  std::vector<Value> early_rows;  ///< row values that wait for no reduction
};

/// `may_keep`: whether elements may be kept in local buffers between passes.
RowPlan plan_row(const Kernel& kernel, bool may_keep);

}  // namespace heddle::jit
