// Threads that compilers run on.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace heddle::jit {

/// Compilers recurse over expressions.
inline constexpr std::size_t kCompileStackBytes = std::size_t{16} << 20;

/// A thread with a stack of kCompileStackBytes at least. The destructor waits for its end.
class CompileThread {
 public:
  /// Null where the system has no thread more.
  static std::unique_ptr<CompileThread> start(std::function<void()> work);
  ~CompileThread();
  CompileThread(const CompileThread&) = delete;
  CompileThread& operator=(const CompileThread&) = delete;

 private:
  struct Handle;
  explicit CompileThread(std::unique_ptr<Handle> handle);
  std::unique_ptr<Handle> handle_;
};

/// Calls `work` on a thread with such a stack, which nobody waits for.
/// @return false where the system has no thread more.
bool start_compile_thread(std::function<void()> work);

/// Calls `work` on as many such threads, or on fewer where the system has no more, or on this one where it has none.
/// @return when all calls have.
void on_compile_threads(std::size_t threads, const std::function<void()>& work);

}  // namespace heddle::jit
