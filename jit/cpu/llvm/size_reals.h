// Real arithmetic inside of sizes (base/symreal.h) where a kernel computes it.
#pragma once

#include "base/symexpr.h"

namespace llvm {
class IRBuilderBase;
class Value;
}  // namespace llvm

namespace heddle::jit::cpu {

/// What one of its kinds makes of two i64, as base::apply_real() does.
llvm::Value* apply_real(llvm::IRBuilderBase& b, base::SymExpr::Kind kind, llvm::Value* left,
                        llvm::Value* right);

}  // namespace heddle::jit::cpu
