// Runs a lowered program step by step, each buffer in memory of its own.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "ir/graph.h"
#include "ir/literal.h"
#include "jit/program.h"
#include "tests/jit/nest_interpreter.h"

namespace heddle::test {

/// Runs one nest; returns its status word.
using NestRunner =
    std::function<std::int32_t(const jit::Nest& nest, std::span<const InterpreterBuffer> buffers,
                               std::span<const std::int64_t> sizes)>;

struct RunOptions {
  NestRunner runner;      ///< the interpreter when empty
  bool in_place = false;  ///< results take the bytes of an operand wherever a step says they may
};

/// Outputs of `program`, the lowered `graph`, in order, then the targets of its write-backs: what
/// ir::evaluate returns.
/// @throws IndexError when a check of a kernel fails.
std::vector<ir::Literal> run_program(const ir::Graph& graph, const jit::Program& program,
                                     std::span<const ir::Literal> arguments,
                                     const RunOptions& options = {});

}  // namespace heddle::test
