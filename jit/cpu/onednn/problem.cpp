#include "jit/cpu/onednn/problem.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "jit/cpu/onednn/winograd.h"

namespace heddle::jit::onednn {

namespace {

/// Of x or the result of a part that stays in a second-level cache beside its weights.
constexpr std::int64_t kResidentElements = std::int64_t{1} << 17;
/// Images that second-level caches do not hold are computed in smaller parts, a few of each convolution in turn.
constexpr std::int64_t kLargeElements = 4 * kResidentElements;
constexpr std::int64_t kChainElements = kResidentElements / 2;

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

std::int64_t slice_elements(const Ints& sizes, std::size_t axis) {
  std::int64_t count = sizes[1];
  for (std::size_t k = axis == 0 ? 2 : axis + 1; k < sizes.size(); ++k) count *= sizes[k];
  return count;
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

/// What the two algorithms cost besides their products, in multiply-adds at the rate of the direct one.
struct Costs {
  std::int64_t transform;      ///< an element put into or taken out of the tiles
  std::int64_t weight;         ///< a transformed weight from a cache
  std::int64_t far_weight;     ///< from memory, or of more than a third-level cache holds
  std::int64_t direct_weight;  ///< a weight of the direct algorithm
  std::int64_t direct_call;
};

/// Whether a core does two multiply-adds of 64 bytes in a cycle. Those of AMD's family 25 that have such instructions do
/// one.
bool multiplies_fast() {
  static const bool fast =
      kernel_isas().front() == KernelIsa::Avx512 && !__builtin_cpu_is("amdfam19h");
  return fast;
}

/// Measured by bench/conv_ways_bench on Zen 5, with vectors of 64 bytes and of 32: the choice costs 0.7 and 0.5 % of the time on average
/// over the sizes there.
Costs costs_of_ours() {
  if (multiplies_fast())
    return {
        .transform = 2, .weight = 5, .far_weight = 8, .direct_weight = 4, .direct_call = 150'000};
  return {.transform = 2, .weight = 2, .far_weight = 5, .direct_weight = 3, .direct_call = 50'000};
}

/// Of oneDNN's kernel, measured on the Xeon.
constexpr Costs kCostsOfOneDnn{
    .transform = 26, .weight = 24, .far_weight = 24, .direct_weight = 0, .direct_call = 0};

/// For elements that oneDNN puts into another order.
std::int64_t cost_of_reorders(const Problem& problem, std::int64_t weights) {
  constexpr std::int64_t kReorder = 13;
  constexpr std::int64_t kFarReorder = 40;  ///< where the weights are too large to do it in parts
  const std::int64_t moved = elements_of(problem.x) + elements_of(problem.result);
  return moved * (weights <= kResidentElements ? kReorder : kFarReorder);
}

/// Of Winograd's algorithm.
std::int64_t tiles_of(const Problem& problem, const TileForm& form) {
  return problem.result[0] * (rounded_up(problem.result[2], form.down) / form.down) *
         (rounded_up(problem.result[3], form.across) / form.across);
}

}  // namespace

Algorithm algorithm_for(const Problem& problem, std::int64_t bytes) {
  if (!fits_winograd(problem)) return Algorithm::Direct;
  constexpr std::int64_t kCachedBytes = std::int64_t{12}
                                        << 20;  ///< transformed, four times as many
  constexpr std::int64_t kVector = 16;
  constexpr std::int64_t kLargeWeights = std::int64_t{1} << 17;  ///< 19 MB in tiles of 4 x 4
  const bool ours = has_winograd(problem);
  const Costs costs = ours ? costs_of_ours() : kCostsOfOneDnn;
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

std::int64_t Cut::begin(std::int64_t part, std::int64_t size) const {
  if (part == parts) return size;
  return (size * part / parts + unit / 2) / unit * unit;
}

namespace {

/// Slices of a part, at least: one of fewer positions reads weights for longer than it multiplies by them.
std::int64_t least_slices(const Problem& problem, std::size_t axis) {
  constexpr std::int64_t kMost = 3;
  constexpr std::int64_t kLeastPositions = 20;
  if (axis >= problem.result.size() || problem.result[axis] == 0) return kMost;
  const std::int64_t slice = positions_of(problem) / problem.result[axis];
  return std::clamp<std::int64_t>(kLeastPositions / std::max<std::int64_t>(1, slice), 1, kMost);
}

/// Panels of the channels of an image's result that the threads share evenly; 0: parts of rows are as good.
std::int64_t parts_by_channels(const Problem& problem, Algorithm algorithm, int threads) {
  const std::int64_t panels = winograd_weights(problem)[1];
  const bool even = panels % threads == 0 || panels >= 4 * std::int64_t{threads};
  const Costs costs = costs_of_ours();
  // A part by channels also reads all of x, most of it from other cores' caches.
  constexpr std::int64_t kFarElements = 13;
  const bool pays =
      costs.far_weight * problem.result[1] >
      kFarElements * costs.transform * tiles_of(problem, *form_of(problem, algorithm));
  return threads > 1 && problem.result[0] == 1 && even && pays ? threads : 0;
}

/// Whether each channel of the result is of one of x alone.
bool is_depthwise(const Problem& problem) {
  return problem.weights.size() > problem.result.size() && problem.weights[1] == 1 &&
         problem.weights[2] == 1;
}

/// The library adds up channels in an order that depends on the length of a row: rows are cut into the same parts for any number of
/// threads, which costs one thread up to 3 %. Of lengths that rows of other lengths have too.
Cut cut_of_row(std::size_t axis, std::int64_t length, std::int64_t wanted) {
  constexpr std::int64_t kLeast = 24;
  constexpr std::int64_t kUsual = 2 * kLeast;
  constexpr std::int64_t kLong = 256;
  constexpr std::int64_t kUnit = 8;
  const std::int64_t parts = std::max({std::min<std::int64_t>(length / kLeast, 4),
                                       std::min<std::int64_t>(length / kUsual, 8), length / kLong});
  const std::int64_t most = length / kLeast;
  return {axis,
          std::clamp<std::int64_t>(std::max(parts, wanted), 1, std::max<std::int64_t>(1, most)),
          kUnit, true};
}

}  // namespace

Cut cut_of(const Problem& problem, Algorithm algorithm, int threads, bool resident,
           bool by_channels) {
  if (by_channels && is_winograd(algorithm) && has_winograd(problem))
    if (const std::int64_t parts = parts_by_channels(problem, algorithm, threads))
      return {1, parts, 1};
  std::size_t axis = 0;
  while (axis + 1 < problem.result.size() && problem.result[axis] == 1 && problem.x[axis] == 1)
    axis = axis == 0 ? 2 : axis + 1;
  const bool divides = problem.channels_last && axis < problem.result.size();
  std::int64_t unit = 1;
  if (const auto form = form_of(problem, algorithm); form && axis != 0)
    unit = axis == 2 ? form->down : form->across;
  const std::int64_t least = axis == 0 ? 1 : std::max(least_slices(problem, axis), unit);
  const std::int64_t most = divides ? std::max<std::int64_t>(1, problem.result[axis] / least) : 1;
  const bool is_row = algorithm == Algorithm::Direct && !is_depthwise(problem) && axis != 0 &&
                      axis + 1 == problem.result.size();
  std::int64_t wanted = is_row ? 1 : threads;
  const std::int64_t elements = std::max(elements_of(problem.x), elements_of(problem.result));
  const bool is_large = elements > kLargeElements;
  if (resident || is_large) {
    // Each part reads all weights again.
    const std::int64_t weights = std::max<std::int64_t>(1, elements_of(problem.weights));
    const std::int64_t each = is_large ? kChainElements : kResidentElements;
    const std::int64_t whole = std::max<std::int64_t>(1, elements / std::max(each, weights));
    wanted = rounded_up(whole, wanted);
  }
  if (is_row && divides) return cut_of_row(axis, problem.result[axis], wanted);
  return {axis, std::clamp<std::int64_t>(wanted, 1, most), unit};
}

std::optional<PartOf> part_of(const Problem& whole, const Cut& cut, std::int64_t part) {
  PartOf made{whole};
  const std::size_t axis = cut.axis;
  if (axis == 1) return made;
  const std::int64_t begin = cut.begin(part, whole.result[axis]);
  const std::int64_t end = cut.begin(part + 1, whole.result[axis]);
  std::int64_t first = begin;
  std::int64_t last = end;
  if (axis >= 2) {
    const std::size_t d = axis - 2;
    const std::int64_t kernel = whole.weights[whole.weights.size() - whole.strides.size() + d];
    first = begin * whole.strides[d] - whole.pads_low[d];
    last = (end - 1) * whole.strides[d] - whole.pads_low[d] +
           (kernel - 1) * (whole.dilations[d] + 1) + 1;
    made.problem.pads_low[d] = std::max<std::int64_t>(0, -first);
    made.problem.pads_high[d] = std::max<std::int64_t>(0, last - whole.x[axis]);
    first = std::max<std::int64_t>(0, first);
    last = std::min(last, whole.x[axis]);
    if (first >= last) return {};
  }
  made.problem.x[axis] = last - first;
  made.problem.result[axis] = end - begin;
  made.x_offset = first * slice_elements(whole.x, axis);
  made.result_offset = begin * slice_elements(whole.result, axis);
  return made;
}

std::int64_t positions_of(const Problem& problem) {
  return problem.result[1] == 0 ? 0 : elements_of(problem.result) / problem.result[1];
}

}  // namespace heddle::jit::onednn
