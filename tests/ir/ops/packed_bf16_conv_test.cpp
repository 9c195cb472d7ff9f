// packed_bf16_conv against conv of the same numbers in f32, and its constraints.
#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Literal;

struct Bf16Windows {
  ir::Sizes kernel{3, 2}, strides{1, 1}, low{0, 0}, high{0, 0}, dilations{1, 1};
  std::int64_t align = 1;
  ir::Attrs attrs() const {
    return {{"strides", strides}, {"pads_low", low}, {"pads_high", high}, {"dilations", dilations}};
  }
};

constexpr std::int64_t kPairChannels = 3;
constexpr std::int64_t kPairColumns = 5;

/// Weights [columns, channels, kernel...] in panels of 4 columns.
Literal pair_panels_of(const Literal& weights, const Bf16Windows& c) {
  const std::int64_t taps = c.kernel[0] * c.kernel[1];
  const std::int64_t run = c.kernel[1] * kPairChannels;
  const std::int64_t run_rows = (run + c.align - 1) / c.align * c.align;
  const std::int64_t groups = (c.kernel[0] * run_rows + 1) / 2;
  Literal panels(bf16, {2, groups, 4, 2});
  for (std::int64_t m = 0; m < kPairColumns; ++m)
    for (std::int64_t channel = 0; channel < kPairChannels; ++channel)
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        const std::int64_t row =
            tap / c.kernel[1] * run_rows + tap % c.kernel[1] * kPairChannels + channel;
        panels.set(((m / 4 * groups + row / 2) * 4 + m % 4) * 2 + row % 2,
                   weights.at((m * kPairChannels + channel) * taps + tap));
      }
  return panels;
}

Literal converted_to(DType dtype, const Literal& tensor) {
  return value_of({"convert", {tensor}, {{"dtype", dtype}}});
}

void expect_pair_conv(const Bf16Windows& c) {
  const Literal x = converted_to(bf16, noise(f32, {2, 5, 6, kPairChannels}, 3));
  const Literal weights =
      converted_to(bf16, noise(f32, {kPairColumns, kPairChannels, c.kernel[0], c.kernel[1]}, 4));
  ir::Attrs attrs = c.attrs();
  attrs["kernel"] = c.kernel;
  attrs["columns"] = kPairColumns;
  attrs["align"] = c.align;
  ir::Attrs conv = c.attrs();
  conv["groups"] = std::int64_t{1};
  conv["channels_last"] = true;
  expect_close(value_of({"packed_bf16_conv", {x, pair_panels_of(weights, c)}, attrs}),
               value_of({"conv", {converted_to(f32, x), converted_to(f32, weights)}, conv}), 1e-5);
}

TEST(PackedBf16Conv, IsConvOfTheSameNumbers) {
  expect_pair_conv({});
  expect_pair_conv({.kernel = {1, 1}});
  expect_pair_conv({.strides = {2, 3}, .low = {1, 0}, .high = {0, 2}});
  expect_pair_conv({.kernel = {2, 3}, .low = {2, 2}, .high = {1, 1}, .dilations = {3, 2}});
  expect_pair_conv({.kernel = {2, 3}, .low = {2, 2}, .high = {1, 1}, .align = 8});
}

/// x bf16[1, 4, 4, 3], a kernel of 3 x 3 and 8 columns but for what is changed.
struct PairConvCall {
  ir::TensorMeta x = meta(bf16, {1, 4, 4, 3}), panels = meta(bf16, {1, 14, 8, 2});
  ir::Attrs attrs{{"columns", std::int64_t{8}},   {"kernel", ir::Sizes{3, 3}},
                  {"strides", ir::Sizes{1, 1}},   {"pads_low", ir::Sizes{0, 0}},
                  {"pads_high", ir::Sizes{0, 0}}, {"dilations", ir::Sizes{1, 1}}};
  std::string error() const { return error_of("packed_bf16_conv", {x, panels}, attrs); }
};

void expect_pair_conv_error(const PairConvCall& call, const std::string& begin) {
  const std::string error = call.error();
  EXPECT_EQ(error.find("packed_bf16_conv: " + begin), 0u) << error;
}

PairConvCall with_attr(const std::string& name, const ir::Sizes& value) {
  PairConvCall call;
  call.attrs[name] = value;
  return call;
}

TEST(PackedBf16Conv, packed_bf16_conv_c1) {
  expect_pair_conv_error({.x = meta(f32, {1, 4, 4, 3})},
                         "C1 x and panels are bf16: expected bf16, got f32");
  expect_pair_conv_error({.panels = meta(f16, {1, 14, 8, 2})},
                         "C1 x and panels are bf16: expected bf16, got f16");
}

TEST(PackedBf16Conv, packed_bf16_conv_c2) {
  constexpr const char* kText =
      "C2 x has at least three dimensions, panels have four: expected sizes [n, in..., c] and "
      "[p, q, w, 2]";
  expect_pair_conv_error({.x = meta(bf16, {4, 3})}, kText);
  expect_pair_conv_error({.panels = meta(bf16, {1, 14, 16})}, kText);
}

TEST(PackedBf16Conv, packed_bf16_conv_c3) {
  for (const ir::Sizes& kernel : {ir::Sizes{3}, ir::Sizes{3, 0}})
    expect_pair_conv_error(with_attr("kernel", kernel),
                           "C3 kernel has one entry a spatial dimension, 1 or more: "
                           "expected 2 entries of 1 or more");
}

TEST(PackedBf16Conv, packed_bf16_conv_c4) {
  expect_pair_conv_error(with_attr("pads_low", {0}),
                         "C4 strides, pads_low, pads_high and dilations have one entry a spatial "
                         "dimension: expected 2 pads_low");
}

TEST(PackedBf16Conv, packed_bf16_conv_c5) {
  expect_pair_conv_error(with_attr("strides", {1, 0}),
                         "C5 strides and dilations are at least 1, pads at least 0: ");
}

TEST(PackedBf16Conv, packed_bf16_conv_c6) {
  expect_pair_conv_error({.panels = meta(bf16, {1, 14, 8, 4})},
                         "C6 the last dimension of panels is 2: expected 2, got 4");
}

TEST(PackedBf16Conv, packed_bf16_conv_c8) {
  expect_pair_conv_error(
      {.panels = meta(bf16, {1, 13, 8, 2})},
      "C8 align is at least 1, q groups of 2 hold a window, and q - 1 do not: expected 14, got 13");
}

TEST(PackedBf16Conv, packed_bf16_conv_c9) {
  expect_pair_conv_error({.panels = meta(bf16, {2, 14, 8, 2})},
                         "C9 each group's share of the p panels of w columns holds its columns, "
                         "and one less does not: ");
}

TEST(PackedBf16Conv, packed_bf16_conv_c10) {
  expect_pair_conv_error({.x = meta(bf16, {1, 2, 4, 3})},
                         "C10 the kernel fits into the padded input: ");
}

}  // namespace
}  // namespace heddle::testing
