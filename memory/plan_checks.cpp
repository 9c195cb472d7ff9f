// Plans proved step by step: no bytes are reused while they are live.
#include <algorithm>
#include <fmt/format.h>

#include "heddle/error.h"
#include "memory/planner.h"

namespace heddle::memory {

using ir::BufferId;
using ir::PlanBuffer;
using ir::ScheduleRecord;

namespace {

/// An access of a step to bytes of the arena.
struct Use {
  BufferId buffer;
  std::int64_t begin, end;
  ir::StepId step;
  bool write;
};

/// @param parts  by step, of the entries of the batch; empty: each step has all
std::vector<Use> arena_uses(const ScheduleRecord& record, const base::SymbolValues& sizes,
                            const MemoryPlan& plan, std::span<const EntryPart> parts = {}) {
  std::vector<Use> uses;
  for (ir::StepId step = 0; step < record.steps.size(); ++step) {
    const auto add = [&](BufferId b, bool write) {
      if (plan.offsets[b] == kNotInArena) return;
      const base::SymExpr& size = record.buffers[b].bytes;
      const std::int64_t bytes = size.evaluate(sizes);
      std::int64_t begin = 0, end = bytes;
      if (!parts.empty() && record.batch && size.mentions(*record.batch)) {
        begin = bytes * parts[step].number / parts[step].count;
        end = bytes * (parts[step].number + 1) / parts[step].count;
      }
      if (begin < end)
        uses.push_back({b, plan.offsets[b] + begin, plan.offsets[b] + end, step, write});
    };
    for (const BufferId b : record.steps[step].reads) add(b, false);
    for (const BufferId b : record.steps[step].writes) add(b, true);
  }
  return uses;
}

/// Whether `step` may put what it writes where what it reads lies.
bool may_overwrite(const ir::PlanStep& step, const std::vector<BufferId>& roots, const Use& read,
                   const Use& write) {
  return std::any_of(step.may_reuse.begin(), step.may_reuse.end(), [&](const auto& pair) {
    return roots[step.reads[pair.first]] == roots[read.buffer] &&
           roots[step.writes[pair.second]] == roots[write.buffer];
  });
}

/// Whether those of `uses` that `counts` accepts write all bytes of [begin, end).
template <typename Counts>
bool are_written(const std::vector<Use>& uses, Counts&& counts, std::int64_t begin,
                 std::int64_t end) {
  while (begin < end) {
    const std::int64_t before = begin;
    for (const Use& use : uses)
      if (use.begin <= begin && use.end > begin && counts(use)) begin = use.end;
    if (before == begin) return false;
  }
  return true;
}

[[noreturn]] void overlap_error(const ScheduleRecord& record, const Use& a, const Use& b,
                                const char* expected) {
  throw InvariantError(
      {.what = fmt::format("memory plan: {} and {} overlap", record.buffers[a.buffer].value,
                           record.buffers[b.buffer].value),
       .where = fmt::format("steps {} and {}", a.step, b.step),
       .expected = expected,
       .got = {}});
}

}  // namespace

void check_streams(const ScheduleRecord& record, const base::SymbolValues& sizes,
                   const MemoryPlan& plan,
                   const std::function<bool(ir::StepId first, ir::StepId second)>& ordered) {
  const std::vector<Use> uses = arena_uses(record, sizes, plan);
  const std::vector<BufferId> roots = alias_roots(record);
  const auto fail = [&](const Use& a, const Use& b) {
    overlap_error(record, a, b,
                  "bytes that are used one after the other, in an order that events keep");
  };
  std::map<std::pair<BufferId, BufferId>, bool> first_of;  // which of two roots is used first
  for (const Use& a : uses) {
    for (const Use& b : uses) {
      const BufferId x = roots[a.buffer];
      const BufferId y = roots[b.buffer];
      if (x >= y || a.end <= b.begin || b.end <= a.begin) continue;
      if (a.step == b.step) {
        const Use& read = a.write ? b : a;
        const Use& write = a.write ? a : b;
        const ir::PlanStep& step = record.steps[a.step];
        const bool allowed = !read.write && write.write && may_overwrite(step, roots, read, write);
        if (!allowed) fail(a, b);
        continue;
      }
      const bool a_first = ordered(a.step, b.step);
      if (!a_first && !ordered(b.step, a.step)) fail(a, b);
      if (first_of.try_emplace({x, y}, a_first).first->second != a_first) fail(a, b);
    }
  }
}

void check(const ScheduleRecord& record, std::span<const std::uint32_t> stage_of,
           const base::SymbolValues& sizes, const MemoryPlan& plan,
           std::span<const EntryPart> parts) {
  const std::vector<Use> uses = arena_uses(record, sizes, plan, parts);
  const std::vector<BufferId> roots = alias_roots(record);
  const auto fail = [&](const Use& a, const Use& b) {
    overlap_error(record, a, b, "bytes of their own while both are in use");
  };
  // A write destroys what overlapping buffers held: none of them may be read at or after it unless it was
  // written again, except operands that the writing step itself may overwrite.
  for (const Use& write : uses) {
    if (!write.write) continue;
    for (const Use& other : uses) {
      if (roots[other.buffer] == roots[write.buffer]) continue;
      if (other.end <= write.begin || write.end <= other.begin) continue;
      if (stage_of[other.step] == stage_of[write.step]) {
        const ir::PlanStep& step = record.steps[write.step];
        const bool allowed =
            other.step == write.step && !other.write && may_overwrite(step, roots, other, write);
        if (!allowed) fail(write, other);
      } else if (!other.write && stage_of[other.step] > stage_of[write.step]) {
        const std::int64_t begin = std::max(other.begin, write.begin);
        const std::int64_t end = std::min(other.end, write.end);
        const auto is_again = [&](const Use& again) {
          return again.write && roots[again.buffer] == roots[other.buffer] &&
                 stage_of[again.step] > stage_of[write.step] &&
                 stage_of[again.step] <= stage_of[other.step];
        };
        const bool rewritten = are_written(uses, is_again, begin, end);
        if (!rewritten) fail(write, other);
      }
    }
  }
}

}  // namespace heddle::memory
