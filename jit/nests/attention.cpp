// attention as a nest: a tile of queries at a time runs over tiles of keys, so that scores never leave the
// core. The softmax is taken as the keys come: what was summed before is scaled down whenever a larger
// score appears.
//
//   for p in B x heads of q, or of k x tiles of value columns x tiles of queries (parallel)
//     largest[row] = -inf, total[row] = 0, sums[row, column] = 0
//     for tile of keys that some query of the tile sees (serial; on the CPU, if the mask shows one of its keys)
//       scores = q . k^T
//       for row (serial): scale, cap and mask; the largest of the tile
//       for row (vector): the new largest, and what the sums so far are scaled by
//       for row (serial): scores = exp(scores - largest), their sum; rescale sums
//       sums += scores . v
//     result = sums / total, or 0 where total is 0 (nan_rows: where there are no keys)
//
// On the CPU heads of q that share a head of k are rows of one tile, a query's side by side, so that keys and values are read
// once for all of them.
//
// On CUDA the nest of f16, bf16 or f32 operands is in attention form (jit/nest.h), whose tiles the emitter chooses, and how
// many blocks part the keys of one.
//
// attention_parts runs over the keys of one part, which is one more of the parallel axis' factors, and writes sums, largest and
// total as they are.
#include <cmath>
#include <limits>

#include "jit/nests/nests.h"
#include "jit/nests/support.h"

namespace heddle::jit {
namespace {

using ir::ReduceOp;
using ir::ScalarOp;

constexpr std::int64_t kTileKeys = AttentionForm::kKeys;
constexpr std::int64_t kMostColumns = 128;
constexpr std::int64_t kSplitColumns = 64;
constexpr std::int64_t kMostShared = 16;  ///< heads that are rows of one tile
constexpr std::int64_t kMostPacked =
    256;  ///< numbers of a head, where their queries are copied side by side

/// Rows of a tile for accumulators of `dtype`. On a GPU all tiles together fit its shared memory; on the CPU more
/// rows share what is done for a tile of keys.
std::int64_t tile_rows(DType dtype, LowerOptions::Target target) {
  if (dtype == DType::F64) return 16;
  return target == LowerOptions::Target::Cpu ? 64 : 32;
}
std::int64_t pack_depth(DType dtype) { return dtype == DType::F64 ? 32 : 64; }

class AttentionNest {
 public:
  explicit AttentionNest(NestContext& ctx)
      : ctx_(ctx),
        b_(ctx.builder()),
        of_parts_(ctx.node().op_name() == "attention_parts"),
        out_(result_sizes(ctx)),
        k_sizes_(ctx.operand_sizes(1)),
        q_(*ctx.affine(0)),
        k_(*ctx.affine(1)),
        v_(*ctx.affine(2)),
        depth_(ctx.operand_sizes(0)[3]),
        keys_(k_sizes_[2]),
        part_(of_parts_ ? ctx.translate(std::get<SymExpr>(ctx.node().attr("part"))) : keys_),
        dtype_(accumulator_of(ctx.node().output().dtype)),
        tile_rows_(tile_rows(dtype_, ctx.options().target)) {
    const SymExpr& columns = out_[3];
    const bool whole = columns.is_constant() && columns.constant() <= kMostColumns;
    tile_columns_ = whole ? std::max<std::int64_t>(columns.constant(), 1) : kSplitColumns;
    has_form_ = whole && fits_form();
    narrows_ = fits_pairs();
    group_ = heads_of_a_tile();
    tile_queries_ = tile_rows_ / group_;
    tile_rows_ = tile_queries_ * group_;
  }

  void build() {
    split_parallel();
    add_locals();
    start();
    if (packs_queries()) pack_queries();
    const SymExpr end = of_parts_ ? min(visible_keys(), part_begin_ + part_) : visible_keys();
    const SymExpr tiles = ceildiv(of_parts_ ? max(0, end - part_begin_) : end, kTileKeys);
    const SymExpr tile = b_.begin_for(tiles, ForStmt::Kind::Serial);
    key_begin_ = part_begin_ + tile * kTileKeys;
    key_count_ = min(kTileKeys, end - key_begin_);
    const bool skips = may_skip_tiles();
    if (skips) b_.begin_if(shows_a_key());
    contract_scores();
    mask_scores();
    update_largest();
    weigh_scores();
    contract_values();
    if (skips) b_.end_if();
    b_.end_for();
    of_parts_ ? write_part() : write();
    if (has_form_) set_form();
    b_.nest().work =
        base::product(out_) * keys_ * 2 + out_[0] * out_[1] * out_[2] * keys_ * (depth_ * 2 + 8);
  }

 private:
  /// [B, H, Lq, Dv]
  static std::vector<SymExpr> result_sizes(NestContext& ctx) {
    std::vector<SymExpr> sizes = ctx.output_sizes();
    if (sizes.size() > 4) sizes.erase(sizes.begin() + 3);
    return sizes;
  }

  bool is_masked() const { return ctx_.node().inputs().size() > 3 && ctx_.node().input(3); }

  /// Whether an emitter's own tiles may take the place of these: neighbours in memory lie along heads of known sizes.
  bool fits_form() const {
    const DType dtype = ctx_.node().output().dtype;
    bool fits = ctx_.options().target == LowerOptions::Target::Cuda && !of_parts_ &&
                (dtype == DType::F16 || dtype == DType::BF16 || dtype == DType::F32) &&
                depth_.is_constant() && depth_.constant() >= 1 && depth_.constant() <= kMostColumns;
    for (const AffineOperand* operand : {&q_, &k_, &v_})
      fits = fits && b_.nest().buffers[operand->buffer].dtype == dtype &&
             operand->strides[3].is_constant(1);
    return fits;
  }

  /// Whether pairs of bf16 are multiplied: neighbours of a sum lie side by side in all operands, or those of other sums do.
  bool fits_pairs() const {
    const LowerOptions& options = ctx_.options();
    bool fits = options.target == LowerOptions::Target::Cpu && options.fast_bf16_dot &&
                ctx_.node().flag("bf16") && depth_.is_constant() && depth_.constant() > 0 &&
                depth_.constant() % 2 == 0 && depth_.constant() <= kMostPacked;
    for (const AffineOperand* operand : {&q_, &k_, &v_}) {
      const DType dtype = b_.nest().buffers[operand->buffer].dtype;
      fits = fits && (dtype == DType::F32 || dtype == DType::BF16);
    }
    for (const AffineOperand* operand : {&k_, &v_})
      fits = fits && (operand->strides[2].is_constant(1) || operand->strides[3].is_constant(1));
    return fits;
  }
  bool packs_queries() const { return group_ > 1 || narrows_; }

  /// Heads of q that are rows of a tile: all that share a head of k, or one.
  std::int64_t heads_of_a_tile() const {
    const SymExpr& heads = k_sizes_[1];
    if (ctx_.options().target != LowerOptions::Target::Cpu || !out_[1].is_constant() ||
        !heads.is_constant() || heads.constant() < 1 || !depth_.is_constant() ||
        depth_.constant() < 1 || depth_.constant() > kMostPacked)
      return 1;
    const std::int64_t group = out_[1].constant() / heads.constant();
    return group <= kMostShared ? std::max<std::int64_t>(group, 1) : 1;
  }

  void set_form() {
    const double given = ctx_.node().number("scale");
    b_.nest().attention = AttentionForm{
        .batch = batch_.symbol(),
        .head = head_.symbol(),
        .row_begin = row_begin_.symbol(),
        .batches = out_[0],
        .heads = out_[1],
        .key_heads = k_sizes_[1],
        .queries = out_[2],
        .keys = keys_,
        .totals = total_,
        .scale = given != 0 ? given : 1.0 / std::sqrt(static_cast<double>(depth_.constant())),
        .causal = ctx_.node().flag("causal"),
        .masked = is_masked() || softcap() != 0};
  }

  /// Where the tile begins: a symbol of its own for the form.
  SymExpr place(const SymExpr& at, const SymExpr& size) {
    return has_form_ ? b_.bind(b_.from_index(at), 0, size - 1, 0) : at;
  }

  void split_parallel() {
    const SymExpr parts[] = {out_[0], group_ > 1 ? k_sizes_[1] : out_[1],
                             ceildiv(out_[3], tile_columns_), ceildiv(out_[2], tile_queries_),
                             of_parts_ ? ceildiv(keys_, part_) : SymExpr(1)};
    const SymExpr extent = base::product(parts);
    const Symbol p = b_.new_axis(extent);
    b_.set_parallel(p, extent);
    const Index part = delinearize(p, parts, b_.facts());
    batch_ = place(part[0], out_[0]);
    head_ = place(part[1], out_[1]);
    shared_head_ =
        group_ > 1 ? head_ : b_.simplify(floordiv(head_, floordiv(out_[1], k_sizes_[1])));
    column_tile_ = part[2];
    column_begin_ = part[2] * tile_columns_;
    columns_ = b_.simplify(min(tile_columns_, out_[3] - column_begin_));
    row_begin_ = place(part[3] * tile_queries_, out_[2]);
    queries_ = min(tile_queries_, out_[2] - row_begin_);
    rows_ = queries_ * group_;
    number_ = part[4];
    if (of_parts_) part_begin_ = b_.simplify(number_ * part_);
  }

  SymExpr query_of(const SymExpr& row) const { return row_begin_ + floordiv(row, group_); }
  SymExpr head_of(const SymExpr& row) const {
    return group_ > 1 ? head_ * group_ + mod(row, group_) : head_;
  }

  void add_locals() {
    const auto local = [&](DType dtype, std::int64_t count) {
      return b_.add_local(dtype, count, count);
    };
    scores_ = local(dtype_, tile_rows_ * kTileKeys);
    sums_ = local(dtype_, tile_rows_ * tile_columns_);
    largest_ = local(dtype_, tile_rows_);
    total_ = local(dtype_, tile_rows_);
    most_ = local(dtype_, tile_rows_);
    rescale_ = local(dtype_, tile_rows_);
    weights_ = narrows_ ? local(DType::BF16, tile_rows_ * kTileKeys) : scores_;
  }

  Scalar number(double value) { return b_.constant(dtype_, value); }

  void fill(NestBufferId buffer, const SymExpr& count, double value) {
    const SymExpr k = b_.begin_for(count, ForStmt::Kind::Vector);
    b_.store(buffer, k, b_.constant(b_.nest().buffers[buffer].dtype, value));
    b_.end_for();
  }

  void start() {
    fill(largest_, rows_, -std::numeric_limits<double>::infinity());
    fill(total_, rows_, 0);
    fill(sums_, rows_ * tile_columns_, 0);
    if (narrows_) fill(weights_, rows_ * kTileKeys, 0);
  }

  /// Keys from here on are hidden from every query of the tile.
  SymExpr visible_keys() const {
    if (!ctx_.node().flag("causal")) return keys_;
    return max(0, min(keys_, row_begin_ + queries_ + keys_ - out_[2]));
  }

  /// Whether a mask may hide whole tiles, whose keys then weigh nothing: lengths, windows, causality that a model writes out.
  /// CUDA's own tiles leave keys out by themselves.
  bool may_skip_tiles() const {
    return is_masked() && ctx_.options().target == LowerOptions::Target::Cpu &&
           ctx_.node().number("hidden") == -std::numeric_limits<double>::infinity();
  }

  /// Whether the mask shows a key of the tile to a query of the tile. What it says is the same for all rows where it has
  /// one.
  Scalar shows_a_key() {
    const std::vector<SymExpr> sizes = ctx_.operand_sizes(3);
    const auto varies = [&](std::size_t back) {
      return sizes.size() >= back && !sizes[sizes.size() - back].is_constant(1);
    };
    const bool has_rows = varies(2) || (group_ > 1 && varies(3));
    const SymExpr row = b_.begin_for(has_rows ? rows_ : SymExpr(1), ForStmt::Kind::Serial);
    const SymExpr c = b_.begin_for(key_count_, ForStmt::Kind::Vector);
    const Scalar mask = ctx_.operand(3, mask_index(row, key_begin_ + c));
    const Scalar added = mask.dtype == DType::Bool
                             ? select(b_, Mask(mask), number(0), lowest(b_, dtype_))
                             : b_.convert(mask, dtype_);
    const Scalar of_row = b_.reduce(ReduceOp::Max, dtype_, {&added, 1})[0];
    b_.end_for();
    const Scalar most = b_.reduce(ReduceOp::Max, dtype_, {&of_row, 1})[0];
    b_.end_for();
    return b_.apply(ScalarOp::Ne, most, lowest(b_, dtype_));
  }

  SymExpr place(const AffineOperand& operand, const SymExpr& head, const SymExpr& row,
                const SymExpr& column) const {
    const SymExpr index[] = {batch_, head, row, column};
    return operand.offset + strided_index(index, operand.strides);
  }

  void contract_scores() {
    // What lies along the depth or along the keys is the contraction's own business.
    if (k_.strides[2].is_constant(1) || k_.strides[3].is_constant(1)) {
      TileOperand keys{k_.buffer, place(k_, shared_head_, key_begin_, 0), k_.strides[3],
                       k_.strides[2]};
      contract_queries(0, depth_, std::move(keys), false);
      return;
    }
    const std::int64_t block = pack_depth(dtype_);
    const DType dtype = ctx_.node().input(1).meta().dtype;
    packed_ = b_.add_local(dtype, block * kTileKeys, block * kTileKeys);
    fill(scores_, rows_ * kTileKeys, 0);
    const SymExpr number = b_.begin_for(ceildiv(depth_, block), ForStmt::Kind::Serial);
    const SymExpr from = number * block;
    contract_packed(from, min(block, depth_ - from));
    b_.end_for();
  }

  /// Queries of a tile behind each other, as its rows are.
  void pack_queries() {
    const std::int64_t depth = depth_.constant();
    const std::int64_t count = tile_rows_ * depth;
    const DType dtype = narrows_ ? DType::BF16 : ctx_.node().input(0).meta().dtype;
    packed_queries_ = b_.add_local(dtype, count, count);
    const SymExpr row = b_.begin_for(rows_, ForStmt::Kind::Serial);
    const SymExpr d = b_.begin_for(depth, ForStmt::Kind::Vector);
    const SymExpr source = place(q_, head_of(row), query_of(row), d);
    b_.store(packed_queries_, row * depth + d, b_.convert(b_.load(q_.buffer, source), dtype));
    b_.end_for();
    b_.end_for();
  }

  void contract_queries(const SymExpr& from, const SymExpr& depth, TileOperand keys,
                        bool accumulate) {
    TileOperand a = packs_queries() ? TileOperand{packed_queries_, from, depth_, 1}
                                    : TileOperand{q_.buffer, place(q_, head_, row_begin_, from),
                                                  q_.strides[2], q_.strides[3]};
    contract({scores_, dtype_, tile_rows_, kTileKeys, rows_, key_count_, depth, std::move(a),
              std::move(keys), accumulate});
  }

  void contract(ContractStmt products) {
    if (narrows_) {
      products.group = 2;
      products.gathers = true;
    }
    b_.contract(std::move(products));
  }

  void contract_packed(const SymExpr& from, const SymExpr& depth) {
    const SymExpr key = b_.begin_for(key_count_, ForStmt::Kind::Serial);
    const SymExpr d = b_.begin_for(depth, ForStmt::Kind::Vector);
    const SymExpr source = place(k_, shared_head_, key_begin_ + key, from + d);
    b_.store(packed_, d * kTileKeys + key, b_.load(k_.buffer, source));
    b_.end_for();
    b_.end_for();
    contract_queries(from, depth, {packed_, 0, kTileKeys, 1}, true);
  }

  void contract_values() {
    TileOperand v{v_.buffer, place(v_, shared_head_, key_begin_, column_begin_), v_.strides[2],
                  v_.strides[3]};
    contract({sums_,
              dtype_,
              tile_rows_,
              tile_columns_,
              rows_,
              columns_,
              key_count_,
              {weights_, 0, kTileKeys, 1},
              std::move(v),
              true});
  }

  Scalar scale() {
    const double given = ctx_.node().number("scale");
    if (given != 0) return number(given);
    if (depth_.is_constant())
      return number(1.0 / std::sqrt(static_cast<double>(depth_.constant())));
    return b_.apply(ScalarOp::Rsqrt, {b_.convert(b_.from_index(depth_), dtype_)});
  }

  double softcap() const { return ctx_.node().number("softcap"); }

  Scalar capped(Scalar score) {
    if (softcap() == 0) return score;
    const Scalar share = b_.apply(ScalarOp::Mul, score, number(1.0 / softcap()));
    return b_.apply(ScalarOp::Mul, b_.apply(ScalarOp::Tanh, {share}), number(softcap()));
  }

  /// The score of a key with everything that scales or hides it.
  Scalar masked(Scalar score, const SymExpr& row, const SymExpr& key) {
    score = capped(b_.apply(ScalarOp::Mul, score, scale()));
    Mask seen;
    if (is_masked()) {
      const Scalar mask = ctx_.operand(3, mask_index(row, key));
      const double hidden = ctx_.node().number("hidden");
      if (mask.dtype != DType::Bool)
        score = b_.apply(ScalarOp::Add, score, b_.convert(mask, dtype_));
      else if (hidden == -std::numeric_limits<double>::infinity())
        seen = mask;
      else
        score = b_.apply(ScalarOp::Select, {mask, score, number(hidden)});
    }
    if (ctx_.node().flag("causal"))
      seen = both(b_, seen, compare(b_, ScalarOp::Le, key, query_of(row) + keys_ - out_[2]));
    return seen ? select(b_, seen, score, lowest(b_, dtype_)) : score;
  }

  Index mask_index(const SymExpr& row, const SymExpr& key) {
    const SymExpr full[] = {batch_, head_of(row), query_of(row), key};
    const std::vector<SymExpr> sizes = ctx_.operand_sizes(3);
    Index index;
    for (std::size_t d = 0; d < sizes.size(); ++d)
      index.push_back(sizes[d].is_constant(1) ? SymExpr(0) : full[4 - sizes.size() + d]);
    return index;
  }

  void mask_scores() {
    const SymExpr row = b_.begin_for(rows_, ForStmt::Kind::Serial);
    const SymExpr c = b_.begin_for(key_count_, ForStmt::Kind::Vector);
    const SymExpr at = row * kTileKeys + c;
    const Scalar score = masked(b_.load(scores_, at), row, key_begin_ + c);
    b_.store(scores_, at, score);
    const Scalar most = b_.reduce(ReduceOp::Max, dtype_, {&score, 1})[0];
    b_.end_for();
    b_.store(most_, row, most);
    b_.end_for();
  }

  /// Of all rows side by side: a chain of scalar operations for each would take longer than its scores.
  void update_largest() {
    const SymExpr row = b_.begin_for(rows_, ForStmt::Kind::Vector);
    const Scalar before = b_.load(largest_, row);
    const Scalar now = b_.apply(ScalarOp::Max, before, b_.load(most_, row));
    // Rows that saw nothing yet: exp(-inf - 0) is 0, where -inf - -inf is NaN.
    const Scalar nothing = b_.apply(ScalarOp::Eq, now, lowest(b_, dtype_));
    const Scalar shift = b_.apply(ScalarOp::Select, {nothing, number(0), now});
    const Scalar rescale = b_.exp_up_to_zero(b_.apply(ScalarOp::Sub, before, shift));
    const Scalar total = b_.apply(ScalarOp::Mul, b_.load(total_, row), rescale);
    b_.store(largest_, row, now);
    b_.store(most_, row, shift);
    b_.store(rescale_, row, rescale);
    b_.store(total_, row, total);
    b_.end_for();
  }

  /// Turns scores into weights and adds them to the totals.
  void weigh_scores() {
    const SymExpr row = b_.begin_for(rows_, ForStmt::Kind::Serial);
    const Scalar shift = b_.load(most_, row);
    const SymExpr c = b_.begin_for(key_count_, ForStmt::Kind::Vector);
    const SymExpr at = row * kTileKeys + c;
    const Scalar weight = b_.exp_up_to_zero(b_.apply(ScalarOp::Sub, b_.load(scores_, at), shift));
    b_.store(weights_, at, narrows_ ? b_.convert(weight, DType::BF16) : weight);
    const Scalar sum = b_.reduce(ReduceOp::Sum, dtype_, {&weight, 1})[0];
    b_.end_for();
    b_.store(total_, row, b_.apply(ScalarOp::Add, b_.load(total_, row), sum));

    const Scalar rescale = b_.load(rescale_, row);
    const SymExpr column = b_.begin_for(columns_, ForStmt::Kind::Vector);
    const SymExpr position = row * tile_columns_ + column;
    b_.store(sums_, position, b_.apply(ScalarOp::Mul, b_.load(sums_, position), rescale));
    b_.end_for();
    b_.end_for();
  }

  void write() {
    const SymExpr row = b_.begin_for(rows_, ForStmt::Kind::Serial);
    const Scalar total = b_.load(total_, row);
    // Where rows of -inf are to be NaN, 0 times the reciprocal of 0 is; without keys there is nothing to sum.
    const Scalar none = ctx_.node().flag("nan_rows") ? compare(b_, ScalarOp::Eq, keys_, 0)
                                                     : b_.apply(ScalarOp::Eq, total, number(0));
    const Scalar share = b_.apply(ScalarOp::Reciprocal, {total});
    const SymExpr column = b_.begin_for(columns_, ForStmt::Kind::Vector);
    const Scalar sum = b_.load(sums_, row * tile_columns_ + column);
    const Scalar mean = b_.apply(ScalarOp::Mul, sum, share);
    const Scalar value = b_.apply(ScalarOp::Select, {none, number(0), mean});
    const SymExpr index[] = {batch_, head_of(row), query_of(row), column_begin_ + column};
    ctx_.result(0, index, b_.convert(value, ctx_.node().output().dtype));
    b_.end_for();
    b_.end_for();
  }

  /// Of a part: what join_attention works with.
  void write_part() {
    const auto index = [&](const SymExpr& row) {
      return Index{batch_, head_of(row), query_of(row), number_};
    };
    const SymExpr row = b_.begin_for(rows_, ForStmt::Kind::Serial);
    const SymExpr column = b_.begin_for(columns_, ForStmt::Kind::Vector);
    Index at = index(row);
    at.push_back(column_begin_ + column);
    ctx_.result(0, at, b_.load(sums_, row * tile_columns_ + column));
    b_.end_for();
    b_.end_for();
    // Tiles of other columns have the same.
    const bool has_tiles = !(out_[3].is_constant() && out_[3].constant() <= tile_columns_);
    if (has_tiles) b_.begin_if(compare(b_, ScalarOp::Eq, column_tile_, 0));
    const SymExpr lane = b_.begin_for(rows_, ForStmt::Kind::Vector);
    ctx_.result(1, index(lane), b_.load(largest_, lane));
    ctx_.result(2, index(lane), b_.load(total_, lane));
    b_.end_for();
    if (has_tiles) b_.end_if();
  }

  NestContext& ctx_;
  NestBuilder& b_;
  const bool of_parts_;
  const std::vector<SymExpr> out_, k_sizes_;
  const AffineOperand q_, k_, v_;
  const SymExpr depth_, keys_;
  const SymExpr part_;  ///< keys of a part
  const DType dtype_;
  std::int64_t tile_rows_;
  std::int64_t tile_columns_ = 1;
  std::int64_t group_ = 1;  ///< heads that are rows of a tile
  std::int64_t tile_queries_ = 1;
  bool has_form_ = false;
  bool narrows_ = false;                ///< products are of pairs of bf16
  SymExpr batch_, head_, shared_head_;  ///< head_: of k, where heads of q are rows of a tile
  SymExpr row_begin_, queries_, rows_, column_tile_, column_begin_, columns_, key_begin_,
      key_count_;
  SymExpr number_, part_begin_ = 0;  ///< of the part
  NestBufferId scores_ = 0, sums_ = 0, largest_ = 0, total_ = 0, packed_ = 0, packed_queries_ = 0;
  NestBufferId most_ = 0;  ///< largest score of each row in this tile, then what all are shifted by
  NestBufferId rescale_ = 0;
  NestBufferId weights_ = 0;  ///< of the tile's keys
};

void build_attention(NestContext& ctx) { AttentionNest(ctx).build(); }

}  // namespace

const NestRecipe kAttentionRecipe{
    .name = "attention", .memory_operands = 0b111, .epilogue = true, .build = build_attention};
const NestRecipe kAttentionPartsRecipe{
    .name = "attention_parts", .memory_operands = 0b111, .build = build_attention};

}  // namespace heddle::jit
