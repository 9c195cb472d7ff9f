// Sums of the lanes of vectors.
#pragma once

#include <vector>

namespace llvm {
class IRBuilderBase;
class Value;
}  // namespace llvm

namespace heddle::jit::cpu {

/// Lane k is the sum of the lanes of vector k; of as many vectors of floats as they have lanes. Halves of pairs are added, so that each
/// instruction works for two sums:
///
///   a0 a1 a2 a3   b0 b1 b2 b3   c0 c1 c2 c3   d0 d1 d2 d3
///    \   |  /      a0 a1 b0 b1 + a2 a3 b2 b3     c0 c1 d0 d1 + c2 c3 d2 d3
///              ==>  a b c d, all in one vector
llvm::Value* join_lanes(llvm::IRBuilderBase& b, const std::vector<llvm::Value*>& vectors,
                        unsigned element_bytes);

}  // namespace heddle::jit::cpu
