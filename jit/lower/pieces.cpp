#include "jit/lower/pieces.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "jit/lower/nest_rewrite.h"
#include "jit/lower/nest_scalars.h"

namespace heddle::jit {
namespace {

using ir::ScalarOp;

/// Whether numbers or expressions of sizes: the order of these has to be proved, of each pair.
constexpr std::size_t kMaxNumbers = 64;
constexpr std::size_t kMaxBounds = 16;
/// Pieces of fewer neighbouring elements are cheaper to read under masks.
constexpr std::int64_t kMinPiece = 16;

/// Comparisons of index scalars in a block.
class Comparisons {
 public:
  explicit Comparisons(const Block& body) {
    for (const Stmt& statement : body)
      std::visit([this](const auto& node) { note(node); }, statement.node);
  }

  /// The values of `axis` from which on some comparison is different.
  std::vector<SymExpr> bounds_of(Symbol axis) const {
    std::vector<SymExpr> bounds;
    for (const auto& [left, right, strict] : found_) {
      // left < right or left <= right with the axis on one side: difference is +-axis + rest.
      const auto linear = (right - left).linear_in(axis);
      if (!linear || has_axes(linear->rest)) continue;
      SymExpr bound;
      if (linear->coefficient.is_constant(1)) {
        bound = (strict ? SymExpr(1) : SymExpr(0)) - linear->rest;
      } else if (linear->coefficient.is_constant(-1)) {
        bound = linear->rest + (strict ? SymExpr(0) : SymExpr(1));
      } else {
        continue;
      }
      if (std::find(bounds.begin(), bounds.end(), bound) == bounds.end()) bounds.push_back(bound);
    }
    return bounds;
  }

 private:
  void note(const auto&) {}
  void note(const IndexStmt& s) { indices_[s.result] = s.index; }
  void note(const ConstStmt& s) {
    if (s.dtype == DType::I64) indices_[s.result] = s.integer;
  }
  void note(const ApplyStmt& s) {
    if (s.op != ScalarOp::Lt && s.op != ScalarOp::Le) return;
    const auto left = indices_.find(s.operands[0]);
    const auto right = indices_.find(s.operands[1]);
    if (left == indices_.end() || right == indices_.end()) return;
    found_.push_back({left->second, right->second, s.op == ScalarOp::Lt});
  }
  static bool has_axes(const SymExpr& expr) {
    std::vector<Symbol> symbols;
    expr.collect_symbols(symbols);
    return std::any_of(symbols.begin(), symbols.end(), [](const Symbol& symbol) {
      return symbol.kind == Symbol::Kind::Axis || symbol.kind == Symbol::Kind::Temp;
    });
  }

  struct Comparison {
    SymExpr left, right;
    bool strict;
  };
  std::map<ScalarId, SymExpr> indices_;
  std::vector<Comparison> found_;
};

bool is_at_most(const SymExpr& a, const SymExpr& b, const base::Facts& facts) {
  return base::provably_nonnegative(b - a, facts);
}

/// Sorts bounds and drops those outside (0, extent). False when their order is unknown.
bool arrange(std::vector<SymExpr>& bounds, const SymExpr& extent, const base::Facts& facts) {
  std::erase_if(bounds, [&](const SymExpr& bound) {
    return is_at_most(bound, 0, facts) || is_at_most(extent, bound, facts);
  });
  // Insertion sort: the order may be partial, which shows in neighbours that do not compare.
  for (std::size_t k = 1; k < bounds.size(); ++k)
    for (std::size_t j = k; j > 0 && is_at_most(bounds[j], bounds[j - 1], facts); --j)
      std::swap(bounds[j], bounds[j - 1]);
  SymExpr before = 0;
  for (const SymExpr& bound : bounds) {
    if (!is_at_most(before, bound, facts)) return false;
    before = bound;
  }
  return is_at_most(before, extent, facts);
}

bool pays(const std::vector<SymExpr>& bounds, const SymExpr& extent, const SymExpr& inner) {
  SymExpr begin = 0;
  std::vector<SymExpr> ends = bounds;
  ends.push_back(extent);
  for (const SymExpr& end : ends) {
    const SymExpr piece = (end - begin) * inner;
    if (piece.is_constant() && piece.constant() < kMinPiece) return false;
    begin = end;
  }
  return true;
}

}  // namespace

std::optional<Cut> find_cut(const Block& body, const std::vector<AxisRun>& axes,
                            const base::Facts& facts, std::size_t most) {
  const Comparisons comparisons(body);
  std::vector<Cut> cuts;  // innermost first
  std::size_t pieces = 1;
  SymExpr inner = 1;
  for (std::size_t k = axes.size(); k-- > 0;) {
    std::vector<SymExpr> bounds = comparisons.bounds_of(axes[k].axis);
    const SymExpr& extent = axes[k].extent;
    const auto is_number = [](const SymExpr& bound) { return bound.is_constant(); };
    const bool numbers = extent.is_constant() && std::ranges::all_of(bounds, is_number);
    const bool usable = !bounds.empty() && bounds.size() <= (numbers ? kMaxNumbers : kMaxBounds) &&
                        arrange(bounds, extent, facts) && !bounds.empty() &&
                        pays(bounds, extent, inner);
    inner *= extent;
    if (!usable) continue;
    pieces *= bounds.size() + 1;
    cuts.push_back({k, std::move(bounds)});
  }
  if (cuts.empty()) return std::nullopt;
  if (pieces <= most) return cuts.back();
  return *std::ranges::max_element(cuts, {}, [](const Cut& cut) { return cut.bounds.size(); });
}

void PieceJoiner::take() {
  Nest& nest = builder_.nest();
  pieces_.push_back({std::exchange(nest.body, Block{}), nest.parallel_axis, nest.parallel_extent});
}

namespace {

/// The one vector loop that a piece is, with nothing but scalars, loads and stores in it.
ForStmt* loop_of_piece(Block& body) {
  if (body.size() != 1) return nullptr;
  auto* loop = std::get_if<ForStmt>(&body[0].node);
  if (loop == nullptr || loop->kind != ForStmt::Kind::Vector || !loop->reductions.empty())
    return nullptr;
  const bool is_flat = std::ranges::all_of(*loop->body, [](const Stmt& statement) {
    const auto* store = std::get_if<StoreStmt>(&statement.node);
    return (store != nullptr && !store->combine) ||
           std::holds_alternative<LoadStmt>(statement.node) ||
           std::holds_alternative<ConstStmt>(statement.node) ||
           std::holds_alternative<ApplyStmt>(statement.node) ||
           std::holds_alternative<ConvertStmt>(statement.node) ||
           std::holds_alternative<IndexStmt>(statement.node);
  });
  return is_flat ? loop : nullptr;
}

/// Loads without a mask of what an earlier one reads become that one. @return whether there were such.
bool join_loads(Block& body) {
  std::vector<LoadStmt> seen;
  std::map<ScalarId, ScalarId> same;
  Block kept;
  for (Stmt& statement : body) {
    std::visit(
        [&](auto& node) {
          visit_uses(node, [&](ScalarId& id) {
            if (const auto found = same.find(id); found != same.end()) id = found->second;
          });
        },
        statement.node);
    if (const auto* load = std::get_if<LoadStmt>(&statement.node);
        load != nullptr && load->mask == kNoScalar) {
      const auto before = std::ranges::find_if(seen, [&](const LoadStmt& one) {
        return one.buffer == load->buffer && one.index == load->index;
      });
      if (before != seen.end()) {
        same[load->result] = before->result;
        continue;
      }
      seen.push_back(*load);
    }
    kept.push_back(std::move(statement));
  }
  body = std::move(kept);
  return !same.empty();
}

}  // namespace

/// Stores come after all loads: no result lies where another piece reads.
bool PieceJoiner::merge() {
  if (!may_merge_ || pieces_.size() < 2) return false;
  std::vector<ForStmt*> loops;
  for (Piece& piece : pieces_) {
    ForStmt* loop = loop_of_piece(piece.body);
    if (loop == nullptr || piece.extent != pieces_[0].extent ||
        (!loops.empty() && loop->extent != loops[0]->extent))
      return false;
    loops.push_back(loop);
  }
  Block loads, stores;
  for (std::size_t k = 0; k < pieces_.size(); ++k) {
    Block body = *loops[k]->body;
    substitute(
        body,
        {{pieces_[k].axis, SymExpr(pieces_[0].axis)}, {loops[k]->axis, SymExpr(loops[0]->axis)}},
        builder_.facts());
    for (Stmt& statement : body)
      (std::holds_alternative<StoreStmt>(statement.node) ? stores : loads)
          .push_back(std::move(statement));
  }
  std::ranges::move(stores, std::back_inserter(loads));
  if (!join_loads(loads)) return false;
  *loops[0]->body = std::move(loads);
  builder_.set_parallel(pieces_[0].axis, pieces_[0].extent);
  builder_.nest().body = std::move(pieces_[0].body);
  return true;
}

namespace {

/// Whether what a loop over rows does is one loop over a row that fills a part of a line, or ends in one.
bool has_part_of_a_line(const ForStmt& rows, const Nest& nest) {
  constexpr std::int64_t kLineBytes = 64;
  const auto* row =
      rows.body->size() == 1 ? std::get_if<ForStmt>(&rows.body->front().node) : nullptr;
  if (row == nullptr || row->kind != ForStmt::Kind::Vector) return false;
  return std::ranges::any_of(*row->body, [&](const Stmt& statement) {
    const auto* store = std::get_if<StoreStmt>(&statement.node);
    if (store == nullptr || !row->extent.is_constant()) return false;
    const auto bytes = static_cast<std::int64_t>(size_of(nest.buffers[store->buffer].dtype));
    return row->extent.constant() * bytes % kLineBytes != 0;
  });
}

}  // namespace

bool PieceJoiner::merge_rows() {
  constexpr std::size_t kMost = 8;
  if (pieces_.size() < 2 || pieces_.size() > kMost) return false;
  const SymExpr axis(pieces_[0].axis);
  std::vector<ForStmt*> loops;
  for (Piece& piece : pieces_) {
    auto* loop = piece.body.size() == 1 ? std::get_if<ForStmt>(&piece.body[0].node) : nullptr;
    if (loop == nullptr || loop->kind != ForStmt::Kind::Serial || !loop->carried.empty() ||
        !loop->reductions.empty() || piece.extent != pieces_[0].extent ||
        !has_part_of_a_line(*loop, builder_.nest()))
      return false;
    loops.push_back(loop);
    if (loop->extent.substitute({{piece.axis, axis}}) != loops[0]->extent) return false;
  }
  Block joined;
  for (std::size_t k = 0; k < pieces_.size(); ++k) {
    Block body = *loops[k]->body;
    substitute(body, {{pieces_[k].axis, axis}, {loops[k]->axis, SymExpr(loops[0]->axis)}},
               builder_.facts());
    std::ranges::move(body, std::back_inserter(joined));
  }
  *loops[0]->body = std::move(joined);
  builder_.set_parallel(pieces_[0].axis, pieces_[0].extent);
  builder_.nest().body = std::move(pieces_[0].body);
  return true;
}

/// Each piece for itself: iterations of the first, of the second…
void PieceJoiner::join_in_order() {
  SymExpr total = 0;
  for (const Piece& piece : pieces_) total += piece.extent;
  const Symbol parallel = builder_.new_axis(total);
  builder_.set_parallel(parallel, total);
  const Scalar at = builder_.from_index(parallel);
  SymExpr begin = 0;
  for (Piece& piece : pieces_) {
    const SymExpr end = begin + piece.extent;
    const Scalar from = builder_.apply(ScalarOp::Le, {builder_.from_index(begin), at});
    const Scalar to = builder_.apply(ScalarOp::Lt, {at, builder_.from_index(end)});
    add(piece, SymExpr(parallel) - begin, builder_.apply(ScalarOp::And, {from, to}));
    begin = end;
  }
}

/// A turn is an iteration of the longest piece, and one of each other that has come as far with it.
void PieceJoiner::join_in_turns() {
  // Not simplified: a domain of no elements has turns too, none.
  SymExpr turns = pieces_[0].extent;
  for (const Piece& piece : pieces_)
    if (piece.extent != turns) turns = max(turns, piece.extent);
  const auto count = static_cast<std::int64_t>(pieces_.size());
  const SymExpr total = turns * count;
  const Symbol parallel = builder_.new_axis(total);
  builder_.set_parallel(parallel, total);
  const SymExpr turn = floordiv(parallel, count);
  const Scalar place = builder_.from_index(mod(parallel, count));
  for (std::int64_t k = 0; k < count; ++k) {
    Piece& piece = pieces_[static_cast<std::size_t>(k)];
    const auto come_to = [&](const SymExpr& turns_done) {
      return floordiv(turns_done * piece.extent, max(turns, 1));
    };
    const SymExpr at = piece.extent == turns ? turn : come_to(turn);
    Scalar has_one = builder_.apply(ScalarOp::Eq, {place, builder_.from_index(k)});
    if (piece.extent != turns) {
      const Scalar goes_on = builder_.apply(
          ScalarOp::Lt, {builder_.from_index(at), builder_.from_index(come_to(turn + 1))});
      has_one = builder_.apply(ScalarOp::And, {has_one, goes_on});
    }
    add(piece, at, has_one);
  }
}

void PieceJoiner::add(Piece& piece, const SymExpr& at, Scalar condition) {
  substitute(piece.body, {{piece.axis, at}}, builder_.facts());
  builder_.begin_if(condition);
  auto& branch = std::get<IfStmt>(builder_.nest().body.back().node);
  builder_.end_if();
  *branch.body = std::move(piece.body);
}

void PieceJoiner::join() {
  if (merge() || merge_rows()) return;
  if (in_turns_)
    join_in_turns();
  else
    join_in_order();
}

}  // namespace heddle::jit
