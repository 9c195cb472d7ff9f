// Nests that work on rows: one at a time, or as row_strips.h says.
#include <algorithm>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>

#include "jit/cpu/llvm/loop_shape.h"
#include "jit/cpu/llvm/nest_emitter.h"

namespace heddle::jit::cpu {

using llvm::Value;

/// A phase for one row.
struct NestEmitter::RowPart {
  const RowPhase& phase;
  Value* row;
  Value* place;  ///< of what is kept of the row, below RowStrips::held()
  Values locals;
  Values recalled;  ///< in the phase's order
};

void NestEmitter::emit_rows() {
  Value* begin = function_->getArg(2);
  Value* end = function_->getArg(3);
  begin_ = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, begin, end);
  end_ = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, begin, end);
  if (strips_.rows == 1) {
    Value* forward = b_.CreateICmpSLE(begin, end);
    Value* ends = b_.CreateSub(b_.CreateAdd(begin, end), b_.getInt64(1));
    loop(begin_, end_, 1, {}, [&](Value* i, const Values&) {
      set_symbol(nest_.parallel_axis, b_.CreateSelect(forward, i, b_.CreateSub(ends, i)));
      block(nest_.body);
      return Values{};
    });
    return;
  }
  row_locals_.assign(buffers_.begin() + nest_.global_count(), buffers_.end());
  // Phases may use what one before them, of another row, comes to later.
  for (const Stmt& statement : nest_.body)
    if (is_number(statement)) std::visit(*this, statement.node);
  if (strips_.is_merged)
    emit_merged();
  else
    emit_strips();
}

void NestEmitter::emit_strips() {
  Value* end = end_;
  Value* most = b_.getInt64(static_cast<std::uint64_t>(strips_.rows));
  loop(begin_, end, strips_.rows, {}, [&](Value* first, const Values&) {
    Value* rows = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b_.CreateSub(end, first), most);
    for (const RowPhase& phase : strips_.phases)
      loop(b_.getInt64(0), rows, 1, {}, [&](Value* k, const Values&) {
        emit_phase(row_part(phase, b_.CreateNSWAdd(first, k), k));
        return Values{};
      });
    return Values{};
  });
}

/// Phase k of row t - k for each t: all in one loop where all of these rows are there, else each by itself.
void NestEmitter::emit_merged() {
  Value* begin = begin_;
  Value* end = end_;
  const std::size_t count = strips_.phases.size();
  Value* before = b_.getInt64(count - 1);
  Value* places = b_.getInt64(static_cast<std::uint64_t>(strips_.held() - 1));
  const auto part = [&](std::size_t k, Value* t) {
    Value* row = b_.CreateNSWSub(t, b_.getInt64(k));
    return row_part(strips_.phases[k], row, b_.CreateAnd(row, places));
  };
  Value* some = b_.CreateICmpSLT(begin, end);
  Value* last = b_.CreateSelect(some, b_.CreateNSWAdd(end, before), begin);
  loop(begin, last, 1, {}, [&](Value* t, const Values&) {
    Value* whole =
        b_.CreateAnd(b_.CreateICmpSGE(b_.CreateNSWSub(t, before), begin), b_.CreateICmpSLT(t, end));
    when(
        whole,
        [&] {
          std::vector<RowPart> parts;
          for (std::size_t k = 0; k < count; ++k) parts.push_back(part(k, t));
          emit_phases(parts);
        },
        false);
    when(
        b_.CreateNot(whole),
        [&] {
          for (std::size_t k = 0; k < count; ++k) {
            Value* row = b_.CreateNSWSub(t, b_.getInt64(k));
            Value* is_there =
                b_.CreateAnd(b_.CreateICmpSGE(row, begin), b_.CreateICmpSLT(row, end));
            when(is_there, [&] { emit_phase(part(k, t)); }, false);
          }
        },
        true);
    return Values{};
  });
}

NestEmitter::RowPart NestEmitter::row_part(const RowPhase& phase, Value* row, Value* place) {
  RowPart part{.phase = phase, .row = row, .place = place, .locals = {}, .recalled = {}};
  for (std::size_t k = 0; k < row_locals_.size(); ++k) {
    const NestBuffer& local = nest_.buffers[nest_.global_count() + k];
    Value* elements = b_.getInt64(static_cast<std::uint64_t>(local.max_count));
    part.locals.push_back(b_.CreateGEP(scalars_.storage_type(local.dtype, 0), row_locals_[k],
                                       b_.CreateNSWMul(place, elements)));
  }
  for (const RowPhase::Scalar& scalar : phase.recalled) {
    llvm::Type* type = scalars_.compute_type(scalar.dtype, 0);
    dtypes_[scalar.id] = scalar.dtype;
    part.recalled.push_back(b_.CreateLoad(type, row_slot(scalar, place)));
  }
  return part;
}

/// What statements of the part's phase refer to is that of its row from here on.
void NestEmitter::enter(const RowPart& part) {
  set_symbol(nest_.parallel_axis, part.row);
  std::copy(part.locals.begin(), part.locals.end(), buffers_.begin() + nest_.global_count());
  for (std::size_t k = 0; k < part.recalled.size(); ++k)
    define(part.phase.recalled[k].id, part.recalled[k]);
}

void NestEmitter::keep(const RowPart& part) {
  for (const RowPhase::Scalar& scalar : part.phase.kept)
    b_.CreateStore(value(scalar.id), row_slot(scalar, part.place));
}

void NestEmitter::emit_phase(const RowPart& part) {
  const RowPhase& phase = part.phase;
  enter(part);
  block(std::span(nest_.body).subspan(phase.begin, phase.end - phase.begin));
  keep(part);
}

void NestEmitter::emit_phases(std::span<const RowPart> parts) {
  const std::span<const Stmt> body(nest_.body);
  std::vector<const ForStmt*> loops;
  bool in_place = false;
  for (const RowPart& part : parts) {
    enter(part);
    block(body.subspan(part.phase.begin, part.phase.loop - part.phase.begin));
    loops.push_back(&std::get<ForStmt>(body[part.phase.loop].node));
    hoist_uniform(*loops.back());
    in_place = in_place || inlines_math(analyse(*loops.back()), base_lanes_);
  }
  scalars_.inline_all_math(in_place);
  const unsigned width =
      main_width(analyse(*loops[0]), *loops[0], base_lanes_, strips_.most_vectors);
  const std::vector<Values> results =
      vector_loops(loops, width, [&](std::size_t k) { enter(parts[k]); });
  hoisted_.clear();
  for (std::size_t k = 0; k < parts.size(); ++k) {
    const RowPhase& phase = parts[k].phase;
    enter(parts[k]);
    define_results(*loops[k], results[k]);
    block(body.subspan(phase.loop + 1, phase.end - phase.loop - 1));
    keep(parts[k]);
  }
}

/// The memory of a scalar of the row at `place`.
Value* NestEmitter::row_slot(const RowPhase::Scalar& scalar, Value* place) {
  llvm::Type* type = scalars_.compute_type(scalar.dtype, 0);
  Value*& slots = row_slots_[scalar.id];
  if (slots == nullptr) {
    llvm::BasicBlock& entry = function_->getEntryBlock();
    llvm::IRBuilder<> start(&entry, entry.begin());
    slots =
        start.CreateAlloca(llvm::ArrayType::get(type, static_cast<std::uint64_t>(strips_.held())));
  }
  return b_.CreateGEP(type, slots, place);
}

}  // namespace heddle::jit::cpu
