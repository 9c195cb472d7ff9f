// Builds nests: statements appended to the innermost open block, scalars numbered as they come.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ir/element.h"
#include "jit/nest.h"

namespace heddle::jit {

using ir::Scalar;

class NestBuilder {
 public:
  explicit NestBuilder(std::string name);

  NestBufferId add_global(DType dtype, SymExpr count);
  NestBufferId add_local(DType dtype, SymExpr count, std::int64_t max_count);
  /// A new axis symbol with its range recorded in the facts.
  Symbol new_axis(const SymExpr& extent);
  void set_parallel(Symbol axis, SymExpr extent);

  Scalar constant(DType dtype, double value);
  Scalar constant_int(DType dtype, std::int64_t value);
  Scalar i64(std::int64_t value) { return constant_int(DType::I64, value); }
  Scalar apply(ir::ScalarOp op, std::span<const Scalar> operands);
  Scalar apply(ir::ScalarOp op, std::initializer_list<Scalar> operands);
  Scalar apply(ir::ScalarOp op, Scalar left, Scalar right) { return apply(op, {left, right}); }
  /// The exponential of a number that is 0 or less, or NaN. No target checks that. Targets may give 0 for a subnormal one.
  Scalar exp_up_to_zero(Scalar value);
  Scalar convert(Scalar value, DType dtype);
  Scalar bits(Scalar value);
  Scalar from_index(const SymExpr& index);
  SymExpr bind(Scalar value, const SymExpr& low, const SymExpr& high, std::int32_t check,
               ScalarId mask = kNoScalar);
  Scalar load(NestBufferId buffer, const SymExpr& index, ScalarId mask = kNoScalar);
  void store(NestBufferId buffer, const SymExpr& index, Scalar value, ScalarId mask = kNoScalar);
  StoreStmt& last_store();

  /// Opens a loop; statements go into it until end_for().
  void begin_for(Symbol axis, const SymExpr& extent, ForStmt::Kind kind);
  /// Opens a loop over a new axis, and gives that.
  Symbol begin_for(const SymExpr& extent, ForStmt::Kind kind);
  /// Adds a reduction to the innermost open loop; results are usable after end_for().
  std::vector<Scalar> reduce(ir::ReduceOp op, DType accumulator,
                             std::span<const Scalar> contributions, ScalarId mask = kNoScalar);
  /// Adds a carried value to the innermost open loop (call right after begin_for): the value inside.
  Scalar carry(Scalar initial);
  /// Gives the carried value `current` its next one; returns the result usable after end_for().
  Scalar set_next(Scalar current, Scalar next);
  void end_for();
  void begin_if(Scalar condition);
  void end_if();
  void contract(ContractStmt stmt);

  base::Facts& facts() { return nest_.facts; }
  SymExpr simplify(const SymExpr& expr) const { return expr.simplify(nest_.facts); }
  /// An unused scalar id, for statements made by hand.
  ScalarId fresh_scalar() { return next_scalar_++; }
  /// The block being filled; used to splice.
  Nest& nest() { return nest_; }
  Nest finish();

 private:
  Block& block() { return *open_.back(); }
  Scalar fresh(DType dtype);
  void read_parts(Dequantised& dequantised);

  Nest nest_;
  std::vector<Block*> open_;
  std::vector<ForStmt*> loops_;  // innermost last; null for an if
  ScalarId next_scalar_ = 0;
  std::uint32_t next_axis_ = 0;
  std::uint32_t next_temp_ = 0;
};

}  // namespace heddle::jit
