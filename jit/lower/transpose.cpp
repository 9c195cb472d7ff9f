#include "jit/lower/transpose.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>

#include "base/check.h"
#include "jit/lower/copies.h"
#include "jit/lower/narrowing.h"
#include "jit/lower/nest_rewrite.h"
#include "jit/lower/nest_scalars.h"

namespace heddle::jit {
namespace {

/// Rows and columns of a tile: a few vectors, a few cache lines, 4 KiB of f32.
constexpr std::int64_t kTile = 32;
/// The same of blocks of threads whose elements are of 2 bytes or less, or of 4 where that leaves many blocks.
constexpr std::int64_t kNarrowTile = 64;
constexpr std::int64_t kManyTiles = 264;
/// On the CPU, rows and columns from which on squares that are turned in registers take less than gathers.
constexpr std::int64_t kLeastTurned = 9;
/// On the CPU, tiles along the lanes that one iteration of the parallel axis has: 64 KiB of f32.
constexpr std::int64_t kTilesOfPart = 16;

bool steps_by_one(const SymExpr& index, Symbol axis) {
  const auto linear = index.linear_in(axis);
  return linear && linear->coefficient.is_constant(1);
}

bool is_across(const LoadStmt& load, Symbol lane) {
  if (!load.index.mentions(lane)) return false;
  const auto linear = load.index.linear_in(lane);
  return linear && !linear->coefficient.is_constant(1);
}

/// Whether what the body binds decides the place.
bool depends_on_data(const SymExpr& index) {
  std::vector<Symbol> symbols;
  index.collect_symbols(symbols);
  return std::ranges::any_of(symbols,
                             [](Symbol symbol) { return symbol.kind == Symbol::Kind::Temp; });
}

bool has_at_least(std::int64_t count, const SymExpr& extent) {
  return !extent.is_constant() || extent.constant() >= count;
}

/// The statements that a mask is computed by, in their order. Nothing where something is read for it.
std::optional<Block> mask_of(Block& body, ScalarId mask) {
  std::set<ScalarId> needed{mask};
  Block found;
  for (std::size_t k = body.size(); k-- > 0;) {
    bool defines = false;
    const auto note = [&](ScalarId& id) { defines = defines || needed.contains(id); };
    std::visit([&](auto& node) { visit_definitions(node, note); }, body[k].node);
    if (!defines) continue;
    if (!std::holds_alternative<IndexStmt>(body[k].node) &&
        !std::holds_alternative<ConstStmt>(body[k].node) &&
        !std::holds_alternative<ApplyStmt>(body[k].node))
      return std::nullopt;
    std::visit([&](auto& node) { visit_uses(node, [&](ScalarId& id) { needed.insert(id); }); },
               body[k].node);
    found.push_back(body[k]);
  }
  std::ranges::reverse(found);
  return found;
}

/// The outer axis, of `least` elements, along which all loads across the innermost one lie contiguous. None where that one has
/// fewer, too, or where there are other masks than of places, or any unless they `may_be_masked`.
std::optional<AxisRun> along_of(Block& body, const std::vector<AxisRun>& axes, std::int64_t least,
                                bool may_be_masked) {
  if (!has_at_least(least, axes.back().extent)) return std::nullopt;
  const Symbol lane = axes.back().axis;
  std::vector<const LoadStmt*> across;
  for (const Stmt& statement : body) {
    const auto* load = std::get_if<LoadStmt>(&statement.node);
    if (load == nullptr || !is_across(*load, lane)) continue;
    const bool is_masked = load->mask != kNoScalar;
    if (depends_on_data(load->index) ||
        (is_masked && !(may_be_masked && mask_of(body, load->mask))))
      return std::nullopt;
    across.push_back(load);
  }
  if (across.empty()) return std::nullopt;
  for (std::size_t k = 0; k + 1 < axes.size(); ++k) {
    const bool fits = std::all_of(across.begin(), across.end(), [&](const LoadStmt* load) {
      return steps_by_one(load->index, axes[k].axis);
    });
    if (fits && has_at_least(least, axes[k].extent)) return axes[k];
  }
  return std::nullopt;
}

/// Extents and names of the axes but `along` and the innermost one.
std::pair<ir::Dims, std::vector<Symbol>> axes_beside(const std::vector<AxisRun>& axes,
                                                     const AxisRun& along) {
  std::pair<ir::Dims, std::vector<Symbol>> beside;
  for (std::size_t k = 0; k + 1 < axes.size(); ++k) {
    if (axes[k].axis == along.axis) continue;
    beside.first.push_back(axes[k].extent);
    beside.second.push_back(axes[k].axis);
  }
  return beside;
}

class Transposer {
 public:
  Transposer(NestBuilder& builder, Block& body, const std::vector<AxisRun>& axes)
      : builder_(builder), body_(body), axes_(axes), lane_(axes.back()) {}

  bool run() {
    const std::optional<AxisRun> along = along_of(body_, axes_, kLeastTurned, true);
    if (!along) return false;
    along_ = *along;
    make_axes();
    std::vector<LoadStmt> across;
    for (const Stmt& statement : body_) {
      const auto* load = std::get_if<LoadStmt>(&statement.node);
      if (load != nullptr && is_across(*load, lane_.axis)) across.push_back(*load);
    }
    Block tile;
    if (is_copy(across)) {
      builder_.nest().body.push_back(loop(lane_tile_, lane_tiles_, ForStmt::Kind::Serial, copy()));
      builder_.set_parallel(parallel_, parallel_extent_);
      return true;
    }
    std::vector<Narrowing> narrowings;
    for (const LoadStmt& load : across) {
      std::optional<Narrowing> narrowing;
      if (load.mask == kNoScalar) narrowing = take_narrowing(body_, load.result);
      if (narrowing)
        fill_narrowed(load, std::move(*narrowing), tile);
      else
        tile.push_back(fill(load));
    }
    Block loops = take_constants(body_);
    tile.push_back(work());
    loops.push_back(loop(lane_tile_, lane_tiles_, ForStmt::Kind::Serial, std::move(tile)));
    builder_.nest().body = std::move(loops);
    builder_.set_parallel(parallel_, parallel_extent_);
    return true;
  }

 private:
  /// Whether the body only moves elements, each to a row that runs along the lanes.
  bool is_copy(const std::vector<LoadStmt>& across) const {
    if (body_.size() != 2 || across.size() != 1) return false;
    const auto* store = std::get_if<StoreStmt>(&body_[1].node);
    if (store == nullptr || store->mask != kNoScalar || store->combine ||
        store->operand != across[0].result || !steps_by_one(store->index, lane_.axis))
      return false;
    const auto by_along = store->index.linear_in(along_.axis);
    return by_along && !by_along->coefficient.mentions(lane_.axis) &&
           builder_.nest().buffers[store->buffer].dtype == across[0].dtype;
  }

  /// A tile of such a body, turned on its way.
  Block copy() {
    const Symbol along = builder_.new_axis(kTile);
    const Symbol lane = builder_.new_axis(kTile);
    substitute(body_, at(along, lane), builder_.facts());
    Block outer;
    outer.push_back(loop(along, along_extent_, ForStmt::Kind::Vector, std::move(body_)));
    Block made;
    made.push_back(loop(lane, lane_extent_, ForStmt::Kind::Serial, std::move(outer)));
    return made;
  }

  /// Parallel: all other axes times the tiles of `along` times parts of the lanes. Serial: the tiles of a part.
  void make_axes() {
    auto [sizes, names] = axes_beside(axes_, along_);
    const SymExpr tiles = ceildiv(lane_.extent, kTile);
    sizes.push_back(ceildiv(along_.extent, kTile));
    sizes.push_back(ceildiv(tiles, kTilesOfPart));
    parallel_extent_ = base::product(sizes);
    parallel_ = builder_.new_axis(parallel_extent_);
    const Index index = delinearize(parallel_, sizes, builder_.facts());
    for (std::size_t k = 0; k < names.size(); ++k) others_.emplace(names[k], index[k]);
    const SymExpr first_tile = index[names.size() + 1] * kTilesOfPart;
    lane_tiles_ = builder_.simplify(min(kTilesOfPart, tiles - first_tile));
    lane_tile_ = builder_.new_axis(lane_tiles_);
    along_begin_ = index[names.size()] * kTile;
    lane_begin_ = (first_tile + lane_tile_) * kTile;
    along_extent_ = min(kTile, along_.extent - along_begin_);
    lane_extent_ = min(kTile, lane_.extent - lane_begin_);
  }

  base::SymbolExprs at(Symbol along, Symbol lane) const {
    base::SymbolExprs place = others_;
    place.emplace(along_.axis, along_begin_ + along);
    place.emplace(lane_.axis, lane_begin_ + lane);
    return place;
  }

  NestBufferId add_tile(DType dtype) {
    const NestBufferId tile = builder_.add_local(dtype, kTile * kTile, kTile * kTile);
    builder_.nest().buffers[tile].read = builder_.nest().buffers[tile].written = true;
    return tile;
  }

  /// A loop over a tile along the memory's own order, which stores `value` after `inner`: as it lies or, if `turns`, turned.
  Stmt pass(Symbol along, Symbol lane, Block inner, NestBufferId tile, ScalarId value, bool turns) {
    const SymExpr place =
        turns ? SymExpr(along) * kTile + lane : SymExpr(lane) * kTile + SymExpr(along);
    inner.push_back(Stmt{StoreStmt{tile, place, value, kNoScalar, std::nullopt, false}});
    Block outer;
    outer.push_back(loop(along, along_extent_, ForStmt::Kind::Vector, std::move(inner)));
    return loop(lane, lane_extent_, ForStmt::Kind::Serial, std::move(outer));
  }

  /// Where the body reads a turned tile.
  SymExpr place_in_tile() const {
    return (SymExpr(along_.axis) - along_begin_) * kTile + lane_.axis - lane_begin_;
  }
  LoadStmt& load_of(ScalarId result) {
    LoadStmt* found = nullptr;
    for (Stmt& statement : body_)
      if (auto* load = std::get_if<LoadStmt>(&statement.node);
          load != nullptr && load->result == result)
        found = load;
    HD_CHECK(found != nullptr, "the body has the load");
    return *found;
  }

  /// Loads a tile along the memory's own order and turns it; the body's load then reads the tile, in which what a mask leaves out
  /// is 0.
  Stmt fill(const LoadStmt& load) {
    const Symbol along = builder_.new_axis(kTile);
    const Symbol lane = builder_.new_axis(kTile);
    LoadStmt from = load;
    from.result = builder_.fresh_scalar();
    Block inner;
    if (load.mask != kNoScalar) {
      CopyNames names;
      const std::optional<Block> mask = mask_of(body_, load.mask);
      for (const Stmt& statement : *mask) inner.push_back(copy_of(builder_, statement, names));
      from.mask = names.scalars.at(load.mask);
    }
    inner.push_back(Stmt{from});
    substitute(inner, at(along, lane), builder_.facts());
    LoadStmt& read = load_of(load.result);
    read.buffer = add_tile(load.dtype);
    read.index = place_in_tile();
    read.mask = kNoScalar;
    return pass(along, lane, std::move(inner), read.buffer, from.result, true);
  }

  /// The same of what is made of the load: computed first, so that fewer bytes are turned.
  void fill_narrowed(const LoadStmt& load, Narrowing narrowing, Block& tile) {
    const Symbol along = builder_.new_axis(kTile);
    const Symbol lane = builder_.new_axis(kTile);
    Block inner;
    inner.push_back(Stmt{load});
    for (Stmt& statement : narrowing.statements) inner.push_back(std::move(statement));
    substitute(inner, at(along, lane), builder_.facts());
    // The body has this result from now on.
    const ScalarId made = std::get<ConvertStmt>(inner.back().node).result = builder_.fresh_scalar();
    const NestBufferId rows = add_tile(narrowing.dtype);
    tile.push_back(pass(along, lane, std::move(inner), rows, made, false));
    LoadStmt from{builder_.fresh_scalar(), narrowing.dtype, rows, 0};
    const Symbol turned_along = builder_.new_axis(kTile);
    const Symbol turned_lane = builder_.new_axis(kTile);
    from.index = SymExpr(turned_lane) * kTile + SymExpr(turned_along);
    const NestBufferId turned = add_tile(narrowing.dtype);
    Block moved;
    moved.push_back(Stmt{from});
    tile.push_back(pass(turned_along, turned_lane, std::move(moved), turned, from.result, true));
    load_of(load.result) = {narrowing.result, narrowing.dtype, turned, place_in_tile()};
  }

  Stmt work() {
    const Symbol along = builder_.new_axis(kTile);
    const Symbol lane = builder_.new_axis(kTile);
    substitute(body_, at(along, lane), builder_.facts());
    Block outer;
    outer.push_back(loop(lane, lane_extent_, ForStmt::Kind::Vector, std::move(body_)));
    return loop(along, along_extent_, ForStmt::Kind::Serial, std::move(outer));
  }

  static Stmt loop(Symbol axis, const SymExpr& extent, ForStmt::Kind kind, Block body) {
    ForStmt made;
    made.axis = axis;
    made.extent = extent;
    made.kind = kind;
    made.body = std::make_shared<Block>(std::move(body));
    return Stmt{std::move(made)};
  }

  NestBuilder& builder_;
  Block& body_;
  const std::vector<AxisRun>& axes_;
  const AxisRun lane_;
  AxisRun along_;
  base::SymbolExprs others_;
  Symbol parallel_, lane_tile_;
  SymExpr parallel_extent_, lane_tiles_;
  SymExpr along_begin_, lane_begin_, along_extent_, lane_extent_;
};

/// Tiles of blocks of threads: each parallel iteration has one, and each of its loops has an iteration for each element. A thread takes
/// several neighbours at once (jit/cuda/wide_loop.h), 16 bytes of them if it can, so rows of a tile are 128 bytes long.
class BlockTransposer {
 public:
  BlockTransposer(NestBuilder& builder, Block& body, const std::vector<AxisRun>& axes)
      : builder_(builder), body_(body), axes_(axes), lane_(axes.back()) {}

  bool run() {
    const bool is_flat = std::ranges::none_of(body_, [](const Stmt& statement) {
      return std::holds_alternative<ForStmt>(statement.node) ||
             std::holds_alternative<IfStmt>(statement.node);
    });
    const std::optional<AxisRun> along =
        is_flat ? along_of(body_, axes_, kTile, false) : std::nullopt;
    if (!along) return false;
    along_ = *along;
    tile_ = tile_of();
    make_axes();
    for (Stmt& statement : body_) {
      auto* load = std::get_if<LoadStmt>(&statement.node);
      if (load != nullptr && is_across(*load, lane_.axis)) fill(*load);
    }
    work();
    return true;
  }

 private:
  /// Elements of a row.
  std::int64_t tile_of() const {
    for (const AxisRun* run : {&lane_, &along_})
      if (run->extent.is_constant() && run->extent.constant() < kNarrowTile) return kTile;
    std::int64_t most = 0;
    for (const Stmt& statement : body_) {
      const auto* load = std::get_if<LoadStmt>(&statement.node);
      if (load != nullptr && is_across(*load, lane_.axis))
        most = std::max(most, static_cast<std::int64_t>(size_of(load->dtype)));
    }
    return most <= 2 || (most == 4 && has_many_tiles()) ? kNarrowTile : kTile;
  }

  /// Whether there are enough whole tiles of long rows.
  bool has_many_tiles() const {
    std::int64_t tiles = 1;
    for (const AxisRun& run : axes_) {
      if (!run.extent.is_constant()) return false;
      const bool turned = run.axis == lane_.axis || run.axis == along_.axis;
      if (turned && run.extent.constant() % kNarrowTile != 0) return false;
      tiles *= turned ? run.extent.constant() / kNarrowTile : run.extent.constant();
    }
    return tiles >= kManyTiles;
  }

  /// Where an element of a tile lies. From one row to the next it is an odd number of words of 4 bytes, or of wider ones, so that
  /// those of a column lie in banks of their own; and so do those of the second half of a longer row, behind a gap. Of words, of which
  /// a warp has two rows at once, rows have a gap too.
  SymExpr place_in(const SymExpr& along, const SymExpr& lane, DType dtype) const {
    constexpr std::int64_t kWord = 4;
    const std::int64_t word =
        std::max<std::int64_t>(1, kWord / static_cast<std::int64_t>(size_of(dtype)));
    if (tile_ == kTile) return along * (tile_ + word) + lane;
    if (size_of(dtype) == kWord)
      return along * (tile_ + 3) + floordiv(along, kTile) * 2 + lane + floordiv(lane, kTile) * 2;
    return along * (tile_ + word) + floordiv(along, kTile) * (4 * word) + lane;
  }

  void make_axes() {
    auto [sizes, names] = axes_beside(axes_, along_);
    sizes.push_back(ceildiv(along_.extent, tile_));
    sizes.push_back(ceildiv(lane_.extent, tile_));
    const SymExpr extent = base::product(sizes);
    const Symbol parallel = builder_.new_axis(extent);
    builder_.set_parallel(parallel, extent);
    const Index index = delinearize(parallel, sizes, builder_.facts());
    for (std::size_t k = 0; k < names.size(); ++k) others_.emplace(names[k], index[k]);
    along_begin_ = index[names.size()] * tile_;
    lane_begin_ = index[names.size() + 1] * tile_;
  }

  /// Puts `body` into a loop over the elements of a tile, element k in row k / tile_ of `slow`, and under the
  /// mask of those that there are.
  void loop(Block body, const AxisRun& slow, const AxisRun& fast) {
    const Symbol k = builder_.begin_for(tile_ * tile_, ForStmt::Kind::Vector);
    base::SymbolExprs place = others_;
    place.emplace(slow.axis, begin_of(slow) + floordiv(k, tile_));
    place.emplace(fast.axis, begin_of(fast) + mod(k, tile_));
    std::optional<Scalar> inside;
    for (const AxisRun* run : {&slow, &fast}) {
      const bool whole = run->extent.is_constant() && run->extent.constant() % tile_ == 0;
      if (whole) continue;
      const Scalar one = builder_.apply(
          ir::ScalarOp::Lt, {builder_.from_index(builder_.simplify(place.at(run->axis))),
                             builder_.from_index(run->extent)});
      inside = inside ? builder_.apply(ir::ScalarOp::And, {*inside, one}) : one;
    }
    builder_.end_for();
    substitute(body, place, builder_.facts());
    Block& made = *std::get<ForStmt>(builder_.nest().body.back().node).body;
    for (Stmt& statement : body) {
      if (inside) hide(statement, *inside, made);
      made.push_back(std::move(statement));
    }
  }
  SymExpr begin_of(const AxisRun& run) const {
    return run.axis == lane_.axis ? lane_begin_ : along_begin_;
  }

  /// What touches memory or checks an index does so where `inside` holds too.
  void hide(Stmt& statement, const Scalar& inside, Block& before) {
    const auto add = [&](ScalarId& mask) {
      if (mask != kNoScalar) {
        const ScalarId both = builder_.fresh_scalar();
        before.push_back(Stmt{ApplyStmt{both, ir::ScalarOp::And, DType::Bool, {mask, inside.id}}});
        mask = both;
      } else {
        mask = inside.id;
      }
    };
    if (auto* load = std::get_if<LoadStmt>(&statement.node)) add(load->mask);
    if (auto* store = std::get_if<StoreStmt>(&statement.node)) add(store->mask);
    if (auto* bind = std::get_if<BindStmt>(&statement.node)) add(bind->mask);
  }

  /// Loads a tile along the memory's own order; `load` then reads the tile.
  void fill(LoadStmt& load) {
    const std::int64_t count = place_in(tile_ - 1, tile_ - 1, load.dtype).constant() + 1;
    const NestBufferId tile = builder_.add_local(load.dtype, count, count);
    builder_.nest().buffers[tile].read = builder_.nest().buffers[tile].written = true;
    const SymExpr place = place_in(SymExpr(along_.axis) - along_begin_,
                                   SymExpr(lane_.axis) - lane_begin_, load.dtype);
    LoadStmt from = load;
    from.result = builder_.fresh_scalar();
    Block body;
    body.push_back(Stmt{from});
    body.push_back(Stmt{StoreStmt{tile, place, from.result, kNoScalar, std::nullopt, false}});
    loop(std::move(body), lane_, along_);
    load.buffer = tile;
    load.index = place;
  }

  void work() { loop(std::move(body_), along_, lane_); }

  NestBuilder& builder_;
  Block& body_;
  const std::vector<AxisRun>& axes_;
  const AxisRun lane_;
  AxisRun along_;
  std::int64_t tile_ = kTile;
  base::SymbolExprs others_;
  SymExpr along_begin_, lane_begin_;
};

}  // namespace

bool wrap_transposed(NestBuilder& builder, Block& body, const std::vector<AxisRun>& axes) {
  return axes.size() >= 2 && Transposer(builder, body, axes).run();
}

bool wrap_transposed_blocks(NestBuilder& builder, Block& body, const std::vector<AxisRun>& axes) {
  return axes.size() >= 2 && BlockTransposer(builder, body, axes).run();
}

bool loads_across(const Block& body, Symbol lane, std::int64_t step) {
  return std::any_of(body.begin(), body.end(), [&](const Stmt& statement) {
    const auto* load = std::get_if<LoadStmt>(&statement.node);
    if (load == nullptr || !is_across(*load, lane)) return false;
    const auto by = load->index.linear_in(lane)->coefficient.as_constant();
    return !by || std::abs(*by) > step;
  });
}

}  // namespace heddle::jit
