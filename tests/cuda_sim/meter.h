// What a launch asks of memory, as a device would see it: by warps, in sectors of global memory and banks of shared memory.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "tests/cuda_sim/memory.h"

namespace heddle::sim {

struct Operation;

/// Where kernels touch memory.
struct Site {
  const void* code = nullptr;
  Access kind = Access::Read;
  bool shared = false;

  bool operator<(const Site& other) const {
    return std::tie(code, kind, shared) < std::tie(other.code, other.kind, other.shared);
  }
};

/// A list of lines, two or more for each launch that ran. Under mutex().
///
///   heddle_copy blocks 2 threads 256 working 200 most 2 all 400
///     read 0 bytes 800 requests 7 sectors 25 least 25
///     write 1 bytes 800 requests 7 sectors 50 least 25
///     shared read bytes 128 requests 1 passes 2 least 1
///
/// The launch: threads that touch global memory, the most such accesses of one, and those of all. Then its sites, by the parameter (from
/// 0 on) that points to the memory; `atomic` where it is updated. A request is what the lanes of a warp do at one site at
/// a time: the n-th time each comes there since all of them last met, at a barrier or a shuffle. What it asks for is
/// bytes of all lanes; it touches sectors of 32 bytes, `least` if the bytes that differ lay side by side. Of
/// shared memory, 32 banks of 4 bytes: passes in which no bank gives two words, of a warp for words and less, of
/// its halves for 8 bytes, of its quarters for 16; `least` if there were no conflicts.
///
/// Source: CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory" and "Shared Memory and Memory Banks".
class Meter {
 public:
  static Meter& instance();

  /// Forgets what there is, and begins or ends metering.
  void listen(bool on);
  bool is_on() const { return on_; }
  const std::string& text() const { return text_; }

  /// A launch begins.
  void begin(const Operation& launch);
  /// For kernels that run: a thread of the block that runs touches memory.
  void access(std::uint32_t thread, const Site& site, std::uintptr_t address, std::uint32_t bytes);
  /// All accesses of these threads, whole warps, come before all that follow.
  void meet(std::uint32_t begin, std::uint32_t end);
  /// The end of a block: who follows are other threads.
  void end_block();
  void end();

  static constexpr std::uint32_t kWarp = 32;
  static constexpr std::uint32_t kSector = 32;
  static constexpr std::uint32_t kWidest =
      16;  ///< bytes of a lane's access; wider ones are several

 private:
  struct Total {
    int parameter = 0;
    std::uint64_t bytes = 0, requests = 0;
    std::uint64_t parts = 0;  ///< sectors, or passes
    std::uint64_t least = 0;
  };
  struct Lane {
    std::uintptr_t address = 0;
    std::uint32_t bytes = 0;  ///< 0: the lane takes no part
  };
  using Request = std::array<Lane, kWarp>;
  /// Of one site, since the lanes last met.
  struct Pending {
    std::vector<Request> requests;
    std::array<std::uint32_t, kWarp> count{};  ///< of each lane
  };

  void count(const Site& site, const Request& request);
  static void count_global(const Request& request, Total& total);
  static void count_shared(const Request& request, Total& total);
  int parameter_of(std::uintptr_t address) const;

  bool on_ = false;
  bool running_ = false;  ///< a launch that is metered
  std::string text_;
  std::string head_;
  std::map<std::uintptr_t, int> parameters_;  ///< by where they point
  std::map<Site, Total> totals_;
  std::vector<std::map<Site, Pending>> warps_;
  std::vector<std::uint64_t> accesses_;  ///< of global memory, by thread of the block
  std::uint64_t working_ = 0, most_ = 0, all_ = 0;
};

}  // namespace heddle::sim
