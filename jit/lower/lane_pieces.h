// Where the lanes of a loop fall into pieces: a mirrored, repeated or wrapped border compares the lane with bounds inside of
// an index, and between two bounds neighbouring lanes read neighbouring elements.
#pragma once

#include "jit/nest_builder.h"

namespace heddle::jit {

/// Splits vector loops whose loads lie side by side but for the borders.
///
///   vector i < 62 { %0 = load x[min(max(i-3,0),55)]; store y[i] = %0 }
///     ==>
///   vector i < 3 { %0 = load x[0]; store y[i] = %0 }
///   vector i < 56 { %1 = load x[i]; store y[i+3] = %1 }
///   vector i < 3 { %2 = load x[55]; store y[i+59] = %2 }
///
/// Only loops that reduce and carry nothing, and bind nothing to what is loaded.
/// @return whether every piece is certain to have an iteration, where its loop had one.
bool split_lanes(NestBuilder& builder);

}  // namespace heddle::jit
