#include "jit/copy_nest.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <map>
#include <utility>

namespace heddle::jit {

using base::SymbolExprs;

/// Expressions become ones of size parameters, which are the axes, so that they are evaluated without a look-up.
class CopyNest::Reader {
 public:
  explicit Reader(const Nest& nest) : nest_(nest) { add_axis(nest.parallel_axis); }

  bool read(CopyNest& result) {
    // Expressions take about a quarter of a microsecond each.
    constexpr double kMostEvaluated = 100'000;
    if (nest_.size_count != 0 || !nest_.parallel_extent.is_constant() ||
        !read_block(nest_.body, result.body_))
      return false;
    double evaluated = 0;
    for (const Loop& loop : result.body_) evaluated += count(loop);
    if (evaluated * static_cast<double>(nest_.parallel_extent.constant()) > kMostEvaluated)
      return false;
    result.axes_ = dense_.size();
    result.parallel_extent_ = nest_.parallel_extent;
    result.global_count_ = nest_.global_count();
    for (std::size_t k = result.global_count_; k < nest_.buffers.size(); ++k) {
      const NestBuffer& buffer = nest_.buffers[k];
      result.locals_.push_back({buffer.max_count != 0 ? SymExpr(buffer.max_count) : buffer.count,
                                size_of(buffer.dtype)});
    }
    return true;
  }

 private:
  /// What a store may write.
  struct Value {
    const LoadStmt* load;  ///< null: zeros
    ScalarId mask;         ///< of those that are no zeros; none: all
  };
  struct Below {
    SymExpr index;
    std::int64_t end;
  };

  std::size_t add_axis(Symbol axis) {
    const std::size_t number = dense_.size();
    dense_[axis] = SymExpr::size(static_cast<std::uint32_t>(number));
    return number;
  }
  SymExpr dense(const SymExpr& expr) const { return expr.substitute(dense_); }

  /// Expressions that are evaluated for one iteration of the loops around.
  double count(const Loop& loop) const {
    double each = 1 + static_cast<double>(loop.conditions.size());
    if (loop.body.empty()) {
      for (const Move& move : loop.moves) each += 2 + static_cast<double>(move.bounds.size());
      return each;
    }
    for (const Loop& part : loop.body) each += count(part);
    return each * static_cast<double>(loop.most);
  }

  static const ForStmt* plain_loop(const Stmt& statement) {
    const auto* loop = std::get_if<ForStmt>(&statement.node);
    return loop != nullptr && loop->reductions.empty() && loop->carried.empty() ? loop : nullptr;
  }
  static bool is_innermost(const ForStmt& loop) {
    return std::ranges::none_of(*loop.body, [](const Stmt& statement) {
      return std::holds_alternative<ForStmt>(statement.node);
    });
  }

  /// Loops, and what the conditions in them take.
  bool read_block(const Block& block, std::vector<Loop>& loops) {
    return std::ranges::all_of(block, [&](const Stmt& statement) {
      if (!std::holds_alternative<LoadStmt>(statement.node) && note(statement)) return true;
      if (const auto* branch = std::get_if<IfStmt>(&statement.node))
        return read_branch(*branch, loops);
      const ForStmt* loop = plain_loop(statement);
      if (loop == nullptr) return false;
      loops.emplace_back();
      return read_loop(*loop, loops.back());
    });
  }

  bool read_branch(const IfStmt& branch, std::vector<Loop>& loops) {
    const auto known = conditions_.find(branch.condition);
    if (known == conditions_.end()) return false;
    const std::vector<Condition> conditions = known->second;
    const std::size_t first = loops.size();
    if (!read_block(*branch.body, loops)) return false;
    for (std::size_t k = first; k < loops.size(); ++k)
      loops[k].conditions.insert(loops[k].conditions.begin(), conditions.begin(), conditions.end());
    return true;
  }

  bool read_loop(const ForStmt& outer, Loop& loop) {
    loop.axis = add_axis(outer.axis);
    loop.extent = dense(outer.extent);
    loop.inner_extent = 1;
    loop.most = outer.extent.is_constant() ? outer.extent.constant() : kUnknownExtent;
    if (is_innermost(outer)) return read_moves(*outer.body, std::nullopt, outer.axis, loop.moves);
    const ForStmt* inner = outer.body->size() == 1 ? plain_loop(outer.body->front()) : nullptr;
    if (inner != nullptr && is_innermost(*inner) && !inner->extent.mentions(outer.axis) &&
        read_moves(*inner->body, inner->axis, outer.axis, loop.moves)) {
      loop.inner_extent = dense(inner->extent);
      return true;
    }
    loop.moves.clear();
    return read_block(*outer.body, loop.body);
  }

  /// @param inner  the axis of the inner one of two loops; none: there is one
  bool read_moves(const Block& block, std::optional<Symbol> inner, Symbol outer,
                  std::vector<Move>& moves) {
    values_.clear();
    masked_.clear();
    for (const Stmt& statement : block) {
      if (note(statement)) continue;
      const auto* store = std::get_if<StoreStmt>(&statement.node);
      if (store == nullptr || store->mask != kNoScalar || store->combine) return false;
      const std::optional<Value> value = value_of(store->operand);
      const auto to = place(store->buffer, store->index, inner, outer);
      if (!value || !to) return false;
      Move move{std::nullopt, *to, size_of(nest_.buffers[to->buffer].dtype), {}};
      if (value->load != nullptr) {
        move.from = place(value->load->buffer, value->load->index, inner, outer);
        if (!move.from) return false;
      }
      if (value->mask != kNoScalar) {
        for (const Below& below : masks_.at(value->mask)) {
          const auto at = place(0, below.index, inner, outer);
          if (!at) return false;
          move.bounds.push_back({*at, below.end});
        }
      }
      moves.push_back(std::move(move));
    }
    // Moves go one after the other, each through all iterations.
    return std::ranges::none_of(moves, [&](const Move& written) {
      return std::ranges::any_of(moves, [&](const Move& read) {
        return read.from && read.from->buffer == written.to.buffer;
      });
    });
  }

  std::optional<Value> value_of(ScalarId scalar) const {
    if (const auto known = values_.find(scalar); known != values_.end()) return known->second;
    const auto number = numbers_.find(scalar);
    if (number == numbers_.end() || !is_zero(*number->second)) return std::nullopt;
    return Value{nullptr, kNoScalar};
  }

  /// Notes what a statement defines, if it is one that a move is made of.
  bool note(const Stmt& statement) {
    if (const auto* number = std::get_if<ConstStmt>(&statement.node)) {
      numbers_[number->result] = number;
      return true;
    }
    if (const auto* index = std::get_if<IndexStmt>(&statement.node)) {
      indices_[index->result] = index->index;
      return true;
    }
    if (const auto* load = std::get_if<LoadStmt>(&statement.node)) {
      if (load->mask != kNoScalar && !masks_.contains(load->mask)) return false;
      // Of a masked load only what is selected by its mask is a value.
      (load->mask == kNoScalar ? values_ : masked_)[load->result] = {load, load->mask};
      return true;
    }
    const auto* apply = std::get_if<ApplyStmt>(&statement.node);
    return apply != nullptr && note(*apply);
  }

  bool note(const ApplyStmt& s) {
    const bool is_condition = note_condition(s);
    return note_value(s) || is_condition;
  }

  /// Comparisons of positions, and whether several of them hold.
  bool note_condition(const ApplyStmt& s) {
    if (s.operands.size() != 2) return false;
    if (s.op == ir::ScalarOp::And) {
      const auto left = conditions_.find(s.operands[0]);
      const auto right = conditions_.find(s.operands[1]);
      if (left == conditions_.end() || right == conditions_.end()) return false;
      std::vector<Condition> both = left->second;
      both.insert(both.end(), right->second.begin(), right->second.end());
      conditions_[s.result] = std::move(both);
      return true;
    }
    const auto left = indices_.find(s.operands[0]);
    const auto right = indices_.find(s.operands[1]);
    if ((s.op != ir::ScalarOp::Eq && s.op != ir::ScalarOp::Lt) || left == indices_.end() ||
        right == indices_.end())
      return false;
    conditions_[s.result] = {{dense(left->second), dense(right->second), s.op == ir::ScalarOp::Eq}};
    return true;
  }

  bool note_value(const ApplyStmt& s) {
    if (s.op == ir::ScalarOp::Lt) {
      const auto index = indices_.find(s.operands[0]);
      const auto end = numbers_.find(s.operands[1]);
      if (index == indices_.end() || end == numbers_.end()) return false;
      masks_[s.result] = {{index->second, end->second->integer}};
      return true;
    }
    if (s.op == ir::ScalarOp::And) {
      const auto left = masks_.find(s.operands[0]);
      const auto right = masks_.find(s.operands[1]);
      if (left == masks_.end() || right == masks_.end()) return false;
      std::vector<Below> both = left->second;
      both.insert(both.end(), right->second.begin(), right->second.end());
      masks_[s.result] = std::move(both);
      return true;
    }
    if (s.op != ir::ScalarOp::Select) return false;
    const auto load = masked_.find(s.operands[1]);
    const auto zero = numbers_.find(s.operands[2]);
    if (load == masked_.end() || load->second.mask != s.operands[0] || zero == numbers_.end() ||
        !is_zero(*zero->second))
      return false;
    values_[s.result] = load->second;
    return true;
  }

  static bool is_zero(const ConstStmt& s) {
    return is_floating(s.dtype) ? s.number == 0 && !std::signbit(s.number) : s.integer == 0;
  }

  std::optional<Place> place(NestBufferId buffer, const SymExpr& index, std::optional<Symbol> inner,
                             Symbol outer) const {
    Place result{buffer, index};
    if (inner) {
      const auto linear = result.first.linear_in(*inner);
      if (!linear || !linear->coefficient.is_constant()) return std::nullopt;
      result.inner = linear->coefficient.constant();
      result.first = linear->rest;
    }
    const auto linear = result.first.linear_in(outer);
    if (!linear || !linear->coefficient.is_constant()) return std::nullopt;
    result.outer = linear->coefficient.constant();
    result.first = dense(linear->rest);
    return result;
  }

  /// Of a loop whose extent is not known, as for the last of several tiles.
  static constexpr std::int64_t kUnknownExtent = 64;

  const Nest& nest_;
  SymbolExprs dense_;
  std::map<ScalarId, const ConstStmt*> numbers_;
  std::map<ScalarId, SymExpr> indices_;
  std::map<ScalarId, std::vector<Below>> masks_;
  std::map<ScalarId, std::vector<Condition>> conditions_;
  std::map<ScalarId, Value> values_, masked_;  ///< of the body that is read
};

namespace {

/// A place in memory, or a number, with what is between one iteration and the next of either loop.
template <typename T>
struct Cursor {
  T first;
  std::int64_t outer, inner;
};
struct Limit {
  Cursor<std::int64_t> at;
  std::int64_t end;
};

/// Weights may lie at any address.
template <std::size_t kBytes>
void move(Cursor<const std::byte*> from, Cursor<std::byte*> to, std::int64_t outer,
          std::int64_t inner) {
  constexpr auto kSize = static_cast<std::int64_t>(kBytes);
  for (std::int64_t i = 0; i < outer; ++i) {
    std::byte* const target = to.first + i * to.outer * kSize;
    const std::byte* const source = from.first + i * from.outer * kSize;
    if (from.inner == 1 && to.inner == 1) {
      std::memcpy(target, source, static_cast<std::size_t>(inner) * kBytes);
      continue;
    }
    for (std::int64_t j = 0; j < inner; ++j)
      std::memcpy(target + j * to.inner * kSize, source + j * from.inner * kSize, kBytes);
  }
}

/// Zeros.
void fill(Cursor<std::byte*> to, std::int64_t outer, std::int64_t inner, std::int64_t bytes) {
  for (std::int64_t i = 0; i < outer; ++i) {
    std::byte* const target = to.first + i * to.outer * bytes;
    const bool is_row = to.inner == 1;
    for (std::int64_t j = 0; j < (is_row ? 1 : inner); ++j)
      std::memset(target + j * to.inner * bytes, 0,
                  static_cast<std::size_t>(is_row ? inner * bytes : bytes));
  }
}

/// The same, but zeros where a number is not below its limit.
void move_below(Cursor<const std::byte*> from, Cursor<std::byte*> to, std::int64_t outer,
                std::int64_t inner, std::size_t bytes, const std::vector<Limit>& limits) {
  const auto size = static_cast<std::int64_t>(bytes);
  for (std::int64_t i = 0; i < outer; ++i)
    for (std::int64_t j = 0; j < inner; ++j) {
      std::byte* const target = to.first + (i * to.outer + j * to.inner) * size;
      const bool is_there = std::ranges::all_of(limits, [&](const Limit& limit) {
        return limit.at.first + i * limit.at.outer + j * limit.at.inner < limit.end;
      });
      if (is_there)
        std::memcpy(target, from.first + (i * from.outer + j * from.inner) * size, bytes);
      else
        std::memset(target, 0, bytes);
    }
}

}  // namespace

class CopyNest::Run {
 public:
  Run(const CopyNest& nest, std::span<void* const> buffers) : nest_(nest), axes_(nest.axes_, 0) {
    for (std::size_t k = 0; k < nest.global_count_; ++k)
      buffers_.push_back(static_cast<std::byte*>(buffers[k]));
    for (const Local& local : nest.locals_) {
      const auto count = static_cast<std::size_t>(local.count.evaluate_sizes(axes_));
      locals_.emplace_back(count * local.bytes);
      buffers_.push_back(locals_.back().data());
    }
  }

  void all() {
    const std::int64_t extent = nest_.parallel_extent_.constant();
    for (axes_[0] = 0; axes_[0] < extent; ++axes_[0])
      for (const Loop& loop : nest_.body_) run(loop);
  }

 private:
  void run(const Loop& loop) {
    const bool is_run = std::ranges::all_of(loop.conditions, [this](const Condition& condition) {
      const std::int64_t left = condition.left.evaluate_sizes(axes_);
      const std::int64_t right = condition.right.evaluate_sizes(axes_);
      return condition.equal ? left == right : left < right;
    });
    if (!is_run) return;
    const std::int64_t extent = loop.extent.evaluate_sizes(axes_);
    if (loop.body.empty()) {
      const std::int64_t inner = loop.inner_extent.evaluate_sizes(axes_);
      for (const Move& one : loop.moves) run(one, extent, inner);
      return;
    }
    std::int64_t& axis = axes_[loop.axis];
    for (axis = 0; axis < extent; ++axis)
      for (const Loop& part : loop.body) run(part);
  }

  void run(const Move& one, std::int64_t outer, std::int64_t inner) {
    if (outer <= 0 || inner <= 0) return;
    const auto size = static_cast<std::int64_t>(one.bytes);
    const auto cursor = [&](const Place& place) {
      return Cursor<std::byte*>{buffers_[place.buffer] + place.first.evaluate_sizes(axes_) * size,
                                place.outer, place.inner};
    };
    std::vector<Limit> limits;
    for (const Bound& bound : one.bounds)
      limits.push_back(
          {{bound.at.first.evaluate_sizes(axes_), bound.at.outer, bound.at.inner}, bound.end});
    if (!one.from) return fill(cursor(one.to), outer, inner, size);
    const Cursor<std::byte*> source = cursor(*one.from);
    const Cursor<const std::byte*> from{source.first, source.outer, source.inner};
    const Cursor<std::byte*> to = cursor(one.to);
    if (!limits.empty()) return move_below(from, to, outer, inner, one.bytes, limits);
    switch (one.bytes) {
      case 1:
        return move<1>(from, to, outer, inner);
      case 2:
        return move<2>(from, to, outer, inner);
      case 4:
        return move<4>(from, to, outer, inner);
      default:
        return move<8>(from, to, outer, inner);
    }
  }

  const CopyNest& nest_;
  std::vector<std::int64_t> axes_;
  std::vector<std::byte*> buffers_;
  std::vector<std::vector<std::byte>> locals_;
};

std::optional<CopyNest> CopyNest::of(const Nest& nest) {
  CopyNest result;
  if (!Reader(nest).read(result)) return std::nullopt;
  return result;
}

void CopyNest::run(std::span<void* const> buffers) const { Run(*this, buffers).all(); }

}  // namespace heddle::jit
