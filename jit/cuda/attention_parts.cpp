#include <set>

#include "jit/cuda/attention_text.h"
#include "jit/lower/nest_rewrite.h"
#include "jit/lower/nest_scalars.h"

namespace heddle::jit::cuda {
namespace {

constexpr std::int64_t kMostColumns = 128;

bool is_loop(const Stmt& statement, ForStmt::Kind kind) {
  const auto* loop = std::get_if<ForStmt>(&statement.node);
  return loop != nullptr && loop->kind == kind && loop->carried.empty();
}

/// Collects the parts of a nest; `fits` becomes false where it has another form.
class AttentionFinder {
 public:
  explicit AttentionFinder(const Nest& nest) : nest_(nest) { parts_.nest = &nest; }

  std::optional<AttentionParts> run() {
    for (const Stmt& statement : nest_.body) at_block_level(statement);
    require(parts_.score != nullptr && parts_.sums != nullptr && parts_.columns != nullptr);
    if (fits_) contractions();
    if (fits_) group();
    return fits_ ? std::optional(parts_) : std::nullopt;
  }

 private:
  void require(bool condition) { fits_ = fits_ && condition; }

  void at_block_level(const Stmt& statement) {
    if (const auto* bind = std::get_if<BindStmt>(&statement.node); bind != nullptr && is_own(*bind))
      return;
    if (const auto* index = std::get_if<IndexStmt>(&statement.node);
        index != nullptr && index->index.mentions(nest_.parallel_axis)) {
      places_.insert(index->result);
      return;
    }
    if (!std::holds_alternative<ForStmt>(statement.node)) return scalar(statement, parts_.before);
    // What the sums begin with is the emitter's own business.
    if (is_loop(statement, ForStmt::Kind::Vector)) return require(parts_.tiles == nullptr);
    require(is_loop(statement, ForStmt::Kind::Serial));
    const auto& loop = std::get<ForStmt>(statement.node);
    if (parts_.tiles == nullptr) return tiles(loop);
    require(parts_.rows == nullptr);
    rows(loop);
  }

  /// The bind of one of the three places.
  bool is_own(const BindStmt& bind) const {
    const AttentionForm& form = *nest_.attention;
    return bind.check == 0 &&
           (bind.symbol == form.batch || bind.symbol == form.head || bind.symbol == form.row_begin);
  }

  void scalar(const Stmt& statement, std::vector<const Stmt*>& list) {
    require(!std::holds_alternative<StoreStmt>(statement.node) &&
            !std::holds_alternative<IfStmt>(statement.node) &&
            !std::holds_alternative<ForStmt>(statement.node) &&
            !std::holds_alternative<ContractStmt>(statement.node));
    independent(statement);
    list.push_back(&statement);
  }

  /// Nothing but the places may know the parallel axis, and of local buffers only what loads() allows is read.
  void independent(const Stmt& statement) {
    Block one = {statement};
    for (const SymExpr& expr : expressions_of(one)) require(!expr.mentions(nest_.parallel_axis));
    std::visit(
        [&](auto& node) { visit_uses(node, [&](ScalarId id) { require(!places_.contains(id)); }); },
        one[0].node);
    if (const auto* load = std::get_if<LoadStmt>(&statement.node);
        load != nullptr && load->buffer >= nest_.global_count())
      require(readable_ == load->buffer && load->index == at_);
  }
  /// From now on `buffer` may be read at `index`.
  void loads(NestBufferId buffer, SymExpr index) {
    readable_ = buffer;
    at_ = std::move(index);
  }

  void tiles(const ForStmt& loop) {
    require(loop.reductions.empty());
    parts_.tiles = &loop;
    for (const Stmt& statement : *loop.body) {
      if (const auto* contract = std::get_if<ContractStmt>(&statement.node)) {
        const bool first = parts_.scores == nullptr;
        require(first || (parts_.score_rows != nullptr && parts_.sums == nullptr));
        (first ? parts_.scores : parts_.sums) = contract;
      } else if (parts_.score_rows != nullptr) {
        continue;  // scores become weights
      } else if (is_loop(statement, ForStmt::Kind::Serial)) {
        require(parts_.scores != nullptr);
        if (fits_) score_rows(std::get<ForStmt>(statement.node));
      } else {
        scalar(statement, parts_.of_tile);
      }
    }
  }

  void score_rows(const ForStmt& loop) {
    require(loop.reductions.empty() && loop.extent == parts_.scores->rows);
    parts_.score_rows = &loop;
    for (const Stmt& statement : *loop.body) {
      if (parts_.score_columns != nullptr) continue;  // the row's largest score
      if (is_loop(statement, ForStmt::Kind::Vector))
        score_columns(std::get<ForStmt>(statement.node));
      else
        scalar(statement, parts_.of_score_row);
    }
  }

  void score_columns(const ForStmt& loop) {
    require(loop.extent == parts_.scores->columns);
    parts_.score_columns = &loop;
    loads(parts_.scores->acc,
          SymExpr(parts_.score_rows->axis) * AttentionForm::kKeys + SymExpr(loop.axis));
    for (const Stmt& statement : *loop.body) {
      if (const auto* store = std::get_if<StoreStmt>(&statement.node)) {
        require(parts_.score == nullptr && store->buffer == readable_ && store->index == at_ &&
                store->mask == kNoScalar && !store->combine);
        parts_.score = store;
        continue;
      }
      std::vector<const Stmt*> ignored;
      require(parts_.score == nullptr);
      scalar(statement, ignored);
    }
    readable_.reset();
  }

  void rows(const ForStmt& loop) {
    require(loop.reductions.empty() && parts_.sums != nullptr);
    if (!fits_) return;
    require(loop.extent == parts_.sums->rows);
    parts_.rows = &loop;
    loads(nest_.attention->totals, loop.axis);
    for (const Stmt& statement : *loop.body) {
      require(parts_.columns == nullptr);
      if (is_loop(statement, ForStmt::Kind::Vector))
        columns(std::get<ForStmt>(statement.node));
      else
        scalar(statement, parts_.of_row);
    }
  }

  void columns(const ForStmt& loop) {
    require(loop.reductions.empty() && loop.extent == parts_.sums->columns);
    parts_.columns = &loop;
    loads(parts_.sums->acc,
          SymExpr(parts_.rows->axis) * parts_.sums->tile_columns + SymExpr(loop.axis));
    for (const Stmt& statement : *loop.body) {
      independent(statement);
      require(!std::holds_alternative<ContractStmt>(statement.node));
    }
  }

  void contractions() {
    const ContractStmt& scores = *parts_.scores;
    const ContractStmt& sums = *parts_.sums;
    const DType dtype = parts_.dtype();
    require(dtype == DType::F16 || dtype == DType::BF16 || dtype == DType::F32);
    require(nest_.buffers[scores.b.buffer].dtype == dtype &&
            nest_.buffers[sums.b.buffer].dtype == dtype);
    require(scores.dtype == DType::F32 && sums.dtype == DType::F32 && !scores.accumulate &&
            sums.accumulate && sums.a.buffer == scores.acc);
    require(scores.tile_columns == AttentionForm::kKeys && scores.depth.is_constant() &&
            scores.depth.constant() <= kMostColumns && sums.tile_columns <= kMostColumns &&
            sums.columns.is_constant(sums.tile_columns));
    require(scores.a.column_stride.is_constant(1) && scores.b.row_stride.is_constant(1) &&
            sums.b.column_stride.is_constant(1));
  }

  void group() {
    const AttentionForm& form = *nest_.attention;
    if (!form.heads.is_constant() || !form.key_heads.is_constant() || form.key_heads.is_constant(0))
      return;
    const SymExpr& query = parts_.scores->a.base;
    parts_.group = std::max<std::int64_t>(1, form.heads.constant() / form.key_heads.constant());
    parts_.head_stride = query.substitute({{form.head, SymExpr(form.head) + 1}}) - query;
    if (parts_.head_stride.mentions(form.head)) parts_.group = 1;
  }

  const Nest& nest_;
  AttentionParts parts_;
  std::set<ScalarId> places_;
  std::optional<NestBufferId> readable_;
  SymExpr at_;
  bool fits_ = true;
};

}  // namespace

std::optional<AttentionParts> attention_parts(const Nest& nest) {
  return nest.attention ? AttentionFinder(nest).run() : std::nullopt;
}

}  // namespace heddle::jit::cuda
