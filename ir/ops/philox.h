// Philox 4x32-10, the counter-based generator behind random ops.
#pragma once

#include <array>
#include <cstdint>

namespace heddle::ir::ops {

using PhiloxWords = std::array<std::uint32_t, 4>;

/// Four random words of a counter and a key.
/// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
PhiloxWords philox(PhiloxWords counter, std::array<std::uint32_t, 2> key);

}  // namespace heddle::ir::ops
