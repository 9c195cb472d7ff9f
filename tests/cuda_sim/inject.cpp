#include "tests/cuda_sim/inject.h"

#include <mutex>

namespace heddle::sim {
namespace {

std::mutex& mutex() {
  static std::mutex one;
  return one;
}

}  // namespace

Injector& Injector::instance() {
  static Injector injector;
  return injector;
}

int Injector::enter(const char* function) {
  const std::lock_guard lock(mutex());
  ++calls_of_[function];
  if (++calls_ != fail_at_) return 0;
  failed_ = function;
  return error_;
}

unsigned long Injector::calls() const {
  const std::lock_guard lock(mutex());
  return calls_;
}

std::string Injector::failed() const {
  const std::lock_guard lock(mutex());
  return failed_;
}

unsigned long Injector::calls_of(const std::string& function) const {
  const std::lock_guard lock(mutex());
  const auto found = calls_of_.find(function);
  return found == calls_of_.end() ? 0 : found->second;
}

void Injector::fail(unsigned long n, int error) {
  const std::lock_guard lock(mutex());
  calls_ = 0;
  calls_of_.clear();
  fail_at_ = n;
  error_ = error;
  failed_.clear();
}

}  // namespace heddle::sim
