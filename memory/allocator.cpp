#include "memory/allocator.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <fmt/format.h>
#include <mutex>
#include <sys/mman.h>
#include <vector>

#include "heddle/error.h"
#include "memory/caps.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace heddle::memory {

namespace {

constexpr std::size_t kAlign = 64;
constexpr std::size_t kHeader = 64;  // before each block: its class, keeps the block aligned
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kClasses = 4 * 44;
constexpr std::size_t kMaxCached = std::size_t{1} << 30;

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

struct FreeList {
  std::mutex mutex;
  std::vector<void*> blocks;
};

}  // namespace

struct CachingAllocator::Impl {
  std::array<FreeList, kClasses> lists;
  std::atomic<std::size_t> in_use{0};
  std::atomic<std::size_t> cached{0};
  std::atomic<std::size_t> peak{0};
  Caps caps;
  std::atomic<std::uint64_t> allocations{0};
  std::atomic<std::uint64_t> system_allocations{0};

  bool is_beyond(std::size_t bytes) const {
    return bytes != 0 &&
           in_use.load(std::memory_order_relaxed) + cached.load(std::memory_order_relaxed) > bytes;
  }
  void* take_cached(std::size_t size_class);
  static void* from_system(std::size_t bytes);
  [[noreturn]] void fail(std::size_t bytes) const;
};

CachingAllocator::CachingAllocator() : impl_(new Impl) {}

CachingAllocator& CachingAllocator::host() {
  static auto* const allocator = new CachingAllocator;  // outlives every static tensor
  return *allocator;
}

void* CachingAllocator::Impl::take_cached(std::size_t size_class) {
  FreeList& list = lists[size_class];
  const std::scoped_lock lock(list.mutex);
  if (list.blocks.empty()) return nullptr;
  void* block = list.blocks.back();
  list.blocks.pop_back();
  return block;
}

void* CachingAllocator::Impl::from_system(std::size_t bytes) {
  const std::size_t align = bytes >= kHugePage ? kHugePage : kAlign;
  // The block itself is aligned, so the header lies at the end of a leading unit of that alignment.
  void* raw = nullptr;
  const std::size_t lead = align == kHugePage ? kHugePage : kHeader;
  if (posix_memalign(&raw, align, bytes + lead) != 0) return nullptr;
  char* block = static_cast<char*>(raw) + lead;
  // Not the leading unit: a huge page, cleared and resident, for the header alone.
  if (align == kHugePage) madvise(block, bytes, MADV_HUGEPAGE);
  reinterpret_cast<std::size_t*>(block)[-1] = class_of(bytes);
  reinterpret_cast<void**>(block)[-2] = raw;
  return block;
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
  Impl& impl = *impl_;
  impl.allocations.fetch_add(1, std::memory_order_relaxed);
  if (bytes > (std::size_t{1} << 46)) impl.fail(bytes);
  const std::size_t size_class = class_of(bytes);
  const std::size_t size = bytes_of(size_class);
  const std::size_t used = impl.in_use.fetch_add(size, std::memory_order_relaxed) + size;
  const std::size_t cap = impl.caps.get();
  if (cap != 0 && used > cap) {
    impl.in_use.fetch_sub(size, std::memory_order_relaxed);
    impl.fail(bytes);
  }
  void* block = impl.take_cached(size_class);
  if (block != nullptr) {
    impl.cached.fetch_sub(size, std::memory_order_relaxed);
    show(block, size);
  } else {
    impl.system_allocations.fetch_add(1, std::memory_order_relaxed);
    if (impl.is_beyond(cap)) trim();
    block = Impl::from_system(size);
    if (block == nullptr) {
      trim();
      block = Impl::from_system(size);
    }
    if (block == nullptr) {
      impl.in_use.fetch_sub(size, std::memory_order_relaxed);
      impl.fail(bytes);
    }
  }
  std::size_t peak = impl.peak.load(std::memory_order_relaxed);
  while (used > peak && !impl.peak.compare_exchange_weak(peak, used, std::memory_order_relaxed)) {
  }
  return block;
}

void CachingAllocator::release(void* block) noexcept {
  Impl& impl = *impl_;
  const std::size_t size_class = static_cast<std::size_t*>(block)[-1];
  const std::size_t size = bytes_of(size_class);
  impl.in_use.fetch_sub(size, std::memory_order_relaxed);
  const std::size_t kept = impl.cached.fetch_add(size, std::memory_order_relaxed) + size;
  if (kept <= kMaxCached && !impl.is_beyond(impl.caps.get())) {
    hide(block, size);
    FreeList& list = impl.lists[size_class];
    const std::scoped_lock lock(list.mutex);
    list.blocks.push_back(block);
    return;
  }
  impl.cached.fetch_sub(size, std::memory_order_relaxed);
  std::free(static_cast<void**>(block)[-2]);
}

std::size_t CachingAllocator::trim() noexcept {
  std::size_t given_back = 0;
  for (std::size_t k = 0; k < kClasses; ++k) {
    std::vector<void*> blocks;
    {
      const std::scoped_lock lock(impl_->lists[k].mutex);
      blocks.swap(impl_->lists[k].blocks);
    }
    for (void* block : blocks) {
      show(block, bytes_of(k));
      impl_->cached.fetch_sub(bytes_of(k), std::memory_order_relaxed);
      std::free(static_cast<void**>(block)[-2]);
    }
    given_back += blocks.size() * bytes_of(k);
  }
  return given_back;
}

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
  return {impl_->in_use.load(), impl_->cached.load(),      impl_->peak.load(),
          impl_->caps.get(),    impl_->allocations.load(), impl_->system_allocations.load()};
}

}  // namespace heddle::memory
