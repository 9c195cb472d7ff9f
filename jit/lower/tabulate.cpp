// What the rows of a loop compute alike is computed once.
#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "jit/lower/nest_rewrite.h"
#include "jit/lower/nest_scalars.h"

namespace heddle::jit {
namespace {

/// Bytes that the tables of a loop may take: they are on the stack, and read in order, so that they may lie in the second-level
/// cache.
constexpr std::int64_t kMostBytes = 40 * 1024;
/// Operations that a table replaces, at least: reading it is one, and an address.
constexpr std::size_t kLeastOperations = 3;

/// A table that there is: `result` for each `column`.
struct Table {
  NestBufferId buffer;
  ScalarId result;
  Symbol column;
};

/// How a scalar comes from others: by an operation or, without one, by conversion.
struct Computed {
  std::optional<ir::ScalarOp> op;
  DType dtype;
  std::vector<ScalarId> operands;

  auto operator<=>(const Computed&) const = default;
};

/// Tells scalars that are computed alike in two loops over columns.
class Alike {
 public:
  explicit Alike(Block& block) { note(block); }

  /// Whether `a` in a loop over `column` is `b` in one over `other`.
  bool operator()(ScalarId a, Symbol column, ScalarId b, Symbol other) {
    places_ = {{column, SymExpr(other)}};
    known_.clear();
    return is_same(a, b);
  }

 private:
  void note(Block& block) {
    for (Stmt& statement : block) {
      std::visit(
          [&](auto& node) {
            visit_definitions(node, [&](ScalarId id) { definitions_[id] = &statement; });
          },
          statement.node);
      if (auto* loop = std::get_if<ForStmt>(&statement.node)) note(*loop->body);
    }
  }

  bool is_same(ScalarId a, ScalarId b) {
    if (a == b) return true;
    const auto left = definitions_.find(a);
    const auto right = definitions_.find(b);
    if (left == definitions_.end() || right == definitions_.end()) return false;
    const auto [known, added] = known_.emplace(std::pair(a, b), false);
    if (added)
      known->second = std::visit(
          [&](const auto& node) {
            const auto* other = std::get_if<std::decay_t<decltype(node)>>(&right->second->node);
            return other != nullptr && is_same(node, *other);
          },
          left->second->node);
    return known->second;
  }
  bool is_same(const ConstStmt& a, const ConstStmt& b) const {
    return a.dtype == b.dtype && a.integer == b.integer &&
           std::bit_cast<std::uint64_t>(a.number) == std::bit_cast<std::uint64_t>(b.number);
  }
  bool is_same(const IndexStmt& a, const IndexStmt& b) const {
    return a.index.substitute(places_) == b.index;
  }
  bool is_same(const ConvertStmt& a, const ConvertStmt& b) {
    return a.dtype == b.dtype && is_same(a.operand, b.operand);
  }
  bool is_same(const ApplyStmt& a, const ApplyStmt& b) {
    return a.op == b.op && a.dtype == b.dtype &&
           std::ranges::equal(a.operands, b.operands,
                              [&](ScalarId left, ScalarId right) { return is_same(left, right); });
  }
  bool is_same(const auto&, const auto&) const { return false; }

  std::map<ScalarId, const Stmt*> definitions_;
  base::SymbolExprs places_;
  std::map<std::pair<ScalarId, ScalarId>, bool> known_;
};

/// A vector loop in a serial one.
class Tabulator {
 public:
  Tabulator(Nest& nest, ForStmt& rows, ForStmt& columns, ScalarId& next_scalar,
            std::vector<Table>& tables)
      : nest_(nest),
        rows_(rows),
        columns_(columns),
        next_scalar_(next_scalar),
        known_tables_(tables) {}

  /// The loop that makes the tables, to be put before the rows; nothing where there are none to be made.
  std::optional<Stmt> run() {
    find_alike();
    const std::vector<ScalarId> results = read_later();
    const auto width = columns_.extent.as_constant();
    if (!width || results.empty() || operations_ < kLeastOperations * results.size()) return {};
    std::int64_t bytes = 0;
    for (const ScalarId id : results) {
      const DType dtype = dtypes_.at(id);
      if (dtype == DType::Bool) return {};
      bytes += *width * static_cast<std::int64_t>(size_of(dtype));
    }
    if (bytes > kMostBytes) return {};
    return split(results, *width);
  }

 private:
  /// Statements that are the same for every row: of the column and of what is known before the rows.
  void find_alike() {
    note_rows(*rows_.body);
    for (Stmt& statement : *columns_.body) {
      const bool is_alike =
          std::visit([&](auto& node) { return depends_on_column(node); }, statement.node);
      alike_.push_back(is_alike);
      if (is_alike)
        std::visit([&](auto& node) { note(node); }, statement.node);
      else
        forget(statement);
    }
  }

  /// What the rows define, the columns included: of no use before them.
  void note_rows(Block& block) {
    of_rows_.insert(rows_.axis);
    for (const LoopCarried& carried : rows_.carried) scalars_of_rows_.insert(carried.current);
    for (Stmt& statement : block) {
      if (std::get_if<ForStmt>(&statement.node) == &columns_) continue;
      forget(statement);
    }
  }

  void forget(Stmt& statement) {
    std::visit(
        [&](auto& node) {
          visit_definitions(node, [&](ScalarId id) { scalars_of_rows_.insert(id); });
        },
        statement.node);
    if (const auto* bind = std::get_if<BindStmt>(&statement.node)) of_rows_.insert(bind->symbol);
  }

  bool depends_on_column(IndexStmt& s) const {
    return std::ranges::none_of(of_rows_, [&](Symbol symbol) { return s.index.mentions(symbol); });
  }
  bool depends_on_column(ApplyStmt& s) const { return is_known(s); }
  bool depends_on_column(ConvertStmt& s) const { return is_known(s); }
  bool depends_on_column(ConstStmt&) const { return true; }
  bool depends_on_column(auto&) const { return false; }
  bool is_known(auto& node) const {
    bool known = true;
    visit_uses(node, [&](ScalarId id) { known = known && !scalars_of_rows_.contains(id); });
    return known;
  }

  void note(ConstStmt& s) { dtypes_[s.result] = s.dtype; }
  void note(IndexStmt& s) {
    const auto known =
        std::ranges::find(indices_, s.index, [](const auto& pair) { return pair.first; });
    if (known != indices_.end())
      same_[s.result] = known->second;
    else
      indices_.emplace_back(s.index, s.result);
    count(s.result, DType::I64);
  }
  void note(ApplyStmt& s) { note_computed({s.op, s.dtype, s.operands}, s.result); }
  void note(ConvertStmt& s) { note_computed({std::nullopt, s.dtype, {s.operand}}, s.result); }
  void note(auto&) {}
  /// What is computed alike, as places of neighbouring channels are, needs one table.
  void note_computed(Computed computed, ScalarId result) {
    for (ScalarId& id : computed.operands) id = first_of(id);
    const auto [known, added] = computed_.emplace(std::move(computed), result);
    if (!added) same_[result] = known->second;
    count(result, known->first.dtype);
  }
  void count(ScalarId result, DType dtype) {
    dtypes_[result] = dtype;
    made_.insert(result);
    if (!same_.contains(result)) ++operations_;
  }

  ScalarId first_of(ScalarId id) const {
    const auto found = same_.find(id);
    return found == same_.end() ? id : found->second;
  }

  /// Scalars that what stays reads.
  std::vector<ScalarId> read_later() {
    std::vector<ScalarId> results;
    const auto use = [&](ScalarId id) {
      if (made_.contains(id) && std::ranges::find(results, first_of(id)) == results.end())
        results.push_back(first_of(id));
    };
    for (std::size_t k = 0; k < alike_.size(); ++k)
      if (!alike_[k]) visit_all_uses((*columns_.body)[k], use);
    visit_loop_exits(columns_, use);
    return results;
  }

  template <typename F>
  static void visit_all_uses(Stmt& statement, const F& use) {
    std::visit([&](auto& node) { visit_uses(node, use); }, statement.node);
    if (auto* loop = std::get_if<ForStmt>(&statement.node)) {
      for (Stmt& inner : *loop->body) visit_all_uses(inner, use);
      visit_loop_exits(*loop, use);
    }
    if (auto* branch = std::get_if<IfStmt>(&statement.node))
      for (Stmt& inner : *branch->body) visit_all_uses(inner, use);
  }

  /// An earlier table of the same numbers.
  std::optional<NestBufferId> known_table(Alike& alike, ScalarId result, std::int64_t width) const {
    for (const Table& table : known_tables_)
      if (nest_.buffers[table.buffer].dtype == dtypes_.at(result) &&
          nest_.buffers[table.buffer].max_count == width &&
          alike(result, columns_.axis, table.result, table.column))
        return table.buffer;
    return std::nullopt;
  }

  NestBufferId add_table(ScalarId result, std::int64_t width) {
    const auto table = static_cast<NestBufferId>(nest_.buffers.size());
    nest_.buffers.push_back({.name = "table" + std::to_string(table),
                             .dtype = dtypes_.at(result),
                             .scope = NestBuffer::Scope::Local,
                             .read = true,
                             .written = true,
                             .count = width,
                             .max_count = width});
    made_tables_.push_back({table, result, columns_.axis});
    return table;
  }

  std::optional<Stmt> split(const std::vector<ScalarId>& results, std::int64_t width) {
    Block first;
    Block later;
    std::map<ScalarId, ScalarId> renamed;
    std::optional<Alike> alike;
    if (!known_tables_.empty()) alike.emplace(nest_.body);
    for (const ScalarId result : results) {
      const auto known = alike ? known_table(*alike, result, width) : std::nullopt;
      const NestBufferId table = known ? *known : add_table(result, width);
      renamed[result] = next_scalar_++;
      later.push_back({LoadStmt{renamed[result], dtypes_.at(result), table, columns_.axis}});
    }
    const auto rename = [&](ScalarId& id) {
      const auto found = renamed.find(first_of(id));
      if (found != renamed.end()) id = found->second;
    };
    for (std::size_t k = 0; k < alike_.size(); ++k) {
      Stmt& statement = (*columns_.body)[k];
      if (alike_[k]) {
        // Constants serve both.
        if (auto* constant = std::get_if<ConstStmt>(&statement.node)) {
          ConstStmt copy = *constant;
          copy.result = next_scalar_++;
          renamed[constant->result] = copy.result;
          later.push_back({copy});
        }
        first.push_back(std::move(statement));
      } else {
        visit_all_uses(statement, rename);
        later.push_back(std::move(statement));
      }
    }
    visit_loop_exits(columns_, rename);
    for (const Table& table : made_tables_)
      first.push_back({StoreStmt{table.buffer, columns_.axis, table.result}});
    ForStmt tables{.axis = columns_.axis,
                   .extent = columns_.extent,
                   .kind = ForStmt::Kind::Vector,
                   .body = std::make_shared<Block>(std::move(first))};
    *columns_.body = std::move(later);
    if (made_tables_.empty()) return std::nullopt;
    known_tables_.insert(known_tables_.end(), made_tables_.begin(), made_tables_.end());
    return Stmt{std::move(tables)};
  }

  Nest& nest_;
  ForStmt& rows_;
  ForStmt& columns_;
  ScalarId& next_scalar_;
  std::set<Symbol> of_rows_;
  std::set<ScalarId> scalars_of_rows_;
  std::vector<bool> alike_;  ///< by statement of the columns
  std::set<ScalarId> made_;  ///< by those
  std::map<ScalarId, DType> dtypes_;
  std::map<Computed, ScalarId> computed_;
  std::vector<std::pair<SymExpr, ScalarId>> indices_;
  std::map<ScalarId, ScalarId> same_;
  std::size_t operations_ = 0;
  std::vector<Table>& known_tables_;
  std::vector<Table> made_tables_;
};

ScalarId scalars_of(Block& block) {
  ScalarId most = 0;
  for (Stmt& statement : block) {
    std::visit(
        [&](auto& node) {
          visit_definitions(node, [&](ScalarId id) { most = std::max(most, id + 1); });
        },
        statement.node);
    if (auto* loop = std::get_if<ForStmt>(&statement.node)) {
      for (const LoopCarried& carried : loop->carried) most = std::max(most, carried.current + 1);
      most = std::max(most, scalars_of(*loop->body));
    }
    if (auto* branch = std::get_if<IfStmt>(&statement.node))
      most = std::max(most, scalars_of(*branch->body));
  }
  return most;
}

}  // namespace

void tabulate_columns(Nest& nest) {
  if (nest.product || nest.attention) return;
  ScalarId next = scalars_of(nest.body);
  std::vector<Table> made;
  for (std::size_t k = 0; k < nest.body.size(); ++k) {
    auto* rows = std::get_if<ForStmt>(&nest.body[k].node);
    if (rows == nullptr || rows->kind != ForStmt::Kind::Serial) continue;
    for (Stmt& inner : *rows->body) {
      auto* columns = std::get_if<ForStmt>(&inner.node);
      if (columns == nullptr || columns->kind != ForStmt::Kind::Vector) continue;
      if (auto tables = Tabulator(nest, *rows, *columns, next, made).run()) {
        nest.body.insert(nest.body.begin() + static_cast<std::ptrdiff_t>(k), std::move(*tables));
        ++k;
      }
      break;
    }
  }
}

}  // namespace heddle::jit
