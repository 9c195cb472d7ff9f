// What tests ask of the simulator, see control.h; driver.cpp has what its properties answer to.
#include <string>
#include <utility>

#include "tests/cuda_sim/block.h"
#include "tests/cuda_sim/entry.h"
#include "tests/cuda_sim/inject.h"
#include "tests/cuda_sim/memory.h"

using namespace heddle::sim;

EXPORT void heddle_cuda_sim_seed(unsigned long seed) {
  const std::lock_guard lock(mutex());
  Machine::instance().set_seed(seed);
}
EXPORT void heddle_cuda_sim_fail(unsigned long n, int error) {
  Injector::instance().fail(n, error);
}
EXPORT void heddle_cuda_sim_fail_call_of(const char* function, unsigned long n, int error) {
  Injector::instance().fail_call_of(function, n, error);
}
EXPORT const char* heddle_cuda_sim_called() {
  thread_local std::string called;
  called = Injector::instance().called();
  return called.c_str();
}
EXPORT const char* heddle_cuda_sim_failed() {
  thread_local std::string failed;
  failed = Injector::instance().failed();
  return failed.c_str();
}
EXPORT unsigned long heddle_cuda_sim_calls() { return Injector::instance().calls(); }
EXPORT unsigned long heddle_cuda_sim_calls_of(const char* function) {
  return Injector::instance().calls_of(function);
}
EXPORT unsigned long heddle_cuda_sim_skip_barrier(unsigned long n) {
  const std::lock_guard lock(mutex());
  return BlockRunner::instance().skip_barrier(n);
}
EXPORT unsigned long heddle_cuda_sim_skip_fence(unsigned long n) {
  const std::lock_guard lock(mutex());
  return BlockRunner::instance().skip_fence(n);
}
EXPORT unsigned long heddle_cuda_sim_skip_proxy_fence(unsigned long n) {
  const std::lock_guard lock(mutex());
  return BlockRunner::instance().skip_proxy_fence(n);
}
EXPORT unsigned long heddle_cuda_sim_skip_mbarrier_wait(unsigned long n) {
  const std::lock_guard lock(mutex());
  return BlockRunner::instance().skip_mbarrier_wait(n);
}
EXPORT void heddle_cuda_sim_skip_wait(unsigned long n) {
  const std::lock_guard lock(mutex());
  Machine::instance().skip_wait(n);
}
EXPORT void heddle_cuda_sim_slow(const char* part, double milliseconds) {
  const std::lock_guard lock(mutex());
  Machine::instance().slow(part == nullptr ? "" : part, milliseconds);
}
EXPORT void heddle_cuda_sim_slow_once(const char* part, double milliseconds) {
  const std::lock_guard lock(mutex());
  Machine::instance().slow_once(part == nullptr ? "" : part, milliseconds);
}
EXPORT unsigned long heddle_cuda_sim_waits() {
  const std::lock_guard lock(mutex());
  return Machine::instance().waits();
}
EXPORT const char* heddle_cuda_sim_problem() {
  const std::lock_guard lock(mutex());
  return context_state().why_lost.c_str();
}
EXPORT unsigned long heddle_cuda_sim_leaked() {
  const std::lock_guard lock(mutex());
  return std::exchange(context_state().leaked, 0);
}
EXPORT unsigned long heddle_cuda_sim_memory() {
  const std::lock_guard lock(mutex());
  return Memory::instance().in_use();
}
EXPORT unsigned long heddle_cuda_sim_memory_peak() {
  const std::lock_guard lock(mutex());
  return Memory::instance().take_peak();
}
EXPORT unsigned long heddle_cuda_sim_bytes_read() {
  const std::lock_guard lock(mutex());
  return Machine::instance().take_bytes_read();
}
EXPORT unsigned long heddle_cuda_sim_operations() {
  const std::lock_guard lock(mutex());
  return Machine::instance().operations();
}
