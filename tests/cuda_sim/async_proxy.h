// What of shared memory the unit that wgmma reads through may see yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace heddle::sim {

/// What threads write to a block's shared memory, by copies that they waited for too, reaches the asynchronous proxy by a
/// fence of the thread that wrote it (`fence.proxy.async`); others that read there come after that fence by a barrier. Or the thread
/// that reads has a fence of its own, after it waited where the one that wrote had arrived (PTX ISA, "Memory Consistency
/// Model", causality order across proxies; "Asynchronous Warpgroup Level Matrix Instructions").
class AsyncProxy {
 public:
  /// A block begins, with so many threads and so much shared memory, of which nothing was written.
  void begin_block(std::uint32_t threads, std::size_t shared_bytes);
  /// A thread writes; `offset` bytes into the shared memory. It, or its copies if they do, have set out so often for where some threads wait,
  /// which is counted at `place` in what these know then.
  void write(std::size_t offset, std::size_t bytes, std::uint32_t thread, std::size_t place,
             std::uint32_t arrivals);
  /// @param seen  what this thread knows; empty: nobody ever set out
  void fence(std::uint32_t thread, std::vector<std::uint32_t>&& seen);
  /// The block passes a barrier.
  void barrier();
  /// A thread's product reads. @return what it may not see yet, in words; empty: nothing.
  std::string read(std::size_t offset, std::size_t bytes, std::uint32_t thread) const;

 private:
  /// Bytes that are told apart: the narrowest elements that are multiplied.
  static constexpr std::size_t kGranule = 2;
  struct Fences {
    std::uint32_t now = 0;
    std::uint32_t at_barrier = 0;       ///< as many as there were when the block last passed one
    std::vector<std::uint32_t> seen{};  ///< at the last one
  };
  struct Written {
    std::uint32_t thread = 0;  ///< from 1 on; 0: nobody did
    std::uint32_t fences = 0;  ///< of that thread, before
    std::uint32_t arrivals = 0;
    std::uint32_t place = 0;
  };

  std::vector<Fences> fences_;    ///< by thread
  std::vector<Written> written_;  ///< by granule
};

}  // namespace heddle::sim
