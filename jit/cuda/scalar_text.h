// C++ expressions for scalars: constants, operations, conversions, indices, memory.
#pragma once

#include <span>
#include <string>

#include "jit/nest.h"

namespace heddle::jit::cuda {

/// The type computed with: float for the 16-bit floating types, bool for bool.
std::string compute_type(DType dtype);
/// The type in memory: hd_f16, hd_bf16, unsigned char for bool.
std::string storage_type(DType dtype);

std::string constant_text(DType dtype, double number, std::int64_t integer);
/// `operand`: dtype of the operands (of the second one for Select). `coarse`: floats need only be as good as those of bf16 are.
std::string apply_text(ir::ScalarOp op, DType operand, std::span<const std::string> operands,
                       bool coarse = false);
std::string convert_text(DType from, DType to, const std::string& value);

/// The element `place` (an lvalue) as a value to compute with, and a value as what is stored.
std::string loaded_text(DType dtype, const std::string& place);
std::string stored_text(DType dtype, const std::string& value);

/// An index as a long long expression; `facts` tell where plain division does.
std::string index_text(const SymExpr& expr, const base::Facts& facts);

/// The prelude's name of a reduction: "hd_sum".
std::string reduction_text(ir::ReduceOp op);
/// What a reduction of plain values starts from.
std::string identity_text(ir::ReduceOp op, DType dtype);

}  // namespace heddle::jit::cuda
