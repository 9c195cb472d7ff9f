// What has to be asked of memory before several neighbours are moved at once.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "jit/nest.h"

namespace heddle::jit::cuda {

/// Numbers, as C++ text, that are multiples of `width` elements' bytes if those of the buffer from `first` on lie at one, whatever
/// numbers axes have: the buffer's address, and what of `first` sizes decide. is_misaligned() must not hold of it.
void add_address_bits(std::set<std::string>& bits, const Nest& nest, NestBufferId buffer,
                      const SymExpr& first, std::int64_t width);

/// The condition that all those are multiples of `bytes`.
std::string aligned_text(const std::set<std::string>& bits, std::int64_t bytes);

}  // namespace heddle::jit::cuda
