#include "engine/cuda_context.h"

#include <algorithm>
#include <cstring>

#include "engine/custom_step.h"
#include "engine/guards.h"
#include "engine/output_check.h"
#include "engine/tensor_impl.h"
#include "heddle/error.h"
#include "jit/cuda/product_tile.h"
#include "scheduler/streams.h"

namespace heddle::engine {

using device::CopyKind;

namespace {

constexpr std::size_t kAlignment = 256;
/// Of the counters of a stream.
constexpr std::size_t kCounterBytes = jit::cuda::kMostSharedTiles * sizeof(std::uint32_t);

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// An output whose size is not known yet will be made on the device.
bool on_host(const Tensor& tensor) {
  return tensor.defined() && tensor.impl()->device.kind() == Device::Kind::Cpu;
}

/// Bytes from the first to the last element.
std::size_t extent_bytes(const Tensor& tensor) {
  const auto [begin, end] = extent_of(*tensor.impl());
  return end - begin;
}

}  // namespace

CudaContext::CudaContext(CudaRuntimePtr runtime, GraphCounters& graphs, void* stream,
                         std::shared_ptr<StreamProgress> progress, std::function<bool()> make_room)
    : runtime_(std::move(runtime)),
      make_room_(std::move(make_room)),
      status_(runtime_->pinned(), sizeof(std::int32_t)),
      status_address_(status_.get()),
      on_callers_stream_(stream != nullptr),
      progress_(std::move(progress)),
      counters_(graphs) {
  device::Device& device = runtime_->device();
  streams_.push_back(on_callers_stream_ ? device.wrap_stream(stream) : device.make_stream());
  if (on_callers_stream_) end_ = device.make_event();
}

CudaContext::~CudaContext() { finish(); }

void CudaContext::begin() noexcept {
  if (completion_ == nullptr) return;
  completion_->settle();
  completion_.reset();
  kept_outputs_.clear();
}

void CudaContext::finish() noexcept {
  begin();
  kept_inputs_.clear();
  kept_executable_.reset();
}

void CudaContext::use(const BoundPlan& plan) {
  if (plan_id_ == plan.id) return;
  plan_id_ = 0;
  device::Device& device = runtime_->device();
  arena_.reserve(runtime_->pool(), static_cast<std::size_t>(plan.arena_bytes));
  const scheduler::StreamPlan& streams = *plan.streams;
  while (streams_.size() < streams.streams) streams_.push_back(device.make_stream());
  event_of_.assign(streams.records.size(), 0);
  std::uint32_t events = 0;
  for (std::size_t k = 0; k < event_of_.size(); ++k)
    if (streams.records[k]) event_of_[k] = events++;
  while (events_.size() < events + 1) events_.push_back(device.make_event());
  make_counters(plan);
  note_written(plan);
  frame_.prepare(plan, {{arena_.get()}, nullptr, 0, nullptr});
  plan_id_ = plan.id;
}

/// Those of sizes that are known, in memory that the context may just have let go of.
void CudaContext::make_outputs(const CudaCall& call) {
  for (std::size_t k = 0; k < call.outputs.size(); ++k)
    if (const Sizes& sizes = call.plan.output_sizes[k];
        !call.outputs[k].defined() && !is_late(sizes))
      call.late.output(static_cast<std::uint32_t>(k), sizes);
}

void CudaContext::note_written(const BoundPlan& plan) {
  const auto& guards = plan.executable->guards().inputs;
  is_written_.assign(guards.size(), false);
  if (std::ranges::none_of(guards, &InputGuard::written)) return;
  const ir::ScheduleRecord& record = plan.unit->schedule().record;
  for (const ir::PlanStep& step : record.steps)
    for (const ir::BufferId written : step.writes) {
      const ir::PlanBuffer& buffer = record.buffers[plan.unit->planner().roots()[written]];
      if (buffer.role == ir::PlanBuffer::Role::Input) is_written_[buffer.position] = true;
    }
}

void CudaContext::make_counters(const BoundPlan& plan) {
  const bool needed = plan.unit->shares_tiles();
  if (counters_of_.size() == streams_.size() && (tile_counters_.get() != nullptr || !needed))
    return;
  counters_of_.assign(streams_.size(), nullptr);
  counters_are_zero_ = false;
  tile_counters_ = {};
  if (!needed) return;
  tile_counters_ = memory::PoolBlock(runtime_->pool(), kCounterBytes * streams_.size());
  for (std::size_t k = 0; k < counters_of_.size(); ++k)
    counters_of_[k] = tile_counters_.get() + k * kCounterBytes;
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
  const auto is_elsewhere = [&](const Tensor& tensor) {
    return tensor.impl()->device_bytes->runtime != runtime_;
  };
  transfers_.clear();
  staged_bytes_ = 0;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (on_host(inputs[k]))
      add_transfer(inputs[k], true, is_written_[k], k, true);
    else if (is_elsewhere(inputs[k]))
      check_alive(inputs[k], *runtime_, "run: input " + plan.executable->guards().inputs[k].name);
  }
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    if (on_host(outputs[k]))
      add_transfer(outputs[k], false, true, k, false);
    else if (outputs[k].defined() && is_elsewhere(outputs[k]))
      check_alive(outputs[k], *runtime_, "run: output " + std::to_string(k));
  }
  staging_.reserve(runtime_->pool(), staged_bytes_);
  pinned_.reserve(runtime_->pinned(), staged_bytes_);
}

void CudaContext::set_addresses(const CudaCall& call) {
  const BoundPlan& plan = call.plan;
  auto staged = transfers_.begin();
  const auto address_of = [&](const Tensor& tensor) -> void* {
    if (!tensor.defined()) return nullptr;
    return on_host(tensor) ? staging_.get() + staged++->offset : tensor.impl()->data();
  };
  device_inputs_.clear();
  device_outputs_.clear();
  for (const Tensor& input : call.inputs) device_inputs_.push_back(address_of(input));
  for (const Tensor& output : call.outputs) device_outputs_.push_back(address_of(output));
  if (FrameIo* io = frame_.io()) {
    io->inputs = device_inputs_;
    io->outputs = device_outputs_;
    io->source = &call.late;
    io->peak_bytes = plan.memory.peak_bytes;
    return frame_.take_io();
  }
  for (const auto& [entry, input] : plan.input_slots) frame_.set(entry, device_inputs_[input]);
  for (const auto& [entry, output] : plan.output_slots) frame_.set(entry, device_outputs_[output]);
}

/// Where its bytes lie in pinned memory.
char* CudaContext::pinned_of(const Transfer& transfer) const {
  return pinned_.get() + transfer.offset;
}

void CudaContext::fill_pinned() {
  for (const Transfer& transfer : transfers_)
    if (transfer.input && transfer.bytes != 0)
      std::memcpy(pinned_of(transfer), transfer.tensor->impl()->data(), transfer.bytes);
}

void CudaContext::clear_counters() {
  if (counters_are_zero_ || tile_counters_.get() == nullptr) return;
  runtime_->device().fill(tile_counters_.get(), 0, kCounterBytes * counters_of_.size(),
                          *streams_[0]);
  must_follow_ = true;
  counters_are_zero_ = true;
}

void CudaContext::bring_in(const Transfer& transfer, device::Stream& stream) {
  runtime_->device().copy(staging_.get() + transfer.offset, pinned_of(transfer), transfer.bytes,
                          CopyKind::HostToDevice, stream);
}

void CudaContext::bring_out(const Transfer& transfer, device::Stream& stream) {
  runtime_->device().copy(pinned_of(transfer), staging_.get() + transfer.offset, transfer.bytes,
                          CopyKind::DeviceToHost, stream);
}

void CudaContext::bring_in() {
  for (const Transfer& transfer : transfers_)
    if (transfer.input) bring_in(transfer, *streams_[0]);
}

void CudaContext::bring_out() {
  for (const Transfer& transfer : transfers_)
    if (transfer.output) bring_out(transfer, *streams_[0]);
}

void CudaContext::deliver() const {
  for (const Transfer& transfer : transfers_)
    if (transfer.output) copy_from_like(*transfer.tensor->impl(), pinned_of(transfer));
}

void CudaContext::launch(const BoundSteps& plan, const scheduler::BoundStep& step,
                         std::size_t number) {
  if (plan.custom[number] != nullptr)
    return queue_custom(step, *runtime_, *stream_, custom_tensors_);
  const CudaLaunch& launch = plan.cuda[number];
  const auto stream = std::ranges::find(streams_, stream_, &std::unique_ptr<device::Stream>::get);
  void** counters = counters_of_.data() + (stream - streams_.begin());
  collect_arguments(plan, step, number, &status_address_, counters, arguments_);
  launch.kernel->launch(runtime_->device(), launch.variant, launch.blocks, launch.library.get(),
                        arguments_, *stream_);
}

std::int32_t CudaContext::run_step(Frame& frame, std::size_t step) {
  const scheduler::BoundStep& bound = frame.steps()[step];
  std::int32_t status = 0;
  if (bound.run_alone == nullptr)
    launch(frame.plan(), bound, step);
  else
    run_region(bound, *this, &status);
  return status;
}

std::int32_t CudaContext::run(Frame& frame) {
  std::int32_t status = 0;
  for (std::size_t k = 0; status == 0 && k < frame.steps().size(); ++k) status = run_step(frame, k);
  return status;
}

std::int32_t CudaContext::bring_to_host(std::span<Bytes> bytes) {
  device::Device& device = runtime_->device();
  std::size_t total = 0;
  for (const Bytes& wanted : bytes) total += aligned(wanted.count);
  told_.reserve(runtime_->pinned(), total);
  char* to = told_.get();
  for (Bytes& wanted : bytes) {
    if (wanted.address == nullptr || wanted.count == 0) {
      wanted.address = nullptr;
      continue;
    }
    device.copy(to, wanted.address, wanted.count, CopyKind::DeviceToHost, *stream_);
    wanted.address = to;
    to += aligned(wanted.count);
  }
  stream_->synchronize();
  std::erase_if(released_, [&](const Released& old) { return old.stream == stream_; });
  return status_word();
}

std::shared_ptr<void> CudaContext::allocate(std::size_t bytes) {
  released_.reserve(released_.size() + lent_ + 1);  // letting go must not fail
  auto block = std::make_shared<memory::PoolBlock>();
  try {
    *block = memory::PoolBlock(runtime_->pool(), bytes);
  } catch (const OutOfMemory&) {
    if (!make_room_()) throw;
    *block = memory::PoolBlock(runtime_->pool(), bytes);
  }
  ++lent_;
  return {block->get(), [this, block, stream = stream_](void*) {
            --lent_;
            released_.push_back({stream, std::move(*block)});
          }};
}

void CudaContext::queue_sizes(const jit::CustomCall& call, const base::SymbolValues& sizes,
                              void* const* buffers, void* told) {
  engine::queue_sizes(call, sizes, buffers, static_cast<std::int64_t*>(told), *runtime_, *stream_);
}

void CudaContext::overwrite(void* memory, unsigned char value, std::size_t bytes) {
  if (bytes != 0) runtime_->device().fill(memory, value, bytes, *stream_);
}

void CudaContext::copy(void* to, const void* from, std::size_t bytes) {
  runtime_->device().copy(to, from, bytes, CopyKind::DeviceToDevice, *stream_);
}

bool CudaContext::reach(ir::StepId step) {
  const BoundSteps& plan = phase_->plan();
  if (step < plan.first_step + plan.steps.size()) return true;
  std::int32_t status = 0;
  phase_ = phase_->next(*this, &status);
  return phase_ != nullptr;
}

/// One by one, on one stream.
bool CudaContext::queue_traced(std::vector<RunEvent>& events) {
  stream_ = streams_[0].get();
  std::int32_t status = 0;
  for (Frame* frame = &frame_; frame != nullptr && status == 0;) {
    status = run_step_by_step(*frame, *this, events);
    if (status == 0) frame = frame->next(*this, &status);
  }
  return status == 0;
}

bool CudaContext::queue(const CudaCall& call) {
  phase_ = &frame_;
  note_places();
  fill_pinned();
  status_word() = 0;
  clear_counters();
  bool all = false;
  if (call.events != nullptr) {
    bring_in();
    all = queue_traced(*call.events);
    bring_out();
  } else if (Graphs* graphs = graphs_for(call.plan)) {
    all = queue_graphs(*graphs);
  } else {
    all = queue_streams(call.plan);
  }
  if (must_wait() || !all) streams_[0]->synchronize();
  return all;
}

/// For results that lie on the host.
bool CudaContext::must_wait() const {
  return !on_callers_stream_ || std::ranges::any_of(transfers_, &Transfer::output);
}

void CudaContext::order(const BoundPlan& plan, std::span<const Tensor> inputs,
                        std::span<const Tensor> outputs) {
  const auto& guards = plan.executable->guards().inputs;
  must_follow_ = on_callers_stream_;
  const auto order = [&](const Tensor& tensor, bool writes) {
    if (!on_host(tensor) && tensor.impl()->device_bytes->uses.order(*streams_[0], writes))
      must_follow_ = true;
  };
  for (std::size_t k = 0; k < inputs.size(); ++k) order(inputs[k], guards[k].is_overwritten());
  for (const Tensor& output : outputs)
    if (output.defined()) order(output, true);
}

void CudaContext::leave(const BoundPlan& plan, std::span<const Tensor> inputs,
                        std::span<const Tensor> outputs) {
  static std::atomic<std::uint64_t> tickets{0};
  kept_inputs_.resize(inputs.size());
  kept_outputs_.resize(outputs.size());
  const std::uint64_t before = tickets;
  streams_[0]->record(*end_);
  ticket_ = ++tickets;
  if (kept_executable_ != plan.executable) kept_executable_ = plan.executable;
  completion_ = std::make_shared<Completion>(
      Completion::Point{end_, streams_[0]->native(), before, ticket_, progress_}, &status_word(),
      plan.executable);
  const auto& guards = plan.executable->guards().inputs;
  const auto keep = [&](const Tensor& tensor, bool writes, std::shared_ptr<const void>& kept) {
    if (on_host(tensor)) return kept.reset();
    DeviceBytes& bytes = *tensor.impl()->device_bytes;
    if (bytes.block == nullptr)
      kept = tensor.impl();
    else if (kept != bytes.block)
      kept = bytes.block;
    bytes.uses.add(completion_, writes);
  };
  for (std::size_t k = 0; k < inputs.size(); ++k)
    keep(inputs[k], guards[k].is_overwritten(), kept_inputs_[k]);
  for (std::size_t k = 0; k < outputs.size(); ++k) keep(outputs[k], true, kept_outputs_[k]);
}

void CudaContext::note_places() {
  const std::size_t inputs = device_inputs_.size();
  on_host_.assign(inputs + device_outputs_.size(), false);
  host_tensors_.clear();
  for (const Transfer& transfer : transfers_) {
    const bool any = transfer.bytes != 0;
    on_host_[transfer.position + (transfer.is_input ? 0 : inputs)] = any;
    host_tensors_.push_back(
        {transfer.is_input, transfer.position, transfer.input && any, transfer.output && any});
  }
}

void CudaContext::settle() noexcept {
  plan_id_ = 0;
  finish();
  counters_are_zero_ = false;
  graphs_.clear();
  const auto wait_for = [](device::Stream* stream) {
    try {
      if (stream != nullptr) stream->synchronize();
    } catch (...) {
      // The error that brought us here is the one to tell.
    }
  };
  for (const auto& stream : streams_) wait_for(stream.get());
  wait_for(aside_in_.get());
  wait_for(aside_out_.get());
}

/// What is captured runs later, and again, in memory that is somebody else's by then.
void CudaContext::check_stream() const {
  if (!on_callers_stream_ || !streams_[0]->is_captured()) return;
  throw DeviceError({.what = "run: the caller's stream",
                     .where = runtime_->name().to_string(),
                     .expected = "one that is not being captured",
                     .got = "a capture under way"});
}

CudaOutcome CudaContext::run(const CudaCall& call) {
  has_begun_ = false;
  check_stream();
  released_.clear();
  use(call.plan);
  make_outputs(call);
  list_transfers(call.plan, call.inputs, call.outputs);
  set_addresses(call);
  CudaOutcome outcome;
  try {
    has_begun_ = true;
    order(call.plan, call.inputs, call.outputs);
    const bool all = queue(call);
    const FrameIo* io = frame_.io();
    outcome.peak_bytes = io != nullptr ? io->peak_bytes : call.plan.memory.peak_bytes;
    if (all && !must_wait()) {
      leave(call.plan, call.inputs, call.outputs);
      return outcome;
    }
  } catch (...) {
    settle();
    throw;
  }
  released_.clear();
  finish();
  outcome.status = status_word();
  if (outcome.status == 0) deliver();
  return outcome;
}

std::unique_ptr<CudaContext> CudaExecutor::take(Slot& slot) {
  if (slot.context.load(std::memory_order_relaxed) == nullptr) return nullptr;
  return std::unique_ptr<CudaContext>(slot.context.exchange(nullptr, std::memory_order_acquire));
}

std::unique_ptr<CudaContext> CudaExecutor::take_idle() {
  for (Slot& slot : slots_) {
    if (!progress_->has_passed(slot.ticket.load(std::memory_order_relaxed))) continue;
    std::unique_ptr<CudaContext> context = take(slot);
    if (context == nullptr) continue;
    if (!context->is_under_way()) return context;
    release(std::move(context));
  }
  return nullptr;
}

/// Work on the caller's stream ends in order: once the newest call is done all are, and the next ones need not ask. While
/// it is not, the device has work to do during a question more. What has little memory is rather made anew than asked for,
/// so that kMostBusy calls go by between two questions.
std::unique_ptr<CudaContext> CudaExecutor::take_busy() {
  Slot* first = nullptr;
  Slot* last = nullptr;
  std::uint64_t lowest = 0;
  std::uint64_t highest = 0;
  int under_way = 0;
  for (Slot& slot : slots_) {
    if (slot.context.load(std::memory_order_relaxed) == nullptr) continue;
    const std::uint64_t ticket = slot.ticket.load(std::memory_order_relaxed);
    if (first == nullptr || ticket < lowest) first = &slot, lowest = ticket;
    if (last == nullptr || ticket > highest) last = &slot, highest = ticket;
    ++under_way;
  }
  const auto may_be_added = [&](const CudaContext& like) {
    return under_way < kMostBusy && like.device_bytes() <= kFewBytes;
  };
  if (last != first) {
    std::unique_ptr<CudaContext> context = take(*last);
    if (context != nullptr && !may_be_added(*context) && !context->busy()) return context;
    if (context != nullptr) release(std::move(context));
  }
  std::unique_ptr<CudaContext> context = first == nullptr ? nullptr : take(*first);
  if (context != nullptr && under_way < kMostBusy && (may_be_added(*context) || context->busy()))
    release(std::move(context));
  return context;
}

std::unique_ptr<CudaContext> CudaExecutor::acquire() {
  std::unique_ptr<CudaContext> context = take_idle();
  if (context == nullptr) context = take_busy();
  if (context == nullptr)
    return std::make_unique<CudaContext>(runtime_, graphs_, stream_, progress_,
                                         [this] { return drop_idle(); });
  context->begin();
  return context;
}

void CudaExecutor::release(std::unique_ptr<CudaContext> context) noexcept {
  const std::uint64_t ticket = context->ticket();
  for (Slot& slot : slots_) {
    CudaContext* empty = nullptr;
    if (slot.context.load(std::memory_order_relaxed) == nullptr &&
        slot.context.compare_exchange_strong(empty, context.get(), std::memory_order_release)) {
      context.release();
      slot.ticket.store(ticket, std::memory_order_relaxed);
      return;
    }
  }
}

bool CudaExecutor::drop_idle() {
  bool any = false;
  for (auto& slot : slots_) any = take(slot) != nullptr || any;
  return any;
}

void CudaExecutor::drop_ready() {
  for (auto& slot : slots_)
    if (auto context = take(slot); context != nullptr && context->busy())
      release(std::move(context));
}

CudaOutcome CudaExecutor::run(const CudaCall& call) {
  if (runtime_->device().lost())
    throw DeviceLost({.what = "run",
                      .where = runtime_->name().to_string(),
                      .expected = "an engine made since the device was lost",
                      .got = "one whose CUDA context is lost"});
  const device::EnteredDevice entered(runtime_->device());
  std::unique_ptr<CudaContext> context;
  CudaOutcome outcome;
  try {
    context = acquire();
    outcome = context->run(call);
  } catch (const OutOfMemory&) {
    const bool begun = context != nullptr && context->has_begun();
    // What idle contexts hold may be enough.
    context.reset();
    if (begun || !drop_idle()) throw;
    context = acquire();
    outcome = context->run(call);
  }
  release(std::move(context));
  return outcome;
}

}  // namespace heddle::engine
