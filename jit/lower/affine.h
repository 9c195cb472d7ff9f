// Values as strided windows of memory.
#pragma once

#include <optional>

#include "jit/lower/live_graph.h"

namespace heddle::jit {

/// Element `index` of a value lies at offset + sum of strides[d] * index[d] of `base`'s memory.
struct AffineView {
  Value base;  ///< a storage
  SymExpr offset;
  std::vector<SymExpr> strides;
};

/// `value` as a window of the storage below its views; nothing when some view is no affine map.
std::optional<AffineView> affine_view(const LiveGraph& graph, Value value);
/// The base of that window.
std::optional<Value> affine_base(const LiveGraph& graph, Value value);

}  // namespace heddle::jit
