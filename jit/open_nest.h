// Nests with parameters in place of their numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "jit/nest.h"

namespace heddle::jit {

/// A nest that does the same for given sizes as another, whose numbers they are: extents, strides and constants. So nests that
/// differ in those alone become equal, and share a kernel. It is slower than one that knows them, which matters little where a kernel runs once.
struct OpenNest {
  std::shared_ptr<const Nest> nest;
  std::vector<std::int64_t> sizes;  ///< of parameters behind those of the nest that it was made of

  /// The nest itself, with no sizes, where it is a product or attention, has contractions or binds, or moves so many bytes that a
  /// kernel which knows its numbers is worth compiling.
  static OpenNest of(std::shared_ptr<const Nest> nest);
};

}  // namespace heddle::jit
