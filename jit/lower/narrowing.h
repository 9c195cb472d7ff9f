// Where a body makes something narrower of what it loads.
#pragma once

#include <optional>

#include "jit/nest.h"

namespace heddle::jit {

/// What makes a value of fewer bytes of the one that a load gives, and of constants, and nothing else needs:
///
///   %1 = load b0[i0]: f32
///   %2 = div(%1, %0): f32                 taken out
///   %3 = convert(%2): u8                  taken out
///   store b1[i0] = %3
struct Narrowing {
  Block statements;  ///< without the load
  ScalarId result;
  DType dtype;
};

/// Takes the narrowest such value of `load`, a statement of `body`, out of it, which then uses a result that nothing in it
/// defines. Nothing where there is none. Constants of `body` stay.
std::optional<Narrowing> take_narrowing(Block& body, ScalarId load);

/// Takes the constants out of a body.
Block take_constants(Block& body);

}  // namespace heddle::jit
