// Blocks of a contraction of bytes by pairs of 16 bits, exact in i32: for targets that multiply pairs of 16 bits and add the two
// products at a time, but no groups of four bytes.
//
// The left matrix holds its bytes in i16 already. A vector of the right one is half as many groups of four bytes, widened as they
// are loaded, and so has two sums for each column, added up at the end of the block:
//
//   left    l0 l1 l2 l3   l0 l1 l2 l3 ...      one group of a row, again and again
//   right   a0 a1 a2 a3   b0 b1 b2 b3 ...      of columns a, b, ...
//   sums    l0 a0 + l1 a1, l2 a2 + l3 a3, l0 b0 + l1 b1, ...
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "jit/cpu/llvm/contract_tile.h"
#include "jit/cpu/llvm/dot.h"

namespace heddle::jit::cpu {
namespace {

using llvm::Value;

constexpr unsigned kGroup = 4;

llvm::SmallVector<int, 64> places(unsigned first, unsigned count, unsigned stride) {
  llvm::SmallVector<int, 64> result;
  for (unsigned k = 0; k < count; ++k) result.push_back(static_cast<int>(first + k * stride));
  return result;
}

}  // namespace

bool NestEmitter::sums_by_pairs(const ContractStmt& s) const {
  return s.group == kGroup && nest_.buffers[s.a.buffer].dtype == DType::I16;
}

/// The two sums of each column, the first half of the columns in `low`, as one.
Value* NestEmitter::pair_sum(Value* low, Value* high) {
  const unsigned lanes = lanes_of(low);
  return b_.CreateAdd(b_.CreateShuffleVector(low, high, places(0, lanes, 2)),
                      b_.CreateShuffleVector(low, high, places(1, lanes, 2)));
}

NestEmitter::Values NestEmitter::pair_step(const Tile& tile, Value* k, unsigned n, Value* first_row,
                                           unsigned rows, Value* column, const Values& sums,
                                           Value* mask) {
  auto* halves = llvm::FixedVectorType::get(b_.getInt16Ty(), 2 * tile.lanes);
  const auto vectors = static_cast<unsigned>(sums.size() / rows / tile.sums);
  // Each is read next to its first product: those of all columns beside the sums of one row would not fit 16 registers.
  std::vector<Values> right(vectors);
  Values next;
  for (Value* address : elements_of_a(tile, k, n, first_row, rows)) {
    Value* group = b_.CreateAlignedLoad(b_.getInt64Ty(), address, llvm::Align(size_of(DType::I16)));
    Value* left = b_.CreateBitCast(b_.CreateVectorSplat(tile.lanes / 2, group), halves);
    for (unsigned v = 0; v < vectors; ++v) {
      Value* at = b_.CreateNSWAdd(column, b_.getInt64(v * tile.lanes));
      if (right[v].empty())
        right[v] = pair_groups(tile, k, n, at, v + 1 == vectors ? mask : nullptr);
      for (Value* groups : right[v])
        next.push_back(
            dot_of_pairs(b_, module_.getTargetTriple(), sums[next.size()], left, groups));
    }
  }
  return next;
}

/// Groups of a vector of columns from `column` on, as two vectors of i16.
NestEmitter::Values NestEmitter::pair_groups(const Tile& tile, Value* k, unsigned n, Value* column,
                                             Value* mask) {
  const ContractStmt& s = tile.s;
  const unsigned half = tile.lanes / 2 * kGroup;  // bytes
  auto* bytes = llvm::FixedVectorType::get(b_.getInt8Ty(), half);
  auto* halves = llvm::FixedVectorType::get(b_.getInt16Ty(), half);
  llvm::Type* groups = scalars_.compute_type(s.dtype, tile.lanes);
  Value* first = b_.CreateNSWAdd(tile.b_base, b_.CreateNSWMul(column, tile.b_column));
  Value* address =
      b_.CreateGEP(b_.getInt8Ty(), element_address(s.b.buffer, first), steps_of(k, n, tile.b_row));
  Value* all = nullptr;
  if (mask != nullptr)
    all = b_.CreateBitCast(b_.CreateMaskedLoad(groups, address, llvm::Align(kReadAlignment), mask,
                                               llvm::Constant::getNullValue(groups)),
                           llvm::FixedVectorType::get(b_.getInt8Ty(), 2 * half));
  Values result;
  for (const unsigned part : {0u, 1u}) {
    Value* stored =
        all != nullptr ? b_.CreateShuffleVector(all, places(part * half, half, 1))
                       : static_cast<Value*>(b_.CreateAlignedLoad(
                             bytes, b_.CreateGEP(b_.getInt8Ty(), address, b_.getInt64(part * half)),
                             llvm::Align(kReadAlignment)));
    result.push_back(b_.CreateSExt(stored, halves));
  }
  return result;
}

}  // namespace heddle::jit::cpu
