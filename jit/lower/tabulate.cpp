// What the rows of a loop compute alike is computed once.
#include <algorithm>
#include <map>
#include <set>

#include "jit/lower/nest_rewrite.h"
#include "jit/lower/nest_scalars.h"

namespace heddle::jit {
namespace {

/// Bytes that the tables of a loop may take: they are on the stack, and stay in the first-level cache.
constexpr std::int64_t kMostBytes = 16 * 1024;
/// Operations that a table replaces, at least: reading it is one, and an address.
constexpr std::size_t kLeastOperations = 3;

/// A vector loop in a serial one.
class Tabulator {
 public:
  Tabulator(Nest& nest, ForStmt& rows, ForStmt& columns, ScalarId& next_scalar)
      : nest_(nest), rows_(rows), columns_(columns), next_scalar_(next_scalar) {}

  /// The loop that makes the tables, to be put before the rows; nothing where there are none.
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
  void note(IndexStmt& s) { count(s.result, DType::I64); }
  void note(ApplyStmt& s) { count(s.result, s.dtype); }
  void note(ConvertStmt& s) {
    // The same conversion of one scalar needs one table.
    const auto [known, added] = conversions_.emplace(std::pair(s.operand, s.dtype), s.result);
    if (!added) same_[s.result] = known->second;
    count(s.result, s.dtype);
  }
  void note(auto&) {}
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

  Stmt split(const std::vector<ScalarId>& results, std::int64_t width) {
    Block first;
    Block later;
    std::map<ScalarId, ScalarId> renamed;
    for (std::size_t k = 0; k < results.size(); ++k) {
      const DType dtype = dtypes_.at(results[k]);
      const auto table = static_cast<NestBufferId>(nest_.buffers.size());
      nest_.buffers.push_back({.name = "table" + std::to_string(table),
                               .dtype = dtype,
                               .scope = NestBuffer::Scope::Local,
                               .read = true,
                               .written = true,
                               .count = width,
                               .max_count = width});
      tables_.push_back(table);
      renamed[results[k]] = next_scalar_++;
      later.push_back({LoadStmt{renamed[results[k]], dtype, table, columns_.axis}});
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
    for (std::size_t k = 0; k < results.size(); ++k)
      first.push_back({StoreStmt{tables_[k], columns_.axis, results[k]}});
    ForStmt tables{.axis = columns_.axis,
                   .extent = columns_.extent,
                   .kind = ForStmt::Kind::Vector,
                   .body = std::make_shared<Block>(std::move(first))};
    *columns_.body = std::move(later);
    return {std::move(tables)};
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
  std::map<std::pair<ScalarId, DType>, ScalarId> conversions_;
  std::map<ScalarId, ScalarId> same_;
  std::size_t operations_ = 0;
  std::vector<NestBufferId> tables_;
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
  for (std::size_t k = 0; k < nest.body.size(); ++k) {
    auto* rows = std::get_if<ForStmt>(&nest.body[k].node);
    if (rows == nullptr || rows->kind != ForStmt::Kind::Serial) continue;
    for (Stmt& inner : *rows->body) {
      auto* columns = std::get_if<ForStmt>(&inner.node);
      if (columns == nullptr || columns->kind != ForStmt::Kind::Vector) continue;
      if (auto tables = Tabulator(nest, *rows, *columns, next).run()) {
        nest.body.insert(nest.body.begin() + static_cast<std::ptrdiff_t>(k), std::move(*tables));
        ++k;
      }
      break;
    }
  }
}

}  // namespace heddle::jit
