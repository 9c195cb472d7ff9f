// Kernels that differ in numbers alone.
#pragma once

#include "jit/program.h"

namespace heddle::jit {

/// Makes one kernel of those that are alike but for numbers by which they multiply or divide, or which they add, and for
/// zero points: each call is given its own. For the CPU.
///
///   %3 = const 0.0049000685: f32       in one kernel, 0.0123 in another
///     ==>
///   %3 = given s0: f32 in [2^-60, 2^60]
///
/// Each layer of a quantised model has scales and zero points of its own, and else a kernel that differs in nothing but a number.
/// Numbers that all of them have stay where they are: what is known of a constant makes better code.
///
/// Needs:  kernels as they are to be compiled, and their launches.
/// Leaves: kernels that are like no other; bounds, exponents and whatever else is more than an operand of arithmetic; 0 and 1;
///         attention, whose scale is a part of its form.
void share_numbers(Program& program);

}  // namespace heddle::jit
