// Products of several elements of the depth at a time.
#pragma once

#include <string>

#include "jit/cpu/llvm/codegen.h"

namespace llvm {
class IRBuilderBase;
class Value;
}  // namespace llvm

namespace heddle::jit::cpu {

/// Each lane of `sum`, plus the products of the four bytes of that lane of `a`, without a sign, with those of `b`, with one.
/// Exact but for wrapping modulo 2^32: one instruction where the target has one, products of 16 bits elsewhere.
/// All three are vectors of i32 as wide as the target's.
/// @param pairs_fit  ContractStmt::pairs_fit
llvm::Value* dot_of_bytes(llvm::IRBuilderBase& b, const std::string& triple,
                          const CodegenTarget& target, llvm::Value* sum, llvm::Value* left,
                          llvm::Value* right, bool pairs_fit = false);

/// Each lane of `sum`, plus the products of the two i16 of that lane of `left` with those of `right`, which are vectors of twice as
/// many i16.
llvm::Value* dot_of_pairs(llvm::IRBuilderBase& b, const std::string& triple, llvm::Value* sum,
                          llvm::Value* left, llvm::Value* right);

/// Each lane of `sum`, plus the products of the two bf16 that the bits of that lane of `a` hold with those of `b`: one
/// instruction, for which subnormal numbers are 0, where the target has one (has_bf16_dot); two multiply-adds elsewhere.
/// All three are vectors of f32 as wide as the target's.
llvm::Value* dot_of_bf16(llvm::IRBuilderBase& b, const std::string& triple,
                         const CodegenTarget& target, llvm::Value* sum, llvm::Value* left,
                         llvm::Value* right);

}  // namespace heddle::jit::cpu
