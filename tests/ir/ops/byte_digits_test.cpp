// byte_digits: digits that add up to their numbers, and its constraints.
#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

TEST(ByteDigits, AreBalanced) {
  expect_same(value_of({"byte_digits",
                        {ints(i32, {1, 4}, {127, 128, -129, 8355711})},
                        {{"count", std::int64_t{3}}}}),
              ints(i8, {1, 3, 4},
                   {127, -128, 127, 127,  //
                    0, 1, -1, 127,        //
                    0, 0, 0, 127}));
}

TEST(ByteDigits, AddUpToTheirNumbers) {
  const std::vector<std::int64_t> largest{127, 32639, 8355711, 2139062143};
  for (std::int64_t count = 1; count <= 4; ++count) {
    const std::int64_t most = largest[static_cast<std::size_t>(count - 1)];
    const std::vector<std::int64_t> numbers{most, -most, most / 2, -most / 3, 1, -1, 0, most - 100};
    const ir::Literal digits =
        value_of({"byte_digits", {ints(i32, {8}, numbers)}, {{"count", count}}});
    for (std::int64_t j = 0; j < 8; ++j) {
      std::int64_t sum = 0;
      for (std::int64_t d = count; d-- > 0;) sum = sum * 256 + digits.at_int(d * 8 + j);
      EXPECT_EQ(sum, numbers[static_cast<std::size_t>(j)]) << count << " digits";
    }
  }
}

TEST(ByteDigits, OfNumbersTooLargeHoldTheLowestBits) {
  expect_same(
      value_of({"byte_digits", {ints(i32, {2}, {0x1234, -129})}, {{"count", std::int64_t{1}}}}),
      ints(i8, {1, 2}, {0x34, 127}));
}

std::string error_of_digits(const ir::TensorMeta& x, std::int64_t count) {
  return error_of("byte_digits", {x}, {{"count", count}});
}
TEST(ByteDigits, byte_digits_c1) {
  EXPECT_EQ(error_of_digits(meta(i64, {2}), 2), "byte_digits: C1 x is i32: expected i32, got i64");
}
TEST(ByteDigits, byte_digits_c2) {
  EXPECT_EQ(error_of_digits(meta(i32, {}), 2),
            "byte_digits: C2 x has at least one dimension: expected sizes [..., k], got []");
}
TEST(ByteDigits, byte_digits_c3) {
  for (const std::int64_t count : {0, 5})
    EXPECT_EQ(error_of_digits(meta(i32, {2}), count),
              "byte_digits: C3 count is 1 to 4: expected 1 to 4, got " + std::to_string(count));
}

}  // namespace
}  // namespace heddle::testing
