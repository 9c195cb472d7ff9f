// Random graphs full of what passes look for: duplicates, no-ops, chains of views, constants.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"
#include "ir/literal.h"

namespace heddle::testing {

/// A graph over f32[s0, 4], f32[4], i32[s0, 4] and f16[3, 0, 4], the same for the same seed. Some have
/// several outputs that share storage with each other or with inputs.
ir::Graph random_ir(std::uint32_t seed);
/// Arguments for it with s0 = `size`.
std::vector<ir::Literal> random_ir_arguments(std::int64_t size, std::uint32_t seed);

}  // namespace heddle::testing
