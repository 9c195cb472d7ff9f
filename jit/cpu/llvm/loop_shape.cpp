#include "jit/cpu/llvm/loop_shape.h"

#include <algorithm>
#include <limits>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "jit/cpu/llvm/scalar_emitter.h"

namespace heddle::jit::cpu {
namespace {

using ir::ReduceOp;
using ir::ScalarOp;

bool is_transcendental(ScalarOp op) {
  return (op >= ScalarOp::Exp && op <= ScalarOp::Sigmoid) || op == ScalarOp::Pow ||
         op == ScalarOp::Atan2;
}

/// Whether `op` on `dtype` is a call for every lane, on targets with multiply-add units.
bool calls_lanes(ScalarOp op, DType dtype) {
  if (is_transcendental(op))
    return !is_floating(dtype) || !has_vector_math(op, dtype, kBytesWithFma);
  if (op == ScalarOp::Rem || op == ScalarOp::Mod) return is_floating(dtype) || size_of(dtype) == 8;
  return op == ScalarOp::Div && dtype == DType::I64;
}

/// A constant that `extent` does not exceed, where it shows.
std::optional<std::int64_t> upper_bound(const SymExpr& extent) {
  if (extent.is_constant()) return extent.constant();
  if (extent.kind() != SymExpr::Kind::Min) return std::nullopt;
  std::optional<std::int64_t> least;
  for (const SymExpr& operand : extent.operands()) {
    const auto bound = upper_bound(operand);
    if (bound && (!least || *bound < *least)) least = bound;
  }
  return least;
}

class Analysis {
 public:
  explicit Analysis(const ForStmt& loop) : axis_(loop.axis) {
    varying_symbols_.insert(loop.axis);
    block(*loop.body);
    for (const LoopReduction& r : loop.reductions) reduction(loop, r);
    finish();
  }

  LoopShape shape;

  void operator()(const ConstStmt& s) { numbers_.emplace(s.result, s.number); }
  void operator()(const GivenStmt&) {}
  void operator()(const ApplyStmt& s) {
    bool varying = false;
    const bool compares = s.op >= ScalarOp::Eq && s.op <= ScalarOp::Ge;
    for (ScalarId id : s.operands) {
      varying = use(id) || varying;
      if (!compares && indices_.count(id) != 0) shape.wide = true;
    }
    if (!varying) return;
    define(s.result, s.dtype);
    if (is_product(s)) return;
    shape.calls = shape.calls || calls_lanes(s.op, dtype_of(s));
    if (is_transcendental(s.op)) {
      shape.polynomial = shape.polynomials == 0 ? std::optional(s.op) : std::nullopt;
      ++shape.polynomials;
    }
  }
  void operator()(const ConvertStmt& s) {
    if (indices_.count(s.operand) != 0) shape.wide = true;
    if (use(s.operand)) define(s.result, s.dtype);
  }
  void operator()(const BitsStmt& s) {
    if (use(s.operand)) define(s.result, s.dtype);
  }
  void operator()(const IndexStmt& s) {
    if (!varies(s.index)) return;
    // Comparing one takes 32 bits a lane; all else the whole index.
    const bool wide = shape.wide || !s.index.linear_in(axis_);
    define(s.result, DType::I64);
    shape.wide = wide;
    indices_.insert(s.result);
  }
  void operator()(const BindStmt& s) {
    if (use(s.operand) || varies(s.low) || varies(s.high)) varying_symbols_.insert(s.symbol);
    use(s.mask);
  }
  void operator()(const LoadStmt& s) {
    const bool masked = use(s.mask);
    access(s.index);
    if (masked || varies(s.index)) define(s.result, s.dtype);
  }
  void operator()(const StoreStmt& s) {
    use(s.operand);
    use(s.mask);
    const bool distinct = access(s.index);
    if (s.combine && !distinct) shape.needs_scalar = true;
  }
  void operator()(const ForStmt& s) {
    shape.nested = true;
    for (const LoopCarried& c : s.carried) {
      use(c.initial);
      define(c.current, c.dtype);
    }
    block(*s.body);
    for (const LoopReduction& r : s.reductions) {
      reduction(s, r);
      for (ScalarId id : r.results) define(id, r.dtype);
    }
    for (const LoopCarried& c : s.carried) {
      use(c.next);
      define(c.result, c.dtype);
    }
  }
  void operator()(const IfStmt&) {}
  void operator()(const ContractStmt&) {}

 private:
  DType dtype_of(const ApplyStmt& s) const {
    const auto found = values_.find(s.operands.back());
    return found == values_.end() ? s.dtype : found->second.dtype;
  }

  void block(const Block& statements) {
    for (const Stmt& statement : statements) {
      ++now_;
      std::visit(*this, statement.node);
    }
  }

  bool varies(const SymExpr& expr) const {
    std::vector<Symbol> symbols;
    expr.collect_symbols(symbols);
    return std::any_of(symbols.begin(), symbols.end(),
                       [&](Symbol s) { return varying_symbols_.count(s) != 0; });
  }

  /// Notes how lanes address memory; true if every lane has an element of its own for certain.
  bool access(const SymExpr& index) {
    if (!varies(index)) return false;
    const auto linear = index.linear_in(axis_);
    if (!linear || varies(linear->rest)) {
      const auto repeated =
          repeated_index(index, axis_, [&](const SymExpr& term) { return varies(term); });
      const bool is_repeated = repeated && repeated->unit == 1;
      shape.gathers = shape.gathers || !(is_repeated || is_bounded(index));
      return false;
    }
    const auto step = linear->coefficient.as_constant();
    // Wide rows take many shuffles, and much code.
    const bool narrow = step && *step >= 2 && *step <= kMostColumns / 2;
    if (!step || (*step != 1 && *step != -1 && !narrow)) shape.gathers = true;
    return step && *step != 0;
  }

  /// min(bound, axis + rest) + more, which needs no gather.
  bool is_bounded(const SymExpr& index) const {
    if (index.kind() == SymExpr::Kind::Min) return true;
    if (index.kind() != SymExpr::Kind::Sum) return false;
    const auto terms = index.operands();
    return std::all_of(terms.begin(), terms.end(), [&](const SymExpr& term) {
      return !varies(term) || term.kind() == SymExpr::Kind::Min;
    });
  }

  void reduction(const ForStmt& loop, const LoopReduction& r) {
    for (ScalarId id : r.contributions) use(id);
    use(r.mask);
    accumulators_ += static_cast<unsigned>(ir::width_of(r.op));
    const bool arg = r.op == ReduceOp::ArgMax || r.op == ReduceOp::ArgMin;
    const auto places = ordered_places(loop, r);
    const bool wide_places = arg && !(places && places->are_narrow);
    if (wide_places || size_of(r.dtype) == 8) shape.wide = true;
  }

  /// Notes a use; whether the value differs between lanes.
  bool use(ScalarId id) {
    const auto found = values_.find(id);
    if (found == values_.end()) return false;
    found->second.last_use = now_;
    return true;
  }

  void define(ScalarId id, DType dtype) {
    values_[id] = Range{dtype, now_, now_};
    ++shape.operations;
    if (size_of(dtype) == 8) shape.wide = true;
  }

  void finish() {
    std::vector<int> change(now_ + 2, 0);
    for (const auto& [id, range] : values_) {
      ++change[range.defined];
      --change[range.last_use];
    }
    int live = 0;
    int most = 0;
    for (int delta : change) most = std::max(most, live += delta);
    shape.live = static_cast<unsigned>(most) + accumulators_;
  }

  /// Whether it is a power that is multiplied out.
  bool is_product(const ApplyStmt& s) const {
    if (s.op != ScalarOp::Pow || !is_floating(s.dtype)) return false;
    const auto exponent = numbers_.find(s.operands[1]);
    return exponent != numbers_.end() && is_simple_power(exponent->second);
  }

  struct Range {
    DType dtype;
    unsigned defined;
    unsigned last_use;
  };
  Symbol axis_;
  std::set<Symbol> varying_symbols_;
  std::unordered_map<ScalarId, Range> values_;
  std::unordered_set<ScalarId> indices_;  ///< defined by an IndexStmt
  std::unordered_map<ScalarId, double> numbers_;
  unsigned now_ = 0;
  unsigned accumulators_ = 0;
};

}  // namespace

std::optional<RepeatedIndex> repeated_index(const SymExpr& index, Symbol axis,
                                            const std::function<bool(const SymExpr&)>& varies) {
  RepeatedIndex found{0, 0, 1};
  const auto terms =
      index.kind() == SymExpr::Kind::Sum ? index.operands() : std::vector<SymExpr>{index};
  for (const SymExpr& term : terms) {
    if (!varies(term)) {
      found.rest += term;
      continue;
    }
    SymExpr quotient = term;
    if (term.kind() == SymExpr::Kind::Product) {
      const std::vector<SymExpr> factors = term.operands();
      if (factors.size() != 2 || !factors[0].is_constant() || factors[0].constant() < 1)
        return std::nullopt;
      found.unit = factors[0].constant();
      quotient = factors[1];
    }
    if (found.count != 0 || quotient.kind() != SymExpr::Kind::FloorDiv) return std::nullopt;
    const std::vector<SymExpr> parts = quotient.operands();
    if (!parts[0].is_symbol() || parts[0].symbol() != axis || !parts[1].is_constant())
      return std::nullopt;
    found.count = parts[1].constant();
  }
  const bool is_power = found.count >= 2 && (found.count & (found.count - 1)) == 0;
  return is_power ? std::optional(found) : std::nullopt;
}

LoopShape analyse(const ForStmt& loop) { return Analysis(loop).shape; }

std::optional<OrderedPlaces> ordered_places(const ForStmt& loop, const LoopReduction& r) {
  if (r.op != ReduceOp::ArgMax && r.op != ReduceOp::ArgMin) return std::nullopt;
  if (r.mask != kNoScalar) return std::nullopt;
  for (const Stmt& statement : *loop.body) {
    const auto* place = std::get_if<IndexStmt>(&statement.node);
    if (place == nullptr || place->result != r.contributions[1]) continue;
    const auto linear = place->index.linear_in(loop.axis);
    if (!linear || !linear->coefficient.is_constant() || !linear->rest.is_constant()) break;
    const std::int64_t step = linear->coefficient.constant();
    const std::int64_t first = linear->rest.constant();
    if (step < 1 || first < 0) break;
    const auto count = upper_bound(loop.extent);
    const std::int64_t most = std::numeric_limits<std::int32_t>::max();
    return OrderedPlaces{step, first, count && first <= most && *count <= (most - first) / step};
  }
  return std::nullopt;
}

bool inlines_math(const LoopShape& shape, unsigned base_lanes) {
  if (shape.polynomial == ScalarOp::Sigmoid || shape.polynomial == ScalarOp::Erf)
    return base_lanes <= kLanesOf16Registers;
  return shape.polynomial == ScalarOp::Exp || shape.polynomial == ScalarOp::Exp2;
}

namespace {

/// Whether neighbours along `axis` are neighbours in memory.
bool is_next_to_next(const SymExpr& index, Symbol axis) {
  const auto linear = index.linear_in(axis);
  return linear && linear->coefficient.is_constant(1);
}

}  // namespace

bool goes_down_columns(const LoopShape& shape, const ForStmt& loop, unsigned base_lanes) {
  const bool keeps_little = shape.live <= 2 && shape.polynomials == 0 && !shape.wide;
  if (!keeps_little || shape.gathers || shape.calls || !loop.reductions.empty() ||
      !loop.carried.empty() || base_lanes <= kLanesOf16Registers)
    return false;
  bool reduces = false;
  for (const Stmt& statement : *loop.body) {
    const auto* inside = std::get_if<ForStmt>(&statement.node);
    if (inside == nullptr) continue;
    reduces = true;
    for (const Stmt& each : *inside->body) {
      const auto* load = std::get_if<LoadStmt>(&each.node);
      const bool goes_on = load == nullptr || !load->index.mentions(loop.axis) ||
                           is_next_to_next(load->index, loop.axis);
      if (!goes_on || std::holds_alternative<StoreStmt>(each.node) ||
          std::holds_alternative<ForStmt>(each.node))
        return false;
    }
  }
  return reduces;
}

unsigned main_width(const LoopShape& shape, const ForStmt& loop, unsigned base_lanes,
                    unsigned most_vectors) {
  unsigned vectors = 8;
  if (shape.live > 4) vectors = 4;
  if (shape.live > 8) vectors = 2;
  if (shape.live > 14) vectors = 1;
  if (shape.polynomials > 0) {
    // A polynomial keeps several values alive, and its code grows with the width. In a function of its own it
    // takes any width, and what else is alive waits in memory meanwhile.
    vectors = inlines_math(shape, base_lanes) ? std::min(vectors, 4u) : 8;
  } else if (shape.operations <= 3 || base_lanes <= kLanesOf16Registers) {
    // Little work for each element, for which memory sets the pace; or no registers for constants beside eight vectors.
    vectors = std::min(vectors, 4u);
  }
  if (shape.wide) vectors = std::max(1u, vectors / 2);
  if (shape.nested)
    vectors = goes_down_columns(shape, loop, base_lanes) ? 16 : std::min(vectors, 4u);
  if (shape.nested && base_lanes <= kLanesOf16Registers && shape.live > 7) vectors = 1;
  if (shape.gathers) vectors = std::min(vectors, 2u);
  if (shape.calls) vectors = 1;
  vectors = std::min(vectors, most_vectors);
  if (const auto most = upper_bound(loop.extent)) {
    // Of columns that are fewer than 16 vectors, 8 would leave over more than 4 do.
    while (vectors > 1 && *most < static_cast<std::int64_t>(vectors * base_lanes))
      vectors /= vectors == 16 ? 4 : 2;
  }
  return vectors * base_lanes;
}

}  // namespace heddle::jit::cpu
