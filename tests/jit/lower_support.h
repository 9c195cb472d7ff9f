// Lowered graphs against the reference evaluator.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/literal.h"
#include "jit/program.h"
#include "tests/jit/run_program.h"

namespace heddle::test {

/// Sizes as the text of dimensions: dims({"s0", "128"}).
ir::Dims dims(std::initializer_list<const char*> texts);
ir::TensorMeta tensor(DType dtype, std::initializer_list<const char*> sizes);

/// Random elements: floats in [-2, 2], integers in [low, high].
ir::Literal random_literal(DType dtype, ir::Sizes sizes, std::uint32_t seed, std::int64_t low = -3,
                           std::int64_t high = 3);

/// Random arguments for every input of `graph` that is not a parameter; sN is sizes[N].
std::vector<ir::Literal> random_arguments(const ir::Graph& graph,
                                          const std::vector<std::int64_t>& sizes,
                                          std::uint32_t seed = 1);

/// `program` as bytes (jit/program_archive.h) is read as the same, where it can be written.
void expect_same_through_bytes(const jit::Program& program);

/// Compares one program's results with the evaluator's; it goes through bytes, too. Failures print the nests.
void expect_program_right(const ir::Graph& graph, const jit::Program& program,
                          const std::vector<ir::Literal>& arguments, const RunOptions& options,
                          double tolerance);
/// Runs the lowered program in all modes (fused or not, in place or not, for both targets) and compares
/// with the evaluator. Failures print the nests.
void expect_right(const ir::Graph& graph, const std::vector<ir::Literal>& arguments,
                  double tolerance = 1e-5);
void expect_right_at(const ir::Graph& graph, const std::vector<std::int64_t>& sizes,
                     double tolerance = 1e-5);

/// A scan of s0 steps that carries operands[0] and reads slices of operands[1]; `body` gets what is left of them whole.
const ir::Node* emit_scan(ir::GraphBuilder& b, const std::vector<ir::Value>& operands,
                          ir::Graph body);

/// One line a node: enough to see what a failure is about.
std::string text_of(const ir::Graph& graph);

/// The program fused for the CPU.
jit::Program lowered(const ir::Graph& graph);
/// Names of its kernels, in order of steps.
std::vector<std::string> kernels(const ir::Graph& graph);
/// All nests as text.
std::string nests_of(const jit::Program& program);
/// Each as often as it differs from the others; of kernels whose names begin with `name`.
std::set<const jit::Nest*> distinct_nests(const jit::Program& program, std::string_view name = {});

}  // namespace heddle::test
