// Threads of control on stacks of their own, switched by hand.
#pragma once

#include <cstddef>
#include <utility>

namespace heddle::sim {

/// A stack and where it stopped.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Makes resume() begin at `entry(argument)`, which must not return: it ends with leave(). What
  /// stood on the stack is forgotten.
  void prepare(void (*entry)(void*), void* argument);
  /// Runs the fiber until it calls leave().
  void resume();
  /// Called on the fiber: back to resume(). The last leave() of a fiber says `done`.
  void leave(bool done);

  /// The memory of its stack: begin and end.
  std::pair<const unsigned char*, const unsigned char*> stack() const;

  static constexpr std::size_t kStackBytes = 256 * 1024;

 private:
  struct Context;
  static void start(Fiber* self);

  Context* context_;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
};

}  // namespace heddle::sim
