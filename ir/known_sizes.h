// What assumptions say about sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "ir/graph.h"

namespace heddle::ir {

/// What assumed equalities say about symbols: s1 is s0 wherever s0 == s1 was assumed.
base::SymbolExprs equalities(std::span<const Assumption> assumptions);

/// `size` with the sizes of the call that is traced put in, where there is one: what an error shows.
SymExpr seen(const ShapeEnv& env, const SymExpr& size);
Dims seen(const ShapeEnv& env, const Dims& sizes);
TensorMeta seen(const ShapeEnv& env, TensorMeta meta);

/// The number that `size` is, as known or as the hints say; the latter is then assumed. Nothing where
/// nobody knows.
std::optional<std::int64_t> number_of(ShapeEnv& env, const SymExpr& size, std::string_view reason,
                                      const base::Location& location);

}  // namespace heddle::ir
