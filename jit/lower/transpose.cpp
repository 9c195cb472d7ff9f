#include "jit/lower/transpose.h"

#include <algorithm>
#include <optional>

#include "jit/lower/nest_rewrite.h"

namespace heddle::jit {
namespace {

/// Rows and columns of a tile: a few vectors, a few cache lines, 4 KiB of f32.
constexpr std::int64_t kTile = 32;

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

bool is_long(const SymExpr& extent) { return !extent.is_constant() || extent.constant() >= kTile; }

class Transposer {
 public:
  Transposer(NestBuilder& builder, Block& body, const std::vector<AxisRun>& axes)
      : builder_(builder), body_(body), axes_(axes), lane_(axes.back()) {}

  bool run() {
    if (!is_long(lane_.extent) || !choose_along()) return false;
    make_axes();
    Block tile;
    for (Stmt& statement : body_) {
      auto* load = std::get_if<LoadStmt>(&statement.node);
      if (load != nullptr && is_across(*load, lane_.axis)) tile.push_back(fill(*load));
    }
    tile.push_back(work());
    Block loops;
    loops.push_back(loop(lane_tile_, lane_tiles_, ForStmt::Kind::Serial, std::move(tile)));
    builder_.nest().body = std::move(loops);
    builder_.set_parallel(parallel_, parallel_extent_);
    return true;
  }

 private:
  /// The outer axis along which all loads across lie contiguous.
  bool choose_along() {
    std::vector<const LoadStmt*> across;
    for (const Stmt& statement : body_) {
      const auto* load = std::get_if<LoadStmt>(&statement.node);
      if (load == nullptr || !is_across(*load, lane_.axis)) continue;
      if (load->mask != kNoScalar || depends_on_data(load->index)) return false;
      across.push_back(load);
    }
    if (across.empty()) return false;
    for (std::size_t k = 0; k + 1 < axes_.size(); ++k) {
      const bool fits = std::all_of(across.begin(), across.end(), [&](const LoadStmt* load) {
        return steps_by_one(load->index, axes_[k].axis);
      });
      if (!fits || !is_long(axes_[k].extent)) continue;
      along_ = axes_[k];
      return true;
    }
    return false;
  }

  /// Parallel: all other axes times the tiles of `along`. Serial: the tiles of the lanes.
  void make_axes() {
    ir::Dims others;
    std::vector<Symbol> names;
    for (const AxisRun& run : axes_) {
      if (run.axis == lane_.axis || run.axis == along_.axis) continue;
      others.push_back(run.extent);
      names.push_back(run.axis);
    }
    const SymExpr along_tiles = ceildiv(along_.extent, kTile);
    lane_tiles_ = ceildiv(lane_.extent, kTile);
    parallel_extent_ = base::product(others) * along_tiles;
    parallel_ = builder_.new_axis(parallel_extent_);
    lane_tile_ = builder_.new_axis(lane_tiles_);
    const SymExpr rest = others.empty() ? SymExpr(0) : floordiv(parallel_, along_tiles);
    const Index index = delinearize(rest, others, builder_.facts());
    for (std::size_t k = 0; k < names.size(); ++k) others_.emplace(names[k], index[k]);
    const SymExpr along_tile = others.empty() ? SymExpr(parallel_) : mod(parallel_, along_tiles);
    along_begin_ = along_tile * kTile;
    lane_begin_ = SymExpr(lane_tile_) * kTile;
    along_extent_ = min(kTile, along_.extent - along_begin_);
    lane_extent_ = min(kTile, lane_.extent - lane_begin_);
  }

  base::SymbolExprs at(Symbol along, Symbol lane) const {
    base::SymbolExprs place = others_;
    place.emplace(along_.axis, along_begin_ + along);
    place.emplace(lane_.axis, lane_begin_ + lane);
    return place;
  }

  /// Loads a tile along the memory's own order and turns it; `load` then reads the tile.
  Stmt fill(LoadStmt& load) {
    const NestBufferId tile = builder_.add_local(load.dtype, kTile * kTile, kTile * kTile);
    builder_.nest().buffers[tile].read = builder_.nest().buffers[tile].written = true;
    const Symbol along = builder_.new_axis(kTile);
    const Symbol lane = builder_.new_axis(kTile);
    LoadStmt from = load;
    from.result = builder_.fresh_scalar();
    Block inner;
    const SymExpr place = SymExpr(along) * kTile + lane;
    inner.push_back(Stmt{from});
    substitute(inner, at(along, lane), builder_.facts());
    inner.push_back(Stmt{StoreStmt{tile, place, from.result, kNoScalar, std::nullopt, false}});
    load.buffer = tile;
    load.index = (SymExpr(along_.axis) - along_begin_) * kTile + lane_.axis - lane_begin_;
    Block outer;
    outer.push_back(loop(along, along_extent_, ForStmt::Kind::Vector, std::move(inner)));
    return loop(lane, lane_extent_, ForStmt::Kind::Serial, std::move(outer));
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

}  // namespace

bool wrap_transposed(NestBuilder& builder, Block& body, const std::vector<AxisRun>& axes) {
  return axes.size() >= 2 && Transposer(builder, body, axes).run();
}

bool loads_across(const Block& body, Symbol lane) {
  return std::any_of(body.begin(), body.end(), [&](const Stmt& statement) {
    const auto* load = std::get_if<LoadStmt>(&statement.node);
    return load != nullptr && is_across(*load, lane);
  });
}

}  // namespace heddle::jit
