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
  /// @param left_out  by global buffer: what is touched of it is not asked for, and is nothing. Empty: none.
  explicit Footprints(const Nest& nest, const std::vector<bool>& left_out = {});

  /// @param sizes  of the nest's parameters
  /// @return what refers to this
  Footprint at(std::span<const std::int64_t> sizes) const;

 private:
  friend class Footprint;
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
  /// How the range of one value follows from those before it.
  struct Value {
    Op op = Op::Unknown;
    bool varies = false;  ///< depends on the iterations
    std::int64_t number = 0;
    std::uint32_t first_operand = 0;  ///< in `operands_`
    std::uint32_t operands = 0;
    std::uint32_t place = 0;  ///< among those that vary, or those that do not
  };
  struct Access {
    NestBufferId buffer = 0;
    bool writes = false;
    std::uint32_t index = 0;            ///< of elements, a value
    std::vector<std::uint32_t> axes{};  ///< around it: nothing runs where one is empty
    friend auto operator<=>(const Access&, const Access&) = default;
  };
  struct Buffer {
    SymExpr count;                  ///< of its elements
    std::uint32_t count_value = 0;  ///< the same as a value
    std::int64_t element_bytes = 0;
    bool is_unknown = false;  ///< read in ways that are not followed
    bool is_left_out = false;
  };
  class Walk;

  std::span<const std::uint32_t> operands_of(const Value& value) const {
    return std::span(operands_).subspan(value.first_operand, value.operands);
  }

  std::vector<Value> values_;
  std::vector<std::uint32_t> operands_;  ///< numbers of values
  std::uint32_t varying_ = 0;            ///< how many values vary
  std::vector<Access> accesses_;
  std::vector<Buffer> buffers_;  ///< the nest's global ones
};

/// Footprints of one nest with sizes put in. Threads: any.
class Footprint {
 public:
  /// Bytes of each global buffer that iterations [begin, end) touch.
  std::vector<Touched> of(std::int64_t begin, std::int64_t end) const;
  /// The same of each of `pieces`, which are iterations from the first to the last: one piece after the other.
  std::vector<Touched> of(std::span<const Interval> pieces) const;

 private:
  friend class Footprints;
  class Ranges;
  struct Range {
    Interval values;
    bool is_known = false;
    bool is_empty = false;  ///< of a span
  };
  Footprint(const Footprints& all, std::span<const std::int64_t> sizes);
  void finish(std::span<Touched> touched) const;
  std::int64_t count_of(const Footprints::Buffer& buffer,
                        std::span<const std::int64_t> sizes) const;

  const Footprints& all_;
  std::vector<Range> fixed_;     ///< of values that do not vary
  std::vector<Interval> whole_;  ///< by buffer: all its elements
};

}  // namespace heddle::jit
