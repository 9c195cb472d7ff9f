#include "jit/cpu/llvm/byte_table.h"

#include <algorithm>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/GlobalVariable.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/Module.h>
#include <vector>

#include "jit/cpu/llvm/scalar_emitter.h"

namespace heddle::jit::cpu {
namespace {

using llvm::Value;

constexpr unsigned kRegister = 64;  ///< bytes

class ByteTable {
 public:
  ByteTable(llvm::IRBuilderBase& builder, llvm::Module& module, const std::string& values)
      : b_(builder), module_(module), values_(values) {}

  /// In memory: of one byte, or lane by lane.
  Value* from_memory(Value* byte) {
    llvm::Type* type = llvm::ArrayType::get(b_.getInt8Ty(), values_.size());
    auto* table = new llvm::GlobalVariable(
        module_, type, true, llvm::GlobalValue::PrivateLinkage,
        llvm::ConstantDataArray::getString(b_.getContext(), values_, false), "bytes");
    const auto read = [&](Value* at) -> Value* {
      Value* address =
          b_.CreateGEP(type, table, {b_.getInt64(0), b_.CreateZExt(at, b_.getInt64Ty())});
      return b_.CreateLoad(b_.getInt8Ty(), address);
    };
    const unsigned lanes = lanes_of(byte);
    if (lanes == 0) return read(byte);
    Value* result = llvm::PoisonValue::get(byte->getType());
    for (unsigned k = 0; k < lanes; ++k)
      result = b_.CreateInsertElement(result, read(b_.CreateExtractElement(byte, k)), k);
    return result;
  }

  /// In four registers, for any number of lanes.
  Value* from_registers(Value* bytes) {
    const unsigned lanes = lanes_of(bytes);
    if (lanes > kRegister) {
      Value* low = from_registers(part(bytes, 0, lanes / 2, lanes / 2));
      Value* high = from_registers(part(bytes, lanes / 2, lanes / 2, lanes / 2));
      return part_of_two(low, high, lanes);
    }
    Value* at = lanes == kRegister ? bytes : part(bytes, 0, lanes, kRegister);
    Value* low = of_two(0, at);
    Value* high = of_two(2, at);
    Value* is_high = b_.CreateICmpSLT(at, llvm::Constant::getNullValue(at->getType()));
    Value* result = b_.CreateSelect(is_high, high, low);
    return lanes == kRegister ? result : part(result, 0, lanes, lanes);
  }

 private:
  /// Lanes [first, first + count) of `bytes`, in a vector of `width`.
  Value* part(Value* bytes, unsigned first, unsigned count, unsigned width) {
    std::vector<int> lanes(width, -1);
    for (unsigned k = 0; k < count; ++k) lanes[k] = static_cast<int>(first + k);
    return b_.CreateShuffleVector(bytes, lanes);
  }
  Value* part_of_two(Value* low, Value* high, unsigned width) {
    std::vector<int> lanes(width);
    for (unsigned k = 0; k < width; ++k) lanes[k] = static_cast<int>(k);
    return b_.CreateShuffleVector(low, high, lanes);
  }

  llvm::Constant* register_of(unsigned number) {
    const auto* first = reinterpret_cast<const std::uint8_t*>(values_.data()) + kRegister * number;
    return llvm::ConstantDataVector::get(b_.getContext(), llvm::ArrayRef(first, kRegister));
  }

  /// The byte that the low seven bits of `at` name in two neighbouring registers.
  Value* of_two(unsigned number, Value* at) {
    return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_vpermi2var_qi_512, {},
                              {register_of(number), at, register_of(number + 1)});
  }

  llvm::IRBuilderBase& b_;
  llvm::Module& module_;
  const std::string& values_;
};

}  // namespace

bool has_byte_tables(const CodegenTarget& target) {
  return target.vector_bytes == kRegister && has_feature(target, "avx512vbmi");
}

Value* byte_of_table(llvm::IRBuilderBase& builder, llvm::Module& module,
                     const CodegenTarget& target, const std::string& values, Value* byte) {
  ByteTable table(builder, module, values);
  return has_byte_tables(target) && lanes_of(byte) != 0 ? table.from_registers(byte)
                                                        : table.from_memory(byte);
}

}  // namespace heddle::jit::cpu
