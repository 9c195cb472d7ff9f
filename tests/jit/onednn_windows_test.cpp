// The direct algorithm by a kernel of ours, against sums in double precision.
#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include "jit/cpu/onednn/windows.h"
#include "tests/jit/conv_sums.h"
#include "tests/support/draw.h"
#include "tests/support/nightly.h"

namespace heddle::jit::onednn {
namespace {

using Kind = EpilogueOp::Kind;
using test::Draw;

/// Lists have one entry a spatial dimension.
struct WindowsCase {
  std::int64_t batch = 1, channels = 1, results = 1;  ///< of each group
  Ints sizes{7, 9}, kernel{3, 3}, strides{1, 1}, steps{1, 1}, low{1, 1}, high{1, 1};
  bool biased = true, adds = false, in_place = false;
  std::int64_t groups = 1;
  std::int64_t panels = 0;  ///< that a call computes; 0: all

  Problem problem() const {
    Problem p{.x = {batch, groups * channels},
              .weights = {results, channels},
              .result = {batch, groups * results},
              .has_bias = biased,
              .strides = strides,
              .dilations = {},
              .pads_low = low,
              .pads_high = high,
              .channels_last = true};
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      const std::int64_t reach = (kernel[d] - 1) * steps[d] + 1;
      p.x.push_back(sizes[d]);
      p.weights.push_back(kernel[d]);
      p.result.push_back((sizes[d] + low[d] + high[d] - reach) / strides[d] + 1);
      p.dilations.push_back(steps[d] - 1);
    }
    if (groups > 1) p.weights.insert(p.weights.begin(), groups);
    return p;
  }
};

std::string windows_text(const WindowsCase& c) {
  std::string text = std::to_string(c.channels) + " to " + std::to_string(c.results);
  const auto add = [&](const char* name, const Ints& list) {
    text += std::string(", ") + name;
    for (const std::int64_t value : list) text += " " + std::to_string(value);
  };
  add("sizes", c.sizes);
  add("kernel", c.kernel);
  add("strides", c.strides);
  add("steps", c.steps);
  add("low", c.low);
  add("high", c.high);
  add("groups", {c.groups});
  return text;
}

/// The kernel's result, with relu behind it.
Floats windows_of_case(const WindowsCase& c, const ConvData& data, KernelIsa isa) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const Problem p = c.problem();
  Floats packed(count_of(window_weights(p, isa)), kNan);
  pack_window_weights(p, data.weights.data(), packed.data(), isa);
  struct alignas(64) Line {
    float floats[16];
  };
  std::vector<Line> scratch(static_cast<std::size_t>(window_scratch(p, isa)) / sizeof(Line) + 1);
  std::memset(static_cast<void*>(scratch.data()), 0xff, scratch.size() * sizeof(Line));
  Floats out = c.in_place ? data.added : Floats(data.added.size(), kNan);
  const float* added = c.in_place ? out.data() : data.added.data();
  const TailOp relu{{.kind = Kind::Clamp, .low = 0}};
  const std::int64_t panels = window_panels(p, isa);
  const std::int64_t each = c.panels == 0 ? panels : c.panels;
  for (std::int64_t begin = 0; begin < panels; begin += each)
    run_windows(p, data.x.data(), packed.data(), c.biased ? data.bias.data() : nullptr,
                c.adds ? added : nullptr, {&relu, 1}, out.data(), scratch.data(),
                Panels{begin, std::min(begin + each, panels)}, isa);
  return out;
}

void expect_windows(const WindowsCase& c) {
  const Problem p = c.problem();
  ASSERT_TRUE(has_windows(p));
  const ConvData data(p);
  for (const KernelIsa isa : kernel_isas()) {
    SCOPED_TRACE(isa == KernelIsa::Avx512 ? "AVX-512" : isa == KernelIsa::Avx2 ? "AVX2" : "any");
    EXPECT_LE(worst_error(p, data, c.adds, windows_of_case(c, data, isa)), 4e-6) << windows_text(c);
  }
}

/// Panels of one to three vectors, several of them, and a last vector that is not full.
TEST(Windows, OfAnyNumberOfResults) {
  for (std::int64_t results = 1; results <= 150; results += results < 20 ? 1 : 7)
    expect_windows({.channels = 5, .results = results});
}

/// Parts of several rows of taps, of some taps of a row, and of some channels of a tap.
TEST(Windows, OfAnyNumberOfChannels) {
  for (const std::int64_t channels : {1, 3, 8, 31, 32, 64, 100, 129, 300, 700})
    for (const std::int64_t results : {16, 24, 64, 100})
      expect_windows({.channels = channels, .results = results});
}

/// Images of a tile and less, rows longer than a block, and blocks that begin and end within rows.
TEST(Windows, OfEveryEdge) {
  for (std::int64_t height = 1; height <= 5; ++height)
    for (const std::int64_t width : {1, 2, 3, 5, 8, 11, 40, 95, 96, 97, 200})
      for (const std::int64_t channels : {4, 32})
        expect_windows({.channels = channels, .results = 40, .sizes = {height, width}});
}

TEST(Windows, OfEveryPadding) {
  for (std::int64_t low = 0; low <= 4; ++low)
    for (std::int64_t high = 0; high <= 4; ++high)
      for (const std::int64_t channels : {4, 32}) {
        expect_windows({.channels = channels, .results = 48, .low = {1, low}, .high = {1, high}});
        expect_windows({.channels = channels, .results = 48, .low = {low, 1}, .high = {high, 1}});
      }
}

TEST(Windows, MovesBySteps) {
  for (const std::int64_t stride : {1, 2, 3, 5})
    for (const std::int64_t step : {1, 2, 4})
      for (const std::int64_t channels : {4, 32}) {
        WindowsCase c{.channels = channels, .results = 40, .sizes = {11, 30}};
        c.strides = {stride, 1};
        c.steps = {1, step};
        c.low = c.high = {1, step};
        expect_windows(c);
        c.strides = {1, stride};
        c.steps = {step, 1};
        c.low = c.high = {step, 1};
        expect_windows(c);
      }
}

/// Rows and volumes, kernels of one element, and of more elements than x has.
TEST(Windows, OfOtherKernels) {
  expect_windows({.channels = 20,
                  .results = 40,
                  .sizes = {1, 300},
                  .kernel = {1, 39},
                  .low = {0, 19},
                  .high = {0, 19}});
  expect_windows({.channels = 70, .results = 33, .kernel = {1, 1}, .low = {0, 0}, .high = {0, 0}});
  expect_windows({.channels = 70,
                  .results = 33,
                  .sizes = {20, 20},
                  .kernel = {1, 1},
                  .strides = {2, 2},
                  .low = {0, 0},
                  .high = {0, 0}});
  expect_windows({.channels = 6, .results = 20, .kernel = {9, 11}, .low = {5, 6}, .high = {5, 4}});
  for (const std::int64_t channels : {3, 40})
    expect_windows({.batch = 2,
                    .channels = channels,
                    .results = 36,
                    .sizes = {4, 5, 6},
                    .kernel = {3, 2, 3},
                    .strides = {1, 2, 1},
                    .steps = {1, 1, 2},
                    .low = {1, 0, 2},
                    .high = {1, 1, 2}});
}

TEST(Windows, AddsWhatIsThere) {
  for (const bool in_place : {false, true})
    for (const bool biased : {false, true})
      for (const std::int64_t results : {48, 50})
        expect_windows({.batch = 3,
                        .channels = 12,
                        .results = results,
                        .sizes = {9, 30},
                        .biased = biased,
                        .adds = true,
                        .in_place = in_place});
}

/// Of one channel, of fewer than a vector has lanes, and of several panels.
TEST(Windows, OfGroups) {
  for (const std::int64_t groups : {2, 3, 16})
    for (const std::int64_t channels : {1, 5, 40})
      for (const std::int64_t results : {1, 4, 12, 17, 72})
        expect_windows({.channels = channels,
                        .results = results,
                        .sizes = {5, 23},
                        .strides = {1, 2},
                        .adds = results == 12,
                        .groups = groups});
}

/// Calls for some panels, of one group and of the next, each write their channels and no others.
TEST(Windows, OfSomePanelsAtATime) {
  for (const std::int64_t groups : {1, 3})
    for (const std::int64_t results : {72, 100})
      for (const std::int64_t panels : {1, 2, 3})
        for (const bool adds : {false, true})
          expect_windows({.channels = 5,
                          .results = results,
                          .sizes = {7, 23},
                          .adds = adds,
                          .in_place = adds,
                          .groups = groups,
                          .panels = panels});
}

/// A part of the rows is, bit for bit, what the whole has there.
TEST(Windows, SumsAreTheSameInParts) {
  const WindowsCase c{.channels = 40, .results = 72, .sizes = {31, 23}, .strides = {2, 1}};
  const Problem p = c.problem();
  const ConvData data(p);
  for (const KernelIsa isa : kernel_isas()) {
    const Floats whole = windows_of_case(c, data, isa);
    const Cut cut{.axis = 2, .slices = 5};
    for (std::int64_t k = 0; k < cut.parts(); ++k) {
      const std::optional<PartOf> part = part_of(p, cut, k);
      ASSERT_TRUE(part);
      WindowsCase some = c;
      some.sizes = {part->problem.x[2], part->problem.x[3]};
      some.low = part->problem.pads_low;
      some.high = part->problem.pads_high;
      ConvData cropped = data;
      cropped.x.erase(cropped.x.begin(), cropped.x.begin() + part->x_offset);
      cropped.added.resize(count_of(part->problem.result));
      const Floats got = windows_of_case(some, cropped, isa);
      EXPECT_TRUE(std::equal(got.begin(), got.end(), whole.begin() + part->result_offset)) << k;
    }
  }
}

WindowsCase random_windows_case(Draw& draw) {
  WindowsCase c{.batch = draw(1, 3),
                .channels = draw.one_in(2) ? draw(1, 40) : draw(32, 200),
                .results = draw.one_in(2) ? draw(1, 40) : draw(33, 140)};
  for (Ints* list : {&c.sizes, &c.kernel, &c.strides, &c.steps, &c.low, &c.high}) list->clear();
  const std::int64_t rank = draw.one_in(4) ? 3 : 2;
  for (std::int64_t d = 0; d < rank; ++d) {
    const std::int64_t taps = draw.one_in(6) ? draw(6, 12) : draw(1, 5);
    const std::int64_t step = draw.one_in(4) ? draw(2, 3) : 1;
    const std::int64_t reach = (taps - 1) * step + 1;
    c.kernel.push_back(taps);
    c.steps.push_back(step);
    c.strides.push_back(draw.one_in(3) ? draw(2, 4) : 1);
    c.low.push_back(draw.one_in(2) ? reach / 2 : draw(0, reach));
    c.high.push_back(draw.one_in(2) ? reach / 2 : draw(0, reach));
    const std::int64_t least = std::max<std::int64_t>(1, reach - c.low.back() - c.high.back());
    c.sizes.push_back(least + draw(0, d + 1 == rank ? 120 : 12 / rank));
  }
  if (draw.one_in(4)) {
    c.groups = draw(2, 9);
    c.channels = (c.channels + c.groups - 1) / c.groups;
    c.results = (c.results + c.groups - 1) / c.groups;
  }
  c.biased = draw.one_in(2);
  c.adds = draw.one_in(3);
  c.in_place = c.adds && draw.one_in(2);
  return c;
}

TEST(Windows, OfRandomShapes) {
  const std::uint32_t count = test::is_nightly() ? 1500 : 40;
  for (std::uint32_t seed = 0; seed < count; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Draw draw(seed);
    expect_windows(random_windows_case(draw));
    if (HasFailure()) return;
  }
}

TEST(Windows, NeedChannelsLast) {
  Problem p = WindowsCase{.channels = 8, .results = 32}.problem();
  EXPECT_TRUE(has_windows(p));
  p.channels_last = false;
  EXPECT_FALSE(has_windows(p));
}

}  // namespace
}  // namespace heddle::jit::onednn
