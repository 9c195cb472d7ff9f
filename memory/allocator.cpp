#include "memory/allocator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <fmt/format.h>
#include <mutex>
#include <vector>

#include "base/stripes.h"
#include "heddle/error.h"
#include "memory/caps.h"
#include "memory/large_block.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace heddle::memory {

namespace {

constexpr std::size_t kAlign = 64;
constexpr std::size_t kHeader = 64;  // before each block: its class, keeps the block aligned
constexpr std::size_t kClasses = 4 * 44;
constexpr std::size_t kMaxCached = std::size_t{1} << 30;
constexpr std::size_t kMostBytes = std::size_t{1} << 46;

/// Four classes a power of two, from 64 bytes on: 64, 80, 96, 112, 128, …
std::size_t class_of(std::size_t bytes) {
  if (bytes <= 64) return 0;
  const auto log = static_cast<std::size_t>(std::bit_width(bytes - 1)) - 1;
  const std::size_t quarter = (bytes - 1 - (std::size_t{1} << log)) >> (log - 2);
  return (log - 6) * 4 + quarter + 1;
}

std::size_t bytes_of(std::size_t size_class) {
  if (size_class == 0) return 64;
  const std::size_t log = (size_class - 1) / 4 + 6;
  return (std::size_t{1} << log) + (((size_class - 1) % 4 + 1) << (log - 2));
}

/// Large blocks are mappings, which grow() can move; AddressSanitizer watches those of the C library alone.
constexpr bool kMapsLarge =
#if defined(__SANITIZE_ADDRESS__)
    false;
#else
    true;
#endif

/// Lies right before each block.
struct Header {
  void* raw;  ///< what std::free() takes; null: a mapping
  std::uint32_t size_class;
  std::uint32_t
      owner;  ///< which lists it goes back to: those of the thread that it was made for, if it is small
};

Header& header_of(void* block) { return static_cast<Header*>(block)[-1]; }

void hide([[maybe_unused]] void* block, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_POISON_MEMORY_REGION(block, bytes);
#endif
}

void show([[maybe_unused]] void* block, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(block, bytes);
#endif
}

struct alignas(base::kLineBytes) FreeList {
  std::mutex mutex;
  std::uint64_t allocations = 0;  ///< blocks that were asked for, under `mutex`
  std::vector<void*> blocks;
};

/// Small blocks, of which calls that take microseconds are made, are kept apart for threads, so that none waits for another;
/// they come back to where they were taken from, whichever thread is done with them.
constexpr std::size_t kSmallClasses = 4 * 8 + 1;  // up to 16 KiB
constexpr std::size_t kOwners = 16;

std::size_t owner_of(std::size_t size_class) {
  return size_class < kSmallClasses ? base::thread_stripe() % kOwners : 0;
}

}  // namespace

struct CachingAllocator::Impl {
  std::array<FreeList, kClasses> lists;
  std::array<std::array<FreeList, kSmallClasses>, kOwners> small;
  alignas(base::kLineBytes) std::atomic<std::size_t> in_use{0};
  alignas(base::kLineBytes) std::atomic<std::size_t> peak{0};
  std::atomic<std::size_t> held{0};  ///< bytes from the system: in use and cached
  Caps caps;
  std::atomic<std::uint64_t> system_allocations{0};

  bool is_beyond(std::size_t bytes) const {
    return bytes != 0 && held.load(std::memory_order_relaxed) > bytes;
  }
  /// Between an allocation's first and last step what is in use may be more than what is held.
  std::size_t cached(std::size_t used) const {
    const std::size_t all = held.load(std::memory_order_relaxed);
    return all - std::min(all, used);
  }
  FreeList& list_of(std::size_t size_class, std::size_t owner) {
    return size_class < kSmallClasses ? small[owner][size_class] : lists[size_class];
  }
  std::size_t claim(std::size_t bytes, std::size_t instead_of);
  void* make(std::size_t size_class, void* from);
  void note_peak(std::size_t used);
  void* take_cached(std::size_t size_class);
  void keep(void* block, std::size_t used) noexcept;
  template <typename F>
  void for_each_list(F&& visit);
  std::size_t empty(FreeList& list, std::size_t size_class) noexcept;
  std::uint64_t allocations();
  std::size_t trim() noexcept;
  void* from_system(std::size_t size_class, void* from);
  void to_system(void* block) noexcept;
  [[noreturn]] void fail(std::size_t bytes) const;
};

CachingAllocator::CachingAllocator() : impl_(new Impl) {}

CachingAllocator& CachingAllocator::host() {
  static auto* const allocator = new CachingAllocator;  // outlives every static tensor
  return *allocator;
}

/// The block's pages go on in a larger one where `from` is a mapping, else it is null.
void* CachingAllocator::Impl::from_system(std::size_t size_class, void* from) {
  const std::size_t bytes = bytes_of(size_class);
  const std::size_t before = from == nullptr ? 0 : bytes_of(header_of(from).size_class);
  void* raw = nullptr;
  char* block = nullptr;
  if (from != nullptr) {
    block = move_block(static_cast<char*>(from), before, bytes);
  } else if (kMapsLarge && bytes >= kHugePage) {
    block = map_block(bytes);
  } else if (posix_memalign(&raw, kAlign, bytes + kHeader) == 0) {
    block = static_cast<char*>(raw) + kHeader;
  }
  if (block == nullptr) return nullptr;
  held.fetch_add(bytes - before, std::memory_order_relaxed);
  header_of(block) = {raw, static_cast<std::uint32_t>(size_class),
                      static_cast<std::uint32_t>(owner_of(size_class))};
  return block;
}

void CachingAllocator::Impl::to_system(void* block) noexcept {
  const Header header = header_of(block);
  held.fetch_sub(bytes_of(header.size_class), std::memory_order_relaxed);
  if (header.raw != nullptr) return std::free(header.raw);
  unmap_block(static_cast<char*>(block), bytes_of(header.size_class));
}

void* CachingAllocator::Impl::take_cached(std::size_t size_class) {
  void* block = nullptr;
  {
    FreeList& list = list_of(size_class, owner_of(size_class));
    const std::scoped_lock lock(list.mutex);
    ++list.allocations;
    if (list.blocks.empty()) return nullptr;
    block = list.blocks.back();
    list.blocks.pop_back();
  }
  show(block, bytes_of(size_class));
  return block;
}

/// @param used  bytes in use, those of the block no more
void CachingAllocator::Impl::keep(void* block, std::size_t used) noexcept {
  if (cached(used) > kMaxCached || is_beyond(caps.get())) return to_system(block);
  const Header header = header_of(block);
  hide(block, bytes_of(header.size_class));
  FreeList& list = list_of(header.size_class, header.owner);
  const std::scoped_lock lock(list.mutex);
  list.blocks.push_back(block);
}

/// Counts `bytes` as in use and what they are taken for as not. @return bytes in use; 0: they would be more than the cap.
std::size_t CachingAllocator::Impl::claim(std::size_t bytes, std::size_t instead_of) {
  if (bytes > kMostBytes) return 0;
  const std::size_t more = bytes_of(class_of(bytes)) - instead_of;
  const std::size_t used = in_use.fetch_add(more, std::memory_order_relaxed) + more;
  const std::size_t cap = caps.get();
  if (cap == 0 || used <= cap) return used;
  in_use.fetch_sub(more, std::memory_order_relaxed);
  return 0;
}

/// A block that is not cached, from the pages of `from` unless it is null. @return null: the system has none
void* CachingAllocator::Impl::make(std::size_t size_class, void* from) {
  system_allocations.fetch_add(1, std::memory_order_relaxed);
  const std::size_t cap = caps.get();
  if (cap != 0 && held.load(std::memory_order_relaxed) + bytes_of(size_class) > cap) trim();
  void* block = from_system(size_class, from);
  if (block != nullptr) return block;
  trim();
  return from_system(size_class, from);
}

void CachingAllocator::Impl::note_peak(std::size_t used) {
  std::size_t highest = peak.load(std::memory_order_relaxed);
  while (used > highest && !peak.compare_exchange_weak(highest, used, std::memory_order_relaxed)) {
  }
}

void CachingAllocator::Impl::fail(std::size_t bytes) const {
  const std::size_t limit = caps.get();
  throw OutOfMemory(
      {.what = "allocate",
       .where = "host memory",
       .expected =
           limit == 0 ? "memory from the system" : fmt::format("at most {} bytes in use", limit),
       .got = fmt::format("a request of {} bytes with {} in use", bytes, in_use.load())});
}

void* CachingAllocator::allocate(std::size_t bytes) {
  const std::size_t used = impl_->claim(bytes, 0);
  if (used == 0) impl_->fail(bytes);
  const std::size_t size_class = class_of(bytes);
  void* block = impl_->take_cached(size_class);
  if (block == nullptr) block = impl_->make(size_class, nullptr);
  if (block == nullptr) {
    impl_->in_use.fetch_sub(bytes_of(size_class), std::memory_order_relaxed);
    impl_->fail(bytes);
  }
  impl_->note_peak(used);
  return block;
}

void* CachingAllocator::grow(void* block, std::size_t bytes) {
  if (block == nullptr) return allocate(bytes);
  const std::size_t size = bytes_of(header_of(block).size_class);
  if (bytes <= size) return block;
  if (header_of(block).raw != nullptr) {
    release(block);
    return allocate(bytes);
  }
  const std::size_t used = impl_->claim(bytes, size);
  if (used == 0) {
    release(block);
    impl_->fail(bytes);
  }
  const std::size_t size_class = class_of(bytes);
  void* larger = impl_->take_cached(size_class);
  if (larger != nullptr) {
    impl_->keep(block, used);
  } else if (larger = impl_->make(size_class, block); larger == nullptr) {
    impl_->keep(block, used);  // its pages cannot be moved
    larger = impl_->make(size_class, nullptr);
  }
  if (larger == nullptr) {
    impl_->in_use.fetch_sub(bytes_of(size_class), std::memory_order_relaxed);
    impl_->fail(bytes);
  }
  impl_->note_peak(used);
  return larger;
}

void CachingAllocator::release(void* block) noexcept {
  const std::size_t bytes = bytes_of(header_of(block).size_class);
  impl_->keep(block, impl_->in_use.fetch_sub(bytes, std::memory_order_relaxed) - bytes);
}

std::size_t CachingAllocator::Impl::empty(FreeList& list, std::size_t size_class) noexcept {
  std::vector<void*> blocks;
  {
    const std::scoped_lock lock(list.mutex);
    blocks.swap(list.blocks);
  }
  for (void* block : blocks) {
    show(block, bytes_of(size_class));
    to_system(block);
  }
  return blocks.size() * bytes_of(size_class);
}

/// With its size class.
template <typename F>
void CachingAllocator::Impl::for_each_list(F&& visit) {
  for (std::size_t k = 0; k < kClasses; ++k) visit(lists[k], k);
  for (auto& of_owner : small)
    for (std::size_t k = 0; k < kSmallClasses; ++k) visit(of_owner[k], k);
}

std::size_t CachingAllocator::Impl::trim() noexcept {
  std::size_t given_back = 0;
  for_each_list(
      [&](FreeList& list, std::size_t size_class) { given_back += empty(list, size_class); });
  return given_back;
}

std::uint64_t CachingAllocator::Impl::allocations() {
  std::uint64_t total = 0;
  for_each_list([&](FreeList& list, std::size_t) {
    const std::scoped_lock lock(list.mutex);
    total += list.allocations;
  });
  return total;
}

std::size_t CachingAllocator::trim() noexcept { return impl_->trim(); }

void CachingAllocator::set_cap(std::size_t bytes) {
  impl_->caps.set(bytes);
  if (impl_->is_beyond(bytes)) trim();
}

std::shared_ptr<const void> CachingAllocator::hold_cap(std::size_t bytes) {
  auto held = impl_->caps.hold(bytes);
  if (impl_->is_beyond(bytes)) trim();
  return held;
}

CachingAllocator::Stats CachingAllocator::stats() const {
  const std::size_t used = impl_->in_use.load();
  return {used,
          impl_->cached(used),
          impl_->peak.load(),
          impl_->caps.get(),
          impl_->allocations(),
          impl_->system_allocations.load()};
}

}  // namespace heddle::memory
