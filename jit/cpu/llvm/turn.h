// Squares of elements turned in registers.
#pragma once

#include <vector>

namespace llvm {
class IRBuilderBase;
class Value;
}  // namespace llvm

namespace heddle::jit::cpu {

/// Lane j of row i becomes lane i of row j. As many rows as vectors have lanes: 1, 2 or 4 times the elements of 16 bytes,
/// within which shuffles are cheap.
void turn(llvm::IRBuilderBase& b, std::vector<llvm::Value*>& rows);

}  // namespace heddle::jit::cpu
