// What the caller of a fuzz test sets.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace heddle::fuzz {

/// The number in the environment variable `name`.
inline std::uint32_t from_environment(const char* name, std::uint32_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : static_cast<std::uint32_t>(std::atoll(text));
}

}  // namespace heddle::fuzz
