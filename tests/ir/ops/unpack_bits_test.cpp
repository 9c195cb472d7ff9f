// unpack_bits against numbers written out, and its constraints.
#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

ir::Attrs of_numbers(std::int64_t bits, std::int64_t count, bool is_signed = false) {
  return {{"bits", bits}, {"count", count}, {"signed", is_signed}};
}

TEST(UnpackBits, TheFirstNumberIsInTheLowestBits) {
  const ir::Literal packed = ints(u8, {2, 2}, {0x21, 0xf8, 0x8f, 0x07});
  expect_same(value_of({"unpack_bits", {packed}, of_numbers(4, 4)}),
              ints(u8, {2, 4}, {1, 2, 8, 15, 15, 8, 7, 0}));
  expect_same(value_of({"unpack_bits", {packed}, of_numbers(4, 4, true)}),
              ints(i8, {2, 4}, {1, 2, -8, -1, -1, -8, 7, 0}));
  expect_same(value_of({"unpack_bits", {ints(u8, {1}, {0b11'10'01'00})}, of_numbers(2, 4)}),
              ints(u8, {4}, {0, 1, 2, 3}));
  expect_same(value_of({"unpack_bits", {ints(u8, {1}, {0b11'10'01'00})}, of_numbers(2, 4, true)}),
              ints(i8, {4}, {0, 1, -2, -1}));
}

TEST(UnpackBits, TheLastByteOfARowMayHoldNumbersOfNoRow) {
  expect_same(
      value_of({"unpack_bits", {ints(u8, {2, 2}, {0x21, 0xf3, 0x54, 0xf6})}, of_numbers(4, 3)}),
      ints(u8, {2, 3}, {1, 2, 3, 4, 5, 6}));
  expect_same(
      value_of({"unpack_bits", {ints(u8, {1, 2}, {0b11'10'01'00, 0b01})}, of_numbers(2, 5)}),
      ints(u8, {1, 5}, {0, 1, 2, 3, 1}));
  EXPECT_EQ(value_of({"unpack_bits", {ints(u8, {3, 0}, {})}, of_numbers(4, 0)}).sizes(),
            (ir::Sizes{3, 0}));
}

TEST(UnpackBits, unpack_bits_c1) {
  EXPECT_EQ(error_of("unpack_bits", {meta(i8, {2})}, of_numbers(4, 4)),
            "unpack_bits: C1 packed is u8: expected u8, got i8");
}
TEST(UnpackBits, unpack_bits_c2) {
  EXPECT_EQ(error_of("unpack_bits", {meta(u8, {})}, of_numbers(4, 2)),
            "unpack_bits: C2 packed has at least one dimension: expected sizes [..., b], got []");
}
TEST(UnpackBits, unpack_bits_c3) {
  for (const std::int64_t bits : {0, 1, 3, 8})
    EXPECT_EQ(error_of("unpack_bits", {meta(u8, {2})}, of_numbers(bits, 4)),
              "unpack_bits: C3 bits is 2 or 4: expected 2 or 4, got " + std::to_string(bits));
}
TEST(UnpackBits, unpack_bits_c4) {
  EXPECT_EQ(error_of("unpack_bits", {meta(u8, {2})}, of_numbers(4, -1)),
            "unpack_bits: C4 count is at least 0, and takes b bytes: expected 0 or more, got -1");
  EXPECT_EQ(error_of("unpack_bits", {meta(u8, {2})}, of_numbers(4, 5)),
            "unpack_bits: C4 count is at least 0, and takes b bytes: expected 3, got 2");
  EXPECT_EQ(error_of("unpack_bits", {meta(u8, {2})}, of_numbers(2, 4)),
            "unpack_bits: C4 count is at least 0, and takes b bytes: expected 1, got 2");
}

}  // namespace
}  // namespace heddle::testing
