#include "engine/chains.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/check.h"
#include "engine/unit.h"
#include "jit/footprint.h"

namespace heddle::engine {

namespace {

using jit::Interval;

/// Memory whose addresses can be compared: an arena, an input, an output.
using Space = std::pair<AddressSource::Kind, std::uint32_t>;

struct Span {
  Space space;
  Interval bytes;
  bool written;
};
using Spans = std::vector<Span>;

std::int64_t bytes_of(const Spans& spans, bool only_written) {
  std::int64_t bytes = 0;
  for (const Span& span : spans)
    if (span.written || !only_written) bytes += span.bytes.high - span.bytes.low + 1;
  return bytes;
}

/// Whether one of them writes what the other touches.
bool conflict(const Spans& a, const Spans& b) {
  return std::ranges::any_of(a, [&](const Span& x) {
    return std::ranges::any_of(b, [&](const Span& y) {
      return (x.written || y.written) && x.space == y.space && x.bytes.meets(y.bytes);
    });
  });
}

/// What the iterations of a piece touch, worker by worker.
using Piece = std::vector<Spans>;

bool conflict(const Piece& a, const Piece& b) {
  return std::ranges::any_of(a, [&](const Spans& x) {
    return std::ranges::any_of(b, [&](const Spans& y) { return conflict(x, y); });
  });
}

/// A step that may be cut.
struct CutStep {
  std::uint32_t step = 0;  ///< of the plan
  std::int64_t written_bytes = 0;
  std::vector<Piece> pieces;
  std::vector<Piece> from{};  ///< by piece: what it and those after it touch, and maybe more
};

/// The least that holds what `more` and `all` do, with one span for each space and way of use.
void add(const Spans& more, Spans& all) {
  for (const Span& span : more) {
    const auto known = std::ranges::find_if(all, [&](const Span& other) {
      return other.space == span.space && other.written == span.written;
    });
    if (known == all.end())
      all.push_back(span);
    else
      known->bytes.add(span.bytes);
  }
}

/// What touches which bytes, for any iterations of one step.
class Reach {
 public:
  Reach(const BoundSteps& plan, const base::ExprTable::Values& values, std::uint32_t step)
      : plan_(plan), step_(step) {
    const Unit& unit = *plan.unit;
    const ir::PlanStep& planned = unit.schedule().record.steps[plan.first_step + step];
    const jit::ProgramKernel& kernel = unit.program().kernels[planned.kernel];
    if (kernel.nest != nullptr)
      footprint_.emplace(unit.footprints(plan.first_step + step).at(plan.step_sizes[step]));
    const jit::Launch& launch =
        unit.program().launches[unit.schedule().given[plan.first_step + step]];
    for (const ir::BufferId buffer : launch.buffers)
      bytes_.push_back(unit.buffer_bytes(buffer, values));
  }

  /// Of each of `pieces`, which are iterations from the first to the last. Nothing: what the step touches is not known.
  std::optional<Piece> of(std::span<const Interval> pieces) const {
    Piece all;
    all.reserve(pieces.size());
    if (footprint_) {
      const std::vector<jit::Touched> touched = footprint_->of(pieces);
      const std::size_t buffers = touched.size() / std::max<std::size_t>(1, pieces.size());
      for (std::size_t k = 0; k < pieces.size(); ++k)
        all.push_back(spans_of(std::span(touched).subspan(k * buffers, buffers)));
      return all;
    }
    for (const Interval& piece : pieces) {
      if (plan_.library[step_] == nullptr) return std::nullopt;
      const auto touched = plan_.library[step_]->touched(piece.low, piece.high + 1);
      if (!touched) return std::nullopt;
      all.push_back(spans_of(*touched));
    }
    return all;
  }
  /// Of each worker's part of a stage.
  std::optional<Piece> of(const scheduler::BoundStage& stage, std::int64_t extent,
                          int threads) const {
    std::vector<Interval> parts;
    for (int worker = 0; worker < threads; ++worker) {
      const scheduler::Iterations own = scheduler::piece_of(extent, stage, worker, threads);
      if (own.size() > 0) parts.push_back({own.begin, own.end - 1});
    }
    return of(parts);
  }

  /// Of constants and parameters.
  std::int64_t fixed_bytes() const {
    std::int64_t bytes = 0;
    for (std::size_t k = 0; k < bytes_.size(); ++k)
      if (source(k).kind == AddressSource::Kind::Fixed) bytes += bytes_[k];
    return bytes;
  }

 private:
  const AddressSource& source(std::size_t k) const {
    return plan_.table[plan_.table_start[step_] + k];
  }

  Spans spans_of(std::span<const jit::Touched> touched) const {
    Spans spans;
    spans.reserve(touched.size());
    for (std::size_t k = 0; k < touched.size(); ++k) {
      add(k, touched[k].read, false, spans);
      add(k, touched[k].written, true, spans);
    }
    return spans;
  }

  void add(std::size_t k, Interval bytes, bool written, Spans& spans) const {
    const AddressSource& from = source(k);
    bytes.high = std::min(bytes.high, bytes_[k] - 1);
    if (bytes.is_empty() || from.kind == AddressSource::Kind::Fixed) return;
    const bool in_arena = from.kind == AddressSource::Kind::Arena;
    const std::int64_t offset = in_arena ? from.offset : 0;
    spans.push_back(
        {{from.kind, from.position}, {bytes.low + offset, bytes.high + offset}, written});
  }

  const BoundSteps& plan_;
  std::uint32_t step_;
  std::optional<jit::Footprint> footprint_;
  std::vector<std::int64_t> bytes_;  ///< by buffer of the launch
};

/// A chain's stages in the order in which they run.
class Order {
 public:
  explicit Order(std::span<const CutStep* const> steps) : steps_(steps), done_(steps.size(), 0) {
    const std::size_t last = steps.size() - 1;
    for (std::size_t c = 0; c < steps[last]->pieces.size(); ++c) emit(last);
    for (std::size_t k = 0; k < last; ++k)
      while (done_[k] < steps[k]->pieces.size()) emit(k);
  }

  const std::vector<scheduler::BoundStage>& stages() const { return stages_; }
  /// The most bytes that a step had written and the next one had not come to, and the same as a share of all that it writes.
  double most_bytes_ahead() const { return most_bytes_ahead_; }
  double most_ahead() const { return most_ahead_; }

 private:
  /// The next piece of step `k`, and before it what it waits for.
  void emit(std::size_t k) {
    const Piece& piece = steps_[k]->pieces[done_[k]];
    for (std::size_t m = 0; m < k; ++m) {
      const std::size_t needed = needed_of(m, piece);
      while (done_[m] < needed) emit(m);
    }
    stages_.push_back({steps_[k]->step, 1, static_cast<std::uint32_t>(done_[k]),
                       static_cast<std::uint32_t>(steps_[k]->pieces.size())});
    ++done_[k];
    for (std::size_t m = 0; m + 1 < steps_.size(); ++m) {
      const double ahead = share(m) - share(m + 1);
      most_ahead_ = std::max(most_ahead_, ahead);
      most_bytes_ahead_ =
          std::max(most_bytes_ahead_, ahead * static_cast<double>(steps_[m]->written_bytes));
    }
  }

  /// Pieces of step `m` that have to run before `piece`, of a later step.
  std::size_t needed_of(std::size_t m, const Piece& piece) const {
    const CutStep& step = *steps_[m];
    const auto none = std::partition_point(
        step.from.begin() + static_cast<std::ptrdiff_t>(done_[m]), step.from.end(),
        [&](const Piece& touched) { return conflict(touched, piece); });
    auto needed = static_cast<std::size_t>(none - step.from.begin());
    while (needed > done_[m] && !conflict(step.pieces[needed - 1], piece)) --needed;
    return needed;
  }

  double share(std::size_t k) const {
    return static_cast<double>(done_[k]) / static_cast<double>(steps_[k]->pieces.size());
  }

  std::span<const CutStep* const> steps_;
  std::vector<std::size_t> done_;
  std::vector<scheduler::BoundStage> stages_;
  double most_ahead_ = 0;
  double most_bytes_ahead_ = 0;
};

class Tiler {
 public:
  Tiler(BoundSteps& plan, std::int64_t cache_bytes)
      : plan_(plan), values_(plan.unit->values(plan.sizes)), budget_(cache_bytes * plan.threads) {}

  void run() {
    std::vector<Chain> chains;
    for (std::size_t at = 0; at < plan_.stages.size(); ++at) add_chains_from(at, chains);
    if (chains.empty()) return;
    std::vector<ChainValue> values;
    for (const Chain& chain : chains) values.push_back(chain.value);
    std::vector<scheduler::BoundStage> stages;
    std::size_t at = 0;
    const auto keep_until = [&](std::size_t end) {
      while (at < end) stages.push_back(plan_.stages[at++]);
    };
    for (const std::size_t k : best_chains(values)) {
      keep_until(values[k].first);
      stages.insert(stages.end(), chains[k].pieces.begin(), chains[k].pieces.end());
      at += values[k].stages;
    }
    keep_until(plan_.stages.size());
    plan_.stages = std::move(stages);
  }

 private:
  /// Pieces of a step, at most; and workers' parts of them.
  static constexpr std::int64_t kMostPieces = 128;
  static constexpr std::int64_t kMostParts = 1024;
  /// Second-level caches' worth of what a larger cache passes on as fast as it is worked on: up to 12 MB measured no slower whole than in
  /// pieces on Zen 5, whose third-level cache has 32 MiB.
  static constexpr std::int64_t kFar = 4;

  /// Stages one after another, in pieces.
  struct Chain {
    ChainValue value;
    std::vector<scheduler::BoundStage> pieces;
  };

  /// Adds those that begin with a stage, the shortest first.
  void add_chains_from(std::size_t at, std::vector<Chain>& chains) {
    std::vector<const CutStep*> steps;
    const auto add = [&](std::size_t stage) {
      const auto [known, is_new] = cuts_.try_emplace(stage);
      if (is_new) known->second = cut(plan_.stages[stage]);
      const std::optional<CutStep>& step = known->second;
      if (step) steps.push_back(&*step);
      return step.has_value();
    };
    std::int64_t kept_bytes = 0;
    for (std::size_t next = at + 1; next < plan_.stages.size(); ++next) {
      const std::int64_t bytes = far_bytes(plan_.stages[next - 1], plan_.stages[next]);
      if (bytes == 0 || (steps.empty() && !add(at)) || !add(next)) break;
      const Order order(steps);
      if (!pays(order)) break;
      kept_bytes += bytes;
      chains.push_back({{at, steps.size(), kept_bytes}, order.stages()});
    }
  }

  /// Bytes that `a` wrote, and the stage after it may read, which come from memory.
  std::int64_t far_bytes(const scheduler::BoundStage& a, const scheduler::BoundStage& b) const {
    if (a.count != 1 || b.count != 1) return 0;
    std::int64_t far = 0;
    for (const ir::BufferId written : plan_.unit->passed_on(plan_.first_step + a.first)) {
      const std::int64_t bytes = plan_.unit->buffer_bytes(written, values_);
      if (bytes > kFar * budget_) far += bytes;
    }
    return far;
  }

  std::optional<CutStep> cut(const scheduler::BoundStage& stage) const {
    const scheduler::BoundStep& step = plan_.steps[stage.first];
    if (stage.count != 1 || step.run == nullptr || step.extent < 2 * plan_.threads) return {};
    const Reach reach(plan_, values_, stage.first);
    const Interval whole{0, step.extent - 1};
    const auto all = reach.of({&whole, 1});
    if (!all) return {};
    CutStep made{stage.first, bytes_of(all->front(), true), {}};
    const std::int64_t bytes = bytes_of(all->front(), false);
    const std::int64_t wanted = (bytes + budget_ / 4 - 1) / (budget_ / 4);
    const std::int64_t count =
        std::min({std::max<std::int64_t>(1, wanted), step.extent / plan_.threads, kMostPieces,
                  kMostParts / plan_.threads});
    if (count < 2 || reach.fixed_bytes() * (count - 1) > bytes / 2) return {};
    for (std::uint32_t k = 0; k < count; ++k) {
      const scheduler::BoundStage piece{stage.first, 1, k, static_cast<std::uint32_t>(count)};
      made.pieces.push_back(*reach.of(piece, step.extent, plan_.threads));
    }
    made.from.assign(made.pieces.size(), Piece(made.pieces[0].size()));
    for (std::size_t k = made.pieces.size(); k-- > 0;) {
      if (k + 1 < made.pieces.size()) made.from[k] = made.from[k + 1];
      for (std::size_t worker = 0; worker < made.pieces[k].size(); ++worker)
        add(made.pieces[k][worker], made.from[k][worker]);
    }
    return made;
  }

  /// Whether what is between the steps stays in the caches.
  bool pays(const Order& order) const {
    return order.most_bytes_ahead() <= static_cast<double>(budget_) && order.most_ahead() <= 0.5;
  }

  BoundSteps& plan_;
  const base::ExprTable::Values values_;
  std::int64_t budget_;  ///< bytes
  std::map<std::size_t, std::optional<CutStep>>
      cuts_;  ///< by stage, of those that were looked at; nothing: may not be cut
};

}  // namespace

std::vector<std::size_t> best_chains(std::span<const ChainValue> chains) {
  std::size_t stages = 0;
  for (const ChainValue& chain : chains) stages = std::max(stages, chain.first + chain.stages);
  // By stage: the most that is kept from it on, and the chain that begins there for it.
  std::vector<std::int64_t> kept(stages + 1, 0);
  std::vector<std::optional<std::size_t>> chosen(stages);
  std::vector<std::vector<std::size_t>> by_first(stages);
  for (std::size_t k = 0; k < chains.size(); ++k) by_first[chains[k].first].push_back(k);
  for (std::size_t at = stages; at-- > 0;) {
    kept[at] = kept[at + 1];
    for (const std::size_t k : by_first[at]) {
      const std::int64_t bytes = chains[k].kept_bytes + kept[at + chains[k].stages];
      if (bytes <= kept[at]) continue;
      kept[at] = bytes;
      chosen[at] = k;
    }
  }
  std::vector<std::size_t> best;
  for (std::size_t at = 0; at < stages;) {
    if (chosen[at]) best.push_back(*chosen[at]);
    at += chosen[at] ? chains[*chosen[at]].stages : 1;
  }
  return best;
}

void tile_chains(BoundSteps& plan, std::int64_t cache_bytes) { Tiler(plan, cache_bytes).run(); }

void check_chains(const BoundSteps& plan) {
  std::vector<std::uint32_t> done(plan.steps.size(), 0);    // pieces
  std::vector<std::uint32_t> pieces(plan.steps.size(), 0);  // of each step, as its first says
  std::vector<std::pair<std::uint32_t, Piece>> ran;
  const base::ExprTable::Values values = plan.unit->values(plan.sizes);
  for (const scheduler::BoundStage& stage : plan.stages) {
    for (std::uint32_t k = stage.first; k < stage.first + stage.count; ++k) {
      if (done[k] == 0) pieces[k] = stage.pieces;
      HD_CHECK(done[k]++ == stage.piece && pieces[k] == stage.pieces && stage.piece < stage.pieces,
               "pieces run twice, or not in order");
    }
    if (!stage.is_partial()) {
      for (std::uint32_t k = 0; k < done.size(); ++k)
        HD_CHECK(done[k] == pieces[k], "a step runs whole between pieces of others");
      ran.clear();
      continue;
    }
    HD_CHECK(stage.count == 1, "a piece of several steps");
    const auto touched =
        Reach(plan, values, stage.first).of(stage, plan.steps[stage.first].extent, plan.threads);
    HD_CHECK(touched.has_value(), "a piece of a step that touches what is not known");
    for (const auto& [step, before] : ran)
      HD_CHECK(step <= stage.first || !conflict(before, *touched),
               "a piece runs before one of an earlier step that it conflicts with");
    ran.emplace_back(stage.first, *touched);
  }
  for (std::size_t k = 0; k < done.size(); ++k)
    HD_CHECK(done[k] == pieces[k] && done[k] != 0, "some pieces do not run");
}

}  // namespace heddle::engine
