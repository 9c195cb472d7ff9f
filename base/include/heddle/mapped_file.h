// A file mapped read-only.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "heddle/export.h"

namespace heddle {

/// A whole file mapped read-only: its pages are shared with every process that maps it, and read when they are used. Zeros
/// lie behind its last byte, a page at least.
class HEDDLE_API MappedFile {
 public:
  /// Null when `path` is no file that can be mapped; `reason` then says why.
  static std::shared_ptr<const MappedFile> open(const std::string& path, std::string& reason);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const char* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  MappedFile(const char* data, std::size_t size, std::string identity);

  const char* data_;
  std::size_t size_;
};

}  // namespace heddle
