// Nests that move elements and do nothing else, such as weights put into another order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "jit/nest.h"

namespace heddle::jit {

/// Such a nest, run as it is. To compile one takes longer than to move a million elements so, and what is done once, when an executable is
/// made, is rarely more.
class CopyNest {
 public:
  /// Nothing for a nest that does anything but to move elements, or zeros instead of those beyond a bound, and to choose parts that do, for one with size parameters,
  /// and for one whose inner loops are so short, or step so unevenly, that it would take longer than to compile it.
  static std::optional<CopyNest> of(const Nest& nest);

  /// All iterations of the parallel axis.
  /// @param buffers  of the nest, each where its first element is
  /// Threads: any number at a time.
  void run(std::span<void* const> buffers) const;

 private:
  /// An index: places step evenly with the axes of the loops that are run at once.
  struct Place {
    NestBufferId buffer;
    SymExpr first;           ///< for 0 of both axes
    std::int64_t outer = 0;  ///< elements from one iteration to the next
    std::int64_t inner = 0;
  };
  /// Elements are there where this, stepping like a place, is less than a bound; zeros are elsewhere.
  struct Bound {
    Place at;
    std::int64_t end;
  };
  struct Move {
    std::optional<Place> from;  ///< nothing: zeros are written
    Place to;
    std::size_t bytes;  ///< of an element
    std::vector<Bound> bounds;
  };
  /// Of axes around it.
  struct Condition {
    SymExpr left, right;
    bool equal = true;  ///< false: left < right
  };
  /// A loop whose body is other loops, or one or two loops around moves.
  struct Loop {
    std::vector<Condition> conditions;  ///< it runs where all hold
    std::size_t axis;                   ///< its place among the values that expressions are of
    SymExpr extent;
    std::vector<Loop> body;
    std::int64_t most;     ///< iterations, as far as is known
    SymExpr inner_extent;  ///< of the loop in it, if moves are in two; 1 else
    std::vector<Move> moves;
  };
  struct Local {
    SymExpr count;
    std::size_t bytes;  ///< of an element
  };
  class Reader;
  class Run;

  std::size_t axes_ = 0;  ///< the parallel one is the first
  SymExpr parallel_extent_;
  std::vector<Loop> body_;
  std::size_t global_count_ = 0;
  std::vector<Local> locals_;
};

}  // namespace heddle::jit
