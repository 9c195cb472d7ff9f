#include "jit/cpu/llvm/row_strips.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "jit/cpu/llvm/loop_shape.h"
#include "jit/lower/nest_scalars.h"

namespace heddle::jit::cpu {
namespace {

/// What the rows of a strip may occupy: half of a first-level cache, whose other half is for the rows after them.
constexpr std::int64_t kStripBytes = 16 << 10;
constexpr std::int64_t kMostRows = 8;
/// What all rows of merged phases may occupy, and the shortest rows and the most phases for which that pays.
constexpr std::int64_t kMergedBytes = 24 << 10;
constexpr std::int64_t kLeastMergedVectors = 8;
constexpr std::size_t kMostMerged = 4;
/// With more vectors, the sums, constants and temporaries of all phases do not fit 32 registers, or 16: these hold one vector of
/// polynomials.
constexpr unsigned kMergedVectors = 4;
constexpr unsigned kMergedVectorsOfPolynomials = 2;
constexpr unsigned kMergedVectorsOf16Registers = 2;

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

bool has_scratch(const Nest& nest) {
  return std::any_of(nest.buffers.begin() + nest.global_count(), nest.buffers.end(),
                     [](const NestBuffer& buffer) { return buffer.max_count == 0; });
}

std::int64_t rows_of_strip(const Nest& nest) {
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
      if (has_loop) phases.push_back({.begin = k, .loop = k, .end = k, .recalled = {}, .kept = {}});
      phases.back().loop = k;
      has_loop = true;
    }
    phases.back().end = k + 1;
  }
  return phases;
}

/// Whether rows are so many, long and few bytes that the phases' loops are worth being one.
bool is_worth_merging(const Nest& nest, const std::vector<RowPhase>& phases, std::int64_t lanes) {
  const auto count = static_cast<std::int64_t>(phases.size());
  const SymExpr& extent = loop_of(nest.body[phases[0].loop])->extent;
  if (phases.size() > kMostMerged || row_bytes(nest) * count > kMergedBytes ||
      extent.constant() < kLeastMergedVectors * lanes)
    return false;
  for (const RowPhase& phase : phases)
    if (!(loop_of(nest.body[phase.loop])->extent == extent)) return false;
  return !nest.parallel_extent.is_constant() || nest.parallel_extent.constant() >= 2 * count;
}

/// Vectors at a time with which the phases' loops can be one, and are emitted by themselves too; 0: they cannot.
unsigned merged_vectors(const Nest& nest, const std::vector<RowPhase>& phases,
                        std::int64_t vector_bytes) {
  const auto lanes = static_cast<unsigned>(vector_bytes / 4);
  if (vector_bytes < 32 || !is_worth_merging(nest, phases, lanes)) return 0;
  unsigned polynomials = 0;
  unsigned vectors = kMergedVectors;
  for (const RowPhase& phase : phases) {
    const ForStmt& loop = *loop_of(nest.body[phase.loop]);
    const LoopShape shape = analyse(loop);
    polynomials += shape.polynomials;
    if (shape.polynomials != 0 && !inlines_math(shape, lanes)) return 0;
    vectors = std::min(vectors, main_width(shape, loop, lanes) / lanes);
  }
  if (polynomials > 1 || vectors < 2) return 0;
  const bool is_wide = vector_bytes == 64;
  if (polynomials != 0) return is_wide ? kMergedVectorsOfPolynomials : 1;
  return is_wide ? vectors : std::min(vectors, kMergedVectorsOf16Registers);
}

DType dtype_in(const ForStmt& loop, ScalarId id) {
  for (const LoopReduction& r : loop.reductions) {
    const bool arg = r.op == ir::ReduceOp::ArgMax || r.op == ir::ReduceOp::ArgMin;
    for (std::size_t k = 0; k < r.results.size(); ++k)
      if (r.results[k] == id) return arg && k == 1 ? DType::I64 : r.dtype;
  }
  return DType::I64;
}

/// Of a scalar that exists after `statement`.
DType dtype_of(const Stmt& statement, ScalarId id) {
  if (const ForStmt* loop = loop_of(statement)) return dtype_in(*loop, id);
  return std::visit(
      [](const auto& s) {
        if constexpr (requires { s.dtype; }) return s.dtype;
        return DType::I64;
      },
      statement.node);
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
  std::map<ScalarId, std::pair<std::size_t, DType>> defined;
  for (std::size_t p = 0; p < phases.size(); ++p) {
    std::set<ScalarId> uses;
    for (std::size_t k = phases[p].begin; k < phases[p].end; ++k) {
      // The visitors take what they may change.
      Stmt& statement = const_cast<Stmt&>(body[k]);
      collect_uses(statement, uses);
      if (is_number(statement)) continue;
      const auto note = [&](ScalarId id) { defined[id] = {p, dtype_of(statement, id)}; };
      std::visit([&](auto& node) { visit_definitions(node, note); }, statement.node);
    }
    for (const ScalarId id : uses) {
      const auto found = defined.find(id);
      if (found == defined.end() || found->second.first == p) continue;
      const RowPhase::Scalar scalar{id, found->second.second};
      phases[p].recalled.push_back(scalar);
      std::vector<RowPhase::Scalar>& kept = phases[found->second.first].kept;
      if (std::ranges::count(kept, scalar) == 0) kept.push_back(scalar);
    }
  }
}

}  // namespace

std::int64_t RowStrips::held() const {
  if (!is_merged) return rows;
  return static_cast<std::int64_t>(std::bit_ceil(phases.size()));
}

RowStrips row_strips(const Nest& nest, std::int64_t vector_bytes) {
  RowStrips strips;
  if (has_scratch(nest) || !is_of_rows(nest)) return strips;
  std::vector<RowPhase> phases = phases_of(nest.body);
  if (const unsigned vectors = merged_vectors(nest, phases, vector_bytes); vectors != 0) {
    strips.is_merged = true;
    strips.most_vectors = vectors;
    strips.rows = static_cast<std::int64_t>(phases.size());
  } else {
    strips.rows = rows_of_strip(nest);
  }
  if (strips.rows == 1) return strips;
  connect(nest.body, phases);
  strips.phases = std::move(phases);
  return strips;
}

}  // namespace heddle::jit::cpu
