// Compiled code on disk, shared by every process of the user.
//
// A file (see CacheFolder) holds a magic number, a format version, the full key, a checksum and the code; the key is
// compared in full, so that a collision is a miss. Whatever is broken or unreadable is a miss, and nothing here fails
// a compile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "jit/cache_folder.h"

namespace heddle::jit {

class KernelCache {
 public:
  /// @param folder     created when the first entry is stored; empty: the default (see default_folder)
  /// @param max_bytes  beyond it the entries unused for longest are dropped
  explicit KernelCache(std::string folder = {}, std::uint64_t max_bytes = std::uint64_t{1} << 30);

  /// The code stored under `key`.
  std::optional<std::string> find(std::string_view key);
  /// Whether the entry was written.
  bool store(std::string_view key, std::string_view code);

  const std::string& folder() const { return files_.folder(); }
  /// The file that holds the entry of `key`, whether it exists or not.
  std::string path_of(std::string_view key) const { return files_.path_of(key); }

  /// $HEDDLE_CACHE_DIR, $XDG_CACHE_HOME/heddle or ~/.cache/heddle; empty when none is set.
  static std::string default_folder();

 private:
  CacheFolder files_;
};

}  // namespace heddle::jit
