// A part of a convolution as a primitive of oneDNN, and weights in the layouts that parts want.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "jit/constant_cache.h"
#include "jit/cpu/onednn/problem.h"
#include "jit/cpu/onednn/winograd.h"

namespace heddle::jit::onednn {

/// Weights that are the same in each run.
struct FixedWeights {
  /// What multiplies them: where the vectors of the epilogue's first operations lie, and their numbers.
  struct Factor {
    const void* operand = nullptr;
    float a = 1;
    friend bool operator==(const Factor&, const Factor&) = default;
  };
  const float* data = nullptr;         ///< row-major; null: given at each call
  const void* origin = nullptr;        ///< LibraryOperand::origin
  ConstantCache* constants = nullptr;  ///< where packed ones are kept on disk; null: nowhere
  FixedFacts* facts = nullptr;         ///< LibraryWays::facts
  std::vector<Factor> factors;
  std::vector<float> scale;  ///< the factors' product by output channel; empty: 1
};

/// One primitive: a convolution in the layout that oneDNN likes best, or with channels last. Operands are reordered
/// into scratch where that differs from row-major, fixed weights once.
class Primitive {
 public:
  /// @param sums  adds its result to what lies there; direct ones only.
  /// @throws CompileError: oneDNN has none for these sizes.
  Primitive(const Problem& problem, Algorithm algorithm, bool sums, const FixedWeights& weights);
  Primitive(Primitive&&) noexcept;
  ~Primitive();

  std::int64_t scratch_bytes() const;
  /// Makes its code, a fraction of a millisecond, unless that is there: else its first run does.
  /// @throws CompileError
  void make() const;
  /// What Winograd's algorithm leaves: [N, channels / 16, positions, 16], in `scratch`.
  const float* blocked(void* scratch) const;
  void run(void* x, void* given_weights, void* bias, void* out, void* scratch) const;

 private:
  class Impl;
  std::unique_ptr<const Impl> impl_;
};

/// Fixed weights as run_winograd() takes them, transformed once for all that share them.
std::shared_ptr<const float> winograd_weights_of(const Problem& problem,
                                                 const WinogradKernel& kernel,
                                                 const FixedWeights& weights);

/// The same as run_windows() takes them.
std::shared_ptr<const float> window_weights_of(const Problem& problem, const FixedWeights& weights);

}  // namespace heddle::jit::onednn
