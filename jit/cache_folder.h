// A folder of files that any process may write and drop: what caches on disk have in common.
//
// One file an entry, named by the key's hash. A file appears by rename, whole or not at all, and what is broken,
// unreadable or cannot be written is no failure. What a file holds, and how it is told from a broken one, is the
// business of each cache.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace heddle::jit {

class CacheFolder {
 public:
  /// @param folder     created with the first entry; empty: there is none, and nothing is kept
  /// @param suffix     of the files; others in the folder are left alone
  /// @param max_bytes  of all files; beyond it those unused for longest are dropped
  CacheFolder(std::string folder, std::string suffix, std::uint64_t max_bytes);

  const std::string& folder() const { return folder_; }
  std::uint64_t max_bytes() const { return max_bytes_; }
  /// The file that holds the entry of `key`, whether it exists or not; empty without a folder.
  std::string path_of(std::string_view key) const;
  /// Notes that the entry was used now.
  static void touch(const std::string& path);
  /// Writes `parts`, one behind the other, in place of what the file of `key` holds.
  /// @return whether it was written.
  bool publish(std::string_view key, std::span<const std::string_view> parts);

 private:
  void evict();

  std::string folder_;
  std::string suffix_;
  std::uint64_t max_bytes_;
  std::mutex mutex_;
  std::optional<std::uint64_t> total_bytes_;  ///< of all entries, as far as this process knows
};

}  // namespace heddle::jit
