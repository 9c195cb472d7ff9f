// Which steps are run for some entries of a batch after others (engine/batch_runs.h), and for how many at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/expr_table.h"
#include "engine/bound.h"
#include "engine/phases.h"
#include "ir/graph.h"
#include "memory/planner.h"
#include "scheduler/order.h"

namespace heddle::engine {

/// Chooses among runs of neighbouring stages whose steps treat the entries of a batch apart, and among numbers of entries at a time:
/// what keeps more bytes from coming from afar than reading constants again each time brings. Does not depend on the threads, but
/// that each has entries of its own. Threads: any.
class BatchChoice {
 public:
  /// What does not depend on sizes. The arguments outlive it.
  /// @param cache_bytes  of a thread's second-level cache
  BatchChoice(const scheduler::Schedule& schedule, const Phases& phases,
              const memory::Planner& planner, std::span<const ir::Assumption> assumptions,
              std::int64_t cache_bytes);

  /// Of all phases, for the sizes of the first. @param bytes  of buffers, by number, for these
  std::vector<memory::Repeat> repeats(const BoundSteps& plan,
                                      const std::function<std::int64_t(ir::BufferId)>& bytes) const;

 private:
  /// A buffer that steps of a run alone use.
  struct Between {
    std::size_t first = 0;  ///< stage of the run
    ir::BufferId buffer = 0;
    std::int64_t uses = 0;  ///< steps that read or write it
  };
  /// Stages all of whose steps treat entries apart.
  struct Run {
    std::size_t first = 0;                            ///< of all stages
    std::vector<std::int64_t> steps;                  ///< by stage
    std::vector<std::vector<ir::BufferId>> constant;  ///< by stage: what all entries read
    std::vector<std::vector<Between>> between;        ///< by the stage that uses them last
  };
  class Search;

  void add_run(std::size_t first, std::size_t end);
  bool holds_for(std::int64_t entries, const base::SymbolValues& sizes) const;

  const scheduler::Schedule& schedule_;
  const memory::Planner& planner_;
  std::vector<ir::Assumption> assumptions_;  ///< those that mention the batch
  std::int64_t cache_bytes_;
  std::vector<Run> runs_;
};

}  // namespace heddle::engine
