// Contractions of runs: sums of few columns, whose terms lie side by side in both operands.
//
// Lanes are neighbouring terms. A block is some rows by some columns, one vector of partial sums for each: as many as a vector has
// lanes, which are joined at the end into one vector.
#include <algorithm>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>

#include "base/check.h"
#include "jit/cpu/llvm/contract_tile.h"
#include "jit/cpu/llvm/join_lanes.h"
#include "jit/cpu/llvm/nest_emitter.h"

namespace heddle::jit::cpu {
namespace {

using llvm::Value;
using Values = std::vector<Value*>;

/// Columns of a block, at most.
constexpr unsigned kMostColumns = 8;
/// Vectors of a run that is written out.
constexpr std::int64_t kFewVectors = 4;

/// Columns of a block, a divisor of all, so that none are left over: those that take the fewest loads for a product.
unsigned block_columns(unsigned columns, unsigned lanes) {
  const auto loads = [&](unsigned each) {
    const unsigned rows = lanes / each;
    return static_cast<double>(rows + each) / (rows * each);
  };
  unsigned best = 1;
  for (unsigned each = 2; each <= std::min({columns, lanes, kMostColumns}); ++each)
    if (columns % each == 0 && loads(each) < loads(best)) best = each;
  return best;
}

}  // namespace

void NestEmitter::contract_runs(const Tile& tile) {
  const auto columns = static_cast<unsigned>(tile.s.tile_columns);
  const unsigned each = block_columns(columns, tile.lanes);
  const unsigned rows = std::max(1u, tile.lanes / each);
  const auto run = [&](Value* row, unsigned count) {
    loop(b_.getInt64(0), b_.getInt64(columns), each, {}, [&](Value* column, const Values&) {
      run_block(tile, row, count, column, each);
      return Values{};
    });
    return Values{};
  };
  // The last block overlaps the one before it; fewer rows than a block has go one by one.
  Value* last = b_.CreateNSWSub(tile.row_count, b_.getInt64(rows));
  Value* blocks =
      b_.CreateSelect(b_.CreateICmpSGE(last, b_.getInt64(0)), tile.row_count, b_.getInt64(0));
  loop(b_.getInt64(0), blocks, rows, {}, [&](Value* row, const Values&) {
    return run(b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, row, last), rows);
  });
  loop(blocks, tile.row_count, 1, {}, [&](Value* row, const Values&) { return run(row, 1); });
}

void NestEmitter::run_block(const Tile& tile, Value* row, unsigned rows, Value* column,
                            unsigned columns) {
  Value* zero = llvm::Constant::getNullValue(scalars_.compute_type(tile.s.dtype, tile.lanes));
  const RunBlock block{rows, columns,
                       b_.CreateNSWAdd(tile.a_base, b_.CreateNSWMul(row, tile.a_row)),
                       b_.CreateNSWAdd(tile.b_base, b_.CreateNSWMul(column, tile.b_column))};
  store_sums(tile, row, column, columns,
             add_runs(tile, block, 0, Values(std::size_t{rows} * columns, zero)));
}

NestEmitter::Values NestEmitter::add_runs(const Tile& tile, const RunBlock& block, std::size_t run,
                                          Values sums) {
  const ContractStmt& s = tile.s;
  if (run < s.runs.size()) {
    const ContractStmt::Run& now = s.runs[run];
    Value* a_stride = scalar_index(now.a_stride);
    Value* b_stride = scalar_index(now.b_stride);
    return loop(b_.getInt64(0), scalar_index(now.count), 1, sums,
                [&](Value* number, const Values& current) {
                  RunBlock moved = block;
                  moved.a = b_.CreateNSWAdd(block.a, b_.CreateNSWMul(number, a_stride));
                  moved.b = b_.CreateNSWAdd(block.b, b_.CreateNSWMul(number, b_stride));
                  return add_runs(tile, moved, run + 1, current);
                });
  }
  const auto lanes = static_cast<std::uint64_t>(tile.lanes);
  const auto whole = [&](Value* k, const Values& current) {
    return run_step(tile, block, k, nullptr, current);
  };
  const auto masked = [&](Value* k, const Values& current) {
    Value* left = b_.CreateTrunc(b_.CreateNSWSub(tile.depth, k), b_.getInt32Ty());
    return run_step(tile, block, k, lanes_below(left, 0, 1, tile.lanes), current);
  };
  Value* full = b_.CreateAnd(tile.depth, b_.getInt64(~(lanes - 1)));
  const auto* known = llvm::dyn_cast<llvm::ConstantInt>(tile.depth);
  if (known != nullptr && known->getSExtValue() <= kFewVectors * tile.lanes) {
    for (std::int64_t k = 0; k + tile.lanes <= known->getSExtValue(); k += tile.lanes)
      sums = whole(b_.getInt64(static_cast<std::uint64_t>(k)), sums);
  } else {
    sums = loop(b_.getInt64(0), full, tile.lanes, sums, whole);
  }
  return loop(full, tile.depth, tile.lanes, sums, masked);
}

/// A vector of terms of each sum. All rows and columns are so far from the first one: a register and a constant where that is known.
NestEmitter::Values NestEmitter::run_step(const Tile& tile, const RunBlock& block, Value* k,
                                          Value* mask, const Values& sums) {
  const ContractStmt& s = tile.s;
  llvm::Type* element = scalars_.compute_type(s.dtype, 0);
  llvm::Type* vector = scalars_.compute_type(s.dtype, tile.lanes);
  const auto alignment = llvm::Align(kReadAlignment);
  Value* first_a = element_address(s.a.buffer, b_.CreateNSWAdd(block.a, k));
  Value* first_b = element_address(s.b.buffer, b_.CreateNSWAdd(block.b, k));
  const auto load = [&](Value* first, Value* stride, unsigned number) -> Value* {
    Value* address = b_.CreateGEP(element, first, b_.CreateNSWMul(stride, b_.getInt64(number)));
    if (mask == nullptr) return b_.CreateAlignedLoad(vector, address, alignment);
    return b_.CreateMaskedLoad(vector, address, alignment, mask,
                               llvm::Constant::getNullValue(vector));
  };
  Values columns;
  for (unsigned c = 0; c < block.columns; ++c) columns.push_back(load(first_b, tile.b_column, c));
  Values next;
  for (unsigned r = 0; r < block.rows; ++r) {
    Value* terms = load(first_a, tile.a_row, r);
    for (Value* column : columns)
      next.push_back(
          b_.CreateIntrinsic(llvm::Intrinsic::fma, {vector}, {terms, column, sums[next.size()]}));
  }
  return next;
}

/// Joins the lanes of sums, rows by columns, and stores them in the accumulator.
void NestEmitter::store_sums(const Tile& tile, Value* row, Value* column, unsigned columns,
                             Values sums) {
  const ContractStmt& s = tile.s;
  const auto count = static_cast<unsigned>(sums.size());
  llvm::Type* element = scalars_.compute_type(s.dtype, 0);
  sums.resize(tile.lanes, llvm::Constant::getNullValue(sums.front()->getType()));
  Value* joined = join_lanes(b_, sums, static_cast<unsigned>(size_of(s.dtype)));
  Value* first = element_address(
      s.acc,
      b_.CreateNSWAdd(b_.CreateNSWMul(row, b_.getInt64(static_cast<std::uint64_t>(s.tile_columns))),
                      column));
  const auto alignment = llvm::Align(size_of(s.dtype));
  // Rows of all columns lie behind one another.
  const unsigned together = columns == s.tile_columns ? count : columns;
  for (unsigned k = 0; k < count; k += together) {
    std::vector<int> lanes;
    for (unsigned lane = k; lane < k + together; ++lane) lanes.push_back(static_cast<int>(lane));
    Value* place = b_.CreateGEP(element, first,
                                b_.getInt64(static_cast<std::uint64_t>(k / columns) *
                                            static_cast<std::uint64_t>(s.tile_columns)));
    b_.CreateAlignedStore(b_.CreateShuffleVector(joined, lanes), place, alignment);
  }
}

}  // namespace heddle::jit::cpu
