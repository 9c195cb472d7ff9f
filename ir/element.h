// How an op says what one element of its result is: the lowering that fusion inlines.
#pragma once

#include <cstdint>
#include <span>

#include "base/symexpr.h"
#include "ir/scalar.h"

namespace heddle::ir {

/// A scalar inside a kernel being built.
struct Scalar {
  std::uint32_t id = 0;
  DType dtype = DType::F32;
};

/// What an element lowering builds with. The implementation decides whether operand() becomes a load
/// or the operand's own element expression.
class ElementBuilder {
 public:
  virtual ~ElementBuilder() = default;

  /// Element of operand `k` at `index` (one entry a dimension of the operand, in range wherever the
  /// enclosing guards hold).
  virtual Scalar operand(std::size_t k, std::span<const base::SymExpr> index) = 0;
  virtual Scalar constant(DType dtype, double value) = 0;
  virtual Scalar constant_int(DType dtype, std::int64_t value) = 0;
  virtual Scalar apply(ScalarOp op, std::span<const Scalar> operands) = 0;
  /// Float to integer truncates towards zero and saturates (NaN gives 0); integer narrowing wraps; to bool
  /// is "not zero".
  virtual Scalar convert(Scalar value, DType dtype) = 0;
  /// An index expression as an i64 scalar.
  virtual Scalar from_index(const base::SymExpr& index) = 0;
  /// An i64 scalar as an index known to lie in [low, high]; it is clamped into that range when
  /// `checked` and reported as an IndexError of the op being lowered.
  virtual base::SymExpr to_index(Scalar value, const base::SymExpr& low, const base::SymExpr& high,
                                 bool checked) = 0;
  /// A comparison of index expressions as a bool scalar (folded when provable).
  virtual Scalar predicate(const base::Predicate& predicate) = 0;

  /// From begin_guard to end_guard, operands are read only where `condition` holds; elsewhere what was
  /// read is unspecified but harmless. Follow with Select.
  virtual void begin_guard(Scalar condition) = 0;
  virtual void end_guard() = 0;

  Scalar apply1(ScalarOp op, Scalar a) { return apply(op, std::span<const Scalar>(&a, 1)); }
  Scalar apply2(ScalarOp op, Scalar a, Scalar b) {
    const Scalar operands[] = {a, b};
    return apply(op, operands);
  }
  Scalar select(Scalar condition, Scalar a, Scalar b) {
    const Scalar operands[] = {condition, a, b};
    return apply(ScalarOp::Select, operands);
  }
};

}  // namespace heddle::ir
