#include "jit/cpu/llvm/opaque.h"

#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InlineAsm.h>

namespace heddle::jit::cpu {

llvm::Value* opaque(llvm::IRBuilderBase& b, llvm::Value* vector) {
  llvm::Type* type = vector->getType();
  auto* nothing =
      llvm::InlineAsm::get(llvm::FunctionType::get(type, {type}, false), "", "=x,0", false);
  llvm::CallInst* call = b.CreateCall(nothing, {vector});
  call->setDoesNotAccessMemory();
  call->setDoesNotThrow();
  call->addFnAttr(llvm::Attribute::WillReturn);
  return call;
}

void keep_order(llvm::IRBuilderBase& b) {
  auto* nothing = llvm::FunctionType::get(b.getVoidTy(), false);
  b.CreateCall(nothing, llvm::InlineAsm::get(nothing, "", "~{memory}", true));
}

}  // namespace heddle::jit::cpu
