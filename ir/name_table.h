// Names that values of a graph have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash.h"

namespace heddle::ir {

/// A set of names, by their hashes alone: a name that meets another's is taken for it, which costs it a suffix. Most passes
/// fill one with all names of a graph.
class NameTable {
 public:
  /// Whether it was free.
  bool take(std::string_view name) {
    Entry& entry = entry_of(hash_of(name));
    if (entry.next != 0) return false;
    entry.next = 1;
    return true;
  }
  void free(std::string_view name) { entry_of(hash_of(name)).next = 0; }
  /// Of a name that is taken: the number to try next where another wants it.
  std::uint32_t& next_number(std::string_view name) { return entry_of(hash_of(name)).next; }

 private:
  struct Entry {
    std::uint64_t hash = 0;  ///< 0: of no name
    std::uint32_t next = 0;  ///< 0: it is free
  };
  static std::uint64_t hash_of(std::string_view name) {
    const std::uint64_t hash = base::hash64(name);
    return hash == 0 ? 1 : hash;
  }
  Entry& entry_of(std::uint64_t hash) {
    if (2 * used_ >= entries_.size()) grow();
    const std::size_t mask = entries_.size() - 1;
    std::size_t at = hash & mask;
    while (entries_[at].hash != hash && entries_[at].hash != 0) at = (at + 1) & mask;
    if (entries_[at].hash == 0) {
      entries_[at].hash = hash;
      ++used_;
    }
    return entries_[at];
  }
  void grow() {
    std::vector<Entry> old(entries_.empty() ? 64 : 2 * entries_.size());
    std::swap(old, entries_);
    used_ = 0;
    for (const Entry& entry : old)
      if (entry.hash != 0) entry_of(entry.hash).next = entry.next;
  }

  std::vector<Entry> entries_;  ///< a power of two, half of them used at most
  std::size_t used_ = 0;
};

}  // namespace heddle::ir
