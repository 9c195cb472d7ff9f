// The scalar instruction set: what one element of a tensor is computed with. Op definitions lower to it,
// loop nests hold it, emitters translate it.
#pragma once

#include <cstdint>
#include <string_view>

#include "heddle/dtype.h"

namespace heddle::ir {

/// Semantics are C's on the operand's dtype unless said otherwise. Integers wrap. f16 and bf16 are
/// widened to f32, computed and rounded back at each store or convert (emitters may keep f32 between).
enum class ScalarOp : std::uint8_t {
  // one operand, same dtype out
  Neg,
  Abs,
  Sign,  // Sign: -1, 0, 1; NaN stays NaN
  Ceil,
  Floor,
  Round,
  Trunc,  // Round: half to even; identity on integers
  Sqrt,
  Rsqrt,
  Reciprocal,
  Exp,
  Exp2,
  Expm1,
  Log,
  Log2,
  Log1p,
  Sin,
  Cos,
  Tan,
  Asin,
  Acos,
  Atan,
  Sinh,
  Cosh,
  Asinh,
  Acosh,
  Atanh,
  Tanh,
  Erf,
  Sigmoid,
  Not,  // bitwise on integers, logical on bool
  // one operand, bool out
  IsNan,
  IsInf,
  // two operands of one dtype, same dtype out
  Add,
  Sub,
  Mul,
  Div,  // integers: towards zero; by zero gives 0; min/-1 wraps
  Mod,  // sign of the divisor (Python); floats too; integer mod 0 gives 0
  Rem,  // sign of the dividend (C fmod, %); integer rem 0 gives 0
  Pow,
  Atan2,
  Max,
  Min,  // NaN if either is NaN
  And,
  Or,
  Xor,  // bitwise on integers, logical on bool
  Shl,
  Shr,  // Shr: arithmetic on signed, logical on unsigned; shift count >= width gives 0 (sign)
  // two operands of one dtype, bool out
  Eq,
  Ne,
  Lt,
  Le,
  Gt,
  Ge,
  // three operands
  Select,  // (bool, a, b): a if true
  Fma,     // a*b + c, contracted where the target can
};

std::string_view name_of(ScalarOp op);  ///< "add", "is_nan", …
int arity_of(ScalarOp op);
/// dtype of the result for operands of dtype `operand` (Select: of its second operand).
DType result_of(ScalarOp op, DType operand);
/// Whether `op` is defined on `dtype` (Exp is not on i32; And is not on f32).
bool defined_on(ScalarOp op, DType dtype);

/// How a reduction combines. Tuple reductions carry more than one value.
enum class ReduceOp : std::uint8_t {
  Sum,
  Prod,
  Max,
  Min,  // Max, Min: NaN wins
  And,
  Or,  // bool
  ArgMax,
  ArgMin,   // (value, i64 index), smallest index on ties, NaN wins at its first place
  Welford,  // (mean, sum of squared deviations, count)
};
std::string_view name_of(ReduceOp op);
/// Values carried: 1, 2 or 3.
int width_of(ReduceOp op);

}  // namespace heddle::ir
