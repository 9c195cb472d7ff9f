#include "jit/cpu/onednn/problem.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "jit/cpu/onednn/winograd.h"

namespace heddle::jit::onednn {

namespace {

Ints grouped(const Ints& sizes, std::int64_t groups) {
  if (groups == 1) return sizes;
  Ints result{groups, sizes[0] / groups};
  result.insert(result.end(), sizes.begin() + 1, sizes.end());
  return result;
}

/// Runs along the first of two spatial dimensions only: [L, 1].
bool is_column(const Problem& problem) {
  const auto ends_in_one = [](const Ints& sizes) { return sizes.size() == 4 && sizes[3] == 1; };
  return ends_in_one(problem.x) && ends_in_one(problem.weights) && ends_in_one(problem.result);
}

/// oneDNN runs along the last dimension, so it is shown a column as a row [1, L]: the same bytes.
void turn(Problem& problem) {
  for (Ints* list : {&problem.x, &problem.weights, &problem.result, &problem.strides,
                     &problem.dilations, &problem.pads_low, &problem.pads_high})
    std::swap(list->end()[-1], list->end()[-2]);
}

/// A row [L] as an image [1, L]: the kernels that oneDNN has for groups of one channel know no rows.
void make_image(Problem& problem) {
  for (Ints* sizes : {&problem.x, &problem.weights, &problem.result})
    sizes->insert(sizes->end() - 1, 1);
  problem.strides.insert(problem.strides.begin(), 1);
  for (Ints* list : {&problem.dilations, &problem.pads_low, &problem.pads_high})
    list->insert(list->begin(), 0);
}

bool all(const Ints& list, std::int64_t value) {
  return std::ranges::all_of(list, [&](std::int64_t v) { return v == value; });
}

/// Reads one position for each one of the result, in the same order.
bool keeps_positions(const Problem& problem) {
  const Ints kernel(problem.weights.begin() + 2, problem.weights.end());
  return problem.channels_last && all(kernel, 1) && all(problem.strides, 1) &&
         all(problem.pads_low, 0) && all(problem.pads_high, 0);
}

/// All positions of all images side by side: the same bytes, which may be cut anywhere.
void join_positions(Problem& problem) {
  const std::int64_t positions = positions_of(problem);
  for (Ints* sizes : {&problem.x, &problem.result}) {
    const std::int64_t channels = (*sizes)[1];
    std::ranges::fill(*sizes, 1);
    (*sizes)[1] = channels;
    sizes->back() = positions;
  }
}

std::int64_t rounded_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

std::int64_t elements_of(const Ints& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

Problem problem_of(const LibraryCall& call, std::span<const LibraryOperand> operands) {
  const auto ints = [&](const char* name) { return std::get<Ints>(call.attrs.at(name)); };
  Problem problem{.x = operands[0].sizes,
                  .weights = operands[1].sizes,
                  .result = operands.back().sizes,
                  .has_bias = call.node_inputs == 3,
                  .strides = ints("strides"),
                  .dilations = ints("dilations"),
                  .pads_low = ints("pads_low"),
                  .pads_high = ints("pads_high")};
  for (std::int64_t& dilation : problem.dilations) --dilation;
  const auto last = call.attrs.find("channels_last");
  problem.channels_last = last != call.attrs.end() && std::get<bool>(last->second);
  if (problem.channels_last) {
    for (Ints* sizes : {&problem.x, &problem.result})
      std::rotate(sizes->begin() + 1, sizes->end() - 1, sizes->end());
  }
  if (problem.strides.size() == 1) make_image(problem);
  if (keeps_positions(problem))
    join_positions(problem);
  else if (is_column(problem))
    turn(problem);
  problem.weights = grouped(problem.weights, std::get<std::int64_t>(call.attrs.at("groups")));
  return problem;
}

std::optional<TileForm> form_of(const Problem& problem, Algorithm algorithm) {
  if (!is_winograd(algorithm) || problem.weights.size() != 4) return std::nullopt;
  for (const TileForm& form : kTileForms)
    if ((form == kTiles2) == (algorithm == Algorithm::SmallWinograd) &&
        problem.weights[2] == form.taps_down && problem.weights[3] == form.taps_across)
      return form;
  return std::nullopt;
}

bool fits_winograd(const Problem& problem) {
  const auto form = form_of(problem, Algorithm::Winograd);
  if (!form || !problem.channels_last || !all(problem.strides, 1) || !all(problem.dilations, 0))
    return false;
  const bool is_square = *form == kTiles4;
  const auto fits = [&](const Ints& pads) {
    return is_square ? pads[0] <= 1 && pads[1] <= 1
                     : pads[0] < form->taps_down && pads[1] < form->taps_across;
  };
  return fits(problem.pads_low) && fits(problem.pads_high) && (is_square || has_winograd(problem));
}

namespace {

/// Whether a core does two multiply-adds of 64 bytes in a cycle. Those of AMD's family 25 that have such instructions do
/// one.
bool multiplies_fast() {
  static const bool fast =
      kernel_isas().front() == KernelIsa::Avx512 && !__builtin_cpu_is("amdfam19h");
  return fast;
}

}  // namespace

/// Measured by bench/conv_ways_bench on Zen 5, with vectors of 64 bytes and of 32: the choice costs 0.7 and 0.5 % of the time on average
/// over the sizes there.
ConvCosts costs_of_ours() {
  if (multiplies_fast())
    return {
        .transform = 2, .weight = 5, .far_weight = 8, .direct_weight = 4, .direct_call = 150'000};
  return {.transform = 2, .weight = 2, .far_weight = 5, .direct_weight = 3, .direct_call = 50'000};
}

namespace {

/// Of oneDNN's kernel, measured on the Xeon.
constexpr ConvCosts kCostsOfOneDnn{
    .transform = 26, .weight = 24, .far_weight = 24, .direct_weight = 0, .direct_call = 0};

/// For elements that oneDNN puts into another order.
std::int64_t cost_of_reorders(const Problem& problem, std::int64_t weights) {
  constexpr std::int64_t kCachedWeights = std::int64_t{1} << 17;
  constexpr std::int64_t kReorder = 13;
  constexpr std::int64_t kFarReorder = 40;  ///< where the weights are too large to do it in parts
  const std::int64_t moved = elements_of(problem.x) + elements_of(problem.result);
  return moved * (weights <= kCachedWeights ? kReorder : kFarReorder);
}

}  // namespace

std::int64_t tiles_of(const Problem& problem, const TileForm& form) {
  return problem.result[0] * (rounded_up(problem.result[2], form.down) / form.down) *
         (rounded_up(problem.result[3], form.across) / form.across);
}

Algorithm algorithm_for(const Problem& problem, std::int64_t bytes) {
  if (!fits_winograd(problem)) return Algorithm::Direct;
  constexpr std::int64_t kCachedBytes = std::int64_t{12}
                                        << 20;  ///< transformed, four times as many
  constexpr std::int64_t kVector = 16;
  constexpr std::int64_t kLargeWeights = std::int64_t{1} << 17;  ///< 19 MB in tiles of 4 x 4
  const bool ours = has_winograd(problem);
  const ConvCosts costs = ours ? costs_of_ours() : kCostsOfOneDnn;
  const std::int64_t in = rounded_up(problem.x[1], kVector);
  const std::int64_t out = rounded_up(problem.result[1], kVector);
  const bool is_far = bytes > kCachedBytes || in * out >= kLargeWeights;
  const std::int64_t weight = is_far ? costs.far_weight : costs.weight;
  const auto cost_in_tiles = [&](Algorithm algorithm) {
    const auto form = form_of(problem, algorithm);
    if (!form) return std::numeric_limits<std::int64_t>::max();
    const std::int64_t tiles = tiles_of(problem, *form);
    return form->points() *
           (tiles * in * out + costs.transform * tiles * (in + out) + weight * in * out);
  };
  const std::int64_t winograd =
      cost_in_tiles(Algorithm::Winograd) + (ours ? 0 : cost_of_reorders(problem, in * out));
  // The direct kernel multiplies whole vectors too.
  const std::int64_t results = ours ? out : problem.result[1];
  const std::int64_t direct = (positions_of(problem) + costs.direct_weight) * problem.x[1] *
                                  results * (problem.weights[2] * problem.weights[3]) +
                              costs.direct_call;
  const std::int64_t most = direct / 8 * 7;
  if (const std::int64_t small = cost_in_tiles(Algorithm::SmallWinograd); ours && small < winograd)
    return small < most ? Algorithm::SmallWinograd : Algorithm::Direct;
  return winograd < most ? Algorithm::Winograd : Algorithm::Direct;
}

std::int64_t positions_of(const Problem& problem) {
  return problem.result[1] == 0 ? 0 : elements_of(problem.result) / problem.result[1];
}

}  // namespace heddle::jit::onednn
