// Which runs of steps a device may capture as one graph, and what goes in and out of each.
//
//   reasons    step → why it cannot be captured (empty: it can)
//   reorder    drain all ready split steps, then all ready capturable ones, and again; taken if that makes fewer
//              capturable partitions, or as many and fewer in all, and the peak of memory stays below 1.1 times the one of
//              the given order
//   moves      split steps that wait for nothing go first, those that nobody waits for last, unless that
//              makes more partitions or raises the peak beyond the same bound
//   partitions maximal runs of one kind
//   signature  from the last to the first: what a partition reads and others made, or frees; what it makes
//              and others need. Order edges carry nothing.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/order.h"

namespace heddle::scheduler {

/// What the split predicate asks about a step, in the order in which it asks.
struct StepTraits {
  std::vector<std::string> ops;  ///< of all nodes the step computes
  bool on_device = true;         ///< the step runs on the device that captures
  bool crosses_devices = false;  ///< a copy between devices
  bool conditional = false;
  bool makes_sizes = false;  ///< its results have sizes known only at run time
  bool capture_unsafe =
      false;              ///< any of its nodes is tagged so (a custom op that is not capturable)
  bool own_work = false;  ///< the step queues work that is not one kernel or copy
  std::vector<base::Symbol> symbols;  ///< sizes that it uses
};

struct CaptureOptions {
  bool enabled = true;
  std::vector<std::string> split_ops;        ///< ops that are never captured
  std::vector<base::Symbol> unsafe_symbols;  ///< sizes that change between replays
  bool split_dynamic = false;                ///< steps that use symbolic sizes are not captured
  std::size_t min_kernels = 1;               ///< smaller partitions are run without capture
  bool reorder = true;
  base::SymbolValues sizes;  ///< that peaks are compared for
};

/// Why a step is not captured, by the first rule that applies; empty: it is.
std::string split_reason(const StepTraits& step, const CaptureOptions& options);

struct Partition {
  std::vector<ir::StepId> steps;  ///< of the record that was given
  bool capturable = false;
  bool captured = false;  ///< capturable and not too small
  std::string reason;     ///< of the first step, where not capturable
  std::vector<ir::BufferId> inputs;
  std::vector<ir::BufferId> outputs;
  std::vector<base::Symbol> symbols;  ///< sizes that its steps and inputs need, sorted
};

/// For each captured partition: which argument or output of the graph a buffer is; nothing for others.
struct IndexMap {
  std::size_t partition = 0;
  std::vector<std::optional<std::uint32_t>> inputs;
  std::vector<std::optional<std::uint32_t>> outputs;
};

struct CapturePlan {
  std::vector<ir::StepId> order;
  std::vector<std::string> reasons;  ///< by step of the record that was given: split_reason()
  std::vector<Partition> partitions;
  std::vector<IndexMap> maps;
  bool reordered = false;
};

/// `record` in a valid order; `traits` one a step. Cost: n log n in steps and edges.
CapturePlan plan_capture(const ir::ScheduleRecord& record, const std::vector<StepTraits>& traits,
                         const CaptureOptions& options);

}  // namespace heddle::scheduler
