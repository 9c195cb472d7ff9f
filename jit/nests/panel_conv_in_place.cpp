#include <algorithm>

#include "jit/lower/index.h"
#include "jit/nests/panel_conv.h"

namespace heddle::jit {
namespace {

using ir::ScalarOp;

/// Rows of a block of sums in registers, which tiles are a multiple of.
constexpr std::int64_t kBlockRows = 4;
/// Windows side by side inside of x, from which on the tiles of images are worth reading weights each, and windows inside of x for
/// each one that is a tile by itself, at least. Of 7 x 7 windows of 3 x 3, 5 x 5 of them inside, all take 0.91 of the time of
/// copied ones, with 512 channels (Zen 4).
constexpr std::int64_t kLeastRun = 4;
constexpr std::int64_t kInsideForEachAlone = 4;
/// The same where matrix registers multiply 16 rows at a time, in as long as fewer.
constexpr std::int64_t kLeastAmxRun = 8;

/// Positions of the result along one dimension, of which [begin, end) are those of windows inside of x.
struct Line {
  std::int64_t size = 1, begin = 0, end = 1;

  std::int64_t inside() const { return end - begin; }
  std::int64_t at_edges() const { return size - inside(); }
  /// Rows of the tiles that the inside is divided into, at most `most`.
  std::int64_t tile_rows(std::int64_t most) const {
    const std::int64_t tiles = std::max<std::int64_t>(1, (inside() + most - 1) / most);
    const std::int64_t rows = std::max<std::int64_t>(1, (inside() + tiles - 1) / tiles);
    return (rows + kBlockRows - 1) / kBlockRows * kBlockRows;
  }
  std::int64_t tiles(std::int64_t most) const {
    return (inside() + tile_rows(most) - 1) / tile_rows(most);
  }
};

/// Nothing where sizes are not known or there are none.
std::optional<Line> line_of(const ir::Node& node, std::size_t d, const SymExpr& in,
                            const SymExpr& out) {
  if (!in.is_constant() || !out.is_constant() || out.is_constant(0)) return std::nullopt;
  const std::int64_t stride = node.ints("strides")[d];
  const std::int64_t pad = node.ints("pads_low")[d];
  const std::int64_t reach = (node.ints("kernel")[d] - 1) * node.ints("dilations")[d];
  const std::int64_t size = out.constant();
  const std::int64_t last =
      in.constant() - 1 - reach + pad;  // where one begins that still ends inside
  const std::int64_t begin = std::min(size, (pad + stride - 1) / stride);
  return Line{size, begin, last < 0 ? begin : std::clamp(last / stride + 1, begin, size)};
}

/// Lines of the last spatial dimension, x, and of the one before, of one position where there is none.
struct Lines {
  Line x, y;
};

std::optional<Lines> lines_of(NestContext& ctx) {
  const ir::Node& node = ctx.node();
  const std::vector<SymExpr> in = ctx.operand_sizes(0);
  const std::vector<SymExpr> out = ctx.output_sizes();
  const std::size_t last = in.size() - 3;
  const auto x = line_of(node, last, in[last + 1], out[last + 1]);
  const auto y = last == 0 ? Line{} : line_of(node, last - 1, in[last], out[last]);
  return x && y ? std::optional(Lines{*x, *y}) : std::nullopt;
}

class InPlaceNest : PanelConvNest {
 public:
  explicit InPlaceNest(NestContext& ctx)
      : PanelConvNest(ctx), lines_(*lines_of(ctx)), last_(spatial() - 1) {}

  void build() {
    const std::int64_t along_x = lines_.y.size * lines_.x.tiles(kTileRows);
    const std::int64_t segments = lines_.y.tiles(kTileRows) + lines_.y.at_edges();
    const SymExpr tiles = along_x + lines_.x.at_edges() * segments;
    // Of all images, and of the planes of each.
    std::vector<SymExpr> images(out_.begin(), out_.begin() + 1);
    for (std::size_t d = 0; d + 1 < last_; ++d) images.push_back(out_[d + 1]);
    const SymExpr number = split(base::product(images) * tiles);
    position_ = delinearize(b_.simplify(floordiv(number, tiles)), images, b_.facts());
    step_.assign(spatial(), 0);
    place(b_.simplify(mod(number, tiles)), along_x, segments);
    find_taps();
    const Sums sums = add_sums(kTileRows);
    const std::optional<Scalar> zero = padding();
    begin_panels();
    if (zero) sum_edge();
    const auto index_of = [this](const SymExpr& row) {
      Index index = position_;
      for (std::size_t d = 0; d <= last_; ++d) index[d + 1] += row * step_[d];
      return index;
    };
    if (!are_positions_joined() && may_run(groups(1))) {
      add_runs(sums);
      write(sums, rows_, index_of, zero ? &edge_ : nullptr);
    } else {
      fill(sums, zero.has_value());
      add_inside(sums);
      write(sums, rows_, index_of);
    }
    end_panels();
  }

 private:
  /// Which of the taps along a dimension lie inside of x, the same ones for all rows of the tile.
  struct Taps {
    SymExpr begin, count;
  };

  SymExpr choose(Scalar condition, const SymExpr& then, const SymExpr& otherwise,
                 const SymExpr& most) {
    const Scalar first = b_.from_index(then);
    return b_.bind(b_.apply(ScalarOp::Select, {condition, first, b_.from_index(otherwise)}), 0,
                   most, 0);
  }
  Scalar is_less(const SymExpr& left, const SymExpr& right) {
    return compare(b_, ScalarOp::Lt, left, right);
  }
  /// The k-th position at the edges of a line.
  SymExpr edge_of(const Line& line, const SymExpr& k) {
    if (line.begin == 0) return k + line.end;
    return choose(is_less(k, line.begin), k, k + line.inside(), line.size - 1);
  }

  /// Names where tile `tile` of an image begins, and how its rows go on: the first `along_x` tiles along x, the others down
  /// one of the columns at the edges, each of which has `segments`.
  void place(const SymExpr& tile, std::int64_t along_x, std::int64_t segments) {
    const Line& x = lines_.x;
    const Line& y = lines_.y;
    const std::int64_t width = x.tile_rows(kTileRows);
    const SymExpr x_begin = x.begin + mod(tile, x.tiles(kTileRows)) * width;
    const SymExpr y_begin = floordiv(tile, x.tiles(kTileRows));
    const SymExpr x_rows = min(width, x.end - x_begin);
    if (x.at_edges() == 0) return take(x_begin, y_begin, x_rows, 1);
    const SymExpr behind =
        b_.bind(b_.from_index(max(0, tile - along_x)), 0, x.at_edges() * segments - 1, 0);
    const SymExpr segment = mod(behind, segments);
    const std::int64_t height = y.tile_rows(kTileRows);
    const std::int64_t y_tiles = y.tiles(kTileRows);
    const Scalar is_tile = is_less(segment, y_tiles);
    const SymExpr column = edge_of(x, floordiv(behind, segments));
    const SymExpr alone = edge_of(y, max(0, segment - y_tiles));
    const SymExpr down = choose(is_tile, y.begin + segment * height, alone, y.size - 1);
    const SymExpr down_rows = choose(is_tile, min(height, y.end - down), 1, kTileRows);
    const Scalar is_along_x = is_less(tile, along_x);
    take(choose(is_along_x, x_begin, column, x.size - 1),
         choose(is_along_x, y_begin, down, y.size - 1),
         choose(is_along_x, x_rows, down_rows, kTileRows), choose(is_along_x, 1, 0, 1));
  }
  void take(const SymExpr& x, const SymExpr& y, const SymExpr& rows, const SymExpr& along_x) {
    if (last_ > 0) position_.push_back(y);
    position_.push_back(x);
    rows_ = rows;
    step_[last_] = along_x;
    if (last_ > 0) step_[last_ - 1] = 1 - along_x;
  }

  SymExpr named(const SymExpr& value, std::int64_t most) {
    return value.is_constant() ? value : b_.bind(b_.from_index(value), 0, most, 0);
  }
  void find_taps() {
    for (std::size_t d = 0; d <= last_; ++d) {
      const std::int64_t taps = kernel_[d];
      const SymExpr first = position_[d + 1] * strides_[d] - pads_[d];
      const bool is_cut_before = pads_[d] != 0;
      const bool is_cut_behind = ctx_.node().ints("pads_high")[d] != 0;
      const SymExpr begin =
          is_cut_before ? min(taps, max(0, ceildiv(-first, dilations_[d]))) : SymExpr(0);
      const SymExpr end = is_cut_behind ? min(taps, ceildiv(x_sizes_[d + 1] - first, dilations_[d]))
                                        : SymExpr(taps);
      const SymExpr from = named(b_.simplify(begin), taps);
      taps_.push_back({from, named(b_.simplify(max(0, end - from)), taps)});
    }
  }

  /// What lies outside of x, where that adds anything.
  std::optional<Scalar> padding() {
    const auto is_none = [](std::int64_t pad) { return pad == 0; };
    if (std::ranges::all_of(pads_, is_none) &&
        std::ranges::all_of(ctx_.node().ints("pads_high"), is_none))
      return std::nullopt;
    if (!is_of_bytes()) return std::nullopt;
    const ir::Node& zero = *ctx_.node().input(2).node;
    if (zero.op_name() == "const" && zero.literal("value").at_int(0) == 0) return std::nullopt;
    group_of_zeros_ = b_.add_local(DType::U8, kByteGroup, kByteGroup);
    edge_ = add_sums(1);
    const Scalar value = ctx_.operand(2, {});
    const Symbol k = b_.begin_for(kByteGroup, ForStmt::Kind::Vector);
    b_.store(group_of_zeros_, k, value);
    b_.end_for();
    return value;
  }

  /// What taps outside of x add to the sums of each row.
  void sum_edge() {
    const Symbol column = b_.begin_for(kTileColumns, ForStmt::Kind::Vector);
    b_.store(edge_.buffer, column, no_sum());
    b_.end_for();
    add_outside(0, 0, b_.constant(DType::Bool, 1));
  }

  /// What the sums of all rows begin with.
  void fill(const Sums& sums, bool has_edge) {
    const Symbol row = b_.begin_for(rows_, ForStmt::Kind::Serial);
    const Symbol column = b_.begin_for(kTileColumns, ForStmt::Kind::Vector);
    const Scalar value = has_edge ? b_.load(edge_.buffer, column) : no_sum();
    b_.store(sums.buffer, SymExpr(row) * kTileColumns + SymExpr(column), value);
    b_.end_for();
    b_.end_for();
  }

  /// Groups of a panel that belong to so many taps.
  SymExpr groups(const SymExpr& taps) const { return taps * (channels().constant() / group_); }

  /// Zero points times the weights of taps outside of x, of dimensions from `d` on. `tap`: the number of that of those before;
  /// `inside`: whether it lies inside.
  void add_outside(std::size_t d, const SymExpr& tap, Scalar inside) {
    const Taps& taps = taps_[d];
    if (d == last_) {
      const TileOperand zeros{group_of_zeros_, 0, 0, 0};
      const SymExpr first = tap * kernel_[d];
      const SymExpr end = taps.begin + taps.count;
      const SymExpr before = choose(inside, taps.begin, kernel_[d], kernel_[d]);
      const SymExpr behind = choose(inside, kernel_[d] - end, 0, kernel_[d]);
      multiply(edge_, 1, zeros, groups(first), groups(before));
      multiply(edge_, 1, zeros, groups(first + end), groups(behind));
      return;
    }
    const SymExpr t = b_.begin_for(kernel_[d], ForStmt::Kind::Serial);
    Mask still = where_less(b_, inside, taps.begin - 1, t);
    still = where_less(b_, still, t, taps.begin + taps.count);
    add_outside(d + 1, tap * kernel_[d] + t, *still);
    b_.end_for();
  }

  /// From the x of a row of the tile to that of the next one.
  SymExpr row_stride() const {
    SymExpr stride = 0;
    for (std::size_t d = 0; d <= last_; ++d) stride += step_[d] * strides_[d] * x_.strides[d + 1];
    return stride;
  }

  /// All taps inside of x at once.
  void add_runs(const Sums& sums) {
    SymExpr from = x_.offset + x_.strides[0] * position_[0] + first_channel();
    SymExpr tap = 0;
    std::vector<ContractStmt::Run> runs;
    for (std::size_t d = 0; d <= last_; ++d) {
      std::int64_t behind = 1;
      for (std::size_t k = d + 1; k <= last_; ++k) behind *= kernel_[k];
      from += place_of(d, taps_[d].begin);
      tap = tap * kernel_[d] + taps_[d].begin;
      runs.push_back({.count = taps_[d].count,
                      .a_stride = x_.strides[d + 1] * dilations_[d],
                      .b_stride = groups(behind)});
    }
    multiply_runs(sums, rows_, {x_.buffer, from, row_stride(), group_}, groups(tap), groups(1),
                  std::move(runs));
  }

  void add_inside(const Sums& sums) {
    SymExpr from = x_.offset + x_.strides[0] * position_[0] + first_channel();
    SymExpr tap = 0;
    for (std::size_t d = 0; d < last_; ++d) {
      const SymExpr t = taps_[d].begin + b_.begin_for(taps_[d].count, ForStmt::Kind::Serial);
      from += place_of(d, t);
      tap = tap * kernel_[d] + t;
    }
    const bool one_piece =
        kernel_[last_] == 1 || (are_positions_joined() && dilations_[last_] == 1 &&
                                b_.simplify(x_.strides[last_ + 1] - channels()).is_constant(0));
    const Taps& row = taps_[last_];
    const SymExpr pieces = one_piece ? SymExpr(1) : row.count;
    const SymExpr t = row.begin + b_.begin_for(pieces, ForStmt::Kind::Serial);
    const TileOperand a{x_.buffer, from + place_of(last_, t), row_stride(), group_};
    multiply(sums, rows_, a, groups(tap * kernel_[last_] + t), groups(one_piece ? row.count : 1));
    for (std::size_t d = 0; d <= last_; ++d) b_.end_for();
  }
  /// How far into x tap `tap` of dimension `d` lies, for the first row.
  SymExpr place_of(std::size_t d, const SymExpr& tap) const {
    return (position_[d + 1] * strides_[d] - pads_[d] + tap * dilations_[d]) * x_.strides[d + 1];
  }

  const Lines lines_;
  const std::size_t last_;  ///< spatial dimension
  Index position_;          ///< of the first row: image and spatial dimensions
  Index step_;              ///< by spatial dimension, from row to row
  SymExpr rows_;
  std::vector<Taps> taps_;  ///< by spatial dimension
  NestBufferId group_of_zeros_ = 0;
  Sums edge_{};
};

}  // namespace

bool reads_windows_in_place(NestContext& ctx) {
  const SymExpr channels = floordiv(ctx.operand_sizes(0).back(), ctx.node().integer("groups"));
  const std::int64_t group =
      ctx.node().input(0).meta().dtype == DType::U8 ? kByteGroup : kBf16Group;
  if (!channels.is_constant() || channels.constant() % group != 0) return false;
  if (!ctx.affine(0)->strides.back().is_constant(1)) return false;
  const std::optional<Lines> lines = lines_of(ctx);
  const std::int64_t least = ctx.options().amx ? kLeastAmxRun : kLeastRun;
  if (!lines || lines->x.inside() < least) return false;
  const bool is_plane = ctx.operand_sizes(0).size() > 3;
  const std::int64_t alone = lines->x.at_edges() * (is_plane ? lines->y.at_edges() : 1);
  return alone * kInsideForEachAlone <= lines->x.inside() * lines->y.inside();
}

void build_panel_conv_in_place(NestContext& ctx) { InPlaceNest(ctx).build(); }

}  // namespace heddle::jit
