// Which algorithm computes a convolution.
#pragma once

#include <optional>

#include "jit/cpu/onednn/problem.h"
#include "jit/library.h"

namespace heddle::jit::onednn {

/// The way that `ways` asks for, else the one that was measured to be the fastest, else the one that algorithm_for()
/// expects to be, whatever the number of threads; ways are numbered as in Algorithm. Nothing: only the direct one fits.
/// The weights must be fixed.
std::optional<LibraryChoice> choice_of(const Problem& problem, const LibraryWays& ways);

}  // namespace heddle::jit::onednn
