// Convolutions with the flag bf16 where the CPU multiplies matrices of bf16: lowered as such, and their kernels, on any CPU.
#include "jit/lower/bf16_convs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/text.h"
#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

using ir::GraphBuilder;
using ir::Value;
using ::testing::HasSubstr;
using ::testing::Not;

struct Bf16Conv {
  Ints weights{72, 16, 3, 3}, strides{1, 1}, low{1, 1}, high{1, 1}, dilations{1, 1};
  std::vector<const char*> sizes{"1", "9", "21"};  ///< of x, but for the channels
  bool biased = true, allowed = true, fixed = true, channels_last = true;
  std::int64_t groups = 1;
};

/// Integers that bf16 holds, whose sums f32 does.
ir::Literal small_integers(Ints sizes, std::uint32_t seed) {
  const ir::Literal integers = random_literal(i32, sizes, seed, -8, 8);
  ir::Literal result(f32, std::move(sizes));
  for (std::int64_t k = 0; k < result.count(); ++k)
    result.set(k, static_cast<double>(integers.at_int(k)));
  return result;
}

Value emit_conv(GraphBuilder& b, Value x, const Bf16Conv& c) {
  std::vector<Value> operands{
      x, c.fixed ? b.constant(small_integers(c.weights, 7))
                 : b.input(ir::TensorMeta::of(f32, {c.weights.begin(), c.weights.end()}), "w")};
  if (c.biased) operands.push_back(b.constant(small_integers({c.weights[0]}, 8)));
  return b
      .call("conv", operands,
            {{"strides", c.strides},
             {"pads_low", c.low},
             {"pads_high", c.high},
             {"dilations", c.dilations},
             {"groups", c.groups},
             {"channels_last", c.channels_last},
             {"bf16", c.allowed}})
      ->value();
}

ir::Graph graph_of(const Bf16Conv& c) {
  GraphBuilder b("main");
  ir::Dims sizes;
  for (const char* size : c.sizes) sizes.push_back(base::parse_symexpr(size));
  sizes.insert(c.channels_last ? sizes.end() : sizes.begin() + 1,
               base::SymExpr(c.weights[1] * c.groups));
  b.output(b.emit("relu", {emit_conv(b, b.input(ir::TensorMeta::of(f32, sizes), "x"), c)}));
  return b.finish();
}

jit::LowerOptions with_amx(bool amx = true) {
  return {.target = jit::LowerOptions::Target::Cpu, .bf16_dot = true, .amx = amx};
}

std::string lowered_text(const Bf16Conv& c, const jit::LowerOptions& options) {
  return ir::print(jit::bf16_convs(graph_of(c), options));
}

/// Where the kernel reads windows.
std::string windows_of(const jit::Program& program) {
  for (const jit::ProgramKernel& kernel : program.kernels) {
    if (kernel.nest == nullptr || kernel.nest->name.find("packed_bf16_conv") == std::string::npos)
      continue;
    if (print(*kernel.nest).find(" panels of ") != std::string::npos) return "from a patch";
    const bool copies = std::ranges::any_of(kernel.nest->buffers, [](const jit::NestBuffer& b) {
      return b.scope == jit::NestBuffer::Scope::Local && b.dtype == bf16;
    });
    return copies ? "copied" : "in place";
  }
  return "nowhere";
}

void expect_exact(const Bf16Conv& c, const std::string& windows, const Ints& sizes = {}) {
  SCOPED_TRACE(::testing::PrintToString(c.weights) + " of " + ::testing::PrintToString(c.sizes));
  const ir::Graph graph = graph_of(c);
  const jit::Program program = jit::lower(graph, with_amx());
  EXPECT_EQ(windows_of(program), windows);
  Ints concrete;
  for (const auto& size : graph.inputs()[0].meta().sizes)
    concrete.push_back(size.evaluate_sizes(sizes));
  expect_program_right(graph, program, {small_integers(concrete, 3)}, as_code(), 0);
}

TEST(Bf16Convs, AreExactOfSmallIntegersInPlace) {
  expect_exact({}, "in place");
  expect_exact({.biased = false}, "in place");
  expect_exact({.sizes = {"2", "12", "50"}}, "in place");
  expect_exact({.weights = {16, 18, 5, 2}, .low = {2, 0}, .high = {2, 1}}, "in place");
  expect_exact({.strides = {2, 2}, .low = {1, 1}, .high = {0, 0}, .sizes = {"1", "20", "40"}},
               "in place");
  expect_exact({.low = {2, 2}, .high = {2, 2}, .dilations = {2, 2}, .sizes = {"1", "20", "30"}},
               "in place");
  expect_exact({.weights = {16, 16, 2, 3, 3},
                .strides = {1, 1, 1},
                .low = {0, 1, 1},
                .high = {1, 1, 1},
                .dilations = {1, 1, 1},
                .sizes = {"1", "3", "12", "17"}},
               "in place");
}

TEST(Bf16Convs, AreExactOfSmallIntegersThatAreCopied) {
  expect_exact({.weights = {40, 17, 3, 3}}, "copied");
  expect_exact({.sizes = {"1", "7", "7"}}, "copied");
  expect_exact({.weights = {16, 1024, 3, 3}, .sizes = {"1", "7", "7"}}, "copied");
  expect_exact({.sizes = {"s0", "s1", "s2"}}, "copied", {2, 5, 9});
  expect_exact({.strides = {3, 1}, .low = {2, 0}, .high = {1, 2}, .sizes = {"s0", "s1", "s2"}},
               "copied", {1, 11, 23});
}

/// Of taps whose channels are whole registers.
TEST(Bf16Convs, AreExactOfSmallIntegersFromPatches) {
  constexpr const char* kPatch = "from a patch";
  expect_exact({.weights = {64, 128, 3, 3}, .sizes = {"1", "14", "14"}}, kPatch);
  expect_exact({.weights = {16, 512, 3, 3}, .sizes = {"1", "7", "7"}}, kPatch);
  expect_exact({.weights = {72, 32, 3, 3}, .strides = {2, 2}, .sizes = {"2", "17", "19"}}, kPatch);
  expect_exact({.weights = {40, 16, 3, 2}, .low = {1, 0}, .high = {0, 1}}, kPatch);
  expect_exact({.weights = {40, 32, 3, 3}, .low = {2, 2}, .high = {2, 2}, .dilations = {2, 2}},
               kPatch);
  expect_exact({.weights = {40, 64, 3, 3}, .sizes = {"s0", "s1", "s2"}}, kPatch, {2, 5, 70});
  expect_exact({.weights = {80, 32, 7},
                .strides = {1},
                .low = {3},
                .high = {3},
                .dilations = {1},
                .sizes = {"3", "70"}},
               kPatch);
}

TEST(Bf16Convs, OnlyWhereTheyMayAndPay) {
  EXPECT_THAT(lowered_text({}, with_amx()), HasSubstr("packed_bf16_conv"));
  EXPECT_THAT(lowered_text({}, with_amx(false)), Not(HasSubstr("packed_bf16_conv")));
  for (const Bf16Conv& c :
       {Bf16Conv{.allowed = false}, Bf16Conv{.fixed = false}, Bf16Conv{.channels_last = false},
        Bf16Conv{.weights = {72, 3, 3, 3}}, Bf16Conv{.weights = {8, 16, 3, 3}},
        Bf16Conv{.weights = {64, 16, 3, 3}, .groups = 2},
        Bf16Conv{.weights = {72, 16, 1, 1}, .low = {0, 0}, .high = {0, 0}}})
    EXPECT_THAT(lowered_text(c, with_amx()), Not(HasSubstr("packed_bf16_conv")))
        << ::testing::PrintToString(c.weights);
}

/// Kernels of one element are products of pairs.
TEST(Bf16Convs, OfOneElementAreProducts) {
  const Bf16Conv c{.weights = {128, 64, 1, 1}, .low = {0, 0}, .high = {0, 0}};
  jit::LowerOptions options = with_amx();
  options.library_available = [](std::string_view name, const ir::Node&) { return name == "conv"; };
  const ir::Graph graph = graph_of(c);
  const jit::Program program = jit::lower(graph, options);
  EXPECT_THAT(nests_of(program), HasSubstr("packed_bf16_matmul"));
  expect_program_right(graph, program, {small_integers({1, 9, 21, 64}, 3)}, as_code(), 0);
  // Pairs alone take longer than the library's f32 on some processors.
  options.amx = false;
  EXPECT_THAT(nests_of(jit::lower(graph, options)), Not(HasSubstr("packed_bf16_matmul")));
}

/// Where pairs are multiplied as often as f32, but for what a library computes in tiles.
TEST(Bf16Convs, OfPairsWhereTheyAreFastAndNoTilesAreFaster) {
  jit::LowerOptions options{.bf16_dot = true, .fast_bf16_dot = true};
  EXPECT_THAT(lowered_text({}, options), HasSubstr("packed_bf16_conv")) << "there is no library";
  options.library_available = [](std::string_view name, const ir::Node&) { return name == "conv"; };
  for (const Bf16Conv& c :
       {Bf16Conv{}, Bf16Conv{.weights = {24, 16, 3, 3}}, Bf16Conv{.sizes = {"s0", "s1", "s2"}}})
    EXPECT_THAT(lowered_text(c, options), Not(HasSubstr("packed_bf16_conv")))
        << ::testing::PrintToString(c.weights);
  for (const Bf16Conv& c :
       {Bf16Conv{.strides = {2, 2}}, Bf16Conv{.dilations = {2, 2}},
        Bf16Conv{.weights = {72, 16, 5, 5}}, Bf16Conv{.weights = {76, 16, 3, 3}},
        Bf16Conv{.weights = {72, 20, 3, 3}}, Bf16Conv{.low = {2, 2}},
        Bf16Conv{.sizes = {"1", "5", "7"}}})
    EXPECT_THAT(lowered_text(c, options), HasSubstr("packed_bf16_conv"))
        << ::testing::PrintToString(c.weights);
  options.rest.winograd = false;
  EXPECT_THAT(lowered_text({}, options), HasSubstr("packed_bf16_conv"));
  const Bf16Conv one{.weights = {128, 64, 1, 1}, .low = {0, 0}, .high = {0, 0}};
  EXPECT_THAT(nests_of(jit::lower(graph_of(one), options)), HasSubstr("packed_bf16_matmul"));
}

TEST(Bf16Convs, ReadOneNarrowCopyOfWhatTheyShare) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"1", "9", "21", "16"}), "x");
  b.output(b.emit("add", {emit_conv(b, x, {}), emit_conv(b, x, {.biased = false})}));
  const std::string text = ir::print(jit::bf16_convs(b.finish(), with_amx()));
  std::size_t narrow = 0;
  for (std::size_t at = 0; (at = text.find("convert(%x)", at)) != std::string::npos; ++at) ++narrow;
  EXPECT_EQ(narrow, 1u) << text;
}

}  // namespace
}  // namespace heddle::test
