#include "jit/lower/conv_windows.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "ir/passes/form_regions.h"
#include "jit/library.h"
#include "jit/lower/decompose.h"

namespace heddle::jit {
namespace {

using ir::Dims;
using ir::GraphBuilder;
using ir::Node;
using ir::Value;
using Ints = std::vector<std::int64_t>;

Dims around(const Ints& pads) {
  Dims sizes{SymExpr(0)};
  sizes.insert(sizes.end(), pads.begin(), pads.end());
  sizes.emplace_back(0);
  return sizes;
}

/// What `tap` of each window reads; `from` itself where that is all of it.
Value slice(GraphBuilder& builder, const Node& conv, Value from, const Ints& tap) {
  const Ints& strides = conv.ints("strides");
  const Ints& dilations = conv.ints("dilations");
  const Dims& kernel = conv.input(1).meta().sizes;
  Dims start(kernel.size(), SymExpr(0));
  Dims limit = from.meta().sizes;
  Dims stride(kernel.size(), SymExpr(1));
  bool is_part = false;
  for (std::size_t d = 0; d < tap.size(); ++d) {
    const std::int64_t after = (kernel[d + 2].constant() - 1 - tap[d]) * dilations[d];
    start[d + 1] = tap[d] * dilations[d];
    limit[d + 1] = limit[d + 1] - after;
    stride[d + 1] = strides[d];
    is_part = is_part || tap[d] != 0 || after != 0 || strides[d] != 1;
  }
  if (!is_part) return from;
  return builder.emit("slice", {from}, {{"start", start}, {"limit", limit}, {"stride", stride}});
}

}  // namespace

Ints channels_to_last(std::size_t rank) {
  Ints perm(rank);
  std::iota(perm.begin(), perm.end(), 1);
  perm.front() = 0;
  perm.back() = 1;
  return perm;
}
Ints channels_to_front(std::size_t rank) {
  Ints perm(rank);
  std::iota(perm.begin(), perm.end(), -1);
  perm[0] = 0;
  perm[1] = static_cast<std::int64_t>(rank) - 1;
  return perm;
}

namespace {

/// Whether the library has a kernel of tiles for the channels of `conv`, which moves by one element.
bool may_be_tiled(const Node& conv, const LowerOptions& options) {
  const Dims& weights = conv.input(1).meta().sizes;
  const auto is_multiple = [](const SymExpr& size, std::int64_t of) {
    return size.is_constant() && size.constant() % of == 0;
  };
  const auto all_one = [&](const char* name) {
    return std::ranges::all_of(conv.ints(name), [](std::int64_t v) { return v == 1; });
  };
  return options.vector_bytes >= kTiledVectorBytes && conv.integer("groups") == 1 &&
         is_multiple(weights[0], kTiledResults) && is_multiple(weights[1], kTiledChannels) &&
         all_one("strides") && all_one("dilations") && unit_of(conv, options).winograd &&
         classify(conv, options) == NodeClass::Library;
}

}  // namespace

bool is_tiled(const Node& conv, const LowerOptions& options) {
  constexpr std::int64_t kLeastPositions = 36;
  const Dims& weights = conv.input(1).meta().sizes;
  const Dims& result = conv.output().sizes;
  const SymExpr positions = base::product(std::span(result).first(result.size() - 1));
  const auto at_most_one = [&](const char* name) {
    return std::ranges::all_of(conv.ints(name), [](std::int64_t v) { return v <= 1; });
  };
  return weights.size() == 4 && weights[2].is_constant(3) && weights[3].is_constant(3) &&
         at_most_one("pads_low") && at_most_one("pads_high") &&
         (!positions.is_constant() || positions.constant() >= kLeastPositions) &&
         may_be_tiled(conv, options);
}

bool is_tiled_along_rows(const Node& conv, const LowerOptions& options) {
  constexpr std::int64_t kFewChannels = 32;
  const Dims& weights = conv.input(1).meta().sizes;
  const auto axis = axis_of_runs(conv);
  if (!axis || *axis != weights.size() - 2 || weights.size() > 4) return false;
  const SymExpr& taps = weights.back();
  const auto fits = [&](const char* name) { return conv.ints(name).back() < taps.constant(); };
  return (taps.is_constant(3) || taps.is_constant(5)) && fits("pads_low") && fits("pads_high") &&
         may_be_tiled(conv, options) && weights[0].constant() >= kFewChannels &&
         weights[1].constant() >= kFewChannels;
}

bool has_padding(const Node& conv) {
  const auto pads = [](std::int64_t pad) { return pad != 0; };
  return std::ranges::any_of(conv.ints("pads_low"), pads) ||
         std::ranges::any_of(conv.ints("pads_high"), pads);
}

Value with_padding(GraphBuilder& builder, const Node& conv, Value x, Value zero) {
  if (!has_padding(conv)) return x;
  return builder.emit(
      "pad", {x, zero},
      {{"low", around(conv.ints("pads_low"))}, {"high", around(conv.ints("pads_high"))}});
}

std::optional<std::size_t> axis_of_runs(const Node& conv) {
  const Dims& kernel = conv.input(1).meta().sizes;
  if (!kernel[1].is_constant()) return {};
  std::optional<std::size_t> axis;
  for (std::size_t d = 0; d + 2 < kernel.size(); ++d) {
    const bool stays = kernel[d + 2].is_constant(1) && conv.ints("strides")[d] == 1 &&
                       conv.ints("pads_low")[d] == 0 && conv.ints("pads_high")[d] == 0;
    if (stays) continue;
    if (axis || !kernel[d + 2].is_constant() || conv.ints("dilations")[d] != 1) return {};
    axis = d + 1;
  }
  if (!kernel[1].is_constant(1) && axis != kernel.size() - 2) return {};
  return axis;
}

Value windows_in_place(GraphBuilder& builder, const Node& conv, Value x, Value zero) {
  x = with_padding(builder, conv, x, zero);
  const std::size_t axis = *axis_of_runs(conv);
  const std::int64_t channels = conv.input(1).meta().sizes[1].constant();
  Dims sizes = x.meta().sizes;
  sizes.pop_back();
  sizes[axis] *= channels;
  const Value flat = builder.emit("reshape", {x}, {{"sizes", std::move(sizes)}});
  return builder.emit("unfold", {flat},
                      {{"axis", static_cast<std::int64_t>(axis)},
                       {"size", conv.input(1).meta().sizes[axis + 1].constant() * channels},
                       {"step", conv.ints("strides")[axis - 1] * channels}});
}

namespace {

/// What each tap of a window reads of `x`, which has its padding.
std::vector<Value> slices_of(GraphBuilder& builder, const Node& conv, Value x) {
  const Dims& kernel = conv.input(1).meta().sizes;
  const std::int64_t taps = base::product(std::span(kernel).subspan(2)).constant();
  std::vector<Value> slices;
  Ints tap(kernel.size() - 2, 0);
  for (std::int64_t k = 0; k < taps; ++k) {
    std::int64_t rest = k;
    for (std::size_t d = tap.size(); d-- > 0;) {
      tap[d] = rest % kernel[d + 2].constant();
      rest /= kernel[d + 2].constant();
    }
    slices.push_back(slice(builder, conv, x, tap));
  }
  return slices;
}

}  // namespace

Value window_sums(GraphBuilder& builder, const Node& conv, Value x, Value zero) {
  const std::vector<Value> slices = slices_of(builder, conv, with_padding(builder, conv, x, zero));
  Value sum = slices[0];
  for (std::size_t k = 1; k < slices.size(); ++k) sum = builder.emit("add", {sum, slices[k]});
  return sum;
}

Value windows_of(GraphBuilder& builder, const Node& conv, Value x, Value zero) {
  x = with_padding(builder, conv, x, zero);
  const std::vector<Value> slices = slices_of(builder, conv, x);
  if (slices.size() > 1)
    return builder.call("concat", slices, {{"axis", std::int64_t{-1}}})->value();
  const bool moves = x.node->op_name() == "permute" || slices[0] != x;
  return moves ? builder.emit("clone", {slices[0]}) : x;
}

ir::Attrs panel_conv_attrs(const Node& conv) {
  const Dims& weights = conv.input(1).meta().sizes;
  Ints kernel;
  for (std::size_t d = 2; d < weights.size(); ++d) kernel.push_back(weights[d].constant());
  ir::Attrs attrs{{"columns", weights[0].constant()}, {"kernel", std::move(kernel)}};
  for (const char* name : {"strides", "pads_low", "pads_high", "dilations"})
    attrs[name] = conv.ints(name);
  return attrs;
}

Value filters_of(GraphBuilder& builder, Value weights) {
  const Dims& sizes = weights.meta().sizes;
  Ints perm;
  for (std::int64_t d = 2; d < static_cast<std::int64_t>(sizes.size()); ++d) perm.push_back(d);
  perm.insert(perm.end(), {1, 0});
  const Value turned = builder.emit("permute", {weights}, {{"perm", perm}});
  const SymExpr depth = base::product(std::span(sizes).subspan(1));
  return builder.emit("reshape", {turned}, {{"sizes", Dims{depth, sizes[0]}}});
}

}  // namespace heddle::jit
