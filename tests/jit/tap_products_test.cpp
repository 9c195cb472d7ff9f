// Convolutions to a few channels are products of all taps, which are added up where they meet.
#include "jit/lower/tap_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/jit/one_conv.h"

namespace heddle::test {
namespace {

using ::testing::Contains;
using ::testing::Not;
using testing::ops_of;

const OneConv kMask{.channels = 40, .results = 1, .sizes = {"2", "7", "21"}};

void expect_taps(OneConv c, const Ints& sizes = {}) {
  for (const bool turned : {false, true}) {
    c.turned = turned;
    const ir::Graph graph = graph_of(c);
    const jit::LowerOptions options = with_convs_of_a_library(32);
    EXPECT_THAT(ops_of(jit::tap_products(graph, options)), Not(Contains("conv")));
    const jit::Program program = jit::lower(graph, options);
    expect_program_right(graph, program, random_arguments(graph, sizes), as_code(), 1e-5);
  }
}

void expect_left(const OneConv& c) {
  EXPECT_THAT(ops_of(jit::tap_products(graph_of(c), with_convs_of_a_library(32))),
              Contains("conv"));
}

TEST(TapProducts, OfEveryWindow) {
  OneConv c = kMask;
  expect_taps(c);
  for (const std::int64_t results : {2, 3, 4}) {
    c.results = results;
    expect_taps(c);
  }
  c.biased = false;
  expect_taps(c);
  c.low = c.high = {0, 0};
  expect_taps(c);
  c.low = {2, 0};
  c.high = {0, 5};
  c.dilations = {2, 3};
  expect_taps(c);
  c.kernel = {1, 5};
  expect_taps(c);
}

TEST(TapProducts, OfEveryRank) {
  OneConv c = kMask;
  c.kernel = {4};
  c.strides = c.dilations = {1};
  c.low = {3};
  c.high = {0};
  c.sizes = {"2", "33"};
  expect_taps(c);
  c.kernel = {2, 3, 3};
  c.strides = c.dilations = {1, 1, 1};
  c.low = {1, 1, 1};
  c.high = {0, 1, 1};
  c.sizes = {"1", "3", "4", "11"};
  expect_taps(c);
}

TEST(TapProducts, OfSizesThatAreNotKnown) {
  OneConv c = kMask;
  c.sizes = {"s0", "s1", "s2"};
  for (const Ints& sizes : {Ints{1, 1, 1}, Ints{2, 3, 5}, Ints{1, 2, 41}}) expect_taps(c, sizes);
}

TEST(TapProducts, LeavesWhatWouldGrow) {
  expect_left({.channels = 64, .results = 8});
  expect_left({.channels = 16, .results = 2});
  expect_left({.channels = 15, .results = 1});
  expect_left({.groups = 2, .channels = 64, .results = 1});
  expect_left({.channels = 64, .results = 1, .strides = {1, 2}});
  expect_left({.channels = 64, .results = 1, .fixed = false});
  expect_left({.channels = 64, .results = 1, .kernel = {1, 1}, .low = {0, 0}, .high = {0, 0}});
}

}  // namespace
}  // namespace heddle::test
