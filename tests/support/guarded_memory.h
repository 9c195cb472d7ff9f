// Memory that a test reads or writes up to its end and not beyond.
#pragma once

#include <cstddef>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

namespace heddle::tests {

/// Memory, zeros at first, whose last byte lies before a page that cannot be touched.
class GuardedMemory {
 public:
  /// @throws std::bad_alloc
  explicit GuardedMemory(std::size_t bytes)
      : page_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))),
        size_((bytes + page_ - 1) / page_ * page_ + page_),
        begin_(::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (begin_ == MAP_FAILED) throw std::bad_alloc();
    std::byte* const guard = static_cast<std::byte*>(begin_) + size_ - page_;
    data_ = guard - bytes;
    if (::mprotect(guard, page_, PROT_NONE) != 0) throw std::bad_alloc();
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  ~GuardedMemory() { ::munmap(begin_, size_); }

  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::size_t page_, size_;
  void* begin_;
  std::byte* data_;
};

}  // namespace heddle::tests
