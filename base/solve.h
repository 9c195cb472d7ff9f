// The value of a symbol from the value of an expression.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/symexpr.h"

namespace heddle::base {

/// The one symbol of `expr` that `known` lacks and the value that makes `expr` equal `value`: s0 = 3 for 2*s0+1 = 7.
/// Nothing if there is no such symbol or more than one, if `expr` is not linear in it with a coefficient that
/// divides, or if the value would be negative.
std::optional<std::pair<Symbol, std::int64_t>> solve(const SymExpr& expr, std::int64_t value,
                                                     const SymbolValues& known);

}  // namespace heddle::base
