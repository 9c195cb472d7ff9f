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

CudaContext::CudaContext(CudaRuntimePtr runtime)
    : runtime_(std::move(runtime)),
      pinned_(runtime_->pinned(), kAlignment),
      status_(runtime_->pool(), sizeof(std::int32_t)),
      status_address_(status_.get()) {
  streams_.push_back(runtime_->device().make_stream());
}

CudaContext::~CudaContext() = default;

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
  frame_.prepare(plan, {arena_.get(), nullptr, 0, nullptr});
  plan_id_ = plan.id;
}

void CudaContext::add_transfer(const Tensor& tensor, bool input, bool output) {
  const std::size_t bytes = extent_bytes(tensor);
  transfers_.push_back({&tensor, staged_bytes_, bytes, input, output});
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
    if (on_host(inputs[k])) add_transfer(inputs[k], true, guards[k].written);
  for (const Tensor& output : outputs)
    if (on_host(output)) add_transfer(output, false, true);
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

void CudaContext::bring_in() {
  for (const Transfer& transfer : transfers_) {
    if (!transfer.input || transfer.bytes == 0) continue;
    char* pinned = pinned_.get() + kAlignment + transfer.offset;
    std::memcpy(pinned, transfer.tensor->impl()->data, transfer.bytes);
    runtime_->device().copy(staging_.get() + transfer.offset, pinned, transfer.bytes,
                            CopyKind::HostToDevice, *streams_[0]);
  }
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
  const auto& source = launch.kernel->source();
  const std::size_t begin = plan.table_start[number];
  const std::size_t end =
      number + 1 < plan.table_start.size() ? plan.table_start[number + 1] : plan.table.size();
  const bool scratch = !source.scratch_bytes.is_constant(0);
  const std::size_t buffers = end - begin - (scratch ? 1 : 0);
  arguments_.clear();
  for (std::size_t k = 0; k < buffers; ++k)
    arguments_.push_back(const_cast<void**>(step.buffers + k));
  for (std::size_t k = 0; k < launch.sizes; ++k)
    arguments_.push_back(const_cast<std::int64_t*>(step.sizes + k));
  if (scratch) arguments_.push_back(const_cast<void**>(step.buffers + buffers));
  arguments_.push_back(&status_address_);
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
  bring_in();
  const bool all = queue_steps(plan);
  if (!all)
    for (const auto& stream : streams_) stream->synchronize();
  bring_out();
  streams_[0]->synchronize();
}

void CudaContext::settle() noexcept {
  plan_id_ = 0;
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
    queue(plan);
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

std::unique_ptr<CudaContext> CudaExecutor::acquire() {
  {
    const std::scoped_lock lock(mutex_);
    if (!idle_.empty()) {
      auto context = std::move(idle_.back());
      idle_.pop_back();
      return context;
    }
  }
  return std::make_unique<CudaContext>(runtime_);
}

bool CudaExecutor::drop_idle() {
  std::vector<std::unique_ptr<CudaContext>> dropped;
  {
    const std::scoped_lock lock(mutex_);
    dropped.swap(idle_);
  }
  return !dropped.empty();
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
  const std::scoped_lock lock(mutex_);
  idle_.push_back(std::move(context));
  return status;
}

}  // namespace heddle::engine
