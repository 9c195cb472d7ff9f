#include "base/lasting.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <utility>
#include <vector>

#include "heddle/error.h"

namespace heddle::base {

namespace {

constexpr std::size_t kAlign = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kChunk = std::size_t{16} << 20;

std::atomic<std::size_t> bytes_there{0};

std::size_t rounded_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// Pages that begin at a multiple of kHugePage. The system makes one resident when it is first written, and has it back
/// when no piece lies in it any more. Threads: one at a time.
class Chunk {
 public:
  explicit Chunk(std::size_t bytes)
      : bytes_(bytes), mapped_(bytes + kHugePage), pieces_(bytes / kHugePage, 0) {
    map_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map_ == MAP_FAILED)
      throw OutOfMemory({.what = "allocate",
                         .where = "host memory",
                         .expected = "memory from the system",
                         .got = "a request of " + std::to_string(mapped_) + " bytes"});
    const auto address = reinterpret_cast<std::uintptr_t>(map_);
    begin_ = static_cast<char*>(map_) + (rounded_up(address, kHugePage) - address);
    madvise(begin_, bytes_, MADV_HUGEPAGE);
  }
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;
  ~Chunk() { munmap(map_, mapped_); }

  /// The next `bytes`, or null when fewer are left.
  void* take(std::size_t bytes) {
    if (bytes > bytes_ - taken_) return nullptr;
    char* piece = begin_ + taken_;
    taken_ += bytes;
    for (std::size_t page = first_page(piece); page <= last_page(piece, bytes); ++page)
      ++pieces_[page];
    return piece;
  }

  /// The piece is used no more. Nothing is put in its place: a page that is left by all stays empty.
  void give_back(void* piece, std::size_t bytes) {
    for (std::size_t page = first_page(piece); page <= last_page(piece, bytes); ++page) {
      const bool is_full = (page + 1) * kHugePage <= taken_;
      if (--pieces_[page] == 0 && is_full)
        madvise(begin_ + page * kHugePage, kHugePage, MADV_DONTNEED);
    }
  }

 private:
  std::size_t first_page(const void* piece) const {
    return static_cast<std::size_t>(static_cast<const char*>(piece) - begin_) / kHugePage;
  }
  std::size_t last_page(const void* piece, std::size_t bytes) const {
    return first_page(static_cast<const char*>(piece) + bytes - 1);
  }

  std::size_t bytes_;
  std::size_t mapped_;
  std::size_t taken_ = 0;
  std::vector<std::uint32_t> pieces_;  ///< by page: those that lie in it
  void* map_ = nullptr;
  char* begin_ = nullptr;
};

}  // namespace

std::shared_ptr<void> lasting_memory(std::size_t bytes) {
  static std::mutex mutex;
  static std::weak_ptr<Chunk> current;
  const std::size_t room = rounded_up(std::max<std::size_t>(bytes, 1), kAlign);
  std::shared_ptr<Chunk> chunk;
  void* piece = nullptr;
  {
    const std::lock_guard lock(mutex);
    chunk = current.lock();
    if (chunk != nullptr) piece = chunk->take(room);
    if (piece == nullptr) {
      chunk = std::make_shared<Chunk>(rounded_up(std::max(room, kChunk), kHugePage));
      current = chunk;
      piece = chunk->take(room);
    }
  }
  bytes_there += room;
  return {piece, [chunk = std::move(chunk), room](void* dead) {
            const std::lock_guard lock(mutex);
            chunk->give_back(dead, room);
            bytes_there -= room;
          }};
}

std::size_t lasting_bytes() { return bytes_there; }

}  // namespace heddle::base
