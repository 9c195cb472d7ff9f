#include "tests/cuda_sim/async_proxy.h"

#include <utility>

namespace heddle::sim {

void AsyncProxy::begin_block(std::uint32_t threads, std::size_t shared_bytes) {
  fences_.assign(threads, {});
  written_.assign((shared_bytes + kGranule - 1) / kGranule, {});
}

void AsyncProxy::fence(std::uint32_t thread, std::vector<std::uint32_t>&& seen) {
  ++fences_[thread].now;
  fences_[thread].seen = std::move(seen);
}

void AsyncProxy::write(std::size_t offset, std::size_t bytes, std::uint32_t thread,
                       std::size_t place, std::uint32_t arrivals) {
  for (std::size_t k = offset / kGranule; k * kGranule < offset + bytes; ++k)
    written_[k] = {thread + 1, fences_[thread].now, arrivals, static_cast<std::uint32_t>(place)};
}

void AsyncProxy::barrier() {
  for (Fences& fences : fences_) fences.at_barrier = fences.now;
}

std::string AsyncProxy::read(std::size_t offset, std::size_t bytes, std::uint32_t thread) const {
  for (std::size_t k = offset / kGranule; k * kGranule < offset + bytes; ++k) {
    const Written& written = written_[k];
    if (written.thread == 0) continue;
    const Fences& fences = fences_[written.thread - 1];
    const bool own = written.thread - 1 == thread;
    if (written.fences < (own ? fences.now : fences.at_barrier)) continue;
    const std::vector<std::uint32_t>& seen = fences_[thread].seen;
    if (!seen.empty() && written.arrivals < seen[written.place]) continue;
    return "multiplies what thread " + std::to_string(written.thread - 1) +
           " wrote to shared memory: no fence of the asynchronous proxy lies between";
  }
  return {};
}

}  // namespace heddle::sim
