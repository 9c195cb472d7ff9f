// Lanes that go along rows of a few elements, which lie side by side:
//
//   vector r < rows {
//     %0 = load x[2*r]
//     %1 = load x[2*r + 1]
//     store y[3*r] = %0   store y[3*r + 1] = %1   store y[3*r + 2] = %0
//   }
//
// Whole vectors are read and written, and shuffles take them apart and put them together; lane by lane, each element would be
// an access of its own.
#include <algorithm>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <tuple>

#include "jit/cpu/llvm/loop_shape.h"
#include "jit/cpu/llvm/nest_emitter.h"

namespace heddle::jit::cpu {
namespace {

using llvm::Value;

/// Element column + step * lane behind `rest` of a buffer.
struct ColumnAccess {
  SymExpr rest;
  std::int64_t step;
  std::int64_t column;
};

std::optional<ColumnAccess> column_access(const SymExpr& index, Symbol axis) {
  const auto linear = index.linear_in(axis);
  const auto step = linear ? linear->coefficient.as_constant() : std::nullopt;
  if (!step || *step < 2 || *step > kMostColumns) return std::nullopt;
  std::vector<Symbol> symbols;
  linear->rest.collect_symbols(symbols);
  for (const Symbol symbol : symbols)
    if (symbol.kind == Symbol::Kind::Temp) return std::nullopt;
  ColumnAccess access{linear->rest, *step, 0};
  if (access.rest.is_constant()) {
    access.column = access.rest.constant();
  } else if (access.rest.kind() == SymExpr::Kind::Sum) {
    for (const SymExpr& term : access.rest.operands())
      if (term.is_constant()) access.column = term.constant();
  }
  access.rest = access.rest - access.column;
  return access;
}

/// Vectors that lie one behind another from `first` of each on: lane k of the result is element step * k + column of them, where
/// step is how many there are.
Value* pick(llvm::IRBuilderBase& b, std::vector<Value*> vectors, std::vector<unsigned> first,
            unsigned column, unsigned lanes) {
  const auto lane_in = [&](unsigned k, unsigned place) {
    return place >= first[k] && place < first[k] + lanes ? static_cast<int>(place - first[k]) : -1;
  };
  // Halves first: few kinds of shuffles, which columns have in common.
  while (vectors.size() % 2 == 0) {
    for (unsigned k = 0; k < vectors.size() / 2; ++k) {
      std::vector<int> from(lanes, -1);
      for (unsigned lane = 0; lane < lanes; ++lane) {
        const unsigned place = 2 * (k * lanes + lane) + column % 2;
        const int at = lane_in(2 * k, place);
        const int later = lane_in(2 * k + 1, place);
        from[lane] = at >= 0 ? at : later >= 0 ? static_cast<int>(lanes) + later : -1;
      }
      vectors[k] = b.CreateShuffleVector(vectors[2 * k], vectors[2 * k + 1], from);
    }
    vectors.resize(vectors.size() / 2);
    first.resize(vectors.size());
    for (unsigned k = 0; k < first.size(); ++k) first[k] = k * lanes;
    column /= 2;
  }
  if (vectors.size() == 1) return vectors[0];
  const auto step = static_cast<unsigned>(vectors.size());
  Value* picked = llvm::PoisonValue::get(vectors[0]->getType());
  for (unsigned k = 0; k < step; ++k) {
    std::vector<int> from = lane_range(0, lanes);
    for (unsigned lane = 0; lane < lanes; ++lane)
      if (const int at = lane_in(k, lane * step + column); at >= 0)
        from[lane] = static_cast<int>(lanes) + at;
    picked = b.CreateShuffleVector(picked, vectors[k], from);
  }
  return picked;
}

/// The columns of rows as vectors that lie one behind another.
std::vector<Value*> join(llvm::IRBuilderBase& b, const std::vector<Value*>& columns,
                         unsigned lanes) {
  const auto width = static_cast<unsigned>(columns.size());
  if (width == 1) return columns;
  std::vector<Value*> joined;
  if (width % 2 == 0) {
    std::vector<Value*> halves[2];
    for (unsigned k = 0; k < width; ++k) halves[k % 2].push_back(columns[k]);
    halves[0] = join(b, halves[0], lanes);
    halves[1] = join(b, halves[1], lanes);
    for (unsigned k = 0; k < width; ++k) {
      std::vector<int> from;
      for (unsigned lane = 0; lane < lanes; ++lane)
        from.push_back(static_cast<int>((k % 2 * lanes + lane) / 2 + (lane % 2 == 0 ? 0 : lanes)));
      joined.push_back(b.CreateShuffleVector(halves[0][k / 2], halves[1][k / 2], from));
    }
    return joined;
  }
  for (unsigned k = 0; k < width; ++k) {
    Value* made = llvm::PoisonValue::get(columns[0]->getType());
    for (unsigned column = 0; column < width; ++column) {
      std::vector<int> from = lane_range(0, lanes);
      for (unsigned lane = 0; lane < lanes; ++lane) {
        const unsigned place = k * lanes + lane;
        if (place % width == column) from[lane] = static_cast<int>(lanes + place / width);
      }
      made = b.CreateShuffleVector(made, columns[column], from);
    }
    joined.push_back(made);
  }
  return joined;
}

}  // namespace

/// Which loads and stores of a loop have all of a row between them.
void NestEmitter::find_columns(const ForStmt& loop) {
  const auto key = [](NestBufferId buffer, const ColumnAccess& access) {
    return std::tuple(buffer, access.step, access.rest.to_string());
  };
  std::map<std::tuple<NestBufferId, std::int64_t, std::string>, std::map<std::int64_t, bool>> read;
  for (const Stmt& statement : *loop.body) {
    const auto* load = std::get_if<LoadStmt>(&statement.node);
    if (load == nullptr || load->mask != kNoScalar) continue;
    if (const auto access = column_access(load->index, loop.axis))
      read[key(load->buffer, *access)][access->column] = true;
  }
  const Block& body = *loop.body;
  for (const Stmt& statement : body) {
    const auto* load = std::get_if<LoadStmt>(&statement.node);
    if (load == nullptr || load->mask != kNoScalar) continue;
    const auto access = column_access(load->index, loop.axis);
    if (!access) continue;
    const auto& columns = read.at(key(load->buffer, *access));
    for (std::int64_t first = access->column - access->step + 1; first <= access->column; ++first) {
      std::int64_t count = 0;
      while (count < access->step && columns.contains(first + count)) ++count;
      if (count < access->step) continue;
      loaded_columns_[load] = access->column - first;
      break;
    }
  }
  for (std::size_t k = 0; k < body.size(); ++k) k += find_row(body, k, loop.axis);
}

/// Notes the stores from statement `begin` on that make whole rows. @return how many but for the last.
std::size_t NestEmitter::find_row(const Block& body, std::size_t begin, Symbol axis) {
  const auto store_at = [&](std::size_t k) -> const StoreStmt* {
    const auto* store = k < body.size() ? std::get_if<StoreStmt>(&body[k].node) : nullptr;
    return store == nullptr || store->mask != kNoScalar || store->combine ? nullptr : store;
  };
  const StoreStmt* first = store_at(begin);
  const auto row = first == nullptr ? std::nullopt : column_access(first->index, axis);
  if (!row) return 0;
  const auto count = static_cast<std::size_t>(row->step);
  for (std::size_t k = 1; k < count; ++k) {
    const StoreStmt* store = store_at(begin + k);
    if (store == nullptr || store->buffer != first->buffer) return 0;
    const auto column = column_access(store->index, axis);
    if (!column || column->step != row->step || column->rest != row->rest ||
        column->column != row->column + static_cast<std::int64_t>(k))
      return 0;
  }
  for (std::size_t k = 0; k < count; ++k)
    stored_columns_[store_at(begin + k)] = {static_cast<unsigned>(k), static_cast<unsigned>(count)};
  return count - 1;
}

/// Every step-th element: of whole vectors, a gather would read them one by one. Where nothing else is known to be there, the
/// last of these ends with the last element that is wanted.
Value* NestEmitter::pick_lanes(const LoadStmt& s, const Access& access) {
  const DType dtype = nest_.buffers[s.buffer].dtype;
  const unsigned lanes = std::min(
      lanes_, static_cast<unsigned>(target_.vector_bytes) / static_cast<unsigned>(size_of(dtype)));
  const auto step = static_cast<unsigned>(access.step);
  const auto found = loaded_columns_.find(&s);
  const bool whole = found != loaded_columns_.end();
  const auto column = static_cast<unsigned>(whole ? found->second : 0);
  const unsigned last = whole ? (step - 1) * lanes : (lanes - 1) * step + 1 - lanes;
  Value* base = b_.CreateNSWSub(access.index, b_.getInt64(column));
  // Elements that are there.
  Value* count = nullptr;
  if (active_ != nullptr) {
    count = b_.CreateMul(left_, b_.getInt32(step));
    if (!whole) count = b_.CreateSub(count, b_.getInt32(step - 1));
  }
  llvm::Type* type = scalars_.storage_type(dtype, lanes);
  const llvm::Align align(kReadAlignment);
  Values parts;
  for (unsigned begin = 0; begin < lanes_; begin += lanes) {
    Values vectors;
    std::vector<unsigned> firsts;
    for (unsigned k = 0; k < step; ++k) {
      firsts.push_back(std::min(k * lanes, last));
      const unsigned place = begin * step + firsts[k];
      Value* address = element_address(s.buffer, b_.CreateNSWAdd(base, b_.getInt64(place)));
      vectors.push_back(count == nullptr
                            ? static_cast<Value*>(b_.CreateAlignedLoad(type, address, align))
                            : b_.CreateMaskedLoad(type, address, align,
                                                  lanes_below(count, place, 1, lanes),
                                                  llvm::Constant::getNullValue(type)));
    }
    parts.push_back(pick(b_, std::move(vectors), std::move(firsts), column, lanes));
  }
  return concatenate(b_, std::move(parts));
}

/// Neighbours, each in step lanes; zeros where `wanted`, if there is such a condition, does not hold.
Value* NestEmitter::repeat_lanes(NestBufferId buffer, const Access& access, Value* wanted) {
  if (access.unit != 1) return repeat_apart(buffer, access, wanted);
  const auto step = static_cast<unsigned>(access.step);
  const unsigned count = lanes_ / step;
  llvm::Type* type = scalars_.storage_type(nest_.buffers[buffer].dtype, count);
  Value* address = element_address(buffer, access.index);
  // An element is there if its first lane is.
  Value* mask = active_ == nullptr ? nullptr : lanes_below(left_, 0, step, count);
  if (wanted != nullptr) {
    address = b_.CreateSelect(wanted, address, zeros_);
    Value* all = widened(wanted, count);
    mask = mask == nullptr ? all : b_.CreateAnd(mask, all);
  }
  const llvm::Align align(kReadAlignment);
  Value* read = mask == nullptr ? static_cast<Value*>(b_.CreateAlignedLoad(type, address, align))
                                : b_.CreateMaskedLoad(type, address, align, mask,
                                                      llvm::Constant::getNullValue(type));
  std::vector<int> from(lanes_);
  for (unsigned lane = 0; lane < lanes_; ++lane) from[lane] = static_cast<int>(lane / step);
  return b_.CreateShuffleVector(read, from);
}

/// The same of elements that are no neighbours: each is loaded into all lanes, of which it keeps its own.
Value* NestEmitter::repeat_apart(NestBufferId buffer, const Access& access, Value* wanted) {
  const auto step = static_cast<unsigned>(access.step);
  llvm::Type* element = scalars_.storage_type(nest_.buffers[buffer].dtype, 0);
  Value* lanes = nullptr;
  for (unsigned k = 0; k < lanes_ / step; ++k) {
    Value* place = b_.getInt64(k * static_cast<std::uint64_t>(access.unit));
    Value* address = element_address(buffer, b_.CreateNSWAdd(access.index, place));
    if (wanted != nullptr) address = b_.CreateSelect(wanted, address, zeros_);
    if (active_ != nullptr)
      address = b_.CreateSelect(b_.CreateICmpSLT(b_.getInt32(k * step), left_), address, zeros_);
    Value* wide = b_.CreateVectorSplat(
        lanes_, b_.CreateAlignedLoad(element, address, llvm::Align(kReadAlignment)));
    std::vector<int> from(lanes_);
    for (unsigned lane = 0; lane < lanes_; ++lane)
      from[lane] = static_cast<int>(lane < k * step ? lane : lanes_ + lane);
    lanes = lanes == nullptr ? wide : b_.CreateShuffleVector(lanes, wide, from);
  }
  return lanes;
}

/// Keeps what a store of a row stores until the row is complete. False where the store is none of a row.
bool NestEmitter::store_column(const StoreStmt& s) {
  const auto found = stored_columns_.find(&s);
  if (found == stored_columns_.end()) return false;
  const auto [column, count] = found->second;
  if (column == 0) {
    row_values_.clear();
    row_index_ = classify(s.index).index;
  }
  row_values_.push_back(
      scalars_.to_storage(nest_.buffers[s.buffer].dtype, widened(value(s.operand), lanes_)));
  if (column + 1 == count) write_rows(s.buffer);
  return true;
}

void NestEmitter::write_rows(NestBufferId buffer) {
  const auto size = static_cast<unsigned>(size_of(nest_.buffers[buffer].dtype));
  const unsigned lanes = std::min(lanes_, static_cast<unsigned>(target_.vector_bytes) / size);
  const auto width = static_cast<unsigned>(row_values_.size());
  Value* count = active_ == nullptr ? nullptr : b_.CreateMul(left_, b_.getInt32(width));
  for (unsigned row = 0; row < lanes_; row += lanes) {
    Values columns = row_values_;
    if (lanes != lanes_)
      for (Value*& column : columns)
        column = b_.CreateShuffleVector(column, lane_range(row, lanes));
    unsigned place = row * width;
    for (Value* vector : join(b_, columns, lanes)) {
      Value* address = element_address(buffer, b_.CreateNSWAdd(row_index_, b_.getInt64(place)));
      if (count == nullptr)
        b_.CreateAlignedStore(vector, address, llvm::Align(size));
      else
        b_.CreateMaskedStore(vector, address, llvm::Align(size),
                             lanes_below(count, place, 1, lanes));
      place += lanes;
    }
  }
}

}  // namespace heddle::jit::cpu
