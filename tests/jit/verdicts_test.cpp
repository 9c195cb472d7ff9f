// Which sizes share a measurement, and the text that verdicts are kept as.
#include "jit/verdicts.h"

#include <array>
#include <gtest/gtest.h>

namespace heddle::tests {
namespace {

using jit::Verdicts;
using Sizes = std::vector<std::int64_t>;

const std::array<std::string, 3> kNames = {"rows_1x32", "tensor_64x64x64", "plain_64x64x16"};

TEST(Verdicts, SizesUpToSixteenAreAClassEach) {
  Verdicts verdicts;
  verdicts.set(Sizes{15, 4096}, 1);
  EXPECT_EQ(verdicts.find(Sizes{15, 4096}), 1u);
  EXPECT_FALSE(verdicts.find(Sizes{16, 4096}));
  EXPECT_FALSE(verdicts.find(Sizes{14, 4096}));
  EXPECT_FALSE(verdicts.find(Sizes{15}));
}

TEST(Verdicts, AboveThatThereAreTwoClassesAnOctave) {
  for (const auto& [low, high] : {std::pair{17, 24}, std::pair{25, 32}, std::pair{33, 48},
                                  std::pair{49, 64}, std::pair{1025, 1536}}) {
    Verdicts verdicts;
    verdicts.set(Sizes{low}, 2);
    EXPECT_EQ(verdicts.find(Sizes{high}), 2u) << high;
    EXPECT_FALSE(verdicts.find(Sizes{low - 1})) << low;
    EXPECT_FALSE(verdicts.find(Sizes{high + 1})) << high;
  }
}

TEST(Verdicts, TextBringsThemBack) {
  Verdicts first;
  first.set(Sizes{16, 768}, {{1, 2.0}, {0, 3.0}});
  first.set(Sizes{1, 768}, 0);
  first.set(Sizes{}, 2);
  const std::string text = first.to_text(kNames);
  EXPECT_EQ(text, ": plain_64x64x16\n1 768 : rows_1x32\n16 768 : tensor_64x64x64\n");
  Verdicts second;
  second.add_text(text, kNames);
  EXPECT_EQ(second.find(Sizes{16, 700}), 1u);
  EXPECT_EQ(second.find(Sizes{1, 768}), 0u);
  EXPECT_EQ(second.find(Sizes{}), 2u);
}

TEST(Verdicts, WhatIsKnownStaysAndBrokenLinesAreSkipped) {
  Verdicts verdicts;
  verdicts.set(Sizes{8}, 1);
  verdicts.add_text("8 : rows_1x32\n9 : wgmma\nx : rows_1x32\n10 rows_1x32\n\n11 : rows_1x32\n12 :",
                    kNames);
  EXPECT_EQ(verdicts.find(Sizes{8}), 1u);
  EXPECT_FALSE(verdicts.find(Sizes{9}));
  EXPECT_FALSE(verdicts.find(Sizes{10}));
  EXPECT_EQ(verdicts.find(Sizes{11}), 0u);
  EXPECT_FALSE(verdicts.find(Sizes{12}));
  EXPECT_FALSE(verdicts.find(Sizes{}));
}

}  // namespace
}  // namespace heddle::tests
