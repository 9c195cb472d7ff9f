// Loops and reductions.
#include <algorithm>
#include <limits>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>
#include <unordered_set>

#include "base/check.h"
#include "jit/cpu/llvm/fixed_indices.h"
#include "jit/cpu/llvm/loop_shape.h"
#include "jit/cpu/llvm/nest_emitter.h"

namespace heddle::jit::cpu {
namespace {

using ir::ReduceOp;
using llvm::Value;

/// A loop of this constant extent is written out when it asks to be unrolled.
constexpr std::int64_t kMostUnrolled = 32;

/// Values that a vector loop carries from one iteration to the next.
std::size_t reduced_count(const ForStmt& s) {
  std::size_t count = 0;
  for (const LoopReduction& r : s.reductions) count += static_cast<std::size_t>(ir::width_of(r.op));
  return count;
}

void append(std::vector<Value*>& to, const std::vector<Value*>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

bool is_arg(ReduceOp op) { return op == ReduceOp::ArgMax || op == ReduceOp::ArgMin; }

std::int64_t lowest_integer(DType dtype) {
  if (!is_signed(dtype)) return 0;
  return std::numeric_limits<std::int64_t>::min() >> (64 - 8 * size_of(dtype));
}

std::int64_t highest_integer(DType dtype) {
  if (dtype == DType::Bool) return 1;
  const std::size_t bits = 8 * size_of(dtype);
  if (!is_signed(dtype)) return bits == 64 ? -1 : (std::int64_t{1} << bits) - 1;
  return ~lowest_integer(dtype);
}

bool pure_operands(const Stmt& statement, std::vector<ScalarId>& operands,
                   std::vector<const SymExpr*>& indices) {
  if (const auto* apply = std::get_if<ApplyStmt>(&statement.node)) {
    operands = apply->operands;
  } else if (const auto* convert = std::get_if<ConvertStmt>(&statement.node)) {
    operands = {convert->operand};
  } else if (const auto* index = std::get_if<IndexStmt>(&statement.node)) {
    indices = {&index->index};
  } else if (const auto* load = std::get_if<LoadStmt>(&statement.node)) {
    indices = {&load->index};
    if (load->mask != kNoScalar) return false;
  } else {
    return is_number(statement);
  }
  return true;
}

/// The scalars and temporaries that a statement defines.
void collect_definitions(const Stmt& statement, std::unordered_set<ScalarId>& scalars,
                         std::vector<Symbol>& temps) {
  std::visit(
      [&](const auto& s) {
        using T = std::decay_t<decltype(s)>;
        if constexpr (std::is_same_v<T, BindStmt>) {
          temps.push_back(s.symbol);
        } else if constexpr (std::is_same_v<T, ForStmt>) {
          for (const LoopReduction& r : s.reductions)
            scalars.insert(r.results.begin(), r.results.end());
          for (const LoopCarried& c : s.carried) scalars.insert(c.result);
        } else if constexpr (requires { s.result; }) {
          scalars.insert(s.result);
        }
      },
      statement.node);
}

}  // namespace

void NestEmitter::when(Value* condition, const std::function<void()>& body, bool unlikely) {
  auto* then = llvm::BasicBlock::Create(b_.getContext(), "then", function_);
  auto* after = llvm::BasicBlock::Create(b_.getContext(), "after", function_);
  llvm::MDNode* weights =
      unlikely ? llvm::MDBuilder(b_.getContext()).createBranchWeights(1, 2000) : nullptr;
  b_.CreateCondBr(condition, then, after, weights);
  b_.SetInsertPoint(then);
  body();
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
}

NestEmitter::Values NestEmitter::loop(Value* from, Value* limit, std::int64_t step,
                                      const Values& initials,
                                      const std::function<Values(Value*, const Values&)>& body) {
  if (from == limit) return initials;
  const auto* first = llvm::dyn_cast<llvm::ConstantInt>(from);
  const auto* last = llvm::dyn_cast<llvm::ConstantInt>(limit);
  if (first != nullptr && last != nullptr && first->getSExtValue() >= last->getSExtValue())
    return initials;

  // One iteration knows its place, and with it the mask of a tail.
  if (first != nullptr && last != nullptr && last->getSExtValue() - first->getSExtValue() <= step)
    return body(from, initials);

  llvm::BasicBlock* before = b_.GetInsertBlock();
  auto* head = llvm::BasicBlock::Create(b_.getContext(), "loop", function_);
  auto* after = llvm::BasicBlock::Create(b_.getContext(), "loop.end", function_);
  llvm::Instruction* enters = b_.CreateCondBr(b_.CreateICmpSLT(from, limit), head, after);
  levels_.push_back({enters, {}});
  ++depth_;
  b_.SetInsertPoint(head);
  llvm::PHINode* i = b_.CreatePHI(b_.getInt64Ty(), 2);
  i->addIncoming(from, before);
  Values currents;
  for (Value* initial : initials) {
    llvm::PHINode* phi = b_.CreatePHI(initial->getType(), 2);
    phi->addIncoming(initial, before);
    currents.push_back(phi);
  }
  const Values nexts = body(i, currents);
  levels_.pop_back();
  --depth_;
  llvm::BasicBlock* latch = b_.GetInsertBlock();
  Value* next = b_.CreateNSWAdd(i, b_.getInt64(static_cast<std::uint64_t>(step)));
  i->addIncoming(next, latch);
  b_.CreateCondBr(b_.CreateICmpSLT(next, limit), head, after);
  b_.SetInsertPoint(after);
  Values results;
  for (std::size_t k = 0; k < initials.size(); ++k) {
    llvm::cast<llvm::PHINode>(currents[k])->addIncoming(nexts[k], latch);
    llvm::PHINode* phi = b_.CreatePHI(initials[k]->getType(), 2);
    phi->addIncoming(initials[k], before);
    phi->addIncoming(nexts[k], latch);
    results.push_back(phi);
  }
  return results;
}

void NestEmitter::operator()(const ForStmt& s) {
  const std::size_t outside = fixed_indices_.size();
  const std::size_t inverses = fixed_inverses_.size();
  for (const SymExpr& expr : fixed_divisions(s))
    if (fixed_index(expr) == nullptr)
      fixed_indices_.emplace_back(expr, Bound{index_value(expr), depth_});
  for (const SymExpr& divisor : fixed_divisors(s))
    if (fixed_inverse(divisor) == nullptr)
      fixed_inverses_.emplace_back(divisor,
                                   Bound{scalars_.index_inverse(index_value(divisor)), depth_});
  emit_loop(s);
  fixed_indices_.resize(outside);
  fixed_inverses_.resize(inverses);
}

void NestEmitter::emit_loop(const ForStmt& s) {
  if (turning_loop(s)) return;
  if (s.kind != ForStmt::Kind::Vector) return serial_loop(s);
  if (analyse(s).needs_scalar) return serial_loop(s);
  vector_loop(s);
}

void NestEmitter::serial_loop(const ForStmt& s) {
  Values state = initial_state(s, lanes_, 0);
  const auto extent = s.extent.as_constant();
  if (s.kind == ForStmt::Kind::Unroll && extent && *extent <= kMostUnrolled) {
    for (std::int64_t k = 0; k < *extent; ++k)
      state = run_body(s, b_.getInt64(static_cast<std::uint64_t>(k)), state);
  } else {
    state = loop(b_.getInt64(0), scalar_index(s.extent), 1, state,
                 [&](Value* i, const Values& current) {
                   keep_amx_awake(s, i);
                   return run_body(s, i, current);
                 });
  }
  define_results(s, state);
}

void NestEmitter::vector_loop(const ForStmt& s) {
  const LoopShape shape = analyse(s);
  const unsigned width = main_width(shape, s, base_lanes_, strips_.most_vectors);
  scalars_.inline_all_math(inlines_math(shape, base_lanes_));
  hoist_uniform(s);
  find_columns(s);
  const ForStmt* loops[] = {&s};
  std::vector<Values> results(1);
  const auto emit = [&](unsigned lanes) {
    results = vector_loops(loops, lanes, [](std::size_t) {});
  };
  const bool is_near = emit_near(s, emit, width);
  if (!is_near) emit(width);
  hoisted_.clear();
  if (!is_near) define_results(s, results[0]);
}

/// Loops of one extent, each iteration of the first, then of the next; `enter(k)` comes before loop k in each.
/// @return of each loop what it reduces, as scalars.
std::vector<NestEmitter::Values> NestEmitter::vector_loops(
    std::span<const ForStmt* const> loops, unsigned width,
    const std::function<void(std::size_t)>& enter) {
  Value* extent = scalar_index(loops[0]->extent);
  const auto apart = [&](const Values& joined, const auto& each) {
    std::size_t begin = 0;
    for (std::size_t k = 0; k < loops.size(); ++k) {
      const std::size_t count = reduced_count(*loops[k]);
      each(k, Values(joined.begin() + static_cast<std::ptrdiff_t>(begin),
                     joined.begin() + static_cast<std::ptrdiff_t>(begin + count)));
      begin += count;
    }
  };
  // Vectors that have no masks of their own are masked in no more than one iteration.
  const bool has_masks = target_.vector_bytes == 64;
  const auto run = [&](unsigned lanes, bool masked) {
    return [&, lanes, masked](Value* i, const Values& current) {
      Value* left = nullptr;
      if (masked)
        left = has_masks ? b_.CreateSub(extent, i)
                         : b_.CreateAnd(extent, b_.getInt64(std::uint64_t{lanes} - 1));
      Value* axis = set_lanes(i, lanes, left);
      Values next;
      apart(current, [&](std::size_t k, const Values& mine) {
        enter(k);
        vector_axis_ = loops[k]->axis;
        append(next, run_body(*loops[k], axis, mine));
      });
      lanes_ = 0;
      active_ = nullptr;
      return next;
    };
  };
  const auto narrowed = [&](const Values& state, unsigned lanes) {
    Values next;
    apart(state, [&](std::size_t k, const Values& mine) {
      append(next, narrow_state(*loops[k], mine, lanes));
    });
    return next;
  };
  const auto whole = [&](unsigned lanes) {
    const bool is_whole =
        base::divide_exact(loops[0]->extent, SymExpr(std::int64_t{lanes})).has_value();
    return is_whole ? extent : b_.CreateAnd(extent, b_.getInt64(~(std::uint64_t{lanes} - 1)));
  };
  // What is left over fits 32 bits only below the main width, so the tail starts there.
  Value* main_limit = whole(width);
  Values state;
  for (const ForStmt* s : loops) append(state, initial_state(*s, width, 1));
  state = loop(b_.getInt64(0), main_limit, width, state, run(width, false));
  // Of columns that go by so many, those left over go by fewer first.
  constexpr unsigned kUsualVectors = 8;
  constexpr unsigned kRestVectors = 4;
  if (width > kUsualVectors * base_lanes_) {
    const unsigned lanes = kRestVectors * base_lanes_;
    Value* limit = whole(lanes);
    state = loop(main_limit, limit, lanes, narrowed(state, lanes), run(lanes, false));
    main_limit = limit;
  }
  state = narrowed(state, base_lanes_);
  if (main_limit != extent)
    for (Value*& v : state) v = widened(v, base_lanes_);
  // Bytes that are stored under a mask take several times as long.
  const auto stores_bytes = [&](const Stmt& statement) {
    const auto* store = std::get_if<StoreStmt>(&statement.node);
    return store != nullptr && size_of(nest_.buffers[store->buffer].dtype) == 1;
  };
  const bool bytes = std::ranges::any_of(
      loops, [&](const ForStmt* s) { return std::ranges::any_of(*s->body, stores_bytes); });
  if (!has_masks || (bytes && width != base_lanes_)) {
    Value* limit = whole(base_lanes_);
    if (width != base_lanes_)
      state = loop(main_limit, limit, base_lanes_, state, run(base_lanes_, false));
    main_limit = limit;
  }
  state = narrowed(loop(main_limit, extent, base_lanes_, state, run(base_lanes_, true)), 0);
  std::vector<Values> results(loops.size());
  apart(state, [&](std::size_t k, const Values& mine) { results[k] = mine; });
  return results;
}

/// Begins an iteration of `lanes` elements from `first` on, those but the first `left` masked if that is not null.
/// @return the axis's value in each lane.
Value* NestEmitter::set_lanes(Value* first, unsigned lanes, Value* left) {
  lanes_ = lanes;
  vector_base_ = first;
  if (left != nullptr) {
    left_ = b_.CreateTrunc(left, b_.getInt32Ty());
    active_ = lanes_below(left_, 0, 1, lanes);
  }
  return b_.CreateNSWAdd(widened(first, lanes), lane_offsets(1));
}

void NestEmitter::hoist_uniform(const ForStmt& s) {
  std::unordered_set<ScalarId> inside;
  std::vector<Symbol> temps{s.axis};
  Value* runs = nullptr;
  for (const Stmt& statement : *s.body) {
    std::vector<ScalarId> operands;
    std::vector<const SymExpr*> indices;
    bool uniform = pure_operands(statement, operands, indices);
    for (ScalarId id : operands) uniform = uniform && inside.count(id) == 0;
    for (const SymExpr* index : indices)
      for (Symbol temp : temps) uniform = uniform && !index->mentions(temp);
    const auto* load = std::get_if<LoadStmt>(&statement.node);
    if (uniform && load != nullptr && nest_.buffers[load->buffer].written) uniform = false;
    if (!uniform) {
      collect_definitions(statement, inside, temps);
      continue;
    }
    if (load == nullptr) {
      std::visit(*this, statement.node);
    } else {
      // Nothing may be read for a loop that does not run.
      if (runs == nullptr) runs = b_.CreateICmpSGT(scalar_index(s.extent), b_.getInt64(0));
      Value* address = element_address(load->buffer, index_value(load->index));
      dtypes_[load->result] = load->dtype;
      define(load->result, load_scalar(nest_.buffers[load->buffer], address, runs));
    }
    hoisted_.push_back(&statement);
  }
}

NestEmitter::Values NestEmitter::run_body(const ForStmt& s, Value* axis, const Values& state) {
  set_symbol(s.axis, axis);
  const std::size_t reduced = reduced_count(s);
  for (std::size_t k = 0; k < s.carried.size(); ++k) {
    dtypes_[s.carried[k].current] = s.carried[k].dtype;
    define(s.carried[k].current, state[reduced + k]);
  }
  block(*s.body);
  Values next;
  std::size_t place = 0;
  const bool vector = s.kind == ForStmt::Kind::Vector && lanes_ != 0;
  for (const LoopReduction& r : s.reductions) {
    const auto width = static_cast<std::size_t>(ir::width_of(r.op));
    Value* mask = nullptr;
    if (vector) {
      mask = lane_mask(r.mask);
    } else if (r.mask != kNoScalar) {
      mask = widened(value(r.mask), lanes_);
    }
    const Values current(state.begin() + static_cast<std::ptrdiff_t>(place),
                         state.begin() + static_cast<std::ptrdiff_t>(place + width));
    append(next,
           ordered_places(s, r) ? later_extreme(r, current, mask) : accumulate(r, current, mask));
    place += width;
  }
  for (const LoopCarried& c : s.carried)
    next.push_back(widened(value(c.next), lanes_of(state[place++])));
  return next;
}

NestEmitter::Values NestEmitter::initial_state(const ForStmt& s, unsigned lanes,
                                               std::int64_t step) {
  Values state;
  for (const LoopReduction& r : s.reductions) {
    append(state, identity(r, lanes));
    const auto places = ordered_places(s, r);
    if (!places) continue;
    // The first place of each lane, which is right if no element is better than the worst there is.
    const DType dtype = places->are_narrow ? DType::I32 : DType::I64;
    state.back() = scalars_.constant(dtype, 0, places->first, lanes);
    if (step == 0 || lanes == 0) continue;
    llvm::SmallVector<llvm::Constant*, 64> firsts;
    for (unsigned k = 0; k < lanes; ++k)
      firsts.push_back(llvm::ConstantInt::get(
          state.back()->getType()->getScalarType(),
          static_cast<std::uint64_t>(places->first + places->step * step * k)));
    state.back() = llvm::ConstantVector::get(firsts);
  }
  for (const LoopCarried& c : s.carried) state.push_back(widened(value(c.initial), lanes));
  return state;
}

NestEmitter::Values NestEmitter::identity(const LoopReduction& r, unsigned lanes) {
  const auto number = [&](double real, std::int64_t integer) {
    return scalars_.constant(r.dtype, real, integer, lanes);
  };
  const double infinity = std::numeric_limits<double>::infinity();
  const auto lowest = [&] { return number(-infinity, lowest_integer(r.dtype)); };
  const auto highest = [&] { return number(infinity, highest_integer(r.dtype)); };
  const auto no_index = [&] {
    return scalars_.constant(DType::I64, 0, std::numeric_limits<std::int64_t>::max(), lanes);
  };
  switch (r.op) {
    case ReduceOp::Sum:
    case ReduceOp::Or:
      return {number(0, 0)};
    case ReduceOp::Prod:
    case ReduceOp::And:
      return {number(1, 1)};
    case ReduceOp::Max:
      return {lowest()};
    case ReduceOp::Min:
      return {highest()};
    case ReduceOp::ArgMax:
      return {lowest(), no_index()};
    case ReduceOp::ArgMin:
      return {highest(), no_index()};
    case ReduceOp::Welford:
      // All lanes count alike unless a mask tells them apart.
      return {number(0, 0), number(0, 0),
              scalars_.constant(r.dtype, 0, 0, r.mask == kNoScalar ? 0 : lanes)};
  }
  return {};
}

NestEmitter::Values NestEmitter::accumulate(const LoopReduction& r, const Values& state,
                                            Value* mask) {
  const unsigned lanes = lanes_of(state[0]);
  Values given;
  for (ScalarId id : r.contributions) given.push_back(widened(value(id), lanes));
  if (r.op == ReduceOp::Welford) return welford_step(state, given[0], mask);
  if (mask != nullptr) {
    const Values neutral = identity(r, lanes);
    for (std::size_t k = 0; k < given.size(); ++k)
      given[k] = b_.CreateSelect(mask, given[k], neutral[k]);
  }
  return combine(r, state, given);
}

NestEmitter::Values NestEmitter::later_extreme(const LoopReduction& r, const Values& state,
                                               Value* mask) {
  const unsigned lanes = lanes_of(state[0]);
  Value* element = widened(value(r.contributions[0]), lanes);
  Value* place = b_.CreateTrunc(widened(value(r.contributions[1]), lanes), state[1]->getType());
  const bool is_max = r.op == ReduceOp::ArgMax;
  Value* wins = nullptr;
  if (is_floating(r.dtype)) {
    // The first NaN is the extreme.
    wins = is_max ? b_.CreateFCmpUGT(element, state[0]) : b_.CreateFCmpULT(element, state[0]);
    wins = b_.CreateAnd(wins, b_.CreateFCmpORD(state[0], state[0]));
  } else {
    const auto better = is_max ? ir::ScalarOp::Gt : ir::ScalarOp::Lt;
    wins = scalars_.apply(better, r.dtype, Values{element, state[0]});
  }
  if (mask != nullptr) wins = b_.CreateAnd(wins, mask);
  return {b_.CreateSelect(wins, element, state[0]), b_.CreateSelect(wins, place, state[1])};
}

NestEmitter::Values NestEmitter::combine(const LoopReduction& r, const Values& a, const Values& b) {
  const ReduceOp op = r.op;
  const DType dtype = r.dtype;
  const auto apply = [&](ir::ScalarOp scalar) {
    return Values{scalars_.apply(scalar, dtype, Values{a[0], b[0]})};
  };
  if (op == ReduceOp::Sum) return apply(ir::ScalarOp::Add);
  if (op == ReduceOp::Prod) return apply(ir::ScalarOp::Mul);
  if (op == ReduceOp::Max && maxima_.without_nan.count(r.results[0]) != 0)
    return {scalars_.any_larger(a[0], b[0])};
  if (op == ReduceOp::Max) return apply(ir::ScalarOp::Max);
  if (op == ReduceOp::Min) return apply(ir::ScalarOp::Min);
  if (op == ReduceOp::And) return apply(ir::ScalarOp::And);
  if (op == ReduceOp::Or) return apply(ir::ScalarOp::Or);
  if (is_arg(op)) {
    const auto better = op == ReduceOp::ArgMax ? ir::ScalarOp::Gt : ir::ScalarOp::Lt;
    Value* wins = scalars_.apply(better, dtype, Values{b[0], a[0]});
    Value* ties = scalars_.apply(ir::ScalarOp::Eq, dtype, Values{b[0], a[0]});
    if (is_floating(dtype)) {
      Value* a_nan = b_.CreateFCmpUNO(a[0], a[0]);
      Value* b_nan = b_.CreateFCmpUNO(b[0], b[0]);
      wins = b_.CreateOr(wins, b_.CreateAnd(b_nan, b_.CreateNot(a_nan)));
      ties = b_.CreateOr(ties, b_.CreateAnd(a_nan, b_nan));
    }
    Value* earlier = b_.CreateICmpSLT(b[1], a[1]);
    Value* take = b_.CreateOr(wins, b_.CreateAnd(ties, earlier));
    return {b_.CreateSelect(take, b[0], a[0]), b_.CreateSelect(take, b[1], a[1])};
  }
  // Chan's merge of (mean, sum of squared deviations, count).
  Value* count = b_.CreateFAdd(a[2], b[2]);
  Value* zero = llvm::Constant::getNullValue(count->getType());
  Value* delta = b_.CreateFSub(b[0], a[0]);
  // Sides that count alike have half each, without a division that all that follows waits for.
  Value* share = a[2] == b[2] ? llvm::ConstantFP::get(delta->getType(), 0.5)
                              : b_.CreateSelect(b_.CreateFCmpOEQ(count, zero), zero,
                                                b_.CreateFDiv(b[2], count));
  Value* step = b_.CreateFMul(delta, share);
  Value* weighted = b_.CreateFMul(delta, widened(a[2], lanes_of(delta)));
  Value* squares = b_.CreateFAdd(b_.CreateFAdd(a[1], b[1]), b_.CreateFMul(weighted, step));
  return {b_.CreateFAdd(a[0], step), squares, count};
}

NestEmitter::Values NestEmitter::welford_step(const Values& state, Value* x, Value* mask) {
  const unsigned lanes = lanes_of(x);
  Value* old_count = mask == nullptr ? state[2] : widened(state[2], lanes);
  Value* one = llvm::ConstantFP::get(old_count->getType(), 1.0);
  Value* count = b_.CreateFAdd(old_count, one);
  Value* part = widened(b_.CreateFDiv(one, count), lanes);
  Value* delta = b_.CreateFSub(x, state[0]);
  Value* mean = b_.CreateFAdd(state[0], b_.CreateFMul(delta, part));
  Value* squares = b_.CreateFAdd(state[1], b_.CreateFMul(delta, b_.CreateFSub(x, mean)));
  if (mask == nullptr) return {mean, squares, count};
  return {b_.CreateSelect(mask, mean, state[0]), b_.CreateSelect(mask, squares, state[1]),
          b_.CreateSelect(mask, count, old_count)};
}

NestEmitter::Values NestEmitter::narrow(const LoopReduction& r, Values state, unsigned lanes) {
  // What is no vector, Welford's count where no mask tells lanes apart, is the same for both halves.
  for (unsigned width = lanes_of(state[0]); width > std::max(lanes, 1u); width /= 2) {
    Values low;
    Values high;
    for (Value* v : state) {
      if (lanes_of(v) == 0) {
        low.push_back(v);
        high.push_back(v);
      } else if (width == 2) {
        low.push_back(b_.CreateExtractElement(v, std::uint64_t{0}));
        high.push_back(b_.CreateExtractElement(v, std::uint64_t{1}));
      } else {
        low.push_back(b_.CreateShuffleVector(v, lane_range(0, width / 2)));
        high.push_back(b_.CreateShuffleVector(v, lane_range(width / 2, width / 2)));
      }
    }
    state = combine(r, low, high);
  }
  return state;
}

NestEmitter::Values NestEmitter::narrow_state(const ForStmt& s, const Values& state,
                                              unsigned lanes) {
  Values result;
  std::size_t place = 0;
  for (const LoopReduction& r : s.reductions) {
    const auto width = static_cast<std::size_t>(ir::width_of(r.op));
    const Values current(state.begin() + static_cast<std::ptrdiff_t>(place),
                         state.begin() + static_cast<std::ptrdiff_t>(place + width));
    for (Value* v : narrow(r, current, lanes)) result.push_back(v);
    place += width;
  }
  return result;
}

void NestEmitter::define_results(const ForStmt& s, const Values& state) {
  std::size_t place = 0;
  for (const LoopReduction& r : s.reductions) {
    for (std::size_t k = 0; k < r.results.size(); ++k) {
      const bool is_place = is_arg(r.op) && k == 1;
      dtypes_[r.results[k]] = is_place ? DType::I64 : r.dtype;
      Value* result = state[place++];
      if (is_place)
        result = b_.CreateZExt(result, scalars_.compute_type(DType::I64, lanes_of(result)));
      define(r.results[k], result);
    }
  }
  for (const LoopCarried& c : s.carried) {
    dtypes_[c.result] = c.dtype;
    define(c.result, state[place++]);
  }
}

}  // namespace heddle::jit::cpu
