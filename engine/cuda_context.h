// What one request in flight owns on a CUDA device, and how its steps are launched.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/completion.h"
#include "engine/copy_plan.h"
#include "engine/cuda_graph.h"
#include "engine/cuda_runtime.h"
#include "engine/executable.h"
#include "engine/region_run.h"
#include "engine/run_events.h"

namespace heddle::engine {

/// A call of an engine on CUDA.
struct CudaCall {
  const BoundPlan& plan;
  std::span<const Tensor> inputs;
  std::span<const Tensor> outputs;  ///< `late` makes those that are undefined before
  OutputSource& late;
  std::vector<RunEvent>* events =
      nullptr;  ///< not null: steps run one by one, and it gets what happened
};

/// How a call ended.
struct CudaOutcome {
  std::int32_t status =
      0;  ///< the first status word that is not 0; 0 also when that is not known yet
  std::int64_t peak_bytes = 0;  ///< of arenas
};

/// Arena, streams, events, staging and the addresses of every kernel argument.
///
/// On streams of its own the host waits at the end of each run: when run() returns or throws, no work of it is
/// left. On a stream of the caller's it waits only for results that lie on the host; else the context is busy until
/// the work is done, and keeps what that uses.
///
/// Where sizes or conditions depend on values the host waits for these in the middle of a run: for the one stream
/// that brings them.
class CudaContext : private RegionMachine, private StepRunner {
 public:
  /// @param graphs     counters of the engine's graphs; outlive the context
  /// @param stream     the caller's, by its handle; null: one of the context's own
  /// @param progress   of that stream
  /// @param make_room  gives memory of others back to the pool; false: there was none
  CudaContext(CudaRuntimePtr runtime, GraphCounters& graphs, void* stream,
              std::shared_ptr<StreamProgress> progress, std::function<bool()> make_room);
  ~CudaContext() override;
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  /// Runs the plan. Host inputs are staged through pinned memory and host outputs back; inputs on the
  /// device are read where they are. What the graph writes to a host input is copied there.
  /// @throws OutOfMemory, DeviceError, DeviceLost; where only the run tells sizes, what Frame::next() throws.
  CudaOutcome run(const CudaCall& call);
  /// Whether the last run got as far as queueing work.
  bool has_begun() const { return has_begun_; }

  /// Whether work of the last run may still be under way, as far as is known without asking the device.
  bool is_under_way() const { return completion_ != nullptr && !completion_->known_done(); }
  /// The same, as far as is known without waiting.
  bool busy() { return completion_ != nullptr && !completion_->done(); }
  /// Waits until it is not, before the next run, which may well have the same inputs: they are kept until then.
  void begin() noexcept;
  /// Waits until it is not, and lets go of all that it used.
  void finish() noexcept;
  /// Of arena and staging.
  std::size_t device_bytes() const { return arena_.bytes() + staging_.bytes(); }
  /// Of runs that did not wait, in order; 0: nothing is under way.
  std::uint64_t ticket() const { return completion_ == nullptr ? 0 : ticket_; }

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
    std::vector<std::uint8_t> on_host;  ///< by input, then by output: whether it is copied
    std::vector<std::unique_ptr<SegmentGraph>>
        segments;  ///< null: not captured; empty: not made yet
    SegmentCopies copies;
    std::uint64_t plan_id = 0;  ///< that they were launched for; 0: not all of them were
    std::vector<void*> places;  ///< with this at these addresses
  };

  void use(const BoundPlan& plan);
  static void make_outputs(const CudaCall& call);
  void make_counters(const BoundPlan& plan);
  void note_written(const BoundPlan& plan);
  void add_transfer(const Tensor& tensor, bool input, bool output, std::size_t position,
                    bool is_input);
  void list_transfers(const BoundPlan& plan, std::span<const Tensor> inputs,
                      std::span<const Tensor> outputs);
  void set_addresses(const CudaCall& call);
  // These give false when a phase or region met an error: what comes after was not queued.
  bool queue(const CudaCall& call);
  bool queue_streams(const BoundPlan& plan);
  bool queue_graphs(Graphs& graphs);
  bool queue_segment(const GraphSegment& segment);
  bool queue_steps();
  void begin_streams();
  void end_streams();
  bool queue_traced(std::vector<RunEvent>& events);
  /// Makes `phase_` that of a step, whose turn it is.
  bool reach(ir::StepId step);
  void queue_graph(Graphs& graphs, std::size_t number, bool alike);
  /// @return null at the first call of a kind: its steps are queued one by one.
  Graphs* graphs_for(const BoundPlan& plan);
  /// Notes what graphs of the call are launched with. @return whether it is what they were launched with before.
  bool is_launched_alike(Graphs& graphs);
  GraphRequest graph_request(const SegmentCopies& copies, bool with_steps);
  void begin_segments(const SegmentCopies& copies);
  void follow_segment(const SegmentCopies& copies, std::size_t number);
  TensorSteps steps_of_transfers(const Unit& unit) const;
  void note_places();
  void plan_copies(const BoundPlan& plan);
  device::Event& copy_event(std::size_t number);
  void fill_pinned();
  void clear_counters();
  void bring_in();
  void bring_out();
  void bring_in(const Transfer& transfer, device::Stream& stream);
  void bring_out(const Transfer& transfer, device::Stream& stream);
  std::int32_t& status_word() { return *static_cast<std::int32_t*>(status_address_); }
  bool bring_out_after_error();
  char* pinned_of(const Transfer& transfer) const;
  void deliver() const;
  void launch(const BoundSteps& plan, const scheduler::BoundStep& step, std::size_t number);
  /// Lets the work begin after what others do to the tensors.
  void order(const BoundPlan& plan, std::span<const Tensor> inputs,
             std::span<const Tensor> outputs);
  /// Leaves the work to itself: notes it at the tensors, and keeps them.
  void leave(const BoundPlan& plan, std::span<const Tensor> inputs,
             std::span<const Tensor> outputs);
  bool must_wait() const;
  /// @throws DeviceError where the caller's stream is being captured.
  void check_stream() const;
  /// Waits for what a failed run has left behind.
  void settle() noexcept;

  // What regions need of the machine that runs them.
  std::int32_t run(Frame& frame) override;
  std::int32_t bring_to_host(std::span<Bytes> bytes) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void clear(void* memory, std::size_t bytes) override { overwrite(memory, 0, bytes); }
  std::shared_ptr<void> allocate(std::size_t bytes) override;
  const void* lane() const override { return stream_; }
  bool asks_on_device() const override { return true; }
  void queue_sizes(const jit::CustomCall& call, const base::SymbolValues& sizes,
                   void* const* buffers, void* told) override;
  // What a traced run needs.
  std::int32_t run_step(Frame& frame, std::size_t step) override;
  void overwrite(void* memory, unsigned char value, std::size_t bytes) override;

  CudaRuntimePtr runtime_;
  std::uint64_t plan_id_ = 0;
  std::function<bool()> make_room_;
  memory::PoolBlock arena_;
  memory::PoolBlock staging_;  ///< on the device
  memory::PoolBlock pinned_;   ///< what is copied to `staging_` and from it
  memory::PoolBlock told_;     ///< pinned: what the host asked for in the middle of a run
  /// Pinned, too: a kernel that meets an error writes there, so that nothing has to be copied where none does.
  memory::PoolBlock status_;
  /// Memory whose owner let go of it while work of a stream may use it.
  struct Released {
    const device::Stream* stream;
    memory::PoolBlock block;
  };
  std::vector<Released> released_;
  std::size_t lent_ = 0;  ///< blocks of allocate() with an owner
  bool has_begun_ = false;
  void* status_address_ = nullptr;
  /// Counters of blocks that share tiles, for each stream: kernels of one stream follow one another. A kernel leaves
  /// them at 0.
  memory::PoolBlock tile_counters_;
  std::vector<void*> counters_of_;  ///< by stream
  bool counters_are_zero_ = false;
  Frame frame_;
  Frame* phase_ = nullptr;  ///< whose steps are being queued
  std::vector<std::unique_ptr<device::Stream>> streams_;
  const bool on_callers_stream_;
  std::shared_ptr<device::Event> end_;  ///< of a run that did not wait
  CompletionPtr completion_;            ///< of the run under way; null: none is
  std::uint64_t ticket_ = 0;
  const std::shared_ptr<StreamProgress> progress_;
  std::vector<std::shared_ptr<const void>> kept_inputs_;  ///< memory or tensors that it uses
  std::vector<std::shared_ptr<const void>> kept_outputs_;
  std::shared_ptr<const Executable> kept_executable_;
  std::vector<std::unique_ptr<device::Event>> events_;  ///< of steps, then the one at the begin
  std::vector<std::uint32_t> event_of_;                 ///< by step
  device::Stream* stream_ = nullptr;                    ///< where launches go
  std::vector<bool> is_written_;                        ///< by input of the plan: by a step
  std::vector<Transfer> transfers_;
  /// Whether streams have to wait for what was on the first one when a call began.
  bool must_follow_ = false;
  std::vector<HostTensor> host_tensors_;  ///< `transfers_`
  CopyPlan copies_;                       ///< of a call on streams; of `transfers_`
  std::uint64_t copies_plan_id_ = 0;
  std::vector<std::uint8_t> copies_on_host_;                 ///< as `on_host_`
  std::unique_ptr<device::Stream> aside_in_, aside_out_;     ///< of copies; null: not needed yet
  std::vector<std::unique_ptr<device::Event>> copy_events_;  ///< null: not needed yet
  GraphCounters& counters_;
  std::vector<Graphs> graphs_;         ///< most recently used first
  std::vector<std::uint8_t> on_host_;  ///< of this call, as Graphs::on_host
  std::vector<void*> places_;          ///< of this call, as Graphs::places
  std::vector<GraphCopy> copies_in_, copies_out_;
  std::vector<void*> device_inputs_, device_outputs_;
  std::size_t staged_bytes_ = 0;
  std::vector<void*> arguments_;
  std::vector<KernelTensor> custom_tensors_;
};

/// The contexts of one engine: as many as there are requests in flight.
class CudaExecutor {
 public:
  /// @param stream  the caller's, by its handle; null: streams of its own
  CudaExecutor(CudaRuntimePtr runtime, void* stream)
      : runtime_(std::move(runtime)), stream_(stream) {}
  ~CudaExecutor() { drop_idle(); }
  CudaExecutor(const CudaExecutor&) = delete;
  CudaExecutor& operator=(const CudaExecutor&) = delete;

  CudaRuntime& runtime() { return *runtime_; }
  const CudaRuntimePtr& runtime_pointer() const { return runtime_; }
  /// @throws DeviceLost at once when the device's context is lost; what CudaContext::run throws.
  CudaOutcome run(const CudaCall& call);
  const GraphCounters& graphs() const { return graphs_; }
  /// Frees what contexts hold of which no work is under way: waits for none.
  void drop_ready();

 private:
  /// Where a context waits for the next request.
  struct Slot {
    std::atomic<CudaContext*> context{nullptr};
    std::atomic<std::uint64_t> ticket{0};  ///< of the context that it last had
  };

  /// One that is not busy: without a lock, by an exchange. The device is asked only where none is known to be idle, and
  /// waited for only when kMostBusy are busy.
  std::unique_ptr<CudaContext> acquire();
  std::unique_ptr<CudaContext> take_idle();
  /// @return null: all are busy, and one more may be made.
  std::unique_ptr<CudaContext> take_busy();
  void release(std::unique_ptr<CudaContext> context) noexcept;
  std::unique_ptr<CudaContext> take(Slot& slot);
  /// Gives back what contexts of no request hold; false: there were none.
  bool drop_idle();

  static constexpr int kMostBusy = 4;
  static constexpr std::size_t kFewBytes = std::size_t{1} << 20;

  CudaRuntimePtr runtime_;
  void* stream_;
  GraphCounters graphs_;
  const std::shared_ptr<StreamProgress> progress_ = std::make_shared<StreamProgress>();
  std::array<Slot, 64> slots_{};
};

}  // namespace heddle::engine
