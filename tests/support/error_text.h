// The text of the error that an action ends with.
#pragma once

#include <exception>
#include <string>
#include <utility>

namespace heddle::testing {

/// what() of the E that `action` throws; says so when it throws something else or nothing.
template <typename E, typename F>
std::string text_of(F&& action) {
  try {
    std::forward<F>(action)();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another error: ") + error.what();
  }
  return "no error";
}

}  // namespace heddle::testing
