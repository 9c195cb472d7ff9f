// What a vector loop's body looks like, and the width to emit it with.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "jit/nest.h"

namespace heddle::jit::cpu {

/// Elements of a row up to which lanes that go along rows take vectors apart and put them together.
inline constexpr std::int64_t kMostColumns = 8;

struct LoopShape {
  unsigned live = 0;                       ///< most vector values live at once
  unsigned operations = 0;                 ///< statements whose value differs between lanes
  unsigned polynomials = 0;                ///< functions that are computed by one
  std::optional<ir::ScalarOp> polynomial;  ///< where there is only one
  bool wide = false;                       ///< computes with 64-bit elements
  bool gathers = false;       ///< addresses memory other than contiguously or uniformly
  bool calls = false;         ///< calls a function for every lane
  bool nested = false;        ///< has loops inside
  bool needs_scalar = false;  ///< lanes may store to one element: to be emitted as a serial loop
};

LoopShape analyse(const ForStmt& loop);

/// unit * floor(axis / count) + rest.
struct RepeatedIndex {
  std::int64_t count;  ///< a power of two
  SymExpr rest;
  std::int64_t unit = 1;  ///< positive
};
/// Nothing where `index` is none. `varies`: whether an expression differs between lanes.
std::optional<RepeatedIndex> repeated_index(const SymExpr& index, Symbol axis,
                                            const std::function<bool(const SymExpr&)>& varies);

/// The places of a reduction to an extreme's place where elements come in their order: step * axis + first, of which the earliest
/// is the first that is seen.
struct OrderedPlaces {
  std::int64_t step;  ///< positive
  std::int64_t first;
  bool are_narrow;  ///< whether all fit an i32
};
/// Nothing where `r`, one of `loop`, is another reduction, or elements come in another order or under a mask of their own.
std::optional<OrderedPlaces> ordered_places(const ForStmt& loop, const LoopReduction& r);

/// Vectors of so many lanes or fewer have 16 registers.
inline constexpr unsigned kLanesOf16Registers = 8;

/// Whether the loop's only function is emitted in place: an exponential, as it is little longer than a call and what surrounds it,
/// and a sigmoid where a call's operands and results fill the registers.
bool inlines_math(const LoopShape& shape, unsigned base_lanes);

/// Whether each lane goes through a loop of its own, writes nothing in it and keeps little meanwhile, as sums down the columns of a
/// matrix do: what an iteration reads is a run of memory, and long runs come faster (2 MB by runs of 1 KiB, 4 KiB apart, at 96 GB/s,
/// of 256 bytes at 55; Zen 5).
bool goes_down_columns(const LoopShape& shape, const ForStmt& loop, unsigned base_lanes);

/// Elements of an iteration of the main loop: `base_lanes` times 1, 2, 4 or 8, 16 where it goes down columns, and no more than `most_vectors`. Sums
/// that loops inside carry fill 16 registers sooner than 32.
unsigned main_width(const LoopShape& shape, const ForStmt& loop, unsigned base_lanes,
                    unsigned most_vectors = 16);

}  // namespace heddle::jit::cpu
