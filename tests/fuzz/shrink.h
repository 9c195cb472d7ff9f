// Makes a failing case small.
#pragma once

#include <string>

#include "tests/fuzz/check_case.h"

namespace heddle::fuzz {

/// A case that fails in the same way with as few outputs, nodes, calls and elements as a greedy search
/// finds. Values in the middle of the graph become inputs that hold what they held.
Case shrink(const Case& subject, const Failure& failure, const Compile& compile);

/// What a failure prints: seed, sizes, the graph as IR text, the first wrong element.
std::string report(const Case& subject, const Compile& compile);

}  // namespace heddle::fuzz
