// Convolutions of each channel by itself and of few channels to many, with the channels last, on the CPU.
#include "jit/nests/row_conv.h"

#include "tests/jit/one_conv.h"

namespace heddle::test {
namespace {

struct Depthwise {
  std::int64_t channels = 24;   ///< of the result
  std::int64_t multiplier = 1;  ///< of them for each one of x
  Ints kernel{3, 3}, strides{1, 1}, low{1, 1}, high{1, 1}, dilations{1, 1};
  std::vector<const char*> sizes{"2", "7", "9"};  ///< of x, but for the channels
  bool biased = true, constant = true;
};

ir::Graph graph_of(const Depthwise& c) {
  return graph_of(OneConv{.groups = c.channels / c.multiplier,
                          .results = c.multiplier,
                          .kernel = c.kernel,
                          .strides = c.strides,
                          .low = c.low,
                          .high = c.high,
                          .dilations = c.dilations,
                          .sizes = c.sizes,
                          .biased = c.biased,
                          .fixed = c.constant});
}

void expect_right(const Depthwise& c, const Ints& sizes = {}) {
  const ir::Graph graph = graph_of(c);
  expect_fast_code_right(graph, random_arguments(graph, sizes));
}

TEST(RowConv, OfEveryWindow) {
  expect_right(Depthwise{});
  expect_right(Depthwise{.biased = false});
  expect_right(Depthwise{.kernel = {5, 5}, .low = {2, 2}, .high = {2, 2}});
  expect_right(Depthwise{.kernel = {7, 7}, .low = {3, 3}, .high = {3, 3}});
  expect_right(Depthwise{.kernel = {1, 4}, .low = {0, 3}, .high = {0, 0}});
  expect_right(Depthwise{.kernel = {2, 3}, .strides = {2, 3}, .low = {0, 2}, .high = {1, 0}});
  expect_right(Depthwise{.strides = {2, 2}});
  expect_right(Depthwise{.low = {2, 2}, .high = {2, 2}, .dilations = {2, 2}});
  expect_right(Depthwise{.strides = {2, 2}, .low = {3, 3}, .high = {3, 3}, .dilations = {3, 3}});
  expect_right(Depthwise{.low = {4, 5}, .high = {5, 4}});
  expect_right(Depthwise{.low = {0, 0}, .high = {0, 0}});
}

TEST(RowConv, OfEveryWidth) {
  for (const char* width : {"1", "2", "7", "8", "9", "15", "17", "31"})
    for (const std::int64_t channels : {8, 16, 37, 70})
      expect_right(Depthwise{.channels = channels, .sizes = {"1", "4", width}});
}

TEST(RowConv, OfSeveralChannelsForEachOne) {
  for (const std::int64_t multiplier : {2, 4, 8}) {
    for (const char* width : {"1", "5", "9", "17"})
      for (const std::int64_t channels : {8, 24, 72})
        expect_right(
            Depthwise{.channels = channels, .multiplier = multiplier, .sizes = {"2", "4", width}});
    expect_right(
        Depthwise{.channels = 40, .multiplier = multiplier, .low = {4, 5}, .high = {5, 4}});
    expect_right(Depthwise{.channels = 40, .multiplier = multiplier, .sizes = {"s0", "s1", "s2"}},
                 {1, 3, 12});
  }
}

TEST(RowConv, OfEveryRank) {
  expect_right(Depthwise{.kernel = {4},
                         .strides = {1},
                         .low = {3},
                         .high = {0},
                         .dilations = {1},
                         .sizes = {"2", "19"}});
  expect_right(Depthwise{.kernel = {2, 3, 3},
                         .strides = {1, 2, 1},
                         .low = {1, 1, 1},
                         .high = {0, 1, 1},
                         .dilations = {1, 1, 1},
                         .sizes = {"1", "4", "5", "10"}});
}

TEST(RowConv, OfSizesThatAreNotKnown) {
  for (const Ints& sizes : {Ints{1, 1, 1}, Ints{2, 3, 5}, Ints{1, 4, 8}, Ints{1, 2, 21}})
    expect_right(Depthwise{.sizes = {"s0", "s1", "s2"}}, sizes);
  expect_right(Depthwise{.strides = {2, 2}, .sizes = {"s0", "s1", "s2"}}, {2, 9, 30});
}

struct Mixed {
  std::int64_t channels = 3, results = 16;
  Ints kernel{3, 3}, strides{2, 2}, low{1, 1}, high{1, 1}, dilations{1, 1};
  std::vector<const char*> sizes{"2", "7", "19"};  ///< of x, but for the channels
  bool planes = true;                              ///< x has its channels first
  bool biased = true;
};

ir::Graph graph_of(const Mixed& c) {
  return graph_of(OneConv{.channels = c.channels,
                          .results = c.results,
                          .kernel = c.kernel,
                          .strides = c.strides,
                          .low = c.low,
                          .high = c.high,
                          .dilations = c.dilations,
                          .sizes = c.sizes,
                          .biased = c.biased,
                          .turned = c.planes});
}

/// For the CPU alone: CUDA's are products of windows, which have tests of their own.
void expect_right(const Mixed& c, const Ints& sizes = {}) {
  const ir::Graph graph = graph_of(c);
  expect_program_right(graph, jit::lower(graph, {.target = jit::LowerOptions::Target::Cpu}),
                       random_arguments(graph, sizes), as_code(), 1e-5);
}

/// The library is faster with narrow vectors.
TEST(RowConv, LeavesManyTapsOfOneChannelToNarrowVectors) {
  const auto is_taken = [](const Mixed& c, std::int64_t bytes) {
    const ir::Graph graph = graph_of(c);
    return std::ranges::any_of(graph.nodes(), [&](const ir::NodePtr& node) {
      return node->op_name() == "conv" && jit::may_be_row_conv(*node, bytes);
    });
  };
  const Mixed seven{.channels = 1, .kernel = {7, 7}, .low = {3, 3}, .high = {3, 3}};
  EXPECT_TRUE(is_taken(seven, 64));
  EXPECT_FALSE(is_taken(seven, 32));
  Mixed more = seven;
  more.channels = 3;
  EXPECT_TRUE(is_taken(more, 32));
  EXPECT_TRUE(is_taken({.channels = 1, .kernel = {5, 5}}, 32));
  expect_right(seven);
}

TEST(RowConv, OfFewChannelsToMany) {
  for (const bool planes : {false, true})
    for (const std::int64_t channels : {1, 2, 3, 4})
      for (const std::int64_t results : {16, 48, 64})
        expect_right(Mixed{.channels = channels, .results = results, .planes = planes});
  expect_right(Mixed{.biased = false});
  expect_right(Mixed{.kernel = {7, 7}, .low = {3, 3}, .high = {3, 3}});
  expect_right(Mixed{.kernel = {4, 4}, .strides = {4, 4}, .low = {0, 0}, .high = {0, 0}});
  expect_right(Mixed{.kernel = {2, 3}, .strides = {1, 3}, .low = {0, 2}, .high = {1, 0}});
  expect_right(Mixed{.strides = {1, 1}, .low = {4, 5}, .high = {5, 4}, .dilations = {2, 2}});
  for (const char* width : {"1", "2", "8", "15", "17", "31"})
    expect_right(Mixed{.sizes = {"1", "4", width}});
  for (const Ints& sizes : {Ints{1, 1, 1}, Ints{2, 3, 5}, Ints{1, 2, 41}})
    expect_right(Mixed{.sizes = {"s0", "s1", "s2"}}, sizes);
}

/// 7 taps along a row: with vectors of 64 bytes two of these at a time, where the channels are whole pairs of them.
TEST(RowConv, OfFewChannelsToPairsOfVectors) {
  const auto lowered_for = [](const Mixed& c, std::int64_t bytes) {
    return jit::lower(graph_of(c),
                      {.target = jit::LowerOptions::Target::Cpu, .vector_bytes = bytes});
  };
  const auto is_paired = [&](const Mixed& c, std::int64_t bytes) {
    return nests_of(lowered_for(c, bytes)).find("< 16 {") != std::string::npos;
  };
  const auto square = [](std::int64_t results, std::vector<const char*> sizes) {
    return Mixed{
        .results = results, .kernel = {7, 7}, .low = {3, 3}, .high = {3, 3}, .sizes = sizes};
  };
  const Mixed wide = square(96, {"1", "9", "40"});
  EXPECT_TRUE(is_paired(wide, 64));
  EXPECT_FALSE(is_paired(wide, 32));
  EXPECT_FALSE(is_paired(square(48, wide.sizes), 64));
  for (const std::int64_t results : {32, 64, 96})
    for (const char* width : {"1", "15", "16", "31"})
      for (const bool biased : {false, true}) {
        Mixed c = square(results, {"2", "9", width});
        c.biased = biased;
        const ir::Graph graph = graph_of(c);
        expect_program_right(graph, lowered_for(c, 64), random_arguments(graph, {}), as_code(),
                             1e-5);
      }
  const Mixed open = square(64, {"s0", "s1", "s2"});
  const ir::Graph graph = graph_of(open);
  for (const Ints& sizes : {Ints{1, 1, 1}, Ints{2, 3, 41}})
    expect_program_right(graph, lowered_for(open, 64), random_arguments(graph, sizes), as_code(),
                         1e-5);
}

struct Narrow {
  std::int64_t groups = 8, channels = 4, results = 4;  ///< of each group
  Ints kernel{3, 3}, strides{1, 1}, low{1, 1}, high{1, 1}, dilations{1, 1};
  std::vector<const char*> sizes{"2", "7", "19"};  ///< of x, but for the channels
};

ir::Graph graph_of(const Narrow& c) {
  return graph_of(OneConv{.groups = c.groups,
                          .channels = c.channels,
                          .results = c.results,
                          .kernel = c.kernel,
                          .strides = c.strides,
                          .low = c.low,
                          .high = c.high,
                          .dilations = c.dilations,
                          .sizes = c.sizes});
}

jit::LowerOptions for_vectors_of(std::int64_t bytes) {
  return {.target = jit::LowerOptions::Target::Cpu, .vector_bytes = bytes};
}

/// In blocks of several sums with vectors of 32 bytes, and one at a time with those of 64.
void expect_right_and_narrow(const Narrow& c, const Ints& sizes = {}) {
  const ir::Graph graph = graph_of(c);
  const jit::Program narrow = jit::lower(graph, for_vectors_of(32));
  const auto count = [](const jit::Program& program) {
    const std::string text = nests_of(program);
    std::int64_t found = 0;
    for (std::size_t at = text.find("fma("); at != std::string::npos;
         at = text.find("fma(", at + 1))
      ++found;
    return found;
  };
  // Sums of a whole nest are those of as many channels as share what it reads.
  EXPECT_GT(count(narrow), count(jit::lower(graph, for_vectors_of(64))));
  for (const std::int64_t bytes : {32, 64})
    expect_program_right(graph, narrow, random_arguments(graph, sizes), as_code_of(bytes), 1e-5);
}

TEST(RowConv, OfManyTapsForNarrowVectors) {
  const Narrow each{.groups = 21, .channels = 1, .results = 1};
  for (const std::int64_t taps : {8, 9, 15, 31}) {
    Narrow c = each;
    c.kernel = {1, taps};
    c.low = {0, taps / 2};
    c.high = {0, taps - 1 - taps / 2};
    expect_right_and_narrow(c);
  }
  Narrow square = each;
  square.kernel = {9, 9};
  square.low = square.high = {4, 4};
  expect_right_and_narrow(square);
  square.strides = {2, 2};
  expect_right_and_narrow(square);
  Narrow wide = each;
  wide.kernel = {1, 9};
  wide.low = wide.high = {0, 8};
  wide.dilations = {1, 2};
  expect_right_and_narrow(wide);
  wide.sizes = {"s0", "s1", "s2"};
  expect_right_and_narrow(wide, {2, 3, 12});
}

TEST(RowConv, OfGroupsOfAFewChannelsForNarrowVectors) {
  for (const std::int64_t channels : {2, 3, 4})
    for (const std::int64_t results : {2, 4, 8})
      expect_right_and_narrow({.groups = 5, .channels = channels, .results = results});
  expect_right_and_narrow({.strides = {2, 2}});
  expect_right_and_narrow({.low = {4, 5}, .high = {5, 4}, .dilations = {2, 2}});
  expect_right_and_narrow({.sizes = {"s0", "s1", "s2"}}, {1, 3, 12});
}

std::string nests_for(const Depthwise& c, std::int64_t bytes) {
  return nests_of(
      jit::lower(graph_of(c), {.target = jit::LowerOptions::Target::Cpu, .vector_bytes = bytes}));
}

bool is_in_slabs(const Depthwise& c, std::int64_t bytes = 64) {
  return nests_for(c, bytes).find("local") != std::string::npos;
}

/// 256 channels lie 1 KiB apart, so that positions share 4 of 64 sets of a cache: 25 taps of a block take more lines than these hold. 9 taps do
/// not, nor do 25 of channels that are no power of two.
TEST(RowConv, CopiesWhatSharesFewSetsOfTheCache) {
  const Depthwise square{.channels = 256, .kernel = {5, 5}, .low = {2, 2}, .high = {2, 2}};
  EXPECT_TRUE(is_in_slabs(square));
  Depthwise c = square;
  c.channels = 240;
  EXPECT_FALSE(is_in_slabs(c));
  c.channels = 128;
  c.sizes = {"1", "9", "16"};
  EXPECT_TRUE(is_in_slabs(c, 32));
  EXPECT_FALSE(is_in_slabs(c)) << "a whole row for one vector after the other";
  c.channels = 64;
  EXPECT_FALSE(is_in_slabs(c, 32));
  EXPECT_FALSE(is_in_slabs({.channels = 256, .sizes = {"1", "9", "16"}}));
  EXPECT_TRUE(is_in_slabs({.channels = 512, .sizes = {"1", "9", "16"}}));
  c = square;
  c.dilations = {9, 9};
  c.sizes = {"1", "40", "40"};
  EXPECT_FALSE(is_in_slabs(c)) << "more than a cache holds";
}

/// 49 taps, with vectors of 64 bytes, whatever the sets, where the length of a row is not known.
TEST(RowConv, CopiesWhatManyTapsWouldReadFromFarAway) {
  Depthwise c{
      .channels = 96, .kernel = {7, 7}, .low = {3, 3}, .high = {3, 3}, .sizes = {"1", "12", "s0"}};
  EXPECT_TRUE(is_in_slabs(c));
  EXPECT_FALSE(is_in_slabs(c, 32));
  expect_right(c, {19});
  c.sizes.back() = "19";
  EXPECT_FALSE(is_in_slabs(c));
  expect_right(c);
}

/// The loop over channels of 25 and more taps that fill vectors is around that over blocks of a row.
TEST(RowConv, MakesRowsForOneVectorOfChannelsAfterTheOther) {
  const auto is_by_vector = [](const Depthwise& c, std::int64_t bytes = 64) {
    std::string text = nests_for(c, bytes);
    text.erase(0, text.find("nest @conv"));
    return text.find("  vector ") < text.find("  serial ");
  };
  const Depthwise square{
      .channels = 48, .kernel = {5, 5}, .low = {2, 2}, .high = {2, 2}, .sizes = {"1", "6", "19"}};
  EXPECT_TRUE(is_by_vector(square));
  EXPECT_FALSE(is_by_vector(square, 32));
  Depthwise c = square;
  c.channels = 40;
  EXPECT_FALSE(is_by_vector(c));
  c = square;
  c.sizes = {"s0", "s1", "s2"};
  EXPECT_FALSE(is_by_vector(c));
  EXPECT_FALSE(is_by_vector({.channels = 48, .sizes = {"1", "6", "19"}})) << "9 taps";

  for (const char* width : {"1", "7", "8", "9", "17"})
    for (const Ints& strides : {Ints{1, 1}, {2, 2}, {3, 1}}) {
      c = square;
      c.sizes = {"2", "6", width};
      c.strides = strides;
      expect_right(c);
      c.biased = false;
      c.low = {0, 4};
      c.high = {5, 0};
      expect_right(c);
    }
  expect_right(Depthwise{.channels = 32,
                         .kernel = {3, 3, 3},
                         .strides = {1, 2, 1},
                         .low = {1, 1, 1},
                         .high = {0, 1, 1},
                         .dilations = {1, 1, 1},
                         .sizes = {"1", "4", "5", "10"}});
}

TEST(RowConv, OfCopiesOfEveryWindow) {
  for (const char* width : {"1", "3", "7", "8", "9", "17"})
    for (const char* height : {"1", "4", "31"}) {
      expect_right(Depthwise{.channels = 256,
                             .kernel = {5, 5},
                             .low = {2, 2},
                             .high = {2, 2},
                             .sizes = {"1", height, width}});
      expect_right(Depthwise{.channels = 512, .sizes = {"2", height, width}});
    }
  const Depthwise square{
      .channels = 256, .kernel = {5, 5}, .low = {2, 2}, .high = {2, 2}, .sizes = {"1", "21", "19"}};
  for (const Ints& strides : {Ints{2, 2}, {1, 2}, {3, 1}}) {
    Depthwise c = square;
    c.strides = strides;
    expect_right(c);
    c.biased = false;
    c.low = {0, 4};
    c.high = {4, 0};
    expect_right(c);
  }
  Depthwise c = square;
  c.dilations = {2, 2};
  c.low = c.high = {4, 4};
  EXPECT_TRUE(is_in_slabs(c));
  expect_right(c);
  c = square;
  c.low = c.high = {0, 0};
  expect_right(c);
  c.low = c.high = {6, 7};
  expect_right(c);
  c = square;
  c.sizes = {"s0", "s1", "s2"};
  EXPECT_TRUE(is_in_slabs(c));
  for (const Ints& sizes : {Ints{1, 1, 1}, {2, 3, 5}, {1, 12, 8}, {1, 2, 21}, {1, 40, 9}})
    expect_right(c, sizes);
}

std::int64_t multiply_adds(const ir::Graph& graph) {
  const std::string text = nests_of(lowered(graph));
  std::int64_t count = 0;
  for (std::size_t at = text.find("fma("); at != std::string::npos; at = text.find("fma(", at + 1))
    ++count;
  return count;
}

/// Rows of 9 are two blocks of 5; what cannot be in blocks is one sum at a time.
TEST(RowConv, TakesManyChannelsAndWeightsThatStayTheSame) {
  EXPECT_EQ(multiply_adds(graph_of(Depthwise{})), 5 * 3);
  EXPECT_EQ(multiply_adds(graph_of(Depthwise{.multiplier = 2})), 5 * 3);
  EXPECT_EQ(multiply_adds(graph_of(Depthwise{.multiplier = 3})), 1);
  EXPECT_EQ(multiply_adds(graph_of(Depthwise{.constant = false})), 1);
  EXPECT_EQ(multiply_adds(graph_of(Depthwise{.channels = 4})), 1);
  EXPECT_EQ(multiply_adds(graph_of(Depthwise{.kernel = {3, 9}, .low = {1, 4}, .high = {1, 4}})), 1);
  EXPECT_EQ(multiply_adds(graph_of(Mixed{.sizes = {"2", "7", "9"}})), 3 * 5 * 3) << "rows of 5";
  EXPECT_EQ(multiply_adds(graph_of(Mixed{.channels = 1, .sizes = {"2", "7", "9"}})), 5 * 3);
  expect_right(Depthwise{.constant = false});
  expect_right(Depthwise{.channels = 4});
  expect_right(Depthwise{.multiplier = 3});
  expect_right(Mixed{.results = 24});
  expect_right(Mixed{.channels = 5});
}

}  // namespace
}  // namespace heddle::test
