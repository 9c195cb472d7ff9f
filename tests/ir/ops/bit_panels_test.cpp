// bit_panels: where each number lies, and its constraints.
#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

ir::Attrs in_panels(std::int64_t bits, std::int64_t width) {
  return {{"bits", bits}, {"width", width}};
}

/// A word as two's complement has it.
std::int64_t word(std::uint32_t bits) { return static_cast<std::int32_t>(bits); }

TEST(BitPanels, RowsOfFourAreNeighboursInTheBytesOfAWord) {
  // Column 0 is -8 to -1, column 1 is 0 to 7.
  std::vector<std::int64_t> numbers;
  for (std::int64_t k = 0; k < 8; ++k) numbers.insert(numbers.end(), {k - 8, k});
  expect_same(value_of({"bit_panels", {ints(i8, {8, 2}, numbers)}, in_panels(4, 2)}),
              ints(i32, {1, 1, 2}, {word(0xfbead9c8), word(0x73625140)}));
  expect_same(value_of({"bit_panels", {ints(i8, {4, 1}, {-128, -1, 0, 127})}, in_panels(8, 1)}),
              ints(i32, {1, 1, 1}, {word(0x7f00ff80)}));
  std::vector<std::int64_t> twos;
  for (std::int64_t k = 0; k < 16; ++k) twos.push_back(k / 4 - 2);
  expect_same(value_of({"bit_panels", {ints(i8, {16, 1}, twos)}, in_panels(2, 1)}),
              ints(i32, {1, 1, 1}, {word(0x4e4e4e4e)}));
}

TEST(BitPanels, UnsignedNumbersLoseTheirMiddle) {
  const ir::Literal x = ints(u8, {8, 1}, {0, 1, 7, 8, 9, 15, 8, 8});
  const ir::Literal less = ints(i8, {8, 1}, {-8, -7, -1, 0, 1, 7, 0, 0});
  expect_same(value_of({"bit_panels", {x}, in_panels(4, 1)}),
              value_of({"bit_panels", {less}, in_panels(4, 1)}));
}

TEST(BitPanels, AreFilledUpWithZeros) {
  // 9 rows of 3 columns in panels of 2: two words a column, two panels.
  const ir::Literal all = value_of(
      {"bit_panels", {ints(i8, {9, 3}, std::vector<std::int64_t>(27, 1))}, in_panels(4, 2)});
  expect_same(all, ints(i32, {2, 2, 2}, {0x11111111, 0x11111111, 1, 1, 0x11111111, 0, 1, 0}));
  // 0 of an unsigned number is less than its middle.
  expect_same(value_of({"bit_panels", {ints(u8, {1, 1}, {8})}, in_panels(4, 2)}),
              ints(i32, {1, 1, 2}, {word(0x88888880), word(0x88888888)}));
}

std::string error_of_panels(const ir::TensorMeta& x, std::int64_t bits = 4,
                            std::int64_t width = 64) {
  return error_of("bit_panels", {x}, in_panels(bits, width));
}
TEST(BitPanels, bit_panels_c1) {
  EXPECT_EQ(error_of_panels(meta(i32, {8, 8})),
            "bit_panels: C1 x is u8 or i8: expected u8 or i8, got i32");
}
TEST(BitPanels, bit_panels_c2) {
  EXPECT_EQ(error_of_panels(meta(u8, {8})),
            "bit_panels: C2 x has two dimensions: expected sizes [k, n], got [8]");
}
TEST(BitPanels, bit_panels_c3) {
  EXPECT_EQ(error_of_panels(meta(u8, {8, 8}), 3),
            "bit_panels: C3 bits is 2, 4 or 8: expected 2, 4 or 8, got 3");
}
TEST(BitPanels, bit_panels_c4) {
  EXPECT_EQ(error_of_panels(meta(u8, {8, 8}), 4, 0),
            "bit_panels: C4 width is at least 1: expected 1 or more, got 0");
}

}  // namespace
}  // namespace heddle::testing
