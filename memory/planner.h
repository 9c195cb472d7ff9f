// Where each buffer lies in the arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/expr_table.h"
#include "base/symexpr.h"
#include "ir/analysis/step_clocks.h"
#include "ir/schedule.h"
#include "memory/layout.h"

namespace heddle::memory {

inline constexpr std::int64_t kNotInArena = -1;
/// Offsets for concrete sizes.
struct MemoryPlan {
  std::vector<std::int64_t> offsets;  ///< one a buffer; kNotInArena for inputs, outputs, parameters
  std::int64_t peak_bytes = 0;        ///< of the arena
  std::int64_t lower_bound_bytes = 0;  ///< largest sum of bytes of intermediates live in one stage
  /// Of a buffer that only the steps of a Repeat use: its bytes for one time, and how far the next worker's are. 0: another buffer.
  struct Once {
    std::int64_t bytes = 0;
    std::int64_t worker_bytes = 0;
  };
  std::vector<Once> once{};  ///< by buffer; empty: all steps are run once
  Once once_of(ir::BufferId buffer) const { return once.empty() ? Once{} : once[buffer]; }
};

/// Steps that are run again and again, each time for some of the entries of a batch, which they treat apart, and by several workers at
/// once. What only they use lies in an arena of its own for each worker, which holds the entries of one time.
struct Repeat {
  std::uint32_t first_step = 0, last_step = 0;    ///< inclusive
  std::uint32_t first_stage = 0, last_stage = 0;  ///< the same, in stages
  base::SymbolValues sizes;                       ///< of one time
  std::int64_t workers = 1;
  friend bool operator==(const Repeat&, const Repeat&) = default;
};

/// When a buffer's bytes are in use, as inclusive step numbers; of an alias, those of the whole closure.
struct Lifetime {
  std::uint32_t first_step = ir::kNone;
  std::uint32_t last_step = ir::kNone;
};

/// What does not depend on sizes: lifetimes, which buffers share bytes in place, the conflicts. Made once
/// an executable; bind() then takes microseconds.
///
/// Two buffers share bytes only if every access of one is in an earlier stage than every access of the
/// other (of several streams: is done before). Weak edges never extend a lifetime; but a result does not take the
/// bytes of an operand in place while a step waits for that operand by a weak edge and has not run.
class Planner {
 public:
  struct Options {
    bool reuse = true;     ///< false: every buffer has bytes of its own (for tests)
    bool in_place = true;  ///< let a step's result take the bytes of an operand that dies there
    /// Where steps run on several streams: which are done when another begins. Then this, and not stages, says
    /// who may share bytes. Null: stages.
    const ir::StepClocks* clocks = nullptr;
    /// By buffer: the arena it lies in. Buffers that share bytes lie in the first of theirs, and their
    /// size is what the buffers of that arena say. Empty: all in arena 0.
    std::vector<std::uint32_t> arena_of{};
  };
  /// `stage_of[k]`: stage of step k.
  Planner(const ir::ScheduleRecord& record, std::span<const std::uint32_t> stage_of,
          Options options);

  std::span<const Lifetime> lifetimes() const { return lifetimes_; }
  /// The buffer whose bytes buffer b uses (itself if its own).
  std::span<const ir::BufferId> roots() const { return roots_; }
  /// The buffer whose bytes a root takes in place at its first step; kNone where it takes none.
  std::span<const ir::BufferId> taken_from() const { return taken_from_; }
  /// Of all that lies in the bytes of buffer b one after the other in place, b itself included.
  Lifetime chain_lifetime(ir::BufferId b) const;
  /// The plan of one arena; other arenas' buffers have no offset in it. Sizes that change no buffer's bytes, as one token more in a
  /// cache changes few, have the plan of those before. Threads: any.
  /// `repeats`: in order, of whole stages; with stages only.
  /// @throws OutOfMemory when the arena would pass 2^62 bytes.
  MemoryPlan bind(const base::SymbolValues& sizes, std::uint32_t arena = 0,
                  std::span<const Repeat> repeats = {}) const;

 private:
  void set_clocks(const ir::ScheduleRecord& record, const ir::StepClocks& clocks);
  void set_free_for_all(const ir::StepClocks& clocks);
  std::vector<std::int64_t> bytes_of_items(const base::SymbolValues& sizes, std::uint32_t arena,
                                           std::span<const Repeat> repeats) const;
  MemoryPlan plan_for(std::span<const std::int64_t> bytes, std::uint32_t arena,
                      std::span<const Repeat> repeats) const;

  std::vector<Lifetime> lifetimes_;
  std::vector<ir::BufferId> roots_;
  std::vector<ir::BufferId> taken_from_;
  base::ExprTable expressions_;
  Layout layout_;                        ///< bytes of items are values of `expressions_`
  std::vector<std::ptrdiff_t> item_of_;  // by buffer; -1: not in the arena

  /// A plan that was made, by what it follows from.
  struct Made {
    std::uint32_t arena;
    std::vector<std::int64_t> bytes;  ///< by item
    std::vector<Repeat> repeats;
    std::shared_ptr<const MemoryPlan> plan;
  };
  static constexpr std::size_t kMostMade = 8;
  mutable std::mutex made_mutex_;
  mutable std::deque<Made> made_;  ///< the last ones first
};

/// The same of steps on several streams: of two accesses to overlapping bytes of different buffers, one of
/// them a write, one is done before the other begins, and so are all between the same buffers.
/// @throws InvariantError naming both.
void check_streams(const ir::ScheduleRecord& record, const base::SymbolValues& sizes,
                   const MemoryPlan& plan,
                   const std::function<bool(ir::StepId first, ir::StepId second)>& ordered);

/// The entries of ScheduleRecord::batch that a step is run for, as a part of all: number `number` of `count`.
struct EntryPart {
  std::int64_t number = 0;
  std::int64_t count = 1;
};

/// Independent check of a plan: no two live buffers overlap. @throws InvariantError naming both.
/// @param parts  by step; empty: each is run for all entries
void check(const ir::ScheduleRecord& record, std::span<const std::uint32_t> stage_of,
           const base::SymbolValues& sizes, const MemoryPlan& plan,
           std::span<const EntryPart> parts = {});

}  // namespace heddle::memory
