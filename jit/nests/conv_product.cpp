#include "jit/nests/conv_product.h"

#include <algorithm>
#include <array>

#include "jit/lower/index.h"
#include "jit/nests/nests.h"
#include "jit/nests/support.h"

namespace heddle::jit {

namespace {

constexpr std::int64_t kConvTileRows = 32;
constexpr std::int64_t kConvTileColumns = 64;
/// Channels of a group's result, and elements of a window, from which on tiles are not mostly empty: below, a thread for each
/// element does less.
constexpr std::int64_t kLeastRows = 16;
constexpr std::int64_t kLeastDepth = 16;
/// Taps of one direction, at most: a window keeps a bit for each.
constexpr std::int64_t kMostTaps = 32;
constexpr std::int64_t kMostDepth = std::int64_t{1} << 30;

/// Whether weights of these sizes are rows that fill tiles.
bool fills_tiles(std::span<const SymExpr> sizes, std::int64_t groups) {
  if (sizes.size() > 5) return false;
  if (!std::ranges::all_of(sizes, [](const SymExpr& size) { return size.is_constant(); }))
    return false;
  const SymExpr depth = base::product(sizes.subspan(1));
  const bool few_taps = std::all_of(sizes.begin() + 2, sizes.end(), [](const SymExpr& size) {
    return size.constant() <= kMostTaps;
  });
  return few_taps && sizes[0].constant() / groups >= kLeastRows &&
         depth.constant() >= kLeastDepth && depth.constant() <= kMostDepth;
}

/// Whether the elements of a weight's row, which is all of its dimensions but the first, lie behind each other: taps of a channel,
/// or where `channels_inner`, channels of a tap.
bool has_plain_rows(const NestBuilder& b, const AffineOperand& weights,
                    std::span<const SymExpr> sizes, bool channels_inner) {
  SymExpr inner = 1;
  const auto takes = [&](std::size_t d) {
    if (sizes[d].is_constant(1)) return true;
    if (!b.simplify(weights.strides[d] - inner).is_constant(0)) return false;
    inner *= sizes[d];
    return true;
  };
  if (channels_inner && !takes(1)) return false;
  for (std::size_t d = sizes.size(); d-- > 2;)
    if (!takes(d)) return false;
  return channels_inner || takes(1);
}

/// Whether windows are read 16 bytes at a time: channels are neighbours, in x and in the weights.
bool reads_channels(NestContext& ctx, bool last) {
  const ir::Node& node = ctx.node();
  const std::vector<SymExpr> sizes = ctx.operand_sizes(1);
  const auto images = ctx.affine(0);
  const auto weights = ctx.affine(1);
  const DType dtype = node.input(0).meta().dtype;
  const bool tensor = dtype != DType::F32 || node.flag("tf32");
  const std::int64_t piece = kPieceBytes / static_cast<std::int64_t>(size_of(dtype));
  const std::size_t channel = last ? images->strides.size() - 1 : 1;
  return tensor && sizes[1].constant() % piece == 0 && images->strides[channel].is_constant(1) &&
         has_plain_rows(ctx.builder(), *weights, sizes, true);
}

class ConvProductNest {
 public:
  explicit ConvProductNest(NestContext& ctx)
      : ctx_(ctx),
        b_(ctx.builder()),
        is_of_bytes_(ctx.node().op_name() == "int8_conv"),
        last_(ctx.node().flag("channels_last")),
        out_(channels_second(ctx.output_sizes())),
        images_(*ctx.affine(0)),
        weights_(*ctx.affine(1)),
        weight_sizes_(ctx.operand_sizes(1)),
        reads_channels_(reads_channels(ctx, last_)) {
    images_.strides = channels_second(images_.strides);
    if (is_of_bytes_) outside_ = *ctx.affine(2);
  }

  void build() {
    const std::int64_t groups = is_of_bytes_ ? 1 : ctx_.node().integer("groups");
    std::vector<SymExpr> windows = out_;
    windows.erase(windows.begin() + 1);
    ProductForm form;
    form.batches = groups;
    form.rows = floordiv(out_[1], groups);
    form.columns = base::product(windows);
    split_into_tiles(b_, out_, kConvTileRows, kConvTileColumns, form);
    row_begin_ = form.row_begin;
    column_begin_ = form.column_begin;
    const SymExpr group = form.batch;
    first_channel_ = group * form.rows + row_begin_;
    contract(form, group);
    write(windows);
    b_.nest().work = form.batches * form.rows * form.columns * depth() * 2;
    b_.nest().product = std::move(form);
  }

 private:
  /// What belongs to [N, M, out...].
  std::vector<SymExpr> channels_second(std::vector<SymExpr> list) const {
    if (last_) std::rotate(list.begin() + 1, list.end() - 1, list.end());
    return list;
  }

  SymExpr depth() const { return base::product(std::span(weight_sizes_).subspan(1)); }

  Windows windows_of_images() const {
    const ir::Node& node = ctx_.node();
    const std::vector<SymExpr> sizes = channels_second(ctx_.operand_sizes(0));
    Windows windows{column_begin_, {}};
    if (reads_channels_) windows.channels = weight_sizes_[1].constant();
    if (outside_) windows.outside = Windows::Element{outside_->buffer, outside_->offset};
    for (std::size_t d = 0; d + 2 < out_.size(); ++d)
      windows.axes.push_back({.taps = weight_sizes_[d + 2].constant(),
                              .stride = node.ints("strides")[d],
                              .pad = node.ints("pads_low")[d],
                              .dilation = node.ints("dilations")[d],
                              .windows = out_[d + 2],
                              .size = sizes[d + 2],
                              .memory_stride = images_.strides[d + 2]});
    return windows;
  }

  void contract(const ProductForm& form, const SymExpr& group) {
    rows_ = min(kConvTileRows, form.rows - row_begin_);
    columns_ = min(kConvTileColumns, form.columns - column_begin_);
    const DType sums = is_of_bytes_ ? DType::I32 : DType::F32;
    acc_ = b_.add_local(sums, kConvTileRows * kConvTileColumns, kConvTileRows * kConvTileColumns);
    const SymExpr& channel = images_.strides[1];
    b_.contract({.acc = acc_,
                 .dtype = sums,
                 .tile_rows = kConvTileRows,
                 .tile_columns = kConvTileColumns,
                 .rows = rows_,
                 .columns = columns_,
                 .depth = depth(),
                 .a = {weights_.buffer, weights_.offset + weights_.strides[0] * first_channel_,
                       weights_.strides[0], 1},
                 .b = {images_.buffer, images_.offset + group * weight_sizes_[1] * channel, channel,
                       images_.strides[0], windows_of_images()},
                 .tf32 = !is_of_bytes_ && ctx_.node().flag("tf32")});
  }

  void write(std::span<const SymExpr> windows) {
    const DType dtype = ctx_.node().output().dtype;
    const bool biased = !is_of_bytes_ && ctx_.node().inputs().size() > 2 && ctx_.node().input(2);
    const Symbol row = b_.begin_for(rows_, ForStmt::Kind::Serial);
    const SymExpr channel = first_channel_ + SymExpr(row);
    const Symbol column = b_.begin_for(columns_, ForStmt::Kind::Vector);
    Scalar sum = b_.load(acc_, SymExpr(row) * kConvTileColumns + SymExpr(column));
    if (biased) {
      const Scalar bias = ctx_.operand(2, std::array{channel});
      sum = b_.apply(ir::ScalarOp::Add, {sum, b_.convert(bias, DType::F32)});
    }
    Index index = delinearize(column_begin_ + SymExpr(column), windows, b_.facts());
    index.insert(index.begin() + 1, channel);
    if (last_) std::rotate(index.begin() + 1, index.begin() + 2, index.end());
    ctx_.result(0, index, b_.convert(sum, dtype));
    b_.end_for();
    b_.end_for();
  }

  NestContext& ctx_;
  NestBuilder& b_;
  const bool is_of_bytes_;
  const bool last_;                 ///< channels are the last dimension of x and of the result
  const std::vector<SymExpr> out_;  ///< [N, M, out...]
  AffineOperand images_;            ///< strides as [N, C, in...]
  const AffineOperand weights_;
  std::optional<AffineOperand> outside_;  ///< of bytes: the element that lies outside of images
  const std::vector<SymExpr> weight_sizes_;
  const bool reads_channels_;
  NestBufferId acc_ = 0;
  SymExpr first_channel_, row_begin_, column_begin_, rows_, columns_;
};

}  // namespace

bool is_conv_product(NestContext& ctx) {
  const ir::Node& node = ctx.node();
  const DType dtype = node.output().dtype;
  if (ctx.options().target != LowerOptions::Target::Cuda || node.op_name() != "conv") return false;
  if (dtype != DType::F16 && dtype != DType::BF16 && dtype != DType::F32) return false;
  const std::vector<SymExpr> sizes = ctx.operand_sizes(1);
  const auto weights = ctx.affine(1);
  return fills_tiles(sizes, node.integer("groups")) && weights && ctx.affine(0) &&
         (has_plain_rows(ctx.builder(), *weights, sizes, false) ||
          reads_channels(ctx, node.flag("channels_last")));
}

bool may_be_conv_product(const ir::Dims& weights, std::int64_t groups) {
  return fills_tiles(weights, groups);
}

void build_conv_product(NestContext& ctx) { ConvProductNest(ctx).build(); }

const NestRecipe kInt8ConvRecipe{
    .name = "int8_conv", .memory_operands = 0b111, .epilogue = true, .build = build_conv_product};

}  // namespace heddle::jit
