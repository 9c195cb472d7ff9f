#include "ir/passes/transposed_conv.h"

#include <algorithm>

#include "ir/op.h"

namespace heddle::ir {

namespace {

std::int64_t ceil_of_ratio(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// One spatial dimension.
struct Direction {
  std::int64_t stride;
  std::int64_t kernel;
  std::int64_t taps;      ///< of the convolution
  std::int64_t pad_low;   ///< of the convolution
  std::int64_t pad_high;  ///< of the convolution
  std::int64_t start;     ///< where the result begins in what the convolution makes
  SymExpr size;           ///< of the result
};

class AsConvolution {
 public:
  AsConvolution(GraphBuilder& builder, const Node& node)
      : builder_(builder), node_(node), groups_(node.integer("groups")) {
    const Dims& weights = node.input(1).meta().sizes;
    depth_ = weights[0];
    channels_ = weights[1];
    for (std::size_t d = 0; d + 2 < weights.size(); ++d) {
      directions_.push_back(direction(d, weights[d + 2].constant()));
      phases_ *= directions_.back().stride;
    }
  }

  Value run(Value x, std::span<const Value> operands) {
    const bool side_by_side = groups_ == 1 && std::ranges::all_of(directions_, [](const auto& d) {
                                return d.taps == 1 && d.pad_low == 0 && d.pad_high == 0;
                              });
    const Value weights = filters(operands[1], side_by_side);
    const Value bias = operands.size() > 2 && operands[2] ? repeated(operands[2]) : Value();
    if (!side_by_side)
      return cut(spread(bias ? builder_.emit("conv", {x, weights, bias}, window())
                             : builder_.emit("conv", {x, weights}, window())));
    Value made = builder_.emit("matmul", {x, weights});
    if (bias) made = builder_.emit("add", {made, bias});
    return cut(spread(made));
  }

 private:
  Direction direction(std::size_t d, std::int64_t kernel) const {
    const std::int64_t stride = node_.ints("strides")[d];
    const std::int64_t low = node_.ints("pads_low")[d];
    // How far the last window reaches into the result.
    const std::int64_t reach =
        kernel - node_.ints("pads_high")[d] + node_.ints("output_padding")[d];
    const std::int64_t taps = std::max(ceil_of_ratio(kernel, stride),
                                       ceil_of_ratio(std::max<std::int64_t>(reach, 1), stride));
    // Rows of phases before the first and behind the last that the result has are not made.
    const std::int64_t left_out = std::min(low / stride, taps - 1);
    return {.stride = stride,
            .kernel = kernel,
            .taps = taps,
            .pad_low = taps - 1 - left_out,
            .pad_high = reach < 1 ? 0 : (reach - 1) / stride,
            .start = low - left_out * stride,
            .size = node_.output().sizes[d + 2]};
  }

  Value reshaped(Value value, Dims sizes) {
    return builder_.emit("reshape", {value}, {{"sizes", std::move(sizes)}});
  }

  Value permuted(Value value, std::vector<std::int64_t> perm) {
    return builder_.emit("permute", {value}, {{"perm", std::move(perm)}});
  }

  /// Places of phases among dimensions that begin with `before` others, then have those of all directions in pairs.
  std::vector<std::int64_t> every_second(std::int64_t first) const {
    std::vector<std::int64_t> places;
    for (std::size_t d = 0; d < directions_.size(); ++d)
      places.push_back(first + 2 * static_cast<std::int64_t>(d));
    return places;
  }

  /// [groups * c, m, kernel...] as [phases * m, c, taps...], the taps in reverse; with several groups as
  /// [groups * m * phases, c, taps...]. As the right operand of a product: [c, phases * m].
  Value filters(Value weights, bool as_matrix) {
    weights = padded(weights);
    Dims apart{SymExpr(groups_), floordiv(depth_, groups_), channels_};
    for (const Direction& d : directions_) {
      apart.emplace_back(d.taps);
      apart.emplace_back(d.stride);
    }
    Value turned = reshaped(weights, std::move(apart));
    const std::vector<std::int64_t> taps = every_second(3);
    const std::vector<std::int64_t> phases = every_second(4);
    if (!as_matrix) turned = builder_.emit("reverse", {turned}, {{"axes", taps}});
    std::vector<std::int64_t> perm;
    const auto append = [&](const std::vector<std::int64_t>& axes) {
      perm.insert(perm.end(), axes.begin(), axes.end());
    };
    if (as_matrix) append({0, 1});
    if (groups_ > 1) append({0, 2});
    append(phases);
    if (groups_ == 1 && !as_matrix) append({0});
    if (groups_ == 1) append({2});
    if (!as_matrix) append({1});
    append(taps);
    turned = permuted(turned, perm);
    const SymExpr made = channels_ * groups_ * phases_;
    if (as_matrix) return reshaped(turned, {depth_, made});
    Dims joined{made, floordiv(depth_, groups_)};
    for (const Direction& d : directions_) joined.emplace_back(d.taps);
    return reshaped(turned, std::move(joined));
  }

  /// With zeros behind each window, up to a multiple of the stride.
  Value padded(Value weights) {
    Dims high(2, 0);
    for (const Direction& d : directions_) high.emplace_back(d.taps * d.stride - d.kernel);
    if (std::ranges::all_of(high, [](const SymExpr& count) { return count.is_constant(0); }))
      return weights;
    return builder_.emit("pad", {weights}, {{"low", Dims(high.size(), 0)}, {"high", high}});
  }

  Attrs window() const {
    const auto each = [&](auto member) {
      std::vector<std::int64_t> values;
      for (const Direction& d : directions_) values.push_back(d.*member);
      return values;
    };
    const std::vector<std::int64_t> ones(directions_.size(), 1);
    return {{"strides", ones},
            {"dilations", ones},
            {"pads_low", each(&Direction::pad_low)},
            {"pads_high", each(&Direction::pad_high)},
            {"groups", groups_},
            {"channels_last", true}};
  }

  /// The bias once for each phase.
  Value repeated(Value bias) {
    const SymExpr all = channels_ * groups_;
    const Dims one = groups_ == 1 ? Dims{SymExpr(1), all} : Dims{all, SymExpr(1)};
    const Dims each = groups_ == 1 ? Dims{SymExpr(phases_), all} : Dims{all, SymExpr(phases_)};
    const Value rows = builder_.emit("expand", {reshaped(bias, one)}, {{"sizes", each}});
    return reshaped(rows, {all * phases_});
  }

  /// [n, rows..., phases * m] as [n, row_0 * stride_0, …, m].
  Value spread(Value made) {
    const Dims& sizes = made.meta().sizes;
    const auto spatial = static_cast<std::int64_t>(directions_.size());
    const bool phases_first = groups_ == 1;
    Dims apart(sizes.begin(), sizes.end() - 1);
    if (!phases_first) apart.push_back(channels_ * groups_);
    for (const Direction& d : directions_) apart.emplace_back(d.stride);
    if (phases_first) apart.push_back(channels_);
    std::vector<std::int64_t> perm{0};
    Dims joined{sizes[0]};
    for (std::int64_t d = 0; d < spatial; ++d) {
      perm.push_back(d + 1);
      perm.push_back(d + spatial + (phases_first ? 1 : 2));
      joined.push_back(sizes[static_cast<std::size_t>(d) + 1] *
                       directions_[static_cast<std::size_t>(d)].stride);
    }
    perm.push_back(phases_first ? 2 * spatial + 1 : spatial + 1);
    joined.push_back(channels_ * groups_);
    return reshaped(permuted(reshaped(made, std::move(apart)), std::move(perm)), std::move(joined));
  }

  Value cut(Value made) {
    const Dims& sizes = made.meta().sizes;
    Dims start(sizes.size(), 0);
    Dims limit = sizes;
    for (std::size_t d = 0; d < directions_.size(); ++d) {
      start[d + 1] = directions_[d].start;
      limit[d + 1] = directions_[d].start + directions_[d].size;
    }
    const bool starts =
        std::ranges::all_of(directions_, [](const auto& d) { return d.start == 0; });
    if (starts && limit == sizes) return made;
    return builder_.emit("slice", {made},
                         {{"start", start}, {"limit", limit}, {"stride", Dims(sizes.size(), 1)}});
  }

  GraphBuilder& builder_;
  const Node& node_;
  std::int64_t groups_;
  std::vector<Direction> directions_;
  std::int64_t phases_ = 1;
  SymExpr depth_;     ///< c of all groups
  SymExpr channels_;  ///< m of a group
};

}  // namespace

bool is_transposed_conv(const Node& node) {
  if (node.op_name() != "conv_transpose" || node.output().dtype != DType::F32) return false;
  const Dims& weights = node.input(1).meta().sizes;
  const bool known = std::ranges::all_of(std::span(weights).subspan(2), [](const SymExpr& size) {
    return size.is_constant() && size.constant() > 0;
  });
  const bool even = node.integer("groups") == 1 || weights[0].is_constant();
  return known && even &&
         std::ranges::all_of(node.ints("dilations"), [](std::int64_t v) { return v == 1; });
}

Value as_convolution(GraphBuilder& builder, const Node& node, Value x,
                     std::span<const Value> operands) {
  return AsConvolution(builder, node).run(x, operands);
}

}  // namespace heddle::ir
