// What models are made of, on the simulated CUDA device: what kernels make of memory and of threads. Graphs are those of
// traffic.hir, with sizes that kernels know; tests/sweep/op_traffic_test.cpp has every op with symbolic ones.
#include <fstream>
#include <gtest/gtest.h>
#include <heddle_test_paths.h>
#include <sstream>

#include "engine/tensor_impl.h"
#include "heddle/heddle.h"
#include "tests/cuda/support.h"
#include "tests/cuda/traffic_floors.h"
#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

const std::vector<TrafficException>& exceptions() {
  constexpr auto kSectors = &Traffic::sectors;
  constexpr auto kPasses = &Traffic::passes;
  constexpr auto kChain = &Traffic::chain;
  constexpr std::string_view kAnywhere = "what data says lies anywhere";
  constexpr std::string_view kSecond = "every second element; the next tap reads the other half";
  constexpr std::string_view kWindows = "elements of windows, one by one";
  static const std::vector<TrafficException> all = {
      {"image_to_channels_last", kSectors, 0.7, "three channels: neighbours are three bytes apart"},
      {"place_in_short_rows", kSectors, 0.6, "rows of 40 bytes, three reads of four lanes each"},
      {"softmax_of_columns", kChain, 8, "512 columns have a thread each"},
      {"column_sums_f16", kSectors, 0.12, "the second step reads parts of a column, a row apart"},
      {"rotary_of_pairs", kSectors, 0.75, "halves of pairs are read one after the other"},
      {"gather_of_columns", kSectors, 0.35, kAnywhere},
      {"gather_elements", kSectors, 0.35, kAnywhere},
      {"every_second", kSectors, 0.65, "every second element"},
      {"best_of_rows", kSectors, 0.38, "a row's elements are read where they are, in any order"},
      {"sorted_rows", kSectors, 0.38, "a row's elements are read where they are, in any order"},
      {"transposed_bytes", kPasses, 1.6,
       "two of the four rows that a warp reads of a tile share banks"},
      {"matmul", kPasses, 1.02, "sums go out two at a time: rows of a fragment in different banks"},
      {"attention", kPasses, 1.05,
       "sums go out two at a time: rows of a fragment in different banks"},
      {"bottleneck", kSectors, 0.4, "few rows of products by rows of 392 bytes, read 8 at a time"},
      {"quantised_convs", kSectors, 0.7, "rows of 196 bytes begin in the middle of sectors"},
      {"conv_f16_by_inputs", kSectors, 0.48, kWindows},
      {"conv_of_an_image", kSectors, 0.16, kWindows},
      {"conv_of_an_image", kPasses, 1.9, "few rows of weights, of which pieces share banks"},
      {"conv_depthwise_channels_last", kSectors, 0.2,
       "weights of an input, of which a channel's lie side by side"},
      {"conv_f16_channels_last", kPasses, 1.4,
       "results are read along columns of sums, two at a time"},
      {"max_pool", kSectors, 0.55, kSecond},
      {"avg_pool", kSectors, 0.6, kSecond},
  };
  return all;
}

struct Pattern {
  std::string name;
  std::string text;  ///< IR
};

std::vector<Pattern> read_patterns() {
  std::ifstream file(HEDDLE_SOURCE_DIR "/tests/cuda/traffic.hir");
  std::vector<Pattern> patterns;
  std::string line;
  const std::string head = "graph @";
  while (std::getline(file, line)) {
    if (line.starts_with(head))
      patterns.push_back({line.substr(head.size(), line.find('(') - head.size()), ""});
    if (!patterns.empty()) patterns.back().text += line + "\n";
  }
  return patterns;
}

const std::vector<Pattern>& patterns() {
  static const std::vector<Pattern> all = read_patterns();
  return all;
}

/// Any numbers; of i64 positions in a dimension of 256 or more.
Tensor some_of(const ValueInfo& input, std::uint32_t seed) {
  ir::Sizes sizes;
  for (const SymInt& size : input.sizes) sizes.push_back(size.value());
  if (input.dtype == u8 || input.dtype == i8)
    return engine::from_literal(any_bytes(input.dtype, sizes, seed));
  ir::Literal values = noise(input.dtype, sizes, seed);
  for (std::int64_t k = 0; input.dtype == i64 && k < values.count(); ++k)
    values.set_int(k, k * 37 % 251);
  return engine::from_literal(values);
}

class CudaTraffic : public TrafficTest {};

// Where there is no source tree, as on a GPU's host, there are no patterns.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CudaTraffic);

INSTANTIATE_TEST_SUITE_P(Patterns, CudaTraffic, ::testing::Range(std::size_t{0}, patterns().size()),
                         [](const auto& k) { return patterns()[k.param].name; });

TEST_P(CudaTraffic, KeepsTheFloors) {
  const Pattern& pattern = patterns()[GetParam()];
  Engine engine = parse_ir(pattern.text, on_cuda());
  std::vector<Tensor> inputs;
  for (const ValueInfo& input : engine.signature().inputs)
    inputs.push_back(some_of(input, static_cast<std::uint32_t>(inputs.size() + 1)));
  const auto launches = launches_of(engine, inputs);
  EXPECT_FALSE(launches.empty());
  expect_good_traffic(pattern.name, launches, exceptions());
}

}  // namespace
}  // namespace heddle::testing
