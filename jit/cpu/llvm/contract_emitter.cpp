// Tile contractions.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "base/check.h"
#include "jit/cpu/llvm/nest_emitter.h"

namespace heddle::jit::cpu {
void NestEmitter::operator()(const ContractStmt&) { HD_CHECK(false); }
}  // namespace heddle::jit::cpu
