// Vector loops whose threads take several neighbouring iterations at once, and with them more than one element of memory
// a read.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "jit/nest.h"

namespace heddle::jit::cuda {

/// How a thread takes `width` iterations of a loop that begin at a multiple of `width`: each of these loads and stores then
/// is one of `width` neighbours in memory, and the others are of one element, the same in all iterations.
struct WideLoop {
  int width = 1;
  int bytes = 16;           ///< of the widest access: all are aligned to as many
  std::int64_t period = 0;  ///< a multiple of the width; NeighbourPlaces'
  std::vector<const LoadStmt*>
      loads;  ///< without masks, of buffers that the loop does not store to
  std::vector<const StoreStmt*>
      stores;  ///< without masks, to buffers that the loop does not load from
};

/// Where the elements lie that iterations touch, if that of iteration k, for any k but the multiples of `period`, lies behind that of
/// iteration k - 1, and what binds symbols in the body has no say in it.
struct NeighbourPlaces {
  SymExpr first;            ///< of iteration 0
  SymExpr stride = 0;       ///< from those of one period to those of the next
  std::int64_t period = 0;  ///< 0: it has no end, and all lie side by side
};
/// The symbols that stand for the period and the place in it, where an index is written in these.
Symbol row_of_period(const ForStmt& loop);
Symbol column_of_period(const ForStmt& loop);
base::Facts facts_of_period(const Nest& nest, const ForStmt& loop, std::int64_t period);
/// The index in those symbols.
SymExpr by_period(const Nest& nest, const ForStmt& loop, std::int64_t period, const SymExpr& index);
/// @param period  of the loop; see period_of()
std::optional<NeighbourPlaces> neighbour_places(const Nest& nest, const ForStmt& loop,
                                                std::int64_t period, const SymExpr& index);
/// What indices of global memory divide the loop's number by, as of one that goes through the rows of a tile: the same in all. 0:
/// nothing.
std::int64_t period_of(const Nest& nest, const ForStmt& loop);

/// Nothing where it would not pay: not all lies side by side, the body is long, or iterations are too few for the threads.
/// @param threads   that share the loop
/// @param is_there  whether an index always has an element, as one into a dimension of size 0 has not
std::optional<WideLoop> wide_loop(const Nest& nest, const ForStmt& loop, std::uint32_t threads,
                                  const std::function<bool(const SymExpr&)>& is_there);

}  // namespace heddle::jit::cuda
