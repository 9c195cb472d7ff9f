// Counting the calls of entry points, and failing one of them.
#pragma once

#include <functional>
#include <map>
#include <string>

namespace heddle::sim {

class Injector {
 public:
  static Injector& instance();

  /// Counts a call. @return the error that it is to give; 0: none.
  int enter(const char* function);
  void fail(unsigned long n, int error);
  /// The same of the n-th call of one function.
  void fail_call_of(const std::string& function, unsigned long n, int error);
  unsigned long calls() const;
  unsigned long calls_of(const std::string& function) const;
  std::string failed() const;
  /// "name count\n" of each function that was called.
  std::string called() const;

 private:
  unsigned long calls_ = 0;
  std::map<std::string, unsigned long, std::less<>> calls_of_;
  unsigned long fail_at_ = 0;
  std::string fail_in_;  ///< empty: calls of all count
  int error_ = 0;
  std::string failed_;
};

}  // namespace heddle::sim
