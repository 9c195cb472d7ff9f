#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "jit/cpu/llvm/scalar_emitter.h"

namespace heddle::jit::cpu {
llvm::Value* VectorMath::apply(ir::ScalarOp, llvm::Value*,
                               const std::function<llvm::Value*(llvm::Value*)>&) {
  return nullptr;
}
}  // namespace heddle::jit::cpu
