// Panels of pairs of bf16 from a right operand of f32 or bf16 whose pairs are not side by side.
//
//   along the depth       a column's elements k, k+1, k+2, …      rounded, and squares of their pairs turned in registers
//   along the columns     elements k and k+1 of columns j, j+1, …  rounded, and the two rows put between each other
//
// Either becomes rows of pairs (k, k+1) of columns j, j+1, …, as the instruction that multiplies pairs reads them.
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include "jit/cpu/llvm/contract_tile.h"
#include "jit/cpu/llvm/nest_emitter.h"
#include "jit/cpu/llvm/turn.h"

namespace heddle::jit::cpu {
namespace {

using llvm::Value;

constexpr unsigned kPair = 2;

}  // namespace

void NestEmitter::pack_pairs(const Tile& tile, Value* panel, Value* begin) {
  if (tile.s.b.column_stride.is_constant(1))
    pack_pairs_across(tile, panel, begin);
  else
    pack_pairs_along(tile, panel, begin);
}

Value* NestEmitter::narrow_of_b(const Tile& tile, Value* at, Value* mask) {
  const NestBuffer& b = nest_.buffers[tile.s.b.buffer];
  llvm::Type* type = scalars_.storage_type(b.dtype, tile.lanes);
  Value* stored =
      b_.CreateMaskedLoad(type, element_address(tile.s.b.buffer, at), llvm::Align(kReadAlignment),
                          mask, llvm::Constant::getNullValue(type));
  if (b.dtype == DType::BF16) return stored;
  return scalars_.flushed_to_bf16(stored);
}

void NestEmitter::pack_pairs_along(const Tile& tile, Value* panel, Value* begin) {
  llvm::Type* element = scalars_.compute_type(tile.s.dtype, 0);
  llvm::Type* pairs = scalars_.compute_type(tile.s.dtype, tile.lanes);
  Value* first = b_.CreateNSWAdd(tile.b_base, begin);
  loop(b_.getInt64(0), tile.column_count, tile.lanes, {}, [&](Value* column, const Values&) {
    loop(b_.getInt64(0), tile.depth, kPair * tile.lanes, {}, [&](Value* k, const Values&) {
      Value* next = b_.CreateNSWAdd(k, b_.getInt64(tile.lanes));
      Value* left = b_.CreateTrunc(b_.CreateNSWSub(tile.depth, k), b_.getInt32Ty());
      Value* within[] = {lanes_below(left, 0, 1, tile.lanes),
                         lanes_below(left, tile.lanes, 1, tile.lanes)};
      Values square;
      for (unsigned j = 0; j < tile.lanes; ++j) {
        Value* at = b_.CreateNSWAdd(column, b_.getInt64(j));
        Value* start = b_.CreateNSWAdd(first, b_.CreateNSWMul(at, tile.b_column));
        Value* exists = b_.CreateVectorSplat(tile.lanes, b_.CreateICmpSLT(at, tile.column_count));
        Value* low = narrow_of_b(tile, b_.CreateNSWAdd(start, k), b_.CreateAnd(within[0], exists));
        Value* high =
            narrow_of_b(tile, b_.CreateNSWAdd(start, next), b_.CreateAnd(within[1], exists));
        llvm::SmallVector<int, 64> all;
        for (unsigned n = 0; n < kPair * tile.lanes; ++n) all.push_back(static_cast<int>(n));
        square.push_back(b_.CreateBitCast(b_.CreateShuffleVector(low, high, all), pairs));
      }
      turn(b_, square);
      for (unsigned j = 0; j < tile.lanes; ++j) {
        Value* row = b_.CreateNSWMul(b_.CreateNSWAdd(b_.CreateLShr(k, 1), b_.getInt64(j)),
                                     b_.getInt64(static_cast<std::uint64_t>(tile.panel_columns())));
        b_.CreateAlignedStore(square[j], b_.CreateGEP(element, panel, b_.CreateNSWAdd(row, column)),
                              llvm::Align(size_of(tile.s.dtype)));
      }
      return Values{};
    });
    return Values{};
  });
}

void NestEmitter::pack_pairs_across(const Tile& tile, Value* panel, Value* begin) {
  llvm::Type* element = scalars_.compute_type(tile.s.dtype, 0);
  llvm::Type* pairs = scalars_.compute_type(tile.s.dtype, tile.lanes);
  llvm::SmallVector<int, 64> between;
  for (unsigned n = 0; n < tile.lanes; ++n)
    for (const unsigned side : {0u, tile.lanes}) between.push_back(static_cast<int>(n + side));
  loop(b_.getInt64(0), tile.depth, kPair, {}, [&](Value* k, const Values&) {
    Value* row =
        b_.CreateNSWAdd(tile.b_base, b_.CreateNSWMul(b_.CreateNSWAdd(begin, k), tile.b_row));
    Value* has_second = b_.CreateICmpSLT(b_.CreateNSWAdd(k, b_.getInt64(1)), tile.depth);
    Value* to = b_.CreateNSWMul(b_.CreateLShr(k, 1),
                                b_.getInt64(static_cast<std::uint64_t>(tile.panel_columns())));
    loop(b_.getInt64(0), tile.column_count, tile.lanes, {}, [&](Value* column, const Values&) {
      Value* left = b_.CreateTrunc(b_.CreateNSWSub(tile.column_count, column), b_.getInt32Ty());
      Value* within = lanes_below(left, 0, 1, tile.lanes);
      Value* at = b_.CreateNSWAdd(row, column);
      Value* first = narrow_of_b(tile, at, within);
      Value* second =
          narrow_of_b(tile, b_.CreateNSWAdd(at, tile.b_row),
                      b_.CreateAnd(within, b_.CreateVectorSplat(tile.lanes, has_second)));
      Value* both = b_.CreateBitCast(b_.CreateShuffleVector(first, second, between), pairs);
      b_.CreateAlignedStore(both, b_.CreateGEP(element, panel, b_.CreateNSWAdd(to, column)),
                            llvm::Align(size_of(tile.s.dtype)));
      return Values{};
    });
    return Values{};
  });
}

}  // namespace heddle::jit::cpu
