// How many bytes are live while steps run in some order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/symexpr.h"
#include "ir/schedule.h"

namespace heddle::scheduler {

/// What the orders of a record's steps are judged by: bytes of each buffer, and who touches it. A buffer is
/// allocated by the first step that touches it and freed after the last one; donated inputs are there from the
/// start; outputs are never freed; other inputs, parameters and constants do not count. Order edges never extend a
/// lifetime.
class StepMemory {
 public:
  enum class Kind : std::uint8_t {
    Ignored,
    Freed,
    Kept,
    Given,  ///< there before the first step, and freed
  };

  /// Sizes that `sizes` does not tell are taken as 1.
  StepMemory(const ir::ScheduleRecord& record, base::SymbolValues sizes);

  const ir::ScheduleRecord& record() const { return record_; }
  std::size_t steps() const { return touched_.size(); }
  std::size_t buffers() const { return bytes_.size(); }
  /// Buffers that the step touches and that count; aliases stand for what they alias.
  std::span<const ir::BufferId> touched(ir::StepId step) const { return touched_[step]; }
  std::span<const ir::StepId> touching(ir::BufferId buffer) const { return touching_[buffer]; }
  std::int64_t bytes(ir::BufferId buffer) const { return bytes_[buffer]; }
  Kind kind(ir::BufferId buffer) const { return kinds_[buffer]; }
  /// Whether its last step frees the buffer.
  bool is_freed(ir::BufferId buffer) const {
    return kinds_[buffer] == Kind::Freed || kinds_[buffer] == Kind::Given;
  }
  std::int64_t output_bytes() const;
  /// Of donated inputs that steps touch.
  std::int64_t given_bytes() const;

  /// Largest sum of live bytes when the steps of each group of `order` run together: group k are the
  /// next group_sizes[k] steps. Empty: each step is a group of its own.
  std::int64_t peak(std::span<const ir::StepId> order,
                    std::span<const std::uint32_t> group_sizes = {}) const;
  /// Live bytes in each step of `order`, after its allocations.
  std::vector<std::int64_t> live(std::span<const ir::StepId> order) const;

 private:
  std::vector<std::int64_t> live_by_group(std::span<const ir::StepId> order,
                                          std::span<const std::uint32_t> group_of) const;

  const ir::ScheduleRecord& record_;
  std::vector<ir::BufferId> roots_;
  std::vector<std::int64_t> bytes_;
  std::vector<Kind> kinds_;
  std::vector<std::vector<ir::BufferId>> touched_;
  std::vector<std::vector<ir::StepId>> touching_;
};

}  // namespace heddle::scheduler
