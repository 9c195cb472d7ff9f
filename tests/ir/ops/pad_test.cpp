#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Dims;
using ir::Literal;
using ir::Sizes;
using ir::SymExpr;

ir::Attrs padding(Dims low, Dims high, std::string mode = "constant") {
  return {{"low", std::move(low)}, {"high", std::move(high)}, {"mode", std::move(mode)}};
}

const Literal kThree = ints(i32, {3}, {1, 2, 3});

Literal padded(const Literal& x, Dims low, Dims high, std::string mode) {
  return value_of(
      {"pad", {x, Literal()}, padding(std::move(low), std::move(high), std::move(mode))});
}

TEST(Pad, PutsZeroOrTheValueAround) {
  expect_same(padded(kThree, {1}, {2}, "constant"), ints(i32, {6}, {0, 1, 2, 3, 0, 0}));
  expect_same(value_of({"pad", {kThree, doubles(f32, {}, {7.9})}, padding({1}, {0})}),
              ints(i32, {4}, {7, 1, 2, 3}));
}

TEST(Pad, CutsWithNegativeAmounts) {
  expect_same(padded(kThree, {-1}, {1}, "constant"), ints(i32, {3}, {2, 3, 0}));
  expect_same(padded(kThree, {-1}, {-2}, "constant"), ints(i32, {0}, {}));
}

TEST(Pad, TakesElementsFromTheOperandInTheOtherModes) {
  expect_same(padded(kThree, {2}, {2}, "edge"), ints(i32, {7}, {1, 1, 1, 2, 3, 3, 3}));
  expect_same(padded(kThree, {2}, {2}, "reflect"), ints(i32, {7}, {3, 2, 1, 2, 3, 2, 1}));
  expect_same(padded(kThree, {4}, {2}, "wrap"), ints(i32, {9}, {3, 1, 2, 3, 1, 2, 3, 1, 2}));
}

TEST(Pad, PadsSeveralDimensions) {
  expect_same(padded(ints(i32, {2, 2}, {1, 2, 3, 4}), {1, 0}, {0, 1}, "constant"),
              ints(i32, {3, 3}, {0, 0, 0, 1, 2, 0, 3, 4, 0}));
  EXPECT_EQ(padded(Literal(f32, {0, 2}), {0, 1}, {0, 1}, "edge").sizes(), (Sizes{0, 4}));
  EXPECT_EQ(type_of("pad", {meta(f32, {SymExpr::size(0)})}, padding({1}, {2})), "f32[s0+3]");
}

TEST(Pad, C1RefusesAnotherNumberOfEntries) {
  EXPECT_EQ(error_of("pad", {meta(f32, {3})}, padding({1, 1}, {1})),
            "pad: C1 entries: expected 1 entries in low, got [1, 1]");
  EXPECT_EQ(error_of("pad", {meta(f32, {3})}, padding({1}, {})),
            "pad: C1 entries: expected 1 entries in high, got []");
}

TEST(Pad, C2RefusesAnotherMode) {
  EXPECT_EQ(
      error_of("pad", {meta(f32, {3})}, padding({1}, {1}, "mirror")),
      "pad: C2 mode: expected \"constant\", \"reflect\", \"edge\" or \"wrap\", got \"mirror\"");
}

TEST(Pad, C3RefusesAValueThatIsNotAScalar) {
  EXPECT_EQ(error_of("pad", {meta(f32, {3}), meta(f32, {1})}, padding({1}, {1})),
            "pad: C3 value: expected a scalar, got [1]");
}

TEST(Pad, C4RefusesANegativeSize) {
  EXPECT_EQ(error_of("pad", {meta(f32, {3})}, padding({-2}, {-2})),
            "pad: C4 size: expected a size of at least 0 in dimension 0, got -1");
}

TEST(Pad, C5RefusesToReachPastTheOperand) {
  EXPECT_EQ(
      error_of("pad", {meta(f32, {3})}, padding({3}, {0}, "reflect")),
      "pad: C5 reach: expected more elements than are put on a side, got low 3 in dimension 0 "
      "of size 3");
  EXPECT_EQ(error_of("pad", {meta(f32, {0})}, padding({0}, {1}, "wrap")),
            "pad: C5 reach: expected an element to repeat, got high 1 in dimension 0 of size 0");
  EXPECT_EQ(error_of("pad", {meta(f32, {3})}, padding({-1}, {0}, "edge")),
            "pad: C5 reach: expected no negative entry, got low -1 in dimension 0 of size 3");
}

}  // namespace
}  // namespace heddle::testing
