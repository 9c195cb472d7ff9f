#include "engine/cuda_context.h"

#include <algorithm>
#include <cstring>

#include "engine/custom_step.h"
#include "engine/guards.h"
#include "engine/tensor_impl.h"
#include "heddle/error.h"
#include "scheduler/streams.h"

namespace heddle::engine {

using device::CopyKind;

namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kMostGraphs = 8;   ///< kinds of calls that a context keeps graphs for
constexpr std::size_t kStatusAt = 0;     ///< in pinned memory
constexpr std::size_t kConditionAt = 8;  ///< in pinned memory

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool on_host(const Tensor& tensor) { return tensor.impl()->device.kind() == Device::Kind::Cpu; }

/// Bytes from the first to the last element.
std::size_t extent_bytes(const Tensor& tensor) {
  const auto [begin, end] = extent_of(*tensor.impl());
  return end - begin;
}

/// Copies the elements of `to`, and nothing between them, from memory that is laid out alike.
void copy_elements(const Tensor::Impl& to, const char* from) {
  const std::size_t size = size_of(to.dtype);
  const std::size_t rank = to.sizes.size();
  if (to.count == 0) return;
  std::vector<std::int64_t> at(rank, 0);
  for (;;) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < rank; ++d) offset += at[d] * to.strides[d];
    const std::size_t bytes = static_cast<std::size_t>(offset) * size;
    std::memcpy(static_cast<char*>(to.data) + bytes, from + bytes, size);
    std::size_t d = rank;
    while (d > 0 && ++at[d - 1] == to.sizes[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

}  // namespace

CudaContext::CudaContext(CudaRuntimePtr runtime, GraphCounters& graphs, void* stream)
    : runtime_(std::move(runtime)),
      pinned_(runtime_->pinned(), kAlignment),
      status_(runtime_->pool(), sizeof(std::int32_t)),
      status_address_(status_.get()),
      on_callers_stream_(stream != nullptr),
      counters_(graphs) {
  device::Device& device = runtime_->device();
  streams_.push_back(on_callers_stream_ ? device.wrap_stream(stream) : device.make_stream());
  if (on_callers_stream_) end_ = device.make_event();
}

CudaContext::~CudaContext() { finish(); }

void CudaContext::finish() noexcept {
  if (completion_ == nullptr) return;
  completion_->settle();
  status_is_zero_ = completion_->status() == 0;
  completion_.reset();
  kept_.clear();
  kept_executable_.reset();
}

void CudaContext::use(const BoundPlan& plan) {
  if (plan_id_ == plan.id) return;
  plan_id_ = 0;
  device::Device& device = runtime_->device();
  arena_.reserve(runtime_->pool(), static_cast<std::size_t>(plan.arena_bytes));
  const scheduler::StreamPlan& streams = *plan.streams;
  while (streams_.size() < streams.streams) streams_.push_back(device.make_stream());
  event_of_.assign(plan.steps.size(), 0);
  std::uint32_t events = 0;
  for (std::size_t k = 0; k < plan.steps.size(); ++k)
    if (streams.records[k]) event_of_[k] = events++;
  while (events_.size() < events + 1) events_.push_back(device.make_event());
  frame_.prepare(plan, {{arena_.get()}, nullptr, 0, nullptr});
  plan_id_ = plan.id;
}

void CudaContext::add_transfer(const Tensor& tensor, bool input, bool output, std::size_t position,
                               bool is_input) {
  const std::size_t bytes = extent_bytes(tensor);
  transfers_.push_back({&tensor, staged_bytes_, bytes, input, output,
                        static_cast<std::uint32_t>(position), is_input});
  staged_bytes_ += aligned(bytes);
}

void CudaContext::list_transfers(const BoundPlan& plan, std::span<const Tensor> inputs,
                                 std::span<const Tensor> outputs) {
  const auto& guards = plan.executable->guards().inputs;
  for (std::size_t k = 0; k < inputs.size(); ++k)
    if (!on_host(inputs[k])) check_alive(inputs[k], *runtime_, "run: input " + guards[k].name);
  for (std::size_t k = 0; k < outputs.size(); ++k)
    if (!on_host(outputs[k]))
      check_alive(outputs[k], *runtime_, "run: output " + std::to_string(k));
  transfers_.clear();
  staged_bytes_ = 0;
  for (std::size_t k = 0; k < inputs.size(); ++k)
    if (on_host(inputs[k])) add_transfer(inputs[k], true, guards[k].written, k, true);
  for (std::size_t k = 0; k < outputs.size(); ++k)
    if (on_host(outputs[k])) add_transfer(outputs[k], false, true, k, false);
  staging_.reserve(runtime_->pool(), staged_bytes_);
  pinned_.reserve(runtime_->pinned(), kAlignment + staged_bytes_);
}

void CudaContext::set_addresses(const BoundPlan& plan, std::span<const Tensor> inputs,
                                std::span<const Tensor> outputs) {
  auto staged = transfers_.begin();
  const auto address_of = [&](const Tensor& tensor) -> void* {
    return on_host(tensor) ? staging_.get() + staged++->offset : tensor.impl()->data;
  };
  device_inputs_.clear();
  device_outputs_.clear();
  for (const Tensor& input : inputs) device_inputs_.push_back(address_of(input));
  for (const Tensor& output : outputs) device_outputs_.push_back(address_of(output));
  for (const auto& [entry, input] : plan.input_slots) frame_.set(entry, device_inputs_[input]);
  for (const auto& [entry, output] : plan.output_slots) frame_.set(entry, device_outputs_[output]);
}

void CudaContext::fill_pinned() {
  for (const Transfer& transfer : transfers_)
    if (transfer.input && transfer.bytes != 0)
      std::memcpy(pinned_.get() + kAlignment + transfer.offset, transfer.tensor->impl()->data,
                  transfer.bytes);
}

void CudaContext::bring_in() {
  for (const Transfer& transfer : transfers_)
    if (transfer.input)
      runtime_->device().copy(staging_.get() + transfer.offset,
                              pinned_.get() + kAlignment + transfer.offset, transfer.bytes,
                              CopyKind::HostToDevice, *streams_[0]);
}

void CudaContext::clear_status() {
  if (!status_is_zero_)
    runtime_->device().fill(status_.get(), 0, sizeof(std::int32_t), *streams_[0]);
  status_is_zero_ = false;
}

void CudaContext::bring_out() {
  device::Device& device = runtime_->device();
  for (const Transfer& transfer : transfers_) {
    if (transfer.output)
      device.copy(pinned_.get() + kAlignment + transfer.offset, staging_.get() + transfer.offset,
                  transfer.bytes, CopyKind::DeviceToHost, *streams_[0]);
  }
  device.copy(pinned_.get() + kStatusAt, status_.get(), sizeof(std::int32_t),
              CopyKind::DeviceToHost, *streams_[0]);
}

void CudaContext::deliver() const {
  for (const Transfer& transfer : transfers_)
    if (transfer.output)
      copy_elements(*transfer.tensor->impl(), pinned_.get() + kAlignment + transfer.offset);
}

void CudaContext::launch(const BoundSteps& plan, const scheduler::BoundStep& step,
                         std::size_t number) {
  if (plan.custom[number] != nullptr)
    return queue_custom(step, *runtime_, *stream_, custom_tensors_);
  const CudaLaunch& launch = plan.cuda[number];
  collect_arguments(plan, step, number, &status_address_, arguments_);
  launch.kernel->launch(runtime_->device(), arguments_, launch.blocks, *stream_);
}

std::int32_t CudaContext::run(const Frame& frame) {
  const auto steps = frame.steps();
  for (std::size_t k = 0; k < steps.size(); ++k) {
    if (steps[k].run_alone == nullptr) {
      launch(frame.plan(), steps[k], k);
      continue;
    }
    std::int32_t status = 0;
    run_region(steps[k], *this, &status);
    if (status != 0) return status;
  }
  return 0;
}

std::int32_t CudaContext::truth(const void* address, bool& answer) {
  device::Device& device = runtime_->device();
  device.copy(pinned_.get() + kConditionAt, address, 1, CopyKind::DeviceToHost, *stream_);
  device.copy(pinned_.get() + kStatusAt, status_.get(), sizeof(std::int32_t),
              CopyKind::DeviceToHost, *stream_);
  stream_->synchronize();
  answer = pinned_.get()[kConditionAt] != 0;
  std::int32_t status = 0;
  std::memcpy(&status, pinned_.get() + kStatusAt, sizeof status);
  return status;
}

void CudaContext::copy(void* to, const void* from, std::size_t bytes) {
  runtime_->device().copy(to, from, bytes, CopyKind::DeviceToDevice, *stream_);
}

/// Every step on its stream, between the events that its plan asks for.
bool CudaContext::queue_steps(const BoundPlan& plan) {
  const scheduler::StreamPlan& streams = *plan.streams;
  device::Event& begin = *events_.back();
  if (streams.streams > 1) streams_[0]->record(begin);
  for (std::uint32_t k = 1; k < streams.streams; ++k) streams_[k]->wait(begin);
  const auto steps = frame_.steps();
  for (std::size_t k = 0; k < steps.size(); ++k) {
    stream_ = streams_[streams.stream_of[k]].get();
    for (const ir::StepId from : streams.waits_for[k]) stream_->wait(*events_[event_of_[from]]);
    std::int32_t status = 0;
    if (steps[k].run_alone == nullptr) {
      launch(plan, steps[k], k);
    } else {
      run_region(steps[k], *this, &status);
    }
    if (streams.records[k]) stream_->record(*events_[event_of_[k]]);
    if (status != 0) return false;
  }
  for (const ir::StepId end : streams.joins) streams_[0]->wait(*events_[event_of_[end]]);
  return true;
}

void CudaContext::queue(const BoundPlan& plan) {
  fill_pinned();
  clear_status();
  if (Graphs* graphs = graphs_for(plan)) {
    queue_graphs(plan, *graphs);
  } else {
    queue_streams(plan);
  }
  if (must_wait()) streams_[0]->synchronize();
}

/// For results that lie on the host.
bool CudaContext::must_wait() const {
  return !on_callers_stream_ || std::ranges::any_of(transfers_, &Transfer::output);
}

void CudaContext::order(const BoundPlan& plan, std::span<const Tensor> inputs,
                        std::span<const Tensor> outputs) {
  const auto& guards = plan.executable->guards().inputs;
  for (std::size_t k = 0; k < inputs.size(); ++k)
    if (!on_host(inputs[k]))
      inputs[k].impl()->device_bytes->uses.order(*streams_[0], guards[k].written);
  for (const Tensor& output : outputs)
    if (!on_host(output)) output.impl()->device_bytes->uses.order(*streams_[0], true);
}

void CudaContext::leave(const BoundPlan& plan, std::span<const Tensor> inputs,
                        std::span<const Tensor> outputs) {
  static std::atomic<std::uint64_t> tickets{0};
  kept_.reserve(inputs.size() + outputs.size());
  streams_[0]->record(*end_);
  ticket_ = ++tickets;
  kept_executable_ = plan.executable;
  completion_ = std::make_shared<Completion>(
      end_, streams_[0]->native(), reinterpret_cast<const std::int32_t*>(pinned_.get() + kStatusAt),
      plan.executable);
  const auto& guards = plan.executable->guards().inputs;
  const auto keep = [&](const Tensor& tensor, bool writes) {
    if (on_host(tensor)) return;
    kept_.push_back(tensor);
    tensor.impl()->device_bytes->uses.add(completion_, writes);
  };
  for (std::size_t k = 0; k < inputs.size(); ++k) keep(inputs[k], guards[k].written);
  for (const Tensor& output : outputs) keep(output, true);
}

void CudaContext::queue_streams(const BoundPlan& plan) {
  bring_in();
  const bool all = queue_steps(plan);
  if (!all)
    for (const auto& stream : streams_) stream->synchronize();
  bring_out();
}

CudaContext::Graphs* CudaContext::graphs_for(const BoundPlan& plan) {
  if (plan.graphs->empty()) return nullptr;
  const std::size_t inputs = device_inputs_.size();
  on_host_.assign(inputs + device_outputs_.size(), false);
  for (const Transfer& transfer : transfers_)
    on_host_[transfer.position + (transfer.is_input ? 0 : inputs)] = transfer.bytes != 0;
  std::erase_if(graphs_, [](const Graphs& kept) { return kept.executable->superseded.load(); });
  const auto found = std::ranges::find_if(graphs_, [&](const Graphs& kept) {
    return kept.executable == plan.executable && kept.on_host == on_host_;
  });
  if (found != graphs_.end()) {
    std::rotate(graphs_.begin(), found, found + 1);
    return &graphs_.front();
  }
  if (graphs_.size() == kMostGraphs) graphs_.pop_back();
  graphs_.insert(graphs_.begin(), Graphs{plan.executable, on_host_, {}});
  return nullptr;
}

/// The steps whose kernels take the address of the transfer's tensor.
std::vector<ir::StepId> CudaContext::steps_of(const BoundPlan& plan,
                                              const Transfer& transfer) const {
  std::vector<ir::StepId> steps;
  for (const auto& [entry, position] : transfer.is_input ? plan.input_slots : plan.output_slots) {
    if (position != transfer.position) continue;
    const auto next = std::ranges::upper_bound(plan.table_start, entry);
    const auto step = static_cast<ir::StepId>(next - plan.table_start.begin() - 1);
    if (steps.empty() || steps.back() != step) steps.push_back(step);
  }
  return steps;
}

/// @param with_steps  whether the copies name their steps: for graphs that are to be made
GraphRequest CudaContext::graph_request(const BoundPlan& plan, bool with_steps) {
  copies_in_.clear();
  copies_out_.clear();
  for (const Transfer& transfer : transfers_) {
    if (transfer.bytes == 0) continue;
    char* pinned = pinned_.get() + kAlignment + transfer.offset;
    char* staged = staging_.get() + transfer.offset;
    std::vector<ir::StepId> steps;
    if (with_steps) steps = steps_of(plan, transfer);
    if (transfer.input) copies_in_.push_back({staged, pinned, transfer.bytes, steps});
    if (transfer.output) copies_out_.push_back({pinned, staged, transfer.bytes, steps});
  }
  return {
      plan,       frame_.steps(), &status_address_,
      copies_in_, copies_out_,    {pinned_.get() + kStatusAt, status_.get(), sizeof(std::int32_t)}};
}

bool CudaContext::queue_segment(const BoundPlan& plan, const GraphSegment& segment) {
  const auto steps = frame_.steps();
  for (std::size_t k = segment.first; k < segment.end(); ++k) {
    std::int32_t status = 0;
    if (steps[k].run_alone == nullptr) {
      launch(plan, steps[k], k);
    } else {
      run_region(steps[k], *this, &status);
    }
    if (status != 0) return false;
  }
  return true;
}

/// Segments follow one another on stream 0: graphs, and what stands between them step by step.
void CudaContext::queue_graphs(const BoundPlan& plan, Graphs& graphs) {
  const GraphPlan& segments = *plan.graphs;
  const bool made = !graphs.segments.empty();
  const GraphRequest request = graph_request(plan, !made);
  for (std::size_t k = 0; k < segments.size(); ++k) {
    if (made && graphs.segments[k] != nullptr) graphs.segments[k]->update(request);
    if (made) continue;
    const bool last = k + 1 == segments.size();
    graphs.segments.push_back(segments[k].captured
                                  ? std::make_unique<SegmentGraph>(runtime_->device(), segments[k],
                                                                   request, k == 0, last, counters_)
                                  : nullptr);
  }
  stream_ = streams_[0].get();
  if (!segments.front().captured) bring_in();
  bool all = true;
  for (std::size_t k = 0; all && k < segments.size(); ++k) {
    if (graphs.segments[k] != nullptr) {
      graphs.segments[k]->launch(*stream_);
    } else {
      all = queue_segment(plan, segments[k]);
    }
  }
  if (!all || !segments.back().captured) bring_out();
}

void CudaContext::settle() noexcept {
  plan_id_ = 0;
  graphs_.clear();
  for (const auto& stream : streams_) {
    try {
      stream->synchronize();
    } catch (...) {
      // The error that brought us here is the one to tell.
    }
  }
}

std::int32_t CudaContext::run(const BoundPlan& plan, std::span<const Tensor> inputs,
                              std::span<const Tensor> outputs) {
  use(plan);
  list_transfers(plan, inputs, outputs);
  set_addresses(plan, inputs, outputs);
  try {
    order(plan, inputs, outputs);
    queue(plan);
    if (!must_wait()) {
      leave(plan, inputs, outputs);
      return 0;
    }
  } catch (...) {
    settle();
    throw;
  }
  std::int32_t status = 0;
  std::memcpy(&status, pinned_.get() + kStatusAt, sizeof status);
  status_is_zero_ = status == 0;
  if (status == 0) deliver();
  return status;
}

std::unique_ptr<CudaContext> CudaExecutor::take(std::atomic<CudaContext*>& slot) {
  if (slot.load(std::memory_order_relaxed) == nullptr) return nullptr;
  return std::unique_ptr<CudaContext>(slot.exchange(nullptr, std::memory_order_acquire));
}

std::unique_ptr<CudaContext> CudaExecutor::acquire() {
  std::unique_ptr<CudaContext> first;  // of those that are busy
  int busy = 0;
  for (auto& slot : slots_) {
    std::unique_ptr<CudaContext> context = take(slot);
    if (context == nullptr) continue;
    const bool ready = !context->busy();
    busy += ready ? 0 : 1;
    if (ready || first == nullptr || context->ticket() < first->ticket()) std::swap(first, context);
    if (context != nullptr) release(std::move(context));
    if (ready) break;
  }
  if (first != nullptr && first->busy() && busy < kMostBusy) release(std::move(first));
  if (first == nullptr) return std::make_unique<CudaContext>(runtime_, graphs_, stream_);
  first->finish();
  return first;
}

void CudaExecutor::release(std::unique_ptr<CudaContext> context) noexcept {
  for (auto& slot : slots_) {
    CudaContext* empty = nullptr;
    if (slot.load(std::memory_order_relaxed) == nullptr &&
        slot.compare_exchange_strong(empty, context.get(), std::memory_order_release)) {
      context.release();
      return;
    }
  }
}

bool CudaExecutor::drop_idle() {
  bool any = false;
  for (auto& slot : slots_) any = take(slot) != nullptr || any;
  return any;
}

std::int32_t CudaExecutor::run(const BoundPlan& plan, std::span<const Tensor> inputs,
                               std::span<const Tensor> outputs) {
  if (runtime_->device().lost())
    throw DeviceLost({.what = "run",
                      .where = runtime_->name().to_string(),
                      .expected = "an engine made since the device was lost",
                      .got = "one whose CUDA context is lost"});
  std::unique_ptr<CudaContext> context;
  std::int32_t status = 0;
  try {
    context = acquire();
    status = context->run(plan, inputs, outputs);
  } catch (const OutOfMemory&) {
    // What idle contexts hold may be enough.
    context.reset();
    if (!drop_idle()) throw;
    context = acquire();
    status = context->run(plan, inputs, outputs);
  }
  release(std::move(context));
  return status;
}

}  // namespace heddle::engine
