// Tables of 256 bytes in the registers of a vector machine: see has_byte_tables().
#pragma once

#include <array>

namespace llvm {
class IRBuilderBase;
class Value;
}  // namespace llvm

namespace heddle::jit::cpu {

/// 64 bytes each.
using ByteTable = std::array<llvm::Value*, 4>;

/// The table at `address`, which may be any.
ByteTable read_byte_table(llvm::IRBuilderBase& builder, llvm::Value* address);

/// The bytes of the table that the lanes of `bytes`, a vector of i8, name.
llvm::Value* byte_of_table(llvm::IRBuilderBase& builder, const ByteTable& table,
                           llvm::Value* bytes);

}  // namespace heddle::jit::cpu
