#include "engine/copy_plan.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace heddle::engine {

using ir::PlanBuffer;
using ir::StepId;

TensorSteps steps_of(const ir::ScheduleRecord& record, std::span<const ir::BufferId> roots,
                     std::span<const HostTensor> tensors) {
  std::map<std::pair<bool, std::uint32_t>, std::uint32_t> by_place;
  for (std::uint32_t t = 0; t < tensors.size(); ++t)
    by_place.emplace(std::pair(tensors[t].is_input, tensors[t].position), t);
  std::vector<std::uint32_t> tensor_of(record.buffers.size(), ir::kNone);
  for (ir::BufferId b = 0; b < tensor_of.size(); ++b) {
    const PlanBuffer& buffer = record.buffers[b];
    const bool is_input = buffer.role == PlanBuffer::Role::Input;
    if (!is_input && buffer.role != PlanBuffer::Role::Output) continue;
    const auto found = by_place.find({is_input, buffer.position});
    if (found != by_place.end()) tensor_of[b] = found->second;
  }
  TensorSteps steps{std::vector<std::vector<StepId>>(tensors.size()),
                    std::vector<std::vector<StepId>>(tensors.size())};
  const auto note = [&](ir::BufferId buffer, StepId step, auto& list) {
    const std::uint32_t t = tensor_of[roots[buffer]];
    if (t != ir::kNone && (list[t].empty() || list[t].back() != step)) list[t].push_back(step);
  };
  for (StepId step = 0; step < record.steps.size(); ++step) {
    for (const ir::BufferId buffer : record.steps[step].reads) note(buffer, step, steps.users);
    for (const ir::BufferId buffer : record.steps[step].writes) {
      note(buffer, step, steps.users);
      note(buffer, step, steps.writers);
    }
  }
  return steps;
}

namespace {

class Planner {
 public:
  Planner(const TensorSteps& steps, const scheduler::StreamPlan& streams,
          std::span<const HostTensor> tensors)
      : streams_(streams), tensors_(tensors), users_(steps.users), writers_(steps.writers) {
    const std::size_t count = streams.stream_of.size();
    firsts_.assign(streams.streams, ir::kNone);
    lasts_.assign(streams.streams, ir::kNone);
    is_awaited_.assign(count, false);
    for (StepId step = 0; step < count; ++step) {
      StepId& first = firsts_[streams.stream_of[step]];
      if (first == ir::kNone) first = step;
      lasts_[streams.stream_of[step]] = step;
      for (const StepId from : streams.waits_for[step]) is_awaited_[from] = true;
    }
  }

  CopyPlan plan() {
    plan_in();
    plan_waits();
    plan_out();
    return std::move(plan_);
  }

 private:
  std::uint32_t lane_of(std::uint32_t t) const {
    const StepId first = users_[t].front();
    const std::uint32_t stream = streams_.stream_of[first];
    return firsts_[stream] == first ? stream : CopyPlan::kAside;
  }

  void plan_in() {
    for (std::uint32_t t = 0; t < tensors_.size(); ++t)
      if (tensors_[t].comes_in && !users_[t].empty()) plan_.in.push_back({t, lane_of(t), false});
    std::ranges::sort(plan_.in, {}, [&](const CopyPlan::In& copy) {
      return std::tuple(copy.lane, users_[copy.tensor].front(), copy.tensor);
    });
    for (const CopyPlan::In& copy : plan_.in) {
      std::vector<StepId>& here = here_at_.emplace_back();
      if (copy.lane != CopyPlan::kAside) here.push_back(users_[copy.tensor].front());
    }
  }

  /// Whether it is done before `step` begins.
  bool is_here(std::size_t copy, StepId step) const {
    return std::ranges::any_of(here_at_[copy], [&](StepId known) {
      return known == step || streams_.ordered(known, step);
    });
  }

  void plan_waits() {
    std::vector<std::pair<StepId, std::uint32_t>> uses;
    for (std::uint32_t c = 0; c < plan_.in.size(); ++c)
      for (const StepId step : users_[plan_.in[c].tensor]) uses.emplace_back(step, c);
    // Of a lane's copies the last first: who waits for it waits for those before it.
    std::ranges::sort(uses, {}, [](const auto& use) { return std::pair(use.first, ~use.second); });
    for (const auto& [step, c] : uses) {
      if (is_here(c, step)) continue;
      plan_.in[c].records = true;
      plan_.waits.push_back({step, c});
      for (std::uint32_t before = c + 1; before-- > 0 && plan_.in[before].lane == plan_.in[c].lane;)
        here_at_[before].push_back(step);
    }
  }

  /// Whether a copy on the step's stream, right behind it, holds up nothing.
  bool is_end(StepId step) const {
    return lasts_[streams_.stream_of[step]] == step && !is_awaited_[step];
  }

  void plan_out() {
    for (std::uint32_t t = 0; t < tensors_.size(); ++t) {
      if (!tensors_[t].goes_out) continue;
      if (writers_[t].empty())
        plan_.at_end.push_back(t);
      else
        plan_.out.push_back({writers_[t].back(), t});
    }
    std::ranges::sort(plan_.out, {},
                      [](const CopyPlan::Out& copy) { return std::pair(copy.step, copy.tensor); });
    for (CopyPlan::Out& copy : plan_.out) {
      const std::vector<StepId>& writers = writers_[copy.tensor];
      copy.aside = !is_end(copy.step) || !std::ranges::all_of(writers, [&](StepId writer) {
        return writer == copy.step || streams_.ordered(writer, copy.step);
      });
      if (copy.aside) wait_for(writers, copy);
    }
    std::ranges::sort(plan_.marks);
  }

  /// Of later writers the waits come first: they may imply those for others.
  void wait_for(std::span<const StepId> writers, CopyPlan::Out& copy) {
    plan_.is_aside = true;
    for (std::size_t k = writers.size(); k-- > 0;) {
      const StepId writer = writers[k];
      if (std::ranges::any_of(awaited_aside_, [&](StepId known) {
            return known == writer || streams_.ordered(writer, known);
          }))
        continue;
      awaited_aside_.push_back(writer);
      copy.after.push_back(writer);
      if (!streams_.records[writer]) plan_.marks.push_back(writer);
    }
  }

  const scheduler::StreamPlan& streams_;
  std::span<const HostTensor> tensors_;
  const std::vector<std::vector<StepId>>&users_, &writers_;  ///< by tensor
  std::vector<StepId> firsts_, lasts_;                       ///< by stream; kNone: it has no steps
  std::vector<bool> is_awaited_;                             ///< by step: by another
  std::vector<std::vector<StepId>> here_at_;  ///< by copy: steps that begin when it is done
  std::vector<StepId> awaited_aside_;
  CopyPlan plan_;
};

}  // namespace

CopyPlan plan_copies(const TensorSteps& steps, const scheduler::StreamPlan& streams,
                     std::span<const HostTensor> tensors) {
  return Planner(steps, streams, tensors).plan();
}

SegmentCopies plan_segment_copies(const TensorSteps& steps, std::span<const StepId> ends,
                                  std::span<const HostTensor> tensors) {
  SegmentCopies copies{std::vector<std::vector<std::uint32_t>>(ends.size()),
                       std::vector<std::vector<std::uint32_t>>(ends.size())};
  const auto segment_of = [&](StepId step) {
    return static_cast<std::size_t>(std::ranges::upper_bound(ends, step) - ends.begin());
  };
  for (std::uint32_t t = 0; t < tensors.size(); ++t) {
    if (tensors[t].comes_in && !steps.users[t].empty())
      copies.in[segment_of(steps.users[t].front())].push_back(t);
    if (!tensors[t].goes_out) continue;
    const std::vector<StepId>& writers = steps.writers[t];
    (writers.empty() ? copies.out.back() : copies.out[segment_of(writers.back())]).push_back(t);
  }
  return copies;
}

bool SegmentCopies::is_aside() const {
  return std::any_of(out.begin(), out.end() - 1,
                     [](const auto& tensors) { return !tensors.empty(); });
}

}  // namespace heddle::engine
