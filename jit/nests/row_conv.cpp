#include "jit/nests/row_conv.h"

#include <algorithm>
#include <bit>

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
/// Positions whose sums are carried at once.
constexpr std::int64_t kMostPositions = 8;

/// Channels of the result for each one of x, which lanes read together, and of a group of several.
constexpr std::int64_t kMostMultiplier = 8;
/// Bytes of vectors, at most, for which many taps and groups are worth it.
constexpr std::int64_t kNarrowBytes = 32;

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
        window_(ctx.node()),
        row_(out_.size() - 3) {
    const std::vector<SymExpr> x = ctx.operand_sizes(0);
    const std::vector<SymExpr> w = ctx.operand_sizes(1);
    window_.kernel.assign(w.begin() + 2, w.end());
    window_.input.assign(x.begin() + 1, x.end() - 1);
    taps_ = w.back().constant();
    groups_ = ctx.node().integer("groups");
    multiplier_ = w.front().constant() / groups_;
    mixed_ = w[1].constant();
  }

  void build() {
    const std::span<const SymExpr> outer = std::span(out_).first(out_.size() - 2);
    const SymExpr extent = base::product(outer);
    const Symbol p = b_.new_axis(extent);
    b_.set_parallel(p, extent);
    index_ = delinearize(p, outer, b_.facts());
    const SymExpr length = out_[out_.size() - 2];
    if (length.is_constant()) {
      blocks(block_of(length.constant()));
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
  /// A row in blocks of `count` positions, of which it has so many: the last one overlaps the one before it.
  void blocks(std::int64_t count) {
    const std::int64_t taps = is_long() ? kPartTaps : taps_;
    const SymExpr length = out_[out_.size() - 2];
    const SymExpr number = b_.begin_for(ceildiv(length, count), ForStmt::Kind::Serial);
    const SymExpr first = b_.simplify(min(number * count, length - count));
    const std::int64_t stride = window_.strides[row_], dilation = window_.dilations[row_];
    const std::int64_t reach = (count - 1) * stride + (taps - 1) * dilation + 1;
    const SymExpr begin = first * stride - window_.pads_low[row_];
    block(count, first, begin, insides(begin, reach));
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

  void block(std::int64_t count, const SymExpr& first, const SymExpr& begin,
             const std::vector<Mask>& insides) {
    channel_ = SymExpr(b_.begin_for(out_.back(), ForStmt::Kind::Vector));
    const bool biased = ctx_.node().inputs().size() > 2 && ctx_.node().input(2);
    const Scalar initial = biased ? ctx_.operand(2, Index{channel_}) : zero(b_, DType::F32);
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
    const std::vector<Scalar> sums = for_each_tap(
        b_, loops, std::vector<Scalar>(static_cast<std::size_t>(count), initial), body);
    for (std::int64_t k = 0; k < count; ++k) {
      Index at = index_;
      at.push_back(first + k);
      at.push_back(channel_);
      ctx_.result(0, at, sums[static_cast<std::size_t>(k)]);
    }
    b_.end_for();
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
    for (std::int64_t k = 0; k < taps.count; ++k) {
      Index at{channel_, mixed};
      at.insert(at.end(), tap.begin(), tap.end());
      at.push_back(taps.first + k);
      weights.push_back(ctx_.operand(1, at));
    }
    const std::int64_t stride = window_.strides[row_], dilation = window_.dilations[row_];
    for (std::size_t j = 0; j < insides.size(); ++j) {
      std::optional<Scalar> x;
      for (std::size_t k = 0; k < sums.size(); ++k) {
        const std::int64_t from =
            static_cast<std::int64_t>(j) - static_cast<std::int64_t>(k) * stride;
        if (from < 0 || from % dilation != 0 || from / dilation >= taps.count) continue;
        if (!x) {
          Index at{index_[0]};
          at.insert(at.end(), position.begin(), position.end());
          at.push_back(taps.begin + static_cast<std::int64_t>(j));
          at.push_back(channel_of_x(mixed));
          x = ctx_.operand(0, at, id_of(insides[j]));
        }
        const Scalar w = weights[static_cast<std::size_t>(from / dilation)];
        sums[k] = b_.apply(ScalarOp::Fma, {w, *x, sums[k]});
      }
    }
    return sums;
  }

  NestContext& ctx_;
  NestBuilder& b_;
  const std::vector<SymExpr> out_;  ///< [N, out..., M]
  WindowShape window_;
  const std::size_t row_;        ///< the spatial dimension that rows lie along
  std::int64_t taps_ = 0;        ///< along it
  std::int64_t multiplier_ = 1;  ///< channels of the result for each one of x
  std::int64_t mixed_ = 1;       ///< channels of x that each one of the result reads
  std::int64_t groups_ = 1;
  Index index_;
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
  if ((by_itself || mixes_channels(conv)) && taps.constant() <= kMostTapsInAll &&
      weights.back().constant() <= kMostTaps)
    return true;
  return vector_bytes <= kNarrowBytes && may_be_narrow(conv);
}

bool mixes_channels(const ir::Node& conv) {
  const ir::Dims& weights = conv.input(1).meta().sizes;
  return weights[0].is_constant() && weights[0].constant() % kMixedLanes == 0 &&
         weights[1].is_constant() && weights[1].constant() > 1 &&
         weights[1].constant() <= kMostMixed && conv.integer("groups") == 1;
}

bool is_row_conv(const ir::Node& conv) {
  if (!may_be_row_conv(conv, kNarrowBytes)) return false;
  const ir::Node& weights = *conv.input(1).node;
  if (weights.op_name() != "permute") return false;
  const auto& perm = weights.ints("perm");
  const auto rank = static_cast<std::int64_t>(perm.size());
  for (std::int64_t d = 0; d < rank; ++d)
    if (perm[static_cast<std::size_t>(d)] != (d + rank - 1) % rank) return false;
  constexpr std::int64_t kWideBytes = 64;
  if (may_be_row_conv(conv, kWideBytes)) return true;
  const bool padded = conv.ints("pads_low").back() != 0 || conv.ints("pads_high").back() != 0;
  return weights.input(0).node->op_name() == "clone" && !(has_many_row_taps(conv) && padded);
}

void build_row_conv(NestContext& ctx) { RowConv(ctx).build(); }

}  // namespace heddle::jit
