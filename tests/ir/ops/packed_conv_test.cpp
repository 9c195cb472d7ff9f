// packed_conv against conv, and its constraints.
#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Literal;

struct PanelWindows {
  ir::Sizes kernel{3, 2}, strides{1, 1}, dilations{1, 1};
  std::int64_t groups = 1;
};

constexpr std::int64_t kPanelWidth = 4;
constexpr std::int64_t kColumnsOfGroup = 5;
constexpr std::int64_t kChannelsOfGroup = 3;

/// Weights [columns, channels of a group, kernel...] in panels of 4 columns, two for each group.
Literal panels_of_groups(const Literal& weights, const PanelWindows& c) {
  const std::int64_t taps = c.kernel[0] * c.kernel[1];
  const std::int64_t depth = taps * kChannelsOfGroup;
  Literal panels(f32, {c.groups, 2, depth, kPanelWidth});
  for (std::int64_t m = 0; m < c.groups * kColumnsOfGroup; ++m)
    for (std::int64_t channel = 0; channel < kChannelsOfGroup; ++channel)
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        const std::int64_t column = m % kColumnsOfGroup;
        const std::int64_t panel = m / kColumnsOfGroup * 2 + column / kPanelWidth;
        const std::int64_t row = tap * kChannelsOfGroup + channel;
        panels.set((panel * depth + row) * kPanelWidth + column % kPanelWidth,
                   weights.at((m * kChannelsOfGroup + channel) * taps + tap));
      }
  return panels;
}

void expect_conv(const PanelWindows& c) {
  const Literal x = noise(f32, {2, 7, 8, c.groups * kChannelsOfGroup}, 3);
  const Literal weights =
      noise(f32, {c.groups * kColumnsOfGroup, kChannelsOfGroup, c.kernel[0], c.kernel[1]}, 4);
  const Literal got = value_of({"packed_conv",
                                {x, panels_of_groups(weights, c)},
                                {{"columns", c.groups * kColumnsOfGroup},
                                 {"kernel", c.kernel},
                                 {"strides", c.strides},
                                 {"dilations", c.dilations}}});
  const ir::Sizes none{0, 0};
  expect_close(got,
               value_of({"conv",
                         {x, weights},
                         {{"strides", c.strides},
                          {"pads_low", none},
                          {"pads_high", none},
                          {"dilations", c.dilations},
                          {"groups", c.groups},
                          {"channels_last", true}}}),
               1e-6);
}

TEST(PackedConv, IsConv) {
  expect_conv({});
  expect_conv({.kernel = {1, 1}});
  expect_conv({.strides = {2, 3}});
  expect_conv({.kernel = {2, 3}, .dilations = {3, 2}});
  expect_conv({.strides = {2, 1}, .groups = 3});
}

/// x f32[1, 5, 5, 4], a kernel of 3 x 3 and 6 columns in two groups but for what is changed.
struct PanelCall {
  ir::TensorMeta x = meta(f32, {1, 5, 5, 4}), panels = meta(f32, {2, 1, 18, 4});
  ir::Attrs attrs{{"columns", std::int64_t{6}},
                  {"kernel", ir::Sizes{3, 3}},
                  {"strides", ir::Sizes{1, 1}},
                  {"dilations", ir::Sizes{1, 1}}};
  std::string error() const { return error_of("packed_conv", {x, panels}, attrs); }
};

void expect_panel_error(const std::string& error, const std::string& begin) {
  EXPECT_EQ(error.find(begin), 0u) << error;
}

TEST(PackedConv, packed_conv_c1) {
  EXPECT_EQ((PanelCall{.x = meta(f16, {1, 5, 5, 4})}.error()),
            "packed_conv: C1 x and panels are f32: expected f32, got f16");
  EXPECT_EQ((PanelCall{.panels = meta(i32, {2, 1, 18, 4})}.error()),
            "packed_conv: C1 x and panels are f32: expected f32, got i32");
}

TEST(PackedConv, packed_conv_c2) {
  for (const PanelCall& call :
       {PanelCall{.x = meta(f32, {5, 4})}, PanelCall{.panels = meta(f32, {2, 18, 4})}})
    expect_panel_error(call.error(),
                       "packed_conv: C2 x has at least three dimensions, panels have four: "
                       "expected sizes [n, in..., c] and [g, p, q, w]");
}

TEST(PackedConv, packed_conv_c3) {
  for (const char* name : {"kernel", "strides", "dilations"})
    for (const ir::Sizes& values : {ir::Sizes{1}, ir::Sizes{1, 0}}) {
      PanelCall call;
      call.attrs[name] = values;
      expect_panel_error(call.error(),
                         "packed_conv: C3 kernel, strides and dilations have one entry a spatial "
                         "dimension, 1 or more: expected 2 " +
                             std::string(name));
    }
}

TEST(PackedConv, packed_conv_c4) {
  expect_panel_error((PanelCall{.panels = meta(f32, {2, 1, 17, 4})}.error()),
                     "packed_conv: C4 g matrices of q rows hold a window: expected 36, got 34");
}

TEST(PackedConv, packed_conv_c5) {
  PanelCall call;
  call.attrs["columns"] = std::int64_t{7};
  expect_panel_error(call.error(), "packed_conv: C5 columns are a multiple of g: ");
}

TEST(PackedConv, packed_conv_c6) {
  expect_panel_error((PanelCall{.panels = meta(f32, {2, 2, 18, 4})}.error()),
                     "packed_conv: C6 p panels of w columns hold the columns of a group, and p - 1 "
                     "do not: expected 1, got 2");
}

TEST(PackedConv, packed_conv_c7) {
  PanelCall call;
  call.attrs["dilations"] = ir::Sizes{1, 3};
  expect_panel_error(call.error(), "packed_conv: C7 the kernel fits into x: ");
}

}  // namespace
}  // namespace heddle::testing
