// Contractions of rows of fixed-point numbers by numbers of a few bits: products of bytes.
//
// A word, shifted and masked, gives four rows of a column as bytes from 0 on, number + half; four neighbouring digits of a row of
// the left operand are its partner in a product of bytes (dot.h). In each block of rows the sums, one of each digit, begin with
// what half and the zero point take off,
//
//   sum over k of digit[k] * (number[k] - zero) = sum over k of digit[k] * (number[k] + half) - (half + zero) * (sum of digits)
//
// so that they are exact; then they are added up with their weights, multiplied by both scales, and added to the accumulators
// in memory.
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "jit/cpu/llvm/bits_tile.h"
#include "jit/cpu/llvm/dot.h"

namespace heddle::jit::cpu {

using llvm::Value;

namespace {

constexpr unsigned kBytes = 4;
constexpr unsigned kByteBits = 8;
constexpr double kBase = 256;

/// `byte` in each byte of a word.
std::uint64_t in_each_byte(std::uint64_t byte) { return byte * 0x01010101; }

/// 2^(bits - 1) in each number of a word.
std::uint64_t halves(unsigned bits) {
  std::uint64_t all = 0;
  for (unsigned bit = 0; bit < kByteBits; bit += bits) all |= std::uint64_t{1} << (bit + bits - 1);
  return in_each_byte(all);
}

}  // namespace

void NestEmitter::fixed_block(const BitsTile& tile, Value* row, unsigned rows, Value* column) {
  const Dequantised& d = tile.numbers;
  const Dequantised::FixedRows& fixed = *d.fixed;
  const auto [memory, a_rows] = bits_rows(tile, row, rows, column);
  const auto block = static_cast<std::uint64_t>(fixed.block);
  Value* block_words = b_.getInt64(block / tile.per_word());
  Value* blocks = b_.CreateUDiv(scalar_index(tile.s.depth), b_.getInt64(block));
  loop(b_.getInt64(0), blocks, 1, {},
       [&, &memory = memory, &a_rows = a_rows](Value* number, const Values&) {
         Value* group =
             d.group == 0
                 ? b_.getInt64(0)
                 : b_.CreateUDiv(number, b_.getInt64(static_cast<std::uint64_t>(d.group) / block));
         Values row_scales;
         Values row_sums;  // by row, then digit
         for (unsigned r = 0; r < rows; ++r) {
           Value* at = b_.CreateNSWAdd(row, b_.getInt64(r));
           row_scales.push_back(fixed_part(fixed.scale, at, number, nullptr));
           for (std::int64_t digit = 0; digit < fixed.digits; ++digit)
             row_sums.push_back(fixed_part(fixed.sums, at, number,
                                           scalar_index(fixed.sum_stride * SymExpr(digit))));
         }
         Value* first = b_.CreateNSWMul(number, block_words);
         Value* last = b_.CreateNSWAdd(first, block_words);
         const Values sums = loop(first, last, 1, fixed_begin(tile, row_sums, group, column),
                                  [&](Value* word, const Values& current) {
                                    return fixed_words(tile, word, a_rows, column, current);
                                  });
         fixed_end(tile, memory, sums, row_scales, row_sums, group, column);
         return Values{};
       });
}

Value* NestEmitter::fixed_part(const Dequantised::Part& part, Value* row, Value* block,
                               Value* moved) {
  Value* at =
      b_.CreateNSWAdd(scalar_index(part.base), b_.CreateNSWMul(row, scalar_index(part.row_stride)));
  at = b_.CreateNSWAdd(at, b_.CreateNSWMul(block, scalar_index(part.column_stride)));
  if (moved != nullptr) at = b_.CreateNSWAdd(at, moved);
  return load_scalar(nest_.buffers[part.buffer], element_address(part.buffer, at), nullptr);
}

NestEmitter::Values NestEmitter::fixed_begin(const BitsTile& tile, const Values& row_sums,
                                             Value* group, Value* column) {
  const auto& zero = tile.numbers.zero;
  const bool exact = zero && !is_floating(nest_.buffers[zero->buffer].dtype);
  Value* half = b_.getInt32(std::uint32_t{1} << (tile.bits - 1));
  Values taken;  // half and zero point of each vector of columns
  if (exact) taken = bits_beside(tile, *zero, group, column, DType::I32);
  for (Value*& each : taken) each = b_.CreateAdd(each, b_.CreateVectorSplat(tile.lanes, half));
  Values sums;
  for (Value* sum : row_sums)
    for (unsigned v = 0; v < tile.vectors; ++v) {
      Value* less = exact ? b_.CreateMul(b_.CreateVectorSplat(tile.lanes, sum), taken[v])
                          : b_.CreateVectorSplat(tile.lanes, b_.CreateMul(sum, half));
      sums.push_back(b_.CreateNeg(less));
    }
  return sums;
}

NestEmitter::Values NestEmitter::fixed_words(const BitsTile& tile, Value* word,
                                             const Values& a_rows, Value* column,
                                             const Values& sums) {
  const Dequantised::FixedRows& fixed = *tile.numbers.fixed;
  const auto constant = [&](Value* like, std::uint64_t number) {
    return llvm::ConstantInt::get(like->getType(), number);
  };
  Values words = words_of(tile, word, column);
  for (Value*& each : words) each = b_.CreateXor(each, constant(each, halves(tile.bits)));
  const std::uint64_t mask = in_each_byte((std::uint64_t{1} << tile.bits) - 1);
  Value* k = b_.CreateNSWMul(word, b_.getInt64(tile.per_word()));
  Values next = sums;
  for (unsigned part = 0; part * tile.bits < kByteBits; ++part) {
    Values numbers = words;
    for (Value*& each : numbers)
      if (tile.bits != kByteBits)
        each = b_.CreateAnd(b_.CreateLShr(each, constant(each, part * tile.bits)),
                            constant(each, mask));
    Value* at = b_.CreateNSWAdd(k, b_.getInt64(part * kBytes));
    auto sum = next.begin();
    for (Value* a_row : a_rows)
      for (std::int64_t digit = 0; digit < fixed.digits; ++digit) {
        Value* moved = scalar_index(fixed.digit_stride * SymExpr(digit));
        Value* wide =
            b_.CreateVectorSplat(tile.lanes, four_digits(tile, b_.CreateNSWAdd(a_row, moved), at));
        for (Value* number : numbers) {
          *sum = dot_of_bytes(b_, module_.getTargetTriple(), target_, *sum, number, wide);
          ++sum;
        }
      }
  }
  return next;
}

Value* NestEmitter::four_digits(const BitsTile& tile, Value* first, Value* k) {
  llvm::Type* byte = b_.getInt8Ty();
  Value* base = element_address(tile.s.a.buffer, first);
  if (tile.s.a.column_stride.is_constant(1))
    return b_.CreateAlignedLoad(b_.getInt32Ty(), b_.CreateGEP(byte, base, k), llvm::Align(1));
  Value* all = b_.getInt32(0);
  for (unsigned n = 0; n < kBytes; ++n) {
    Value* at = b_.CreateNSWMul(b_.CreateNSWAdd(k, b_.getInt64(n)), tile.a_column);
    Value* digit = b_.CreateAlignedLoad(byte, b_.CreateGEP(byte, base, at), llvm::Align(1));
    Value* wide = b_.CreateZExt(digit, b_.getInt32Ty());
    all = b_.CreateOr(all, b_.CreateShl(wide, b_.getInt32(n * kByteBits)));
  }
  return all;
}

void NestEmitter::fixed_end(const BitsTile& tile, const Values& memory, const Values& sums,
                            const Values& row_scales, const Values& row_sums, Value* group,
                            Value* column) {
  const Dequantised& d = tile.numbers;
  const auto digits = static_cast<std::size_t>(d.fixed->digits);
  const Values scales = bits_beside(tile, d.scale, group, column, tile.s.dtype);
  Values zeros;
  if (d.zero && is_floating(nest_.buffers[d.zero->buffer].dtype))
    zeros = bits_beside(tile, *d.zero, group, column, tile.s.dtype);
  // The sum of digits, `step` values apart from `first` on, with their weights.
  const auto joined = [&](const Values& of, std::size_t first, std::size_t step) {
    Value* sum = nullptr;
    for (std::size_t digit = digits; digit-- > 0;) {
      Value* next = scalars_.convert(of[first + digit * step], DType::I32, tile.s.dtype);
      Value* base = llvm::ConstantFP::get(next->getType(), kBase);
      sum = sum == nullptr ? next : contract_add(tile.s, next, sum, base);
    }
    return sum;
  };
  for (std::size_t r = 0; r < row_scales.size(); ++r)
    for (std::size_t v = 0; v < tile.vectors; ++v) {
      Value* sum = joined(sums, r * digits * tile.vectors + v, tile.vectors);
      if (!zeros.empty()) {
        Value* of_row = b_.CreateVectorSplat(tile.lanes, joined(row_sums, r * digits, 1));
        sum = contract_add(tile.s, sum, b_.CreateFNeg(of_row), zeros[v]);
      }
      Value* scale = b_.CreateFMul(scales[v], b_.CreateVectorSplat(tile.lanes, row_scales[r]));
      bits_add(tile, memory[r * tile.vectors + v], scale, sum);
    }
}

}  // namespace heddle::jit::cpu
