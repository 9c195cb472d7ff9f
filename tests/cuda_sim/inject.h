// Counting the calls of entry points, and failing one of them.
#pragma once

#include <string>

namespace heddle::sim {

class Injector {
 public:
  static Injector& instance();

  /// Counts a call. @return the error that it is to give; 0: none.
  int enter(const char* function);
  void fail(unsigned long n, int error);
  unsigned long calls() const { return calls_; }
  const std::string& failed() const { return failed_; }

 private:
  unsigned long calls_ = 0;
  unsigned long fail_at_ = 0;
  int error_ = 0;
  std::string failed_;
};

}  // namespace heddle::sim
