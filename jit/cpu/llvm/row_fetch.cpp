#include "jit/cpu/llvm/row_fetch.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "jit/cpu/llvm/loop_shape.h"

namespace heddle::jit::cpu {
namespace {

constexpr std::int64_t kShortestBytes = 1 << 10;
/// A row, the next one and the row written lie in a cache of 32 KiB.
constexpr std::int64_t kLongestBytes = 8 << 10;

struct Read {
  const LoadStmt* load;
  const ForStmt* loop;
};

/// Unmasked reads of memory in vector loops right below the parallel axis, in order.
std::vector<Read> row_reads(const Nest& nest) {
  std::vector<Read> reads;
  for (const Stmt& statement : nest.body) {
    const auto* loop = std::get_if<ForStmt>(&statement.node);
    if (loop == nullptr || loop->kind != ForStmt::Kind::Vector) continue;
    for (const Stmt& inner : *loop->body) {
      const auto* load = std::get_if<LoadStmt>(&inner.node);
      if (load != nullptr && load->mask == kNoScalar && load->buffer < nest.global_count())
        reads.push_back({load, loop});
    }
  }
  return reads;
}

bool same_row(const Read& a, const Read& b) {
  return a.load->buffer == b.load->buffer && a.loop->extent == b.loop->extent &&
         a.load->index.substitute({{a.loop->axis, b.loop->axis}}) == b.load->index;
}

/// The distance of a row worth fetching.
std::optional<SymExpr> next_row(const Nest& nest, const Read& read) {
  const auto along = read.load->index.linear_in(read.loop->axis);
  const auto across = read.load->index.linear_in(nest.parallel_axis);
  if (!along || !along->coefficient.is_constant(1)) return std::nullopt;
  if (!across || across->coefficient.is_constant(0)) return std::nullopt;
  const auto element = static_cast<std::int64_t>(size_of(nest.buffers[read.load->buffer].dtype));
  const std::int64_t bytes = read.loop->extent.as_constant().value_or(0) * element;
  if (bytes < kShortestBytes || bytes > kLongestBytes) return std::nullopt;
  if (analyse(*read.loop).polynomials == 0) return std::nullopt;
  return across->coefficient;
}

/// Rows so far from each other lie in pages of their own, in which processors fetch ahead on their own not before some lines.
constexpr std::int64_t kFarBytes = 2 << 10;
constexpr std::int64_t kMostPieceBytes = 512;

/// How far the same row goes on that `load`, in a loop over a piece of it, reads from in the next iteration, if in pieces.
std::optional<SymExpr> next_piece(const Nest& nest, const LoadStmt& load, const ForStmt& piece,
                                  const ForStmt& rows) {
  if (load.mask != kNoScalar || load.buffer >= nest.global_count()) return std::nullopt;
  const auto along = load.index.linear_in(piece.axis);
  const auto down = load.index.linear_in(rows.axis);
  const auto beside = load.index.linear_in(nest.parallel_axis);
  if (!along || !down || !beside || !along->coefficient.is_constant(1)) return std::nullopt;
  const auto element = static_cast<std::int64_t>(size_of(nest.buffers[load.buffer].dtype));
  const std::int64_t far = down->coefficient.as_constant().value_or(0) * element;
  const std::int64_t near = beside->coefficient.as_constant().value_or(0) * element;
  const bool is_piece = far >= kFarBytes && near > 0 && near <= kMostPieceBytes;
  return is_piece ? std::optional(beside->coefficient) : std::nullopt;
}

void add_piece_fetches(const Nest& nest, const Block& block, const ForStmt* rows,
                       std::unordered_map<const LoadStmt*, SymExpr>& fetches) {
  for (const Stmt& statement : block) {
    const auto* loop = std::get_if<ForStmt>(&statement.node);
    if (loop != nullptr && loop->kind == ForStmt::Kind::Serial)
      add_piece_fetches(nest, *loop->body, loop, fetches);
    if (loop == nullptr || loop->kind != ForStmt::Kind::Vector || rows == nullptr) continue;
    for (const Stmt& inner : *loop->body) {
      const auto* load = std::get_if<LoadStmt>(&inner.node);
      const auto distance = load == nullptr ? std::nullopt : next_piece(nest, *load, *loop, *rows);
      if (distance) fetches.emplace(load, *distance);
    }
  }
}

/// Iterations ahead of which their elements are fetched: some hundred cycles.
constexpr std::int64_t kBlocksAhead = 6;
constexpr std::int64_t kLineBytes = 64;

/// How much further `index` is in the next iteration of `axis`, but for its last ones, whose blocks may be moved back to end where
/// a row does: where sizes are large, and other axes 0.
std::int64_t next_block(const SymExpr& index, Symbol axis) {
  constexpr std::int64_t kLarge = 1 << 12;
  std::vector<Symbol> symbols;
  index.collect_symbols(symbols);
  base::SymbolValues values;
  for (const Symbol symbol : symbols)
    values[symbol] = symbol.kind == Symbol::Kind::Axis ? 0 : kLarge;
  const std::int64_t here = index.evaluate(values);
  values[axis] = 1;
  return index.evaluate(values) - here;
}

/// Loads of elements that all lanes of `lanes` share, and that lie further on with each iteration of `blocks` around it.
class BlockFetches {
 public:
  BlockFetches(const Nest& nest, std::unordered_map<const LoadStmt*, SymExpr>& fetches)
      : nest_(nest), fetches_(fetches) {}

  void find(const Block& block, const ForStmt* around) {
    for (const Stmt& statement : block) {
      if (const auto* branch = std::get_if<IfStmt>(&statement.node)) find(*branch->body, around);
      const auto* loop = std::get_if<ForStmt>(&statement.node);
      if (loop == nullptr) continue;
      if (loop->kind == ForStmt::Kind::Serial) find(*loop->body, loop);
      if (loop->kind == ForStmt::Kind::Vector && around != nullptr)
        add(*loop->body, *around, *loop);
    }
  }

 private:
  void add(const Block& block, const ForStmt& blocks, const ForStmt& lanes) {
    const LoadStmt* last = nullptr;  // that fetches
    for (const Stmt& statement : block) {
      if (const auto* loop = std::get_if<ForStmt>(&statement.node)) add(*loop->body, blocks, lanes);
      const auto* load = std::get_if<LoadStmt>(&statement.node);
      if (load == nullptr || load->mask != kNoScalar || load->buffer >= nest_.global_count() ||
          (last != nullptr && are_of_a_line(*last, *load)))
        continue;
      const auto step = step_of(*load, blocks, lanes);
      if (!step) continue;
      fetches_.emplace(load, *step * kBlocksAhead);
      last = load;
    }
  }

  std::optional<SymExpr> step_of(const LoadStmt& load, const ForStmt& blocks,
                                 const ForStmt& lanes) const {
    if (load.index.mentions(lanes.axis) || !load.index.mentions(blocks.axis)) return std::nullopt;
    const std::int64_t step = next_block(load.index, blocks.axis);
    const std::int64_t bytes = step * bytes_of(load);
    const bool fits = bytes >= kLineBytes / 2 && bytes <= kMostPieceBytes;
    return fits ? std::optional(SymExpr(step)) : std::nullopt;
  }

  bool are_of_a_line(const LoadStmt& a, const LoadStmt& b) const {
    const auto apart = (b.index - a.index).as_constant();
    return a.buffer == b.buffer && apart && *apart >= 0 && *apart * bytes_of(a) < kLineBytes;
  }

  std::int64_t bytes_of(const LoadStmt& load) const {
    return static_cast<std::int64_t>(size_of(nest_.buffers[load.buffer].dtype));
  }

  const Nest& nest_;
  std::unordered_map<const LoadStmt*, SymExpr>& fetches_;
};

}  // namespace

std::unordered_map<const LoadStmt*, SymExpr> row_fetches(const Nest& nest, std::int64_t rows) {
  std::unordered_map<const LoadStmt*, SymExpr> fetches;
  const std::vector<Read> reads = row_reads(nest);
  for (auto read = reads.begin(); read != reads.end(); ++read) {
    // The first loop waits for memory itself; those after the second find the next row fetched.
    std::vector<const ForStmt*> before;
    for (auto earlier = reads.begin(); earlier != read; ++earlier)
      if (same_row(*earlier, *read) &&
          std::find(before.begin(), before.end(), earlier->loop) == before.end())
        before.push_back(earlier->loop);
    if (before.size() != 1 || before[0] == read->loop) continue;
    if (const auto distance = next_row(nest, *read)) fetches.emplace(read->load, *distance * rows);
  }
  add_piece_fetches(nest, nest.body, nullptr, fetches);
  BlockFetches(nest, fetches).find(nest.body, nullptr);
  return fetches;
}

}  // namespace heddle::jit::cpu
