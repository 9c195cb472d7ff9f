// Where a kernel's threads have to wait for each other.
#pragma once

#include <set>

#include "jit/nest.h"

namespace heddle::jit::cuda {

/// The statements at block level before which a __syncthreads() stands, so that what one statement
/// does to a buffer is over before another thread's access that it could race with. Loops around
/// them are seen through: an iteration waits for the one before it where it has to.
///
/// Assumes what the emitter does: uniform loads by every thread, uniform stores by thread 0, vector
/// loops spread over the threads, a block barrier inside every vector loop's reduction.
std::set<const Stmt*> barriers_of(const Nest& nest);

/// What a vector loop or a contraction at the top level, or nested in uniform loops, means for the
/// kernel: it needs the threads of a block to work together.
bool uses_block(const Block& block);

}  // namespace heddle::jit::cuda
