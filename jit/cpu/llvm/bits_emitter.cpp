// Contractions by numbers of a few bits, several rows of a column side by side in a word.
//
// A block is some rows by some vectors of columns. In each group of rows of the matrix that share a scale, its sums of
// a times (number - zero) stay in registers; what they are, times the scale, is then added to the accumulators in memory:
//
//   words    one load gives 32 / bits rows of a vector of columns
//   numbers  of 2 and 4 bits with 16 lanes: a permutation of a table of 16, which takes the lowest four bits of each lane and
//            leaves the others alone, so that a number costs a shift and that; else two shifts, the second one with the sign,
//            and a conversion
//
// Few rows have two sets of sums, of even and of odd rows of the matrix, to cover the latency of a multiply-add.
#include <algorithm>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/Module.h>
#include <llvm/TargetParser/Triple.h>

#include "ir/ops/bit_ops.h"
#include "jit/cpu/llvm/bits_tile.h"

namespace heddle::jit::cpu {

using llvm::Value;

namespace {

constexpr unsigned kTableSize = 16;

/// What the lowest four bits of a word say of its lowest `bits`.
llvm::Constant* table_of(llvm::Type* element, unsigned bits) {
  llvm::SmallVector<llvm::Constant*, kTableSize> numbers;
  for (unsigned k = 0; k < kTableSize; ++k)
    numbers.push_back(
        llvm::ConstantFP::get(element, static_cast<double>(ir::ops::signed_bits(k, bits))));
  return llvm::ConstantVector::get(numbers);
}

/// Vectors of columns in a block of so many rows, which leave some of 32 or 16 registers for words and numbers; 0: too many rows.
unsigned vectors_of(const Dequantised& numbers, unsigned rows, bool wide) {
  constexpr unsigned kMost = 4;
  if (!numbers.fixed) {
    if (rows == 8) return wide ? 2 : 0;
    return rows == 4 && !wide ? 2 : kMost;
  }
  // More rows of fewer vectors are slower: 32 rows of three digits by 4096 x 4096 take 10.1 ms in blocks of 4 rows and 2
  // vectors, 8.7 ms in blocks of one row and 4 vectors.
  const unsigned vectors = wide ? kMost : 2;
  const auto digits = static_cast<unsigned>(numbers.fixed->digits);
  return rows * digits * vectors <= (wide ? 16 : 8) ? vectors : 0;
}

}  // namespace

void NestEmitter::contract_bits(const ContractStmt& s) {
  const Dequantised& d = *s.b.dequantised;
  const auto lanes = static_cast<unsigned>(target_.vector_bytes / sizeof(float));
  const auto bits = static_cast<unsigned>(d.bits);
  const bool table =
      lanes == kTableSize && bits <= 4 && llvm::Triple(module_.getTargetTriple()).isX86();
  Value* depth = scalar_index(s.depth);
  const auto group = static_cast<std::uint64_t>(d.group);
  Value* rows_a_group = d.group == 0 ? depth : b_.getInt64(group);
  BitsTile tile{.s = s,
                .numbers = d,
                .lanes = lanes,
                .bits = bits,
                .table = table,
                .a_base = scalar_index(s.a.base),
                .a_row = scalar_index(s.a.row_stride),
                .a_column = scalar_index(s.a.column_stride),
                .groups = d.group == 0 ? b_.getInt64(1) : b_.CreateUDiv(depth, b_.getInt64(group)),
                .group_words = b_.CreateUDiv(rows_a_group, b_.getInt64(kWordBits / bits))};
  Value* row_count = scalar_index(s.rows);
  Value* column_count = scalar_index(s.columns);
  const auto most = static_cast<unsigned>((s.tile_columns + lanes - 1) / lanes);
  Value* done = b_.getInt64(0);
  for (const unsigned rows : {8u, 4u, 2u, 1u}) {
    tile.vectors = std::min(most, vectors_of(d, rows, target_.vector_bytes == 64));
    if (tile.vectors == 0) continue;
    Value* left = b_.CreateNSWSub(row_count, done);
    Value* end = b_.CreateNSWSub(row_count, b_.CreateURem(left, b_.getInt64(rows)));
    loop(done, end, rows, {}, [&](Value* row, const Values&) {
      loop(b_.getInt64(0), column_count, tile.vectors * lanes, {},
           [&](Value* column, const Values&) {
             if (d.fixed)
               fixed_block(tile, row, rows, column);
             else
               bits_block(tile, row, rows, column);
             return Values{};
           });
      return Values{};
    });
    done = end;
  }
}

void NestEmitter::bits_block(const BitsTile& tile, Value* row, unsigned rows, Value* column) {
  const ContractStmt& s = tile.s;
  llvm::Type* vector = scalars_.compute_type(s.dtype, tile.lanes);
  const auto [memory, a_rows] = bits_rows(tile, row, rows, column);
  constexpr std::size_t kEnoughSums = 8;
  const std::size_t sets = memory.size() < kEnoughSums ? 2 : 1;
  loop(b_.getInt64(0), tile.groups, 1, {}, [&](Value* group, const Values&) {
    Values zeros;
    if (tile.numbers.zero) zeros = bits_beside(tile, *tile.numbers.zero, group, column, s.dtype);
    Value* first = b_.CreateNSWMul(group, tile.group_words);
    Value* last = b_.CreateNSWAdd(first, tile.group_words);
    const Values none(memory.size() * sets, llvm::Constant::getNullValue(vector));
    const Values sums = loop(first, last, 1, none, [&](Value* word, const Values& current) {
      return bits_words(tile, word, a_rows, column, zeros, current);
    });
    const Values scales = bits_beside(tile, tile.numbers.scale, group, column, s.dtype);
    for (std::size_t k = 0; k < memory.size(); ++k) {
      Value* sum = sums[k];
      if (sets == 2) sum = b_.CreateFAdd(sum, sums[memory.size() + k]);
      bits_add(tile, memory[k], scales[k % tile.vectors], sum);
    }
    return Values{};
  });
}

std::pair<NestEmitter::Values, NestEmitter::Values> NestEmitter::bits_rows(const BitsTile& tile,
                                                                           Value* row,
                                                                           unsigned rows,
                                                                           Value* column) {
  Values memory;
  Values a_rows;
  for (unsigned r = 0; r < rows; ++r) {
    Value* at = b_.CreateNSWAdd(row, b_.getInt64(r));
    a_rows.push_back(b_.CreateNSWAdd(tile.a_base, b_.CreateNSWMul(at, tile.a_row)));
    Value* width = b_.getInt64(static_cast<std::uint64_t>(tile.s.tile_columns));
    Value* start = b_.CreateNSWAdd(b_.CreateNSWMul(at, width), column);
    for (unsigned v = 0; v < tile.vectors; ++v)
      memory.push_back(
          element_address(tile.s.acc, b_.CreateNSWAdd(start, b_.getInt64(v * tile.lanes))));
  }
  return {std::move(memory), std::move(a_rows)};
}

void NestEmitter::bits_add(const BitsTile& tile, Value* memory, Value* left, Value* right) {
  const auto alignment = llvm::Align(size_of(tile.s.dtype));
  Value* before = b_.CreateAlignedLoad(right->getType(), memory, alignment);
  b_.CreateAlignedStore(contract_add(tile.s, before, left, right), memory, alignment);
}

NestEmitter::Values NestEmitter::bits_words(const BitsTile& tile, Value* word, const Values& a_rows,
                                            Value* column, const Values& zeros,
                                            const Values& sums) {
  const ContractStmt& s = tile.s;
  const NestBuffer& a = nest_.buffers[s.a.buffer];
  const Values words = words_of(tile, word, column);
  llvm::Type* element_of_a = scalars_.storage_type(a.dtype, 0);
  Value* k = b_.CreateNSWMul(word, b_.getInt64(tile.per_word()));
  const std::size_t set = a_rows.size() * tile.vectors;
  Values next = sums;
  for (unsigned n = 0; n < tile.per_word(); ++n) {
    Values numbers;
    for (unsigned v = 0; v < tile.vectors; ++v) {
      Value* number = bits_number(tile, words[v], n);
      numbers.push_back(zeros.empty() ? number : b_.CreateFSub(number, zeros[v]));
    }
    Value* step = b_.CreateNSWMul(b_.CreateNSWAdd(k, b_.getInt64(n)), tile.a_column);
    const std::size_t begin = n % (sums.size() / set) * set;
    for (std::size_t r = 0; r < a_rows.size(); ++r) {
      Value* address = b_.CreateGEP(element_of_a, element_address(s.a.buffer, a_rows[r]), step);
      Value* element = scalars_.convert(load_scalar(a, address, nullptr), a.dtype, s.dtype);
      Value* wide = b_.CreateVectorSplat(tile.lanes, element);
      for (unsigned v = 0; v < tile.vectors; ++v) {
        Value*& sum = next[begin + r * tile.vectors + v];
        sum = contract_add(s, sum, wide, numbers[v]);
      }
    }
  }
  return next;
}

NestEmitter::Values NestEmitter::words_of(const BitsTile& tile, Value* word, Value* column) {
  const TileOperand& b = tile.s.b;
  return bits_row(tile, {b.buffer, b.base, b.row_stride, b.column_stride}, word, column);
}

NestEmitter::Values NestEmitter::bits_row(const BitsTile& tile, const Dequantised::Part& part,
                                          Value* row, Value* column) {
  const DType dtype = nest_.buffers[part.buffer].dtype;
  llvm::Type* type = scalars_.storage_type(dtype, tile.lanes);
  llvm::Type* element = scalars_.storage_type(dtype, 0);
  const auto alignment = llvm::Align(kReadAlignment);
  Value* moved = b_.CreateNSWMul(row, scalar_index(part.row_stride));
  Value* stride = scalar_index(part.column_stride);
  Value* first = b_.CreateNSWAdd(scalar_index(part.base), b_.CreateNSWMul(column, stride));
  const auto address = [&](unsigned place) {
    Value* at = b_.CreateNSWAdd(first, b_.CreateNSWMul(b_.getInt64(place), stride));
    return b_.CreateGEP(element, element_address(part.buffer, at), moved);
  };
  Values all;
  for (unsigned begin = 0; begin < tile.vectors * tile.lanes; begin += tile.lanes) {
    if (part.column_stride.is_constant(1)) {
      all.push_back(b_.CreateAlignedLoad(type, address(begin), alignment));
      continue;
    }
    all.push_back(llvm::PoisonValue::get(type));
    for (unsigned lane = 0; lane < tile.lanes; ++lane)
      all.back() = b_.CreateInsertElement(
          all.back(), b_.CreateAlignedLoad(element, address(begin + lane), alignment),
          std::uint64_t{lane});
  }
  return all;
}

NestEmitter::Values NestEmitter::bits_beside(const BitsTile& tile, const Dequantised::Part& part,
                                             Value* group, Value* column, DType to) {
  const DType dtype = nest_.buffers[part.buffer].dtype;
  Values made = bits_row(tile, part, group, column);
  for (Value*& each : made) each = scalars_.convert(scalars_.from_storage(dtype, each), dtype, to);
  return made;
}

Value* NestEmitter::bits_number(const BitsTile& tile, Value* words, unsigned k) {
  llvm::Type* vector = scalars_.compute_type(tile.s.dtype, tile.lanes);
  llvm::Type* type = words->getType();
  const auto bit = static_cast<unsigned>(ir::ops::bit_of_row(k, tile.bits));
  if (tile.table) {
    Value* lowest = bit == 0 ? words : b_.CreateLShr(words, llvm::ConstantInt::get(type, bit));
    return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_sf_512, {},
                              {table_of(vector->getScalarType(), tile.bits), lowest});
  }
  const unsigned above = kWordBits - tile.bits - bit;
  Value* top = above == 0 ? words : b_.CreateShl(words, llvm::ConstantInt::get(type, above));
  return b_.CreateSIToFP(b_.CreateAShr(top, llvm::ConstantInt::get(type, kWordBits - tile.bits)),
                         vector);
}

}  // namespace heddle::jit::cpu
