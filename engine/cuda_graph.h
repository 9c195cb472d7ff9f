// The steps of a plan as graphs of the device: which go into one, and the executable graphs of a context.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "engine/bound.h"
#include "engine/cuda_runtime.h"
#include "scheduler/capture.h"
#include "scheduler/streams.h"

namespace heddle::engine {

/// Steps [first, first + after.size()) of a unit, which follow all earlier ones.
struct GraphSegment {
  ir::StepId first = 0;
  /// By step: the steps of the segment that it comes right after, counted from `first`. They are those before
  /// it on its stream and those whose events it waits for: the memory plan lets buffers share bytes by no other
  /// order. Every strong and weak edge is among them or follows from them.
  std::vector<std::vector<std::uint32_t>> after;
  bool captured = false;
  std::string reason;  ///< why not; empty: it is, or is too small
  // What goes in and out (see scheduler/capture.h), and for captured ones which argument and output of the program
  // each is.
  std::vector<ir::BufferId> inputs, outputs;
  std::vector<std::optional<std::uint32_t>> arguments, results;
  std::vector<base::Symbol> sizes;  ///< that steps and inputs need, sorted

  ir::StepId end() const { return first + static_cast<ir::StepId>(after.size()); }
};

/// The segments of a unit, in order.
using GraphPlan = std::vector<GraphSegment>;

/// @param capture  of steps that are in its order
GraphPlan plan_graphs(const scheduler::CapturePlan& capture, const scheduler::StreamPlan& streams);

/// What graphs of one engine did; written by its contexts.
struct GraphCounters {
  std::atomic<std::uint64_t> made{0};
  std::atomic<std::uint64_t> launches{0};
  std::atomic<std::uint64_t> updates{0};
};

/// The parameters of a kernel's launch: their addresses, in order.
///
/// @param status    where the address of the status word is
/// @param counters  where that of the counters of the step's stream is
void collect_arguments(const BoundSteps& plan, const scheduler::BoundStep& step, std::size_t number,
                       void** status, void** counters, std::vector<void*>& arguments);

/// A copy between pinned memory and the device that is part of a graph.
struct GraphCopy {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
  std::vector<ir::StepId>
      steps{};  ///< of the unit: that use what it brings, or write what it takes
};

/// A request in a context: addresses are those of its tensors.
struct GraphRequest {
  const BoundSteps& plan;  ///< the phase that the segment lies in
  std::span<const scheduler::BoundStep> steps;
  void** status;                          ///< where the address of the status word is
  std::span<void*> counters;              ///< addresses, by stream
  std::span<const GraphCopy> copies_in;   ///< part of the first segment, if that is captured
  std::span<const GraphCopy> copies_out;  ///< part of the last one
};

/// One segment as an executable graph.
class SegmentGraph {
 public:
  /// @throws CustomOpError when the function of a custom op throws, or queues what cannot be captured.
  SegmentGraph(CudaRuntime& runtime, const GraphSegment& segment, const GraphRequest& request,
               bool copies_in, bool copies_out, GraphCounters& counters);

  /// Makes the next launch that of `request`, whose plan has the same steps, and whose copies are as many.
  /// @return false: what a library or a custom op queues has another form, and the graph has to be made anew.
  /// @throws CustomOpError as above; then the graph is not to be launched.
  bool update(const GraphRequest& request);
  void launch(device::Stream& stream);

 private:
  struct LaunchNode {
    device::Graph::Node node = 0;
    std::uint32_t variant = 0;
    bool enabled = true;
    std::uint32_t blocks = 0;
    bool is_queued = false;  ///< what a library and a kernel after it queue, or a custom op
    std::vector<std::uint64_t> words;
  };
  struct CopyNode {
    device::Graph::Node node = 0;
    void* to = nullptr;
    const void* from = nullptr;
    std::size_t bytes = 0;
  };
  using Nodes = std::vector<device::Graph::Node>;

  void build(const GraphRequest& request);
  void add_step(const GraphRequest& request, std::uint32_t k, Nodes after);
  CopyNode add_copy(const GraphCopy& copy, device::CopyKind kind, const Nodes& after);
  Nodes reduced(Nodes after);
  Nodes nodes_of(std::span<const ir::StepId> steps) const;
  bool update(const GraphRequest& request, std::uint32_t k);
  /// What the step of a library or a custom op does.
  device::Graph::Queue queue_of(const GraphRequest& request, std::uint32_t k);
  device::Graph::Node add_queued(const GraphRequest& request, std::uint32_t k, const Nodes& before);
  bool set_queued(const GraphRequest& request, std::uint32_t k);
  void update(CopyNode& node, const GraphCopy& copy, device::CopyKind kind);
  /// Of step `k` of the segment in the steps of the request.
  std::size_t number_of(const GraphRequest& request, std::uint32_t k) const {
    return segment_.first + k - request.plan.first_step;
  }
  /// Collects the arguments of step `k` of the segment, and their values as words.
  void collect(const GraphRequest& request, std::uint32_t k);

  CudaRuntime& runtime_;
  const GraphSegment& segment_;
  const bool copies_in_;
  const bool copies_out_;
  GraphCounters& counters_;
  std::unique_ptr<device::Graph> graph_;
  std::vector<std::vector<bool>> done_before_;  ///< by node, while the graph is made
  std::vector<LaunchNode> launches_;
  std::vector<CopyNode> in_, out_;
  std::vector<void*> arguments_;
  std::vector<std::uint64_t> words_;
  std::vector<KernelTensor> custom_tensors_;
};

}  // namespace heddle::engine
