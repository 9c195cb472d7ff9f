// The parts of a convolution: each element is one's, with the bits that the whole has there, and threads have about as much.
#include <algorithm>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "jit/cpu/onednn/cut.h"
#include "jit/library.h"

namespace heddle::jit {
namespace {

using onednn::Algorithm;
using onednn::Cut;
using onednn::Ints;
using onednn::Problem;

struct CutCase {
  std::int64_t batch, size, in, out;
  std::int64_t stride = 1;

  std::string text() const {
    return std::to_string(batch) + " of " + std::to_string(size) + ", " + std::to_string(in) +
           " to " + std::to_string(out) + " by " + std::to_string(stride);
  }
  std::int64_t result_size() const { return (size - 1) / stride + 1; }
  Problem problem() const {
    return {.x = {batch, in, size, size},
            .weights = {out, in, 3, 3},
            .result = {batch, out, result_size(), result_size()},
            .strides = {stride, stride},
            .dilations = {0, 0},
            .pads_low = {1, 1},
            .pads_high = {1, 1},
            .channels_last = true};
  }
};

std::vector<float> drawn(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(state >> 8) * 0x1p-24f - 0.5f;
  }
  return values;
}

/// The convolution bound for so many threads, with its operands: a bias, and a relu behind it.
class BoundCase {
 public:
  BoundCase(const CutCase& c, std::uint32_t way, int threads)
      : x_(drawn(c.batch * c.size * c.size * c.in)),
        weights_(drawn(c.out * c.in * 9)),
        bias_(drawn(c.out)),
        result_(static_cast<std::size_t>(c.batch * c.result_size() * c.result_size() * c.out)) {
    const Ints x{c.batch, c.size, c.size, c.in};
    const Ints filters{c.out, c.in, 3, 3};
    const Ints result{c.batch, c.result_size(), c.result_size(), c.out};
    LibraryCall call;
    call.name = "conv";
    call.attrs = {{"strides", Ints{c.stride, c.stride}},
                  {"dilations", Ints{1, 1}},
                  {"pads_low", Ints{1, 1}},
                  {"pads_high", Ints{1, 1}},
                  {"groups", std::int64_t{1}},
                  {"channels_last", true}};
    call.inputs = {meta(x), meta(filters), meta({c.out})};
    call.outputs = {meta(result)};
    call.node_inputs = 3;
    call.epilogue.push_back({.kind = EpilogueOp::Kind::Clamp, .low = 0});
    const std::vector<LibraryOperand> operands{
        {x, nullptr}, {filters, weights_.data()}, {{c.out}, bias_.data()}, {result, nullptr}};
    bound_ = bind_library_call(call, operands, threads, {.way = way});
    scratch_.resize(static_cast<std::size_t>(bound_->scratch_bytes()) / sizeof(Line) + 1);
  }

  std::int64_t extent() const { return bound_->extent(); }
  /// The result, `each` parts a call, or in one call of all.
  std::vector<float> result_in_parts(std::int64_t each) {
    std::ranges::fill(result_, std::numeric_limits<float>::quiet_NaN());
    void* buffers[] = {x_.data(), weights_.data(), bias_.data(), result_.data()};
    for (std::int64_t k = 0; k < extent(); k += each)
      bound_->run(buffers, k, std::min(k + each, extent()), scratch_.data());
    return result_;
  }

 private:
  struct alignas(64) Line {
    float floats[16];
  };
  static ir::TensorMeta meta(const Ints& sizes) {
    ir::Dims dims;
    for (const std::int64_t size : sizes) dims.emplace_back(size);
    return ir::TensorMeta::of(DType::F32, dims);
  }

  std::vector<float> x_, weights_, bias_, result_;
  std::vector<Line> scratch_;
  std::unique_ptr<BoundLibraryCall> bound_;
};

const std::vector<CutCase>& cut_cases() {
  static const std::vector<CutCase> cases{
      {1, 14, 256, 256},    {1, 7, 512, 512},   {1, 7, 64, 72}, {1, 28, 128, 128},
      {1, 56, 64, 64},      {3, 14, 64, 128},   {5, 7, 64, 80}, {17, 7, 32, 64},
      {1, 14, 256, 512, 2}, {2, 20, 64, 64, 2}, {1, 5, 48, 40}, {4, 3, 16, 200},
      {1, 1, 64, 256},      {2, 40, 24, 24}};
  return cases;
}

TEST(OneDnnCut, PartsGiveTheBitsOfTheWhole) {
  for (const CutCase& c : cut_cases())
    for (std::uint32_t way = 0; way < (c.stride == 1 ? 3u : 1u); ++way) {
      const std::vector<float> expected = BoundCase(c, way, 1).result_in_parts(1 << 20);
      for (const int threads : {2, 3, 8, 16, 61}) {
        BoundCase bound(c, way, threads);
        for (const std::int64_t each : {std::int64_t{1}, std::int64_t{3}, bound.extent()})
          EXPECT_TRUE(bound.result_in_parts(each) == expected)
              << c.text() << ", way " << way << ", " << threads << " threads, " << each << " of "
              << bound.extent() << " parts a call";
      }
    }
}

/// Parts that cover each slice of each image and each panel once.
TEST(OneDnnCut, EveryElementIsOnePart) {
  for (const CutCase& c : cut_cases())
    for (const Algorithm algorithm : {Algorithm::Winograd, Algorithm::Windows})
      for (const int threads : {1, 2, 5, 16, 64})
        for (const std::int64_t panels : {1, 2, 7, 16}) {
          if (c.stride != 1 && algorithm == Algorithm::Winograd) continue;
          const Problem p = c.problem();
          const Cut cut = cut_of(p, algorithm, threads, false, panels);
          const std::int64_t positions = c.batch * c.result_size() * c.result_size();
          std::vector<int> counts(static_cast<std::size_t>(positions * panels));
          for (std::int64_t k = 0; k < cut.parts(); ++k) {
            const auto part = part_of(p, cut, k);
            ASSERT_TRUE(part) << c.text();
            const onednn::Panels some = cut.panels_of(k, panels);
            EXPECT_LT(some.begin, some.end) << c.text();
            const std::int64_t first = part->result_offset / c.out;
            for (std::int64_t at = first; at < first + positions_of(part->problem); ++at)
              for (std::int64_t n = some.begin; n < some.end; ++n)
                ++counts[static_cast<std::size_t>(at * panels + n)];
          }
          EXPECT_TRUE(std::ranges::all_of(counts, [](int count) { return count == 1; }))
              << c.text() << ", " << threads << " threads, " << panels << " panels";
        }
}

/// What a small image has few rows of, or tiles, channels have more of.
TEST(OneDnnCut, ManyThreadsShareASmallImage) {
  const auto parts = [](const CutCase& c, Algorithm algorithm, std::int64_t panels) {
    return cut_of(c.problem(), algorithm, 16, false, panels).parts();
  };
  EXPECT_EQ(parts({1, 14, 256, 256}, Algorithm::Winograd, 8), 16);
  EXPECT_EQ(parts({1, 7, 512, 512}, Algorithm::SmallWinograd, 16), 16);
  EXPECT_EQ(parts({1, 7, 512, 512}, Algorithm::Windows, 16), 16);
  EXPECT_EQ(parts({1, 10, 64, 128}, Algorithm::Windows, 4), 16);
  EXPECT_EQ(parts({1, 7, 512, 512}, Algorithm::Windows, 1), 3) << "without its channels";
}

/// Steps that follow one another run in pieces of them.
TEST(OneDnnCut, LargeImagesHaveManySlices) {
  for (const int threads : {2, 3, 16}) {
    const Cut cut =
        cut_of(CutCase{1, 400, 16, 16}.problem(), Algorithm::Windows, threads, false, 1);
    EXPECT_GE(cut.slices, 32) << threads << " threads";
    EXPECT_EQ(cut.slices % threads, 0) << threads << " threads";
    EXPECT_EQ(cut.columns, 1);
  }
}

/// Images that threads do not share evenly are cut by themselves.
TEST(OneDnnCut, ManyThreadsShareFewImages) {
  const Cut four = cut_of(CutCase{4, 56, 64, 64}.problem(), Algorithm::Windows, 16, false, 2);
  EXPECT_EQ(four.images, 4);
  EXPECT_EQ(four.parts(), 16);
  const Cut three = cut_of(CutCase{3, 56, 64, 64}.problem(), Algorithm::Windows, 2, false, 2);
  EXPECT_EQ(three.parts() % 2, 0);
  const Cut many = cut_of(CutCase{32, 56, 64, 64}.problem(), Algorithm::Windows, 16, false, 2);
  EXPECT_EQ(many.images, 1);
  EXPECT_EQ(many.axis, 0u);
}

}  // namespace
}  // namespace heddle::jit
