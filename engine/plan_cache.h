// The memo in front of the guards: packed descriptors → bound plan, read without a lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/stripes.h"
#include "engine/executable.h"

namespace heddle::engine {

/// Delays destruction until no reader can hold what is destroyed.
///
/// Readers enter and leave; each counts itself under the parity of the generation it saw. A generation
/// ends when no reader of the one before it is left, so what was retired two generations ago is free
/// (the scheme of sleepable RCU).
class Reclaimer {
 public:
  class Reader {
   public:
    explicit Reader(Reclaimer& owner) noexcept;
    ~Reader();
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

   private:
    std::atomic<std::int64_t>* counter_;
  };

  /// Under the owner's lock: keeps `plan` until it is safe to destroy, and destroys what is.
  void retire(std::unique_ptr<BoundPlan> plan);

 private:
  struct alignas(base::kLineBytes) Stripe {
    std::array<std::atomic<std::int64_t>, 2> readers{};
  };
  struct Retired {
    std::uint64_t generation;
    std::unique_ptr<BoundPlan> plan;
  };
  void advance();

  std::array<Stripe, base::kStripes> stripes_;
  std::atomic<std::uint64_t> generation_{2};
  std::vector<Retired> retired_;
};

/// At most `capacity` plans, which take about `most_bytes` at most; when full, the older half is dropped.
class PlanCache {
 public:
  /// Plans of convolutional models take half a MB each, with a library's code; those of others tens of KB.
  static constexpr std::int64_t kMostBytes = std::int64_t{64} << 20;

  explicit PlanCache(std::size_t capacity, std::int64_t most_bytes = kMostBytes);
  ~PlanCache();

  /// The plan for these words, or null. Call, and use the plan, inside a Reclaimer::Reader.
  const BoundPlan* find(std::span<const std::int64_t> words, std::uint64_t hash) const noexcept;
  /// Adds a plan under its words and hash; returns the one that is in the cache (an equal one may have
  /// been faster).
  const BoundPlan* insert(std::unique_ptr<BoundPlan> plan);
  /// Adds a plan in place of the one with its words, if there is one.
  void replace(std::unique_ptr<BoundPlan> plan);
  /// Drops every plan of `executable`.
  void erase(const Executable* executable);
  std::size_t size() const;
  Reclaimer& reclaimer() const { return reclaimer_; }

 private:
  using Slot = std::atomic<const BoundPlan*>;
  struct Held {
    std::unique_ptr<BoundPlan> plan;
    std::int64_t bytes;  ///< counted once: a plan of many steps takes long
  };
  void drop_older_half();
  void put(const BoundPlan& plan);
  void rebuild();
  template <typename F>
  void erase_if(F&& is_dropped);

  std::size_t capacity_;
  std::int64_t most_bytes_;
  std::size_t mask_;
  std::unique_ptr<Slot[]> slots_;
  mutable std::mutex mutex_;
  std::vector<Held> plans_;      // in order of insertion
  std::int64_t held_bytes_ = 0;  ///< by them
  mutable Reclaimer reclaimer_;
};

}  // namespace heddle::engine
