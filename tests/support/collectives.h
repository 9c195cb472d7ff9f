// Collectives in two nodes, for tests of passes: dist::start(Tensor x) -> Tensor and
// dist::wait(Tensor x) -> Tensor, which copy; dist::other like start; dist::halve, whose result is smaller.
#pragma once

namespace heddle::testing {

/// Registers the ops, once a process.
void register_collectives();

}  // namespace heddle::testing
