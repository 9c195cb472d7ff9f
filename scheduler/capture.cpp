#include "scheduler/capture.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <queue>
#include <set>

#include "base/check.h"
#include "scheduler/step_memory.h"

namespace heddle::scheduler {

using ir::BufferId;
using ir::PlanBuffer;
using ir::StepId;

namespace {

/// A reorder may raise the peak by less than a tenth.
constexpr std::int64_t kPeakTenths = 11;

bool intersects(const std::vector<base::Symbol>& a, const std::vector<base::Symbol>& b) {
  return std::any_of(a.begin(), a.end(), [&](const base::Symbol& symbol) {
    return std::find(b.begin(), b.end(), symbol) != b.end();
  });
}

struct Successors {
  explicit Successors(const ir::ScheduleRecord& record)
      : of(record.steps.size()), unmet(record.steps.size(), 0) {
    for (StepId step = 0; step < record.steps.size(); ++step) {
      for (const ir::PlanEdge& edge : record.steps[step].edges) {
        of[edge.from].push_back(step);
        ++unmet[step];
      }
    }
  }
  std::vector<std::vector<StepId>> of;
  std::vector<std::uint32_t> unmet;
};

/// Fewest partitions: two heaps by index, drained in turn.
std::vector<StepId> fewest_partitions(const ir::ScheduleRecord& record,
                                      const std::vector<bool>& split) {
  Successors successors(record);
  using Heap = std::priority_queue<StepId, std::vector<StepId>, std::greater<>>;
  Heap ready[2];
  const auto add = [&](StepId step) { ready[split[step] ? 0 : 1].push(step); };
  for (StepId step = 0; step < split.size(); ++step)
    if (successors.unmet[step] == 0) add(step);
  std::vector<StepId> order;
  while (!ready[0].empty() || !ready[1].empty()) {
    for (Heap& heap : ready) {
      while (!heap.empty()) {
        const StepId step = heap.top();
        heap.pop();
        order.push_back(step);
        for (const StepId next : successors.of[step])
          if (--successors.unmet[next] == 0) add(next);
      }
    }
  }
  return order;
}

/// The steps that `chosen` takes before the others, or behind them; each lot as it is.
template <typename Chosen>
std::vector<StepId> parted(std::vector<StepId> order, bool in_front, Chosen&& chosen) {
  std::ranges::stable_partition(order, [&](StepId step) { return chosen(step) == in_front; });
  return order;
}

/// How many partitions there are, first those that may be captured.
struct Count {
  std::size_t capturable = 0;
  std::size_t all = 0;
  auto operator<=>(const Count&) const = default;
};

Count count_of(const std::vector<StepId>& order, const std::vector<bool>& split) {
  Count count;
  for (std::size_t k = 0; k < order.size(); ++k) {
    if (k > 0 && split[order[k]] == split[order[k - 1]]) continue;
    ++count.all;
    count.capturable += split[order[k]] ? 0 : 1;
  }
  return count;
}

/// Takes the order of the fewest partitions, then the moves, each where it is worth it and fits.
void reorder(const ir::ScheduleRecord& record, const std::vector<bool>& split,
             const CaptureOptions& options, CapturePlan& plan) {
  if (count_of(plan.order, split).all < 2) return;
  const StepMemory memory(record, options.sizes);
  const std::int64_t peak = memory.peak(plan.order);
  const auto fits = [&](const std::vector<StepId>& order) {
    const std::int64_t raised = memory.peak(order);
    return raised <= peak || raised * 10 < peak * kPeakTenths;
  };
  std::vector<StepId> fewest = fewest_partitions(record, split);
  plan.reordered = count_of(fewest, split) < count_of(plan.order, split) && fits(fewest);
  if (plan.reordered) plan.order = std::move(fewest);
  const auto move = [&](bool in_front, auto&& chosen) {
    std::vector<StepId> moved = parted(plan.order, in_front, chosen);
    if (count_of(moved, split) <= count_of(plan.order, split) && fits(moved))
      plan.order = std::move(moved);
  };
  const Successors successors(record);
  move(true, [&](StepId step) { return split[step] && record.steps[step].edges.empty(); });
  move(false, [&](StepId step) {
    return split[step] && !record.steps[step].edges.empty() && successors.of[step].empty();
  });
}

BufferId root_of(const ir::ScheduleRecord& record, BufferId buffer) {
  while (record.buffers[buffer].alias_of != ir::kNone) buffer = record.buffers[buffer].alias_of;
  return buffer;
}

/// Buffers of one partition, under the names of those that own their bytes.
struct Flow {
  std::set<BufferId> touched, made, freed;
};

Flow flow_of(const ir::ScheduleRecord& record, const Partition& partition,
             const std::vector<std::uint32_t>& last_use, std::uint32_t end) {
  Flow flow;
  for (const StepId step : partition.steps) {
    for (const BufferId buffer : record.steps[step].reads)
      flow.touched.insert(root_of(record, buffer));
    for (const BufferId buffer : record.steps[step].writes) {
      const BufferId root = root_of(record, buffer);
      const bool held = flow.touched.contains(root);
      flow.touched.insert(root);
      const auto role = record.buffers[root].role;
      const bool given = role == PlanBuffer::Role::Input || role == PlanBuffer::Role::Parameter ||
                         role == PlanBuffer::Role::Constant;
      if (!held && !given) flow.made.insert(root);
    }
  }
  for (const BufferId buffer : flow.touched) {
    const auto role = record.buffers[buffer].role;
    const bool owned = role == PlanBuffer::Role::Intermediate ||
                       role == PlanBuffer::Role::Workspace || record.buffers[buffer].donated;
    if (owned && last_use[buffer] < end) flow.freed.insert(buffer);
  }
  return flow;
}

void collect_symbols(const ir::ScheduleRecord& record, const std::vector<StepTraits>& traits,
                     Partition& partition) {
  for (const BufferId buffer : partition.inputs)
    record.buffers[buffer].bytes.collect_symbols(partition.symbols);
  for (const StepId step : partition.steps)
    partition.symbols.insert(partition.symbols.end(), traits[step].symbols.begin(),
                             traits[step].symbols.end());
  std::sort(partition.symbols.begin(), partition.symbols.end());
  partition.symbols.erase(std::unique(partition.symbols.begin(), partition.symbols.end()),
                          partition.symbols.end());
}

/// Inputs and outputs, from the last partition to the first.
void add_signatures(const ir::ScheduleRecord& record, const std::vector<StepTraits>& traits,
                    std::vector<Partition>& partitions) {
  std::vector<std::uint32_t> last_use(record.buffers.size(), 0);
  std::vector<std::uint32_t> ends;
  std::uint32_t place = 0;
  for (const Partition& partition : partitions) {
    for (const StepId step : partition.steps) {
      for (const auto* list : {&record.steps[step].reads, &record.steps[step].writes})
        for (const BufferId buffer : *list) last_use[root_of(record, buffer)] = place;
      ++place;
    }
    ends.push_back(place);
  }
  std::set<BufferId> needed;
  for (BufferId b = 0; b < record.buffers.size(); ++b)
    if (record.buffers[b].role == PlanBuffer::Role::Output) needed.insert(root_of(record, b));
  for (std::size_t k = partitions.size(); k-- > 0;) {
    const Flow flow = flow_of(record, partitions[k], last_use, ends[k]);
    std::set<BufferId> inputs, outputs;
    std::set_difference(flow.touched.begin(), flow.touched.end(), flow.made.begin(),
                        flow.made.end(), std::inserter(inputs, inputs.end()));
    std::set_intersection(flow.made.begin(), flow.made.end(), needed.begin(), needed.end(),
                          std::inserter(outputs, outputs.end()));
    for (const BufferId buffer : outputs) needed.erase(buffer);
    needed.insert(inputs.begin(), inputs.end());
    // What is not freed inside is given back: its address stays in the hands of the captured graph.
    std::set_difference(inputs.begin(), inputs.end(), flow.freed.begin(), flow.freed.end(),
                        std::inserter(outputs, outputs.end()));
    partitions[k].inputs.assign(inputs.begin(), inputs.end());
    partitions[k].outputs.assign(outputs.begin(), outputs.end());
    collect_symbols(record, traits, partitions[k]);
  }
}

std::optional<std::uint32_t> position_of(const PlanBuffer& buffer, PlanBuffer::Role role) {
  return buffer.role == role ? std::optional(buffer.position) : std::nullopt;
}

}  // namespace

std::string split_reason(const StepTraits& step, const CaptureOptions& options) {
  for (const std::string& op : step.ops)
    if (std::find(options.split_ops.begin(), options.split_ops.end(), op) !=
        options.split_ops.end())
      return op + " is listed by the user";
  if (!options.enabled) return "capture is off";
  if (!step.on_device) return "runs on another device";
  if (step.crosses_devices) return "copies between devices";
  if (step.conditional) return "is conditional";
  if (step.makes_sizes) return "makes sizes known only at run time";
  if (step.capture_unsafe) return "holds an op that is not capturable";
  if (step.own_work) return "queues work of its own";
  if (intersects(step.symbols, options.unsafe_symbols)) return "uses a size declared unsafe";
  if (options.split_dynamic && !step.symbols.empty()) return "uses symbolic sizes";
  return {};
}

CapturePlan plan_capture(const ir::ScheduleRecord& record, const std::vector<StepTraits>& traits,
                         const CaptureOptions& options) {
  HD_CHECK(traits.size() == record.steps.size());
  CapturePlan plan;
  std::vector<bool> split;
  for (const StepTraits& step : traits) {
    plan.reasons.push_back(split_reason(step, options));
    split.push_back(!plan.reasons.back().empty());
  }
  plan.order.resize(record.steps.size());
  std::iota(plan.order.begin(), plan.order.end(), 0);
  if (options.reorder) reorder(record, split, options, plan);
  for (const StepId step : plan.order) {
    if (plan.partitions.empty() || plan.partitions.back().capturable == split[step])
      plan.partitions.push_back(
          {.steps = {}, .capturable = !split[step], .reason = plan.reasons[step]});
    plan.partitions.back().steps.push_back(step);
  }
  add_signatures(record, traits, plan.partitions);
  for (std::size_t k = 0; k < plan.partitions.size(); ++k) {
    Partition& partition = plan.partitions[k];
    partition.captured = partition.capturable && partition.steps.size() >= options.min_kernels;
    if (!partition.captured) continue;
    IndexMap map{k, {}, {}};
    for (const BufferId buffer : partition.inputs)
      map.inputs.push_back(position_of(record.buffers[buffer], PlanBuffer::Role::Input));
    for (const BufferId buffer : partition.outputs)
      map.outputs.push_back(position_of(record.buffers[buffer], PlanBuffer::Role::Output));
    plan.maps.push_back(std::move(map));
  }
  return plan;
}

}  // namespace heddle::scheduler
