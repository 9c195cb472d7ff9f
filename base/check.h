// HD_CHECK: our own mistakes, never the user's.
#pragma once

#include <stdexcept>
#include <string>

#include "heddle/export.h"

namespace heddle {

/// A broken assumption inside the engine: file, line, condition and, where known, the graph text
/// that reproduces it.
class HEDDLE_API InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
  ~InternalError() override;
};

namespace base {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& detail = {});

}  // namespace base
}  // namespace heddle

/// Throws InternalError when `condition` is false. Further arguments: a std::string with detail.
#define HD_CHECK(condition, ...)                                                               \
  do {                                                                                         \
    if (!(condition)) [[unlikely]]                                                             \
      ::heddle::base::check_failed(__FILE__, __LINE__, #condition __VA_OPT__(, ) __VA_ARGS__); \
  } while (false)
