// packed_int8_conv against conv of integers, and its constraints.
#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Literal;

struct ByteWindows {
  ir::Sizes kernel{3, 2}, strides{1, 1}, low{0, 0}, high{0, 0}, dilations{1, 1};
  std::int64_t align = 1;
  ir::Attrs attrs() const {
    return {{"strides", strides}, {"pads_low", low}, {"pads_high", high}, {"dilations", dilations}};
  }
};

constexpr std::int64_t kByteChannels = 3;
constexpr std::int64_t kByteColumns = 5;

/// Weights [columns, channels, kernel...] in panels of 4 columns.
Literal byte_panels_of(const Literal& weights, const ByteWindows& c) {
  const std::int64_t taps = c.kernel[0] * c.kernel[1];
  const std::int64_t run = c.kernel[1] * kByteChannels;
  const std::int64_t run_rows = (run + c.align - 1) / c.align * c.align;
  const std::int64_t groups = (c.kernel[0] * run_rows + 3) / 4;
  Literal panels(i8, {2, groups, 4, 4});
  for (std::int64_t m = 0; m < kByteColumns; ++m)
    for (std::int64_t channel = 0; channel < kByteChannels; ++channel)
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        const std::int64_t row =
            tap / c.kernel[1] * run_rows + tap % c.kernel[1] * kByteChannels + channel;
        panels.set_int(((m / 4 * groups + row / 4) * 4 + m % 4) * 4 + row % 4,
                       weights.at_int((m * kByteChannels + channel) * taps + tap));
      }
  return panels;
}

Literal byte_integers(const Literal& bytes) {
  return value_of({"convert", {bytes}, {{"dtype", i32}}});
}

/// conv of x less its zero point is the same sums less the zero point times the sums of weights.
void expect_byte_conv(const ByteWindows& c) {
  const Literal x = any_bytes(u8, {2, 5, 6, kByteChannels}, 3);
  const Literal weights = any_bytes(i8, {kByteColumns, kByteChannels, c.kernel[0], c.kernel[1]}, 4);
  const Literal zero = Literal::scalar_int(u8, 117);
  ir::Attrs attrs = c.attrs();
  attrs["kernel"] = c.kernel;
  attrs["columns"] = kByteColumns;
  attrs["align"] = c.align;
  const Literal sums = value_of({"packed_int8_conv", {x, byte_panels_of(weights, c), zero}, attrs});
  const Literal of_weights = value_of({"reduce_sum",
                                       {byte_integers(weights)},
                                       {{"axes", ir::Sizes{1, 2, 3}}, {"keepdims", false}}});
  const Literal moved = value_of({"mul", {of_weights, Literal::scalar_int(i32, 117)}, {}});
  const Literal got = value_of({"sub", {sums, moved}, {}});
  const Literal centred = value_of({"sub", {byte_integers(x), Literal::scalar_int(i32, 117)}, {}});
  ir::Attrs conv = c.attrs();
  conv["groups"] = std::int64_t{1};
  conv["channels_last"] = true;
  expect_same(got, value_of({"conv", {centred, byte_integers(weights)}, conv}));
}

/// Two groups of 4 channels and 3 columns, whose panels of 4 columns have one that is of none.
TEST(PackedInt8Conv, OfGroups) {
  const ByteWindows c{.low = {1, 0}};
  const Literal x = any_bytes(u8, {2, 5, 6, 8}, 3);
  const Literal weights = any_bytes(i8, {6, 4, 3, 2}, 4);
  Literal panels(i8, {2, 6, 4, 4});
  for (std::int64_t m = 0; m < 6; ++m)
    for (std::int64_t channel = 0; channel < 4; ++channel)
      for (std::int64_t tap = 0; tap < 6; ++tap)
        panels.set_int(((m / 3 * 6 + tap) * 4 + m % 3) * 4 + channel,
                       weights.at_int((m * 4 + channel) * 6 + tap));
  ir::Attrs attrs = c.attrs();
  attrs["kernel"] = c.kernel;
  attrs["columns"] = std::int64_t{6};
  attrs["groups"] = std::int64_t{2};
  ir::Attrs conv = c.attrs();
  conv["groups"] = std::int64_t{2};
  conv["channels_last"] = true;
  const Literal zero = Literal::scalar_int(u8, 0);
  expect_same(value_of({"packed_int8_conv", {x, panels, zero}, attrs}),
              value_of({"conv", {byte_integers(x), byte_integers(weights)}, conv}));
}

TEST(PackedInt8Conv, IsConvOfTheBytes) {
  expect_byte_conv({});
  expect_byte_conv({.kernel = {1, 1}});
  expect_byte_conv({.strides = {2, 3}, .low = {1, 0}, .high = {0, 2}});
  expect_byte_conv({.kernel = {2, 3}, .low = {2, 2}, .high = {1, 1}, .dilations = {3, 2}});
  expect_byte_conv({.align = 8});
  expect_byte_conv({.kernel = {2, 3}, .low = {2, 2}, .high = {1, 1}, .align = 7});
}

/// x u8[1, 4, 4, 3], a kernel of 3 x 3 and 8 columns but for what is changed.
struct ByteConvCall {
  ir::TensorMeta x = meta(u8, {1, 4, 4, 3}), panels = meta(i8, {1, 7, 8, 4}), zero = meta(u8, {});
  ir::Attrs attrs{{"columns", std::int64_t{8}},   {"kernel", ir::Sizes{3, 3}},
                  {"strides", ir::Sizes{1, 1}},   {"pads_low", ir::Sizes{0, 0}},
                  {"pads_high", ir::Sizes{0, 0}}, {"dilations", ir::Sizes{1, 1}}};
  std::string error() const { return error_of("packed_int8_conv", {x, panels, zero}, attrs); }
};

void expect_byte_conv_error(const std::string& error, const std::string& begin) {
  EXPECT_EQ(error.find(begin), 0u) << error;
}

TEST(PackedInt8Conv, packed_int8_conv_c1) {
  constexpr const char* kText = "packed_int8_conv: C1 x and zero are u8 and panels are i8: ";
  EXPECT_EQ((ByteConvCall{.x = meta(i8, {1, 4, 4, 3})}.error()),
            std::string(kText) + "expected u8, got i8");
  EXPECT_EQ((ByteConvCall{.panels = meta(u8, {1, 7, 8, 4})}.error()),
            std::string(kText) + "expected i8, got u8");
  EXPECT_EQ((ByteConvCall{.zero = meta(i32, {})}.error()),
            std::string(kText) + "expected u8, got i32");
}

TEST(PackedInt8Conv, packed_int8_conv_c2) {
  for (const ByteConvCall& call :
       {ByteConvCall{.x = meta(u8, {4, 3})}, ByteConvCall{.panels = meta(i8, {1, 7, 32})},
        ByteConvCall{.zero = meta(u8, {1})}})
    expect_byte_conv_error(
        call.error(),
        "packed_int8_conv: C2 x has at least three dimensions, panels have four, zero "
        "has none: expected sizes [n, in..., c], [p, q, w, 4] and []");
}

TEST(PackedInt8Conv, packed_int8_conv_c3) {
  for (const ir::Sizes& kernel : {ir::Sizes{3}, ir::Sizes{3, 0}}) {
    ByteConvCall call;
    call.attrs["kernel"] = kernel;
    expect_byte_conv_error(
        call.error(),
        "packed_int8_conv: C3 kernel has one entry a spatial dimension, 1 or more: "
        "expected 2 entries of 1 or more");
  }
}

TEST(PackedInt8Conv, packed_int8_conv_c4) {
  ByteConvCall call;
  call.attrs["pads_low"] = ir::Sizes{0};
  expect_byte_conv_error(
      call.error(),
      "packed_int8_conv: C4 strides, pads_low, pads_high and dilations have one entry "
      "a spatial dimension: expected 2 pads_low");
}

TEST(PackedInt8Conv, packed_int8_conv_c5) {
  ByteConvCall call;
  call.attrs["strides"] = ir::Sizes{1, 0};
  expect_byte_conv_error(
      call.error(), "packed_int8_conv: C5 strides and dilations are at least 1, pads at least 0: ");
}

TEST(PackedInt8Conv, packed_int8_conv_c6) {
  EXPECT_EQ((ByteConvCall{.panels = meta(i8, {1, 7, 8, 2})}.error()),
            "packed_int8_conv: C6 the last dimension of panels is 4: expected 4, got 2");
}

TEST(PackedInt8Conv, packed_int8_conv_c7) {
  constexpr const char* kText =
      "packed_int8_conv: C7 groups is at least 1 and divides c and columns: ";
  for (const std::int64_t groups : {0, 2, 3}) {
    ByteConvCall call;
    call.attrs["groups"] = groups;
    expect_byte_conv_error(call.error(), kText);
  }
}

TEST(PackedInt8Conv, packed_int8_conv_c8) {
  constexpr const char* kText =
      "packed_int8_conv: C8 align is at least 1, q groups of 4 hold a window, and q - 1 do not: ";
  EXPECT_EQ((ByteConvCall{.panels = meta(i8, {1, 6, 8, 4})}.error()),
            std::string(kText) + "expected 7, got 6");
  ByteConvCall aligned;
  aligned.attrs["align"] = std::int64_t{64};
  EXPECT_EQ(aligned.error(), std::string(kText) + "expected 48, got 7");
  aligned.attrs["align"] = std::int64_t{0};
  EXPECT_EQ(aligned.error(), std::string(kText) + "expected 1 or more, got 0");
}

TEST(PackedInt8Conv, packed_int8_conv_c9) {
  expect_byte_conv_error((ByteConvCall{.panels = meta(i8, {2, 7, 8, 4})}.error()),
                         "packed_int8_conv: C9 each group's share of the p panels of w columns "
                         "holds its columns, and one less does not: ");
}

TEST(PackedInt8Conv, packed_int8_conv_c10) {
  expect_byte_conv_error((ByteConvCall{.x = meta(u8, {1, 2, 4, 3})}.error()),
                         "packed_int8_conv: C10 the kernel fits into the padded input: ");
}

TEST(PackedInt8Conv, packed_int8_conv_c11) {
  const ByteConvCall call;
  for (const ir::TensorMeta& flag : {meta(i32, {}), meta(boolean, {1})})
    expect_byte_conv_error(
        error_of("packed_int8_conv", {call.x, call.panels, call.zero, flag}, call.attrs),
        "packed_int8_conv: C11 pairs_fit is a bool without dimensions: ");
}

}  // namespace
}  // namespace heddle::testing
