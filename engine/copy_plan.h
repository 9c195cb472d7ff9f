// Where copies between the host and a CUDA device go among the steps of a plan on streams.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/schedule.h"
#include "scheduler/streams.h"

namespace heddle::engine {

/// An input or output that lies on the host.
struct HostTensor {
  bool is_input = false;
  std::uint32_t position = 0;
  bool comes_in = false, goes_out = false;
};

/// By tensor: the steps that read or write it, and those that write it, in order.
struct TensorSteps {
  std::vector<std::vector<ir::StepId>> users, writers;
};

/// @param roots  by buffer of `record`: whose bytes it has
TensorSteps steps_of(const ir::ScheduleRecord& record, std::span<const ir::BufferId> roots,
                     std::span<const HostTensor> tensors);

/// Copies beside the steps, with the fewest events:
///
///   in   at the begin. For the first step of a stream: on that stream. For others: one after another on a stream
///        of their own, in the order of their first readers. A step waits for those that it uses, unless what it comes after has.
///   out  when its last writer has been queued: on that one's stream where nothing comes after it, else on a stream of
///        their own, which waits for the writers.
///
/// Other than steps read: what tells sizes reads what the step that it is for reads, behind what that waits for.
struct CopyPlan {
  using StepId = ir::StepId;
  /// In the order of their lanes: numbers of streams, then `kAside`.
  struct In {
    std::uint32_t tensor = 0;  ///< which of those given
    std::uint32_t lane = 0;
    bool records = false;  ///< whether an event follows it
  };
  static constexpr std::uint32_t kAside = 0xffffffffu;
  struct Wait {
    StepId step = 0;
    std::uint32_t copy = 0;  ///< of `in`
  };
  struct Out {
    StepId step = 0;  ///< the last writer
    std::uint32_t tensor = 0;
    bool aside = false;
    std::vector<StepId> after{};  ///< aside: steps whose events it waits for
  };
  std::vector<In> in;
  std::vector<Wait> waits;  ///< by step
  std::vector<Out> out;     ///< by step
  std::vector<StepId>
      marks;  ///< in order: steps that an event follows, of those that have none in the plan of streams
  std::vector<std::uint32_t> at_end;  ///< tensors that go out at the end
  bool is_aside = false;              ///< whether anything goes out aside
};

/// @param steps  of `tensors`
CopyPlan plan_copies(const TensorSteps& steps, const scheduler::StreamPlan& streams,
                     std::span<const HostTensor> tensors);

/// The same where steps run in segments one after another, some of which are graphs: by segment the tensors that it is the
/// first to use, and those that it is the last to write. What nothing writes goes out after the last one.
struct SegmentCopies {
  std::vector<std::vector<std::uint32_t>> in, out;

  /// Whether a segment before the last one has something to bring out.
  bool is_aside() const;
};

/// @param ends  by segment: the step after its last
SegmentCopies plan_segment_copies(const TensorSteps& steps, std::span<const ir::StepId> ends,
                                  std::span<const HostTensor> tensors);

}  // namespace heddle::engine
