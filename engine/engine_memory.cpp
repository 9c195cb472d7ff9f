// What engines hold, and giving it back.
#include "engine/engine_impl.h"
#include "memory/allocator.h"

namespace heddle {

namespace {

template <typename Stats>
MemoryStats::Pool pool_of(const Stats& stats) {
  return {stats.in_use_bytes, stats.cached_bytes, stats.peak_bytes, stats.cap_bytes};
}

}  // namespace

engine::HeldCaps::HeldCaps(const EngineOptions& options, CudaExecutor* cuda) {
  if (cuda == nullptr) {
    memory = memory::CachingAllocator::host().hold_cap(options.memory_cap);
    return;
  }
  memory = cuda->runtime().pool().hold_cap(options.memory_cap);
  pinned = cuda->runtime().pinned().hold_cap(options.pinned_memory_cap);
}

void Engine::Impl::make_ready(engine::ExecutionContext& context, const engine::BoundPlan& plan) {
  try {
    context.use(plan);
  } catch (const OutOfMemory&) {
    // What idle contexts hold may be enough.
    if (contexts.drop_idle() == 0) throw;
    context.use(plan);
  }
}

MemoryStats Engine::memory() const {
  MemoryStats stats;
  stats.host = pool_of(memory::CachingAllocator::host().stats());
  if (impl_->cuda == nullptr) return stats;
  stats.device = pool_of(impl_->cuda->runtime().pool().stats());
  stats.pinned = pool_of(impl_->cuda->runtime().pinned().stats());
  return stats;
}

std::size_t Engine::trim() {
  impl_->contexts.drop_idle();
  std::size_t bytes = memory::CachingAllocator::host().trim();
  if (impl_->cuda == nullptr) return bytes;
  impl_->cuda->drop_ready();
  bytes += impl_->cuda->runtime().pool().trim();
  return bytes + impl_->cuda->runtime().pinned().trim();
}

}  // namespace heddle
