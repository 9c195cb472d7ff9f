// Loops that turn a matrix around, in registers.
//
//   serial r < rows { vector c < columns {          of a local buffer: rows, columns <= pitch
//     %0 = load from[stride*r + c + rest]
//     store to[r + pitch*c + rest] = %0
//   } }
//
// Squares of as many rows as a vector has lanes are loaded row by row, turned by shuffles and stored row by row. Lane by lane a
// vector of 16 floats takes 16 loads or stores; this takes one of each and 4 shuffles.
#include <algorithm>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>

#include "jit/cpu/llvm/nest_emitter.h"
#include "jit/cpu/llvm/turn.h"

namespace heddle::jit::cpu {
namespace {

using llvm::Value;
using Values = std::vector<Value*>;

/// Of 8 and 16 bits more lanes than this would leave squares that few tiles fill.
constexpr unsigned kMostLanes = 16;

/// The only statement of a block, if it is a T.
template <class T>
const T* only(const Block& block) {
  return block.size() == 1 ? std::get_if<T>(&block[0].node) : nullptr;
}

bool is_plain(const ForStmt& loop, ForStmt::Kind kind) {
  return loop.kind == kind && loop.reductions.empty() && loop.carried.empty();
}

std::optional<std::int64_t> most(const SymExpr& extent) {
  if (extent.is_constant()) return extent.constant();
  if (extent.kind() != SymExpr::Kind::Min) return std::nullopt;
  std::optional<std::int64_t> least;
  for (const SymExpr& side : extent.operands())
    if (side.is_constant()) least = std::min(least.value_or(side.constant()), side.constant());
  return least;
}

}  // namespace

struct NestEmitter::Turned {
  NestBufferId from, to;
  bool in_tile;    ///< squares beyond the last row and column stay within what is stored to
  unsigned lanes;  ///< rows and columns of a square
  Value* begin;    ///< index of the first element stored
  Value* pitch;    ///< elements from column to column, as they are stored
  Value* rows;
  Value* columns;
  Value* first;   ///< index of the first element
  Value* stride;  ///< elements from row to row
};

/// The loop `outer` as what the head of this file shows; nothing where it is anything else.
std::optional<NestEmitter::Turned> NestEmitter::turned(const ForStmt& outer) {
  if (lanes_ != 0 || !is_plain(outer, ForStmt::Kind::Serial)) return std::nullopt;
  const auto* inner = only<ForStmt>(*outer.body);
  if (inner == nullptr || !is_plain(*inner, ForStmt::Kind::Vector) || inner->body->size() != 2)
    return std::nullopt;
  const auto* load = std::get_if<LoadStmt>(&inner->body->front().node);
  const auto* store = std::get_if<StoreStmt>(&inner->body->back().node);
  if (load == nullptr || store == nullptr || load->mask != kNoScalar || store->mask != kNoScalar ||
      store->combine || store->operand != load->result)
    return std::nullopt;
  const NestBuffer& tile = nest_.buffers[store->buffer];
  const NestBuffer& source = nest_.buffers[load->buffer];
  const bool is_local = store->buffer >= nest_.global_count();
  if (store->buffer == load->buffer || tile.dtype != source.dtype) return std::nullopt;

  const auto to_column = store->index.linear_in(inner->axis);
  const auto from_column = load->index.linear_in(inner->axis);
  if (!to_column || !from_column || !from_column->coefficient.is_constant(1)) return std::nullopt;
  const auto to_row = to_column->rest.linear_in(outer.axis);
  const auto from_row = from_column->rest.linear_in(outer.axis);
  if (!to_row || !from_row || !to_row->coefficient.is_constant(1) ||
      inner->extent.mentions(outer.axis) || to_column->coefficient.mentions(outer.axis))
    return std::nullopt;

  const auto size = static_cast<unsigned>(size_of(tile.dtype));
  const unsigned lanes = std::min(static_cast<unsigned>(target_.vector_bytes) / size, kMostLanes);
  if (is_local) {
    const auto pitch = to_column->coefficient.as_constant();
    const auto within = [&](std::optional<std::int64_t> count) {
      return count && *count <= *pitch && *pitch % lanes == 0;
    };
    if (!pitch || !to_row->rest.is_constant(0) || !within(most(outer.extent)) ||
        !within(most(inner->extent)) || tile.max_count < *pitch * *pitch)
      return std::nullopt;
  }
  return Turned{load->buffer,
                store->buffer,
                is_local,
                lanes,
                scalar_index(to_row->rest),
                scalar_index(to_column->coefficient),
                scalar_index(outer.extent),
                scalar_index(inner->extent),
                scalar_index(from_row->rest),
                scalar_index(from_row->coefficient)};
}

/// The square of rows from `row` and columns from `column` on. Those of them that do not exist are, if `partial`, other
/// rows and zeros.
void NestEmitter::turn_square(const Turned& t, Value* row, Value* column, bool partial) {
  const DType dtype = nest_.buffers[t.from].dtype;
  const auto size = static_cast<unsigned>(size_of(dtype));
  auto* vector = llvm::FixedVectorType::get(b_.getIntNTy(8 * size), t.lanes);
  const auto numbers = [&] {
    llvm::SmallVector<llvm::Constant*, kMostLanes> all;
    for (unsigned k = 0; k < t.lanes; ++k) all.push_back(b_.getInt64(k));
    return llvm::ConstantVector::get(all);
  };
  Value* mask = nullptr;
  if (partial) {
    Value* left = b_.CreateVectorSplat(t.lanes, b_.CreateNSWSub(t.columns, column));
    mask = b_.CreateICmpSLT(numbers(), left);
  }
  Value* last = b_.CreateNSWSub(t.rows, b_.getInt64(1));
  Values square;
  for (unsigned k = 0; k < t.lanes; ++k) {
    Value* r = b_.CreateNSWAdd(row, b_.getInt64(k));
    if (partial) r = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, r, last);
    Value* at = b_.CreateNSWAdd(b_.CreateNSWMul(r, t.stride), column);
    Value* address = element_address(t.from, b_.CreateNSWAdd(t.first, at));
    const llvm::Align align(kReadAlignment);
    square.push_back(partial
                         ? static_cast<Value*>(b_.CreateMaskedLoad(
                               vector, address, align, mask, llvm::Constant::getNullValue(vector)))
                         : b_.CreateAlignedLoad(vector, address, align));
  }
  turn(b_, square);
  const bool masked = partial && !t.in_tile;
  Value* rows = masked ? b_.CreateICmpSLT(
                             numbers(), b_.CreateVectorSplat(t.lanes, b_.CreateNSWSub(t.rows, row)))
                       : nullptr;
  for (unsigned k = 0; k < t.lanes; ++k) {
    Value* c = b_.CreateNSWAdd(column, b_.getInt64(k));
    Value* at = b_.CreateNSWAdd(t.begin, b_.CreateNSWAdd(b_.CreateNSWMul(c, t.pitch), row));
    Value* address = element_address(t.to, at);
    if (!masked) {
      b_.CreateAlignedStore(square[k], address, llvm::Align(size));
      continue;
    }
    when(
        b_.CreateICmpSLT(c, t.columns),
        [&] { b_.CreateMaskedStore(square[k], address, llvm::Align(size), rows); }, false);
  }
}

bool NestEmitter::turning_loop(const ForStmt& s) {
  const auto found = turned(s);
  if (!found) return false;
  const Turned& t = *found;
  Value* lanes = b_.getInt64(t.lanes);
  const auto squares = [&](bool partial) {
    // The last ones end where the matrix does, over what others have turned already.
    const auto begin = [&](Value* at, Value* count) {
      return partial ? at
                     : b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, at,
                                                b_.CreateNSWSub(count, lanes));
    };
    loop(b_.getInt64(0), t.rows, t.lanes, {}, [&](Value* row, const Values&) {
      loop(b_.getInt64(0), t.columns, t.lanes, {}, [&](Value* column, const Values&) {
        turn_square(t, begin(row, t.rows), begin(column, t.columns), partial);
        return Values{};
      });
      return Values{};
    });
  };
  Value* whole = b_.CreateAnd(b_.CreateICmpSGE(t.rows, lanes), b_.CreateICmpSGE(t.columns, lanes));
  when(whole, [&] { squares(false); }, false);
  when(b_.CreateNot(whole), [&] { squares(true); }, true);
  return true;
}

}  // namespace heddle::jit::cpu
