// conv and conv_transpose as nests: a few output channels and the positions of one output row at a time.
//
//   for p in N x blocks of M x leading spatial dimensions of the result (parallel)
//     for o in the last one (vector)
//       for c in channels of the group, for taps (serial):
//         carry sum[m] += w[m, c, tap] * x[c, position] for each m of the block
//       result(m, p, o) for each m of the block
//
// With channels last x and the result are indexed so; the loops are the same. On CUDA, where neighbours have to lie in memory side
// by side, the vector loop of a convolution of each channel by itself then is that of the channels:
//
//   for p in N x all spatial dimensions (parallel)
//     for m in M (vector): for taps (serial): carry sum; result(m, p)
//
// On the CPU such a convolution has blocks of positions instead (row_conv.h), and one to few channels has lanes of terms (dot_conv.h).
//
// On CUDA a convolution with enough channels is a product instead (conv_product.h).
//
// The transpose gathers: for each position of the result it visits the taps that reach it.
#include <algorithm>

#include "jit/nests/conv_product.h"
#include "jit/nests/dot_conv.h"
#include "jit/nests/nests.h"
#include "jit/nests/row_conv.h"
#include "jit/nests/support.h"

namespace heddle::jit {
namespace {

using ir::ScalarOp;

/// Output channels that share what is read of x.
std::int64_t block_of(const SymExpr& channels) {
  for (const std::int64_t block : {8, 4, 2}) {
    if (channels.is_constant() && channels.constant() % block == 0) return block;
  }
  return 1;
}

class ConvNest {
 public:
  ConvNest(NestContext& ctx, bool transposed)
      : ctx_(ctx),
        b_(ctx.builder()),
        transposed_(transposed),
        last_(!transposed && ctx.node().flag("channels_last")),
        out_(channels_second(ctx.output_sizes())),
        accumulator_(accumulator_of(ctx.node().output().dtype)),
        window_(ctx.node()) {
    const std::vector<SymExpr> x = ctx.operand_sizes(0);
    const std::vector<SymExpr> w = ctx.operand_sizes(1);
    const std::int64_t groups = ctx.node().integer("groups");
    window_.kernel.assign(w.begin() + 2, w.end());
    if (last_) window_.input.assign(x.begin() + 1, x.end() - 1);
    channels_in_ = transposed ? floordiv(x[1], groups) : w[1];
    channels_out_ = transposed ? w[1] : floordiv(out_[1], groups);
    block_ = block_of(channels_out_);
    vector_ = channels_are_lanes(ctx.node(), ctx.options()) ? 1 : out_.size() - 1;
  }

  void build() {
    std::vector<SymExpr> rows = out_;
    rows[1] = floordiv(rows[1], block_);
    const auto lanes = rows.begin() + static_cast<std::ptrdiff_t>(vector_);
    const SymExpr length = *lanes;
    rows.erase(lanes);
    const SymExpr extent = base::product(rows);
    const Symbol p = b_.new_axis(extent);
    b_.set_parallel(p, extent);
    index_ = delinearize(p, rows, b_.facts());
    const Symbol o = b_.begin_for(length, ForStmt::Kind::Vector);
    index_.insert(index_.begin() + static_cast<std::ptrdiff_t>(vector_), o);
    first_channel_ = index_[1] * block_;
    group_ = b_.simplify(floordiv(first_channel_, channels_out_));
    const std::vector<Scalar> sums = sum();
    for (std::int64_t k = 0; k < block_; ++k) {
      index_[1] = first_channel_ + k;
      ctx_.result(0, placed(index_),
                  b_.convert(sums[static_cast<std::size_t>(k)], ctx_.node().output().dtype));
    }
    b_.end_for();
    const SymExpr taps = base::product(window_.kernel);
    b_.nest().work = base::product(out_) * channels_in_ * taps * 2;
  }

 private:
  /// Sizes of the result as [N, M, out...].
  std::vector<SymExpr> channels_second(std::vector<SymExpr> sizes) const {
    if (last_) std::rotate(sizes.begin() + 1, sizes.end() - 1, sizes.end());
    return sizes;
  }
  /// The index [n, channel, position...] as x and the result are indexed.
  Index placed(Index index) const {
    if (last_) std::rotate(index.begin() + 1, index.begin() + 2, index.end());
    return index;
  }

  std::vector<Scalar> initial() {
    const bool biased = ctx_.node().inputs().size() > 2 && ctx_.node().input(2);
    std::vector<Scalar> values;
    for (std::int64_t k = 0; k < block_; ++k) {
      const SymExpr index[] = {first_channel_ + k};
      values.push_back(biased ? b_.convert(ctx_.operand(2, index), accumulator_)
                              : zero(b_, accumulator_));
    }
    return values;
  }

  std::vector<TapLoop> loops() const {
    std::vector<TapLoop> loops;
    for (std::size_t d = 0; d + 2 < out_.size(); ++d) {
      loops.push_back(transposed_ ? window_.transposed_taps(d, index_[d + 2])
                                  : window_.taps(d, index_[d + 2], d + 2 != vector_));
    }
    return loops;
  }

  std::vector<Scalar> sum() {
    std::vector<Scalar> values = initial();
    const Symbol c = b_.begin_for(channels_in_, ForStmt::Kind::Serial);
    std::vector<Scalar> now;
    for (const Scalar& value : values) now.push_back(b_.carry(value));
    const auto body = [&](const Index& position, const Index& tap, const Mask& mask,
                          std::span<const Scalar> sums) {
      return add_tap(c, position, tap, mask, sums);
    };
    const std::vector<Scalar> next = for_each_tap(b_, loops(), now, body);
    for (std::size_t k = 0; k < now.size(); ++k) values[k] = b_.set_next(now[k], next[k]);
    b_.end_for();
    return values;
  }

  std::vector<Scalar> add_tap(const SymExpr& c, const Index& position, const Index& tap,
                              const Mask& mask, std::span<const Scalar> sums) {
    Index from{index_[0], group_ * channels_in_ + c};
    from.insert(from.end(), position.begin(), position.end());
    const Scalar x = b_.convert(ctx_.operand(0, placed(from), id_of(mask)), accumulator_);
    std::vector<Scalar> next;
    for (std::int64_t k = 0; k < block_; ++k) {
      const Scalar w = b_.convert(weight(k, c, tap, mask), accumulator_);
      const Scalar old = sums[static_cast<std::size_t>(k)];
      next.push_back(select(b_, mask, multiply_add(w, x, old), old));
    }
    return next;
  }

  Scalar weight(std::int64_t k, const SymExpr& c, const Index& tap, const Mask& mask) {
    const SymExpr m = first_channel_ + k;
    Index index{m, c};
    if (transposed_) index = {group_ * channels_in_ + c, m - group_ * channels_out_};
    index.insert(index.end(), tap.begin(), tap.end());
    // The taps of the transpose differ from lane to lane, and may not exist.
    return ctx_.operand(1, index, transposed_ ? id_of(mask) : kNoScalar);
  }

  Scalar multiply_add(Scalar a, Scalar b, Scalar sum) {
    if (is_floating(accumulator_)) return b_.apply(ScalarOp::Fma, {a, b, sum});
    return b_.apply(ScalarOp::Add, {sum, b_.apply(ScalarOp::Mul, {a, b})});
  }

  NestContext& ctx_;
  NestBuilder& b_;
  const bool transposed_;
  const bool last_;                 ///< channels are the last dimension of x and of the result
  const std::vector<SymExpr> out_;  ///< [N, M, out...]
  const DType accumulator_;
  WindowShape window_;
  SymExpr channels_in_, channels_out_;  ///< of one group
  std::int64_t block_ = 1;
  std::size_t vector_ = 0;  ///< the dimension of out_ whose positions are those of the vector loop
  Index index_;
  SymExpr first_channel_, group_;
};

void build_conv(NestContext& ctx) {
  if (ctx.options().target == LowerOptions::Target::Cpu && is_row_conv(ctx.node()))
    build_row_conv(ctx);
  else if (ctx.options().target == LowerOptions::Target::Cpu && reads_terms_side_by_side(ctx))
    build_dot_conv(ctx);
  else if (is_conv_product(ctx))
    build_conv_product(ctx);
  else
    ConvNest(ctx, false).build();
}
void build_transpose(NestContext& ctx) { ConvNest(ctx, true).build(); }

}  // namespace

bool channels_are_lanes(const ir::Node& node, const LowerOptions& options) {
  if (options.target != LowerOptions::Target::Cuda || node.op_name() != "conv" ||
      !node.flag("channels_last"))
    return false;
  const ir::Dims& weights = node.input(1).meta().sizes;
  return weights[0].is_constant(node.integer("groups")) && weights[1].is_constant(1) &&
         weights[0].constant() >= kFewestLanes;
}

const NestRecipe kConvRecipe{
    .name = "conv", .memory_operands = 0b11, .epilogue = true, .build = build_conv};
const NestRecipe kConvTransposeRecipe{
    .name = "conv_transpose", .memory_operands = 0b11, .epilogue = true, .build = build_transpose};

}  // namespace heddle::jit
