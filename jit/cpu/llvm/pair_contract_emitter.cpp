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

/// The two sums of each column, the first half of the columns in `low`, as one.
Value* sums_of_columns(llvm::IRBuilderBase& b, unsigned lanes, Value* low, Value* high) {
  return b.CreateAdd(b.CreateShuffleVector(low, high, places(0, lanes, 2)),
                     b.CreateShuffleVector(low, high, places(1, lanes, 2)));
}

}  // namespace

bool NestEmitter::sums_by_pairs(const ContractStmt& s) const {
  return s.group == kGroup && nest_.buffers[s.a.buffer].dtype == DType::I16;
}

/// @param mask  of the last of the vectors; null: all of it is there
void NestEmitter::pair_block(const Tile& tile, Value* row, unsigned rows, Value* column,
                             unsigned vectors, Value* mask) {
  const ContractStmt& s = tile.s;
  llvm::Type* vector = scalars_.compute_type(s.dtype, tile.lanes);
  const auto alignment = llvm::Align(size_of(s.dtype));
  Values a_rows;  // index of element (row, 0) of a
  for (unsigned r = 0; r < rows; ++r) {
    Value* at = b_.CreateNSWAdd(row, b_.getInt64(r));
    a_rows.push_back(b_.CreateNSWAdd(tile.a_base, b_.CreateNSWMul(at, tile.a_row)));
  }
  const Values sums =
      loop(b_.getInt64(0), tile.depth, 1,
           Values(std::size_t{rows} * vectors * tile.sums, llvm::Constant::getNullValue(vector)),
           [&](Value* k, const Values& current) {
             return pair_step(tile, k, a_rows, column, current, mask);
           });
  for (unsigned r = 0; r < rows; ++r) {
    Value* at = b_.CreateNSWAdd(row, b_.getInt64(r));
    Value* start = b_.CreateNSWAdd(
        b_.CreateNSWMul(at, b_.getInt64(static_cast<std::uint64_t>(s.tile_columns))), column);
    for (unsigned v = 0; v < vectors; ++v) {
      const std::size_t first = (std::size_t{r} * vectors + v) * tile.sums;
      Value* sum = sums_of_columns(b_, tile.lanes, sums[first], sums[first + 1]);
      Value* memory = element_address(s.acc, b_.CreateNSWAdd(start, b_.getInt64(v * tile.lanes)));
      if (mask != nullptr && v + 1 == vectors) {
        if (s.accumulate)
          sum = b_.CreateAdd(sum, b_.CreateMaskedLoad(vector, memory, alignment, mask,
                                                      llvm::Constant::getNullValue(vector)));
        b_.CreateMaskedStore(sum, memory, alignment, mask);
        continue;
      }
      if (s.accumulate) sum = b_.CreateAdd(sum, b_.CreateAlignedLoad(vector, memory, alignment));
      b_.CreateAlignedStore(sum, memory, alignment);
    }
  }
}

NestEmitter::Values NestEmitter::pair_step(const Tile& tile, Value* k, const Values& a_rows,
                                           Value* column, const Values& sums, Value* mask) {
  const ContractStmt& s = tile.s;
  const std::size_t of_row = sums.size() / a_rows.size();
  const Values right =
      pair_groups(tile, k, column, static_cast<unsigned>(of_row / tile.sums), mask);
  Value* step = b_.CreateNSWMul(k, tile.a_column);
  llvm::Type* element = scalars_.storage_type(DType::I16, 0);
  auto* halves = llvm::FixedVectorType::get(b_.getInt16Ty(), 2 * tile.lanes);
  Values next;
  for (std::size_t r = 0; r < a_rows.size(); ++r) {
    Value* address = b_.CreateGEP(element, element_address(s.a.buffer, a_rows[r]), step);
    Value* group = b_.CreateAlignedLoad(b_.getInt64Ty(), address, llvm::Align(size_of(DType::I16)));
    Value* left = b_.CreateBitCast(b_.CreateVectorSplat(tile.lanes / 2, group), halves);
    for (std::size_t v = 0; v < of_row; ++v)
      next.push_back(
          dot_of_pairs(b_, module_.getTargetTriple(), sums[r * of_row + v], left, right[v]));
  }
  return next;
}

/// Groups of `vectors` vectors of columns from `column` on, as two vectors of i16 each.
NestEmitter::Values NestEmitter::pair_groups(const Tile& tile, Value* k, Value* column,
                                             unsigned vectors, Value* mask) {
  const ContractStmt& s = tile.s;
  const unsigned half = tile.lanes / 2 * kGroup;  // bytes
  auto* bytes = llvm::FixedVectorType::get(b_.getInt8Ty(), half);
  auto* halves = llvm::FixedVectorType::get(b_.getInt16Ty(), half);
  llvm::Type* groups = scalars_.compute_type(s.dtype, tile.lanes);
  Value* row = b_.CreateNSWMul(k, tile.b_row);
  Values result;
  for (unsigned v = 0; v < vectors; ++v) {
    Value* at = b_.CreateNSWAdd(column, b_.getInt64(v * tile.lanes));
    Value* first = b_.CreateNSWAdd(tile.b_base, b_.CreateNSWMul(at, tile.b_column));
    Value* address = b_.CreateGEP(b_.getInt8Ty(), element_address(s.b.buffer, first), row);
    Value* all = nullptr;
    if (mask != nullptr && v + 1 == vectors)
      all = b_.CreateBitCast(b_.CreateMaskedLoad(groups, address, llvm::Align(kReadAlignment), mask,
                                                 llvm::Constant::getNullValue(groups)),
                             llvm::FixedVectorType::get(b_.getInt8Ty(), 2 * half));
    for (const unsigned part : {0u, 1u}) {
      Value* stored =
          all != nullptr
              ? b_.CreateShuffleVector(all, places(part * half, half, 1))
              : static_cast<Value*>(b_.CreateAlignedLoad(
                    bytes, b_.CreateGEP(b_.getInt8Ty(), address, b_.getInt64(part * half)),
                    llvm::Align(kReadAlignment)));
      result.push_back(b_.CreateSExt(stored, halves));
    }
  }
  return result;
}

}  // namespace heddle::jit::cpu
