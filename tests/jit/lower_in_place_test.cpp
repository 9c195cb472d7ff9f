// Calls that overwrite an operand: what they update and nothing else is written, and what reads the old elements
// runs before.
#include <gtest/gtest.h>

#include "ir/evaluate.h"
#include "ir/text.h"
#include "tests/jit/lower_support.h"

namespace heddle::test {
namespace {

using ir::PlanBuffer;

const ir::PlanBuffer& buffer_named(const jit::Program& program, std::string_view name) {
  for (const ir::PlanBuffer& buffer : program.record.buffers)
    if (buffer.value == name) return buffer;
  ADD_FAILURE() << name;
  return program.record.buffers[0];
}

/// The step of the kernel that computes `node`.
std::size_t step_of(const jit::Program& program, const std::string& node) {
  for (std::size_t k = 0; k < program.record.steps.size(); ++k)
    for (const std::string& name : program.record.kernels[program.record.steps[k].kernel].nodes)
      if (name == node) return k;
  ADD_FAILURE() << node;
  return 0;
}

constexpr const char* kUpdate = R"(graph @main(%x: f32[s0], %v: f32[2], %i: i64[2]) {
  %t = cos(%x)
  %c = neg(%t)
  %u = index_put(%t, %v, %i) {accumulate = true, in_place = [0]}
  %r = add(%u, %c)
  return %r
}
)";

TEST(LowerInPlace, TheResultLiesInItsOperand) {
  const jit::Program program = lowered(ir::parse(kUpdate));
  const PlanBuffer& result = buffer_named(program, "u");
  ASSERT_NE(result.alias_of, ir::kNone);
  EXPECT_EQ(program.record.buffers[result.alias_of].value, "t");
}

TEST(LowerInPlace, TheKernelTouchesOnlyWhatItUpdates) {
  const jit::Program program = lowered(ir::parse(kUpdate));
  const jit::Launch& launch = program.launches[step_of(program, "u")];
  for (const ir::BufferId buffer : launch.buffers)
    EXPECT_NE(program.record.buffers[buffer].value, "t") << "reads the operand to copy it";
  EXPECT_EQ(launch.buffers.size(), 3u) << "indices, values and the result";
}

TEST(LowerInPlace, ReadersOfTheOldElementsRunBefore) {
  const jit::Program program = lowered(ir::parse(kUpdate));
  EXPECT_LT(step_of(program, "c"), step_of(program, "u"));
  EXPECT_LT(step_of(program, "t"), step_of(program, "u"));
}

TEST(LowerInPlace, GivesWhatTheEvaluatorGives) {
  const ir::Graph graph = ir::parse(kUpdate);
  for (const std::int64_t size : {1, 5, 300}) {
    auto arguments = random_arguments(graph, {size});
    arguments[2] = random_literal(DType::I64, {2}, 3, 0, size - 1);
    expect_right(graph, arguments);
  }
}

TEST(LowerInPlace, SlicesAndElementsAlongAnAxisToo) {
  const ir::Graph graph =
      ir::parse(R"(graph @main(%x: f32[s0, 3], %v: f32[2, 3], %i: i64[2, 1], %j: i64[s0, 1]) {
  %t = exp(%x)
  %u = scatter_nd(%t, %i, %v) {reduction = "add", in_place = [0]}
  %n = neg(%u)
  %c = slice(%x) {start = [0, 0], limit = [s0, 1], stride = [1, 1]}
  %w = scatter_elements(%n, %j, %c) {axis = 1, in_place = [0]}
  return %w
}
)");
  auto arguments = random_arguments(graph, {4});
  arguments[2] = random_literal(DType::I64, {2, 1}, 3, 0, 3);
  arguments[3] = random_literal(DType::I64, {4, 1}, 4, 0, 2);
  expect_right(graph, arguments);
}

TEST(LowerInPlace, WindowsAlongEachAxis) {
  for (const char* axis : {"0", "1", "2"})
    for (const char* type : {"f32", "f16", "i64", "u8", "bool"}) {
      const std::string of = std::string(type) + "[3, 3, s0]";
      const std::string part = std::string(type) + (axis[0] == '0'   ? "[2, 3, s0]"
                                                    : axis[0] == '1' ? "[3, 2, s0]"
                                                                     : "[3, 3, 1]");
      const ir::Graph graph = ir::parse("graph @main(%x: " + of + ", %v: " + part +
                                        ") {\n  %t = permute(%x) {perm = [1, 0, 2]}\n"
                                        "  %c = clone(%t)\n  %u = slice_scatter(%c, %v) {axis = " +
                                        axis + ", start = 1, in_place = [0]}\n  return %u\n}\n");
      for (const std::int64_t size : {2, 5, 300})
        expect_right(graph, random_arguments(graph, {size}));
    }
}

}  // namespace
}  // namespace heddle::test
