// Blocks of a contraction of groups by the matrix registers of AMX, its tiles: eight of 16 rows by 64 bytes, all of that shape in a whole kernel.
//
//   registers   0 1 2 3   sums: 32 rows by 32 columns, or 16 by 64
//               4 5       rows of a, 16 groups of each: as they lie, or a copy where fewer than 16 are left
//               6 7       16 rows of b, the groups of 16 columns side by side, as panels have them
//
// Sums begin with what is in memory and go back there. Columns are rounded up to 16, of which panels and sums have all. Groups
// that are left over of the depth, fewer than 16, are the vectors' business, and so are one or two rows of bytes: the
// registers take as long for them as for 16. Rows of bf16 are all multiplied alike, so that what comes out for a row does not
// depend on how many there are.
//
// Of a contraction of runs the sums stay in registers from the first run to the last, each of which is whole registers deep.
//
// To say how large the registers are takes as long as 20 products: once for each call of the kernel, before anything else.
#include <array>
#include <bit>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/Module.h>
#include <llvm/TargetParser/Triple.h>

#include "jit/cpu/llvm/contract_tile.h"

namespace heddle::jit::cpu {
namespace {

using llvm::Value;
namespace Intrinsic = llvm::Intrinsic;

constexpr unsigned kRegisters = 8;
constexpr unsigned kRegisterRows = 16;
constexpr unsigned kRowBytes = 64;
constexpr unsigned kFirstLeft = 4;
constexpr unsigned kFirstRight = 6;
/// Columns of sums of 32 bits, and groups of a row of a.
constexpr unsigned kRegisterColumns = 16;
constexpr std::int64_t kByteGroup = 4;
constexpr std::int64_t kBf16Group = 2;
/// So many rows of bytes take vectors no longer.
constexpr std::int64_t kFewRows = 2;

/// What LDTILECFG reads: a format, and of each register the bytes of a row and the rows.
llvm::GlobalVariable* configuration(llvm::Module& module) {
  std::array<std::uint8_t, 64> bytes{};
  bytes[0] = 1;
  for (unsigned k = 0; k < kRegisters; ++k) {
    bytes[16 + 2 * k] = kRowBytes;
    bytes[48 + k] = kRegisterRows;
  }
  auto* data = llvm::ConstantDataArray::get(module.getContext(), bytes);
  auto* variable = new llvm::GlobalVariable(
      module, data->getType(), true, llvm::GlobalValue::PrivateLinkage, data, "amx_configuration");
  variable->setAlignment(llvm::Align(kRowBytes));
  return variable;
}

std::int64_t columns_of_panel(const ContractStmt& s) {
  return s.panel_columns == 0 ? s.tile_columns : s.panel_columns;
}

bool is_multiple_of(const SymExpr& count, std::int64_t of) {
  return base::divide_exact(count, of).has_value();
}

Value* register_number(llvm::IRBuilderBase& b, unsigned k) {
  return b.getInt8(static_cast<std::uint8_t>(k));
}

}  // namespace

/// Rows and columns of registers that a block of sums takes.
struct NestEmitter::AmxBlock {
  unsigned rows = 1, columns = 1;
  Value* row = nullptr;     ///< first one
  Value* column = nullptr;  ///< first one
  Value* depth = nullptr;   ///< groups, a multiple of 16
  /// Where the rows of all blocks of the same columns end; null: those of one.
  Value* end_row = nullptr;
  /// How far from the first of them 16 rows of a are of which a copy is made step by step, and the memory for it; empty: they are read
  /// where they lie.
  Values copied_rows;
  Value* copy = nullptr;
};

bool has_amx(const CodegenTarget& target) {
  return target.vector_bytes == kRowBytes && has_feature(target, "amx-tile") &&
         has_feature(target, "amx-int8") && has_feature(target, "amx-bf16");
}

bool NestEmitter::takes_amx(const ContractStmt& s) const {
  if (!has_amx(target_) || !llvm::Triple(module_.getTargetTriple()).isX86()) return false;
  const bool is_of_bytes = s.group == kByteGroup && nest_.buffers[s.a.buffer].dtype == DType::U8;
  const bool are_few = is_of_bytes && s.rows.is_constant() && s.rows.constant() <= kFewRows;
  const bool is_shallow = s.depth.is_constant() && s.depth.constant() < kRegisterColumns;
  if (!s.runs.empty() && !is_multiple_of(s.depth, kRegisterColumns)) return false;
  const std::int64_t pitch = columns_of_panel(s) * s.group;
  return (is_of_bytes || s.group == kBf16Group) && !are_few && !is_shallow &&
         s.tile_rows % kRegisterRows == 0 && s.tile_columns % kRegisterColumns == 0 &&
         s.a.column_stride.is_constant(s.group) && s.b.column_stride.is_constant(s.group) &&
         s.b.row_stride.is_constant(pitch);
}

void NestEmitter::configure_amx(llvm::BasicBlock* entry) {
  if (!configures_amx_) return;
  b_.SetInsertPoint(entry->getTerminator());
  b_.CreateIntrinsic(Intrinsic::x86_ldtilecfg, {}, {configuration(module_)});
  for (llvm::BasicBlock& block : *function_) {
    if (!llvm::isa<llvm::ReturnInst>(block.getTerminator())) continue;
    b_.SetInsertPoint(block.getTerminator());
    b_.CreateIntrinsic(Intrinsic::x86_tilerelease, {}, {});
  }
}

namespace {

/// The most that an extent may be; 0: not known.
std::int64_t most_of(const SymExpr& extent) {
  if (extent.is_constant()) return std::max<std::int64_t>(0, extent.constant());
  if (extent.kind() != SymExpr::Kind::Min) return 0;
  std::int64_t most = 0;
  for (const SymExpr& side : extent.operands())
    if (side.is_constant()) most = side.constant();
  return most;
}

/// Cycles that an iteration of a loop takes, two instructions of whole vectors in each; nothing where other loops than of known extents
/// are in it, or products.
std::optional<double> cycles_of(const Block& body, std::int64_t lanes) {
  double cycles = 0;
  for (const Stmt& statement : body) {
    if (std::holds_alternative<ContractStmt>(statement.node)) return std::nullopt;
    const auto* inner = std::get_if<ForStmt>(&statement.node);
    if (inner == nullptr) {
      cycles += 0.5;
      continue;
    }
    const std::int64_t extent = most_of(inner->extent);
    const bool is_vector = inner->kind == ForStmt::Kind::Vector;
    const auto each = cycles_of(*inner->body, lanes);
    if (!each || extent == 0) return std::nullopt;
    cycles += *each * static_cast<double>(is_vector ? (extent + lanes - 1) / lanes : extent);
  }
  return cycles;
}

}  // namespace

/// Matrix registers that have multiplied nothing for 2000 cycles take 1100 to begin again (Granite Rapids): a product now and then, whose
/// result nothing reads, in loops that take longer, as those over what follows the sums of a tile. Each costs some 150.
void NestEmitter::keep_amx_awake(const ForStmt& s, Value* iteration) {
  constexpr double kMostCycles = 1500;
  if (!configures_amx_) return;
  const auto each = cycles_of(*s.body, base_lanes_);
  const std::int64_t extent = most_of(s.extent);
  if (!each || *each > kMostCycles || *each * static_cast<double>(extent) <= kMostCycles) return;
  const auto apart = std::bit_floor(static_cast<std::uint64_t>(kMostCycles / *each));
  Value* passed = b_.CreateAnd(iteration, b_.getInt64(apart - 1));
  when(
      b_.CreateICmpEQ(passed, b_.getInt64(apart - 1)),
      [&] {
        b_.CreateIntrinsic(Intrinsic::x86_tdpbusd, {},
                           {register_number(b_, 0), register_number(b_, kFirstLeft),
                            register_number(b_, kFirstRight)});
      },
      false);
}

void NestEmitter::contract_by_amx(Tile& tile) {
  configures_amx_ = true;
  const ContractStmt& s = tile.s;
  const bool are_known = s.rows.is_constant() || is_multiple_of(s.rows, kRegisterRows);
  if (s.group == kBf16Group || are_known) return amx_rows(tile);
  Value* are_few = b_.CreateICmpSLE(tile.row_count, b_.getInt64(kFewRows));
  const auto by_vectors = [&] { s.runs.empty() ? contract_rows(tile) : contract_group_runs(tile); };
  when(are_few, by_vectors, false);
  when(b_.CreateNot(are_few), [&] { amx_rows(tile); }, false);
}

void NestEmitter::amx_rows(Tile& tile) {
  Value* left_over = b_.CreateAnd(tile.depth, b_.getInt64(kRegisterColumns - 1));
  Value* depth = b_.CreateNSWSub(tile.depth, left_over);
  const auto rows_from = [&](Value* begin, Value* end, unsigned registers, bool copies) {
    AmxBlock block{.rows = registers, .depth = depth};
    loop(begin, end, registers * kRegisterRows, {}, [&](Value* row, const Values&) {
      block.row = row;
      if (copies) amx_copy(tile, block);
      amx_columns(tile, block);
      return Values{};
    });
  };
  const auto below = [&](unsigned step) {
    return b_.CreateAnd(tile.row_count, b_.getInt64(~std::uint64_t{step - 1}));
  };
  Value* pairs = below(2 * kRegisterRows);
  Value* whole = below(kRegisterRows);
  // All pairs read the same columns in turn: what is read of b stays in the first-level cache.
  AmxBlock pair{.rows = 2, .depth = depth, .end_row = pairs};
  amx_columns(tile, pair);
  rows_from(pairs, whole, 1, false);
  if (!is_multiple_of(tile.s.rows, kRegisterRows)) rows_from(whole, tile.row_count, 1, true);
  if (is_multiple_of(tile.s.depth, kRegisterColumns)) return;
  Tile rest = tile;
  rest.depth = left_over;
  rest.a_base = b_.CreateNSWAdd(tile.a_base, b_.CreateNSWMul(depth, tile.a_column));
  rest.b_base = b_.CreateNSWAdd(tile.b_base, b_.CreateNSWMul(depth, tile.b_row));
  if (!tile.s.accumulate) rest.resumes = b_.getTrue();
  when(b_.CreateICmpNE(left_over, b_.getInt64(0)), [&] { contract_rows(rest); }, false);
}

/// Of rows that are not there the last one that is takes the place.
void NestEmitter::amx_copy(const Tile& tile, AmxBlock& block) {
  llvm::IRBuilder<> entry(&function_->getEntryBlock(), function_->getEntryBlock().begin());
  auto* memory =
      entry.CreateAlloca(llvm::ArrayType::get(b_.getInt8Ty(), kRegisterRows * kRowBytes));
  memory->setAlignment(llvm::Align(kRowBytes));
  block.copy = memory;
  Value* last = b_.CreateNSWSub(b_.CreateNSWSub(tile.row_count, block.row), b_.getInt64(1));
  for (unsigned r = 0; r < kRegisterRows; ++r) {
    Value* row = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b_.getInt64(r), last);
    block.copied_rows.push_back(b_.CreateNSWMul(row, tile.a_row));
  }
}

/// As many columns at once as there are registers for.
void NestEmitter::amx_columns(const Tile& tile, AmxBlock& block) {
  Value* end = b_.CreateAnd(b_.CreateNSWAdd(tile.column_count, b_.getInt64(kRegisterColumns - 1)),
                            b_.getInt64(~std::uint64_t{kRegisterColumns - 1}));
  Value* begin = b_.getInt64(0);
  for (unsigned columns = kFirstLeft / block.rows; columns != 0; columns /= 2) {
    const unsigned width = columns * kRegisterColumns;
    Value* until = b_.CreateAnd(end, b_.getInt64(~std::uint64_t{width - 1}));
    block.columns = columns;
    loop(begin, until, width, {}, [&](Value* column, const Values&) {
      block.column = column;
      if (block.end_row == nullptr) {
        amx_block(tile, block);
        return Values{};
      }
      loop(b_.getInt64(0), block.end_row, block.rows * kRegisterRows, {},
           [&](Value* row, const Values&) {
             block.row = row;
             amx_block(tile, block);
             return Values{};
           });
      return Values{};
    });
    begin = until;
  }
}

/// Loads all sums of a block, or stores them.
void NestEmitter::amx_sums(const Tile& tile, const AmxBlock& block, bool stores) {
  const ContractStmt& s = tile.s;
  llvm::Type* type = scalars_.storage_type(nest_.buffers[s.acc].dtype, 0);
  Value* row = b_.CreateNSWMul(block.row, b_.getInt64(static_cast<std::uint64_t>(s.tile_columns)));
  Value* first = element_address(s.acc, b_.CreateNSWAdd(row, block.column));
  Value* pitch =
      b_.getInt64(static_cast<std::uint64_t>(s.tile_columns * kRowBytes / kRegisterColumns));
  for (unsigned k = 0; k < block.rows * block.columns; ++k) {
    const std::int64_t down = k / block.columns * kRegisterRows;
    const std::int64_t across = k % block.columns * kRegisterColumns;
    Value* at = b_.CreateGEP(
        type, first, b_.getInt64(static_cast<std::uint64_t>(down * s.tile_columns + across)));
    b_.CreateIntrinsic(stores ? Intrinsic::x86_tilestored64 : Intrinsic::x86_tileloadd64, {},
                       {register_number(b_, k), at, pitch});
  }
}

void NestEmitter::amx_block(const Tile& tile, const AmxBlock& block) {
  const ContractStmt& s = tile.s;
  if (s.accumulate) {
    amx_sums(tile, block, false);
  } else {
    for (unsigned k = 0; k < block.rows * block.columns; ++k)
      b_.CreateIntrinsic(Intrinsic::x86_tilezero, {}, {register_number(b_, k)});
  }
  Value* first_a = element_address(
      s.a.buffer, b_.CreateNSWAdd(tile.a_base, b_.CreateNSWMul(block.row, tile.a_row)));
  amx_runs(tile, block, 0, first_a, first_of_b(tile, block.column));
  amx_sums(tile, block, true);
}

void NestEmitter::amx_runs(const Tile& tile, const AmxBlock& block, std::size_t run, Value* first_a,
                           Value* first_b) {
  const ContractStmt& s = tile.s;
  if (run == s.runs.size()) {
    loop(b_.getInt64(0), block.depth, kRegisterColumns, {}, [&](Value* k, const Values&) {
      amx_step(tile, block, first_a, first_b, k);
      return Values{};
    });
    return;
  }
  llvm::Type* element = scalars_.storage_type(nest_.buffers[s.a.buffer].dtype, 0);
  Value* a_stride = scalar_index(s.runs[run].a_stride);
  Value* b_stride = scalar_index(s.runs[run].b_stride);
  loop(b_.getInt64(0), scalar_index(s.runs[run].count), 1, {}, [&](Value* number, const Values&) {
    amx_runs(tile, block, run + 1,
             b_.CreateGEP(element, first_a, b_.CreateNSWMul(number, a_stride)),
             b_.CreateGEP(element, first_b, b_.CreateNSWMul(number, b_stride)));
    return Values{};
  });
}

/// Step `k` of a block fetches its share of what comes next, in lines, so that all steps of a whole tile fetch all of it.
void NestEmitter::amx_fetch(const Tile& tile, const AmxBlock& block, Value* k) {
  const ContractStmt& s = tile.s;
  const auto* depth = llvm::dyn_cast<llvm::ConstantInt>(block.depth);
  if (s.ahead_count == 0 || depth == nullptr) return;
  constexpr std::int64_t kSquare = 2 * kRegisterColumns;  // rows and columns of most blocks
  constexpr std::int64_t kMostLines = 8;
  const std::int64_t rows = (s.tile_rows + kSquare - 1) / kSquare;
  const std::int64_t columns = (s.tile_columns + kSquare - 1) / kSquare;
  const std::int64_t steps = rows * columns * (depth->getSExtValue() / kRegisterColumns);
  const std::int64_t lines = (s.ahead_count + tile.line - 1) / tile.line;
  if (steps == 0) return;
  const std::int64_t each = std::min((lines + steps - 1) / steps, kMostLines);
  const auto number = [&](std::int64_t value) {
    return b_.getInt64(static_cast<std::uint64_t>(value));
  };
  const auto squares = [&](Value* at) { return b_.CreateUDiv(at, number(kSquare)); };
  Value* square =
      b_.CreateAdd(b_.CreateMul(squares(block.column), number(rows)), squares(block.row));
  Value* step = b_.CreateAdd(b_.CreateMul(square, number(depth->getSExtValue() / kRegisterColumns)),
                             b_.CreateUDiv(k, number(kRegisterColumns)));
  Value* from = b_.CreateAdd(scalar_index(s.ahead), b_.CreateMul(step, number(each * tile.line)));
  for (std::int64_t line = 0; line < each; ++line)
    fetch(element_address(s.b.buffer, b_.CreateAdd(from, number(line * tile.line))), 2);
}

/// 16 groups of the depth from `k` on. Each register is loaded next to its first product.
void NestEmitter::amx_step(const Tile& tile, const AmxBlock& block, Value* first_a, Value* first_b,
                           Value* k) {
  const ContractStmt& s = tile.s;
  amx_fetch(tile, block, k);
  const DType dtype = nest_.buffers[s.a.buffer].dtype;
  llvm::Type* element = scalars_.storage_type(dtype, 0);
  Value* along = b_.CreateNSWMul(k, b_.getInt64(static_cast<std::uint64_t>(s.group)));
  Value* left = b_.CreateGEP(element, first_a, along);
  Value* left_pitch = b_.CreateNSWMul(tile.a_row, b_.getInt64(size_of(dtype)));
  Value* right = b_.CreateGEP(element, first_b, b_.CreateNSWMul(k, tile.b_row));
  const std::int64_t of_panel = columns_of_panel(s);
  Value* right_pitch =
      b_.getInt64(static_cast<std::uint64_t>(of_panel * kRowBytes / kRegisterColumns));
  if (block.copy != nullptr) {
    auto* line = llvm::FixedVectorType::get(b_.getInt8Ty(), kRowBytes);
    for (unsigned r = 0; r < kRegisterRows; ++r) {
      Value* from = b_.CreateGEP(element, left, block.copied_rows[r]);
      Value* row = b_.CreateAlignedLoad(line, from, llvm::Align(kReadAlignment));
      b_.CreateAlignedStore(row, b_.CreateGEP(line, block.copy, b_.getInt64(std::uint64_t{r})),
                            llvm::Align(kRowBytes));
    }
    left = block.copy;
    left_pitch = b_.getInt64(kRowBytes);
  }
  const Intrinsic::ID multiply =
      is_floating(s.dtype) ? Intrinsic::x86_tdpbf16ps : Intrinsic::x86_tdpbusd;
  const auto place_of = [&](unsigned c) {
    const std::int64_t column = std::int64_t{c} * kRegisterColumns;
    const auto inside = static_cast<std::uint64_t>(column % of_panel * s.group);
    if (column < of_panel) return b_.CreateGEP(element, right, b_.getInt64(inside));
    Value* panels = b_.CreateNSWMul(scalar_index(s.panel_stride),
                                    b_.getInt64(static_cast<std::uint64_t>(column / of_panel)));
    return b_.CreateGEP(element, right, b_.CreateNSWAdd(panels, b_.getInt64(inside)));
  };
  for (unsigned r = 0; r < block.rows; ++r) {
    Value* rows = b_.CreateNSWMul(tile.a_row, b_.getInt64(r * kRegisterRows));
    Value* left_number = register_number(b_, kFirstLeft + r);
    b_.CreateIntrinsic(Intrinsic::x86_tileloadd64, {},
                       {left_number, b_.CreateGEP(element, left, rows), left_pitch});
    for (unsigned c = 0; c < block.columns; ++c) {
      Value* right_number = register_number(b_, kFirstRight + c % 2);
      if (r == 0)
        b_.CreateIntrinsic(Intrinsic::x86_tileloadd64, {},
                           {right_number, place_of(c), right_pitch});
      b_.CreateIntrinsic(multiply, {},
                         {register_number(b_, r * block.columns + c), left_number, right_number});
    }
  }
}

}  // namespace heddle::jit::cpu
