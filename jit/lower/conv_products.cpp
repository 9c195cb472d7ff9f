#include "jit/lower/conv_products.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "jit/lower/bf16_convs.h"
#include "jit/lower/conv_windows.h"
#include "jit/lower/decompose.h"
#include "jit/lower/fixed_values.h"
#include "jit/lower/neighbours.h"
#include "jit/lower/pack_weights.h"
#include "jit/nests/dot_conv.h"
#include "jit/nests/row_conv.h"

namespace heddle::jit {
namespace {

using ir::Dims;
using ir::Node;
using ir::Value;
using Ints = std::vector<std::int64_t>;

/// Channels of x from which on a product takes longer than what surrounds it.
constexpr std::int64_t kLeastDepth = 64;
/// With narrow vectors (kNarrowBytes), or where more follows than scales and shifts, fewer of them pay, and columns that are multiples of
/// fewer: the library's results are read and written once more by what follows, where a product's are in registers.
constexpr std::int64_t kLeastNarrowDepth = 16;
constexpr std::int64_t kNarrowColumns = 16;

bool all(const Node& node, const char* name, std::int64_t value) {
  return std::ranges::all_of(node.ints(name), [&](std::int64_t v) { return v == value; });
}

bool is_fixed_data(const Node& node) {
  return node.op_name() == "const" || node.op_name() == "param";
}

/// Whether weights [m, c, 1, …] fill panels, or vectors where that is enough.
bool suits(const ir::TensorMeta& weights, bool fills_vectors) {
  for (std::size_t d = 2; d < weights.sizes.size(); ++d)
    if (!weights.sizes[d].is_constant(1)) return false;
  const SymExpr& columns = weights.sizes[0];
  const SymExpr& depth = weights.sizes[1];
  if (fills_vectors)
    return columns.is_constant() && depth.is_constant() &&
           columns.constant() % kNarrowColumns == 0 && depth.constant() >= kLeastNarrowDepth;
  return columns.is_constant() && depth.is_constant() && columns.constant() % kPanelColumns == 0 &&
         depth.constant() >= kLeastDepth &&
         columns.constant() * depth.constant() >= kLeastPackedCount;
}

/// Weights of so many elements stay in no second-level cache: they come from further away for each run.
constexpr std::int64_t kFarCount = std::int64_t{1} << 20;
/// Positions of the result up to which reading such weights takes longer than multiplying them.
constexpr std::int64_t kFewPositions = 64;
constexpr std::int64_t kMaxTaps = 9;

/// Whether a kernel of several elements has weights that are worth fetching ahead for few positions.
bool is_bound_by_weights(const Node& node, const LowerOptions& options) {
  const Dims& weights = node.input(1).meta().sizes;
  const Dims& result = node.output().sizes;
  const SymExpr count = base::product(weights);
  const SymExpr positions = base::product(std::span(result).first(result.size() - 1));
  const SymExpr taps = base::product(std::span(weights).subspan(2));
  return count.is_constant() && count.constant() >= kFarCount && taps.constant() > 1 &&
         taps.constant() <= kMaxTaps && weights[0].constant() % kPanelColumns == 0 &&
         positions.is_constant() && positions.constant() <= kFewPositions &&
         !is_tiled(node, options);
}

/// Whether each window is many elements behind each other, as of filters of sound: rows of a product that overlap. Columns that
/// fill no panels cost as much as the library takes longer.
bool has_long_runs(const Node& node) {
  const std::optional<std::size_t> axis = axis_of_runs(node);
  if (!axis) return false;
  const Dims& weights = node.input(1).meta().sizes;
  if (!weights[1].is_constant(1)) return false;
  const std::int64_t taps = weights[*axis + 1].constant();
  return taps >= kLeastDepth && weights[0].is_constant() &&
         weights[0].constant() % kPanelColumns == 0 &&
         taps * weights[0].constant() >= kLeastPackedCount;
}

/// Channels from which on a product of open sizes takes as long as the library's.
constexpr std::int64_t kFewChannels = 4;

/// Whether a kernel of one element has a result of sizes that are not known: a library makes code for each of them.
bool is_open(const Node& node) {
  const Dims& weights = node.input(1).meta().sizes;
  const auto is_one = [](const SymExpr& size) { return size.is_constant(1); };
  const auto some = [](const SymExpr& size) {
    return size.is_constant() && size.constant() >= kFewChannels;
  };
  return std::all_of(weights.begin() + 2, weights.end(), is_one) && some(weights[0]) &&
         some(weights[1]) && !base::product(node.output().sizes).is_constant();
}

/// The same of windows that are many elements behind each other, of several channels.
bool has_open_runs(const Node& node) {
  const std::optional<std::size_t> axis = axis_of_runs(node);
  if (!axis || base::product(node.output().sizes).is_constant()) return false;
  const Dims& weights = node.input(1).meta().sizes;
  return weights[0].is_constant() && weights[0].constant() >= kFewChannels &&
         !weights[1].is_constant(1) &&
         weights[1].constant() * weights[*axis + 1].constant() >= kLeastDepth;
}

/// Positions of an image from which on its rows fill tiles.
constexpr std::int64_t kManyPositions = 128;
/// Elements of windows that a second-level cache holds beside what is made of them.
constexpr std::int64_t kMostCopied = std::int64_t{1} << 17;

bool is_permute(const Node& node, const Ints& perm) {
  return node.op_name() == "permute" && node.ints("perm") == perm;
}

class ConvConverter {
 public:
  ConvConverter(const ir::Graph& graph, const LowerOptions& options)
      : options_(options), fixed_(options) {
    for (const ir::NodePtr& node : graph.nodes()) {
      const bool front = node->after().empty() && brings_channels_to_front(*node) &&
                         same_unit(*node, *node->input(0).node, options);
      for (const Value& input : node->inputs()) {
        if (!input) continue;
        (front ? fronts_ : others_).insert(input.node);
        readers_[input.node].push_back(node.get());
        // What follows would be computed where channels lie apart, one lane after the other.
        if (brings_channels_to_front(*input.node)) others_.insert(input.node->input(0).node);
      }
    }
    for (const Value& output : graph.outputs()) others_.insert(output.node);
  }

  std::optional<std::vector<Value>> visit(ir::Rewriter& rewriter, const Node& node) {
    if (options_.target == LowerOptions::Target::Cuda) return visit_for_cuda(rewriter, node);
    if (reads_rows(node)) return with_channels_behind(rewriter, node);
    if (const auto made = planes_.find(node.inputs().empty() ? nullptr : node.input(0).node);
        made != planes_.end())
      return std::vector<Value>{made->second};
    const bool product = may_be_product(node);
    if (product && lies_in_planes(node)) return in_planes(rewriter, node);
    if (has_few_columns(node)) return with_terms_behind(rewriter, node);
    if (!product) return std::nullopt;
    const bool one_tap =
        (suits(node.input(1).meta(), options_.vector_bytes <= kNarrowBytes || is_followed(node)) ||
         is_open(node)) &&
        !has_padding(node);
    const bool has_runs =
        has_long_runs(node) || (has_open_runs(node) && !is_tiled_along_rows(node, options_));
    const bool in_place = !one_tap && has_runs && fixed_.contains(node.input(1).node);
    if (!in_place && !is_fixed_data(*node.input(1).node)) return std::nullopt;
    if (!one_tap && !in_place && !is_bound_by_weights(node, options_)) return std::nullopt;
    ir::GraphBuilder& builder = rewriter.builder();
    Value x = rewriter.map(node.input(0));
    Value weights = rewriter.map(node.input(1));
    if (one_tap) {
      x = rows(builder, x, node);
      weights = matrix(builder, weights);
      const std::int64_t count = base::product(weights.meta().sizes).constant();
      // What is too small to be packed lies as it is read, once.
      if (count < kLeastPackedCount) weights = builder.emit("clone", {weights});
    } else {
      Value zero;
      if (has_padding(node)) zero = builder.constant(ir::Literal::scalar(DType::F32, 0));
      x = in_place ? windows_in_place(builder, node, x, zero) : windows_of(builder, node, x, zero);
      weights = filters_of(builder, weights);
    }
    ir::Attrs attrs;
    if (node.flag("bf16") && narrows_convs(options_)) attrs["bf16"] = true;
    Value result = builder.emit("matmul", {x, weights}, std::move(attrs));
    if (node.inputs().size() > 2 && node.input(2))
      result = builder.emit("add", {result, rewriter.map(node.input(2))});
    return std::vector<Value>{result};
  }

 private:
  bool reads_rows(const Node& node) {
    return may_be_row_conv(node, options_.vector_bytes) && !is_row_conv(node) &&
           unit_of(node, options_).fuse && !ir::wants_fallback(node) &&
           fixed_.contains(node.input(1).node);
  }

  /// x with the padding of a convolution, whose attributes then say that there is none.
  static Value padded(ir::GraphBuilder& builder, const Node& node, Value x, ir::Attrs& attrs) {
    const Ints none(node.ints("pads_low").size(), 0);
    attrs["pads_low"] = none;
    attrs["pads_high"] = none;
    return with_padding(builder, node, x, builder.constant(ir::Literal::scalar(DType::F32, 0)));
  }

  /// The same with weights [m, c, k…] that lie as [c, k…, m].
  static std::vector<Value> with_channels_behind(ir::Rewriter& rewriter, const Node& node) {
    ir::GraphBuilder& builder = rewriter.builder();
    std::vector<Value> operands = rewriter.map(node.inputs());
    Ints there(static_cast<std::size_t>(operands[1].meta().rank()));
    std::iota(there.begin(), there.end(), 1);
    there.back() = 0;
    Ints back(there.size());
    std::iota(back.begin(), back.end(), -1);
    back.front() = static_cast<std::int64_t>(back.size()) - 1;
    const Value moved = builder.emit(
        "clone", {builder.emit("permute", {operands[1]}, {{"perm", std::move(there)}})});
    operands[1] = builder.emit("permute", {moved}, {{"perm", std::move(back)}});
    Value& x = operands[0];
    const bool in_lanes = !mixes_channels(node);
    ir::Attrs attrs = node.attrs();
    if (has_many_row_taps(node) && has_padding(node)) {
      x = padded(builder, node, x, attrs);
    } else if (in_lanes && x.node->op_name() == "permute") {
      x = builder.emit("clone", {x});
    }
    return {builder.call(node.op(), operands, attrs)->value()};
  }

  /// Whether elements alone are made of the result, and not just scales and shifts, which are multiplied into the library's weights.
  bool is_followed(const Node& node) {
    for (const Node* at = &node;;) {
      const auto found = readers_.find(at);
      if (found == readers_.end()) return false;
      for (const Node* reader : found->second)
        if (classify(*reader, options_) != NodeClass::Element) return false;
      const Node& reader = *found->second.front();
      if (found->second.size() > 1 || !is_line(reader)) return true;
      at = &reader;
    }
  }

  bool is_line(const Node& node) {
    constexpr std::array<std::string_view, 4> kLines{"add", "sub", "mul", "div"};
    return std::ranges::find(kLines, node.op_name()) != kLines.end() &&
           std::ranges::any_of(node.inputs(),
                               [&](const Value& input) { return fixed_.contains(input.node); });
  }

  bool has_few_columns(const Node& node) {
    return may_be_dot_conv(node, options_.vector_bytes) && !is_dot_conv(node) &&
           unit_of(node, options_).fuse && !ir::wants_fallback(node) &&
           fixed_.contains(node.input(1).node);
  }

  /// The same with weights [m, c, k…] that lie as [m, k…, c].
  std::vector<Value> with_terms_behind(ir::Rewriter& rewriter, const Node& node) const {
    ir::GraphBuilder& builder = rewriter.builder();
    std::vector<Value> operands = rewriter.map(node.inputs());
    const std::size_t rank = node.output().sizes.size();
    const bool one_channel = node.input(1).meta().sizes[1].is_constant(1);
    const Value moved = builder.emit(
        "clone", {builder.emit("permute", {operands[1]}, {{"perm", channels_to_last(rank)}})});
    operands[1] = builder.emit("permute", {moved}, {{"perm", channels_to_front(rank)}});
    ir::Attrs attrs = node.attrs();
    if (has_many_row_taps(node) && has_padding(node)) {
      operands[0] = padded(builder, node, operands[0], attrs);
    } else if (!lies_along(operands[0], rank - (one_channel ? 2 : 1), options_)) {
      operands[0] = builder.emit("clone", {operands[0]});
    }
    return {builder.call(node.op(), operands, attrs)->value()};
  }

  static bool brings_channels_to_front(const Node& node) {
    return node.op_name() == "permute" && node.output().rank() >= 3 &&
           is_permute(node, channels_to_front(node.output().sizes.size()));
  }

  /// Whether a convolution reads and gives images with their channels first, of which one is a matrix of channels by positions.
  bool lies_in_planes(const Node& node) {
    const std::size_t rank = node.output().sizes.size();
    if (!fronts_.contains(&node) || others_.contains(&node) || !fixed_.contains(node.input(1).node))
      return false;
    const Dims& weights = node.input(1).meta().sizes;
    const Dims& sizes = node.output().sizes;
    const SymExpr positions = base::product(std::span(sizes).subspan(1, rank - 2));
    const SymExpr taps = base::product(std::span(weights).subspan(2));
    if (!positions.is_constant() || positions.constant() < kManyPositions) return false;
    if (!taps.is_constant(1))
      return weights[1].is_constant(1) && axis_of_runs(node) &&
             base::provably_nonnegative(
                 kMostCopied - base::product(std::span(sizes).first(rank - 1)) * taps, {});
    return !has_padding(node) && is_permute(*node.input(0).node, channels_to_last(rank));
  }

  /// As one product for each image, rows of which are channels. What reads it is replaced by its result.
  std::vector<Value> in_planes(ir::Rewriter& rewriter, const Node& node) {
    ir::GraphBuilder& builder = rewriter.builder();
    const Dims& sizes = node.output().sizes;
    const std::size_t rank = sizes.size();
    Value x;
    if (base::product(std::span(node.input(1).meta().sizes).subspan(2)).is_constant(1)) {
      x = rewriter.map(node.input(0).node->input(0));
      if (!all(node, "strides", 1)) {
        x = every(builder, rewriter.map(node.input(0)), node);
        x = builder.emit("permute", {x}, {{"perm", channels_to_front(rank)}});
        x = builder.emit("clone", {x});
      }
    } else {
      Value zero;
      if (has_padding(node)) zero = builder.constant(ir::Literal::scalar(DType::F32, 0));
      x = windows_in_place(builder, node, rewriter.map(node.input(0)), zero);
      x = builder.emit("permute", {x}, {{"perm", channels_to_front(rank)}});
      x = builder.emit("clone", {x});
    }
    const SymExpr positions = base::product(std::span(sizes).subspan(1, rank - 2));
    const Dims flat{sizes[0], x.meta().sizes[1], positions};
    const Value weights = rewriter.map(node.input(1));
    const Dims rows{weights.meta().sizes[0], flat[1]};
    Value made = builder.emit("matmul", {builder.emit("reshape", {weights}, {{"sizes", rows}}),
                                         builder.emit("reshape", {x}, {{"sizes", flat}})});
    if (node.inputs().size() > 2 && node.input(2))
      made = builder.emit("add", {made, by_channel(builder, rewriter.map(node.input(2)), 3)});
    Dims first = sizes;
    first.pop_back();
    first.insert(first.begin() + 1, sizes.back());
    made = builder.emit("reshape", {made}, {{"sizes", std::move(first)}});
    planes_[&node] = made;
    return {builder.emit("permute", {made}, {{"perm", channels_to_last(rank)}})};
  }

  bool may_be_product(const Node& node) const {
    return node.op_name() == "conv" && node.flag("channels_last") &&
           node.output().dtype == DType::F32 && node.integer("groups") == 1 &&
           classify(node, options_) == NodeClass::Library && unit_of(node, options_).fuse &&
           !ir::wants_fallback(node);
  }

  std::optional<std::vector<Value>> visit_for_cuda(ir::Rewriter& rewriter, const Node& node) const {
    if (!is_product_on_cuda(node)) return std::nullopt;
    ir::GraphBuilder& builder = rewriter.builder();
    const Value x = rewriter.map(node.input(0));
    const Value weights = rewriter.map(node.input(1));
    const Dims& sizes = x.meta().sizes;
    const bool bytes = node.op_name() == "int8_conv";
    const std::string_view product = bytes ? "int8_matmul" : "matmul";
    ir::Attrs attrs;
    if (!bytes) attrs["tf32"] = node.flag("tf32");
    Value bias;
    if (!bytes && node.inputs().size() > 2) bias = rewriter.map(node.input(2));
    Value result;
    if (node.flag("channels_last")) {
      result = builder.emit(product, {x, matrix(builder, weights)}, attrs);
    } else {
      const Dims flat{sizes[0], sizes[1], base::product(std::span(sizes).subspan(2))};
      const Value positions = builder.emit("reshape", {x}, {{"sizes", flat}});
      const Value made = builder.emit(product, {rows_of(builder, weights), positions}, attrs);
      result = builder.emit("reshape", {made}, {{"sizes", node.output().sizes}});
      if (bias) bias = by_channel(builder, bias, node.output().rank());
    }
    if (bias) result = builder.emit("add", {result, bias});
    return std::vector<Value>{result};
  }

  bool is_product_on_cuda(const Node& node) const {
    const bool bytes = node.op_name() == "int8_conv";
    if (!bytes && (node.op_name() != "conv" || node.integer("groups") != 1)) return false;
    const DType dtype = node.output().dtype;
    const Dims& weights = node.input(1).meta().sizes;
    const auto is_one = [](const SymExpr& size) { return size.is_constant(1); };
    return (bytes || dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16) &&
           std::all_of(weights.begin() + 2, weights.end(), is_one) && all(node, "strides", 1) &&
           all(node, "pads_low", 0) && all(node, "pads_high", 0) &&
           classify(node, options_) == NodeClass::Nest && unit_of(node, options_).fuse &&
           !ir::wants_fallback(node);
  }

  /// The positions of x that windows begin at, row-major.
  Value rows(ir::GraphBuilder& builder, Value x, const Node& node) {
    const bool strided = !all(node, "strides", 1);
    if (!strided && x.node->op_name() != "permute") return x;
    Value& made = rows_[{x, node.ints("strides")}];
    if (!made) made = builder.emit("clone", {strided ? every(builder, x, node) : x});
    return made;
  }

  static Value every(ir::GraphBuilder& builder, Value x, const Node& node) {
    const Dims& sizes = x.meta().sizes;
    Dims stride(sizes.size(), SymExpr(1));
    for (std::size_t d = 0; d < node.ints("strides").size(); ++d)
      stride[d + 1] = node.ints("strides")[d];
    return builder.emit(
        "slice", {x},
        {{"start", Dims(sizes.size(), SymExpr(0))}, {"limit", sizes}, {"stride", stride}});
  }

  /// [m, c, 1, …] as [m, c].
  static Value rows_of(ir::GraphBuilder& builder, Value weights) {
    const Dims& sizes = weights.meta().sizes;
    return builder.emit("reshape", {weights}, {{"sizes", Dims{sizes[0], sizes[1]}}});
  }

  /// [m, c, 1, …] as [c, m].
  static Value matrix(ir::GraphBuilder& builder, Value weights) {
    const Value flat = rows_of(builder, weights);
    return builder.emit("permute", {flat}, {{"perm", std::vector<std::int64_t>{1, 0}}});
  }

  /// [m] as [m, 1, …], what a result of this rank adds to each of its images.
  static Value by_channel(ir::GraphBuilder& builder, Value bias, std::int64_t rank) {
    Dims sizes(static_cast<std::size_t>(rank - 1), SymExpr(1));
    sizes[0] = bias.meta().sizes[0];
    return builder.emit("reshape", {bias}, {{"sizes", sizes}});
  }

  const LowerOptions& options_;
  FixedValues fixed_;
  std::set<const Node*> fronts_;  ///< nodes whose results' channels are brought to the front
  std::set<const Node*> others_;  ///< nodes whose results something else reads
  std::map<const Node*, std::vector<const Node*>> readers_;
  std::map<const Node*, Value> planes_;  ///< results of convolutions, channels first
  std::map<std::pair<Value, std::vector<std::int64_t>>, Value> rows_;  ///< by x and strides
};

}  // namespace

ir::Graph convs_as_products(const ir::Graph& graph, const LowerOptions& options) {
  ConvConverter converter(graph, options);
  return ir::rewrite(graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) {
    return converter.visit(rewriter, *node);
  });
}

}  // namespace heddle::jit
