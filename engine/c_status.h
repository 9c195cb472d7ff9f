// Exceptions as the status codes of the C API.
#pragma once

#include <stdexcept>
#include <utility>

#include "heddle/c_status.h"

namespace heddle::engine {

/// What a function of the caller said when it failed.
struct CallbackError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The code of the exception in flight, whose text heddle_last_error() gives from here on.
heddle_status status_of_current_exception() noexcept;

template <typename F>
heddle_status status_of(F&& action) noexcept {
  try {
    std::forward<F>(action)();
    return HEDDLE_OK;
  } catch (...) {
    return status_of_current_exception();
  }
}

/// @throws ArgumentError naming the function of the C API that was given a null pointer.
void check_not_null(const char* function, const void* pointer);

}  // namespace heddle::engine
