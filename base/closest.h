// The closest of some known names to a mistyped one.
#pragma once

#include <span>
#include <string_view>

namespace heddle::base {

/// The entry of `known` with the smallest edit distance to `wanted`, the first of equals; empty when
/// none is within half of `wanted`'s length (at least 2).
std::string_view closest(std::string_view wanted, std::span<const std::string_view> known);

}  // namespace heddle::base
