#include "jit/cpu/llvm/byte_table.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <vector>

#include "jit/cpu/llvm/codegen.h"
#include "jit/cpu/llvm/scalar_emitter.h"

namespace heddle::jit::cpu {
namespace {

using llvm::Value;

constexpr unsigned kRegister = 64;  ///< bytes

/// Lanes [first, first + count) of `bytes`, in a vector of `width`.
Value* part(llvm::IRBuilderBase& b, Value* bytes, unsigned first, unsigned count, unsigned width) {
  std::vector<int> lanes(width, -1);
  for (unsigned k = 0; k < count; ++k) lanes[k] = static_cast<int>(first + k);
  return b.CreateShuffleVector(bytes, lanes);
}

Value* joined(llvm::IRBuilderBase& b, Value* low, Value* high, unsigned width) {
  std::vector<int> lanes(width);
  for (unsigned k = 0; k < width; ++k) lanes[k] = static_cast<int>(k);
  return b.CreateShuffleVector(low, high, lanes);
}

}  // namespace

bool has_byte_tables(const CodegenTarget& target) {
  return target.vector_bytes == kRegister && has_feature(target, "avx512vbmi");
}

ByteTable read_byte_table(llvm::IRBuilderBase& b, Value* address) {
  ByteTable table{};
  auto* type = llvm::FixedVectorType::get(b.getInt8Ty(), kRegister);
  for (unsigned k = 0; k < table.size(); ++k)
    table[k] = b.CreateAlignedLoad(
        type, b.CreateConstGEP1_32(b.getInt8Ty(), address, kRegister * k), llvm::Align(1));
  return table;
}

Value* byte_of_table(llvm::IRBuilderBase& b, const ByteTable& table, Value* bytes) {
  const unsigned lanes = lanes_of(bytes);
  if (lanes > kRegister) {
    Value* low = byte_of_table(b, table, part(b, bytes, 0, lanes / 2, lanes / 2));
    Value* high = byte_of_table(b, table, part(b, bytes, lanes / 2, lanes / 2, lanes / 2));
    return joined(b, low, high, lanes);
  }
  Value* at = lanes == kRegister ? bytes : part(b, bytes, 0, lanes, kRegister);
  // The low seven bits of each byte name one in two neighbouring registers.
  const auto of_two = [&](unsigned first) {
    return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_vpermi2var_qi_512, {},
                             {table[first], at, table[first + 1]});
  };
  Value* is_high = b.CreateICmpSLT(at, llvm::Constant::getNullValue(at->getType()));
  Value* result = b.CreateSelect(is_high, of_two(2), of_two(0));
  return lanes == kRegister ? result : part(b, result, 0, lanes, lanes);
}

}  // namespace heddle::jit::cpu
