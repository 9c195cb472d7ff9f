#include "ir/passes/transposed_phases.h"

#include <algorithm>

#include "ir/op.h"

namespace heddle::ir {

namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kMostPhases = 9;
constexpr std::int64_t kLeastWork = 1 << 20;
/// Channels of the result that fill vectors.
constexpr std::int64_t kLeastChannels = 16;

std::int64_t rounded_up(std::int64_t a, std::int64_t b) {
  return a >= 0 ? (a + b - 1) / b : -(-a / b);
}

/// Neighbouring phases of a spatial dimension that have as many taps and the same place.
struct PhaseRun {
  std::int64_t count;     ///< of phases
  std::int64_t first;     ///< tap of the first one
  std::int64_t taps;      ///< of each
  std::int64_t pad_low;   ///< of the convolution
  std::int64_t pad_high;  ///< of the convolution
};

struct PhaseDirection {
  std::int64_t stride;
  std::int64_t kernel;
  std::vector<PhaseRun> runs;  ///< none: not to be had in phases
  SymExpr places;              ///< results of each phase
  SymExpr size;                ///< of the result

  std::int64_t most_taps() const { return std::ranges::max(runs, {}, &PhaseRun::taps).taps; }
};

PhaseDirection phases_along(const Node& node, std::size_t d) {
  const SymExpr& in = node.input(0).meta().sizes[d + 2];
  const std::int64_t stride = node.ints("strides")[d];
  const std::int64_t kernel = node.input(1).meta().sizes[d + 2].constant();
  const std::int64_t low = node.ints("pads_low")[d];
  // The result has (in - 1) * stride + reach elements.
  const std::int64_t reach =
      kernel - low - node.ints("pads_high")[d] + node.ints("output_padding")[d];
  // An image of unknown size may have no elements: with one place more, its windows still fit into what surrounds it.
  const std::int64_t spare = in.is_constant() ? 0 : 1;
  const std::int64_t more = rounded_up(reach, stride) - 1 + spare;
  PhaseDirection direction{stride, kernel, {}, in + more, node.output().sizes[d + 2]};
  if (kernel < stride || more < spare || in.is_constant(0)) return direction;
  std::vector<PhaseRun> runs;
  for (std::int64_t q = 0; q < stride; ++q) {
    const std::int64_t tap = (q + low) % stride;
    const std::int64_t taps = rounded_up(kernel - tap, stride);
    const std::int64_t pad_low = taps - 1 - (q + low) / stride;
    const std::int64_t pad_high = more - pad_low + taps - 1;
    if (pad_low < 0 || pad_high < 0) return direction;
    const bool continues = !runs.empty() && runs.back().taps == taps &&
                           runs.back().pad_low == pad_low &&
                           runs.back().first + runs.back().count == tap;
    if (continues)
      ++runs.back().count;
    else
      runs.push_back({1, tap, taps, pad_low, pad_high});
  }
  direction.runs = std::move(runs);
  return direction;
}

class PhaseConvolutions {
 public:
  PhaseConvolutions(GraphBuilder& builder, const Node& node) : builder_(builder) {
    const Dims& weights = node.input(1).meta().sizes;
    channels_ = weights[1];
    work_ = node.input(0).meta().count() * base::product(std::span(weights).subspan(1));
    for (std::size_t d = 0; d + 2 < weights.size(); ++d)
      directions_.push_back(phases_along(node, d));
  }

  bool pays() const {
    if (is_left_whole()) return false;
    std::int64_t convolutions = 1;
    std::int64_t taps = 1;
    std::int64_t of_all = 1;
    for (const PhaseDirection& d : directions_) {
      if (d.runs.empty()) return false;
      convolutions *= static_cast<std::int64_t>(d.runs.size());
      taps *= d.kernel;
      of_all *= d.stride * d.most_taps();
    }
    return convolutions > 1 && convolutions <= kMostPhases && 5 * taps <= 4 * of_all &&
           channels_.is_constant() && channels_.constant() >= kLeastChannels;
  }

  Value run(Value x, std::span<const Value> operands) {
    x_ = x;
    weights_ = operands[1];
    if (operands.size() > 2) bias_ = operands[2];
    std::vector<const PhaseRun*> chosen;
    return cut(joined(interleaved(chosen)));
  }

 private:
  /// 3 x 3 taps of all phases, which libraries compute by Winograd's algorithm; and so little work that kernels cost more.
  bool is_left_whole() const {
    const bool winograd =
        directions_.size() == 2 && std::ranges::all_of(directions_, [](const auto& d) {
          return !d.runs.empty() && d.most_taps() == 3;
        });
    return winograd || (work_.is_constant() && work_.constant() < kLeastWork);
  }

  Value reshaped(Value value, Dims sizes) {
    return builder_.emit("reshape", {value}, {{"sizes", std::move(sizes)}});
  }

  /// [n, places..., phases..., m]: what the runs make that have been chosen for the first directions, with all of the others.
  Value interleaved(std::vector<const PhaseRun*>& chosen) {
    const std::size_t d = chosen.size();
    if (d == directions_.size()) return phases_of(chosen);
    std::vector<Value> parts;
    for (const PhaseRun& run : directions_[d].runs) {
      chosen.push_back(&run);
      parts.push_back(interleaved(chosen));
      chosen.pop_back();
    }
    if (parts.size() == 1) return parts[0];
    const auto axis = static_cast<std::int64_t>(1 + directions_.size() + d);
    return builder_.call("concat", parts, {{"axis", axis}})->value();
  }

  Value phases_of(std::span<const PhaseRun* const> runs) {
    const Value weights = filters(runs);
    const auto each = [&](auto member) {
      Ints values;
      for (const PhaseRun* run : runs) values.push_back(run->*member);
      return values;
    };
    const Ints ones(runs.size(), 1);
    const Attrs window{{"strides", ones},
                       {"dilations", ones},
                       {"pads_low", each(&PhaseRun::pad_low)},
                       {"pads_high", each(&PhaseRun::pad_high)},
                       {"groups", std::int64_t{1}},
                       {"channels_last", true}};
    std::vector<Value> operands{x_, weights};
    if (bias_) operands.push_back(repeated_bias(runs));
    const Value made = builder_.call("conv", operands, window)->value();
    Dims sizes{x_.meta().sizes[0]};
    for (const PhaseDirection& d : directions_) sizes.push_back(d.places);
    for (const PhaseRun* run : runs) sizes.emplace_back(run->count);
    sizes.push_back(channels_);
    return reshaped(made, std::move(sizes));
  }

  /// The taps of these phases of [c, m, kernel...] as [phases * m, c, taps...], the taps in reverse.
  Value filters(std::span<const PhaseRun* const> runs) {
    const Dims& sizes = weights_.meta().sizes;
    Dims high(2, 0);
    Dims start(2, 0);
    Dims limit{sizes[0], sizes[1]};
    Dims step(2, 1);
    Dims apart{sizes[0], sizes[1]};
    Dims counted{sizes[0], sizes[1]};
    Dims joined{channels_, sizes[0]};
    Ints taps;
    Ints perm;
    for (std::size_t d = 0; d < runs.size(); ++d) {
      const PhaseRun& run = *runs[d];
      const PhaseDirection& direction = directions_[d];
      // Of one phase every tap of the stride; of several, with what lies between and behind them.
      const bool one = run.count == 1;
      const std::int64_t end = one ? direction.kernel : run.first + run.taps * direction.stride;
      high.emplace_back(std::max<std::int64_t>(0, end - direction.kernel));
      start.emplace_back(run.first);
      limit.emplace_back(end);
      step.emplace_back(one ? direction.stride : 1);
      apart.insert(apart.end(), {SymExpr(run.taps), SymExpr(one ? 1 : direction.stride)});
      counted.insert(counted.end(), {SymExpr(run.taps), SymExpr(run.count)});
      joined[0] = joined[0] * run.count;
      joined.emplace_back(run.taps);
      taps.push_back(2 + 2 * static_cast<std::int64_t>(d));
      perm.push_back(3 + 2 * static_cast<std::int64_t>(d));
    }
    perm.insert(perm.end(), {1, 0});
    perm.insert(perm.end(), taps.begin(), taps.end());
    Value made = weights_;
    if (std::ranges::any_of(high, [](const SymExpr& pad) { return !pad.is_constant(0); }))
      made = builder_.emit("pad", {made}, {{"low", Dims(high.size(), 0)}, {"high", high}});
    made = reshaped(slice(made, start, limit, step), std::move(apart));
    made = slice(made, Dims(counted.size(), 0), counted, Dims(counted.size(), 1));
    made = builder_.emit("reverse", {made}, {{"axes", taps}});
    return reshaped(builder_.emit("permute", {made}, {{"perm", std::move(perm)}}),
                    std::move(joined));
  }

  Value slice(Value value, Dims start, Dims limit, Dims stride) {
    const auto is = [](std::int64_t number) {
      return [number](const SymExpr& size) { return size.is_constant(number); };
    };
    if (std::ranges::all_of(start, is(0)) && std::ranges::all_of(stride, is(1)) &&
        limit == value.meta().sizes)
      return value;
    return builder_.emit(
        "slice", {value},
        {{"start", std::move(start)}, {"limit", std::move(limit)}, {"stride", std::move(stride)}});
  }

  /// The bias once for each phase.
  Value repeated_bias(std::span<const PhaseRun* const> runs) {
    std::int64_t count = 1;
    for (const PhaseRun* run : runs) count *= run->count;
    if (count == 1) return bias_;
    const Value rows = builder_.emit("expand", {reshaped(bias_, {SymExpr(1), channels_})},
                                     {{"sizes", Dims{SymExpr(count), channels_}}});
    return reshaped(rows, {channels_ * count});
  }

  /// [n, places..., phases..., m] as [n, place_0 * stride_0, …, m].
  Value joined(Value made) {
    const auto spatial = static_cast<std::int64_t>(directions_.size());
    Ints perm{0};
    Dims sizes{x_.meta().sizes[0]};
    for (std::int64_t d = 0; d < spatial; ++d) {
      perm.insert(perm.end(), {1 + d, 1 + d + spatial});
      const PhaseDirection& direction = directions_[static_cast<std::size_t>(d)];
      sizes.push_back(direction.places * direction.stride);
    }
    perm.push_back(1 + 2 * spatial);
    sizes.push_back(channels_);
    return reshaped(builder_.emit("permute", {made}, {{"perm", std::move(perm)}}),
                    std::move(sizes));
  }

  /// Without the last phases of a place that the result does not have.
  Value cut(Value made) {
    Dims limit = made.meta().sizes;
    for (std::size_t d = 0; d < directions_.size(); ++d) limit[d + 1] = directions_[d].size;
    return slice(made, Dims(limit.size(), 0), limit, Dims(limit.size(), 1));
  }

  GraphBuilder& builder_;
  std::vector<PhaseDirection> directions_;
  SymExpr channels_;
  SymExpr work_;  ///< products
  Value x_, weights_, bias_;
};

}  // namespace

std::optional<Value> as_phases(GraphBuilder& builder, const Node& node, Value x,
                               std::span<const Value> operands) {
  if (node.integer("groups") != 1) return {};
  PhaseConvolutions phases(builder, node);
  if (!phases.pays()) return {};
  return phases.run(x, operands);
}

}  // namespace heddle::ir
