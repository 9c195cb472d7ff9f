// Tile contractions: blocks of accumulators in registers over the whole depth.
//
// A block is some rows by some vectors of columns. Each step of the depth loads the row of b once and
// multiplies it with one element of a for every row. Rows left over go one by one, columns left over one
// masked vector at a time.
#include <algorithm>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "base/check.h"
#include "jit/cpu/llvm/nest_emitter.h"

namespace heddle::jit::cpu {
namespace {

using llvm::Value;

/// Rows of a block, at most `most`: a divisor of the tile's, so that a full tile leaves no rows over, if
/// that keeps enough sums in flight to cover the latency of a multiply-add; else blocks of like size.
unsigned block_rows(unsigned tile_rows, unsigned vectors, unsigned most) {
  constexpr unsigned kEnoughSums = 12;
  for (unsigned rows = std::min(most, tile_rows); rows * vectors >= kEnoughSums; --rows)
    if (tile_rows % rows == 0) return rows;
  const unsigned blocks = (tile_rows + most - 1) / most;
  return (tile_rows + blocks - 1) / blocks;
}

llvm::Constant* column_numbers(llvm::Type* element, unsigned lanes) {
  llvm::SmallVector<llvm::Constant*, 16> numbers;
  for (unsigned k = 0; k < lanes; ++k) numbers.push_back(llvm::ConstantInt::get(element, k));
  return llvm::ConstantVector::get(numbers);
}

}  // namespace

struct NestEmitter::Tile {
  const ContractStmt& s;
  unsigned lanes;    ///< elements of an accumulator vector
  unsigned rows;     ///< of a block
  unsigned vectors;  ///< of a block's row
  Value* row_count;
  Value* column_count;
  Value* depth;
  Value *a_base, *a_row, *a_column;
  Value *b_base, *b_row, *b_column;
};

void NestEmitter::operator()(const ContractStmt& s) {
  const unsigned lanes =
      static_cast<unsigned>(target_.vector_bytes) / static_cast<unsigned>(size_of(s.dtype));
  // Registers for accumulators; the others hold the row of b and the element of a.
  const unsigned registers = target_.vector_bytes == 64 ? 28 : 12;
  const auto columns = static_cast<unsigned>((s.tile_columns + lanes - 1) / lanes);
  const unsigned vectors = std::min(columns, target_.vector_bytes == 64 ? 4u : 2u);
  const unsigned rows =
      block_rows(static_cast<unsigned>(s.tile_rows), vectors, registers / vectors);
  Tile tile{s,
            lanes,
            rows,
            vectors,
            scalar_index(s.rows),
            scalar_index(s.columns),
            scalar_index(s.depth),
            scalar_index(s.a.base),
            scalar_index(s.a.row_stride),
            scalar_index(s.a.column_stride),
            scalar_index(s.b.base),
            scalar_index(s.b.row_stride),
            scalar_index(s.b.column_stride)};
  Value* full_rows = b_.CreateSub(tile.row_count, b_.CreateURem(tile.row_count, b_.getInt64(rows)));
  const auto run = [&](unsigned count) {
    return [this, &tile, count](Value* row, const Values&) {
      contract_columns(tile, row, count);
      return Values{};
    };
  };
  loop(b_.getInt64(0), full_rows, rows, {}, run(rows));
  loop(full_rows, tile.row_count, 1, {}, run(1));
}

void NestEmitter::contract_columns(const Tile& tile, Value* row, unsigned rows) {
  const unsigned width = tile.vectors * tile.lanes;
  Value* full =
      b_.CreateSub(tile.column_count, b_.CreateURem(tile.column_count, b_.getInt64(width)));
  loop(b_.getInt64(0), full, width, {}, [&](Value* column, const Values&) {
    contract_block(tile, row, rows, column, tile.vectors, nullptr);
    return Values{};
  });
  loop(full, tile.column_count, tile.lanes, {}, [&](Value* column, const Values&) {
    Value* left = b_.CreateTrunc(b_.CreateSub(tile.column_count, column), b_.getInt32Ty());
    Value* mask = b_.CreateICmpSLT(column_numbers(b_.getInt32Ty(), tile.lanes),
                                   b_.CreateVectorSplat(tile.lanes, left));
    contract_block(tile, row, rows, column, 1, mask);
    return Values{};
  });
}

void NestEmitter::contract_block(const Tile& tile, Value* row, unsigned rows, Value* column,
                                 unsigned vectors, Value* mask) {
  const ContractStmt& s = tile.s;
  llvm::Type* vector = scalars_.compute_type(s.dtype, tile.lanes);
  const auto alignment = llvm::Align(size_of(s.dtype));
  Values memory;  // of the accumulators
  Values sums;
  Values a_rows;  // index of element (row, 0) of a
  for (unsigned r = 0; r < rows; ++r) {
    Value* at = b_.CreateNSWAdd(row, b_.getInt64(r));
    a_rows.push_back(b_.CreateNSWAdd(tile.a_base, b_.CreateNSWMul(at, tile.a_row)));
    Value* start = b_.CreateNSWAdd(
        b_.CreateNSWMul(at, b_.getInt64(static_cast<std::uint64_t>(s.tile_columns))), column);
    for (unsigned v = 0; v < vectors; ++v) {
      memory.push_back(element_address(s.acc, b_.CreateNSWAdd(start, b_.getInt64(v * tile.lanes))));
      Value* zero = llvm::Constant::getNullValue(vector);
      if (!s.accumulate) {
        sums.push_back(zero);
      } else if (mask != nullptr) {
        sums.push_back(b_.CreateMaskedLoad(vector, memory.back(), alignment, mask, zero));
      } else {
        sums.push_back(b_.CreateAlignedLoad(vector, memory.back(), alignment));
      }
    }
  }
  sums = loop(b_.getInt64(0), tile.depth, 1, sums, [&](Value* k, const Values& current) {
    return contract_step(tile, k, a_rows, column, current, mask);
  });
  for (std::size_t n = 0; n < sums.size(); ++n) {
    if (mask != nullptr) {
      b_.CreateMaskedStore(sums[n], memory[n], alignment, mask);
    } else {
      b_.CreateAlignedStore(sums[n], memory[n], alignment);
    }
  }
}

NestEmitter::Values NestEmitter::contract_step(const Tile& tile, Value* k, const Values& a_rows,
                                               Value* column, const Values& sums, Value* mask) {
  const ContractStmt& s = tile.s;
  const NestBuffer& a = nest_.buffers[s.a.buffer];
  const std::size_t vectors = sums.size() / a_rows.size();
  Values row_of_b;
  Value* b_row = b_.CreateNSWAdd(tile.b_base, b_.CreateNSWMul(k, tile.b_row));
  for (unsigned v = 0; v < vectors; ++v)
    row_of_b.push_back(
        contract_load_b(tile, b_row, b_.CreateNSWAdd(column, b_.getInt64(v * tile.lanes)), mask));
  Value* step = b_.CreateNSWMul(k, tile.a_column);
  Values next;
  for (std::size_t r = 0; r < a_rows.size(); ++r) {
    Value* address = element_address(s.a.buffer, b_.CreateNSWAdd(a_rows[r], step));
    Value* element = scalars_.convert(load_scalar(a, address, nullptr), a.dtype, s.dtype);
    Value* wide = b_.CreateVectorSplat(tile.lanes, element);
    for (std::size_t v = 0; v < vectors; ++v) {
      Value* sum = sums[r * vectors + v];
      next.push_back(
          is_floating(s.dtype)
              ? b_.CreateIntrinsic(llvm::Intrinsic::fma, {sum->getType()}, {wide, row_of_b[v], sum})
              : b_.CreateAdd(b_.CreateMul(wide, row_of_b[v]), sum));
    }
  }
  return next;
}

Value* NestEmitter::contract_load_b(const Tile& tile, Value* row, Value* column, Value* mask) {
  const ContractStmt& s = tile.s;
  const NestBuffer& b = nest_.buffers[s.b.buffer];
  llvm::Type* type = scalars_.storage_type(b.dtype, tile.lanes);
  Value* zero = llvm::Constant::getNullValue(type);
  const auto alignment = llvm::Align(size_of(b.dtype));
  Value* stored = nullptr;
  if (s.b.column_stride.is_constant(1)) {
    Value* address = element_address(s.b.buffer, b_.CreateNSWAdd(row, column));
    stored = mask == nullptr ? static_cast<Value*>(b_.CreateAlignedLoad(type, address, alignment))
                             : b_.CreateMaskedLoad(type, address, alignment, mask, zero);
  } else {
    Value* first = b_.CreateNSWAdd(row, b_.CreateNSWMul(column, tile.b_column));
    Value* offsets = b_.CreateNSWMul(column_numbers(b_.getInt64Ty(), tile.lanes),
                                     b_.CreateVectorSplat(tile.lanes, tile.b_column));
    Value* index = b_.CreateNSWAdd(b_.CreateVectorSplat(tile.lanes, first), offsets);
    stored = b_.CreateMaskedGather(type, element_address(s.b.buffer, index), alignment, mask, zero);
  }
  return scalars_.convert(scalars_.from_storage(b.dtype, stored), b.dtype, s.dtype);
}

}  // namespace heddle::jit::cpu
