#include "ir/scalar.h"

#include <array>

namespace heddle::ir {

namespace {

/// The dtypes an instruction takes.
enum class Domain : std::uint8_t { Any, Number, Floating, IntegerOrBool, Integer };

struct Row {
  ScalarOp op;
  std::string_view name;
  int arity;
  Domain domain;
  bool to_bool = false;
};

constexpr Row kRows[] = {
    {ScalarOp::Neg, "neg", 1, Domain::Number},
    {ScalarOp::Abs, "abs", 1, Domain::Number},
    {ScalarOp::Sign, "sign", 1, Domain::Number},
    {ScalarOp::Ceil, "ceil", 1, Domain::Number},
    {ScalarOp::Floor, "floor", 1, Domain::Number},
    {ScalarOp::Round, "round", 1, Domain::Number},
    {ScalarOp::Trunc, "trunc", 1, Domain::Number},
    {ScalarOp::Sqrt, "sqrt", 1, Domain::Floating},
    {ScalarOp::Rsqrt, "rsqrt", 1, Domain::Floating},
    {ScalarOp::Reciprocal, "reciprocal", 1, Domain::Floating},
    {ScalarOp::Exp, "exp", 1, Domain::Floating},
    {ScalarOp::Exp2, "exp2", 1, Domain::Floating},
    {ScalarOp::Expm1, "expm1", 1, Domain::Floating},
    {ScalarOp::Log, "log", 1, Domain::Floating},
    {ScalarOp::Log2, "log2", 1, Domain::Floating},
    {ScalarOp::Log1p, "log1p", 1, Domain::Floating},
    {ScalarOp::Sin, "sin", 1, Domain::Floating},
    {ScalarOp::Cos, "cos", 1, Domain::Floating},
    {ScalarOp::Tan, "tan", 1, Domain::Floating},
    {ScalarOp::Asin, "asin", 1, Domain::Floating},
    {ScalarOp::Acos, "acos", 1, Domain::Floating},
    {ScalarOp::Atan, "atan", 1, Domain::Floating},
    {ScalarOp::Sinh, "sinh", 1, Domain::Floating},
    {ScalarOp::Cosh, "cosh", 1, Domain::Floating},
    {ScalarOp::Asinh, "asinh", 1, Domain::Floating},
    {ScalarOp::Acosh, "acosh", 1, Domain::Floating},
    {ScalarOp::Atanh, "atanh", 1, Domain::Floating},
    {ScalarOp::Tanh, "tanh", 1, Domain::Floating},
    {ScalarOp::Erf, "erf", 1, Domain::Floating},
    {ScalarOp::Sigmoid, "sigmoid", 1, Domain::Floating},
    {ScalarOp::Not, "not", 1, Domain::IntegerOrBool},
    {ScalarOp::IsNan, "is_nan", 1, Domain::Floating, true},
    {ScalarOp::IsInf, "is_inf", 1, Domain::Floating, true},
    {ScalarOp::Add, "add", 2, Domain::Number},
    {ScalarOp::Sub, "sub", 2, Domain::Number},
    {ScalarOp::Mul, "mul", 2, Domain::Number},
    {ScalarOp::Div, "div", 2, Domain::Number},
    {ScalarOp::Mod, "mod", 2, Domain::Number},
    {ScalarOp::Rem, "rem", 2, Domain::Number},
    {ScalarOp::Pow, "pow", 2, Domain::Number},
    {ScalarOp::Atan2, "atan2", 2, Domain::Floating},
    {ScalarOp::Max, "max", 2, Domain::Any},
    {ScalarOp::Min, "min", 2, Domain::Any},
    {ScalarOp::And, "and", 2, Domain::IntegerOrBool},
    {ScalarOp::Or, "or", 2, Domain::IntegerOrBool},
    {ScalarOp::Xor, "xor", 2, Domain::IntegerOrBool},
    {ScalarOp::Shl, "shl", 2, Domain::Integer},
    {ScalarOp::Shr, "shr", 2, Domain::Integer},
    {ScalarOp::Eq, "eq", 2, Domain::Any, true},
    {ScalarOp::Ne, "ne", 2, Domain::Any, true},
    {ScalarOp::Lt, "lt", 2, Domain::Any, true},
    {ScalarOp::Le, "le", 2, Domain::Any, true},
    {ScalarOp::Gt, "gt", 2, Domain::Any, true},
    {ScalarOp::Ge, "ge", 2, Domain::Any, true},
    {ScalarOp::Select, "select", 3, Domain::Any},
    {ScalarOp::Fma, "fma", 3, Domain::Number},
};

constexpr bool rows_in_order() {
  for (std::size_t k = 0; k < std::size(kRows); ++k)
    if (static_cast<std::size_t>(kRows[k].op) != k) return false;
  return true;
}
static_assert(rows_in_order());

const Row& row(ScalarOp op) { return kRows[static_cast<std::size_t>(op)]; }

}  // namespace

std::string_view name_of(ScalarOp op) { return row(op).name; }
int arity_of(ScalarOp op) { return row(op).arity; }
DType result_of(ScalarOp op, DType operand) { return row(op).to_bool ? boolean : operand; }

bool defined_on(ScalarOp op, DType dtype) {
  if (is_float8(dtype)) return op == ScalarOp::Select;
  switch (row(op).domain) {
    case Domain::Any:
      return true;
    case Domain::Number:
      return dtype != boolean;
    case Domain::Floating:
      return is_floating(dtype);
    case Domain::IntegerOrBool:
      return !is_floating(dtype);
    case Domain::Integer:
      return is_integer(dtype);
  }
  return false;
}

std::string_view name_of(ReduceOp op) {
  constexpr std::array<std::string_view, 9> kNames{"sum", "prod",   "max",    "min",    "and",
                                                   "or",  "argmax", "argmin", "welford"};
  return kNames[static_cast<std::size_t>(op)];
}

int width_of(ReduceOp op) {
  if (op == ReduceOp::Welford) return 3;
  return op == ReduceOp::ArgMax || op == ReduceOp::ArgMin ? 2 : 1;
}

}  // namespace heddle::ir
