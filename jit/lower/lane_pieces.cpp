#include "jit/lower/lane_pieces.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "base/symreal.h"
#include "jit/lower/copies.h"
#include "jit/lower/nest_rewrite.h"

namespace heddle::jit {
namespace {

using Kind = SymExpr::Kind;

constexpr std::size_t kMostLanePieces = 6;
/// Statements of a loop that is worth so many copies.
constexpr std::size_t kMostStatements = 40;

/// What an atom of an index is below and from `bound` on, in lanes.
struct Turn {
  SymExpr atom;
  std::vector<SymExpr> bounds;    ///< in order
  std::vector<SymExpr> branches;  ///< one more
};

/// A place among the lanes, and what it is where it has a name of its own.
struct Place {
  SymExpr at;
  SymExpr known;
};

/// Lanes [begin, end) of a loop.
struct LanePiece {
  Place begin;
  Place end;
  Block body;
};

SymExpr rebuilt(const SymExpr& expr, const SymExpr& atom, const SymExpr& branch) {
  if (expr == atom) return branch;
  if (expr.is_constant() || expr.is_symbol() || base::is_real(expr.kind())) return expr;
  std::vector<SymExpr> parts = expr.operands();
  for (SymExpr& part : parts) part = rebuilt(part, atom, branch);
  SymExpr made = parts[0];
  for (std::size_t k = 1; k < parts.size(); ++k) {
    switch (expr.kind()) {
      case Kind::Sum:
        made += parts[k];
        break;
      case Kind::Product:
        made *= parts[k];
        break;
      case Kind::FloorDiv:
        made = floordiv(made, parts[k]);
        break;
      case Kind::Mod:
        made = mod(made, parts[k]);
        break;
      case Kind::Min:
        made = min(made, parts[k]);
        break;
      default:
        made = max(made, parts[k]);
    }
  }
  return made;
}

class LaneSplitter {
 public:
  LaneSplitter(NestBuilder& builder, const ForStmt& loop)
      : builder_(builder), facts_(builder.facts()), loop_(loop), lane_(loop.axis) {}

  /// Whether a split succeeded; `into` has the loops then.
  bool run(Block& into) {
    if (!is_plain() || find_uneven(*loop_.body) == nullptr) return false;
    std::deque<LanePiece> open;
    open.push_back({{0, 0}, {loop_.extent, loop_.extent}, *loop_.body});
    std::vector<LanePiece> pieces;
    while (!open.empty()) {
      LanePiece piece = std::move(open.front());
      open.pop_front();
      const auto turn = find_turn(piece);
      if (!turn || pieces.size() + open.size() + turn->branches.size() > kMostLanePieces) {
        pieces.push_back(std::move(piece));
        continue;
      }
      std::vector<LanePiece> parts = cut(piece, *turn);
      open.insert(open.begin(), std::make_move_iterator(parts.begin()),
                  std::make_move_iterator(parts.end()));
    }
    const auto is_even = [&](const LanePiece& piece) { return !find_uneven(piece.body); };
    if (std::ranges::none_of(pieces, is_even)) return false;
    into.insert(into.end(), std::make_move_iterator(places_.begin()),
                std::make_move_iterator(places_.end()));
    for (LanePiece& piece : pieces) emit(std::move(piece), into);
    return true;
  }

  bool certain() const { return certain_; }

 private:
  bool is_plain() const {
    if (loop_.kind != ForStmt::Kind::Vector || !loop_.reductions.empty() ||
        !loop_.carried.empty() || loop_.body->size() > kMostStatements)
      return false;
    return std::ranges::all_of(*loop_.body, [](const Stmt& statement) {
      return !std::holds_alternative<ForStmt>(statement.node) &&
             !std::holds_alternative<IfStmt>(statement.node) &&
             !std::holds_alternative<BindStmt>(statement.node) &&
             !std::holds_alternative<ContractStmt>(statement.node);
    });
  }

  /// The index of a load whose lanes are neither one element nor at steps of so many.
  const SymExpr* find_uneven(const Block& body) const {
    for (const Stmt& statement : body) {
      const auto* load = std::get_if<LoadStmt>(&statement.node);
      if (load != nullptr && !load->index.linear_in(lane_)) return &load->index;
    }
    return nullptr;
  }

  std::optional<Turn> find_turn(const LanePiece& piece) const {
    for (const Stmt& statement : piece.body) {
      const auto* load = std::get_if<LoadStmt>(&statement.node);
      if (load == nullptr || load->index.linear_in(lane_)) continue;
      if (auto turn = turn_in(load->index, piece)) return turn;
    }
    return std::nullopt;
  }

  /// The innermost atom that is linear in the lane on each side of a few bounds.
  std::optional<Turn> turn_in(const SymExpr& expr, const LanePiece& piece) const {
    if (expr.is_constant() || expr.is_symbol() || !expr.mentions(lane_)) return std::nullopt;
    const std::vector<SymExpr> parts = expr.operands();
    for (const SymExpr& part : parts)
      if (auto turn = turn_in(part, piece)) return turn;
    switch (expr.kind()) {
      case Kind::Min:
      case Kind::Max:
        return turn_of(expr, parts[0], parts[1]);
      case Kind::Mod:
      case Kind::FloorDiv:
        return turns_of(expr, parts[0], parts[1], piece);
      default:
        return std::nullopt;
    }
  }

  /// Of min or max.
  std::optional<Turn> turn_of(const SymExpr& atom, const SymExpr& a, const SymExpr& b) const {
    if (!a.linear_in(lane_) || !b.linear_in(lane_)) return std::nullopt;
    const auto difference = (a - b).linear_in(lane_);
    const auto slope = difference ? difference->coefficient.as_constant() : std::nullopt;
    if (!slope || *slope == 0) return std::nullopt;
    const bool first_is_a = (atom.kind() == Kind::Min) == (*slope > 0);
    const SymExpr& first = first_is_a ? a : b;
    const SymExpr zero = *slope > 0 ? -difference->rest : difference->rest;
    SymExpr bound = ceildiv(zero, std::abs(*slope));
    // Where both are equal the lane goes to its neighbours.
    if (first.linear_in(lane_)->coefficient.is_constant(1) && bound * std::abs(*slope) == zero)
      bound += 1;
    return Turn{atom, {bound}, {first, first_is_a ? b : a}};
  }

  /// Of lane + rest divided by a number that goes into the lanes a few times.
  std::optional<Turn> turns_of(const SymExpr& atom, const SymExpr& dividend, const SymExpr& divisor,
                               const LanePiece& piece) const {
    constexpr std::int64_t kMostTimes = static_cast<std::int64_t>(kMostLanePieces) - 2;
    const auto linear = dividend.linear_in(lane_);
    const auto extent = piece.end.at.as_constant();
    const auto period = divisor.as_constant();
    if (!linear || !linear->coefficient.is_constant(1) || !extent || !period || *period <= 0 ||
        *extent / *period >= kMostTimes)
      return std::nullopt;
    const SymExpr first = floordiv(linear->rest + piece.begin.at, *period).simplify(facts_);
    Turn turn{atom, {}, {}};
    for (std::int64_t k = 0; k <= *extent / *period + 1; ++k) {
      const SymExpr quotient = first + k;
      const bool divides = atom.kind() == Kind::FloorDiv;
      turn.branches.push_back(divides ? quotient : dividend - quotient * *period);
      turn.bounds.push_back((quotient + 1) * *period - linear->rest);
    }
    turn.bounds.pop_back();
    return turn;
  }

  bool is_at_most(const SymExpr& a, const SymExpr& b) const {
    return base::provably_nonnegative((b - a).simplify(facts_), facts_);
  }

  /// A bound within [begin, end], computed once where it is no number.
  Place place(const SymExpr& bound, const Place& begin, const Place& end) {
    Place made;
    made.known = min(bound, end.known).simplify(facts_);
    if (!is_at_most(begin.known, made.known))
      made.known = max(begin.known, made.known).simplify(facts_);
    made.at = made.known;
    if (made.at.is_constant()) return made;
    made.at = builder_.bind(builder_.from_index(bound), begin.at, end.at, 0);
    Block& body = builder_.nest().body;
    places_.insert(places_.end(), std::make_move_iterator(body.begin()),
                   std::make_move_iterator(body.end()));
    body.clear();
    return made;
  }

  std::vector<LanePiece> cut(const LanePiece& piece, const Turn& turn) {
    std::vector<LanePiece> parts;
    Place begin = piece.begin;
    for (std::size_t k = 0; k < turn.branches.size(); ++k) {
      Place end = piece.end;
      if (k < turn.bounds.size() && !is_at_most(piece.end.known, turn.bounds[k])) {
        if (is_at_most(turn.bounds[k], begin.known)) continue;
        end = place(turn.bounds[k], begin, piece.end);
      }
      if (is_at_most(end.known, begin.known)) continue;
      LanePiece part{begin, end, piece.body};
      for_each_expr(part.body, [&](SymExpr& expr) {
        if (expr.mentions(lane_))
          expr = rebuilt(expr, turn.atom, turn.branches[k]).simplify(facts_);
      });
      parts.push_back(std::move(part));
      begin = end;
    }
    return parts;
  }

  void emit(LanePiece piece, Block& into) {
    const SymExpr extent = (piece.end.at - piece.begin.at).simplify(facts_);
    certain_ = certain_ && is_at_most(piece.begin.known + 1, piece.end.known);
    ForStmt made;
    made.axis = builder_.new_axis(extent);
    made.extent = extent;
    made.kind = ForStmt::Kind::Vector;
    CopyNames names{{}, {{lane_, piece.begin.at + made.axis}}};
    made.body = std::make_shared<Block>(copy_of(builder_, piece.body, std::move(names)));
    into.push_back(Stmt{std::move(made)});
  }

  NestBuilder& builder_;
  const base::Facts& facts_;
  const ForStmt& loop_;
  const Symbol lane_;
  Block places_;
  bool certain_ = true;
};

bool split_block(NestBuilder& builder, Block& block) {
  bool certain = true;
  Block made;
  for (Stmt& statement : block) {
    auto* loop = std::get_if<ForStmt>(&statement.node);
    if (loop != nullptr) {
      LaneSplitter splitter(builder, *loop);
      if (splitter.run(made)) {
        certain = certain && splitter.certain();
        continue;
      }
      certain = split_block(builder, *loop->body) && certain;
    }
    if (auto* branch = std::get_if<IfStmt>(&statement.node))
      certain = split_block(builder, *branch->body) && certain;
    made.push_back(std::move(statement));
  }
  block = std::move(made);
  return certain;
}

}  // namespace

bool split_lanes(NestBuilder& builder) {
  Block body = std::exchange(builder.nest().body, Block{});
  const bool certain = split_block(builder, body);
  builder.nest().body = std::move(body);
  return certain;
}

}  // namespace heddle::jit
