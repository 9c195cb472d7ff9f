// Steps that read only parameters and constants: run once, when an executable is made.
#pragma once

#include <vector>

#include "ir/literal.h"
#include "jit/compile_service.h"
#include "jit/program.h"

namespace heddle::engine {

/// Host bytes of each buffer that never changes (parameters and constants); empty literals for the rest.
std::vector<ir::Literal> fixed_buffers(const jit::Program& program, const ir::Graph& graph);

/// Runs the steps of `program` whose operands are all fixed and whose sizes are all constant, with
/// compiled kernels; their results become constants in `fixed` and the steps leave the program.
/// @return how many steps were folded.
std::size_t fold_fixed_steps(jit::Program& program, std::vector<ir::Literal>& fixed,
                             jit::CompileService& compiler);

}  // namespace heddle::engine
