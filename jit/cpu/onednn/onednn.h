// oneDNN behind the library interface.
#pragma once

#include "jit/library.h"

namespace heddle::jit::onednn {

/// f32 convolution of one to three spatial dimensions.
bool serves(std::string_view name, const ir::Node& node);
/// Null when it has no such kernel.
std::unique_ptr<BoundLibraryCall> bind(const LibraryCall& call,
                                       std::span<const LibraryOperand> operands, int threads,
                                       const LibraryWays& ways = {});

/// Of the library, and the instruction set that it uses here.
std::string version();

/// Parameters that are held in another layout than row-major, each layout once.
std::size_t packed_parameters();

}  // namespace heddle::jit::onednn
