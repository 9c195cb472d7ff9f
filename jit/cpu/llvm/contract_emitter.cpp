// Tile contractions: blocks of accumulators in registers over the whole depth.
//
// A block is some rows by some vectors of columns. Each step of the depth loads the row of b once and
// multiplies it with one element of a for every row. Rows left over go in pairs and one by one, columns left over
// at once where it is known how many these are, else one masked vector at a time. A right operand that lies along the depth (a transposed matrix) is packed first,
// and so is one whose pairs are gathered (pair_gather_emitter.cpp).
//
// Of a part of a panel, each pass of a block over the depth fetches its share of the lines of the next part:
//
//   pass        0         1         2     …        the blocks of a tile, 8 of 4 x 64 in one of 32 x 64
//   lines   0 .. n-1  n .. 2n-1  2n .. 3n-1        one every other step: as fast as they are multiplied, in the order
//                                                  in which they lie, and no faster, or loads wait behind them
#include <algorithm>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>
#include <optional>

#include "base/check.h"
#include "jit/cpu/llvm/contract_tile.h"
#include "jit/cpu/llvm/dot.h"
#include "jit/cpu/llvm/nest_emitter.h"
#include "jit/cpu/llvm/opaque.h"
#include "jit/cpu/llvm/turn.h"

namespace heddle::jit::cpu {
namespace {

using llvm::Value;

constexpr std::int64_t kLineBytes = 64;
constexpr unsigned kStepsOfFewSums = 4;

/// Rows of a block, at most `most`: a divisor of the tile's, so that a full tile leaves no rows over, if
/// that keeps enough sums in flight to cover the latency of a multiply-add; else blocks of like size.
/// @param is_narrow  no more vectors are there to make good for few rows
unsigned block_rows(unsigned tile_rows, unsigned vectors, unsigned most, bool is_narrow) {
  const unsigned enough_sums = is_narrow ? 8 : 12;
  for (unsigned rows = std::min(most, tile_rows); rows * vectors >= enough_sums; --rows)
    if (tile_rows % rows == 0) return rows;
  const unsigned blocks = (tile_rows + most - 1) / most;
  return (tile_rows + blocks - 1) / blocks;
}

/// Vectors of a row of a block, so that its sums cover that latency where rows are few; of one or two as many as there are registers for, since longer
/// runs of b come faster; of six, with 32 registers and more rows than two, all: two that are left over are too few sums. With 16 registers there is room for the sums, a row of b and an element of a.
/// @param sums  vectors of them for each vector of a row
unsigned block_vectors(unsigned rows, unsigned columns, unsigned sums, std::int64_t vector_bytes) {
  if (vector_bytes == 64 && columns == 6 && rows > 2 && sums == 1) return columns;
  if (vector_bytes == 64) return std::min(columns, (rows == 1 ? 16u : rows == 2 ? 8u : 4u) / sums);
  return std::min(columns, (rows == 1 ? 8u : rows == 2 ? 4u : 2u) / sums);
}

/// Columns of the last tile of a row of tiles, where they are known: of 96 that are cut into tiles of 64 these are 32.
std::optional<std::int64_t> last_columns(const ContractStmt& s) {
  if (s.columns.is_constant()) return s.columns.constant();
  if (s.columns.kind() != SymExpr::Kind::Min) return std::nullopt;
  const std::vector<SymExpr> sides = s.columns.operands();
  const bool first = sides[0].is_constant(s.tile_columns);
  if (!first && !sides[1].is_constant(s.tile_columns)) return std::nullopt;
  const SymExpr rest = base::mod(sides[first ? 1 : 0], s.tile_columns);
  return rest.is_constant() ? std::optional(rest.constant()) : std::nullopt;
}

llvm::Constant* first_lanes(llvm::LLVMContext& context, unsigned lanes, unsigned count) {
  llvm::SmallVector<llvm::Constant*, 16> bits;
  for (unsigned k = 0; k < lanes; ++k)
    bits.push_back(llvm::ConstantInt::getBool(context, k < count));
  return llvm::ConstantVector::get(bits);
}

llvm::Constant* column_numbers(llvm::Type* element, unsigned lanes) {
  llvm::SmallVector<llvm::Constant*, 16> numbers;
  for (unsigned k = 0; k < lanes; ++k) numbers.push_back(llvm::ConstantInt::get(element, k));
  return llvm::ConstantVector::get(numbers);
}

}  // namespace

Value* NestEmitter::Tile::fetched(llvm::IRBuilderBase& b) const {
  return b.CreateNSWMul(b.CreateUDiv(depth, b.getInt64(steps_a_line())),
                        b.getInt64(static_cast<std::uint64_t>(line)));
}

void NestEmitter::operator()(const ContractStmt& s) {
  if (s.b.dequantised && s.b.dequantised->bits != 0) return contract_bits(s);
  HD_CHECK(!s.b.windows && !s.b.dequantised,
           "nests of windows and of bytes that are dequantised are made for CUDA");
  const unsigned lanes =
      static_cast<unsigned>(target_.vector_bytes) / static_cast<unsigned>(size_of(s.dtype));
  // Registers for accumulators; the others hold the row of b and the element of a, and what is added where that is an instruction
  // of its own.
  const bool adds_as_it_multiplies =
      is_floating(s.dtype) || (s.group != 1 && has_byte_dot(target_));
  const unsigned registers = target_.vector_bytes == 64 ? 28 : adds_as_it_multiplies ? 12 : 8;
  const std::int64_t most_columns =
      s.columns.is_constant() ? std::clamp<std::int64_t>(s.columns.constant(), 1, s.tile_columns)
                              : s.tile_columns;
  const auto columns = static_cast<unsigned>((most_columns + lanes - 1) / lanes);
  // With 16 registers, few rows that are known are one block.
  const bool are_few = target_.vector_bytes != 64 && s.rows.is_constant();
  const auto tile_rows = static_cast<unsigned>(
      are_few ? std::clamp<std::int64_t>(s.rows.constant(), 1, s.tile_rows) : s.tile_rows);
  const unsigned sums = sums_by_pairs(s) ? 2 : 1;
  const unsigned vectors = block_vectors(tile_rows, columns, sums, target_.vector_bytes);
  // More rows of one vector each have more places in a than there are registers for.
  const unsigned most_rows =
      vectors == 1 ? std::min(registers / sums, 8u) : registers / (vectors * sums);
  const unsigned rows = block_rows(tile_rows, vectors * sums, most_rows,
                                   target_.vector_bytes != 64 && vectors == columns);
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
            scalar_index(s.b.column_stride),
            sums,
            columns,
            kLineBytes / static_cast<std::int64_t>(size_of(nest_.buffers[s.b.buffer].dtype)),
            last_columns(s)};
  // Gathering costs as much as the arithmetic of several rows; packing what lies along the depth does not.
  if (!s.runs.empty() && s.group != 1) {
    if (takes_amx(s))
      contract_by_amx(tile);
    else
      contract_group_runs(tile);
  } else if (!s.runs.empty()) {
    contract_runs(tile);
  } else if (s.gathers ||
             (s.group == 1 && s.b.row_stride.is_constant(1) && !s.b.column_stride.is_constant(1))) {
    if (!s.gathers && fits_few_rows(tile))
      contract_few_or(tile, [&] { contract_packed(tile); });
    else
      contract_packed(tile);
  } else if (takes_amx(s)) {
    contract_by_amx(tile);
  } else {
    contract_rows(tile);
  }
}

/// Rows of b that lie behind each other go on behind the last one, as the parts of a panel do. That next part is fetched
/// into the second-level cache: lines that are asked for faster than they come keep loads waiting. Only blocks of all rows
/// do so: fewer are over before it arrives. One row by itself, by vectors narrower than a line, is read as fast as it comes, and
/// asking for what the processor fetches anyway takes longer (0.85 to 0.96 of the time without, Zen 3).
Value* NestEmitter::fetched_ahead(const Tile& tile, Value* row) {
  const bool continues = nest_.buffers[tile.s.b.buffer].scope == NestBuffer::Scope::Global &&
                         tile.panel == nullptr && tile.s.accumulate &&
                         tile.s.b.column_stride.is_constant(tile.s.group) &&
                         tile.s.b.row_stride.is_constant(tile.s.tile_columns * tile.s.group);
  if (!continues) return nullptr;
  Value* pass =
      b_.CreateNSWMul(b_.CreateUDiv(row, b_.getInt64(tile.rows)), b_.getInt64(tile.passes_a_row()));
  Value* next = b_.CreateNSWAdd(tile.b_base, b_.CreateNSWMul(tile.depth, tile.b_row));
  return b_.CreateNSWAdd(next, b_.CreateNSWMul(pass, tile.fetched(b_)));
}

/// Rows of a block of the one vector that is left over of a tile's columns, where those of other blocks are too few sums for it; 0:
/// it goes with the others.
unsigned NestEmitter::rows_of_rest(const Tile& tile) const {
  constexpr unsigned kEnoughSums = 8;
  if (tile.sums != 1 || tile.vectors == 1 || tile.rows >= kEnoughSums ||
      tile.s.tile_rows < kEnoughSums || !llvm::isa<llvm::ConstantInt>(tile.a_row))
    return 0;
  const auto width = static_cast<std::int64_t>(tile.vectors) * tile.lanes;
  const bool is_one = !tile.last || (*tile.last % width != 0 && *tile.last % width <= tile.lanes);
  const auto rows = tile.s.rows.as_constant();
  return is_one && rows.value_or(kEnoughSums) >= kEnoughSums ? kEnoughSums : 0;
}

void NestEmitter::contract_rows(Tile& tile) {
  const unsigned rest = rows_of_rest(tile);
  contract_rows(tile, tile.rows, rest == 0 ? Columns::All : Columns::Whole);
  if (rest == 0) return;
  Value* width = b_.getInt64(std::uint64_t{tile.vectors} * tile.lanes);
  Value* left = b_.CreateURem(tile.column_count, width);
  const auto has_rest = [&] { contract_rows(tile, rest, Columns::Rest); };
  if (llvm::isa<llvm::ConstantInt>(left))
    has_rest();
  else
    when(b_.CreateICmpNE(left, b_.getInt64(0)), has_rest, /*unlikely=*/false);
}

/// @param rows  of a block
void NestEmitter::contract_rows(Tile& tile, unsigned rows, Columns part) {
  Value* full_rows = b_.CreateSub(tile.row_count, b_.CreateURem(tile.row_count, b_.getInt64(rows)));
  const auto run = [&](unsigned count) {
    return [this, &tile, count, part](Value* row, const Values&) {
      const bool fetches =
          part != Columns::Rest && count == tile.rows && (count > 1 || target_.vector_bytes == 64);
      tile.ahead = fetches ? fetched_ahead(tile, row) : nullptr;
      contract_columns(tile, row, count, part);
      return Values{};
    };
  };
  loop(b_.getInt64(0), full_rows, rows, {}, run(rows));
  Value* pairs = full_rows;
  if (rows > 2) {
    Value* left = b_.CreateSub(tile.row_count, full_rows);
    pairs = b_.CreateSub(tile.row_count, b_.CreateAnd(left, b_.getInt64(1)));
    loop(full_rows, pairs, 2, {}, run(2));
  }
  loop(pairs, tile.row_count, 1, {}, run(1));
}

/// Blocks of the depth: each is transposed into a panel on the stack and then multiplied.
void NestEmitter::contract_packed(Tile& tile) {
  constexpr std::int64_t kPanelDepth = 64;
  const std::int64_t group = tile.s.group;
  llvm::IRBuilder<> entry(&function_->getEntryBlock(), function_->getEntryBlock().begin());
  llvm::Type* element = scalars_.compute_type(tile.s.dtype, 0);
  auto* memory = entry.CreateAlloca(llvm::ArrayType::get(
      element, static_cast<std::uint64_t>(kPanelDepth / group * tile.panel_columns())));
  memory->setAlignment(llvm::Align(64));
  Value* whole = tile.depth;
  Value* a_base = tile.a_base;
  Value* a_column = tile.a_column;
  // At least one block, so that a contraction of no depth gives zeros.
  Value* end = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, whole, b_.getInt64(1));
  loop(b_.getInt64(0), end, kPanelDepth, {}, [&](Value* begin, const Values&) {
    Value* left = b_.CreateNSWSub(whole, begin);
    tile.depth = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left, b_.getInt64(kPanelDepth));
    tile.a_base = b_.CreateNSWAdd(a_base, b_.CreateNSWMul(begin, a_column));
    if (!tile.s.accumulate) tile.resumes = b_.CreateICmpSGT(begin, b_.getInt64(0));
    tile.panel = nullptr;
    if (tile.s.gathers) {
      pack_pairs(tile, memory, begin);
      tile.a_column = b_.CreateNSWMul(a_column, b_.getInt64(static_cast<std::uint64_t>(group)));
      tile.depth = b_.CreateLShr(b_.CreateNSWAdd(tile.depth, b_.getInt64(1)), 1);
    } else {
      pack_panel(tile, memory, begin);
    }
    tile.panel = memory;
    contract_rows(tile);
    return Values{};
  });
}

void NestEmitter::pack_panel(const Tile& tile, Value* panel, Value* begin) {
  const NestBuffer& b = nest_.buffers[tile.s.b.buffer];
  llvm::Type* type = scalars_.storage_type(b.dtype, tile.lanes);
  llvm::Type* element = scalars_.compute_type(tile.s.dtype, 0);
  Value* first = b_.CreateNSWAdd(tile.b_base, begin);
  loop(b_.getInt64(0), tile.column_count, tile.lanes, {}, [&](Value* column, const Values&) {
    loop(b_.getInt64(0), tile.depth, tile.lanes, {}, [&](Value* k, const Values&) {
      Value* left = b_.CreateTrunc(b_.CreateNSWSub(tile.depth, k), b_.getInt32Ty());
      Value* within = b_.CreateICmpSLT(column_numbers(b_.getInt32Ty(), tile.lanes),
                                       b_.CreateVectorSplat(tile.lanes, left));
      Values square;
      for (unsigned j = 0; j < tile.lanes; ++j) {
        Value* at = b_.CreateNSWAdd(column, b_.getInt64(j));
        Value* start = b_.CreateNSWAdd(first, b_.CreateNSWMul(at, tile.b_column));
        Value* exists = b_.CreateVectorSplat(tile.lanes, b_.CreateICmpSLT(at, tile.column_count));
        Value* stored =
            b_.CreateMaskedLoad(type, element_address(tile.s.b.buffer, b_.CreateNSWAdd(start, k)),
                                llvm::Align(kReadAlignment), b_.CreateAnd(within, exists),
                                llvm::Constant::getNullValue(type));
        square.push_back(
            scalars_.convert(scalars_.from_storage(b.dtype, stored), b.dtype, tile.s.dtype));
      }
      turn(b_, square);
      for (unsigned j = 0; j < tile.lanes; ++j) {
        Value* row = b_.CreateNSWMul(b_.CreateNSWAdd(k, b_.getInt64(j)),
                                     b_.getInt64(static_cast<std::uint64_t>(tile.panel_columns())));
        b_.CreateAlignedStore(square[j], b_.CreateGEP(element, panel, b_.CreateNSWAdd(row, column)),
                              llvm::Align(size_of(tile.s.dtype)));
      }
      return Values{};
    });
    return Values{};
  });
}

void NestEmitter::contract_columns(const Tile& tile, Value* row, unsigned rows, Columns part) {
  // Rows that are left over of a block have wider ones, and what those leave over has the block's own.
  llvm::SmallVector<unsigned, 2> widths{
      block_vectors(rows, tile.columns, tile.sums, target_.vector_bytes)};
  if (tile.vectors < widths[0]) widths.push_back(tile.vectors);
  // All rows have the same columns left over of whole blocks.
  if (part == Columns::Rest || (part == Columns::Whole && widths[0] % tile.vectors != 0))
    widths.assign({tile.vectors});
  Value* full = b_.getInt64(0);
  unsigned width = 0;
  for (const unsigned vectors : widths) {
    width = vectors * tile.lanes;
    Value* begin = full;
    Value* left = b_.CreateSub(tile.column_count, begin);
    full = b_.CreateSub(tile.column_count, b_.CreateURem(left, b_.getInt64(width)));
    if (part == Columns::Rest) break;
    loop(begin, full, width, {}, [&](Value* column, const Values&) {
      contract_block(tile, row, rows, column, vectors, nullptr);
      return Values{};
    });
  }
  if (part == Columns::Whole) return;
  // Of tiles in a row, those before the last leave over nothing.
  if (tile.last && (tile.s.columns.is_constant() || tile.s.tile_columns % width == 0)) {
    const auto left = static_cast<unsigned>(*tile.last) % width;
    const unsigned lanes = left % tile.lanes;
    Value* mask = lanes == 0 ? nullptr : first_lanes(b_.getContext(), tile.lanes, lanes);
    if (left != 0)
      loop(full, tile.column_count, width, {}, [&](Value* column, const Values&) {
        contract_block(tile, row, rows, column, (left + tile.lanes - 1) / tile.lanes, mask);
        return Values{};
      });
    return;
  }
  loop(full, tile.column_count, tile.lanes, {}, [&](Value* column, const Values&) {
    Value* left = b_.CreateTrunc(b_.CreateSub(tile.column_count, column), b_.getInt32Ty());
    Value* mask = b_.CreateICmpSLT(column_numbers(b_.getInt32Ty(), tile.lanes),
                                   b_.CreateVectorSplat(tile.lanes, left));
    contract_block(tile, row, rows, column, 1, mask);
    return Values{};
  });
}

/// @param mask  of the last of the vectors; null: all of it is there
void NestEmitter::contract_block(const Tile& tile, Value* row, unsigned rows, Value* column,
                                 unsigned vectors, Value* mask) {
  const ContractStmt& s = tile.s;
  const bool by_pairs = tile.sums != 1;
  llvm::Type* vector = scalars_.compute_type(s.dtype, tile.lanes);
  const auto alignment = llvm::Align(size_of(s.dtype));
  Values memory;  // of the accumulators
  Values sums;
  // All places of a block are so far from the first one: a register and a constant where rows are of a known length.
  Value* first_sum = element_address(
      s.acc,
      b_.CreateNSWAdd(b_.CreateNSWMul(row, b_.getInt64(static_cast<std::uint64_t>(s.tile_columns))),
                      column));
  Value* first_row =
      element_address(s.a.buffer, b_.CreateNSWAdd(tile.a_base, b_.CreateNSWMul(row, tile.a_row)));
  Value* first_b = by_pairs ? nullptr : first_of_b(tile, column);
  llvm::Type* sum_type = scalars_.storage_type(nest_.buffers[s.acc].dtype, 0);
  for (unsigned r = 0; r < rows; ++r) {
    for (unsigned v = 0; v < vectors; ++v) {
      memory.push_back(b_.CreateGEP(
          sum_type, first_sum,
          b_.getInt64(static_cast<std::uint64_t>(r * s.tile_columns + v * tile.lanes))));
      Value* zero = llvm::Constant::getNullValue(vector);
      if (by_pairs || (!s.accumulate && tile.resumes == nullptr)) {
        sums.resize(sums.size() + tile.sums, zero);
        continue;
      }
      if (mask != nullptr && v + 1 == vectors) {
        sums.push_back(b_.CreateMaskedLoad(vector, memory.back(), alignment, mask, zero));
      } else {
        sums.push_back(b_.CreateAlignedLoad(vector, memory.back(), alignment));
      }
      if (tile.resumes != nullptr) sums.back() = b_.CreateSelect(tile.resumes, sums.back(), zero);
    }
  }
  const auto steps_from = [&](Value* k, unsigned count, Values current) {
    for (unsigned n = 0; n < count; ++n) {
      if (n != 0) keep_order(b_);
      current = by_pairs
                    ? pair_step(tile, k, n, first_row, rows, column, current, mask)
                    : contract_step(tile, k, n, first_row, rows, {column, first_b}, current, mask);
    }
    return current;
  };
  Value* done = b_.getInt64(0);
  if (tile.ahead != nullptr && vectors == tile.vectors) {
    const unsigned steps = tile.steps_a_line();
    Value* pass = b_.CreateUDiv(column, b_.getInt64(vectors * tile.lanes));
    Value* first = b_.CreateNSWAdd(tile.ahead, b_.CreateNSWMul(pass, tile.fetched(b_)));
    done = b_.CreateNSWSub(tile.depth, b_.CreateURem(tile.depth, b_.getInt64(steps)));
    sums = loop(b_.getInt64(0), done, steps, sums, [&](Value* k, const Values& current) {
      const auto line = static_cast<std::uint64_t>(tile.line);
      Value* distance = line % steps == 0 ? b_.CreateNSWMul(k, b_.getInt64(line / steps))
                                          : b_.CreateNSWMul(b_.CreateUDiv(k, b_.getInt64(steps)),
                                                            b_.getInt64(line));
      fetch(element_address(s.b.buffer, b_.CreateNSWAdd(first, distance)), 2);
      return steps_from(k, steps, current);
    });
  } else if (target_.vector_bytes != 64 && mask == nullptr &&
             (rows == tile.rows || is_floating(s.dtype))) {
    // Of few sums a step is short beside what a loop takes to go on. Blocks of bytes leave no rows over of a whole tile.
    done = b_.CreateNSWSub(tile.depth, b_.CreateURem(tile.depth, b_.getInt64(kStepsOfFewSums)));
    sums = loop(b_.getInt64(0), done, kStepsOfFewSums, sums, [&](Value* k, const Values& current) {
      return steps_from(k, kStepsOfFewSums, current);
    });
  }
  sums = loop(done, tile.depth, 1, sums,
              [&](Value* k, const Values& current) { return steps_from(k, 1, current); });
  for (std::size_t n = 0; n < memory.size(); ++n) {
    const bool is_partial = mask != nullptr && n % vectors + 1 == vectors;
    Value* sum = by_pairs ? pair_sum(sums[2 * n], sums[2 * n + 1]) : sums[n];
    if (by_pairs && s.accumulate) {
      Value* zero = llvm::Constant::getNullValue(vector);
      sum = b_.CreateAdd(sum, is_partial ? static_cast<Value*>(b_.CreateMaskedLoad(
                                               vector, memory[n], alignment, mask, zero))
                                         : b_.CreateAlignedLoad(vector, memory[n], alignment));
    }
    if (is_partial) {
      b_.CreateMaskedStore(sum, memory[n], alignment, mask);
    } else {
      b_.CreateAlignedStore(sum, memory[n], alignment);
    }
  }
}

/// How far `n` steps behind step `k` are: what is the same in each step is added first, once, and those of several steps
/// differ by constants, which addresses hold.
Value* NestEmitter::steps_of(Value* k, unsigned n, Value* stride) {
  return b_.CreateNSWAdd(b_.CreateNSWMul(k, stride), b_.CreateNSWMul(b_.getInt64(n), stride));
}

/// Addresses of the elements of a in that step, by row.
NestEmitter::Values NestEmitter::elements_of_a(const Tile& tile, Value* k, unsigned n,
                                               Value* first_row, unsigned rows) {
  Value* step = steps_of(k, n, tile.a_column);
  llvm::Type* element = scalars_.storage_type(nest_.buffers[tile.s.a.buffer].dtype, 0);
  // Of rows whose distance is not known each has a pointer of its own.
  const bool near = llvm::isa<llvm::ConstantInt>(tile.a_row);
  Value* here = near ? b_.CreateGEP(element, first_row, step) : first_row;
  Values result;
  for (unsigned r = 0; r < rows; ++r) {
    result.push_back(b_.CreateGEP(element, here, b_.CreateNSWMul(tile.a_row, b_.getInt64(r))));
    if (!near) result.back() = b_.CreateGEP(element, result.back(), step);
  }
  return result;
}

NestEmitter::Values NestEmitter::contract_step(const Tile& tile, Value* k, unsigned n,
                                               Value* first_row, unsigned rows,
                                               const BlockColumn& column, const Values& sums,
                                               Value* mask) {
  const ContractStmt& s = tile.s;
  const NestBuffer& a = nest_.buffers[s.a.buffer];
  const std::size_t vectors = sums.size() / rows;
  Values row_of_b;
  Value* b_row = steps_of(k, n,
                          tile.panel == nullptr
                              ? tile.b_row
                              : b_.getInt64(static_cast<std::uint64_t>(tile.panel_columns())));
  for (unsigned v = 0; v < vectors; ++v)
    row_of_b.push_back(contract_load_b(tile, b_row, column, v, v + 1 == vectors ? mask : nullptr));
  const Values addresses = elements_of_a(tile, k, n, first_row, rows);
  Values next;
  for (unsigned r = 0; r < rows; ++r) {
    Value* address = addresses[r];
    Value* element = s.group == 1
                         ? scalars_.convert(load_scalar(a, address, nullptr), a.dtype, s.dtype)
                         : b_.CreateAlignedLoad(scalars_.compute_type(s.dtype, 0), address,
                                                llvm::Align(kReadAlignment));
    Value* wide = b_.CreateVectorSplat(tile.lanes, element);
    for (std::size_t v = 0; v < vectors; ++v)
      next.push_back(contract_add(s, sums[r * vectors + v], wide, row_of_b[v]));
  }
  return next;
}

Value* NestEmitter::contract_add(const ContractStmt& s, Value* sum, Value* left, Value* right) {
  const std::string& triple = module_.getTargetTriple();
  if (s.group != 1 && is_floating(s.dtype))
    return dot_of_bf16(b_, triple, target_, sum, left, right);
  if (s.group != 1) return dot_of_bytes(b_, triple, target_, sum, left, right, s.pairs_fit);
  if (is_floating(s.dtype))
    return b_.CreateIntrinsic(llvm::Intrinsic::fma, {sum->getType()}, {left, right, sum});
  return b_.CreateAdd(b_.CreateMul(left, right), sum);
}

/// Where a column of b, or of its panel, begins; null: its elements are gathered.
Value* NestEmitter::first_of_b(const Tile& tile, Value* column) {
  const ContractStmt& s = tile.s;
  if (tile.panel != nullptr)
    return b_.CreateGEP(scalars_.compute_type(s.dtype, 0), tile.panel, column);
  if (s.group != 1) {
    Value* place = tile.b_base;
    if (s.panel_columns != 0) {
      Value* width = b_.getInt64(static_cast<std::uint64_t>(s.panel_columns));
      Value* panel = b_.CreateUDiv(column, width);
      place = b_.CreateNSWAdd(place, b_.CreateNSWMul(panel, scalar_index(s.panel_stride)));
      column = b_.CreateURem(column, width);
    }
    return element_address(s.b.buffer,
                           b_.CreateNSWAdd(place, b_.CreateNSWMul(column, tile.b_column)));
  }
  if (!s.b.column_stride.is_constant(1)) return nullptr;
  return element_address(s.b.buffer, b_.CreateNSWAdd(tile.b_base, column));
}

/// @param vector  the block's, of the columns it begins with
Value* NestEmitter::contract_load_b(const Tile& tile, Value* row, const BlockColumn& column,
                                    unsigned vector, Value* mask) {
  const ContractStmt& s = tile.s;
  Value* behind = b_.getInt64(std::uint64_t{vector} * tile.lanes);
  if (tile.panel != nullptr) {
    llvm::Type* element = scalars_.compute_type(s.dtype, 0);
    return b_.CreateAlignedLoad(
        scalars_.compute_type(s.dtype, tile.lanes),
        b_.CreateGEP(element, b_.CreateGEP(element, column.first_of_b, row), behind),
        llvm::Align(size_of(s.dtype)));
  }
  const NestBuffer& b = nest_.buffers[s.b.buffer];
  llvm::Type* element = scalars_.storage_type(b.dtype, 0);
  if (s.group != 1) {
    llvm::Type* groups = scalars_.compute_type(s.dtype, tile.lanes);
    Value* address = b_.CreateGEP(element, b_.CreateGEP(element, column.first_of_b, row),
                                  b_.CreateNSWMul(behind, tile.b_column));
    if (mask == nullptr) return b_.CreateAlignedLoad(groups, address, llvm::Align(kReadAlignment));
    return b_.CreateMaskedLoad(groups, address, llvm::Align(kReadAlignment), mask,
                               llvm::Constant::getNullValue(groups));
  }
  llvm::Type* type = scalars_.storage_type(b.dtype, tile.lanes);
  Value* zero = llvm::Constant::getNullValue(type);
  Value* stored = nullptr;
  if (column.first_of_b != nullptr) {
    Value* address = b_.CreateGEP(element, b_.CreateGEP(element, column.first_of_b, row), behind);
    stored =
        mask == nullptr
            ? static_cast<Value*>(b_.CreateAlignedLoad(type, address, llvm::Align(kReadAlignment)))
            : b_.CreateMaskedLoad(type, address, llvm::Align(kReadAlignment), mask, zero);
  } else {
    Value* place = b_.CreateNSWAdd(column.number, behind);
    Value* first =
        b_.CreateNSWAdd(b_.CreateNSWAdd(tile.b_base, row), b_.CreateNSWMul(place, tile.b_column));
    Value* offsets = b_.CreateNSWMul(column_numbers(b_.getInt64Ty(), tile.lanes),
                                     b_.CreateVectorSplat(tile.lanes, tile.b_column));
    Value* index = b_.CreateNSWAdd(b_.CreateVectorSplat(tile.lanes, first), offsets);
    stored = b_.CreateMaskedGather(type, element_address(s.b.buffer, index),
                                   llvm::Align(kReadAlignment), mask, zero);
  }
  return scalars_.convert(scalars_.from_storage(b.dtype, stored), b.dtype, s.dtype);
}

}  // namespace heddle::jit::cpu
