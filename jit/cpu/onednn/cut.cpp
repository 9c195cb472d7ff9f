#include "jit/cpu/onednn/cut.h"

#include <algorithm>

namespace heddle::jit::onednn {

namespace {

/// Of x or the result of a part that stays in a second-level cache beside its weights.
constexpr std::int64_t kResidentElements = std::int64_t{1} << 17;
/// Images that second-level caches do not hold are computed in smaller parts, a few of each convolution in turn.
constexpr std::int64_t kLargeElements = 4 * kResidentElements;
constexpr std::int64_t kChainElements = kResidentElements / 2;

std::int64_t slices_for(std::int64_t size, std::int64_t each) { return (size + each - 1) / each; }

std::int64_t slice_elements(const Ints& sizes, std::size_t axis) {
  std::int64_t count = sizes[1];
  for (std::size_t k = axis == 0 ? 2 : axis + 1; k < sizes.size(); ++k) count *= sizes[k];
  return count;
}

/// Slices of a part, at least: one of fewer positions reads weights for longer than it multiplies by them.
std::int64_t least_slices(const Problem& problem, std::size_t axis) {
  constexpr std::int64_t kMost = 3;
  constexpr std::int64_t kLeastPositions = 20;
  if (axis >= problem.result.size() || problem.result[axis] == 0) return kMost;
  const std::int64_t slice = positions_of(problem) / problem.result[axis];
  return std::clamp<std::int64_t>(kLeastPositions / std::max<std::int64_t>(1, slice), 1, kMost);
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

/// The dimension along which slices are whole runs of memory.
struct Axis {
  std::size_t axis = 0;
  std::int64_t unit = 1;  ///< of tiles
  std::int64_t most = 1;  ///< parts
  bool is_row = false;    ///< the library's sums depend on its length

  Axis(const Problem& problem, Algorithm algorithm) {
    while (axis + 1 < problem.result.size() && problem.result[axis] == 1 && problem.x[axis] == 1)
      axis = axis == 0 ? 2 : axis + 1;
    if (const auto form = form_of(problem, algorithm); form && axis != 0)
      unit = axis == 2 ? form->down : form->across;
    const std::int64_t least = axis == 0 ? 1 : std::max(least_slices(problem, axis), unit);
    const bool divides = problem.channels_last && axis < problem.result.size();
    if (divides) most = std::max<std::int64_t>(1, problem.result[axis] / least);
    is_row = divides && algorithm == Algorithm::Direct && !is_depthwise(problem) && axis != 0 &&
             axis + 1 == problem.result.size();
  }
};

bool is_large(const Problem& problem) {
  return std::max(elements_of(problem.x), elements_of(problem.result)) > kLargeElements;
}

/// Parts along the axis alone.
Cut cut_along(const Axis& axis, const Problem& problem, int threads, bool resident) {
  std::int64_t wanted = axis.is_row ? 1 : threads;
  if (resident || is_large(problem)) {
    // Each part reads all weights again.
    const std::int64_t elements = std::max(elements_of(problem.x), elements_of(problem.result));
    const std::int64_t weights = std::max<std::int64_t>(1, elements_of(problem.weights));
    const std::int64_t each = is_large(problem) ? kChainElements : kResidentElements;
    const std::int64_t whole = std::max<std::int64_t>(1, elements / std::max(each, weights));
    wanted = slices_for(whole, wanted) * wanted;
  }
  if (axis.is_row) return cut_of_row(axis.axis, problem.result[axis.axis], wanted);
  return {axis.axis, std::clamp<std::int64_t>(wanted, 1, axis.most), axis.unit};
}

/// What threads that share the parts of a convolution take, in multiply-adds.
class CostOfParts {
 public:
  CostOfParts(const Problem& problem, Algorithm algorithm, std::int64_t panels, int threads)
      : problem_(problem),
        form_(form_of(problem, algorithm)),
        products_(elements_of(problem.weights) / std::max<std::int64_t>(1, problem.result[1])),
        panels_(panels),
        threads_(threads) {}

  std::int64_t operator()(const Cut& cut) const {
    return slices_for(cut.parts(), threads_) * of_largest(cut);
  }

 private:
  std::int64_t of_largest(const Cut& cut) const {
    // What a part of the channels reads of x was mostly written by other cores, and so it is with what follows on the result.
    constexpr std::int64_t kFarElement = 7;
    const ConvCosts costs = costs_of_ours();
    Problem part = problem_;
    if (cut.images > 1) part.result[0] = 1;
    std::int64_t& slices = part.result[cut.axis];
    slices = std::min(slices, slices_for(slices_for(slices, cut.unit), cut.slices) * cut.unit);
    const std::int64_t in = problem_.x[1];
    const std::int64_t out = slices_for(panels_, cut.columns) * problem_.result[1] / panels_;
    const std::int64_t element = cut.columns > 1 ? kFarElement : 1;
    if (form_) {
      const std::int64_t tiles = tiles_of(part, *form_);
      return form_->points() * (tiles * in * out + costs.transform * element * tiles * (in + out) +
                                costs.far_weight * in * out);
    }
    const std::int64_t positions = positions_of(part);
    return products_ * out * (positions + costs.direct_weight) +
           costs.transform * element * positions * (in + out);
  }

  const Problem& problem_;
  std::optional<TileForm> form_;
  std::int64_t products_;  ///< of one element of the result, by the direct algorithm
  std::int64_t panels_;
  std::int64_t threads_;
};

}  // namespace

std::int64_t Cut::begin(std::int64_t slice, std::int64_t size) const {
  if (slice == slices) return size;
  return (size * slice / slices + unit / 2) / unit * unit;
}

Panels Cut::panels_of(std::int64_t part, std::int64_t panels) const {
  const std::int64_t column = part / (images * slices);
  return {panels * column / columns, panels * (column + 1) / columns};
}

Cut cut_of(const Problem& problem, Algorithm algorithm, int threads, bool resident,
           std::int64_t panels) {
  constexpr std::int64_t kMostTurns = 4;
  const Axis whole(problem, algorithm);
  Cut best = cut_along(whole, problem, threads, resident);
  if (threads == 1 || !problem.channels_last || best.changes_sums) return best;
  // Slices of large images are pieces of chains of steps.
  if (is_large(problem) && best.slices % threads == 0) return best;
  const CostOfParts cost(problem, algorithm, std::max<std::int64_t>(1, panels), threads);
  std::int64_t least = cost(best);
  const auto try_all = [&](const Axis& axis, std::int64_t images) {
    if (axis.is_row || axis.axis >= problem.result.size()) return;
    Cut cut{axis.axis, 1, axis.unit, false, images};
    for (; cut.columns <= std::min<std::int64_t>(panels, threads); ++cut.columns)
      for (std::int64_t turns = 1; turns <= kMostTurns; ++turns) {
        cut.slices =
            std::clamp<std::int64_t>(turns * threads / (images * cut.columns), 1, axis.most);
        // Parts have costs that are not counted here; and threads that are late leave more of many to others.
        const std::int64_t gain = cut.parts() < best.parts() ? least / 8 : least / 32;
        if (const std::int64_t found = cost(cut); found < least - gain) {
          least = found;
          best = cut;
        }
      }
  };
  try_all(whole, 1);
  Problem image = problem;
  image.x[0] = image.result[0] = 1;
  if (problem.result[0] > 1) try_all(Axis(image, algorithm), problem.result[0]);
  return best;
}

std::optional<PartOf> part_of(const Problem& whole, const Cut& cut, std::int64_t part) {
  PartOf made{whole};
  const std::size_t axis = cut.axis;
  const std::int64_t image = part / cut.slices % cut.images;
  const std::int64_t begin = cut.begin(part % cut.slices, whole.result[axis]);
  const std::int64_t end = cut.begin(part % cut.slices + 1, whole.result[axis]);
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
  if (cut.images > 1) made.problem.x[0] = made.problem.result[0] = 1;
  made.problem.x[axis] = last - first;
  made.problem.result[axis] = end - begin;
  made.x_offset = image * slice_elements(whole.x, 0) + first * slice_elements(whole.x, axis);
  made.result_offset =
      image * slice_elements(whole.result, 0) + begin * slice_elements(whole.result, axis);
  return made;
}

}  // namespace heddle::jit::onednn
