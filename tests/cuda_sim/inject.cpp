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
  const unsigned long own = ++calls_of_[function];
  ++calls_;
  if (fail_in_.empty() ? calls_ != fail_at_ : fail_in_ != function || own != fail_at_) return 0;
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

std::string Injector::called() const {
  const std::lock_guard lock(mutex());
  std::string text;
  for (const auto& [function, calls] : calls_of_)
    text += function + " " + std::to_string(calls) + "\n";
  return text;
}

void Injector::fail(unsigned long n, int error) { fail_call_of({}, n, error); }

void Injector::fail_call_of(const std::string& function, unsigned long n, int error) {
  const std::lock_guard lock(mutex());
  fail_in_ = function;
  calls_ = 0;
  calls_of_.clear();
  fail_at_ = n;
  error_ = error;
  failed_.clear();
}

}  // namespace heddle::sim
