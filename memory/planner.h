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

namespace heddle::memory {

inline constexpr std::int64_t kNotInArena = -1;
inline constexpr std::int64_t kAlignment = 64;

/// `bytes` up to the next multiple of kAlignment.
constexpr std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Offsets for concrete sizes.
struct MemoryPlan {
  std::vector<std::int64_t> offsets;  ///< one a buffer; kNotInArena for inputs, outputs, parameters
  std::int64_t peak_bytes = 0;        ///< of the arena
  std::int64_t lower_bound_bytes = 0;  ///< largest sum of bytes of intermediates live in one stage
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
  /// @throws OutOfMemory when the arena would pass 2^62 bytes.
  MemoryPlan bind(const base::SymbolValues& sizes, std::uint32_t arena = 0) const;

 private:
  struct Item {
    ir::BufferId buffer;
    std::uint32_t first_stage;
    std::uint32_t last_stage;
    std::uint32_t arena;
    std::vector<std::uint32_t> bytes;  // the largest of these, values of `expressions_`
    std::uint32_t first_step = ir::kNone;
    std::uint32_t last_step = 0;
    std::uint32_t free_for_all =
        ir::kNone;  // when its bytes are: a stage, or a step of several streams
  };
  /// Stages, or steps of several streams.
  std::uint32_t begin_of(const Item& item) const {
    return in_stages_ ? item.first_stage : item.first_step;
  }
  std::uint32_t end_of(const Item& item) const {
    return in_stages_ ? item.last_stage : item.last_step;
  }
  void set_clocks(const ir::ScheduleRecord& record, const ir::StepClocks& clocks);
  void set_free_for_all(const ir::StepClocks& clocks);
  bool conflict(std::size_t a, std::size_t b) const;
  /// By lane: how many places must be done before other items may lie where item k lies, and how many are done
  /// when it is first used.
  std::span<const std::uint32_t> until(std::size_t k) const {
    return std::span(until_).subspan(k * lanes_, lanes_);
  }
  std::span<const std::uint32_t> from(std::size_t k) const {
    return std::span(from_).subspan(k * lanes_, lanes_);
  }
  /// Places items in `order`; fills `offsets` by item and returns the peak. Compares every two.
  std::int64_t place(std::span<const std::size_t> order, std::span<const std::int64_t> bytes,
                     std::span<std::int64_t> offsets) const;
  /// The same for items in the order of their first uses: takes and gives back ranges as steps go by. n log n.
  std::int64_t place_in_time(std::span<const std::size_t> order,
                             std::span<const std::int64_t> bytes,
                             std::span<std::int64_t> offsets) const;
  MemoryPlan plan_for(std::span<const std::int64_t> bytes, std::uint32_t arena) const;
  std::int64_t lower_bound(std::span<const std::int64_t> bytes) const;
  /// slide() of items (memory/slide.h).
  void slide_items(std::span<const std::size_t> order, std::span<const std::int64_t> bytes,
                   std::int64_t peak, std::span<std::int64_t> offsets) const;
  /// Looks for a better plan than `plan`, whose offsets by item are `offsets`, from `order` on.
  void place_highest_first(std::vector<std::size_t> order, std::span<const std::int64_t> bytes,
                           MemoryPlan& plan, std::vector<std::int64_t>& offsets) const;

  std::vector<Lifetime> lifetimes_;
  std::vector<ir::BufferId> roots_;
  std::vector<ir::BufferId> taken_from_;
  base::ExprTable expressions_;
  std::vector<Item> items_;
  std::vector<std::ptrdiff_t> item_of_;  // by buffer; -1: not in the arena
  std::size_t lanes_ = 1;
  std::vector<std::uint32_t> until_, from_;  // by item and lane
  std::size_t stages_ = 0;
  bool in_stages_ = true;
  bool reuse_ = true;

  /// A plan that was made, by what it follows from.
  struct Made {
    std::uint32_t arena;
    std::vector<std::int64_t> bytes;  ///< by item
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

/// Independent check of a plan: no two live buffers overlap. @throws InvariantError naming both.
void check(const ir::ScheduleRecord& record, std::span<const std::uint32_t> stage_of,
           const base::SymbolValues& sizes, const MemoryPlan& plan);

}  // namespace heddle::memory
