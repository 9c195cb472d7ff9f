// packed_int8_conv or packed_bf16_conv as a nest: the windows of a tile of rows are put behind each other in memory of its own, and multiplied by
// some panels of weights.
//
//   for p in column strips x row tiles (parallel; row tiles innermost: the panels of a strip stay in the second-level cache)
//     for row in rows: for taps but those of the last dimension:
//       w[row] = the elements of the last dimension's taps, in one piece where they lie inside of x so, else tap by tap
//     for panel in strip:
//       acc[rows, columns] = w . panel, part of the depth by part
//       for row in rows: for column in columns (vector): result(row, column, acc[row, column])
//
// Of several groups of channels, the panels of each are a strip, whose windows hold the channels of that group.
//
// Windows of a whole convolution in memory would be written and read once more beyond the first-level cache. Where they are
// read in place (panel_conv.h), none of this is.
#include "jit/nests/panel_conv.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "jit/lower/index.h"
#include "jit/nests/nests.h"

namespace heddle::jit {

namespace {

using ir::ScalarOp;

/// Windows of so many bytes lie on the stack.
constexpr std::int64_t kMostStackBytes = 64 * 1024;
/// Groups of a part of the depth where matrix registers multiply it: sums come from memory and go back there for each.
constexpr std::int64_t kAmxDepth = 256;

}  // namespace

PanelConvNest::PanelConvNest(NestContext& ctx, std::int64_t tile_panels)
    : ctx_(ctx),
      b_(ctx.builder()),
      element_(ctx.node().input(0).meta().dtype),
      accumulator_(element_ == DType::U8 ? DType::I32 : DType::F32),
      group_(element_ == DType::U8 ? kByteGroup : kBf16Group),
      groups_(ctx.node().integer("groups")),
      out_(ctx.output_sizes()),
      x_sizes_(ctx.operand_sizes(0)),
      x_(*ctx.affine(0)),
      panels_(*ctx.affine(1)),
      kernel_(ctx.node().ints("kernel")),
      strides_(ctx.node().ints("strides")),
      pads_(ctx.node().ints("pads_low")),
      dilations_(ctx.node().ints("dilations")),
      channels_(floordiv(x_sizes_.back(), groups_)),
      group_columns_(floordiv(out_.back(), groups_)),
      panel_columns_(ctx.operand_sizes(1)[2]),
      tile_panels_(tile_panels) {
  if (is_of_bytes() && ctx.node().inputs().size() > 3 && ctx.node().input(3))
    pairs_fit_ = ctx.operand(3, {});
}

SymExpr PanelConvNest::depth() const {
  SymExpr count = channels();
  for (const std::int64_t size : kernel_) count *= size;
  return count;
}

SymExpr PanelConvNest::run() const {
  const std::int64_t align = ctx_.node().integer("align");
  return ceildiv(channels() * kernel_.back(), align) * align;
}

PanelConvNest::Sums PanelConvNest::add_sums(std::int64_t rows) {
  return {b_.add_local(accumulator_, rows * kTileColumns, rows * kTileColumns), rows};
}

Scalar PanelConvNest::no_sum() { return zero(b_, accumulator_); }

SymExpr PanelConvNest::split(const SymExpr& tiles, std::int64_t strip_panels) {
  const SymExpr panels = ceildiv(group_columns_, panel_columns_ * tile_panels_);
  const SymExpr strips = groups_ == 1 ? ceildiv(panels, strip_panels) : SymExpr(groups_);
  const SymExpr extent = tiles * strips;
  const Symbol p = b_.new_axis(extent);
  b_.set_parallel(p, extent);
  const SymExpr number = b_.simplify(floordiv(p, tiles));
  group_number_ = groups_ == 1 ? SymExpr(0) : number;
  first_panel_ = groups_ == 1 ? number * strip_panels : SymExpr(0);
  strip_ = groups_ == 1 ? min(strip_panels, panels - first_panel_) : panels;
  b_.nest().work = base::product(out_) * depth() * (is_of_bytes() ? 1 : 2);
  return b_.simplify(mod(p, tiles));
}

void PanelConvNest::begin_panels() {
  const Symbol panel = b_.begin_for(strip_, ForStmt::Kind::Serial);
  const SymExpr of_group = first_panel_ + SymExpr(panel);
  panel_ = group_number_ * ceildiv(group_columns_, panel_columns_) + of_group * tile_panels_;
  column_begin_ = of_group * panel_columns_ * tile_panels_;
  columns_ = b_.simplify(min(panel_columns_ * tile_panels_, group_columns_ - column_begin_));
}

std::int64_t PanelConvNest::most_depth() const {
  const bool in_place = panels_.strides[3].is_constant(1);
  return ctx_.options().amx && in_place ? kAmxDepth : kGroupDepth;
}

bool PanelConvNest::may_run(const SymExpr& groups) const {
  const bool fits = groups.is_constant() && groups.constant() <= most_depth();
  return is_of_bytes() && fits && panels_.strides[3].is_constant(1) &&
         multiplies_groups(ctx_.options());
}

void PanelConvNest::multiply_runs(const Sums& sums, const SymExpr& rows, const TileOperand& a,
                                  const SymExpr& first, const SymExpr& count,
                                  std::vector<ContractStmt::Run> runs) {
  const std::vector<SymExpr>& strides = panels_.strides;
  for (ContractStmt::Run& run : runs) run.b_stride *= strides[1];
  const SymExpr at = panels_.offset + strides[0] * panel_ + strides[1] * first;
  b_.contract({.acc = sums.buffer,
               .dtype = accumulator_,
               .tile_rows = sums.rows,
               .tile_columns = kTileColumns,
               .rows = rows,
               .columns = columns_,
               .depth = count,
               .a = a,
               .b = {panels_.buffer, at, strides[1], strides[2]},
               .group = group_,
               .runs = std::move(runs),
               .panel_columns = tile_panels_ == 1 ? 0 : panel_columns_.constant(),
               .panel_stride = tile_panels_ == 1 ? SymExpr(0) : strides[0]});
}

void PanelConvNest::multiply(const Sums& sums, const SymExpr& rows, const TileOperand& a,
                             const SymExpr& first, const SymExpr& count, bool accumulate) {
  const std::int64_t most = most_depth();
  const Symbol part = b_.begin_for(ceildiv(count, most), ForStmt::Kind::Serial);
  const SymExpr begin = SymExpr(part) * most;
  const SymExpr depth = b_.simplify(min(most, count - begin));
  const SymExpr at =
      panels_.offset + panels_.strides[0] * panel_ + panels_.strides[1] * (first + begin);
  const DType weights = ctx_.node().input(1).meta().dtype;
  TileOperand right = group_panel(b_, panels_, weights, at, depth, columns_);
  ContractStmt contraction{
      .acc = sums.buffer,
      .dtype = accumulator_,
      .tile_rows = sums.rows,
      .tile_columns = kTileColumns,
      .rows = rows,
      .columns = columns_,
      .depth = depth,
      .a = {a.buffer, a.base + begin * a.column_stride, a.row_stride, a.column_stride},
      .b = std::move(right),
      .accumulate = accumulate,
      .group = group_};
  if (is_of_bytes())
    contract_bytes(b_, ctx_.options(), std::move(contraction), pairs_fit_);
  else
    b_.contract(std::move(contraction));
  b_.end_for();
}

void PanelConvNest::write(const Sums& sums, const SymExpr& rows, const IndexOfRow& index_of,
                          const Sums* more, const SymExpr& first) {
  const Symbol row = b_.begin_for(rows, ForStmt::Kind::Serial);
  Index index = index_of(row);
  const Symbol column = b_.begin_for(columns_, ForStmt::Kind::Vector);
  Scalar sum = b_.load(sums.buffer, (first + row) * kTileColumns + SymExpr(column));
  if (more != nullptr) sum = b_.apply(ScalarOp::Add, {sum, b_.load(more->buffer, SymExpr(column))});
  index.push_back(group_number_ * group_columns_ + column_begin_ + SymExpr(column));
  ctx_.result(0, index, sum);
  b_.end_for();
  b_.end_for();
}

namespace {

class CopiedWindowsNest : PanelConvNest {
 public:
  explicit CopiedWindowsNest(NestContext& ctx) : PanelConvNest(ctx) {}

  void build() {
    const std::span<const SymExpr> leading = std::span(out_).first(out_.size() - 1);
    const SymExpr rows = base::product(leading);
    row_begin_ = split(ceildiv(rows, kTileRows)) * kTileRows;
    rows_ = min(kTileRows, rows - row_begin_);
    pitch_ = ctx_.operand_sizes(1)[1] * group_;
    const SymExpr count = pitch_ * kTileRows;
    const auto each = static_cast<std::int64_t>(size_of(element_));
    const bool fits = count.is_constant() && count.constant() * each <= kMostStackBytes;
    windows_ = b_.add_local(element_, count, fits ? count.constant() : 0);
    const Sums sums = add_sums(kTileRows);
    zero_ = is_of_bytes() ? ctx_.operand(2, {}) : zero(b_, element_);
    gather();
    begin_panels();
    const SymExpr groups = ctx_.operand_sizes(1)[1];
    const bool is_one_part = groups.is_constant() && groups.constant() <= most_depth();
    if (!is_one_part) {
      const Symbol k = b_.begin_for(rows_ * kTileColumns, ForStmt::Kind::Vector);
      b_.store(sums.buffer, k, no_sum());
      b_.end_for();
    }
    multiply(sums, rows_, {windows_, 0, pitch_, group_}, 0, groups, !is_one_part);
    write(sums, rows_, [&](const SymExpr& row) { return place_of(row); });
    end_panels();
  }

 private:
  /// The element of the result, but for its column, that a row of the tile is. Divisions by sizes that are not known are done here, once.
  Index place_of(const SymExpr& row) {
    const std::span<const SymExpr> leading = std::span(out_).first(out_.size() - 1);
    Index at = delinearize(row_begin_ + row, leading, b_.facts());
    const auto is_known = [](const SymExpr& size) { return size.is_constant(); };
    if (std::all_of(leading.begin() + 1, leading.end(), is_known)) return at;
    for (std::size_t d = 0; d < at.size(); ++d)
      at[d] = b_.bind(b_.from_index(at[d]), 0, leading[d] - 1, 0);
    return at;
  }

  /// Fills the windows of the tile's rows.
  void gather() {
    const Symbol row = b_.begin_for(rows_, ForStmt::Kind::Serial);
    const Index at = place_of(row);
    first_.clear();
    for (std::size_t d = 0; d < spatial(); ++d)
      first_.push_back(at[d + 1] * strides_[d] - pads_[d]);
    const SymExpr to = SymExpr(row) * pitch_;
    const SymExpr from = x_.offset + x_.strides[0] * at[0];
    gather_from(0, from + x_.strides.back() * first_channel(), to, std::nullopt);
    clear_rest(to, std::accumulate(kernel_.begin(), kernel_.end() - 1, run(), std::multiplies<>()),
               pitch_);
    b_.end_for();
  }

  /// Taps of dimensions from `d` on; x's element of those before it begins at `from`.
  void gather_from(std::size_t d, const SymExpr& from, const SymExpr& to, const Mask& inside) {
    if (d + 1 == spatial()) {
      gather_run(from, to, inside);
      return clear_rest(to, channels() * kernel_.back(), run());
    }
    const Symbol tap = b_.begin_for(kernel_[d], ForStmt::Kind::Serial);
    SymExpr behind = run();
    for (std::size_t k = d + 1; k + 1 < spatial(); ++k) behind *= kernel_[k];
    const SymExpr position = first_[d] + SymExpr(tap) * dilations_[d];
    gather_from(d + 1, from + position * x_.strides[d + 1], to + SymExpr(tap) * behind,
                within(d, position, position, inside));
    b_.end_for();
  }

  /// `mask`, and that positions [low, high] of dimension `d` lie inside of x.
  Mask within(std::size_t d, const SymExpr& low, const SymExpr& high, Mask mask) {
    const bool padded =
        ctx_.node().ints("pads_low")[d] != 0 || ctx_.node().ints("pads_high")[d] != 0;
    if (!padded) return mask;
    mask = where_less(b_, mask, -1, low);
    return where_less(b_, mask, high, x_sizes_[d + 1]);
  }

  /// The taps of the last dimension.
  void gather_run(const SymExpr& from, const SymExpr& to, const Mask& inside) {
    const std::size_t d = spatial() - 1;
    const std::int64_t taps = kernel_[d];
    const bool one_piece =
        (taps == 1 || dilations_[d] == 1) && x_.strides.back().is_constant(1) &&
        (taps == 1 ||
         (are_positions_joined() && b_.simplify(x_.strides[d + 1] - channels()).is_constant(0)));
    Mask whole;
    if (one_piece) {
      whole = within(d, first_[d], first_[d] + (taps - 1), inside);
      if (whole) b_.begin_if(*whole);
      copy(from + first_[d] * x_.strides[d + 1], to, channels() * taps, std::nullopt);
      if (!whole) return;
      b_.end_if();
      b_.begin_if(b_.apply(ScalarOp::Not, {*whole}));
    }
    const Symbol tap = b_.begin_for(taps, ForStmt::Kind::Serial);
    const SymExpr position = first_[d] + SymExpr(tap) * dilations_[d];
    copy(from + position * x_.strides[d + 1], to + SymExpr(tap) * channels(), channels(),
         within(d, position, position, inside));
    b_.end_for();
    if (whole) b_.end_if();
  }

  /// `count` elements of x, or as many zero points where `mask` does not hold.
  void copy(const SymExpr& from, const SymExpr& to, const SymExpr& count, const Mask& mask) {
    const Symbol k = b_.begin_for(count, ForStmt::Kind::Vector);
    const Scalar element = b_.load(x_.buffer, from + SymExpr(k) * x_.strides.back(), id_of(mask));
    // What is not read is 0 already.
    b_.store(windows_, to + SymExpr(k), is_of_bytes() ? select(b_, mask, element, zero_) : element);
    b_.end_for();
  }

  /// What fills a run, or a window up to whole groups, is multiplied by nothing but zeros.
  void clear_rest(const SymExpr& to, const SymExpr& begin, const SymExpr& end) {
    const SymExpr rest = b_.simplify(end - begin);
    if (rest.is_constant(0)) return;
    const Symbol k = b_.begin_for(rest, ForStmt::Kind::Vector);
    b_.store(windows_, to + begin + SymExpr(k), zero(b_, element_));
    b_.end_for();
  }

  Index first_;  ///< by spatial dimension: where the window of a row begins in x
  NestBufferId windows_ = 0;
  Scalar zero_;
  SymExpr row_begin_, rows_;
  SymExpr pitch_;  ///< elements from one window to the next
};

void build_panel_conv(NestContext& ctx) {
  if (reads_windows_from_patch(ctx)) return build_panel_conv_patch(ctx);
  if (ctx.node().integer("align") != 1) return CopiedWindowsNest(ctx).build();
  // A few channels of all are read in place tap by tap; those of one of several groups all taps at once.
  const bool is_in_place = reads_windows_in_place(ctx);
  if (is_in_place && ctx.node().integer("groups") != 1) return build_panel_conv_in_place(ctx);
  if (reads_windows_from_slab(ctx)) return build_panel_conv_slab(ctx);
  if (is_in_place) return build_panel_conv_in_place(ctx);
  CopiedWindowsNest(ctx).build();
}

}  // namespace

const NestRecipe kPackedInt8ConvRecipe{.name = "packed_int8_conv",
                                       .memory_operands = 0b11,
                                       .epilogue = true,
                                       .build = build_panel_conv};
const NestRecipe kPackedBf16ConvRecipe{.name = "packed_bf16_conv",
                                       .memory_operands = 0b11,
                                       .epilogue = true,
                                       .build = build_panel_conv};

}  // namespace heddle::jit
