// Values and places that LLVM cannot see through, by way of no instructions.
#pragma once

namespace llvm {
class IRBuilderBase;
class Value;
}  // namespace llvm

namespace heddle::jit::cpu {

/// `vector`, which LLVM then neither computes anew nor joins with what is computed from it. On x86 only.
llvm::Value* opaque(llvm::IRBuilderBase& b, llvm::Value* vector);

/// What is read behind this is not read before it: LLVM brings loads near each other together, those of several steps of a
/// loop, and has no registers for what they read.
void keep_order(llvm::IRBuilderBase& b);

}  // namespace heddle::jit::cpu
