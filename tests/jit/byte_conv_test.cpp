// Convolutions of bytes whose windows are read in place, from slabs or copied, exact and for images and kernels of all kinds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/jit/nests_support.h"
#include "tests/support/draw.h"
#include "tests/support/nightly.h"

namespace heddle::test {
namespace {

using base::SymExpr;
using ir::GraphBuilder;
using ir::Value;
using testing::any_bytes;

struct ByteConv {
  Ints x{1, 7, 9, 16}, weights{72, 16, 3, 3}, strides{1, 1}, low{1, 1}, high{1, 1}, dilations{1, 1};
  std::int64_t zero = 117;
  bool is_zero_given = false;  ///< with the arguments
  bool is_part = false;        ///< x is some of the channels of a larger tensor
  std::int64_t groups = 1;
  bool is_open = false;  ///< x's sizes but the channels
};

/// conv of i32, x less its zero point.
ir::Graph convolution(const ByteConv& c) {
  GraphBuilder b("main");
  Ints sizes = c.x;
  if (c.is_part) sizes.back() += 16;
  ir::Dims dims(sizes.begin(), sizes.end());
  for (std::size_t d = 0; c.is_open && d + 1 < dims.size(); ++d)
    dims[d] = SymExpr::size(static_cast<std::uint32_t>(d));
  Value x = b.input(ir::TensorMeta::of(u8, dims), "x");
  if (c.is_part)
    x = b.emit("slice", {x},
               {{"start", ir::Dims(sizes.size(), SymExpr(0))},
                {"limit", ir::Dims(c.x.begin(), c.x.end())},
                {"stride", ir::Dims(sizes.size(), SymExpr(1))}});
  const Value zero = c.is_zero_given ? b.input(tensor(u8, {}), "zero")
                                     : b.constant(ir::Literal::scalar_int(u8, c.zero));
  const auto wide = [&](Value bytes) { return b.emit("convert", {bytes}, {{"dtype", i32}}); };
  const Value w = b.constant(any_bytes(i8, c.weights, 7));
  b.output(b.emit("conv", {b.emit("sub", {wide(x), wide(zero)}), wide(w)},
                  {{"strides", c.strides},
                   {"pads_low", c.low},
                   {"pads_high", c.high},
                   {"dilations", c.dilations},
                   {"groups", c.groups},
                   {"channels_last", true}}));
  return b.finish();
}

/// The nest of the convolution's kernel; null: there is none of bytes.
std::shared_ptr<const jit::Nest> nest_of_bytes(const jit::Program& program) {
  for (const jit::ProgramKernel& kernel : program.kernels)
    if (kernel.nest != nullptr && kernel.nest->name.find("packed_int8_conv") != std::string::npos)
      return kernel.nest;
  ADD_FAILURE() << "no kernel of bytes";
  return nullptr;
}

/// Whether the kernel of bytes copies no windows: of bytes it keeps a group of zero points at most.
bool reads_in_place(const ir::Graph& graph) {
  const auto nest = nest_of_bytes(lowered(graph));
  return nest != nullptr && std::ranges::none_of(nest->buffers, [](const jit::NestBuffer& buffer) {
           return buffer.scope == jit::NestBuffer::Scope::Local && buffer.dtype == u8 &&
                  !buffer.count.is_constant(4);
         });
}

/// Whether it multiplies all taps of a window by one contraction.
bool multiplies_in_runs(const ir::Graph& graph) {
  const auto nest = nest_of_bytes(lowered(graph));
  return nest != nullptr && print(*nest).find(" run ") != std::string::npos;
}

std::vector<ir::Literal> arguments_of(const ByteConv& c) {
  Ints sizes = c.x;
  if (c.is_part) sizes.back() += 16;
  std::vector<ir::Literal> arguments{any_bytes(u8, sizes, 3)};
  if (c.is_zero_given) arguments.push_back(ir::Literal::scalar_int(u8, c.zero));
  return arguments;
}

void expect_exact(const ByteConv& c) {
  SCOPED_TRACE(::testing::Message() << ::testing::PrintToString(c.x) << " by "
                                    << ::testing::PrintToString(c.weights) << ", zero " << c.zero);
  const std::vector<ir::Literal> arguments = arguments_of(c);
  const ir::Graph graph = convolution(c);
  expect_program_right(graph, lowered(graph), arguments, as_code(), 0);
  // As on a processor with AVX2 and without an instruction for groups of bytes.
  expect_program_right(graph, jit::lower(graph, {.vector_bytes = 32}), arguments, as_code(), 0);
  // What is interpreted takes long.
  if (ir::Literal(u8, c.x).count() < 1500)
    expect_program_right(graph, lowered(graph), arguments, {}, 0);
}

void expect_exact_in_place(const ByteConv& c) {
  EXPECT_TRUE(reads_in_place(convolution(c))) << ::testing::PrintToString(c.x);
  expect_exact(c);
}

TEST(ByteConvs, ReadWindowsInPlace) {
  expect_exact_in_place({});
  expect_exact_in_place({.zero = 0});
  expect_exact_in_place({.is_zero_given = true});
  expect_exact_in_place({.zero = 0, .is_zero_given = true});
  expect_exact_in_place({.low = {0, 0}, .high = {0, 0}});
  expect_exact_in_place({.low = {1, 0}, .high = {0, 0}});
  expect_exact_in_place({.low = {0, 0}, .high = {0, 1}});
  expect_exact_in_place({.x = {1, 7, 7, 64}, .weights = {150, 64, 3, 3}});
  expect_exact_in_place({.x = {2, 4, 75, 32}, .weights = {130, 32, 3, 3}});
  expect_exact_in_place({.x = {1, 70, 6, 16}});
}

TEST(ByteConvs, ReadWindowsInPlaceOfKernelsOfAllKinds) {
  expect_exact_in_place({.x = {1, 10, 21, 16}, .strides = {2, 3}, .low = {0, 2}, .high = {1, 0}});
  expect_exact_in_place({.x = {1, 13, 17, 16}, .strides = {2, 2}});
  expect_exact_in_place({.x = {1, 11, 31, 16}, .low = {2, 3}, .high = {3, 4}, .dilations = {2, 3}});
  expect_exact_in_place({.weights = {72, 16, 1, 6}, .low = {0, 1}, .high = {0, 1}});
  expect_exact_in_place({.weights = {72, 16, 6, 1}, .low = {1, 0}, .high = {1, 0}});
  expect_exact_in_place(
      {.x = {1, 8, 12, 16}, .weights = {72, 16, 3, 5}, .low = {1, 2}, .high = {1, 2}});
  expect_exact_in_place({.x = {1, 7, 9, 64},
                         .weights = {72, 64, 1, 1},
                         .strides = {2, 2},
                         .low = {0, 0},
                         .high = {0, 0}});
  expect_exact_in_place({.is_part = true});
  // Windows that lie outside of x altogether, and columns of which none is inside.
  expect_exact_in_place({.x = {1, 30, 40, 16}, .low = {4, 4}, .high = {4, 5}});
  expect_exact_in_place(
      {.x = {1, 5, 40, 16}, .weights = {72, 16, 6, 1}, .low = {1, 0}, .high = {1, 0}});
}

TEST(ByteConvs, ReadWindowsInPlaceOfOneAndThreeDimensions) {
  expect_exact_in_place({.x = {2, 75, 16},
                         .weights = {72, 16, 5},
                         .strides = {1},
                         .low = {2},
                         .high = {2},
                         .dilations = {1}});
  expect_exact_in_place({.x = {2, 4, 5, 9, 16},
                         .weights = {72, 16, 2, 3, 3},
                         .strides = {1, 1, 1},
                         .low = {1, 1, 1},
                         .high = {1, 1, 1},
                         .dilations = {1, 1, 1}});
}

/// Where taps begin in the middle of a group, tiles would have few rows or sizes are not known, windows are copied.
TEST(ByteConvs, CopyOtherWindows) {
  const ByteConv copied[] = {{.x = {2, 5, 9, 18}, .weights = {150, 18, 3, 3}},
                             {.x = {2, 5, 5, 16}},
                             {.x = {1, 2, 21, 16}, .low = {1, 9}, .high = {1, 9}}};
  for (const ByteConv& c : copied) {
    EXPECT_FALSE(reads_in_place(convolution(c)));
    expect_exact(c);
  }
}

/// Of each group in place, the sums of all taps in registers; of few columns several groups as one.
TEST(ByteConvs, OfGroups) {
  const ByteConv groups[] = {
      {.x = {1, 7, 9, 48}, .weights = {48, 16, 3, 3}, .groups = 3},
      {.x = {1, 7, 9, 48}, .weights = {48, 16, 3, 3}, .zero = 0, .groups = 3},
      {.x = {1, 12, 19, 48}, .weights = {48, 16, 3, 3}, .strides = {2, 2}, .groups = 3},
      {.x = {1, 5, 40, 48}, .weights = {72, 24, 3, 3}, .groups = 2},
      {.x = {1, 5, 9, 128}, .weights = {160, 64, 3, 3}, .is_zero_given = true, .groups = 2},
      {.x = {1, 6, 9, 48}, .weights = {48, 8, 3, 3}, .groups = 6},
      {.x = {1, 6, 9, 48}, .weights = {48, 4, 3, 3}, .groups = 12},
      {.x = {1, 9, 13, 32}, .weights = {32, 16, 1, 5}, .low = {0, 2}, .high = {0, 2}, .groups = 2},
      {.x = {1, 9, 13, 32}, .weights = {32, 16, 3, 3}, .dilations = {1, 2}, .groups = 2},
      {.x = {1, 7, 9, 32}, .weights = {32, 16, 3, 3}, .is_part = true, .groups = 2},
  };
  for (const ByteConv& c : groups) {
    EXPECT_TRUE(multiplies_in_runs(convolution(c))) << c.groups;
    expect_exact_in_place(c);
  }
}

TEST(ByteConvs, OfGroupsWhoseWindowsAreCopied) {
  const ByteConv copied[] = {
      {.x = {2, 5, 5, 48}, .weights = {48, 16, 3, 3}, .groups = 3},
      {.x = {1, 5, 9, 32}, .weights = {64, 16, 3, 3}, .groups = 2, .is_open = true},
      {.x = {1, 6, 7, 48}, .weights = {48, 4, 3, 3}, .groups = 12, .is_open = true},
      {.x = {1, 6, 7, 32},
       .weights = {32, 16, 1, 1},
       .low = {0, 0},
       .high = {0, 0},
       .groups = 2,
       .is_open = true}};
  for (const ByteConv& c : copied) {
    EXPECT_FALSE(reads_in_place(convolution(c)));
    expect_exact(c);
  }
}

/// Weights without a sign around their middle are as good; around anything else they are not.
TEST(ByteConvs, OfGroupsWhoseWeightsHaveZeroPoints) {
  for (const std::int64_t zero : {128, 127}) {
    GraphBuilder b("main");
    const Value x = b.input(tensor(u8, {"1", "7", "9", "32"}), "x");
    const auto wide = [&](Value bytes) { return b.emit("convert", {bytes}, {{"dtype", i32}}); };
    ir::Literal zeros(i32, {32, 1, 1, 1});
    for (std::int64_t k = 0; k < 32; ++k) zeros.set_int(k, zero);
    const Value w = b.constant(any_bytes(u8, {32, 16, 3, 3}, 7));
    b.output(b.emit("conv", {wide(x), b.emit("sub", {wide(w), b.constant(zeros)})},
                    {{"strides", Ints{1, 1}},
                     {"pads_low", Ints{1, 1}},
                     {"pads_high", Ints{1, 1}},
                     {"dilations", Ints{1, 1}},
                     {"groups", std::int64_t{2}},
                     {"channels_last", true}}));
    const ir::Graph graph = b.finish();
    EXPECT_EQ(nests_of(lowered(graph)).find("packed_int8_conv") != std::string::npos, zero == 128);
    expect_program_right(graph, lowered(graph), {any_bytes(u8, {1, 7, 9, 32}, 3)}, as_code(), 0);
  }
}

/// Few channels in each group are left to f32.
TEST(ByteConvs, NotOfNarrowGroups) {
  for (const std::int64_t each : {1, 2}) {
    const ByteConv narrow{.x = {1, 7, 9, 48}, .weights = {48, each, 3, 3}, .groups = 48 / each};
    for (const jit::ProgramKernel& kernel : lowered(convolution(narrow)).kernels) {
      const std::string name = kernel.nest == nullptr ? "" : kernel.nest->name;
      EXPECT_THAT(name, ::testing::Not(::testing::HasSubstr("packed_int8_conv")));
    }
  }
}

/// Sums of so many products may be beyond i32.
TEST(ByteConvs, NotOfTooManyTerms) {
  const ByteConv deep[] = {{.x = {1, 40100, 1},
                            .weights = {16, 1, 40000},
                            .strides = {1},
                            .low = {0},
                            .high = {0},
                            .dilations = {1}},
                           {.x = {1, 5, 5, 4200}, .weights = {32, 2100, 4, 4}, .groups = 2}};
  for (const ByteConv& c : deep)
    for (const jit::ProgramKernel& kernel : lowered(convolution(c)).kernels) {
      const std::string name = kernel.nest == nullptr ? "" : kernel.nest->name;
      EXPECT_THAT(name, ::testing::Not(::testing::HasSubstr("packed_int8_conv")));
    }
}

/// Images of few channels: what the windows of a tile read is put side by side once, taps in whole groups.
TEST(ByteConvs, ReadWindowsOfFewChannelsFromSlabs) {
  const ByteConv first[] = {
      {.x = {1, 17, 23, 3}, .weights = {32, 3, 3, 3}, .strides = {2, 2}},
      {.x = {1, 17, 23, 3}, .weights = {32, 3, 3, 3}, .strides = {2, 2}, .zero = 0},
      {.x = {2, 21, 90, 3},
       .weights = {24, 3, 7, 7},
       .strides = {2, 2},
       .low = {3, 3},
       .high = {3, 3}},
      {.x = {1, 9, 70, 1}, .weights = {64, 1, 5, 5}, .low = {0, 0}, .high = {4, 4}},
      {.x = {1, 9, 50, 4}, .weights = {72, 4, 3, 3}, .is_zero_given = true},
      {.x = {1, 12, 13, 5},
       .weights = {80, 5, 2, 3},
       .strides = {1, 3},
       .low = {1, 0},
       .high = {0, 2}},
      {.x = {1, 12, 40, 12}, .weights = {80, 12, 3, 3}, .dilations = {2, 1}},
      // Patches, in whole tiles: nothing lies outside.
      {.x = {1, 16, 256, 3},
       .weights = {96, 3, 4, 4},
       .strides = {4, 4},
       .low = {0, 0},
       .high = {0, 0}},
      {.x = {1, 4, 5, 33, 3},
       .weights = {32, 3, 2, 3, 3},
       .strides = {1, 2, 1},
       .low = {1, 1, 1},
       .high = {1, 1, 1},
       .dilations = {1, 1, 1}},
      {.x = {1, 100, 3},
       .weights = {40, 3, 9},
       .strides = {4},
       .low = {4},
       .high = {4},
       .dilations = {1}},
      {.x = {1, 17, 23, 3}, .weights = {32, 3, 3, 3}, .strides = {2, 2}, .is_open = true},
      {.x = {1, 6, 75, 3}, .weights = {32, 3, 3, 3}, .is_open = true},
      {.x = {2, 6, 40, 64}, .weights = {72, 64, 3, 3}, .is_open = true},
  };
  for (const ByteConv& c : first) {
    EXPECT_TRUE(multiplies_in_runs(convolution(c)));
    EXPECT_FALSE(reads_in_place(convolution(c)));
    expect_exact(c);
  }
}

/// As where matrix registers multiply bytes, by code for this processor.
const jit::LowerOptions kWithAmx{.amx = true};

void expect_exact_from_patch(const ByteConv& c) {
  SCOPED_TRACE(::testing::Message() << ::testing::PrintToString(c.x) << " by "
                                    << ::testing::PrintToString(c.weights) << ", zero " << c.zero);
  const std::vector<ir::Literal> arguments = arguments_of(c);
  const ir::Graph graph = convolution(c);
  const jit::Program program = jit::lower(graph, kWithAmx);
  EXPECT_THAT(nests_of(program), ::testing::HasSubstr(" panels of "));
  expect_program_right(graph, program, arguments, as_code(), 0);
  if (ir::Literal(u8, c.x).count() < 1500) expect_program_right(graph, program, arguments, {}, 0);
}

TEST(ByteConvs, ReadWindowsFromPatches) {
  expect_exact_from_patch({});
  expect_exact_from_patch({.zero = 0});
  expect_exact_from_patch({.is_zero_given = true});
  expect_exact_from_patch({.low = {0, 0}, .high = {0, 0}});
  expect_exact_from_patch({.low = {1, 0}, .high = {0, 2}});
  expect_exact_from_patch({.x = {1, 7, 7, 64}, .weights = {150, 64, 3, 3}});
  expect_exact_from_patch({.x = {2, 4, 75, 32}, .weights = {130, 32, 3, 3}});
  expect_exact_from_patch({.x = {1, 70, 6, 16}, .weights = {16, 16, 3, 3}});
  expect_exact_from_patch({.x = {1, 14, 14, 256}, .weights = {40, 256, 3, 3}});
  expect_exact_from_patch({.x = {1, 12, 13, 5},
                           .weights = {80, 5, 2, 3},
                           .strides = {1, 3},
                           .low = {1, 0},
                           .high = {0, 2}});
  expect_exact_from_patch(
      {.x = {1, 17, 19, 128}, .weights = {65, 128, 1, 7}, .low = {0, 3}, .high = {0, 3}});
  expect_exact_from_patch(
      {.x = {1, 19, 17, 128}, .weights = {33, 128, 7, 1}, .low = {3, 0}, .high = {3, 0}});
  expect_exact_from_patch({.is_part = true});
}

/// Rows of the result that share no rows of a patch, and taps that lie apart.
TEST(ByteConvs, ReadWindowsOfAllKindsFromPatches) {
  expect_exact_from_patch({.x = {1, 10, 21, 16}, .strides = {2, 3}, .low = {0, 2}, .high = {1, 0}});
  expect_exact_from_patch({.x = {1, 13, 17, 64}, .weights = {72, 64, 3, 3}, .strides = {2, 2}});
  expect_exact_from_patch({.x = {1, 11, 31, 64},
                           .weights = {32, 64, 3, 3},
                           .low = {2, 3},
                           .high = {3, 4},
                           .dilations = {2, 3}});
  expect_exact_from_patch(
      {.x = {1, 11, 31, 16}, .low = {2, 1}, .high = {3, 1}, .dilations = {2, 1}});
  expect_exact_from_patch({.x = {2, 35, 37, 3},
                           .weights = {64, 3, 7, 7},
                           .strides = {2, 2},
                           .low = {3, 3},
                           .high = {3, 3}});
  // Windows that lie outside of x altogether.
  expect_exact_from_patch({.x = {1, 30, 40, 16}, .low = {4, 4}, .high = {4, 5}});
  expect_exact_from_patch({.x = {2, 75, 16},
                           .weights = {72, 16, 5},
                           .strides = {1},
                           .low = {2},
                           .high = {2},
                           .dilations = {1}});
}

TEST(ByteConvs, ReadWindowsOfGroupsFromPatches) {
  expect_exact_from_patch({.x = {1, 7, 9, 48}, .weights = {48, 16, 3, 3}, .groups = 3});
  expect_exact_from_patch({.x = {1, 5, 40, 48}, .weights = {72, 24, 3, 3}, .groups = 2});
  expect_exact_from_patch(
      {.x = {1, 5, 9, 128}, .weights = {160, 64, 3, 3}, .is_zero_given = true, .groups = 2});
  expect_exact_from_patch({.x = {1, 6, 9, 48}, .weights = {48, 4, 3, 3}, .groups = 12});
  expect_exact_from_patch(
      {.x = {1, 7, 9, 32}, .weights = {32, 16, 3, 3}, .is_part = true, .groups = 2});
}

TEST(ByteConvs, ReadWindowsOfOpenSizesFromPatches) {
  expect_exact_from_patch(
      {.x = {1, 17, 23, 3}, .weights = {32, 3, 3, 3}, .strides = {2, 2}, .is_open = true});
  expect_exact_from_patch({.x = {2, 6, 75, 64}, .weights = {72, 64, 3, 3}, .is_open = true});
  expect_exact_from_patch(
      {.x = {1, 5, 9, 32}, .weights = {64, 16, 3, 3}, .groups = 2, .is_open = true});
}

/// One tap, three dimensions, and channels of which no patch fits beside the sums.
TEST(ByteConvs, ReadOtherWindowsFromNoPatches) {
  const ByteConv others[] = {{.x = {1, 7, 9, 64},
                              .weights = {72, 64, 1, 1},
                              .strides = {2, 2},
                              .low = {0, 0},
                              .high = {0, 0}},
                             {.x = {1, 3, 5, 9, 16},
                              .weights = {72, 16, 2, 3, 3},
                              .strides = {1, 1, 1},
                              .low = {1, 1, 1},
                              .high = {1, 1, 1},
                              .dilations = {1, 1, 1}},
                             {.x = {1, 4, 9, 2048}, .weights = {8, 2048, 3, 3}},
                             {.x = {1, 11, 31, 16}, .dilations = {1, 2}}};
  for (const ByteConv& c : others) {
    const ir::Graph graph = convolution(c);
    const jit::Program program = jit::lower(graph, kWithAmx);
    EXPECT_THAT(nests_of(program), ::testing::Not(::testing::HasSubstr(" panels of ")));
    expect_program_right(graph, program, {any_bytes(u8, c.x, 3)}, as_code(), 0);
  }
}

ByteConv random_byte_conv(Draw& draw) {
  ByteConv c;
  c.groups = draw.one_in(3) ? draw(2, 4) : 1;
  const std::int64_t channels = draw.one_in(2) ? draw(1, 40) : 16 * draw(1, 6);
  const std::int64_t results = draw.one_in(2) ? draw(4, 80) : 16 * draw(1, 5);
  c.zero = draw.one_in(2) ? 0 : draw(1, 255);
  c.is_part = draw.one_in(4);
  c.is_open = draw.one_in(3) && !c.is_part;
  c.x = {draw(1, 3)};
  c.weights = {c.groups * results, channels};
  for (Ints* each : {&c.strides, &c.low, &c.high, &c.dilations}) each->clear();
  const std::int64_t rank = draw.one_in(4) ? 1 : 2;
  for (std::int64_t d = 0; d < rank; ++d) {
    const std::int64_t taps = draw(1, 5), dilation = draw.one_in(4) ? draw(2, 3) : 1;
    const std::int64_t reach = (taps - 1) * dilation + 1;
    c.weights.push_back(taps);
    c.dilations.push_back(dilation);
    c.strides.push_back(draw.one_in(3) ? draw(2, 3) : 1);
    c.low.push_back(draw(0, reach));
    c.high.push_back(draw(0, reach));
    c.x.push_back(std::max<std::int64_t>(1, reach - c.low.back() - c.high.back()) + draw(0, 30));
  }
  c.x.push_back(c.groups * channels);
  return c;
}

/// Whichever nest takes them, there and where vectors multiply bytes.
TEST(ByteConvs, AreExactOfAnyShape) {
  for (std::uint32_t seed = 0; seed < (is_nightly() ? 1000u : 15u); ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    const ByteConv c = random_byte_conv(draw);
    const ir::Graph graph = convolution(c);
    for (const jit::LowerOptions& options : {kWithAmx, jit::LowerOptions{}})
      expect_program_right(graph, jit::lower(graph, options), arguments_of(c), as_code(), 0);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace heddle::test
