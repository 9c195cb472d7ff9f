// Steps that read nothing but parameters and constants: run once, when an executable is made.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/folding.h"
#include "ir/literal.h"
#include "jit/constant_cache.h"
#include "jit/program.h"

namespace heddle::engine {

/// Host bytes of each buffer that never changes (parameters and constants); empty literals for the rest.
std::vector<ir::Literal> fixed_buffers(const jit::Program& program, const ir::Graph& graph);

/// Constants and parameters of `graph`, in the order of its nodes.
std::vector<const ir::Literal*> literals_of(const ir::Graph& graph);

/// What folded steps made.
struct FoldedResults {
  std::string key;  ///< in jit::ConstantCache; empty: they are not kept there
  std::vector<ir::BufferId> buffers;
  std::vector<std::size_t> bytes;  ///< of each of these
};

/// The steps of a program whose operands are all fixed and whose sizes are all constant; of those without operands the ones
/// whose results are small.
class FixedSteps {
 public:
  /// Finds them and, unless their results seem to be on disk, has their kernels compiled.
  /// @param constants  null: none are kept on disk
  FixedSteps(jit::Program& program, std::vector<ir::Literal>& fixed, FoldingKernels& kernels,
             jit::ConstantCache* constants);
  ~FixedSteps();
  FixedSteps(const FixedSteps&) = delete;
  FixedSteps& operator=(const FixedSteps&) = delete;

  /// Of each step of the program, whether it is one.
  const std::vector<bool>& folded() const;

  /// Takes their results from the disk, or runs them. Their results become constants in `fixed`, and they leave the program.
  /// @return how many there were.
  std::size_t run();
  /// Of run().
  FoldedResults take_results();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::engine
