// What an engine asks of the simulated device, as text.
#pragma once

#include <regex>
#include <string>

#include "tests/cuda/support.h"

namespace heddle::testing {

/// The record (tests/cuda_sim/record.h) of what `action` does, with kernels by their ops alone.
template <typename F>
std::string recorded(F&& action) {
  control().listen(1);
  action();
  const std::string text = control().recorded();
  control().listen(0);
  static const std::regex name("heddle_([a-z0-9_]*)_[0-9a-f]{12}(_(rows|plain|tensor)_[0-9x]+)?");
  return "\n" + std::regex_replace(text, name, "$1");
}

}  // namespace heddle::testing
