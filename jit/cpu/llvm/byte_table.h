// Tables of 256 bytes in the registers of a vector machine.
#pragma once

#include <string>

#include "jit/cpu/llvm/codegen.h"

namespace llvm {
class IRBuilderBase;
class Module;
class Value;
}  // namespace llvm

namespace heddle::jit::cpu {

/// values[byte], of an i8 or of each lane of a vector of them. With AVX-512 VBMI from four registers, elsewhere lane by lane from
/// memory.
/// @param values  256 bytes
llvm::Value* byte_of_table(llvm::IRBuilderBase& builder, llvm::Module& module,
                           const CodegenTarget& target, const std::string& values,
                           llvm::Value* byte);

}  // namespace heddle::jit::cpu
