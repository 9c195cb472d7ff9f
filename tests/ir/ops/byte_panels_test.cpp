// byte_panels: where each byte goes, and its constraints.
#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Literal;

void expect_panels(DType dtype, const ir::Sizes& sizes, std::int64_t width) {
  const Literal x = any_bytes(dtype, sizes, 3);
  const Literal panels = value_of({"byte_panels", {x}, {{"width", width}}});
  const std::int64_t k = sizes[1], n = sizes[2];
  const std::int64_t groups = (k + 3) / 4, count = (n + width - 1) / width;
  ASSERT_EQ(panels.sizes(), (ir::Sizes{sizes[0], count, groups, width, 4}));
  for (std::int64_t at = 0; at < panels.count(); ++at) {
    const std::int64_t byte = at % 4, column = at / 4 % width, group = at / 4 / width % groups;
    const std::int64_t panel = at / 4 / width / groups % count;
    const std::int64_t matrix = at / 4 / width / groups / count;
    const std::int64_t row = group * 4 + byte, place = panel * width + column;
    const std::int64_t moved = dtype == u8 ? 128 : 0;
    const bool is_there = row < k && place < n;
    EXPECT_EQ(panels.at_int(at), is_there ? x.at_int((matrix * k + row) * n + place) - moved : 0);
  }
}

TEST(BytePanels, HoldTheBytesOfEachMatrix) {
  expect_panels(u8, {2, 9, 7}, 4);
  expect_panels(i8, {2, 8, 8}, 4);
  expect_panels(i8, {1, 1, 1}, 64);
}

TEST(BytePanels, byte_panels_c1) {
  EXPECT_EQ(error_of("byte_panels", {meta(i32, {2, 3})}, {{"width", std::int64_t{4}}}),
            "byte_panels: C1 x: expected u8 or i8, got i32");
}

TEST(BytePanels, byte_panels_c2) {
  EXPECT_EQ(error_of("byte_panels", {meta(u8, {2})}, {{"width", std::int64_t{4}}}),
            "byte_panels: C2 x has at least two dimensions: expected sizes [..., k, n], got [2]");
}

TEST(BytePanels, byte_panels_c3) {
  EXPECT_EQ(error_of("byte_panels", {meta(u8, {2, 3})}, {{"width", std::int64_t{0}}}),
            "byte_panels: C3 width is at least 1: expected 1 or more, got 0");
}

}  // namespace
}  // namespace heddle::testing
