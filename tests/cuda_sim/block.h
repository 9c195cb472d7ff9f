// Runs the threads of a block as fibers: each goes on until it meets a barrier or a shuffle, and they
// pass when all have come.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda_sim/async_proxy.h"
#include "tests/cuda_sim/fiber.h"
#include "tests/cuda_sim/races.h"
#include "tests/cuda_sim/state.h"

namespace heddle::sim {

/// A kernel made ready: code, and arguments as the driver gets them.
struct Call {
  void (*kernel)(void** arguments) = nullptr;
  heddle_sim_state* state = nullptr;  ///< of the image that the kernel is in
  void** arguments = nullptr;
  heddle_sim_uint3 grid{1, 1, 1};
  heddle_sim_uint3 block{1, 1, 1};
  std::size_t dynamic_shared_bytes = 0;
  unsigned char* shared_begin =
      nullptr;  ///< the kernel's static shared memory, poisoned for each block
  unsigned char* shared_end = nullptr;
  std::uint64_t order = 0;  ///< of blocks: another one for each number; 0: that of their numbers
};

/// The machine: one at a time uses it.
class BlockRunner {
 public:
  static BlockRunner& instance();

  /// Runs all blocks, one after another in the call's order. Neighbouring threads take turns in changing order.
  /// @return what went wrong (a barrier that some threads never reach), or an empty text.
  std::string run(const Call& call);

  /// For kernels that run: whether `address` is the thread's own, such as on its stack; in the block's shared
  /// memory.
  bool is_own(const void* address) const;
  bool is_shared(const void* address) const;
  /// For kernels that run: who runs, or whose copy begins or ends, in which epoch.
  Moment now() const {
    return {
        state_->block.x * state_->block_size.x + current_ + 1, epoch_, threads_[current_]->fences,
        of_copy_ != nullptr ? of_copy_->arrivals : races_.arrivals(current_), of_copy_ != nullptr};
  }
  std::uint32_t thread() const { return current_; }  ///< of the block
  Races& races() { return races_; }
  /// The thread that runs writes shared memory, or a product of its reads it. @return what is wrong with that, in words; empty: nothing.
  std::string touch_shared(const void* address, std::size_t bytes, bool writes);
  /// Barriers that whole blocks have passed since this was last called. The n-th from now on orders nothing, as if
  /// it were not in the text. For tests of tests: the simulator must object. 0: none.
  std::uint64_t skip_barrier(std::uint64_t n);
  /// The same of the fences of threads.
  std::uint64_t skip_fence(std::uint64_t n);
  /// The same of the fences by which products of warpgroups see what threads wrote.
  std::uint64_t skip_proxy_fence(std::uint64_t n);
  /// The same of the waits of threads at mbarriers.
  std::uint64_t skip_mbarrier_wait(std::uint64_t n);
  /// For kernels that run: ends the thread that asks, and the run with it, which then says `why`.
  void abandon(std::string&& why);

 private:
  enum class Wait : std::uint8_t { None, Barrier, Shuffle, Gate, Done };
  /// An asynchronous copy that has begun.
  struct Copy {
    unsigned char* to = nullptr;
    std::array<unsigned char, 16> bytes{};
    std::uint32_t count = 0;
    std::uint32_t group = 0;
    std::uint32_t arrivals = 0;  ///< of the thread's copies, when it began
    void* arrival =
        nullptr;  ///< no copy, but the mbarrier where the thread arrives once those before are done
    std::vector<std::uint32_t> known{};  ///< by that arrival: Races::set_out()
  };
  /// An mbarrier, or a named barrier.
  struct Gate {
    std::uint32_t expected = 0;
    std::uint32_t arrived = 0;
    std::uint32_t phase = 0;
  };
  /// Work that goes on while the thread does other things.
  struct Work {
    void (*work)(const void*) = nullptr;
    alignas(16) std::array<unsigned char, 256> data{};
    std::uint32_t group = 0;
  };
  struct Thread {
    Fiber fiber;
    Wait wait = Wait::None;
    unsigned int shuffles = 0;
    std::uint32_t fences = 0;
    const Gate* gate = nullptr;  ///< that it waits at, for this phase to end
    std::uint32_t phase = 0;
    std::deque<Copy> copies;        ///< not written yet, in order
    std::uint32_t groups = 0;       ///< that were committed
    std::deque<Work> deferred;      ///< not done yet, in order
    std::uint32_t work_groups = 0;  ///< that were committed
  };
  /// What a lane brings to an exchange of its warp: two turns of it, since a lane may be one exchange ahead of its
  /// neighbour, not two.
  static constexpr unsigned int kMostWords = 8;
  struct Turn {
    std::uint32_t count = 0;
    std::array<unsigned int, 32 * kMostWords> words{};
  };

  static void enter(void* self);
  static void barrier();
  static void fence();
  static void proxy_fence();
  static unsigned int shuffle_xor(unsigned int value, int mask);
  static const unsigned int* exchange(const unsigned int* words, unsigned int count);
  static void copy(void* to, const void* from, unsigned int bytes, unsigned int valid);
  static void commit_copies();
  static void wait_copies(unsigned int pending);
  static void defer(void (*work)(const void*), const void* data, unsigned int bytes);
  static void commit_work();
  static void wait_work(unsigned int pending);
  static void mbarrier_init(void* at, unsigned int arrivals);
  static void mbarrier_arrive(void* at);
  static void mbarrier_arrive_copies(void* at);
  static void mbarrier_wait(void* at, unsigned int parity);
  static void named_barrier(unsigned int number, unsigned int threads, bool waits);
  Gate& mbarrier_at(void* at);
  void arrive(Gate& gate, const std::vector<std::uint32_t>& known);
  void wait_at(const Gate& gate, std::uint32_t phase);
  /// The thread's oldest copy reaches the memory.
  void end_copy(Thread& thread);
  /// Ends copies up to the oldest arrival that hangs on them, of each thread. False: there is none.
  bool end_copies_of_arrivals(std::uint32_t count);
  void pause(Wait why);
  std::string run_block(const Call& call);
  /// Lets go on who may. False: nobody.
  bool release(std::uint32_t count);

  heddle_sim_state* state_ = nullptr;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<std::array<Turn, 2>> warps_;  ///< values exchanged
  std::vector<unsigned char> dynamic_shared_;
  const Call* call_ = nullptr;
  std::string problem_;
  std::uint32_t current_ = 0;
  std::uint32_t epoch_ = 0;
  bool between_threads_ = false;   ///< no thread's fiber runs, but copies end
  const Copy* of_copy_ = nullptr;  ///< what is touched is, beside the thread
  std::map<const void*, Gate> mbarriers_;
  std::array<Gate, 16> named_{};
  Races races_;
  AsyncProxy proxy_;
  std::uint64_t barriers_ = 0;
  std::uint64_t skip_barrier_ = 0;
  std::uint64_t fences_ = 0;
  std::uint64_t skip_fence_ = 0;
  std::uint64_t proxy_fences_ = 0;
  std::uint64_t skip_proxy_fence_ = 0;
  std::uint64_t mbarrier_waits_ = 0;
  std::uint64_t skip_mbarrier_wait_ = 0;
};

}  // namespace heddle::sim
