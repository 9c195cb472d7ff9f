// What the body of a loop touches, and what of it lies side by side in memory.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "jit/nest.h"

namespace heddle::jit::cuda {

/// Symbols that the body binds.
std::set<Symbol> bound_in(const Block& body);

/// Whether a statement holds no others.
bool is_scalar(const Stmt& statement);

/// How often a body loads from a buffer and stores to it.
struct Uses {
  int loads = 0;
  int stores = 0;
};
std::map<NestBufferId, Uses> uses_of(const Block& body);

/// Where the element lies that the body touches where `axis` is 0, if that where it is k is the k-th behind it; what the body binds
/// has no say in it.
std::optional<SymExpr> first_neighbour(Symbol axis, const Block& body, const SymExpr& index);
inline std::optional<SymExpr> first_neighbour(const ForStmt& loop, const SymExpr& index) {
  return first_neighbour(loop.axis, *loop.body, index);
}

/// Whether places that are known to be no multiple of `width` are among those of an expression: rows of an odd length, or
/// what begins at an odd place. Of sizes that are not known nothing is.
bool is_misaligned(const SymExpr& place, std::int64_t width);

}  // namespace heddle::jit::cuda
