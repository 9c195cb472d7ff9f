// What tests do by night only.
#pragma once

#include <cstdlib>
#include <string_view>
#include <vector>

namespace heddle::test {

/// Whether long runs are wanted (HEDDLE_NIGHTLY=1).
inline bool is_nightly() {
  const char* text = std::getenv("HEDDLE_NIGHTLY");
  return text != nullptr && std::string_view(text) != "" && std::string_view(text) != "0";
}

inline constexpr const char* kByNight = "HEDDLE_NIGHTLY=1 runs it";

/// Of cases that are alike: all by night, else every `step`th, the first of which is number `salt` modulo `step`.
template <typename T>
std::vector<T> few_by_day(const std::vector<T>& all, std::size_t step, std::size_t salt = 0) {
  if (is_nightly()) return all;
  std::vector<T> few;
  for (std::size_t k = salt % step; k < all.size(); k += step) few.push_back(all[k]);
  return few;
}

}  // namespace heddle::test
