// What library calls take over from the kernels after them.
#include "jit/lower/epilogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/jit/lower_support.h"

namespace heddle::test {
namespace {

using ir::GraphBuilder;
using ir::Value;
using jit::EpilogueOp;
using ::testing::ElementsAre;
using Ints = std::vector<std::int64_t>;
using Kind = EpilogueOp::Kind;
using Pairs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

jit::LowerOptions with_library() {
  jit::LowerOptions options;
  options.library_available = [](std::string_view name, const ir::Node&) { return name == "conv"; };
  return options;
}

/// Graphs around one 3 x 3 convolution of 8 channels, [n, h, w, 8].
class EpilogueTest : public ::testing::Test {
 protected:
  GraphBuilder b{"main"};
  Value x = b.input(tensor(f32, {"s0", "s1", "s2", "8"}), "x");

  Value conv(Value operand) {
    const Value weights = b.parameter(tensor(f32, {"8", "8", "3", "3"}), {}, "w");
    return b.emit("conv", {operand, weights},
                  {{"strides", Ints{1, 1}},
                   {"dilations", Ints{1, 1}},
                   {"pads_low", Ints{1, 1}},
                   {"pads_high", Ints{1, 1}},
                   {"channels_last", true}});
  }
  Value vector(const char* name) { return b.parameter(tensor(f32, {"8"}), {}, name); }

  jit::Program lowered_with_library() { return jit::lower(b.finish(), with_library()); }
};

std::vector<std::string> names_of(const jit::Program& program) {
  std::vector<std::string> names;
  for (const auto& step : program.record.steps)
    names.push_back(program.record.kernels[step.kernel].name);
  return names;
}

std::vector<Kind> kinds_of(const jit::LibraryCall& call) {
  std::vector<Kind> kinds;
  for (const EpilogueOp& op : call.epilogue) kinds.push_back(op.kind);
  return kinds;
}

TEST_F(EpilogueTest, ScaleShiftResidualAndRelu) {
  const Value scaled = b.emit("add", {b.emit("mul", {conv(x), vector("scale")}), vector("shift")});
  const Value other = b.emit("tanh", {x});
  b.output(b.emit("relu", {b.emit("add", {other, scaled})}));
  const jit::Program program = lowered_with_library();
  ASSERT_THAT(names_of(program), ElementsAre("tanh", "conv_mul_add_add"));
  const jit::LibraryCall& call = *program.kernels[1].library;
  EXPECT_THAT(kinds_of(call), ElementsAre(Kind::Scale, Kind::Shift, Kind::Add, Kind::Clamp));
  EXPECT_EQ(call.node_inputs, 2u);
  ASSERT_EQ(call.inputs.size(), 5u);
  EXPECT_EQ(call.epilogue[0].operand, 2u);
  EXPECT_EQ(call.epilogue[2].operand, 4u);
  EXPECT_EQ(call.inputs[4].to_string(), "f32[s0, s1, s2, 8]");
  EXPECT_EQ(call.epilogue[3].low, 0.0f);
  EXPECT_EQ(program.record.kernels[1].nodes.size(), 5u);
  // The sum may lie in the bytes of what is added, of no other operand.
  const ir::PlanStep& step = program.record.steps[1];
  ASSERT_EQ(step.may_reuse.size(), 1u);
  EXPECT_EQ(program.record.buffers[step.reads[step.may_reuse[0].first]].value,
            other.name().substr(1));
}

TEST_F(EpilogueTest, AddingTheConvolutionsOwnOperandIsNotInPlace) {
  const Value y = b.emit("tanh", {x});
  b.output(b.emit("add", {conv(y), y}));
  const jit::Program program = lowered_with_library();
  ASSERT_THAT(names_of(program), ElementsAre("tanh", "conv_add"));
  EXPECT_EQ(program.record.steps[1].may_reuse, Pairs());
}

TEST_F(EpilogueTest, HardSwishBetweenNumbers) {
  const Value v = b.emit("add", {b.emit("mul", {conv(x), b.scalar(f32, 2)}), b.scalar(f32, 0.5)});
  const Value line = b.emit("add", {v, b.scalar(f32, 3)});
  const Value gate = b.emit("clamp", {line, b.scalar(f32, 0), b.scalar(f32, 6)});
  b.output(b.emit("div", {b.emit("mul", {v, gate}), b.scalar(f32, 4)}));
  const jit::Program program = lowered_with_library();
  ASSERT_THAT(names_of(program), ElementsAre("conv_mul_add_add"));
  const jit::LibraryCall& call = *program.kernels[0].library;
  ASSERT_THAT(kinds_of(call), ElementsAre(Kind::Linear, Kind::Linear, Kind::Gate, Kind::Linear));
  EXPECT_EQ(call.epilogue[0].a, 2.0f);
  EXPECT_EQ(call.epilogue[1].b, 0.5f);
  EXPECT_EQ(call.epilogue[2].b, 3.0f);
  EXPECT_EQ(call.epilogue[2].high, 6.0f);
  EXPECT_EQ(call.epilogue[3].a, 0.25f);
}

TEST_F(EpilogueTest, EndsWhereAValueIsReadTwice) {
  const Value y = conv(x);
  b.output(b.emit("add", {b.emit("relu", {y}), b.emit("tanh", {y})}));
  EXPECT_EQ(names_of(lowered_with_library())[0], "conv");
}

TEST_F(EpilogueTest, EndsAtAnOutput) {
  const Value y = b.emit("relu", {conv(x)});
  b.output(y);
  b.output(b.emit("mul", {y, b.scalar(f32, 2)}));
  EXPECT_THAT(names_of(lowered_with_library()), ElementsAre("conv_relu", "mul"));
}

TEST_F(EpilogueTest, StaysWithinARegion) {
  const Value y = conv(x);
  b.context.annotations["region"] = ir::Annotation{std::string("tail")};
  b.output(b.emit("relu", {y}));
  EXPECT_THAT(names_of(lowered_with_library()), ElementsAre("conv", "relu"));
}

TEST_F(EpilogueTest, StopsAtOrderEdges) {
  const Value y = conv(x);
  const Value before = b.emit("tanh", {x});
  b.context.after = {before};
  const Value r = b.emit("relu", {y});
  b.context.after = {};
  b.output(r);
  b.output(before);
  const std::vector<std::string> names = names_of(lowered_with_library());
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("conv", "tanh", "relu"));
  EXPECT_EQ(names.back(), "relu");
}

TEST_F(EpilogueTest, NothingIsFusedWhereThatIsOff) {
  b.output(b.emit("relu", {conv(x)}));
  jit::LowerOptions options = with_library();
  options.rest.fuse = false;
  EXPECT_THAT(names_of(jit::lower(b.finish(), options)), ElementsAre("conv", "relu"));
}

TEST_F(EpilogueTest, OneOfTwoConvolutionsTakesTheSum) {
  const Value left = b.emit("mul", {conv(x), vector("left")});
  const Value right = b.emit("mul", {conv(x), vector("right")});
  b.output(b.emit("add", {left, right}));
  const jit::Program program = lowered_with_library();
  EXPECT_THAT(names_of(program), ElementsAre("conv_mul", "conv_mul_add"));
  EXPECT_EQ(program.record.steps[1].may_reuse.size(), 1u);
}

TEST_F(EpilogueTest, VectorsOfParametersAreComputedOnce) {
  const Value root = b.emit("rsqrt", {vector("var")});
  b.output(b.emit("mul", {conv(x), b.emit("mul", {vector("scale"), root})}));
  const jit::Program program = lowered_with_library();
  ASSERT_THAT(names_of(program), ElementsAre("rsqrt_mul", "conv_mul"));
  EXPECT_EQ(program.kernels[1].library->inputs[2].to_string(), "f32[8]");
}

TEST_F(EpilogueTest, VectorsAlongOtherDimensionsAreNotChannels) {
  const Value columns = b.parameter(tensor(f32, {"8", "1"}), {}, "columns");
  const Value y = b.input(tensor(f32, {"s0", "s1", "8", "8"}), "y");
  b.output(b.emit("mul", {conv(y), columns}));
  EXPECT_THAT(names_of(lowered_with_library()), ElementsAre("conv", "mul"));
}

}  // namespace
}  // namespace heddle::test
