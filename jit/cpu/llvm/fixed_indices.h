// Index arithmetic that is the same in every iteration of a loop.
#pragma once

#include <vector>

#include "jit/nest.h"

namespace heddle::jit::cpu {

/// The quotients and remainders in the indices of a loop's body, as large as they are, that neither the loop nor anything in it
/// changes. Each once.
///
///   serial i1 { vector i2 { %0 = load x[7*floor(i0/3) + mod(floor(i1/3),5) + i2] } }
///     ==>
///   of the loop of i1: floor(i0/3); of that of i2: mod(floor(i1/3),5) as well
///
/// LLVM moves other arithmetic out of loops by itself, but not what takes registers of its own, as the high half of a product
/// does.
std::vector<SymExpr> fixed_divisions(const ForStmt& loop);

/// The divisors that are not known until the kernel runs and are the same in every iteration, of quotients and remainders that are
/// not: a product by what such a number is the inverse of takes a fraction of a division.
///
///   serial i1 { %0 = load x[floor((682*i0+i1)/s0)] }       s0
std::vector<SymExpr> fixed_divisors(const ForStmt& loop);

}  // namespace heddle::jit::cpu
