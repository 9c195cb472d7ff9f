// Convolutions that the library has no kernel for with vectors of 32 bytes read windows in place by weights in panels.
#include "jit/lower/packed_convs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/jit/one_conv.h"

namespace heddle::test {
namespace {

using ::testing::Contains;
using ::testing::Not;
using testing::ops_of;

struct Grouped {
  std::int64_t groups = 2, channels = 9, results = 20;  ///< of each group
  Ints kernel{3, 3}, strides{1, 1}, low{1, 1}, high{1, 1}, dilations{1, 1};
  std::vector<const char*> sizes{"2", "7", "40"};  ///< of x, but for the channels
  bool biased = true, fixed = true, turned = false;
};

ir::Graph graph_of(const Grouped& c) {
  return graph_of(OneConv{.groups = c.groups,
                          .channels = c.channels,
                          .results = c.results,
                          .kernel = c.kernel,
                          .strides = c.strides,
                          .low = c.low,
                          .high = c.high,
                          .dilations = c.dilations,
                          .sizes = c.sizes,
                          .biased = c.biased,
                          .fixed = c.fixed,
                          .turned = c.turned});
}

void expect_packed(const Grouped& c, const Ints& sizes = {}) {
  const ir::Graph graph = graph_of(c);
  const jit::LowerOptions options = with_convs_of_a_library(32);
  EXPECT_THAT(ops_of(jit::packed_convs(graph, options)), Contains("packed_conv"));
  const jit::Program program = jit::lower(graph, options);
  const auto arguments = random_arguments(graph, sizes);
  for (const std::int64_t bytes : {32, 64})
    expect_program_right(graph, program, arguments, as_code_of(bytes), 1e-5);
}

void expect_left(const Grouped& c, std::int64_t vector_bytes = 32) {
  EXPECT_THAT(ops_of(jit::packed_convs(graph_of(c), with_convs_of_a_library(vector_bytes))),
              Not(Contains("packed_conv")));
}

TEST(PackedConvs, OfGroupsThatFillNoVectors) {
  expect_packed({});
  expect_packed({.biased = false, .turned = true});
  expect_packed({.low = {0, 0}, .high = {0, 0}, .turned = true});
  expect_packed({.strides = {2, 3}});
  expect_packed({.kernel = {2, 3}, .low = {3, 0}, .high = {0, 2}, .dilations = {2, 3}});
  expect_packed({.groups = 3, .channels = 10, .results = 72});
  expect_packed({.sizes = {"s0", "s1", "s2"}}, {2, 4, 33});
}

TEST(PackedConvs, OfWidePadding) {
  const Grouped wide{
      .groups = 1, .channels = 40, .low = {1, 4}, .high = {1, 4}, .dilations = {1, 4}};
  expect_packed(wide);
  Grouped row = wide;
  row.kernel = {1, 11};
  row.low = row.high = {0, 5};
  row.dilations = {1, 1};
  expect_packed(row);
  for (const char* width : {"11", "29", "30", "31", "61"}) {
    row.sizes = {"1", "3", width};
    expect_packed(row);
  }
  row.sizes = {"s0", "s1", "s2"};
  expect_packed(row, {1, 2, 35});
}

TEST(PackedConvs, OfMuchPaddingWithVectorsOfAnyWidth) {
  Grouped c{.groups = 1,
            .channels = 8,
            .results = 40,
            .kernel = {1, 39},
            .low = {0, 19},
            .high = {0, 19},
            .sizes = {"1", "3", "50"}};
  const ir::Graph graph = graph_of(c);
  const jit::Program program = jit::lower(graph, with_convs_of_a_library(64));
  EXPECT_NE(nests_of(program).find("contract"), std::string::npos);
  expect_program_right(graph, program, random_arguments(graph, {}), as_code_of(64), 1e-5);
  c.kernel = {1, 31};
  c.low = c.high = {0, 15};
  expect_left(c, 64);
}

TEST(PackedConvs, OfFewProducts) {
  expect_packed({.groups = 1, .channels = 8, .results = 8, .sizes = {"1", "7", "7"}});
}

TEST(PackedConvs, OfWhatTakesTheLibraryLonger) {
  Grouped c{.groups = 1, .channels = 64, .results = 40, .sizes = {"1", "9", "21"}};
  c.low = c.high = c.dilations = {2, 2};
  expect_packed(c);
  c.kernel = c.strides = {2, 2};
  c.low = c.high = {0, 0};
  c.dilations = {1, 1};
  expect_packed(c);
  c.channels = 128;
  c.kernel = {3, 3};
  expect_packed(c);
}

/// Whose step to the next channel is none.
TEST(PackedConvs, OfOneChannel) {
  Grouped c{.groups = 1, .channels = 1, .low = {0, 0}, .high = {0, 0}, .sizes = {"1", "3", "640"}};
  for (const bool turned : {false, true}) {
    c.turned = turned;
    for (const std::int64_t taps : {9, 128, 130, 300}) {
      c.kernel = {1, taps};
      c.strides = {1, 7};
      c.low = c.high = {0, 4};
      expect_packed(c);
    }
    c.kernel = {3, 11};
    expect_packed(c);
  }
}

TEST(PackedConvs, LeavesWhatTheLibraryHasKernelsFor) {
  const Grouped library{.groups = 1, .channels = 64, .results = 64};
  expect_left(library);
  Grouped few = library;
  few.strides = {2, 2};
  expect_left(few);
  few.channels = 32;
  few.strides = {1, 1};
  few.low = few.high = few.dilations = {2, 2};
  expect_left(few);
  expect_left({}, 64);
  expect_left({.fixed = false});
  expect_left({.channels = 4, .results = 8});
  expect_left({.kernel = {1, 1}, .low = {0, 0}, .high = {0, 0}});
  expect_left({.channels = 16, .results = 16, .sizes = {"2", "30", "40"}});
}

}  // namespace
}  // namespace heddle::test
