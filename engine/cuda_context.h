// What one request in flight owns on a CUDA device, and how its steps are launched.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "engine/cuda_graph.h"
#include "engine/cuda_runtime.h"
#include "engine/executable.h"
#include "engine/region_run.h"

namespace heddle::engine {

/// Arena, streams, events, staging and the addresses of every kernel argument.
///
/// The host waits at the end of each run: when run() returns or throws, no work of it is left, so memory
/// may be used again at once.
class CudaContext : private RegionMachine {
 public:
  /// @param graphs  counters of the engine's graphs; outlive the context
  CudaContext(CudaRuntimePtr runtime, GraphCounters& graphs);
  ~CudaContext() override;
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  /// Runs the plan. Host inputs are staged through pinned memory and host outputs back; inputs on the
  /// device are read where they are. What the graph writes to a host input is copied there.
  /// @return the first status word that is not 0, else 0.
  /// @throws OutOfMemory, DeviceError, DeviceLost.
  std::int32_t run(const BoundPlan& plan, std::span<const Tensor> inputs,
                   std::span<const Tensor> outputs);

 private:
  /// Bytes that lie on the host, in pinned memory and on the device.
  struct Transfer {
    const Tensor* tensor;
    std::size_t offset;  ///< in staging, pinned and on the device
    std::size_t bytes;
    bool input;
    bool output;             ///< comes back: an output, or an input that is written
    std::uint32_t position;  ///< which input or output of the call
    bool is_input;           ///< of the two
  };

  /// The graphs of one executable for calls whose tensors lie alike.
  struct Graphs {
    std::shared_ptr<const Executable> executable;
    std::vector<bool> on_host;  ///< by input, then by output: whether it is copied
    std::vector<std::unique_ptr<SegmentGraph>>
        segments;  ///< null: not captured; empty: not made yet
  };

  void use(const BoundPlan& plan);
  void add_transfer(const Tensor& tensor, bool input, bool output, std::size_t position,
                    bool is_input);
  void list_transfers(const BoundPlan& plan, std::span<const Tensor> inputs,
                      std::span<const Tensor> outputs);
  void set_addresses(const BoundPlan& plan, std::span<const Tensor> inputs,
                     std::span<const Tensor> outputs);
  void queue(const BoundPlan& plan);
  void queue_streams(const BoundPlan& plan);
  void queue_graphs(const BoundPlan& plan, Graphs& graphs);
  /// @return null at the first call of a kind: its steps are queued one by one.
  Graphs* graphs_for(const BoundPlan& plan);
  GraphRequest graph_request(const BoundPlan& plan, bool with_steps);
  std::vector<ir::StepId> steps_of(const BoundPlan& plan, const Transfer& transfer) const;
  /// Whether all were queued, as queue_steps().
  bool queue_segment(const BoundPlan& plan, const GraphSegment& segment);
  /// @return whether all were queued: none after a region that met an error.
  bool queue_steps(const BoundPlan& plan);
  void fill_pinned();
  void clear_status();
  void bring_in();
  void bring_out();
  void deliver() const;
  void launch(const BoundSteps& plan, const scheduler::BoundStep& step, std::size_t number);
  /// Waits for what a failed run has left behind.
  void settle() noexcept;

  // What regions need of the machine that runs them.
  std::int32_t run(const Frame& frame) override;
  std::int32_t truth(const void* address, bool& answer) override;
  void copy(void* to, const void* from, std::size_t bytes) override;

  CudaRuntimePtr runtime_;
  std::uint64_t plan_id_ = 0;
  memory::PoolBlock arena_;
  memory::PoolBlock staging_;  ///< on the device
  memory::PoolBlock pinned_;   ///< begins with the status word and a condition
  memory::PoolBlock status_;
  bool status_is_zero_ = false;
  void* status_address_ = nullptr;
  Frame frame_;
  std::vector<std::unique_ptr<device::Stream>> streams_;
  std::vector<std::unique_ptr<device::Event>> events_;  ///< of steps, then the one at the begin
  std::vector<std::uint32_t> event_of_;                 ///< by step
  device::Stream* stream_ = nullptr;                    ///< where launches go
  std::vector<Transfer> transfers_;
  GraphCounters& counters_;
  std::vector<Graphs> graphs_;  ///< most recently used first
  std::vector<bool> on_host_;   ///< of this call, as Graphs::on_host
  std::vector<GraphCopy> copies_in_, copies_out_;
  std::vector<void*> device_inputs_, device_outputs_;
  std::size_t staged_bytes_ = 0;
  std::vector<void*> arguments_;
  std::vector<KernelTensor> custom_tensors_;
};

/// The contexts of one engine: as many as there are requests in flight.
class CudaExecutor {
 public:
  explicit CudaExecutor(CudaRuntimePtr runtime) : runtime_(std::move(runtime)) {}

  CudaRuntime& runtime() { return *runtime_; }
  const CudaRuntimePtr& runtime_pointer() const { return runtime_; }
  /// @throws DeviceLost at once when the device's context is lost; what CudaContext::run throws.
  std::int32_t run(const BoundPlan& plan, std::span<const Tensor> inputs,
                   std::span<const Tensor> outputs);
  const GraphCounters& graphs() const { return graphs_; }

 private:
  std::unique_ptr<CudaContext> acquire();
  /// Gives back what idle contexts hold; false: there were none.
  bool drop_idle();

  CudaRuntimePtr runtime_;
  std::mutex mutex_;
  GraphCounters graphs_;
  std::vector<std::unique_ptr<CudaContext>> idle_;
};

}  // namespace heddle::engine
