#include "jit/nests/row_conv.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "ir/op.h"
#include "jit/nests/support.h"

namespace heddle::jit {
namespace {

using ir::ScalarOp;

/// Taps along a row, whose weights stay in registers, and along all dimensions.
constexpr std::int64_t kMostTaps = 7;
constexpr std::int64_t kMostTapsInAll = 49;
/// Of more taps along a row, those of a part.
constexpr std::int64_t kPartTaps = 4;
/// Fewer channels leave most of a vector empty.
constexpr std::int64_t kFewestChannels = 8;
/// Channels of x that one of the result may read, and channels of the result come in multiples of these then.
constexpr std::int64_t kMostMixed = 4;
constexpr std::int64_t kMixedLanes = 16;
/// Taps along a row of one channel to many, with vectors of 32 bytes: the library takes 0.9 of the time for 7.
constexpr std::int64_t kMostNarrowTapsOfOne = 5;
/// Where vectors have so many lanes there are 32 of them: two at a time share what is read of x, and twice as many sums wait for one another
/// less. From so many taps along a row on that takes 0.85 of the time (7 x 7 of an image to 64 channels, Xeon); of 3 or 5 it makes no
/// difference.
constexpr std::int64_t kWideLanes = 16;
constexpr std::int64_t kTapsOfTwo = 7;
/// Positions whose sums are carried at once.
constexpr std::int64_t kMostPositions = 8;

/// Of channels by themselves, what a tile of the result reads of so many is copied side by side into at most so many bytes where it would
/// not stay in the first-level cache otherwise.
constexpr std::int64_t kSlabChannels = 32;
constexpr std::int64_t kSlabBytes = 32 * 1024;
/// From so many taps on a copy pays even where what is read nearly fits.
constexpr std::int64_t kManyTaps = 25;
/// With vectors of 64 bytes, those of so many taps wait for the second-level cache, from which each row of the result has all that it
/// reads: 0.8 of the time with 96 channels of 56 x 56 and 192 of 28 x 28 by 7 x 7 (Xeon), by 5 x 5 1.0 to 1.3. Only of rows whose
/// length is not known: others are made for one vector of channels after the other, which keeps all of that in the first-level cache.
constexpr std::int64_t kTapsOfWideSlabs = 49;
/// A first-level cache of 32 KiB, as x86-64 processors have or more ways of as many sets.
constexpr std::int64_t kLineBytes = 64;
constexpr std::int64_t kCacheSets = 64;
constexpr std::int64_t kCacheWays = 8;

/// Channels of the result for each one of x, which lanes read together, and of a group of several.
constexpr std::int64_t kMostMultiplier = 8;

/// How many positions of a row of `length` make a block: as few blocks as there can be, and evenly filled.
std::int64_t block_of(std::int64_t length) {
  const std::int64_t blocks =
      std::max<std::int64_t>(1, (length + kMostPositions - 1) / kMostPositions);
  return std::max<std::int64_t>(1, (length + blocks - 1) / blocks);
}

class RowConv {
 public:
  explicit RowConv(NestContext& ctx)
      : ctx_(ctx),
        b_(ctx.builder()),
        out_(ctx.output_sizes()),
        window_(channels_last_window(ctx)),
        row_(out_.size() - 3) {
    const std::vector<SymExpr> w = ctx.operand_sizes(1);
    taps_ = w.back().constant();
    groups_ = ctx.node().integer("groups");
    multiplier_ = w.front().constant() / groups_;
    mixed_ = w[1].constant();
    channels_ = {0, out_.back()};
    if (is_wide() && groups_ == 1 && taps_ >= kTapsOfTwo && w[0].constant() % (2 * kWideLanes) == 0)
      vectors_ = 2;
  }

  void build() {
    if (is_in_slabs()) return Slabs(*this).build();
    const std::span<const SymExpr> outer = std::span(out_).first(out_.size() - 2);
    const SymExpr extent = base::product(outer);
    const Symbol p = b_.new_axis(extent);
    b_.set_parallel(p, extent);
    index_ = delinearize(p, outer, b_.facts());
    const SymExpr length = out_[out_.size() - 2];
    if (length.is_constant()) {
      rows_by_vector_ = is_by_vector();
      if (rows_by_vector_) begin_channels();
      blocks(block_of(length.constant()));
      if (rows_by_vector_) b_.end_for();
    } else {
      const Scalar enough = compare(b_, ScalarOp::Le, kMostPositions, length);
      b_.begin_if(enough);
      blocks(kMostPositions);
      b_.end_if();
      b_.begin_if(b_.apply(ScalarOp::Not, {enough}));
      blocks(1);
      b_.end_if();
    }
    b_.nest().work = base::product(out_) * base::product(window_.kernel) * (mixed_ * 2);
  }

 private:
  bool is_wide() const { return ctx_.options().vector_bytes == kWideLanes * 4; }

  /// Whether a whole row of the result is made for one vector of channels after the other, not one block of positions for all channels:
  /// 5 rows of 28 positions for 240 channels are 134 KB, and for 16 of these 9. Of 3 x 3 taps it makes no difference, and a vector in
  /// part goes through a row as slowly as a whole one.
  bool is_by_vector() const {
    return is_wide() && multiplier_ == 1 && mixed_ == 1 && groups_ > 1 && !is_long() &&
           out_[out_.size() - 2].is_constant() && out_.back().constant() % kWideLanes == 0 &&
           base::product(window_.kernel).constant() >= kManyTaps;
  }

  /// Positions of many channels lie far apart: where that is a multiple of a high power of two, those that a block of windows reads
  /// share so few sets of the cache that they push each other out before the next row of windows reads them again.
  bool is_in_slabs() const {
    if (row_ != 1 || multiplier_ != 1 || mixed_ != 1 || is_long()) return false;
    const std::int64_t bytes = out_.back().constant() * 4;
    if (bytes % kLineBytes != 0) return false;
    const std::int64_t sets = kCacheSets / std::gcd(kCacheSets, bytes / kLineBytes);
    const SymExpr& length = out_[2];
    const std::int64_t rows = window_.kernel[0].constant();
    const std::int64_t width =
        reach(1, length.is_constant() ? block_of(length.constant()) : kMostPositions);
    if (reach(0, 1) * width * kSlabChannels * 4 > kSlabBytes) return false;
    const std::int64_t lines = rows * width;
    const std::int64_t fit = sets * kCacheWays;
    if (is_by_vector()) return lines > fit;
    if (is_wide() && rows * taps_ >= kTapsOfWideSlabs) return true;
    return lines > fit || (rows * taps_ >= kManyTaps && lines > fit * 3 / 4);
  }

  /// How much of x so many windows reach over, one after the other.
  std::int64_t reach(std::size_t d, std::int64_t windows) const {
    return (windows - 1) * window_.strides[d] +
           (window_.kernel[d].constant() - 1) * window_.dilations[d] + 1;
  }

  /// A row in blocks of `count` positions, of which it has so many: the last one overlaps the one before it.
  void blocks(std::int64_t count) {
    const std::int64_t taps = is_long() ? kPartTaps : taps_;
    const SymExpr length = out_[out_.size() - 2];
    const SymExpr number = b_.begin_for(ceildiv(length, count), ForStmt::Kind::Serial);
    const SymExpr first = b_.simplify(min(number * count, length - count));
    const std::int64_t stride = window_.strides[row_], dilation = window_.dilations[row_];
    const SymExpr begin = first * stride - window_.pads_low[row_];
    block(count, first, begin, insides(begin, (count - 1) * stride + (taps - 1) * dilation + 1));
    b_.end_for();
  }

  /// For each position from `begin` on, whether it lies inside of x: none where all do.
  std::vector<Mask> insides(const SymExpr& begin, std::int64_t reach) {
    std::vector<Mask> masks(static_cast<std::size_t>(reach));
    for (std::int64_t k = 0; k < reach; ++k) {
      Mask& mask = masks[static_cast<std::size_t>(k)];
      if (k < window_.pads_low[row_]) mask = where_less(b_, mask, -1, begin + k);
      if (reach - 1 - k < window_.pads_high[row_])
        mask = where_less(b_, mask, begin + k, window_.input[row_]);
    }
    return masks;
  }

  void begin_channels() {
    channel_ = channels_.first;
    if (vectors_ > 1) {
      const std::int64_t width = vectors_ * kWideLanes;
      const SymExpr part = b_.begin_for(floordiv(channels_.count, width), ForStmt::Kind::Serial);
      channel_ += part * width;
    }
    const SymExpr lanes = vectors_ > 1 ? SymExpr(kWideLanes) : channels_.count;
    channel_ += b_.begin_for(lanes, ForStmt::Kind::Vector);
  }

  void block(std::int64_t count, const SymExpr& first, const SymExpr& begin,
             const std::vector<Mask>& insides) {
    if (!rows_by_vector_) begin_channels();
    const bool biased = ctx_.node().inputs().size() > 2 && ctx_.node().input(2);
    std::vector<Scalar> initial;
    for (std::int64_t v = 0; v < vectors_; ++v)
      initial.insert(
          initial.end(), static_cast<std::size_t>(count),
          biased ? ctx_.operand(2, Index{channel_ + v * kWideLanes}) : zero(b_, DType::F32));
    std::vector<TapLoop> loops;
    for (std::size_t d = 0; d < row_; ++d) loops.push_back(window_.taps(d, index_[d + 1], true));
    const auto body = [&](const Index& position, const Index& tap, const Mask&,
                          std::span<const Scalar> sums) {
      std::vector<Scalar> all(sums.begin(), sums.end());
      if (is_long()) return add_parts(begin, insides, position, tap, std::move(all));
      for (std::int64_t c = 0; c < mixed_; ++c)
        all = add_row({begin, 0, taps_}, insides, position, tap, c, std::move(all));
      return all;
    };
    const std::vector<Scalar> sums = for_each_tap(b_, loops, std::move(initial), body);
    for (std::int64_t k = 0; k < count * vectors_; ++k) {
      Index at = index_;
      at.push_back(first + k % count);
      at.push_back(channel_ + k / count * kWideLanes);
      ctx_.result(0, at, sums[static_cast<std::size_t>(k)]);
    }
    if (!rows_by_vector_) b_.end_for();
    if (vectors_ > 1) b_.end_for();
  }

  bool is_long() const { return taps_ > kMostTaps; }

  /// Taps along the row that are added at once.
  struct RowTaps {
    SymExpr begin;  ///< position of x that the first of them reads for the first window
    SymExpr first;
    std::int64_t count;
  };

  /// All taps of a row that has many: whole parts in a loop, and what is left of one.
  std::vector<Scalar> add_parts(const SymExpr& begin, const std::vector<Mask>& insides,
                                const Index& position, const Index& tap, std::vector<Scalar> sums) {
    const std::int64_t dilation = window_.dilations[row_];
    const std::int64_t parts = taps_ / kPartTaps;
    const SymExpr first = SymExpr(b_.begin_for(parts, ForStmt::Kind::Serial)) * kPartTaps;
    std::vector<Scalar> now;
    for (const Scalar& sum : sums) now.push_back(b_.carry(sum));
    const std::vector<Scalar> next =
        add_row({begin + first * dilation, first, kPartTaps}, insides, position, tap, 0, now);
    for (std::size_t k = 0; k < now.size(); ++k) sums[k] = b_.set_next(now[k], next[k]);
    b_.end_for();
    const std::int64_t done = parts * kPartTaps;
    if (done == taps_) return sums;
    return add_row({begin + done * dilation, done, taps_ - done}, insides, position, tap, 0,
                   std::move(sums));
  }

  Scalar of_x(const Index& outer, const SymExpr& along, const SymExpr& channel, ScalarId inside) {
    Index at{index_[0]};
    at.insert(at.end(), outer.begin(), outer.end());
    at.push_back(along);
    at.push_back(channel);
    const Scalar x = ctx_.operand(0, at, inside);
    if (inside == kNoScalar || ctx_.affine(0)) return x;
    return select(b_, Scalar{inside, DType::Bool}, x, zero(b_, DType::F32));
  }

  /// The channel of x that lanes read as their `mixed`-th.
  SymExpr channel_of_x(std::int64_t mixed) const {
    if (groups_ == 1) return mixed;
    return floordiv(channel_, multiplier_) * mixed_ + mixed;
  }

  /// What one row of x, at `position` of the other dimensions, adds; of channels that are mixed, that of number `mixed`.
  std::vector<Scalar> add_row(const RowTaps& taps, const std::vector<Mask>& insides,
                              const Index& position, const Index& tap, std::int64_t mixed,
                              std::vector<Scalar> sums) {
    std::vector<Scalar> weights;
    for (std::int64_t v = 0; v < vectors_; ++v)
      for (std::int64_t k = 0; k < taps.count; ++k) {
        Index at{channel_ + v * kWideLanes, mixed};
        at.insert(at.end(), tap.begin(), tap.end());
        at.push_back(taps.first + k);
        weights.push_back(ctx_.operand(1, at));
      }
    const std::size_t count = sums.size() / static_cast<std::size_t>(vectors_);
    const std::int64_t stride = window_.strides[row_], dilation = window_.dilations[row_];
    for (std::size_t j = 0; j < insides.size(); ++j) {
      std::optional<Scalar> x;
      for (std::size_t k = 0; k < count; ++k) {
        const std::int64_t from =
            static_cast<std::int64_t>(j) - static_cast<std::int64_t>(k) * stride;
        if (from < 0 || from % dilation != 0 || from / dilation >= taps.count) continue;
        if (!x) {
          const SymExpr along = taps.begin + static_cast<std::int64_t>(j);
          x = slab_ ? slab_->load(b_, position.front(), along, channel_ - channels_.first)
                    : of_x(position, along, channel_of_x(mixed), id_of(insides[j]));
        }
        for (std::int64_t v = 0; v < vectors_; ++v) {
          const Scalar w = weights[static_cast<std::size_t>(v * taps.count + from / dilation)];
          Scalar& sum = sums[static_cast<std::size_t>(v) * count + k];
          sum = b_.apply(ScalarOp::Fma, {w, *x, sum});
        }
      }
    }
    return sums;
  }

  /// A part of x, [rows, width, kSlabChannels], with zeros where it reaches out of a row.
  struct Slab {
    NestBufferId buffer;
    std::int64_t width;
    SymExpr first_row;  ///< of x, where the slab begins
    SymExpr first_column;

    SymExpr at(const SymExpr& row, const SymExpr& column, const SymExpr& channel) const {
      return ((row - first_row) * width + column - first_column) * kSlabChannels + channel;
    }
    Scalar load(NestBuilder& b, const SymExpr& row, const SymExpr& column,
                const SymExpr& channel) const {
      return b.load(buffer, b.simplify(at(row, column, channel)));
    }
  };
  struct Channels {
    SymExpr first;
    SymExpr count;
  };

  /// Tiles of some rows and one block of positions, kSlabChannels channels of them.
  class Slabs {
   public:
    explicit Slabs(RowConv& conv) : conv_(conv), b_(conv.b_), length_(conv.out_[2]) {}

    void build() {
      const std::int64_t count =
          length_.is_constant() ? block_of(length_.constant()) : kMostPositions;
      const std::int64_t most = kSlabBytes / (conv_.reach(1, count) * kSlabChannels * 4);
      rows_ = std::max<std::int64_t>(1, (most - conv_.reach(0, 1)) / conv_.window_.strides[0] + 1);
      const SymExpr& channels = conv_.out_.back();
      const std::vector<SymExpr> tiles{conv_.out_[0], ceildiv(conv_.out_[1], rows_),
                                       ceildiv(length_, count), ceildiv(channels, kSlabChannels)};
      const SymExpr extent = base::product(tiles);
      const Symbol p = b_.new_axis(extent);
      b_.set_parallel(p, extent);
      const std::vector<SymExpr> tile = delinearize(p, tiles, b_.facts());
      conv_.index_ = {tile[0], 0};
      const SymExpr first_channel = tile[3] * kSlabChannels;
      conv_.channels_ = {first_channel, b_.simplify(min(kSlabChannels, channels - first_channel))};
      first_row_ = tile[1] * rows_;
      row_count_ = b_.simplify(min(rows_, conv_.out_[1] - first_row_));
      // The last block overlaps the one before it.
      const SymExpr first = b_.simplify(min(tile[2] * count, length_ - count));
      if (length_.is_constant()) {
        block(first, count);
      } else {
        const Scalar enough = compare(b_, ScalarOp::Le, count, length_);
        b_.begin_if(enough);
        block(first, count);
        b_.end_if();
        b_.begin_if(b_.apply(ScalarOp::Not, {enough}));
        block(b_.begin_for(min(length_, count - 1), ForStmt::Kind::Serial), 1);
        b_.end_for();
        b_.end_if();
      }
      b_.nest().work = base::product(conv_.out_) * base::product(conv_.window_.kernel) * 2;
    }

   private:
    SymExpr start(std::size_t d, const SymExpr& window) const {
      return b_.simplify(window * conv_.window_.strides[d] - conv_.window_.pads_low[d]);
    }

    void block(const SymExpr& first, std::int64_t count) {
      const std::int64_t width = conv_.reach(1, count);
      const std::int64_t size = conv_.reach(0, rows_) * width * kSlabChannels;
      conv_.slab_ =
          Slab{b_.add_local(DType::F32, size, size), width, start(0, first_row_), start(1, first)};
      fill();
      conv_.index_[1] = first_row_ + b_.begin_for(row_count_, ForStmt::Kind::Serial);
      conv_.block(count, first, conv_.slab_->first_column,
                  std::vector<Mask>(static_cast<std::size_t>(width)));
      b_.end_for();
      conv_.slab_.reset();
    }

    /// The rows that lie in x: windows pass over those that do not.
    void fill() {
      const Slab& slab = *conv_.slab_;
      const SymExpr height = (row_count_ - 1) * conv_.window_.strides[0] + conv_.reach(0, 1);
      const SymExpr low = b_.simplify(max(0, -slab.first_row));
      const SymExpr high = min(height, conv_.window_.input[0] - slab.first_row);
      const SymExpr count = b_.simplify(max(0, high - low));
      const SymExpr row = slab.first_row + low + b_.begin_for(count, ForStmt::Kind::Serial);
      const std::vector<Mask> insides = conv_.insides(slab.first_column, slab.width);
      const SymExpr lane = b_.begin_for(conv_.channels_.count, ForStmt::Kind::Vector);
      for (std::int64_t k = 0; k < slab.width; ++k) {
        const SymExpr column = slab.first_column + k;
        const Scalar x = conv_.of_x({row}, column, conv_.channels_.first + lane,
                                    id_of(insides[static_cast<std::size_t>(k)]));
        b_.store(slab.buffer, b_.simplify(slab.at(row, column, lane)), x);
      }
      b_.end_for();
      b_.end_for();
    }

    RowConv& conv_;
    NestBuilder& b_;
    const SymExpr length_;
    std::int64_t rows_ = 1;  ///< of the result in a tile
    SymExpr first_row_;
    SymExpr row_count_;
  };

  NestContext& ctx_;
  NestBuilder& b_;
  const std::vector<SymExpr> out_;  ///< [N, out..., M]
  WindowShape window_;
  const std::size_t row_;        ///< the spatial dimension that rows lie along
  std::int64_t taps_ = 0;        ///< along it
  std::int64_t multiplier_ = 1;  ///< channels of the result for each one of x
  std::int64_t mixed_ = 1;       ///< channels of x that each one of the result reads
  std::int64_t groups_ = 1;
  std::int64_t vectors_ = 1;  ///< of channels that share what is read of x
  bool rows_by_vector_ = false;
  Index index_;
  Channels channels_;         ///< those of the vector loop
  std::optional<Slab> slab_;  ///< what is read instead of x
  SymExpr channel_;
};

}  // namespace

bool has_many_row_taps(const ir::Node& conv) {
  const SymExpr& taps = conv.input(1).meta().sizes.back();
  return taps.is_constant() && taps.constant() > kMostTaps;
}

namespace {

/// What only narrow vectors are worth: each channel by itself with any number of taps, and groups of a few.
bool may_be_narrow(const ir::Node& conv) {
  const ir::Dims& weights = conv.input(1).meta().sizes;
  const std::int64_t groups = conv.integer("groups");
  const auto results = static_cast<std::uint64_t>(weights[0].constant() / groups);
  if (weights[0].constant() < kFewestChannels || groups == 1 || !std::has_single_bit(results) ||
      results > kMostMultiplier)
    return false;
  return weights[1].is_constant(1) ||
         (weights[1].constant() <= kMostMixed && !has_many_row_taps(conv));
}

}  // namespace

bool may_be_row_conv(const ir::Node& conv, std::int64_t vector_bytes) {
  if (conv.op_name() != "conv" || !conv.flag("channels_last")) return false;
  const ir::Dims& weights = conv.input(1).meta().sizes;
  for (const ir::Value& input : conv.inputs())
    if (input && input.meta().dtype != DType::F32) return false;
  const SymExpr taps = base::product(std::span(weights).subspan(2));
  if (!weights[0].is_constant() || !weights[1].is_constant()) return false;
  const auto multiplier =
      static_cast<std::uint64_t>(weights[0].constant() / conv.integer("groups"));
  const bool by_itself = weights[1].is_constant(1) && std::has_single_bit(multiplier) &&
                         multiplier <= kMostMultiplier && weights[0].constant() >= kFewestChannels;
  if (!taps.is_constant() || taps.constant() <= 1) return false;
  const bool is_slow = vector_bytes <= kNarrowBytes && weights[1].is_constant(1) &&
                       weights.back().constant() > kMostNarrowTapsOfOne;
  if ((by_itself || (mixes_channels(conv) && !is_slow)) && taps.constant() <= kMostTapsInAll &&
      weights.back().constant() <= kMostTaps)
    return true;
  return vector_bytes <= kNarrowBytes && may_be_narrow(conv);
}

bool mixes_channels(const ir::Node& conv) {
  const ir::Dims& weights = conv.input(1).meta().sizes;
  return weights[0].is_constant() && weights[0].constant() % kMixedLanes == 0 &&
         weights[1].is_constant() && weights[1].constant() >= 1 &&
         weights[1].constant() <= kMostMixed && conv.integer("groups") == 1;
}

bool is_row_conv(const ir::Node& conv) {
  if (!may_be_row_conv(conv, kNarrowBytes) && !may_be_row_conv(conv, kWideBytes)) return false;
  const ir::Node& weights = *conv.input(1).node;
  if (weights.op_name() != "permute") return false;
  const auto& perm = weights.ints("perm");
  const auto rank = static_cast<std::int64_t>(perm.size());
  for (std::int64_t d = 0; d < rank; ++d)
    if (perm[static_cast<std::size_t>(d)] != (d + rank - 1) % rank) return false;
  if (may_be_row_conv(conv, kWideBytes)) return true;
  const bool padded = conv.ints("pads_low").back() != 0 || conv.ints("pads_high").back() != 0;
  return weights.input(0).node->op_name() == "clone" && !(has_many_row_taps(conv) && padded);
}

std::optional<ir::Value> bytes_behind(ir::Value x) {
  // What DequantizeLinear is: mul(convert(sub(convert(bytes), zero)), scale).
  constexpr int kMostOperations = 4;
  const ir::Dims& sizes = x.meta().sizes;
  for (int k = 0; k < kMostOperations; ++k) {
    const ir::Node& node = *x.node;
    const std::string_view name = node.op_name();
    if (name != "convert" && name != "sub" && name != "mul") return {};
    if (name != "convert" && !node.input(1).meta().count().is_constant(1)) return {};
    x = node.input(0);
    if (x.meta().sizes != sizes) return {};
    if (is_byte(x.meta().dtype)) return x;
  }
  return {};
}

std::optional<ir::Value> bytes_behind_x(const ir::Node& conv) {
  const ir::Dims& weights = conv.input(1).meta().sizes;
  const bool each_by_itself = is_row_conv(conv) && conv.integer("groups") != 1 &&
                              weights[1].is_constant(1) &&
                              weights[0].is_constant(conv.integer("groups"));
  return each_by_itself ? bytes_behind(conv.input(0)) : std::nullopt;
}

void build_row_conv(NestContext& ctx) { RowConv(ctx).build(); }

}  // namespace heddle::jit
