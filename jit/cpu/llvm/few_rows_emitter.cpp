// Contractions of few rows by what lies along the depth: lone queries by keys.
//
// Turning such columns into a panel costs as much as the products of some rows. Lanes are neighbouring terms instead, of as many
// sums at a time as a vector has lanes: 16 columns by one row, 8 by two, 4 by four. The lanes of all of them are then joined.
#include <algorithm>
#include <llvm/IR/Constants.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>

#include "jit/cpu/llvm/contract_tile.h"
#include "jit/cpu/llvm/join_lanes.h"
#include "jit/cpu/llvm/nest_emitter.h"

namespace heddle::jit::cpu {
namespace {

using llvm::Value;

/// Joining the lanes of a row's sums takes about 45 instructions for 16 columns, whatever the depth; turning 16 columns takes 64
/// shuffles, 16 loads and 16 stores for each 16 of the depth, and what is turned is loaded again. Of a depth of 64, attention of one
/// row takes 0.47 of the time, of four 0.7, of eight 0.86 (Zen 4).
constexpr std::int64_t kMostRows = 8;
/// Rows of a block, at most: each column that is loaded serves all of them.
constexpr unsigned kBlockRows = 4;
/// Vectors of the depth that are written out.
constexpr std::int64_t kMostVectors = 16;

}  // namespace

/// Whether the way of this file may be taken of the contraction at all.
bool NestEmitter::fits_few_rows(const Tile& tile) const {
  const ContractStmt& s = tile.s;
  const bool along_depth = s.b.row_stride.is_constant(1) && s.a.column_stride.is_constant(1);
  return along_depth && is_floating(s.dtype) && !s.accumulate && s.group == 1 &&
         s.depth.is_constant() && s.depth.constant() > 0 && s.depth.constant() % tile.lanes == 0 &&
         s.depth.constant() <= kMostVectors * tile.lanes &&
         s.rows.as_constant().value_or(1) <= kMostRows;
}

void NestEmitter::contract_few_or(const Tile& tile, const std::function<void()>& many) {
  if (tile.s.tile_rows <= kMostRows || tile.s.rows.as_constant()) return contract_few(tile);
  Value* few = b_.CreateICmpSLE(tile.row_count, b_.getInt64(kMostRows));
  when(few, [&] { contract_few(tile); }, /*unlikely=*/false);
  when(b_.CreateNot(few), many, /*unlikely=*/false);
}

void NestEmitter::contract_few(const Tile& tile) {
  Value* begin = b_.getInt64(0);
  for (unsigned rows = std::min(kBlockRows, tile.lanes); rows > 0; rows /= 2) {
    Value* left = b_.CreateNSWSub(tile.row_count, begin);
    Value* end = b_.CreateNSWSub(tile.row_count, b_.CreateURem(left, b_.getInt64(rows)));
    const unsigned columns = tile.lanes / rows;
    loop(begin, end, rows, {}, [&](Value* row, const Values&) {
      Value* over = b_.CreateURem(tile.column_count, b_.getInt64(columns));
      Value* whole = b_.CreateNSWSub(tile.column_count, over);
      loop(b_.getInt64(0), whole, columns, {}, [&](Value* column, const Values&) {
        few_rows_block(tile, row, rows, column, false);
        return Values{};
      });
      loop(whole, tile.column_count, columns, {}, [&](Value* column, const Values&) {
        few_rows_block(tile, row, rows, column, true);
        return Values{};
      });
      return Values{};
    });
    begin = end;
  }
}

/// @param partial  some of the columns do not exist: the last one is read instead, and they are not stored
void NestEmitter::few_rows_block(const Tile& tile, Value* row, unsigned rows, Value* column,
                                 bool partial) {
  const ContractStmt& s = tile.s;
  const unsigned columns = tile.lanes / rows;
  llvm::Type* vector = scalars_.compute_type(s.dtype, tile.lanes);
  const auto vector_at = [&](NestBufferId buffer, Value* index) {
    const DType dtype = nest_.buffers[buffer].dtype;
    Value* stored =
        b_.CreateAlignedLoad(scalars_.storage_type(dtype, tile.lanes),
                             element_address(buffer, index), llvm::Align(kReadAlignment));
    return scalars_.convert(scalars_.from_storage(dtype, stored), dtype, s.dtype);
  };
  Values row_starts;
  Values column_starts;
  for (unsigned r = 0; r < rows; ++r)
    row_starts.push_back(b_.CreateNSWAdd(
        tile.a_base, b_.CreateNSWMul(b_.CreateNSWAdd(row, b_.getInt64(r)), tile.a_row)));
  Value* last = b_.CreateNSWSub(tile.column_count, b_.getInt64(1));
  for (unsigned c = 0; c < columns; ++c) {
    Value* at = b_.CreateNSWAdd(column, b_.getInt64(c));
    if (partial) at = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, at, last);
    column_starts.push_back(b_.CreateNSWAdd(tile.b_base, b_.CreateNSWMul(at, tile.b_column)));
  }
  Values sums(tile.lanes, llvm::Constant::getNullValue(vector));
  for (std::int64_t k = 0; k < s.depth.constant(); k += tile.lanes) {
    Value* from = b_.getInt64(static_cast<std::uint64_t>(k));
    Values terms;
    for (Value* start : row_starts)
      terms.push_back(vector_at(s.a.buffer, b_.CreateNSWAdd(start, from)));
    for (unsigned c = 0; c < columns; ++c) {
      Value* right = vector_at(s.b.buffer, b_.CreateNSWAdd(column_starts[c], from));
      for (unsigned r = 0; r < rows; ++r) {
        Value*& sum = sums[r * columns + c];
        sum = b_.CreateIntrinsic(llvm::Intrinsic::fma, {vector}, {terms[r], right, sum});
      }
    }
  }
  Value* joined = join_lanes(b_, sums, static_cast<unsigned>(size_of(s.dtype)));
  const auto alignment = llvm::Align(size_of(s.dtype));
  Value* exist = nullptr;
  if (partial) {
    Value* left = b_.CreateTrunc(b_.CreateNSWSub(tile.column_count, column), b_.getInt32Ty());
    exist = lanes_below(left, 0, 1, columns);
  }
  for (unsigned r = 0; r < rows; ++r) {
    std::vector<int> lanes;
    for (unsigned c = 0; c < columns; ++c) lanes.push_back(static_cast<int>(r * columns + c));
    Value* of_row = b_.CreateShuffleVector(joined, lanes);
    Value* begin = b_.CreateNSWMul(b_.CreateNSWAdd(row, b_.getInt64(r)),
                                   b_.getInt64(static_cast<std::uint64_t>(s.tile_columns)));
    Value* place = element_address(s.acc, b_.CreateNSWAdd(begin, column));
    if (partial)
      b_.CreateMaskedStore(of_row, place, alignment, exist);
    else
      b_.CreateAlignedStore(of_row, place, alignment);
  }
}

}  // namespace heddle::jit::cpu
