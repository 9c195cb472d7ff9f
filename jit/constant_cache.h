// Constants on disk as kernels read them: packed, transformed, folded. A later process maps them instead of making them
// anew: nothing is cleared, packed or copied, and processes share the pages.
//
// A file (see CacheFolder) holds the full key, the number and sizes of its pieces, a checksum of it all and the
// pieces. Key and sizes are compared in full and the checksum is computed at each start, which takes as long as
// reading the bytes once: a file that is torn, changed, or another's is as good as none. A key names what the constants are made of
// (see source_key), and how: the code that makes them, its version and the processor's instructions.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jit/cache_folder.h"

namespace heddle::jit {

/// What a key says of bytes that constants are made of: their place in a file that can be told from all others
/// (base::place_in_file), which saves reading them, or else a hash of 128 bits of them all.
std::string source_key(const void* data, std::size_t bytes);

/// Threads: any.
class ConstantCache {
 public:
  /// Pieces that take less than this in all are made as fast as they are found.
  static constexpr std::size_t kLeastBytes = std::size_t{1} << 20;

  using Piece = std::shared_ptr<const void>;

  /// @param folder  of the files; empty: nothing is kept
  /// @param max_bytes  of all files
  ConstantCache(std::string folder, std::uint64_t max_bytes);
  /// Waits until what was given to be kept is written.
  ~ConstantCache();
  ConstantCache(const ConstantCache&) = delete;
  ConstantCache& operator=(const ConstantCache&) = delete;

  /// The pieces kept under `key`, of these numbers of bytes, each at a multiple of 64. Mapped: not to be written to.
  /// Empty: there are none.
  std::vector<Piece> find(std::string_view key, std::span<const std::size_t> bytes) const;
  /// Whether there is a file for `key`: find() may still find nothing in it.
  bool has(std::string_view key) const;
  /// Has `pieces` written by a thread that nobody waits for. Where that fails, nothing is kept.
  void store(std::string key, std::vector<Piece> pieces, std::vector<std::size_t> bytes);
  /// Until nothing is left to be written.
  void wait();

  /// Of pieces that find() found.
  std::uint64_t found_bytes() const { return found_bytes_.load(); }
  std::string path_of(std::string_view key) const { return files_.path_of(key); }

 private:
  struct Entry {
    std::string key;
    std::vector<Piece> pieces;
    std::vector<std::size_t> bytes;
  };
  void write_all();
  void write(const Entry& entry);

  CacheFolder files_;
  mutable std::atomic<std::uint64_t> found_bytes_{0};
  std::mutex mutex_;
  std::condition_variable idle_;
  std::deque<Entry>
      queue_;  ///< under `mutex_`; the first is being written by a thread that ends when none is left
};

}  // namespace heddle::jit
