#include "jit/cuda/scalar_text.h"

#include <cmath>
#include <cstdio>
#include <limits>

#include "base/check.h"
#include "base/float8.h"
#include "base/half.h"
#include "base/symreal.h"

namespace heddle::jit::cuda {
namespace {

using ir::ReduceOp;
using ir::ScalarOp;
using Operands = std::span<const std::string>;

std::string real_text(double value, bool wide) {
  const std::string cast = wide ? "(double)" : "";
  if (std::isnan(value)) return cast + "hd_nan()";
  if (std::isinf(value)) return (value < 0 ? "-" : "") + cast + "hd_infinity()";
  char text[40];
  std::snprintf(text, sizeof text, wide ? "%.17g" : "%.9g", value);
  std::string result = text;
  if (result.find_first_of(".e") == std::string::npos) result += ".0";
  return wide ? result : result + "f";
}

std::string integer_text(std::int64_t value) {
  if (value == std::numeric_limits<std::int64_t>::min()) return "(-9223372036854775807LL - 1)";
  const std::string text = std::to_string(value);
  const bool narrow = value >= -2147483647 && value <= 2147483647;
  return narrow ? text : text + "LL";
}

std::string call(const std::string& function, Operands operands) {
  std::string text = function + "(";
  for (const std::string& operand : operands)
    text += (&operand == operands.data() ? "" : ", ") + operand;
  return text + ")";
}

std::string infix(const char* op, Operands operands) {
  return operands[0] + " " + op + " " + operands[1];
}

/// A function of the CUDA math library: expf for float, exp for double.
std::string math(const std::string& name, DType dtype, Operands operands) {
  return call(dtype == DType::F64 ? name : name + "f", operands);
}

std::string float_text(ScalarOp op, DType dtype, Operands v) {
  const std::string one = dtype == DType::F64 ? "1.0" : "1.0f";
  switch (op) {
    case ScalarOp::Neg:
      return "-" + v[0];
    case ScalarOp::Abs:
      return math("fabs", dtype, v);
    case ScalarOp::Round:
      return math("rint", dtype, v);
    case ScalarOp::Reciprocal:
      return one + " / " + v[0];
    case ScalarOp::Rsqrt:
      return one + " / " + math("sqrt", dtype, v);
    case ScalarOp::Rem:
      return math("fmod", dtype, v);
    case ScalarOp::Fma:
      return math("fma", dtype, v);
    case ScalarOp::Add:
      return infix("+", v);
    case ScalarOp::Sub:
      return infix("-", v);
    case ScalarOp::Mul:
      return infix("*", v);
    case ScalarOp::Div:
      return dtype == DType::F64 ? infix("/", v) : call("hd_divide", v);
    case ScalarOp::Sqrt:
      return dtype == DType::F64 ? math("sqrt", dtype, v) : call("hd_sqrt", v);
    case ScalarOp::Mod:
      return call("hd_float_mod", v);
    case ScalarOp::Sign:
    case ScalarOp::Sigmoid:
    case ScalarOp::Max:
    case ScalarOp::Min:
      return call("hd_" + std::string(name_of(op)), v);
    case ScalarOp::IsNan:
      return v[0] + " != " + v[0];
    case ScalarOp::IsInf:
      return math("fabs", dtype, v) + " == hd_infinity()";
    default:
      return math(std::string(name_of(op)), dtype, v);
  }
}

/// Where jit/cuda/coarse.cuh has a function for it.
std::string coarse_text(ScalarOp op, Operands v) {
  switch (op) {
    case ScalarOp::Exp2:
      return call("hd_exp2", v);
    case ScalarOp::Exp:
    case ScalarOp::Tanh:
    case ScalarOp::Sqrt:
    case ScalarOp::Rsqrt:
    case ScalarOp::Reciprocal:
    case ScalarOp::Sigmoid:
    case ScalarOp::Div:
      return call("hd_coarse_" + std::string(name_of(op)), v);
    default:
      return {};
  }
}

std::string bool_text(ScalarOp op, Operands v) {
  switch (op) {
    case ScalarOp::Not:
      return "!" + v[0];
    case ScalarOp::Add:
    case ScalarOp::Or:
    case ScalarOp::Max:
      return infix("||", v);
    case ScalarOp::Mul:
    case ScalarOp::And:
    case ScalarOp::Min:
      return infix("&&", v);
    case ScalarOp::Sub:
    case ScalarOp::Xor:
      return infix("!=", v);
    default:
      HD_CHECK(false, "no code for " + std::string(name_of(op)) + " on bools");
      return {};
  }
}

std::string integer_op_text(ScalarOp op, DType dtype, Operands v) {
  const std::string type = compute_type(dtype);
  switch (op) {
    case ScalarOp::Ceil:
    case ScalarOp::Floor:
    case ScalarOp::Round:
    case ScalarOp::Trunc:
      return v[0];
    case ScalarOp::Not:
      return "(" + type + ")~" + v[0];
    case ScalarOp::And:
      return infix("&", v);
    case ScalarOp::Or:
      return infix("|", v);
    case ScalarOp::Xor:
      return infix("^", v);
    case ScalarOp::Pow:
      return "(" + type + ")" + call(dtype == DType::U64 ? "hd_unsigned_power" : "hd_power", v);
    case ScalarOp::Fma:
      return "hd_add(" + call("hd_mul", v.subspan(0, 2)) + ", " + v[2] + ")";
    case ScalarOp::IsNan:
    case ScalarOp::IsInf:
      return "false";
    default:
      return call("hd_" + std::string(name_of(op)), v);
  }
}

const char* comparison(ScalarOp op) {
  static constexpr const char* kSigns[] = {"==", "!=", "<", "<=", ">", ">="};
  return kSigns[static_cast<int>(op) - static_cast<int>(ScalarOp::Eq)];
}

/// Whether a floor division or modulo is C's.
bool is_plain_division(const SymExpr& expr, const base::Facts& facts) {
  if (expr.kind() != SymExpr::Kind::FloorDiv && expr.kind() != SymExpr::Kind::Mod) return false;
  const std::vector<SymExpr> v = expr.operands();
  return provably_nonnegative(v[0], facts) && provably_nonnegative(v[1] - 1, facts);
}

std::string factor_text(const SymExpr& expr, const base::Facts& facts) {
  const std::string text = index_text(expr, facts);
  const bool is_call = text.starts_with("hd_") && !is_plain_division(expr, facts);
  const bool simple =
      expr.is_symbol() || (expr.is_constant() && expr.constant() >= 0) ||
      (is_call && expr.kind() != SymExpr::Kind::Sum && expr.kind() != SymExpr::Kind::Product);
  return simple ? text : "(" + text + ")";
}

std::string product_text(const SymExpr& expr, const base::Facts& facts) {
  std::string text;
  for (const SymExpr& factor : expr.operands()) {
    if (text.empty() && factor.is_constant(-1)) {
      text = "-";
    } else {
      text += text.empty() || text == "-" ? "" : " * ";
      text += text.empty() && factor.is_constant() ? index_text(factor, facts)
                                                   : factor_text(factor, facts);
    }
  }
  return text;
}

std::string sum_text(const SymExpr& expr, const base::Facts& facts) {
  std::string text;
  for (const SymExpr& term : expr.operands()) {
    const std::string piece = index_text(term, facts);
    if (text.empty()) {
      text = piece;
    } else if (piece.starts_with("-")) {
      text += " - " + piece.substr(1);
    } else {
      text += " + " + piece;
    }
  }
  return text;
}

}  // namespace

std::string compute_type(DType dtype) {
  switch (dtype) {
    case DType::F32:
    case DType::F16:
    case DType::BF16:
      return "float";
    case DType::Bool:
      return "bool";
    default:
      return is_float8(dtype) ? "float" : storage_type(dtype);
  }
}

std::string storage_type(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return "float";
    case DType::F64:
      return "double";
    case DType::F16:
      return "hd_f16";
    case DType::BF16:
      return "hd_bf16";
    case DType::I8:
      return "signed char";
    case DType::U8:
    case DType::Bool:
      return "unsigned char";
    case DType::I16:
      return "short";
    case DType::I32:
      return "int";
    case DType::I64:
      return "long long";
    case DType::U16:
      return "unsigned short";
    case DType::U32:
      return "unsigned int";
    case DType::U64:
      return "unsigned long long";
    case DType::F8E4M3FN:
      return "hd_f8e4m3fn";
    case DType::F8E4M3FNUZ:
      return "hd_f8e4m3fnuz";
    case DType::F8E5M2:
      return "hd_f8e5m2";
    case DType::F8E5M2FNUZ:
      return "hd_f8e5m2fnuz";
    case DType::F8E8M0FNU:
      return "hd_f8e8m0fnu";
  }
  return {};
}

std::string constant_text(DType dtype, double number, std::int64_t integer) {
  if (dtype == DType::Bool) return integer != 0 ? "true" : "false";
  if (!is_floating(dtype)) return integer_text(integer);
  if (dtype == DType::F64) return real_text(number, true);
  auto narrow = static_cast<float>(number);
  if (dtype == DType::F16) narrow = static_cast<float>(base::Half(narrow));
  if (dtype == DType::BF16) narrow = static_cast<float>(base::BFloat16(narrow));
  if (is_float8(dtype)) narrow = base::float8_value(dtype, base::float8_code(dtype, narrow));
  return real_text(narrow, false);
}

std::string apply_text(ScalarOp op, DType operand, Operands v, bool coarse) {
  if (coarse)
    if (std::string text = coarse_text(op, v); !text.empty()) return text;
  if (op == ScalarOp::Select) return v[0] + " ? " + v[1] + " : " + v[2];
  if (op >= ScalarOp::Eq && op <= ScalarOp::Ge) return infix(comparison(op), v);
  if (operand == DType::Bool) return bool_text(op, v);
  return is_floating(operand) ? float_text(op, operand, v) : integer_op_text(op, operand, v);
}

std::string convert_text(DType from, DType to, const std::string& value) {
  if (from == to) return value;
  if (to == DType::Bool) return value + " != 0";
  const std::string type = compute_type(to);
  if (!is_floating(to))
    return is_floating(from) ? "hd_truncate<" + type + ">(" + value + ")"
                             : "(" + type + ")" + value;
  if (to == DType::F16) return "hd_round_f16((float)" + value + ")";
  if (to == DType::BF16) return "hd_round_bf16((float)" + value + ")";
  if (is_float8(to)) return loaded_text(to, stored_text(to, "(float)" + value));
  return "(" + type + ")" + value;
}

std::string loaded_text(DType dtype, const std::string& place) {
  if (dtype == DType::F16 || dtype == DType::BF16) return "hd_widen(" + place + ")";
  if (is_float8(dtype)) return "hd_widen_float8(" + place + ")";
  return dtype == DType::Bool ? place + " != 0" : place;
}

std::string stored_text(DType dtype, const std::string& value) {
  if (dtype == DType::F16) return "hd_to_f16(" + value + ")";
  if (dtype == DType::BF16) return "hd_to_bf16(" + value + ")";
  if (is_float8(dtype)) return "hd_to_float8<" + storage_type(dtype) + ">(" + value + ")";
  return dtype == DType::Bool ? "(unsigned char)" + value : value;
}

std::string index_text(const SymExpr& expr, const base::Facts& facts) {
  if (expr.is_constant()) return integer_text(expr.constant());
  if (expr.is_symbol()) return expr.symbol().to_string();
  if (expr.kind() == SymExpr::Kind::Sum) return sum_text(expr, facts);
  if (expr.kind() == SymExpr::Kind::Product) return product_text(expr, facts);
  const std::vector<SymExpr> v = expr.operands();
  if (base::is_real(expr.kind())) {
    std::string text =
        "hd_size_" + std::string(base::name_of_real(expr.kind())) + "(" + index_text(v[0], facts);
    if (base::has_two_arguments(expr.kind())) text += ", " + index_text(v[1], facts);
    return text + ")";
  }
  const bool modulo = expr.kind() == SymExpr::Kind::Mod;
  const bool division = expr.kind() == SymExpr::Kind::FloorDiv;
  if (is_plain_division(expr, facts))
    return factor_text(v[0], facts) + (modulo ? " % " : " / ") + factor_text(v[1], facts);
  const char* function = modulo                              ? "hd_floormod"
                         : division                          ? "hd_floordiv"
                         : expr.kind() == SymExpr::Kind::Min ? "hd_smaller"
                                                             : "hd_larger";
  return std::string(function) + "(" + index_text(v[0], facts) + ", " + index_text(v[1], facts) +
         ")";
}

std::string reduction_text(ReduceOp op) {
  static constexpr const char* kNames[] = {"hd_sum",     "hd_product", "hd_maximum",
                                           "hd_minimum", "hd_all",     "hd_any",
                                           "hd_argmax",  "hd_argmin",  "hd_welford"};
  return kNames[static_cast<int>(op)];
}

std::string identity_text(ReduceOp op, DType dtype) {
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Or:
      return constant_text(dtype, 0, 0);
    case ReduceOp::Prod:
    case ReduceOp::And:
      return constant_text(dtype, 1, 1);
    case ReduceOp::Max:
    case ReduceOp::ArgMax:
      return "hd_limits<" + compute_type(dtype) + ">::low()";
    case ReduceOp::Min:
    case ReduceOp::ArgMin:
      return "hd_limits<" + compute_type(dtype) + ">::high()";
    case ReduceOp::Welford:
      return "{}";
  }
  return {};
}

}  // namespace heddle::jit::cuda
