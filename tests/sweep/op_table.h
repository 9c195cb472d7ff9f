// One row or more an op: how to call it for a dtype and an extent.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/one_op.h"

namespace heddle::testing {

/// How large the operands of a call are. Rows size their dimensions with it.
struct Extent {
  enum class Kind { Plain, EmptyFirst, EmptyLast, One };
  Kind kind = Kind::Plain;
  std::int64_t factor = 1;  ///< of all sizes that are not special

  /// The size of the operands' leading dimension, `plain` where nothing is special.
  std::int64_t first(std::int64_t plain) const {
    return kind == Kind::EmptyFirst ? 0 : other(plain);
  }
  /// The size of the dimension that is reduced, contracted, normalised or indexed.
  std::int64_t last(std::int64_t plain) const { return kind == Kind::EmptyLast ? 0 : other(plain); }
  /// A size that is never 0.
  std::int64_t other(std::int64_t plain) const { return kind == Kind::One ? 1 : factor * plain; }
  /// The same of one that is small however large operands are: taps of windows.
  std::int64_t few(std::int64_t plain) const { return kind == Kind::One ? 1 : plain; }
};

struct OpRow {
  std::string_view op;
  std::string variant;  ///< tells rows of one op apart; may be empty
  std::vector<DType> dtypes;
  std::function<OneOp(DType, Extent)> make;
  std::size_t specials = 8;  ///< operands that may hold NaN and infinities; fewer needs a reason

  std::string name() const {
    return variant.empty() ? std::string(op) : std::string(op) + "_" + variant;
  }
};

/// The dtypes that an op takes, by family.
std::vector<DType> all_dtypes();
std::vector<DType> floats();
std::vector<DType> integers();
std::vector<DType> numbers();
std::vector<DType> bools();

/// Positions along a dimension of size `limit`, some counted from its end; none where it is empty.
ir::Literal positions(DType dtype, std::int64_t count, std::int64_t limit);

// Parts of the table.
void add_pointwise_rows(std::vector<OpRow>& rows);
void add_shape_rows(std::vector<OpRow>& rows);
void add_reduction_rows(std::vector<OpRow>& rows);
void add_window_rows(std::vector<OpRow>& rows);
void add_dense_rows(std::vector<OpRow>& rows);
void add_index_rows(std::vector<OpRow>& rows);

/// All rows, each with a name of its own.
const std::vector<OpRow>& op_table();

}  // namespace heddle::testing
