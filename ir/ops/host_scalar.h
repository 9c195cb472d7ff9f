// One element on the host: the definition of every scalar instruction, which evaluate functions
// apply point by point.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

#include "ir/literal.h"
#include "ir/scalar.h"

namespace heddle::ir::ops {

/// A value of one dtype. Floats live in `real`, already rounded to the dtype; integers and bools (0
/// or 1) live in `integer`, already wrapped to the dtype; the upper half of u64 as negative numbers of the same bits.
struct HostScalar {
  DType dtype = DType::F32;
  double real = 0.0;
  std::int64_t integer = 0;

  static HostScalar of_real(DType dtype, double value);           ///< rounds; floating dtypes only
  static HostScalar of_integer(DType dtype, std::int64_t value);  ///< wraps; integers and bool only
  static HostScalar of_bool(bool value) { return of_integer(DType::Bool, value ? 1 : 0); }

  bool truth() const { return is_floating(dtype) ? real != 0.0 : integer != 0; }
};

/// The element of `tensor` at row-major position `position`.
HostScalar load(const Literal& tensor, std::int64_t position);
/// Stores `value`, whose dtype is the tensor's.
void store(Literal& tensor, std::int64_t position, const HostScalar& value);

/// `value` in `dtype`. Float to integer truncates towards zero and saturates, NaN gives 0; integer
/// to narrower integer wraps; to bool is "not zero"; floats of 8 and 16 bits are reached by way of f32.
HostScalar convert(const HostScalar& value, DType dtype);

/// What `op` gives. Operands have one dtype (Select: a bool, then two of one dtype) on which `op`
/// is defined. Floats are computed in double and rounded once.
HostScalar apply(ScalarOp op, std::span<const HostScalar> operands);
inline HostScalar apply(ScalarOp op, std::initializer_list<HostScalar> operands) {
  return apply(op, std::span<const HostScalar>(operands.begin(), operands.size()));
}

}  // namespace heddle::ir::ops
