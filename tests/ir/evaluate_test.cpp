#include "ir/evaluate.h"

#include <array>
#include <cstring>
#include <gtest/gtest.h>

#include "heddle/error.h"
#include "ir/text.h"
#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Graph;
using ir::Literal;

TEST(Evaluate, BindsSizesFromExpressions) {
  const Graph graph = ir::parse(R"(graph @main(%x: f32[2*s0+1], %y: f32[s0]) {
  %n = symint() {value = s0}
  return %n
}
)");
  const Literal arguments[] = {noise(f32, {7}), noise(f32, {3})};
  EXPECT_EQ(ir::evaluate(graph, arguments)[0].at_int(0), 3);
  const Graph alone =
      ir::parse("graph @m(%x: f32[2*s0+1]) { %n = symint() {value = s0} return %n }");
  const Literal one[] = {noise(f32, {9})};
  EXPECT_EQ(ir::evaluate(alone, one)[0].at_int(0), 4);
}

TEST(Evaluate, SaysWhichInputDoesNotFit) {
  const Graph graph = ir::parse("graph @m(%x: f32[s0], %y: f32[2*s0]) { return %x }");
  const auto failure = [&](const Literal& x, const Literal& y) {
    return error_of([&] { ir::evaluate(graph, std::vector{x, y}); });
  };
  EXPECT_EQ(failure(noise(f32, {3}), noise(f32, {5})),
            "evaluate: input %y: expected f32[2*s0], got f32[5]");
  EXPECT_EQ(failure(noise(f16, {3}), noise(f32, {6})),
            "evaluate: input %x: expected f32[s0], got f16[3]");
  EXPECT_EQ(failure(noise(f32, {3, 1}), noise(f32, {6})),
            "evaluate: input %x: expected f32[s0], got f32[3, 1]");
  EXPECT_EQ(error_of([&] { ir::evaluate(graph, {}); }),
            "evaluate: number of inputs: expected 2, got 0");
}

TEST(Evaluate, ParametersComeFromTheGraphOrTheCaller) {
  const Graph graph =
      ir::parse("graph @m(%x: f32[2], %w: param f32[2]) { %y = add(%x, %w) return %y }");
  const Literal x[] = {doubles(f32, {2}, {1, 2})};
  const Literal w[] = {doubles(f32, {2}, {10, 20})};
  expect_same(ir::evaluate(graph, x, w)[0], doubles(f32, {2}, {11, 22}));
  EXPECT_EQ(error_of([&] { ir::evaluate(graph, x); }),
            "evaluate: parameter %w: expected a value, got none");
}

TEST(Evaluate, WriteBacksFollowTheOutputs) {
  const Graph graph = ir::parse(R"(graph @main(%x: f32[2], %state: f32[2]) {
  %new = add(%state, %x)
  write_back %state = %new
  return %x
}
)");
  const Literal arguments[] = {doubles(f32, {2}, {1, 2}), doubles(f32, {2}, {5, 5})};
  const auto results = ir::evaluate(graph, arguments);
  ASSERT_EQ(results.size(), 2u);
  expect_same(results[1], doubles(f32, {2}, {6, 7}));
  expect_same(arguments[1], doubles(f32, {2}, {5, 5}));
}

TEST(Literal, SixteenBitFloatsRoundOnce) {
  // Halfway between two halves but for one bit that float does not hold: rounding twice would go down.
  const double above_half = 1.0 + 0x1p-11 + 0x1p-40;
  EXPECT_EQ(Literal::scalar(f16, above_half).at(0), 1.0 + 0x1p-10);
  EXPECT_EQ(Literal::scalar(f16, 1.0 + 0x1p-11).at(0), 1.0);
  EXPECT_EQ(Literal::scalar(bf16, 1.0 + 0x1p-8 + 0x1p-40).at(0), 1.0 + 0x1p-7);
}

TEST(Literal, IntegersWrapAndFloatsSaturateOnTheWayIn) {
  EXPECT_EQ(Literal::scalar_int(i8, 300).at_int(0), 44);
  EXPECT_EQ(Literal::scalar(i64, 1e30).at_int(0), INT64_MAX);
  EXPECT_EQ(Literal::scalar(i64, -1e30).at_int(0), INT64_MIN);
  EXPECT_EQ(Literal::scalar(boolean, 0.5).at_int(0), 1);
}

TEST(Literal, ViewsShareBytesAndChecksumsDoNotSeeStrides) {
  Literal x = doubles(f32, {2, 3}, {1, 2, 3, 4, 5, 6});
  const Literal transposed = x.view({3, 2}, {1, 3}, 0);
  EXPECT_EQ(transposed.at(1), 4);
  EXPECT_EQ(transposed.checksum(), doubles(f32, {3, 2}, {1, 4, 2, 5, 3, 6}).checksum());
  EXPECT_NE(transposed.checksum(), x.checksum());
  x.set(3, 40);
  EXPECT_EQ(transposed.at(1), 40);
  EXPECT_EQ(x.clone().data() == x.data(), false);
}

TEST(Literal, BytesAtAnyAddressAreAlignedWhenTheyAreAskedFor) {
  const std::array<float, 3> numbers{1, 2, 3};
  auto file = std::make_shared<std::array<char, 24>>();
  for (std::size_t past = 0; past < 4; ++past) {
    char* const place = file->data() + past;
    std::memcpy(place, numbers.data(), sizeof numbers);
    Literal literal = Literal::at_any_address(f32, {3}, place, file);
    const Literal copy = literal;
    EXPECT_EQ(literal.unaligned_data(), place);
    EXPECT_EQ(literal.at(2), 3);
    EXPECT_EQ(literal.checksum(), doubles(f32, {3}, {1, 2, 3}).checksum());
    EXPECT_EQ(literal.clone().at(1), 2);
    EXPECT_EQ(copy.unaligned_data(), place) << "so far nobody needed an aligned copy";
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(copy.data()) % sizeof(float), 0u);
    EXPECT_EQ(copy.data() == place, reinterpret_cast<std::uintptr_t>(place) % sizeof(float) == 0);
    literal.set(1, 20);
    EXPECT_EQ(copy.at(1), 20) << "copies share the bytes";
    EXPECT_EQ(copy.data_as<float>()[1], 20);
    const Literal view = copy.view({2}, {-1}, 2);
    EXPECT_EQ(view.at(1), 20);
  }
}

TEST(Literal, AbsurdSizesAreAnError) {
  EXPECT_THROW(Literal(f32, {std::int64_t{1} << 32, std::int64_t{1} << 32}), ShapeError);
  EXPECT_THROW(Literal(f64, {std::int64_t{1} << 61}), ShapeError);
  EXPECT_EQ(Literal(f64, {std::int64_t{1} << 61, 0, std::int64_t{1} << 61}).count(), 0);
}

}  // namespace
}  // namespace heddle::testing
