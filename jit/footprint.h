// Which bytes some iterations of a kernel's parallel axis touch, at most: what may run in between is found by it.
#pragma once

#include <cstdint>
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

class Footprint;

/// Footprints of one nest at any sizes: its indices as one list of operations on ranges of numbers, each once.
class Footprints {
 public:
  explicit Footprints(const Nest& nest);

  /// @param sizes  of the nest's parameters
  /// @return what refers to this
  Footprint at(std::span<const std::int64_t> sizes) const;

 private:
  friend class Footprint;
  /// How the range of one value follows from those before it.
  struct Value {
    enum class Op : std::uint8_t {
      Constant,  ///< `number`
      Size,      ///< the nest's parameter `number`
      Parallel,  ///< the iterations
      Unknown,
      Span,  ///< of an axis or of what is bound: from the first operand to the second
      Sum,
      Product,
      FloorDiv,
      Mod,
      Min,
      Max,
    };
    Op op = Op::Unknown;
    std::int64_t number = 0;
    std::vector<std::uint32_t> operands{};  ///< numbers of values
    friend auto operator<=>(const Value&, const Value&) = default;
  };
  struct Access {
    NestBufferId buffer = 0;
    bool writes = false;
    std::uint32_t index = 0;            ///< of elements, a value
    std::vector<std::uint32_t> axes{};  ///< around it: nothing runs where one is empty
    friend auto operator<=>(const Access&, const Access&) = default;
  };
  struct Buffer {
    SymExpr count;  ///< of its elements
    std::int64_t element_bytes = 0;
    bool is_unknown = false;  ///< read in ways that are not followed
  };
  class Walk;

  std::vector<Value> values_;
  std::vector<std::uint32_t> varying_;  ///< values that depend on the iterations
  std::vector<Access> accesses_;
  std::vector<Buffer> buffers_;  ///< the nest's global ones
};

/// Footprints of one nest with sizes put in. Threads: one at a time.
class Footprint {
 public:
  /// Bytes of each global buffer that iterations [begin, end) touch.
  std::vector<Touched> of(std::int64_t begin, std::int64_t end);

 private:
  friend class Footprints;
  struct Range {
    Interval values;
    bool is_known = false;
    bool is_empty = false;  ///< of a span
  };
  Footprint(const Footprints& all, std::span<const std::int64_t> sizes);
  Range range_of(const Footprints::Value& value, std::span<const std::int64_t> sizes) const;

  const Footprints& all_;
  Interval iterations_;
  std::vector<Range> ranges_;    ///< by value
  std::vector<Interval> whole_;  ///< by buffer: all its elements
};

}  // namespace heddle::jit
