// Every op on the simulated CUDA device, of f32 or the first dtype that it takes, at sizes that give a device work and that
// kernels do not know: what these make of memory and of threads. Floors, and how they are measured: tests/cuda/traffic_floors.h.
#include <algorithm>
#include <gtest/gtest.h>

#include "heddle/heddle.h"
#include "tests/cuda/support.h"
#include "tests/cuda/traffic_floors.h"
#include "tests/sweep/op_callable.h"
#include "tests/sweep/op_table.h"

namespace heddle::testing {
namespace {

const std::vector<TrafficException>& exceptions() {
  constexpr auto kSectors = &Traffic::sectors;
  constexpr auto kWorking = &Traffic::working;
  constexpr auto kPasses = &Traffic::passes;
  constexpr auto kChain = &Traffic::chain;
  constexpr std::string_view kSecond = "every second element";
  constexpr std::string_view kMiddle = "rows begin in the middle of sectors";
  constexpr std::string_view kBlocks = "a row of unknown length has a block of threads";
  constexpr std::string_view kFew = "columns of unknown length and number have a thread each";
  constexpr std::string_view kCpu = "a CPU's: nothing makes it on CUDA";
  constexpr std::string_view kOdd = "rows of an odd number of bytes";
  constexpr std::string_view kInTurn = "which of equal places is last decides: one after the other";
  constexpr std::string_view kSearch = "binary searches, and what is found anywhere";
  static const std::vector<TrafficException> all = {
      {"slice", kSectors, 0.6, kSecond},
      {"pad_wrap", kSectors, 0.75, kMiddle},
      {"reduce_and_last", kSectors, 0.6, kMiddle},
      {"reduce_or_last", kSectors, 0.6, kMiddle},
      {"concat", kWorking, 0.3, kBlocks},
      {"symint", kWorking, 0.005, "one number"},
      {"variance_all", kChain, 17, "of unknown sizes one block goes through all"},
      {"cumsum_reverse", kWorking, 0.2, kFew},
      {"cumsum_reverse", kChain, 14, kFew},
      {"softmax_first", kChain, 7, kFew},
      {"log_softmax_first", kChain, 7, kFew},
      {"conv_channels_last", kSectors, 0.17, "lanes along positions, which are channels apart"},
      {"conv_channels_last", kWorking, 0.1, kBlocks},
      {"conv", kSectors, 0.55, kMiddle},
      {"conv", kWorking, 0.05, kBlocks},
      {"max_pool", kSectors, 0.5, kSecond},
      {"max_pool", kWorking, 0.12, kBlocks},
      {"avg_pool", kSectors, 0.5, kSecond},
      {"avg_pool", kWorking, 0.12, kBlocks},
      {"packed", kSectors, 0.3, kCpu},
      {"packed", kChain, 15, kCpu},
      {"matmul_batched", kWorking, 0.3, "few columns fill part of the lanes that read a row's 128"},
      {"int8_matmul", kSectors, 0.07, kOdd},
      {"int8_matmul", kPasses, 3, kOdd},
      {"int8_matmul", kChain, 9, kOdd},
      {"int8_conv", kSectors, 0.6, kMiddle},
      {"int8_conv", kWorking, 0.01, kBlocks},
      {"bit_panels", kSectors, 0.6, kCpu},
      {"byte_panels", kSectors, 0.3, kCpu},
      {"byte_panels", kWorking, 0.3, kCpu},
      {"split_byte_pairs", kWorking, 0.2, kCpu},
      {"split_byte_pairs", kChain, 400, kCpu},
      {"fixed_bits_matmul", kSectors, 0.05, kCpu},
      {"fixed_bits_matmul", kPasses, 9, kCpu},
      {"fixed_bits_matmul", kChain, 40, kCpu},
      {"dequantised_matmul", kSectors, 0.5, kOdd},
      {"dequantised_matmul", kPasses, 1.8, kOdd},
      {"attention", kSectors, 0.5, "heads of unknown size have no tiles of their own"},
      {"join_attention", kWorking, 0.15, kCpu},
      {"scatter_elements_none", kWorking, 0.2, kInTurn},
      {"scatter_elements_none", kChain, 40, kInTurn},
      {"scatter_nd_none", kWorking, 0.2, kInTurn},
      {"scatter_nd_none", kChain, 140, kInTurn},
      {"index_put", kChain, 50, kInTurn},
      {"scatter", kSectors, 0.55, kSearch},
      {"index_put", kSectors, 0.55, kSearch},
      {"merge_runs", kSectors, 0.6, kSearch},
      {"sort", kSectors, 0.5, kSearch},
      {"topk", kSectors, 0.5, kSearch},
  };
  return all;
}

/// Operands of a call have at least so many elements, if they grow.
constexpr std::int64_t kElements = 40000;
constexpr std::int64_t kMostFactor = 32;

std::int64_t elements_of(const OneOp& call) {
  std::int64_t count = 0;
  for (const ir::Literal& operand : call.operands)
    if (!is_absent(operand)) count += operand.count();
  return count;
}

OneOp enlarged(const OpRow& row, DType dtype) {
  Extent extent;
  OneOp call = row.make(dtype, extent);
  while (elements_of(call) < kElements && extent.factor < kMostFactor) {
    extent.factor *= 2;
    call = row.make(dtype, extent);
  }
  return call;
}

class OpTraffic : public TrafficTest {
 protected:
  const OpRow& row() const { return op_table()[GetParam()]; }
};

std::vector<std::size_t> numbers_of_rows() {
  std::vector<std::size_t> numbers(op_table().size());
  for (std::size_t k = 0; k < numbers.size(); ++k) numbers[k] = k;
  return numbers;
}

INSTANTIATE_TEST_SUITE_P(Ops, OpTraffic, ::testing::ValuesIn(numbers_of_rows()),
                         [](const auto& row) { return op_table()[row.param].name(); });

TEST_P(OpTraffic, KeepsTheFloors) {
  const auto& dtypes = row().dtypes;
  const bool takes_f32 = std::ranges::find(dtypes, f32) != dtypes.end();
  const OneOp call = enlarged(row(), takes_f32 ? f32 : dtypes[0]);
  Engine engine(Engine::FromTrace{}, callable_of(call), on_cuda(), {});
  const std::vector<Tensor> inputs = inputs_of(call);
  expect_good_traffic(row().name(), launches_of(engine, inputs), exceptions());
}

}  // namespace
}  // namespace heddle::testing
