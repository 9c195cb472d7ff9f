#include "engine/context.h"

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
    if (arena_ != nullptr) allocator.release(arena_);
    arena_ = nullptr;
    arena_bytes_ = 0;
    arena_ = static_cast<char*>(allocator.allocate(static_cast<std::size_t>(plan.arena_bytes)));
    arena_bytes_ = plan.arena_bytes;
  }
  table_.assign(plan.table.size(), nullptr);
  for (std::size_t k = 0; k < plan.table.size(); ++k) {
    const AddressSource& source = plan.table[k];
    if (source.kind == AddressSource::Kind::Arena) table_[k] = arena_ + source.offset;
    if (source.kind == AddressSource::Kind::Fixed) table_[k] = source.address;
  }
  steps_ = plan.steps;
  for (std::size_t k = 0; k < steps_.size(); ++k) {
    steps_[k].buffers = table_.data() + plan.table_start[k];
    steps_[k].scratch = arena_ + plan.memory.peak_bytes;
    steps_[k].scratch_stride = plan.scratch_stride;
    steps_[k].request = &failure_;
  }
  plan_id_ = plan.id;
}

void ExecutionContext::set_io(const BoundPlan& plan, std::span<const Tensor> inputs,
                              std::span<const Tensor> outputs) {
  for (const auto& [entry, input] : plan.input_slots) table_[entry] = inputs[input].impl()->data;
  for (const auto& [entry, output] : plan.output_slots)
    table_[entry] = outputs[output].impl()->data;
}

ContextPool::~ContextPool() {
  for (auto& slot : slots_) delete slot.load();
}

std::unique_ptr<ExecutionContext> ContextPool::acquire() {
  for (auto& slot : slots_) {
    if (slot.load(std::memory_order_relaxed) == nullptr) continue;
    if (ExecutionContext* context = slot.exchange(nullptr, std::memory_order_acquire))
      return std::unique_ptr<ExecutionContext>(context);
  }
  return std::make_unique<ExecutionContext>();
}

void ContextPool::release(std::unique_ptr<ExecutionContext> context) noexcept {
  for (auto& slot : slots_) {
    ExecutionContext* empty = nullptr;
    if (slot.load(std::memory_order_relaxed) == nullptr &&
        slot.compare_exchange_strong(empty, context.get(), std::memory_order_release)) {
      context.release();
      return;
    }
  }
}

}  // namespace heddle::engine
