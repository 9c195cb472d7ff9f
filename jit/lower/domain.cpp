#include "jit/lower/domain.h"

#include <algorithm>

#include "base/check.h"
#include "jit/lower/copies.h"
#include "jit/lower/jam_rows.h"
#include "jit/lower/nest_rewrite.h"
#include "jit/lower/transpose.h"

namespace heddle::jit {
namespace {

/// Elements that one iteration of the parallel axis covers.
constexpr std::int64_t kCpuChunk = 16384;
/// The same where many threads share them.
constexpr std::int64_t kSharedChunk = 4096;
constexpr std::int64_t kCudaChunk = 2048;
/// The same of rows of unknown length on CUDA, which a warp goes through.
constexpr std::int64_t kCudaPart = 512;
/// A row shorter than this wastes vectors: such rows are walked flat, with divisions.
constexpr std::int64_t kShortRow = 16;
/// Lanes of a tile of rows whose operands lie across the rows: so many cache lines are in use at once.
constexpr std::int64_t kAcrossLanes = 16;
/// Elements of a row whose places are computed once: tables of more would not stay in a cache (tabulate.cpp).
constexpr std::int64_t kLongestTabulated = 1024;
/// Elements from lane to lane up to which lanes share their cache lines.
constexpr std::int64_t kNearLanes = 8;
/// Rows that share what they look up, as far as images of their size stay in the first-level cache.
constexpr std::int64_t kJammedRows = 4;
/// Lanes of a tile when the loop inside it is serial.
constexpr std::int64_t kLaneTile = 256;
/// The least of it where many threads share the loop.
constexpr std::int64_t kLeastLaneTile = 64;
/// Tiles that keep a large device busy.
constexpr std::int64_t kBusyTiles = 132;

/// Positions of a part of planes that are interleaved: what is written stays in the first-level cache.
constexpr std::int64_t kInterleaved = 1024;

std::int64_t chunk_for(const LowerOptions& options) {
  if (options.target == LowerOptions::Target::Cuda) return kCudaChunk;
  return has_many_threads(options) ? kSharedChunk : kCpuChunk;
}

SymExpr extent_of(const std::vector<AxisRun>& axes) {
  SymExpr extent = 1;
  for (const AxisRun& run : axes) extent *= run.extent;
  return extent;
}

ir::Dims extents(const std::vector<AxisRun>& axes) {
  ir::Dims sizes;
  for (const AxisRun& run : axes) sizes.push_back(run.extent);
  return sizes;
}

/// Whether `expr` steps over a whole run of `inner` for each step of `outer`.
bool walks_as_one(const SymExpr& expr, const AxisRun& outer, const AxisRun& inner,
                  const base::Facts& facts) {
  if (!expr.mentions(outer.axis) && !expr.mentions(inner.axis)) return true;
  const auto by_outer = expr.linear_in(outer.axis);
  const auto by_inner = expr.linear_in(inner.axis);
  if (!by_outer || !by_inner) return false;
  if (by_outer->coefficient.mentions(inner.axis)) return false;
  return same(by_outer->coefficient, by_inner->coefficient * inner.extent, facts);
}

/// Replaces `axes` by expressions: their index at row-major `position`.
void replace_axes(NestBuilder& builder, Block& body, const std::vector<AxisRun>& axes,
                  const SymExpr& position) {
  const Index index = delinearize(position, extents(axes), builder.facts());
  base::SymbolExprs replacements;
  for (std::size_t k = 0; k < axes.size(); ++k) replacements.emplace(axes[k].axis, index[k]);
  substitute(body, replacements, builder.facts());
}

Stmt loop_of(Symbol axis, const SymExpr& extent, ForStmt::Kind kind, Block body) {
  ForStmt loop;
  loop.axis = axis;
  loop.extent = extent;
  loop.kind = kind;
  loop.body = std::make_shared<Block>(std::move(body));
  return Stmt{std::move(loop)};
}

/// Parallel blocks of `chunk` positions of the flattened axes, a vector loop over each.
void wrap_flat(NestBuilder& builder, Block body, const std::vector<AxisRun>& axes,
               std::int64_t chunk) {
  const SymExpr count = extent_of(axes);
  const bool one_block = count.is_constant() && count.constant() <= chunk;
  const SymExpr blocks = one_block ? SymExpr(count.is_constant(0) ? 0 : 1) : ceildiv(count, chunk);
  const Symbol block = builder.new_axis(blocks);
  const SymExpr start = one_block ? SymExpr(0) : SymExpr(block) * chunk;
  const SymExpr extent = one_block ? count : min(chunk, count - start);
  const Symbol lane = builder.new_axis(one_block ? count : SymExpr(chunk));
  // Positions stay below the count, which divisions need to know.
  if (axes.size() == 1 || one_block) {
    replace_axes(builder, body, axes, start + lane);
  } else {
    const Symbol position = builder.new_axis(count);
    replace_axes(builder, body, axes, position);
    substitute(body, {{position, start + lane}}, builder.facts());
  }
  builder.nest().body.push_back(loop_of(lane, extent, ForStmt::Kind::Vector, std::move(body)));
  builder.set_parallel(block, blocks);
}

/// Joins `count` neighbours of `rows` where no row is left over and `jam` does it.
bool jam_axis(NestBuilder& builder, Block& body, AxisRun& rows, std::int64_t count,
              decltype(jam_rows)* jam) {
  const auto extent = rows.extent.as_constant();
  if (!extent || *extent % count != 0 || !jam(builder, body, rows.axis, count)) return false;
  const Symbol joined = builder.new_axis(*extent / count);
  substitute(body, {{rows.axis, SymExpr(joined) * count}}, builder.facts());
  rows = {joined, *extent / count};
  return true;
}

/// Parallel blocks of rows (and, of long rows, of parts), serial over the rows of a block, vector over the
/// innermost axis. Blocks of rows have `chunk` elements, or, if that is 1, one row.
void wrap_rows(NestBuilder& builder, Block body, std::vector<AxisRun> axes, std::int64_t chunk,
               std::int64_t part, bool jam = false) {
  const AxisRun inner = std::move(axes.back());
  axes.pop_back();
  if (jam && jam_axis(builder, body, axes.back(), kJammedRows, jam_rows)) {
    jam = false;
    chunk /= kJammedRows;
  }
  const SymExpr rows = extent_of(axes);
  const bool whole_rows = inner.extent.is_constant() && inner.extent.constant() <= part;
  const SymExpr parts = whole_rows ? SymExpr(1) : ceildiv(inner.extent, part);
  const SymExpr of_chunk = max(1, floordiv(chunk, max(inner.extent, 1)));
  const SymExpr block_rows = chunk == 1 ? 1 : part < chunk ? SymExpr(chunk / part) : of_chunk;
  const SymExpr blocks = ceildiv(rows, block_rows);
  const Symbol parallel = builder.new_axis(blocks * parts);
  const SymExpr block = whole_rows ? SymExpr(parallel) : floordiv(parallel, parts);
  const SymExpr part_start = whole_rows ? SymExpr(0) : mod(parallel, parts) * part;

  const Symbol row = builder.new_axis(rows);
  replace_axes(builder, body, axes, row);
  const SymExpr lanes = whole_rows ? inner.extent : min(part, inner.extent - part_start);
  const auto row_at = [&](Block statements, const SymExpr& step) {
    const Symbol lane = builder.new_axis(inner.extent);
    substitute(statements, {{inner.axis, part_start + lane}, {row, block * block_rows + step}},
               builder.facts());
    Block made;
    made.push_back(loop_of(lane, lanes, ForStmt::Kind::Vector, std::move(statements)));
    return made;
  };
  builder.set_parallel(parallel, blocks * parts);
  if (block_rows.is_constant(1)) {
    builder.nest().body = row_at(std::move(body), 0);
    return;
  }
  const SymExpr steps = min(block_rows, rows - block * block_rows);
  SymExpr done = 0;
  const auto add_loop = [&](Block statements, std::int64_t count, const SymExpr& extent) {
    const Symbol step = builder.new_axis(count == 1 ? block_rows : floordiv(block_rows, count));
    Block made = row_at(std::move(statements), done + SymExpr(step) * count);
    builder.nest().body.push_back(loop_of(step, extent, ForStmt::Kind::Serial, std::move(made)));
  };
  Block jammed = jam ? body : Block{};
  if (jam && jam_rows(builder, jammed, row, kJammedRows)) {
    add_loop(std::move(jammed), kJammedRows, floordiv(steps, kJammedRows));
    done = floordiv(steps, kJammedRows) * kJammedRows;
    body = copy_of(builder, body, {});
  }
  const SymExpr left = builder.simplify(steps - done);
  if (!left.is_constant(0)) add_loop(std::move(body), 1, left);
}

/// Whether all that is read along the last axis but one lies contiguous along it, as of planes whose elements are brought
/// together: lanes along it need no divisions, and only stores are far apart.
bool interleaves(const Block& body, const std::vector<AxisRun>& axes) {
  if (axes.size() < 2) return false;
  const AxisRun& along = axes[axes.size() - 2];
  if (along.extent.is_constant() && along.extent.constant() < kShortRow) return false;
  bool reads = false;
  for (const Stmt& statement : body) {
    if (std::holds_alternative<ForStmt>(statement.node) ||
        std::holds_alternative<IfStmt>(statement.node))
      return false;
    const auto* load = std::get_if<LoadStmt>(&statement.node);
    if (load == nullptr || !load->index.mentions(along.axis)) continue;
    const auto linear = load->index.linear_in(along.axis);
    if (!linear || !linear->coefficient.is_constant(1)) return false;
    reads = true;
  }
  return reads;
}

/// Whether rows shorter than kShortRow cost less with some lanes idle than walked flat, where what does not lie in rows is
/// gathered, element by element.
bool fills_lanes(const Block& body, std::int64_t columns) {
  constexpr std::int64_t kMostWork = 32;
  const SymExpr work = work_of(body);
  return 2 * columns > kShortRow && work.is_constant() && work.constant() <= kMostWork;
}

/// Whether rows of the last two axes, the last one short, are worth a loop of their own: what takes long to compute of a place in
/// them is computed once for all rows.
bool has_costly_columns(const Block& body, const std::vector<AxisRun>& axes) {
  constexpr std::int64_t kLeastWork = 32;
  if (axes.size() < 3) return false;
  const SymExpr row = axes.back().extent * axes[axes.size() - 2].extent;
  const SymExpr work = work_of(body);
  return row.is_constant() && row.constant() >= 4 * kShortRow &&
         row.constant() <= kLongestTabulated && work.is_constant() &&
         work.constant() >= kLeastWork && std::ranges::none_of(body, [](const Stmt& statement) {
           return std::holds_alternative<ForStmt>(statement.node);
         });
}

/// Makes one axis of the last two.
void join_last(NestBuilder& builder, Block& body, std::vector<AxisRun>& axes) {
  const std::vector<AxisRun> last(axes.end() - 2, axes.end());
  axes.resize(axes.size() - 1);
  axes.back() = {builder.new_axis(extent_of(last)), extent_of(last)};
  replace_axes(builder, body, last, axes.back().axis);
}

struct WorkCounter {
  SymExpr operator()(const ForStmt& s) const { return s.extent * work_of(*s.body); }
  SymExpr operator()(const IfStmt& s) const { return work_of(*s.body); }
  SymExpr operator()(const ContractStmt& s) const {
    SymExpr products = s.rows * s.columns * s.depth;
    for (const ContractStmt::Run& run : s.runs) products = products * run.count;
    return products;
  }
  SymExpr operator()(const ConstStmt&) const { return 0; }
  SymExpr operator()(const ApplyStmt& s) const {
    return s.op >= ir::ScalarOp::Exp && s.op <= ir::ScalarOp::Sigmoid ? 8 : 1;
  }
  SymExpr operator()(const auto&) const { return 1; }
};

}  // namespace

std::vector<AxisRun> make_axes(NestBuilder& builder, const ir::Dims& sizes, Index& index) {
  std::vector<AxisRun> axes;
  for (const SymExpr& size : sizes) {
    if (size.is_constant(1)) {
      index.push_back(0);
      continue;
    }
    axes.push_back({builder.new_axis(size), size});
    index.push_back(axes.back().axis);
  }
  return axes;
}

std::vector<AxisRun> collapse(NestBuilder& builder, Block& body, std::vector<AxisRun> axes) {
  if (axes.size() < 2) return axes;
  const std::vector<SymExpr> expressions = expressions_of(body);
  base::Facts& facts = builder.facts();
  base::SymbolExprs gone;
  std::vector<AxisRun> runs{axes.back()};
  for (std::size_t k = axes.size() - 1; k-- > 0;) {
    AxisRun& inner = runs.back();
    const bool joins =
        std::all_of(expressions.begin(), expressions.end(), [&](const SymExpr& expr) {
          return walks_as_one(expr.substitute(gone), axes[k], inner, facts);
        });
    if (!joins) {
      runs.push_back(axes[k]);
      continue;
    }
    gone.emplace(axes[k].axis, SymExpr(0));
    inner.extent = inner.extent * axes[k].extent;
    facts.set_range(inner.axis, 0, inner.extent - 1);
  }
  std::reverse(runs.begin(), runs.end());
  if (!gone.empty()) substitute(body, gone, facts);
  return runs;
}

bool has_columns(const std::vector<AxisRun>& axes) {
  constexpr std::int64_t kMostColumns = 8;
  if (axes.size() < 2) return false;
  const SymExpr& columns = axes.back().extent;
  const SymExpr& rows = axes[axes.size() - 2].extent;
  return columns.is_constant() && columns.constant() <= kMostColumns &&
         (!rows.is_constant() || rows.constant() >= kShortRow / 2);
}

void wrap_points(NestBuilder& builder, Block body, std::vector<AxisRun> axes,
                 const LowerOptions& options, std::int64_t elements) {
  const std::int64_t chunk = chunk_for(options) / elements;
  if (axes.empty()) {
    wrap_parallel(builder, std::move(body), axes);
    return;
  }
  const SymExpr& inner = axes.back().extent;
  const bool short_rows = inner.is_constant() && inner.constant() * elements < kShortRow;
  const bool cpu = options.target == LowerOptions::Target::Cpu;
  if (cpu && short_rows && interleaves(body, axes)) {
    const std::int64_t rows = inner.constant();
    std::swap(axes[axes.size() - 2], axes.back());
    wrap_rows(builder, std::move(body), std::move(axes), rows * kInterleaved, kInterleaved);
    return;
  }
  if (cpu && short_rows && has_costly_columns(body, axes)) {
    join_last(builder, body, axes);
    wrap_rows(builder, std::move(body), std::move(axes), chunk, chunk);
    return;
  }
  if (axes.size() == 1 ||
      (short_rows && !(cpu && fills_lanes(body, inner.constant() * elements)))) {
    wrap_flat(builder, std::move(body), axes, chunk);
    return;
  }
  if (cpu && wrap_transposed(builder, body, axes)) return;
  if (!cpu && wrap_transposed_blocks(builder, body, axes)) return;
  if (!cpu) {
    // Each row by itself: several of them have groups of a block's threads.
    const std::int64_t part = inner.is_constant() ? kCudaChunk : kCudaPart;
    wrap_rows(builder, std::move(body), std::move(axes), 1, part);
    return;
  }
  const bool across = loads_across(body, axes.back().axis, kNearLanes);
  wrap_rows(builder, std::move(body), std::move(axes), chunk, across ? kAcrossLanes : chunk,
            /*jam=*/true);
}

void wrap_parallel(NestBuilder& builder, Block body, const std::vector<AxisRun>& axes) {
  if (axes.size() == 1) {
    builder.set_parallel(axes[0].axis, axes[0].extent);
  } else {
    const Symbol parallel = builder.new_axis(extent_of(axes));
    replace_axes(builder, body, axes, parallel);
    builder.set_parallel(parallel, extent_of(axes));
  }
  builder.nest().body = std::move(body);
}

namespace {

/// Bytes of the largest elements that loops in the body load along the axis, none of them masked; 0: there are none such.
std::int64_t loaded_bytes(const Nest& nest, const Block& body, Symbol axis) {
  std::int64_t most = 0;
  for (const Stmt& statement : body) {
    const auto* loop = std::get_if<ForStmt>(&statement.node);
    if (loop == nullptr) continue;
    for (const Stmt& inner : *loop->body) {
      const auto* load = std::get_if<LoadStmt>(&inner.node);
      if (load == nullptr || !load->index.mentions(axis)) continue;
      if (load->mask != kNoScalar) return 0;
      most = std::max(most, static_cast<std::int64_t>(size_of(nest.buffers[load->buffer].dtype)));
    }
  }
  return most;
}

/// The longest that leaves each of many threads two, as far as sizes tell: longer runs of memory come faster.
std::int64_t shared_lane_tile(const SymExpr& rows, const SymExpr& columns, int threads) {
  const std::int64_t count = rows.is_constant() ? rows.constant() : 1;
  std::int64_t tile = kLaneTile;
  while (tile > kLeastLaneTile && columns.is_constant() &&
         count * ((columns.constant() + tile - 1) / tile) < 2 * std::int64_t{threads})
    tile /= 2;
  return tile;
}

/// Lanes of a tile. CUDA's threads take several neighbours of elements smaller than a word, where enough tiles are left.
std::int64_t lane_tile(NestBuilder& builder, const Block& body, const SymExpr& rows,
                       const AxisRun& inner, const LowerOptions& options) {
  if (has_many_threads(options)) return shared_lane_tile(rows, inner.extent, options.threads);
  if (options.target != LowerOptions::Target::Cuda || !rows.is_constant() ||
      !inner.extent.is_constant())
    return kLaneTile;
  const std::int64_t bytes = loaded_bytes(builder.nest(), body, inner.axis);
  const std::int64_t tile =
      bytes == 0 ? kLaneTile : kLaneTile * std::max<std::int64_t>(1, kCudaWordBytes / bytes);
  const std::int64_t extent = inner.extent.constant();
  return extent % tile == 0 && rows.constant() * (extent / tile) >= kBusyTiles ? tile : kLaneTile;
}

}  // namespace

void wrap_lanes(NestBuilder& builder, Block body, const std::vector<AxisRun>& axes,
                const LowerOptions& options) {
  HD_CHECK(!axes.empty());
  const SymExpr& last = axes.back().extent;
  const bool flat = axes.size() == 1 || (last.is_constant() && last.constant() < kShortRow);
  if (flat) {
    wrap_flat(builder, std::move(body), axes, kLaneTile);
    return;
  }
  const AxisRun& inner = axes.back();
  std::vector<AxisRun> outer(axes.begin(), axes.end() - 1);
  const bool cpu = options.target == LowerOptions::Target::Cpu;
  for (std::int64_t count = kJammedRows; cpu && count > 1; --count)
    if (jam_axis(builder, body, outer.back(), count, jam_sums)) break;
  const std::int64_t tile = lane_tile(builder, body, extent_of(outer), inner, options);
  const SymExpr tiles = ceildiv(inner.extent, tile);
  const Symbol parallel = builder.new_axis(extent_of(outer) * tiles);
  const Symbol row = builder.new_axis(extent_of(outer));
  const Symbol lane = builder.new_axis(inner.extent);
  replace_axes(builder, body, outer, row);
  const bool one_tile = inner.extent.is_constant() && inner.extent.constant() <= tile;
  const SymExpr start = one_tile ? SymExpr(0) : mod(parallel, tiles) * tile;
  const SymExpr which = one_tile ? SymExpr(parallel) : floordiv(parallel, tiles);
  substitute(body, {{inner.axis, start + lane}, {row, which}}, builder.facts());
  const SymExpr lanes = one_tile ? inner.extent : min(tile, inner.extent - start);
  builder.nest().body.push_back(loop_of(lane, lanes, ForStmt::Kind::Vector, std::move(body)));
  builder.set_parallel(parallel, extent_of(outer) * tiles);
}

SymExpr work_of(const Block& block) {
  SymExpr work = 0;
  for (const Stmt& statement : block) work += std::visit(WorkCounter{}, statement.node);
  return work;
}

}  // namespace heddle::jit
