// Which results of a nest may take the bytes of an operand.
#pragma once

#include <utility>
#include <vector>

#include "jit/nest.h"

namespace heddle::jit {

/// (read buffer, written buffer) pairs of global buffers of equal dtype width and count where element k of
/// the written one is stored only after every read of element k of the other, and by the iteration that
/// read it.
std::vector<std::pair<NestBufferId, NestBufferId>> in_place_pairs(const Nest& nest);

}  // namespace heddle::jit
