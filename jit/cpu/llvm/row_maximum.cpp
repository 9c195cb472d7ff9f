#include "jit/cpu/llvm/row_maximum.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "jit/lower/nest_scalars.h"

namespace heddle::jit::cpu {
namespace {

using ir::ReduceOp;
using ir::ScalarOp;
using Scalars = std::unordered_set<ScalarId>;

/// An element of memory that a loop goes through.
struct Element {
  const ForStmt* loop;
  NestBufferId buffer;
  SymExpr index;
  DType dtype;  ///< that it was converted to

  bool operator==(const Element& other) const {
    return buffer == other.buffer && dtype == other.dtype && loop->extent == other.loop->extent &&
           index.substitute({{loop->axis, other.loop->axis}}) == other.index;
  }
};

const Stmt* definition(const ForStmt& loop, ScalarId id) {
  for (const Stmt& statement : *loop.body) {
    bool defines = false;
    std::visit(
        [&](const auto& s) {
          if constexpr (requires { s.result; }) defines = s.result == id;
        },
        statement.node);
    if (defines) return &statement;
  }
  return nullptr;
}

/// The element that `id` is, read from memory that the nest does not write.
std::optional<Element> element_of(const Nest& nest, const ForStmt& loop, ScalarId id) {
  const Stmt* statement = definition(loop, id);
  if (statement == nullptr) return std::nullopt;
  if (const auto* convert = std::get_if<ConvertStmt>(&statement->node)) {
    auto element = element_of(nest, loop, convert->operand);
    if (element) element->dtype = convert->dtype;
    return element;
  }
  const auto* load = std::get_if<LoadStmt>(&statement->node);
  if (load == nullptr || load->mask != kNoScalar || nest.buffers[load->buffer].written)
    return std::nullopt;
  return Element{&loop, load->buffer, load->index, load->dtype};
}

/// A reduction to the largest of a row's elements.
struct Maximum {
  ScalarId id;
  Element element;
};

std::vector<Maximum> maxima_of(const Nest& nest) {
  std::vector<Maximum> maxima;
  for (const Stmt& statement : nest.body) {
    const auto* loop = std::get_if<ForStmt>(&statement.node);
    if (loop == nullptr || loop->kind != ForStmt::Kind::Vector) continue;
    for (const LoopReduction& r : loop->reductions) {
      if (r.op != ReduceOp::Max || r.mask != kNoScalar || !is_floating(r.dtype)) continue;
      if (const auto element = element_of(nest, *loop, r.contributions[0]))
        maxima.push_back({r.results[0], *element});
    }
  }
  return maxima;
}

/// Whether a NaN in an operand makes the result one.
bool keeps_nan(ScalarOp op) {
  switch (op) {
    case ScalarOp::Neg:
    case ScalarOp::Sqrt:
    case ScalarOp::Rsqrt:
    case ScalarOp::Reciprocal:
    case ScalarOp::Exp:
    case ScalarOp::Exp2:
    case ScalarOp::Log:
    case ScalarOp::Log2:
    case ScalarOp::Add:
    case ScalarOp::Sub:
    case ScalarOp::Mul:
    case ScalarOp::Div:
      return true;
    default:
      return false;
  }
}

/// Follows what comes of one maximum, in the order of the nest.
class Follower {
 public:
  Follower(const Nest& nest, const Maximum& maximum) : nest_(nest), maximum_(maximum) {}

  void run(RowMaxima& found) {
    for (const Stmt& statement : nest_.body) {
      const auto* loop = std::get_if<ForStmt>(&statement.node);
      if (loop == nullptr)
        visit(statement, spoilt_, nullptr);
      else
        visit_loop(*loop);
    }
    found.differences.insert(differences_.begin(), differences_.end());
    if (!is_used_otherwise_ && !differences_.empty() && clean_.empty())
      found.without_nan.insert(maximum_.id);
  }

 private:
  void visit_loop(const ForStmt& loop) {
    // A NaN among the elements is one in its own iteration only, but in all of a sum.
    Scalars here = spoilt_;
    for (const Stmt& inner : *loop.body) visit(inner, here, &loop);
    for (const LoopReduction& r : loop.reductions) {
      for (const ScalarId id : r.contributions) is_used_otherwise_ |= id == maximum_.id;
      const bool sums = r.op == ReduceOp::Sum && r.mask == kNoScalar;
      if (sums && here.count(r.contributions[0]) != 0) spoilt_.insert(r.results[0]);
    }
  }

  /// `spoilt`: NaN if any element of the row is, or if this iteration's is.
  void visit(const Stmt& statement, Scalars& spoilt, const ForStmt* loop) {
    if (const auto* apply = std::get_if<ApplyStmt>(&statement.node)) {
      if (loop != nullptr && is_difference(*apply, *loop)) {
        differences_.insert(apply->result);
        spoilt.insert(apply->result);
        return;
      }
      const auto is_spoilt = [&](ScalarId id) { return spoilt.count(id) != 0; };
      if (keeps_nan(apply->op) && std::ranges::any_of(apply->operands, is_spoilt))
        spoilt.insert(apply->result);
    } else if (const auto* convert = std::get_if<ConvertStmt>(&statement.node)) {
      if (is_floating(convert->dtype) && spoilt.count(convert->operand) != 0)
        spoilt.insert(convert->result);
    } else if (const auto* store = std::get_if<StoreStmt>(&statement.node)) {
      note_store(*store, loop);
    }
    note_uses(statement);
  }

  bool is_difference(const ApplyStmt& apply, const ForStmt& loop) const {
    if (apply.op != ScalarOp::Sub || apply.operands[1] != maximum_.id) return false;
    const auto element = element_of(nest_, loop, apply.operands[0]);
    return element && *element == maximum_.element;
  }

  void note_uses(const Stmt& statement) {
    // The visitors take what they may change.
    std::visit(
        [&](auto& node) {
          visit_uses(node, [&](ScalarId id) { is_used_otherwise_ |= id == maximum_.id; });
        },
        const_cast<Stmt&>(statement).node);
  }

  /// Memory of others holds in the end what is NaN by the sum of a row, whatever was stored there before.
  void note_store(const StoreStmt& store, const ForStmt* loop) {
    if (store.buffer >= nest_.global_count()) return;
    const bool whole = spoilt_.count(store.operand) != 0 || is_of_sum(store.operand, loop);
    if (loop == nullptr) {
      is_used_otherwise_ |= !whole;
      return;
    }
    const Element target{loop, store.buffer, store.index, nest_.buffers[store.buffer].dtype};
    std::erase(clean_, target);
    if (!whole || store.mask != kNoScalar || store.combine) clean_.push_back(target);
  }

  /// Whether a value of the loop is NaN by what spoils all of the row.
  bool is_of_sum(ScalarId id, const ForStmt* loop) const {
    if (spoilt_.count(id) != 0) return true;
    const Stmt* statement = loop == nullptr ? nullptr : definition(*loop, id);
    if (statement == nullptr) return false;
    if (const auto* convert = std::get_if<ConvertStmt>(&statement->node))
      return is_floating(convert->dtype) && is_of_sum(convert->operand, loop);
    const auto* apply = std::get_if<ApplyStmt>(&statement->node);
    return apply != nullptr && keeps_nan(apply->op) &&
           std::ranges::any_of(apply->operands,
                               [&](ScalarId operand) { return is_of_sum(operand, loop); });
  }

  const Nest& nest_;
  const Maximum& maximum_;
  Scalars differences_;
  Scalars spoilt_;  ///< of the whole row
  bool is_used_otherwise_ = false;
  std::vector<Element> clean_;  ///< of memory of others, what may not be NaN
};

}  // namespace

RowMaxima row_maxima(const Nest& nest) {
  RowMaxima found;
  for (const Maximum& maximum : maxima_of(nest)) Follower(nest, maximum).run(found);
  return found;
}

}  // namespace heddle::jit::cpu
