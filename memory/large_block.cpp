#include "memory/large_block.h"

#include <cstdint>
#include <sys/mman.h>
#include <unistd.h>

namespace heddle::memory {

namespace {

std::size_t page() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::size_t whole_pages(std::size_t bytes) { return (bytes + page() - 1) / page() * page(); }

/// Addresses for a header's page and `bytes` on a huge page's boundary; what lies around them is given back.
char* reserve(std::size_t bytes, int protection) {
  const std::size_t taken = page() + whole_pages(bytes);
  void* mapped = mmap(nullptr, taken + kHugePage, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* start = static_cast<char*>(mapped);
  const auto address = reinterpret_cast<std::uintptr_t>(start) + page();
  const std::size_t before = (kHugePage - address % kHugePage) % kHugePage;
  if (before != 0) munmap(start, before);
  if (before != kHugePage) munmap(start + before + taken, kHugePage - before);
  return start + before + page();
}

}  // namespace

char* map_block(std::size_t bytes) noexcept {
  char* block = reserve(bytes, PROT_READ | PROT_WRITE);
  // Not the header's page: a huge page, cleared and resident, for the header alone.
  if (block != nullptr) madvise(block, whole_pages(bytes), MADV_HUGEPAGE);
  return block;
}

void unmap_block(char* block, std::size_t bytes) noexcept {
  munmap(block - page(), page() + whole_pages(bytes));
}

char* move_block(char* block, std::size_t bytes, std::size_t more_bytes) noexcept {
  char* larger = reserve(more_bytes, PROT_NONE);
  if (larger == nullptr) return nullptr;
  // Small pages behind the last huge one would keep the system from putting a huge page there.
  const std::size_t kept = bytes / kHugePage * kHugePage;
  if (mprotect(larger - page(), page(), PROT_READ | PROT_WRITE) != 0 ||
      mremap(block, kept, whole_pages(more_bytes), MREMAP_MAYMOVE | MREMAP_FIXED, larger) ==
          MAP_FAILED) {
    unmap_block(larger, more_bytes);
    return nullptr;
  }
  munmap(block - page(), page());
  if (whole_pages(bytes) != kept) munmap(block + kept, whole_pages(bytes) - kept);
  return larger;
}

}  // namespace heddle::memory
