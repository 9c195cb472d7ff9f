#include "jit/cpu/llvm/row_strips.h"

#include <algorithm>
#include <map>
#include <set>

#include "jit/cpu/llvm/loop_shape.h"
#include "jit/lower/nest_scalars.h"

namespace heddle::jit::cpu {
namespace {

/// What the rows of a strip may occupy: half of a first-level cache, whose other half is for the rows after them.
constexpr std::int64_t kStripBytes = 16 << 10;
constexpr std::int64_t kMostRows = 8;

const ForStmt* loop_of(const Stmt& statement) { return std::get_if<ForStmt>(&statement.node); }

bool is_inner(const Stmt& statement) {
  return loop_of(statement) == nullptr && !std::holds_alternative<IfStmt>(statement.node) &&
         !std::holds_alternative<ContractStmt>(statement.node);
}

bool is_row_loop(const ForStmt& loop) {
  return loop.kind == ForStmt::Kind::Vector && loop.extent.is_constant() &&
         std::ranges::all_of(*loop.body, is_inner) && !analyse(loop).needs_scalar;
}

/// What is computed once a row. Temporaries would have to be kept with the scalars, and few rows have any.
bool is_row_value(const Stmt& statement) {
  return is_inner(statement) && !std::holds_alternative<BindStmt>(statement.node);
}

/// Whether the body is loops over a row, the results of one of them being what a later one waits for.
bool is_of_rows(const Nest& nest) {
  if (nest.product || nest.attention) return false;
  std::size_t loops = 0;
  bool reduced = false;
  bool waits = false;
  for (const Stmt& statement : nest.body) {
    const ForStmt* loop = loop_of(statement);
    if (loop == nullptr ? !is_row_value(statement) : !is_row_loop(*loop)) return false;
    if (loop == nullptr) continue;
    ++loops;
    waits = waits || reduced;
    reduced = reduced || !loop->reductions.empty();
  }
  return loops > 1 && waits;
}

/// Bytes of a row's own that the nest touches: what lies elsewhere for each row, once for each buffer.
std::int64_t row_bytes(const Nest& nest) {
  std::map<NestBufferId, std::int64_t> bytes;
  const auto note = [&](const ForStmt& loop, NestBufferId id, const SymExpr& index) {
    const bool own = id >= nest.global_count() || index.mentions(nest.parallel_axis);
    if (!own || !index.mentions(loop.axis)) return;
    const auto size = static_cast<std::int64_t>(size_of(nest.buffers[id].dtype));
    bytes[id] = std::max(bytes[id], loop.extent.constant() * size);
  };
  for (const Stmt& statement : nest.body) {
    const ForStmt* loop = loop_of(statement);
    if (loop == nullptr) continue;
    for (const Stmt& inner : *loop->body) {
      if (const auto* load = std::get_if<LoadStmt>(&inner.node))
        note(*loop, load->buffer, load->index);
      if (const auto* store = std::get_if<StoreStmt>(&inner.node))
        note(*loop, store->buffer, store->index);
    }
  }
  std::int64_t sum = 0;
  for (const auto& [id, count] : bytes) sum += count;
  return sum;
}

std::int64_t rows_of_strip(const Nest& nest) {
  const bool scratch = std::any_of(nest.buffers.begin() + nest.global_count(), nest.buffers.end(),
                                   [](const NestBuffer& buffer) { return buffer.max_count == 0; });
  if (scratch || !is_of_rows(nest)) return 1;
  const std::int64_t bytes = row_bytes(nest);
  std::int64_t rows = kMostRows;
  while (rows > 1 && rows * bytes > kStripBytes) rows /= 2;
  if (nest.parallel_extent.is_constant())
    while (rows > 1 && rows > nest.parallel_extent.constant()) rows /= 2;
  return rows;
}

/// One for each loop, with what precedes the first of them and what follows each.
std::vector<RowPhase> phases_of(const Block& body) {
  std::vector<RowPhase> phases(1);
  bool has_loop = false;
  for (std::size_t k = 0; k < body.size(); ++k) {
    if (loop_of(body[k]) != nullptr) {
      if (has_loop) phases.push_back({.begin = k, .end = k, .recalled = {}, .kept = {}});
      has_loop = true;
    }
    phases.back().end = k + 1;
  }
  return phases;
}

/// Scalars that a statement uses, inside of it too.
void collect_uses(Stmt& statement, std::set<ScalarId>& uses) {
  const auto note = [&](ScalarId id) { uses.insert(id); };
  std::visit([&](auto& node) { visit_uses(node, note); }, statement.node);
  auto* loop = std::get_if<ForStmt>(&statement.node);
  if (loop == nullptr) return;
  visit_loop_exits(*loop, note);
  for (Stmt& inner : *loop->body) collect_uses(inner, uses);
}

/// Fills in what phases hand on. Constants are the same for all rows.
void connect(const Block& body, std::vector<RowPhase>& phases) {
  std::map<ScalarId, std::size_t> defined_in;
  for (std::size_t p = 0; p < phases.size(); ++p) {
    std::set<ScalarId> uses;
    for (std::size_t k = phases[p].begin; k < phases[p].end; ++k) {
      // The visitors take what they may change.
      Stmt& statement = const_cast<Stmt&>(body[k]);
      collect_uses(statement, uses);
      if (std::holds_alternative<ConstStmt>(statement.node)) continue;
      std::visit(
          [&](auto& node) { visit_definitions(node, [&](ScalarId id) { defined_in[id] = p; }); },
          statement.node);
    }
    for (const ScalarId id : uses) {
      const auto found = defined_in.find(id);
      if (found == defined_in.end() || found->second == p) continue;
      phases[p].recalled.push_back(id);
      std::vector<ScalarId>& kept = phases[found->second].kept;
      if (std::ranges::count(kept, id) == 0) kept.push_back(id);
    }
  }
}

}  // namespace

RowStrips row_strips(const Nest& nest) {
  RowStrips strips{.rows = rows_of_strip(nest), .phases = {}};
  if (strips.rows == 1) return strips;
  strips.phases = phases_of(nest.body);
  connect(nest.body, strips.phases);
  return strips;
}

}  // namespace heddle::jit::cpu
