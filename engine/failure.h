// What a step of a request in flight could not tell by a status word.
#pragma once

#include <exception>
#include <mutex>
#include <utility>

#include "jit/index_report.h"

namespace heddle::engine {

/// The status word of a step that stored an exception.
inline constexpr int kFailed = -1;

/// The first exception of a run; any thread may store one.
class Failure {
 public:
  void store(std::exception_ptr error) {
    const std::scoped_lock lock(mutex_);
    if (error_ == nullptr) error_ = std::move(error);
  }
  /// The index that a check found out of range, if this thread's kernel found it.
  void note(const jit::IndexReport& report) {
    const std::scoped_lock lock(mutex_);
    if (report.check != 0 && report_.check == 0) report_ = report;
  }
  /// What was stored, else what `status` says of a step of `program`. The next run begins without either.
  std::exception_ptr take(const jit::Program& program, std::int32_t status) {
    const std::scoped_lock lock(mutex_);
    const jit::IndexReport report = std::exchange(report_, {});
    if (error_ != nullptr || status <= 0) return std::exchange(error_, nullptr);
    return std::make_exception_ptr(jit::index_error(program, status, report));
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  jit::IndexReport report_;
};

}  // namespace heddle::engine
