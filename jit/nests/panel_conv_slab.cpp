#include <algorithm>

#include "jit/lower/index.h"
#include "jit/nests/panel_conv.h"

namespace heddle::jit {
namespace {

using ir::ScalarOp;

/// Bytes of a slab, at most: it stays in the first-level cache beside a panel.
constexpr std::int64_t kMostSlabBytes = 16 * 1024;
/// Channels from which on windows are read where they lie.
constexpr std::int64_t kManyChannels = 16;
/// The same of sizes that are not known, which would be copied window by window else.
constexpr std::int64_t kManyOpenChannels = 65;
/// A slab's rows are filled in whole vectors, two at a time.
constexpr std::int64_t kVectorBytes = 128;
constexpr std::int64_t kSlabBlockRows = 4;

class SlabNest : PanelConvNest {
 public:
  explicit SlabNest(NestContext& ctx)
      : PanelConvNest(ctx), last_(spatial() - 1), length_(out_[last_ + 1]) {
    const std::int64_t c = channels().constant();
    piece_ = kernel_[last_] * c;
    step_ = strides_[last_] * c;
    tile_rows_ = kTileRows;
    if (length_.is_constant()) {
      const std::int64_t length = std::max<std::int64_t>(1, length_.constant());
      const std::int64_t tiles = (length + kTileRows - 1) / kTileRows;
      tile_rows_ = up_to((length + tiles - 1) / tiles, kSlabBlockRows);
    }
    pitch_ = up_to((tile_rows_ - 1) * step_ + piece_, kVectorBytes);
    for (std::size_t d = 0; d < last_; ++d) rows_of_slab_ *= kernel_[d];
  }

  bool fits() const {
    return may_run(piece_ / kByteGroup) && rows_of_slab_ * pitch_ <= kMostSlabBytes;
  }

  void build() {
    std::vector<SymExpr> tiles(out_.begin(), out_.end() - 1);
    tiles.back() = ceildiv(length_, tile_rows_);
    const SymExpr number = split(base::product(tiles));
    position_ = delinearize(number, tiles, b_.facts());
    position_.back() *= tile_rows_;
    const SymExpr rows = b_.simplify(min(tile_rows_, length_ - position_.back()));
    slab_ = b_.add_local(DType::U8, rows_of_slab_ * pitch_, rows_of_slab_ * pitch_);
    const Sums sums = add_sums(kTileRows);
    zero_ = ctx_.operand(2, {});
    fill(0, x_.offset + x_.strides[0] * position_[0], 0, std::nullopt);
    begin_panels();
    multiply_runs(sums, rows, {slab_, 0, step_, kByteGroup}, 0, piece_ / kByteGroup,
                  {{.count = rows_of_slab_, .a_stride = pitch_, .b_stride = piece_ / kByteGroup}});
    write(sums, rows, [&](const SymExpr& row) {
      Index index = position_;
      index.back() += row;
      return index;
    });
    end_panels();
  }

 private:
  /// Rows of the slab for taps of dimensions from `d` on, whose first is number `to`; what they are of begins at `from` in x.
  void fill(std::size_t d, const SymExpr& from, const SymExpr& to, const Mask& inside) {
    if (d == last_) return fill_row(from, to, inside);
    const Symbol tap = b_.begin_for(kernel_[d], ForStmt::Kind::Serial);
    const SymExpr place = position_[d + 1] * strides_[d] - pads_[d] + SymExpr(tap) * dilations_[d];
    Mask still = inside;
    if (pads_[d] != 0) still = where_less(b_, still, -1, place);
    if (ctx_.node().ints("pads_high")[d] != 0)
      still = where_less(b_, still, place, x_sizes_[d + 1]);
    fill(d + 1, from + place * x_.strides[d + 1], to * kernel_[d] + SymExpr(tap), still);
    b_.end_for();
  }

  /// Bytes of neighbouring positions lie side by side, of one of several groups those of each position by themselves. Most tiles lie
  /// inside of x altogether, and are copied without asking for each.
  void fill_row(const SymExpr& from, const SymExpr& to, const Mask& inside) {
    const bool joined = are_positions_joined();
    const SymExpr unit = joined ? channels() : SymExpr(1);  // elements of x's row for a position
    const std::int64_t count =
        joined ? pitch_ : (tile_rows_ - 1) * strides_[last_] + kernel_[last_];
    const SymExpr first = (position_.back() * strides_[last_] - pads_[last_]) * unit;
    const auto within = [&](const SymExpr& low, const SymExpr& high) {
      const Mask behind = pads_[last_] != 0 ? where_less(b_, inside, -1, low) : inside;
      return where_less(b_, behind, high, x_sizes_[last_ + 1] * unit);
    };
    const auto copy = [&](bool is_whole) {
      const SymExpr k = b_.begin_for(count, joined ? ForStmt::Kind::Vector : ForStmt::Kind::Serial);
      const Mask mask = is_whole ? Mask() : within(first + k, first + k);
      const SymExpr c = joined ? SymExpr(0) : b_.begin_for(channels(), ForStmt::Kind::Vector);
      const SymExpr apart = joined ? SymExpr(1) : x_.strides[last_ + 1];
      const Scalar byte =
          b_.load(x_.buffer, from + (first + k) * apart + first_channel() + c, id_of(mask));
      b_.store(slab_, to * pitch_ + (joined ? k : k * channels()) + c,
               select(b_, mask, byte, zero_));
      if (!joined) b_.end_for();
      b_.end_for();
    };
    const Mask whole = within(first, first + (count - 1));
    if (!whole) return copy(true);  // all tiles do
    b_.begin_if(*whole);
    copy(true);
    b_.end_if();
    b_.begin_if(b_.apply(ScalarOp::Not, {*whole}));
    copy(false);
    b_.end_if();
  }

  const std::size_t last_;  ///< spatial dimension
  const SymExpr length_;    ///< of the result along it
  std::int64_t tile_rows_ = 0;
  std::int64_t piece_ = 0;  ///< bytes of the taps along the last dimension, which lie in one piece
  std::int64_t step_ = 0;   ///< bytes from one window to the next
  std::int64_t pitch_ = 0;  ///< of the slab
  std::int64_t rows_of_slab_ = 1;
  NestBufferId slab_ = 0;
  Index position_;  ///< of the first row: image and spatial dimensions
  Scalar zero_;
};

}  // namespace

bool reads_windows_from_slab(NestContext& ctx) {
  const ir::Node& node = ctx.node();
  if (node.input(0).meta().dtype != DType::U8 || !multiplies_groups(ctx.options())) return false;
  const bool is_one = node.integer("groups") == 1;
  const SymExpr channels = floordiv(ctx.operand_sizes(0).back(), node.integer("groups"));
  const std::size_t last = node.ints("kernel").size() - 1;
  const AffineOperand x = *ctx.affine(0);
  const bool is_open = !ctx.operand_sizes(0)[last + 1].is_constant();
  const bool are_few =
      channels.is_constant() &&
      (!is_one || channels.constant() < (is_open ? kManyOpenChannels : kManyChannels));
  const bool in_one_piece =
      are_few && node.ints("kernel")[last] > 1 && node.ints("dilations")[last] == 1 &&
      node.ints("kernel")[last] * channels.constant() % kByteGroup == 0 &&
      (channels.is_constant(1) || x.strides.back().is_constant(1)) &&
      (!is_one || ctx.builder().simplify(x.strides[last + 1] - channels).is_constant(0));
  return in_one_piece && SlabNest(ctx).fits();
}

void build_panel_conv_slab(NestContext& ctx) { SlabNest(ctx).build(); }

}  // namespace heddle::jit
