// Checks of ops that are nests of their own: one call, interpreted in all modes and as machine code.
#pragma once

#include <gtest/gtest.h>

#include "tests/jit/lower_support.h"
#include "tests/jit/nest_runner.h"
#include "tests/support/one_op.h"

namespace heddle::test {

using testing::noise;
using testing::OneOp;
using Ints = std::vector<std::int64_t>;

#if HEDDLE_WITH_LLVM
inline std::int32_t run_as_code(const jit::Nest& nest, std::span<const InterpreterBuffer> buffers,
                                std::span<const std::int64_t> sizes) {
  std::vector<void*> addresses;
  for (const InterpreterBuffer& buffer : buffers) addresses.push_back(buffer.data);
  return heddle::tests::CompiledNest(nest).run(addresses, {sizes.begin(), sizes.end()});
}

/// Nests run as machine code for vectors of this width, or interpreted where there is none.
inline RunOptions as_code_of(std::int64_t vector_bytes) {
  return {.runner = [vector_bytes](const jit::Nest& nest,
                                   std::span<const InterpreterBuffer> buffers,
                                   std::span<const std::int64_t> sizes) {
    std::vector<void*> addresses;
    for (const InterpreterBuffer& buffer : buffers) addresses.push_back(buffer.data);
    return heddle::tests::CompiledNest(nest, vector_bytes)
        .run(addresses, {sizes.begin(), sizes.end()});
  }};
}
/// The same, compiled once: for programs that are run often.
inline RunOptions as_code_once(std::int64_t vector_bytes) {
  using Compiled = std::map<const jit::Nest*, heddle::tests::CompiledNest>;
  return {.runner = [vector_bytes, compiled = std::make_shared<Compiled>()](
                        const jit::Nest& nest, std::span<const InterpreterBuffer> buffers,
                        std::span<const std::int64_t> sizes) {
    std::vector<void*> addresses;
    for (const InterpreterBuffer& buffer : buffers) addresses.push_back(buffer.data);
    return compiled->try_emplace(&nest, nest, vector_bytes)
        .first->second.run(addresses, {sizes.begin(), sizes.end()});
  }};
}
#else
inline RunOptions as_code_of(std::int64_t) { return {}; }
inline RunOptions as_code_once(std::int64_t) { return {}; }
#endif

/// Nests run as machine code, or interpreted where there is none.
inline RunOptions as_code() {
#if HEDDLE_WITH_LLVM
  return {.runner = run_as_code};
#else
  return {};
#endif
}

/// The lowered graph gives what the evaluator gives: interpreted in all modes, and as machine code.
inline void expect_code_right(const ir::Graph& graph, const std::vector<ir::Literal>& arguments,
                              double tolerance = 1e-5) {
  expect_right(graph, arguments, tolerance);
#if HEDDLE_WITH_LLVM
  expect_program_right(graph, lowered(graph), arguments, as_code(), tolerance);
#endif
}
inline void expect_code_right_at(const ir::Graph& graph, const Ints& sizes,
                                 double tolerance = 1e-5) {
  expect_code_right(graph, random_arguments(graph, sizes), tolerance);
}

/// The same as machine code only, of the programs for both targets: where interpreting takes long.
inline void expect_fast_code_right(const ir::Graph& graph,
                                   const std::vector<ir::Literal>& arguments,
                                   double tolerance = 1e-5) {
  using Target = jit::LowerOptions::Target;
  for (const Target target : {Target::Cpu, Target::Cuda})
    expect_program_right(graph, jit::lower(graph, {.target = target}), arguments, as_code(),
                         tolerance);
}

/// How many blocks of threads CUDA has for each kernel; -1 where sizes decide.
inline std::vector<std::int64_t> blocks_of(const jit::Program& program) {
  std::vector<std::int64_t> blocks;
  for (const auto& kernel : program.kernels)
    blocks.push_back(kernel.nest->parallel_extent.as_constant().value_or(-1));
  return blocks;
}

/// The operands of a call that are there.
inline std::vector<ir::Literal> arguments_of(const OneOp& call) {
  std::vector<ir::Literal> arguments;
  for (const ir::Literal& operand : call.operands)
    if (operand.data() != nullptr || operand.rank() > 0) arguments.push_back(operand);
  return arguments;
}

/// Integers from `low` to `high` for indices.
inline ir::Literal drawn_places(ir::Sizes sizes, std::int64_t low, std::int64_t high,
                                DType dtype = i64) {
  return random_literal(dtype, std::move(sizes), 5, low, high);
}

/// x[i] += u for rows: f32[s0, s1], i64[s2, 1], f32[s2, s1].
inline ir::Graph scatter_of_any_sizes() {
  ir::GraphBuilder b("main");
  const ir::Value x = b.input(tensor(f32, {"s0", "s1"}));
  const ir::Value i = b.input(tensor(i64, {"s2", "1"}));
  const ir::Value u = b.input(tensor(f32, {"s2", "s1"}));
  b.output(b.emit("scatter_nd", {x, i, u}, {{"reduction", std::string("add")}}));
  return b.finish();
}

inline void expect_nest_right(const OneOp& call, double tolerance = 1e-5) {
  SCOPED_TRACE(std::string(call.op));
  expect_code_right(testing::graph_of(call), arguments_of(call), tolerance);
}
inline void expect_fast_nest_right(const OneOp& call, double tolerance = 1e-5) {
  SCOPED_TRACE(std::string(call.op));
  expect_fast_code_right(testing::graph_of(call), arguments_of(call), tolerance);
}

}  // namespace heddle::test
