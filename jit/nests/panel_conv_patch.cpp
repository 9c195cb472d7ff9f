#include <algorithm>

#include "jit/lower/index.h"
#include "jit/nests/panel_conv.h"

namespace heddle::jit {
namespace {

/// Bytes that a matrix register holds of a row, and its rows.
constexpr std::int64_t kRegisterBytes = 64;
constexpr std::int64_t kRegisterRows = 16;
/// Bytes of a patch, at most, which lie on the stack.
constexpr std::int64_t kMostPatchBytes = 56 * 1024;
/// Rows of the sums of a tile, at most: 16 KiB.
constexpr std::int64_t kMostSums = 64;
/// Positions of a tile's row where the result's sizes are not known.
constexpr std::int64_t kOpenPositions = 48;
/// Bytes of the weights of a strip, which stay in the second-level cache, and iterations that are enough for many threads.
constexpr std::int64_t kMostStripBytes = 1 << 20;
constexpr std::int64_t kManyIterations = 16;

std::int64_t parts_of(std::int64_t value, std::int64_t part) { return (value + part - 1) / part; }

/// Attributes of a convolution's windows, one entry a spatial dimension.
struct PatchWindow {
  std::vector<std::int64_t> kernel, strides, dilations;
};

/// The taps of a window along the last dimension, x, and the one before, y, of one tap where there is none.
struct Taps {
  std::int64_t x, y;
  std::int64_t x_stride, y_stride;
  std::int64_t x_dilation, y_dilation;

  explicit Taps(const PatchWindow& window) {
    const auto last = [&](const std::vector<std::int64_t>& of) { return of.back(); };
    const auto before = [&](const std::vector<std::int64_t>& of) {
      return of.size() < 2 ? std::int64_t{1} : of[of.size() - 2];
    };
    x = last(window.kernel), y = before(window.kernel);
    x_stride = last(window.strides), y_stride = before(window.strides);
    x_dilation = last(window.dilations), y_dilation = before(window.dilations);
  }
  /// Positions from the first tap along x to the last.
  std::int64_t x_span() const { return (x - 1) * x_dilation + 1; }
  /// Whether rows of the result share rows of a patch.
  bool share_rows() const { return y_stride == 1 && y_dilation == 1; }
};

/// Elements of a result that are a tile, and what of x their windows read.
struct Tile {
  std::int64_t rows = 1;       ///< of the result
  std::int64_t positions = 1;  ///< of each

  /// Positions from one of its rows to the next in a patch: windows of so many begin in each of its rows, the last of which reach beyond.
  std::int64_t pitch(const Taps& taps) const {
    return positions - 1 + parts_of(taps.x_span(), taps.x_stride);
  }
  /// Rows of sums, those between the rows of the result included, in whole registers.
  std::int64_t sums(const Taps& taps) const {
    return up_to((rows - 1) * pitch(taps) + positions, kRegisterRows);
  }
  std::int64_t patch_rows(const Taps& taps) const {
    return taps.share_rows() ? rows + taps.y - 1 : rows * taps.y;
  }
  /// Elements from a row of the patch to the next.
  std::int64_t row_elements(const Taps& taps, std::int64_t channels) const {
    return pitch(taps) * taps.x_stride * channels;
  }
  /// Elements of the patch, those that registers read beyond it included.
  std::int64_t elements(const Taps& taps, std::int64_t channels, std::int64_t align) const {
    const std::int64_t of_row = row_elements(taps, channels);
    const std::int64_t last_run = (patch_rows(taps) - rows) * of_row;
    const std::int64_t last_tap =
        taps.x_dilation == 1 ? 0 : (taps.x - 1) * taps.x_dilation * channels;
    const std::int64_t run = taps.x_dilation == 1 ? taps.x * channels : channels;
    const std::int64_t read =
        last_run + (sums(taps) - 1) * taps.x_stride * channels + last_tap + up_to(run, align);
    return up_to(std::max(read, patch_rows(taps) * of_row), kRegisterBytes);
  }
};

/// What a convolution takes in the tiles that are asked about, in cycles.
struct TileCosts {
  Taps taps;
  std::int64_t channels, element_bytes, align;
  std::int64_t panels;

  std::int64_t patch_bytes(const Tile& tile) const {
    return tile.elements(taps, channels, align) * element_bytes;
  }
  double of(const Tile& tile) const {
    // Four products of registers, as long as they take where blocks are of 32 x 32 sums, and of 16 x 64, which read more.
    constexpr double kOfSquare = 64, kOfRow = 96, kOfPanel = 200, kOfPatchRow = 30;
    const std::int64_t run = taps.x_dilation == 1 ? taps.x * channels : channels;
    const double steps =
        static_cast<double>(taps.y * (taps.x_dilation == 1 ? 1 : taps.x) * parts_of(run, align));
    const std::int64_t blocks = tile.sums(taps) / kRegisterRows;
    const double products =
        static_cast<double>(blocks / 2) * 2 * kOfSquare + static_cast<double>(blocks % 2) * kOfRow;
    const auto copied = static_cast<double>(tile.patch_rows(taps));
    const double patch =
        copied *
        (kOfPatchRow + static_cast<double>(tile.row_elements(taps, channels) * element_bytes) / 10);
    // Less of the first-level cache is left to what is read of panels.
    constexpr std::int64_t kManyBytes = 29 * 1024;
    const double crowded = patch_bytes(tile) + tile.sums(taps) * 256 > kManyBytes ? 1.25 : 1;
    return static_cast<double>(panels) * (products * steps * crowded + kOfPanel) + patch;
  }
};

/// The tile of a result of so many rows and positions, nothing where they are not known, that takes the least.
Tile best_tile(const TileCosts& costs, std::optional<std::int64_t> rows,
               std::optional<std::int64_t> positions) {
  Tile best;
  std::optional<double> least;
  const std::int64_t length = positions.value_or(kOpenPositions);
  for (std::int64_t pieces = 1; pieces <= length; ++pieces) {
    for (Tile tile{1, parts_of(length, pieces)}; tile.rows <= rows.value_or(1); ++tile.rows) {
      if (tile.sums(costs.taps) > kMostSums || costs.patch_bytes(tile) > kMostPatchBytes) break;
      const auto tiles = static_cast<double>(parts_of(length, tile.positions) *
                                             parts_of(rows.value_or(1), tile.rows));
      const double cost = tiles * costs.of(tile);
      if (least && *least <= cost) continue;
      least = cost;
      best = tile;
    }
    if (parts_of(length, pieces) == 1) break;
  }
  return best;
}

class PatchNest : PanelConvNest {
 public:
  explicit PatchNest(NestContext& ctx)
      : PanelConvNest(ctx, kTileColumns / ctx.operand_sizes(1)[2].constant()),
        taps_({kernel_, strides_, dilations_}),
        last_(spatial() - 1),
        width_(out_[last_ + 1]),
        height_(last_ == 0 ? SymExpr(1) : out_[last_]),
        c_(channels().constant()),
        align_(ctx.node().integer("align")) {
    const auto known = [](const SymExpr& size) -> std::optional<std::int64_t> {
      if (!size.is_constant()) return std::nullopt;
      return std::max<std::int64_t>(1, size.constant());
    };
    const std::int64_t panels = panels_of_group();
    const TileCosts costs{taps_, c_, static_cast<std::int64_t>(size_of(element_)), align_, panels};
    tile_ = best_tile(costs, known(height_), known(width_));
    pitch_ = tile_.row_elements(taps_, c_);
  }

  void build() {
    const SymExpr across = ceildiv(width_, tile_.positions), down = ceildiv(height_, tile_.rows);
    std::vector<SymExpr> tiles{out_[0], down, across};
    const SymExpr number = split(base::product(tiles), strip_panels(base::product(tiles)));
    const Index at = delinearize(number, tiles, b_.facts());
    image_ = at[0];
    y_ = b_.simplify(at[1] * tile_.rows);
    x_begin_ = b_.simplify(at[2] * tile_.positions);
    const SymExpr rows = b_.simplify(min(tile_.rows, height_ - y_));
    const SymExpr positions = b_.simplify(min(tile_.positions, width_ - x_begin_));
    const std::int64_t elements = tile_.elements(taps_, c_, align_);
    patch_ = b_.add_local(element_, elements, elements);
    const Sums sums = add_sums(tile_.sums(taps_));
    fill(rows, positions);
    begin_panels();
    const std::int64_t step = taps_.x_stride * c_;
    const SymExpr last = (rows - 1) * tile_.pitch(taps_) + positions;
    const SymExpr whole = b_.simplify(ceildiv(last, kRegisterRows)) * kRegisterRows;
    multiply_runs(sums, whole, {patch_, 0, step, group_}, 0, run_elements() / group_, runs());
    const SymExpr y = b_.begin_for(rows, ForStmt::Kind::Serial);
    const auto index_of = [&](const SymExpr& x) {
      Index index{image_};
      if (last_ > 0) index.push_back(y_ + y);
      index.push_back(x_begin_ + x);
      return index;
    };
    write(sums, positions, index_of, nullptr, y * tile_.pitch(taps_));
    b_.end_for();
    end_panels();
  }

 private:
  /// Tiles of columns of a group.
  std::int64_t panels_of_group() const {
    const SymExpr columns = ceildiv(floordiv(out_.back(), groups_), kTileColumns);
    return columns.is_constant() ? std::max<std::int64_t>(1, columns.constant()) : 1;
  }

  std::int64_t strip_panels(const SymExpr& tiles) const {
    const std::vector<SymExpr> sizes = ctx_.operand_sizes(1);
    const SymExpr bytes = sizes[1] * kTileColumns * 4;
    const std::int64_t most =
        bytes.is_constant() && bytes.constant() > 0 ? kMostStripBytes / bytes.constant() : 1;
    const std::int64_t strips = tiles.is_constant() && tiles.constant() > 0
                                    ? parts_of(kManyIterations, tiles.constant())
                                    : 1;
    return std::max<std::int64_t>(1, std::min(most, parts_of(panels_of_group(), strips)));
  }

  /// Elements of each of runs(), rounded up.
  std::int64_t run_elements() const {
    return up_to(taps_.x_dilation == 1 ? taps_.x * c_ : c_, align_);
  }
  std::vector<ContractStmt::Run> runs() const {
    const std::int64_t of_row = up_to(taps_.x * c_, align_) / group_;
    const std::int64_t apart = taps_.share_rows() ? pitch_ : tile_.rows * pitch_;
    std::vector<ContractStmt::Run> all{{taps_.y, apart, of_row}};
    if (taps_.x_dilation != 1)
      all.push_back({taps_.x, taps_.x_dilation * c_, run_elements() / group_});
    return all;
  }

  /// Copies what the windows of the tile read, rows that all its rows share or, for each tap, rows of its own.
  void fill(const SymExpr& rows, const SymExpr& positions) {
    zero_ = is_of_bytes() ? ctx_.operand(2, {}) : zero(b_, element_);
    const SymExpr count = b_.simplify((positions - 1) * taps_.x_stride + SymExpr(taps_.x_span()));
    find_columns(count);
    if (taps_.share_rows()) {
      const Symbol row = b_.begin_for(rows + (taps_.y - 1), ForStmt::Kind::Serial);
      fill_row(SymExpr(row) * pitch_, y_ + SymExpr(row) - y_pad(), count);
      b_.end_for();
      return;
    }
    const Symbol tap = b_.begin_for(taps_.y, ForStmt::Kind::Serial);
    const Symbol row = b_.begin_for(rows, ForStmt::Kind::Serial);
    fill_row((SymExpr(tap) * tile_.rows + SymExpr(row)) * pitch_,
             (y_ + SymExpr(row)) * taps_.y_stride + SymExpr(tap) * taps_.y_dilation - y_pad(),
             count);
    b_.end_for();
    b_.end_for();
  }
  std::int64_t y_pad() const { return last_ == 0 ? 0 : pads_[last_ - 1]; }
  bool is_padded(std::size_t d) const {
    return pads_[d] != 0 || ctx_.node().ints("pads_high")[d] != 0;
  }

  /// Which of `count` positions of a row of the patch lie in x, the same ones of all rows: [begin_, end_).
  void find_columns(const SymExpr& count) {
    first_ = b_.simplify(x_begin_ * taps_.x_stride - pads_[last_]);
    begin_ = 0;
    end_ = count;
    if (!is_padded(last_)) return;
    const std::int64_t most = (tile_.positions - 1) * taps_.x_stride + taps_.x_span();
    const auto named = [&](const SymExpr& value) {
      const SymExpr known = b_.simplify(value);
      return known.is_constant() ? known : b_.bind(b_.from_index(known), 0, most, 0);
    };
    begin_ = named(min(count, max(0, -first_)));
    end_ = named(max(begin_, min(count, x_sizes_[last_ + 1] - first_)));
  }

  /// Row `row` of x, or no row of it, from `to` on.
  void fill_row(const SymExpr& to, const SymExpr& row, const SymExpr& count) {
    SymExpr from = x_.offset + x_.strides[0] * image_ + first_ * x_.strides[last_ + 1];
    from += first_channel() * x_.strides.back();
    if (last_ == 0) return fill_inside(to, from, count);
    from += row * x_.strides[last_];
    Mask inside;
    if (is_padded(last_ - 1))
      inside = where_less(b_, where_less(b_, inside, -1, row), row, x_sizes_[last_]);
    if (!inside) return fill_inside(to, from, count);
    b_.begin_if(*inside);
    fill_inside(to, from, count);
    b_.end_if();
    b_.begin_if(b_.apply(ir::ScalarOp::Not, {*inside}));
    clear(to, 0, count);
    b_.end_if();
  }
  void fill_inside(const SymExpr& to, const SymExpr& from, const SymExpr& count) {
    clear(to, 0, begin_);
    const bool is_one_piece = are_positions_joined() && x_.strides.back().is_constant(1) &&
                              b_.simplify(x_.strides[last_ + 1] - channels()).is_constant(0);
    if (is_one_piece) {
      copy(to + begin_ * c_, from + begin_ * c_, b_.simplify((end_ - begin_) * c_));
    } else {
      const SymExpr k = begin_ + b_.begin_for(b_.simplify(end_ - begin_), ForStmt::Kind::Serial);
      copy(to + k * c_, from + k * x_.strides[last_ + 1], c_);
      b_.end_for();
    }
    clear(to, end_, count);
  }
  void copy(const SymExpr& to, const SymExpr& from, const SymExpr& count) {
    const Symbol k = b_.begin_for(count, ForStmt::Kind::Vector);
    b_.store(patch_, to + SymExpr(k), b_.load(x_.buffer, from + SymExpr(k) * x_.strides.back()));
    b_.end_for();
  }
  /// Positions [begin, end) of a row, which lie outside of x.
  void clear(const SymExpr& to, const SymExpr& begin, const SymExpr& end) {
    const SymExpr count = b_.simplify((end - begin) * c_);
    if (count.is_constant(0)) return;
    const Symbol k = b_.begin_for(count, ForStmt::Kind::Vector);
    b_.store(patch_, to + begin * c_ + SymExpr(k), zero_);
    b_.end_for();
  }

  const Taps taps_;
  const std::size_t last_;        ///< spatial dimension
  const SymExpr width_, height_;  ///< of the result
  const std::int64_t c_;          ///< channels of a group
  const std::int64_t align_;
  Tile tile_;
  std::int64_t pitch_ = 0;  ///< elements of a row of the patch
  NestBufferId patch_ = 0;
  SymExpr image_, y_, x_begin_;  ///< where the tile begins in the result
  SymExpr first_;                ///< position of x with which rows of the patch begin
  SymExpr begin_, end_;
  Scalar zero_;
};

}  // namespace

std::int64_t patch_panel_columns(std::int64_t columns) {
  return columns <= kRegisterRows ? kRegisterRows : 2 * kRegisterRows;
}

namespace {

std::int64_t alignment_of(const PatchWindow& window, std::int64_t channels, DType dtype) {
  const auto each = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t align = kRegisterBytes / each;
  const auto is_one = [](std::int64_t size) { return size == 1; };
  // One tap is read where it lies.
  if (window.kernel.size() > 2 || channels == 0 || std::ranges::all_of(window.kernel, is_one))
    return 1;
  const Taps taps(window);
  const std::int64_t run = taps.x_dilation == 1 ? taps.x * channels : channels;
  // What is behind a run is multiplied by 0, which gives no 0 of every bf16.
  const bool may_read_on = dtype == DType::U8 && taps.x_dilation == 1;
  if (run % align != 0 && !may_read_on) return 1;
  const Tile least{1, kRegisterRows};
  return least.elements(taps, channels, align) * each <= kMostPatchBytes ? align : 1;
}

}  // namespace

std::int64_t patch_alignment(const ir::Node& conv, std::int64_t joined, DType dtype) {
  const ir::Dims& weights = conv.input(1).meta().sizes;
  PatchWindow window{.strides = conv.ints("strides"), .dilations = conv.ints("dilations")};
  for (std::size_t d = 2; d < weights.size(); ++d) window.kernel.push_back(weights[d].constant());
  return alignment_of(window, weights[1].constant() * joined, dtype);
}

bool reads_windows_from_patch(NestContext& ctx) {
  const ir::Node& node = ctx.node();
  const SymExpr channels = floordiv(ctx.operand_sizes(0).back(), node.integer("groups"));
  const SymExpr width = ctx.operand_sizes(1)[2];
  if (!ctx.options().amx || !channels.is_constant() || !width.is_constant()) return false;
  const PatchWindow window{node.ints("kernel"), node.ints("strides"), node.ints("dilations")};
  const bool is_whole =
      width.constant() % kRegisterRows == 0 && kPanelColumns % width.constant() == 0;
  const std::int64_t align = alignment_of(window, channels.constant(), node.input(0).meta().dtype);
  return is_whole && align != 1 && node.integer("align") == align &&
         ctx.affine(1)->strides[3].is_constant(1);
}

void build_panel_conv_patch(NestContext& ctx) { PatchNest(ctx).build(); }

}  // namespace heddle::jit
