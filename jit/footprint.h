// Which bytes some iterations of a kernel's parallel axis touch, at most: what may run in between is found by it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "jit/nest.h"

namespace heddle::jit {

/// Numbers from `low` to `high`; none where high < low.
struct Interval {
  std::int64_t low = 0;
  std::int64_t high = -1;

  bool is_empty() const { return high < low; }
  bool meets(const Interval& other) const {
    return !is_empty() && !other.is_empty() && low <= other.high && other.low <= high;
  }
  /// The least interval with both.
  void add(const Interval& other);
  friend bool operator==(const Interval&, const Interval&) = default;
};

/// What iterations read and write of one buffer: a superset.
struct Touched {
  Interval read;
  Interval written;
};

/// Footprints of one nest with sizes put in.
class Footprint {
 public:
  /// `sizes`: of the nest's parameters.
  Footprint(const Nest& nest, std::span<const std::int64_t> sizes);

  /// Bytes of each global buffer that iterations [begin, end) touch.
  std::vector<Touched> of(std::int64_t begin, std::int64_t end) const;

 private:
  /// A symbol and the ends of its range, in sizes, the parallel axis and symbols bound before.
  struct Binding {
    Symbol symbol;
    SymExpr low;
    SymExpr high;
    bool is_axis;  ///< nothing runs where its range is empty
  };
  struct Access {
    NestBufferId buffer;
    bool writes;
    SymExpr index;                  ///< of elements
    std::vector<Binding> bindings;  ///< outermost first
  };
  class Walk;

  std::vector<Access> accesses_;
  std::vector<Interval> whole_;  ///< by buffer: all its elements
  std::vector<bool> unknown_;    ///< by buffer: read in ways that are not followed
  std::vector<std::int64_t> element_bytes_;
  Symbol parallel_;
};

}  // namespace heddle::jit
