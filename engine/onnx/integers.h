// Arithmetic on integers known while tracing: that of tensors, where plain numbers wrap.
#pragma once

#include <cstdint>

#include "heddle/dtype.h"
#include "heddle/symint.h"

namespace heddle::onnx {

/// `number` as an element of `dtype` holds it: its low bits, and of a bool whether it is not 0. Symbolic sizes stay.
SymInt wrapped(const SymInt& number, DType dtype);

// Two plain numbers wrap at 64 bits; an expression that overflows is an error of sizes.
SymInt wrapping_add(const SymInt& a, const SymInt& b);
SymInt wrapping_subtract(const SymInt& a, const SymInt& b);
SymInt wrapping_multiply(const SymInt& a, const SymInt& b);

// The larger and the smaller of two: of sizes an expression, without a guard.
SymInt larger(const SymInt& a, const SymInt& b);
SymInt smaller(const SymInt& a, const SymInt& b);

/// a / b towards zero, as ONNX divides; 0 where b is 0, as on tensors.
SymInt divide_to_zero(const SymInt& a, const SymInt& b);

}  // namespace heddle::onnx
