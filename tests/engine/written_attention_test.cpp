// Attention as models write it out: one kernel, with the elements that the products and the softmax give one by one,
// rows that see nothing included.
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include "heddle/heddle.h"

namespace hd = heddle;

namespace {

constexpr const char* kText = R"(
graph @main(%x: f32[s0, s1, 24], %mask: f32[s0, 1, s1, s1], %keep: bool[s1, s1]) {
  %h = reshape(%x) {sizes = [s0, s1, 3, 8]}
  %q = permute(%h) {perm = [0, 2, 1, 3]}
  %k = permute(%h) {perm = [0, 2, 3, 1]}
  %s = matmul(%q, %k)
  %d = div(%s, 2.5: f32)
  %a = add(%d, %mask)
  %p = softmax(%a) {axis = 3}
  %r = matmul(%p, %q)
  %o = permute(%r) {perm = [0, 2, 1, 3]}
  %y = reshape(%o) {sizes = [s0, s1, 24]}
  %s2 = matmul(%q, %k)
  %a2 = where(%keep, %s2, HIDDEN: f32)
  %p2 = softmax(%a2) {axis = -1}
  %z = matmul(%p2, %q)
  return %y, %z
}
)";

std::string text_with(const std::string& hidden) {
  std::string text = kText;
  return text.replace(text.find("HIDDEN"), 6, hidden);
}

std::vector<hd::Tensor> inputs(std::int64_t batch, std::int64_t length) {
  hd::Tensor x = hd::Tensor::empty(hd::f32, {batch, length, 24});
  hd::Tensor mask = hd::Tensor::empty(hd::f32, {batch, 1, length, length});
  hd::Tensor keep = hd::Tensor::empty(hd::boolean, {length, length});
  const float hidden = -std::numeric_limits<float>::infinity();
  for (std::int64_t k = 0; k < x.count(); ++k)
    x.data_as<float>()[k] = static_cast<float>((k * 37) % 101) * 0.02f - 1;
  for (std::int64_t k = 0; k < mask.count(); ++k)
    mask.data_as<float>()[k] =
        k % 7 == 3 || k / length % 5 == 4 ? hidden : 0.1f * static_cast<float>(k % 3);
  for (std::int64_t k = 0; k < keep.count(); ++k)
    keep.data_as<bool>()[k] = (k * 13) % 4 != 1 && k / length % 6 != 2;
  return {x, mask, keep};
}

TEST(WrittenAttention, IsOneKernelWithTheSameElements) {
  for (const char* hidden : {"-inf", "-10000.0", "-2.0"}) {
    const std::string text = text_with(hidden);
    hd::Engine formed = hd::parse_ir(text);
    hd::Engine apart = hd::parse_ir(text, {.skip_passes = {"form-attention"}});
    hd::Engine reference =
        hd::parse_ir(text, {.device = hd::Device::reference(), .skip_passes = {"form-attention"}});
    std::size_t empty_rows = 0;
    for (const auto& [batch, length] : {std::pair{1, 7}, {2, 70}, {3, 64}, {1, 1}, {2, 0}}) {
      const std::vector<hd::Tensor> given = inputs(batch, length);
      const auto want = reference.run(given);
      const auto got = formed.run(given);
      const auto written = apart.run(given);
      for (std::size_t k = 0; k < want.size(); ++k) {
        const std::vector<double> a = want[k].to_doubles();
        const std::vector<double> b = got[k].to_doubles();
        const std::vector<double> c = written[k].to_doubles();
        ASSERT_EQ(a.size(), b.size());
        for (std::size_t i = 0; i < a.size(); ++i) {
          ASSERT_EQ(std::isnan(a[i]), std::isnan(b[i]))
              << hidden << ", output " << k << ", element " << i;
          ASSERT_EQ(std::isnan(a[i]), std::isnan(c[i]))
              << hidden << ", output " << k << ", element " << i;
          empty_rows += std::isnan(a[i]) ? 1 : 0;
          if (std::isnan(a[i])) continue;
          ASSERT_NEAR(a[i], b[i], 1e-5) << hidden << ", output " << k << ", element " << i;
        }
      }
    }
    EXPECT_GT(empty_rows, 0u) << hidden;
    EXPECT_EQ(formed.stats().kernels, 2u) << hidden;
    EXPECT_GT(apart.stats().kernels, 3u) << hidden;
  }
}

/// Masks of windows: 0, or -100 as models write what is hidden, whose weights are subnormal.
constexpr const char* kWindows = R"(
graph @main(%q: f32[4*s0, 3, 19, 8], %k: f32[4*s0, 3, 19, 8], %v: f32[4*s0, 3, 19, 8], %bias: f32[1, 3, 19, 19], %mask: f32[4, 19, 19]) {
  %t = permute(%k) {perm = [0, 1, 3, 2]}
  %s = matmul(%q, %t)
  %b = add(%s, %bias)
  %w = reshape(%b) {sizes = [s0, 4, 3, 19, 19]}
  %m = reshape(%mask) {sizes = [1, 4, 1, 19, 19]}
  %a = add(%w, %m)
  %f = reshape(%a) {sizes = [4*s0, 3, 19, 19]}
  %p = softmax(%f) {axis = 3}
  %r = matmul(%p, %v)
  return %r
}
)";

TEST(WrittenAttention, OfWindowsWithTwoMasksIsOneKernel) {
  std::string one = kWindows;
  for (std::size_t at; (at = one.find("4*s0")) != std::string::npos;) one.replace(at, 4, "4");
  one.replace(one.find("[s0, 4"), 6, "[1, 4");
  for (const auto& [text, images] :
       {std::pair<std::string, std::int64_t>{kWindows, 1}, {kWindows, 3}, {one, 1}}) {
    std::vector<hd::Tensor> given;
    for (int k = 0; k < 3; ++k) given.push_back(hd::Tensor::empty(hd::f32, {4 * images, 3, 19, 8}));
    given.push_back(hd::Tensor::empty(hd::f32, {1, 3, 19, 19}));
    given.push_back(hd::Tensor::empty(hd::f32, {4, 19, 19}));
    for (std::size_t k = 0; k < given.size(); ++k)
      for (std::int64_t i = 0; i < given[k].count(); ++i)
        given[k].data_as<float>()[i] =
            k == 4
                ? ((i * 7 + i / 19) % 5 < 2 ? -100.0f : 0.0f)
                : static_cast<float>((i * 37 + static_cast<std::int64_t>(k) * 11) % 101) * 0.02f -
                      1;
    hd::Engine formed = hd::parse_ir(text);
    hd::Engine reference =
        hd::parse_ir(text, {.device = hd::Device::reference(), .skip_passes = {"form-attention"}});
    const std::vector<double> want = reference.run(given)[0].to_doubles();
    const std::vector<double> got = formed.run(given)[0].to_doubles();
    ASSERT_EQ(want.size(), got.size());
    for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(want[i], got[i], 1e-5) << i;
    EXPECT_NE(formed.plan_json(given).find("attention"), std::string::npos);
  }
}

TEST(WrittenAttention, ScoresTakeNoMemory) {
  const std::string text = text_with("-inf");
  const std::vector<hd::Tensor> given = inputs(1, 256);
  const auto peak = [&](const hd::EngineOptions& options) {
    hd::Engine engine = hd::parse_ir(text, options);
    engine.run(given);
    return engine.stats().arena_peak_bytes;
  };
  const std::uint64_t scores = 4 * 3 * 256 * 256;
  EXPECT_LT(peak({}), scores / 4);
  EXPECT_GE(peak({.skip_passes = {"form-attention"}}), scores);
}

TEST(WrittenAttention, StaysWrittenOutWithoutFusion) {
  hd::Engine engine = hd::parse_ir(text_with("-inf"), {.fuse = false});
  engine.run(inputs(1, 7));
  EXPECT_GT(engine.stats().kernels, 6u);
}

}  // namespace
