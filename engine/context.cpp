#include "engine/context.h"

#include <utility>

#include "engine/tensor_impl.h"
#include "memory/allocator.h"

namespace heddle::engine {

ExecutionContext::~ExecutionContext() {
  if (arena_ != nullptr) memory::CachingAllocator::host().release(arena_);
}

void ExecutionContext::use(const BoundPlan& plan) {
  if (plan_id_ == plan.id) return;
  plan_id_ = 0;
  if (plan.arena_bytes > arena_bytes_) {
    auto& allocator = memory::CachingAllocator::host();
    void* smaller = std::exchange(arena_, nullptr);
    arena_bytes_ = 0;
    arena_ =
        static_cast<char*>(allocator.grow(smaller, static_cast<std::size_t>(plan.arena_bytes)));
    arena_bytes_ = plan.arena_bytes;
  }
  frame_.prepare(plan, {{arena_}, arena_ + plan.memory.peak_bytes, plan.scratch_stride, &failure_});
  plan_id_ = plan.id;
}

void ExecutionContext::set_io(const BoundPlan& plan, std::span<const Tensor> inputs,
                              std::span<const Tensor> outputs, OutputSource* source) {
  if (FrameIo* io = frame_.io()) [[unlikely]] {
    io->source = source;
    io->peak_bytes = plan.memory.peak_bytes;
    io->inputs.clear();
    io->outputs.clear();
    for (const Tensor& input : inputs) io->inputs.push_back(input.impl()->data());
    for (const Tensor& output : outputs)
      io->outputs.push_back(output.defined() ? output.impl()->data() : nullptr);
    return frame_.take_io();
  }
  for (const auto& [entry, input] : plan.input_slots)
    frame_.set(entry, inputs[input].impl()->data());
  for (const auto& [entry, output] : plan.output_slots)
    frame_.set(entry, outputs[output].impl()->data());
}

ContextPool::~ContextPool() {
  for (Place& place : places_) delete place.context.load();
}

std::unique_ptr<ExecutionContext> ContextPool::acquire() {
  const std::size_t own = base::thread_stripe();
  std::unique_ptr<ExecutionContext> taken;
  for (std::size_t k = 0; k < places_.size() && taken == nullptr; ++k) {
    std::atomic<ExecutionContext*>& place = places_[(own + k) % places_.size()].context;
    if (place.load(std::memory_order_relaxed) != nullptr)
      taken.reset(place.exchange(nullptr, std::memory_order_acquire));
  }
  if (taken == nullptr) taken = std::make_unique<ExecutionContext>();
  taken->set_place(own);
  return taken;
}

std::size_t ContextPool::drop_idle() noexcept {
  std::size_t bytes = 0;
  for (Place& place : places_) {
    const std::unique_ptr<ExecutionContext> idle(
        place.context.exchange(nullptr, std::memory_order_acquire));
    if (idle != nullptr) bytes += static_cast<std::size_t>(idle->arena_bytes());
  }
  return bytes;
}

void ContextPool::release(std::unique_ptr<ExecutionContext> context) noexcept {
  const std::size_t own = context->place();
  for (std::size_t k = 0; k < places_.size(); ++k) {
    std::atomic<ExecutionContext*>& place = places_[(own + k) % places_.size()].context;
    ExecutionContext* empty = nullptr;
    if (place.load(std::memory_order_relaxed) == nullptr &&
        place.compare_exchange_strong(empty, context.get(), std::memory_order_release)) {
      static_cast<void>(context.release());  // the place has it
      return;
    }
  }
}

}  // namespace heddle::engine
