// Attention on the tensor cores: every way to attend, on the simulated device against the reference evaluator; what
// NVRTC makes of the texts; and which way the cost model takes.
//
// Tolerances: scores and sums are f32, weights are rounded to the operands' 16 bits before they meet the values, and
// the result is rounded once more.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cuda/nvrtc.h"
#include "heddle/error.h"
#include "tests/jit/barriers_of.h"
#include "tests/jit/of_architecture.h"
#include "tests/jit/one_attention.h"
#include "tests/jit/ptxas_report.h"
#include "tests/support/nightly.h"

namespace heddle::tests {
namespace {

using jit::cuda::AttentionShape;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;

constexpr jit::cuda::ProductDevice kH200 = kAttentionDevice;

class CudaAttention : public ::testing::TestWithParam<std::tuple<const char*, int>> {
 protected:
  std::string dtype() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }
};

TEST_P(CudaAttention, EveryWayAgreesWithTheEvaluator) {
  OneAttention all(
      attention_text(dtype(), size(), size(), "", "", size() > 64 ? 1 : 2, size() > 64 ? 1 : 2));
  all.expect_right({{1, 1}, {17, 64}, {65, 70}, {3, 0}, {0, 5}, {129, 131}},
                   attention_tolerance(dtype()));
}

TEST_P(CudaAttention, CausalQueriesSeeNoLaterKeys) {
  OneAttention causal(attention_text(dtype(), size(), size(), "causal = true", "", 1, 1));
  causal.expect_right({{1, 130}, {70, 70}, {129, 64}, {20, 5}}, attention_tolerance(dtype()));
}

/// Parts of equal numbers of pairs of tiles, some with none; rows that some parts do not show keys to.
TEST_P(CudaAttention, BlocksMayPartTheKeys) {
  OneAttention all(attention_text(dtype(), size(), size(), "", "", 2, 1));
  OneAttention causal(attention_text(dtype(), size(), size(), "causal = true", "", 1, 1));
  all.part_keys(3);
  all.expect_right({{1, 400}, {3, 129}, {3, 0}, {0, 5}, {2, 1}}, attention_tolerance(dtype()));
  causal.part_keys(2);
  causal.expect_right({{1, 300}, {70, 140}}, attention_tolerance(dtype()));
}

INSTANTIATE_TEST_SUITE_P(Sizes, CudaAttention,
                         ::testing::Combine(::testing::Values("f16", "bf16", "f32"),
                                            ::testing::Values(32, 64, 96, 128)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

class CudaAttentionNvrtc : public OfArchitecture {
 protected:
  /// NVRTC's log for the kernels; none where there is no NVRTC that makes code for the architecture.
  static std::optional<std::string> log_of(const OneAttention& one, const std::string& option) {
    try {
      const device::cuda::Nvrtc nvrtc;
      if (!nvrtc.supports(std::stoi(std::string(GetParam()).substr(3)))) return std::nullopt;
      const auto compiled = nvrtc.compile_cubin(one.text(GetParam() == std::string("sm_90a")),
                                                "attention", GetParam(), {option});
      EXPECT_EQ(std::string(compiled.image.data(), 4), "\177ELF");
      return compiled.log;
    } catch (const DeviceError&) {
      return std::nullopt;
    }
  }
};

TEST_P(CudaAttentionNvrtc, TakesEveryText) {
  using Case = std::tuple<const char*, int, const char*, const char*>;
  const std::vector<Case> cases = {{"f16", 32, "causal = true", "f32[s0, s1]"},
                                   {"f32", 64, "causal = true", "f32[s0, s1]"},
                                   {"f32", 96, "", ""},
                                   {"bf16", 128, "causal = true", "f32[s0, s1]"},
                                   {"f16", 64, "", "bool[1, 1, 1, s1]"}};
  for (const auto& [dtype, size, attrs, mask] : test::few_by_day(cases, 2, 1)) {
    const OneAttention one(attention_text(dtype, size, size, attrs, mask));
    EXPECT_EQ(one.text().find("#include"), std::string::npos);
    const auto log = log_of(one, "--ptxas-options=-O0");
    if (!log) GTEST_SKIP() << "libnvrtc is not on this machine, or makes no such code";
    EXPECT_EQ(without_notes(*log), "");
  }
}

TEST_P(CudaAttentionNvrtc, HoldsHeadsOf64InRegisters) {
  const OneAttention plain(attention_text("bf16", 64, 64, "causal = true"));
  const OneAttention masked(attention_text("bf16", 64, 64, "", "bf16[1, 2, s0, s1]"));
  const OneAttention exact(attention_text("f32", 64, 64, "causal = true"));
  for (const OneAttention* one : {&plain, &masked, &exact}) {
    const auto found = log_of(*one, "--ptxas-options=-v");
    if (!found) GTEST_SKIP() << "libnvrtc is not on this machine, or makes no such code";
    // Of two tiles of rows a warp code has some registers too few.
    const bool all = GetParam() == std::string("sm_90a");
    const auto kernels = std::ranges::count_if(
        one->names(), [&](const std::string& name) { return all || !name.starts_with("wgmma"); });
    expect_few_spills(*found, static_cast<std::size_t>(kernels), 96);
  }
}

INSTANTIATE_TEST_SUITE_P(Arch, CudaAttentionNvrtc, ::testing::Values("sm_80", "sm_90a", "sm_100"),
                         [](const auto& info) { return std::string(info.param); });

class CudaAttentionMask : public ::testing::TestWithParam<const char*> {};

TEST_P(CudaAttentionMask, AgreesWithTheEvaluator) {
  for (const std::string dtype : {"f16", "f32"})
    for (const char* attrs : {"", "causal = true, scale = 0.3"}) {
      OneAttention one(attention_text(dtype, 32, 32, attrs, GetParam()));
      one.expect_right({{5, 70}, {66, 64}, {2, 0}}, attention_tolerance(dtype));
      one.part_keys(3);
      one.expect_right({{5, 400}, {66, 200}}, attention_tolerance(dtype));
    }
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaAttentionMask,
                         ::testing::Values("bool[1, 1, 1, s1]", "f16[1, 2, s0, s1]", "f32[s0, s1]",
                                           "bool[s0, s1]", "f16[1]"));

TEST(CudaAttentions, AFiniteScoreForWhatIsHidden) {
  for (const char* attrs : {"hidden = -10000.0, nan_rows = true", "hidden = 0.5, causal = true"}) {
    OneAttention one(attention_text("f16", 16, 16, attrs, "bool[s0, s1]"));
    one.expect_right({{5, 70}}, 2e-3);
  }
}

/// Queries 0 to 3 with `keys` keys: the first sees the last four only, the second none, the third all.
std::vector<ir::Literal> with_hidden_rows(const ir::Graph& graph, std::int64_t keys = 70) {
  std::vector<ir::Literal> all = test::random_arguments(graph, {3, keys});
  ir::Literal& mask = all.at(3);
  const bool chooses = mask.dtype() == boolean;
  for (std::int64_t key = 0; key < keys; ++key) {
    const bool seen = key >= keys - 4;
    mask.set(key, chooses ? seen : seen ? 0.25 : -INFINITY);
    mask.set(keys + key, chooses ? 0 : -INFINITY);
    mask.set(2 * keys + key, chooses ? 1 : 0.5);
  }
  return all;
}

TEST(CudaAttentions, QueriesThatSeeNothing) {
  std::size_t turn = 0;
  for (const char* mask : {"f16[s0, s1]", "f32[s0, s1]", "bool[s0, s1]"})
    for (const char* attrs : {"", "nan_rows = true"}) {
      SCOPED_TRACE(std::string(mask) + " " + attrs);
      for (const std::string& dtype :
           test::few_by_day<std::string>({"f16", "f32"}, 2, turn++ * 2 / 3)) {
        OneAttention one(attention_text(dtype, 16, 16, attrs, mask, 1, 1));
        one.expect_right(with_hidden_rows(one.graph()), attention_tolerance(dtype));
        one.expect_right({{4, 0}}, 0);
        one.part_keys(2);
        one.expect_right(with_hidden_rows(one.graph(), 330), attention_tolerance(dtype));
      }
    }
}

TEST(CudaAttentions, ANaNScoreMakesItsQueryNaN) {
  for (const char* attrs : {"", "causal = true"}) {
    OneAttention one(attention_text("bf16", 16, 16, attrs, "", 1, 1));
    std::vector<ir::Literal> all = test::random_arguments(one.graph(), {70, 70});
    all[0].set(3 * 16 + 5, NAN);        // query 3
    all[1].set(66 * 16 + 2, INFINITY);  // key 66: scores of both infinities
    all[1].set(69 * 16 + 2, NAN);       // the last key, which causality hides but from the last
    one.expect_right(all, 1.6e-2);
    one.part_keys(2);
    one.expect_right(all, 1.6e-2);
  }
}

TEST(CudaAttentions, LargeScoresDoNotOverflow) {
  OneAttention one(attention_text("f16", 16, 16, "scale = 100.0", "", 1, 1));
  std::vector<ir::Literal> all = test::random_arguments(one.graph(), {20, 130});
  for (std::int64_t k = 0; k < all[0].count(); ++k) all[0].set(k, all[0].at(k) * 1000);
  one.expect_right(all, 2e-3);
}

// Copies are wide where lines begin at multiples of 16 bytes, and element by element elsewhere; sizes are filled up
// to multiples of 16 with zeros.
TEST(CudaAttentions, HeadSizesThatAreNoMultiples) {
  for (const std::string dtype : {"f16", "f32"})
    for (const auto& [size, value_size] : test::few_by_day<std::pair<int, int>>(
             {{40, 24}, {72, 8}, {33, 128}, {2, 3}, {128, 5}}, 2, dtype == "f16")) {
      SCOPED_TRACE(dtype + " " + std::to_string(size) + ", " + std::to_string(value_size));
      OneAttention one(attention_text(dtype, size, value_size));
      one.expect_right({{18, 67}}, attention_tolerance(dtype));
    }
}

TEST(CudaAttentions, HeadsThatLieSideBySideAndAreSharedAndWhatFollows) {
  OneAttention one(
      R"(graph @layer(%q: f16[s0, s1, 4, 32], %k: f16[s0, s2, 2, 32], %v: f16[s0, s2, 2, 32], %r: f16[s0, 4, s1, 32], %gain: f32[]) {
    %a = permute(%q) {perm = [0, 2, 1, 3]}
    %b = permute(%k) {perm = [0, 2, 1, 3]}
    %c = permute(%v) {perm = [0, 2, 1, 3]}
    %o = attention(%a, %b, %c) {causal = true}
    %x = add(%o, %r)
    %w = convert(%x) {dtype = f32}
    %y = mul(%w, %gain)
    return %y
  })");
  EXPECT_EQ(one.nest().name, "attention_add_convert_mul");
  one.expect_right({{2, 20, 70}, {3, 1, 9}, {1, 66, 66}}, 4e-3);
}

TEST(CudaAttentions, MasksThatAreComputedOnTheWay) {
  OneAttention one(
      R"(graph @padded(%q: bf16[s0, 2, s1, 16], %k: bf16[s0, 2, s2, 16], %v: bf16[s0, 2, s2, 16], %length: i64[s0, 1, 1, 1]) {
    %key = iota() {sizes = [1, 1, 1, s2], axis = 3, dtype = i64}
    %seen = lt(%key, %length)
    %o = attention(%q, %k, %v, %seen)
    return %o
  })");
  std::vector<ir::Literal> all = test::random_arguments(one.graph(), {3, 17, 70});
  all[3].set_int(0, 70);
  all[3].set_int(1, 65);
  all[3].set_int(2, 0);
  one.expect_right(all, 1.6e-2);
}

/// Lengths of sequences, as a mask says them: tiles of keys in front of all that are seen and behind them are not read, where
/// no mask of single queries says more.
TEST(CudaAttentions, KeysThatNobodySeesAreNotRead) {
  constexpr std::int64_t kCount = 400;
  constexpr std::int64_t kSize = 16;
  struct Range {
    std::int64_t first, last;  ///< keys that are seen
  };
  for (const char* mask : {"bool[1, 1, 1, s1]", "f16[1, 1, 1, s1]", "f32[s1]"})
    for (const auto& [first, last] :
         {Range{0, 1}, {0, 64}, {130, 140}, {127, 129}, {150, 321}, {399, 400}, {7, 7}}) {
      SCOPED_TRACE(std::string(mask) + " from " + std::to_string(first) + " to " +
                   std::to_string(last));
      const std::string dtype = mask == std::string("f32[s1]") ? "f32" : "f16";
      const std::int64_t line = kSize * (dtype == "f32" ? 4 : 2);
      OneAttention one(attention_text(dtype, kSize, kSize, "", mask, 1, 1));
      std::vector<ir::Literal> all = test::random_arguments(one.graph(), {20, kCount});
      const bool chooses = all[3].dtype() == boolean;
      for (std::int64_t key = 0; key < kCount; ++key) {
        const bool seen = key >= first && key < last;
        all[3].set(key, chooses ? seen : seen ? 0.5 : -INFINITY);
      }
      // Two tiles are the least that is left out in front.
      const std::int64_t begin = first == last ? 0 : first / 128 * 128;
      const std::int64_t end = first == last ? 0 : (last + 63) / 64 * 64;
      one.poison(static_cast<std::size_t>(kCount * line), [&](std::span<unsigned char> bytes) {
        for (std::int64_t key = 0; key < kCount; ++key)
          if (key < begin || key >= end)
            std::fill_n(bytes.begin() + key * line, line, 0xff);  // NaN
      });
      one.expect_right(all, 2e-3);
      one.part_keys(2);
      one.expect_right(all, 2e-3);
    }
}

std::optional<jit::cuda::AttentionParts> parts_of(const std::string& text, ir::Graph& graph,
                                                  jit::Program& program) {
  graph = ir::parse(text);
  program =
      jit::lower(graph, {.target = jit::LowerOptions::Target::Cuda, .rest = {.library = false}});
  return jit::cuda::attention_parts(*program.kernels.at(0).nest);
}

TEST(CudaAttentions, WhatDoesNotFitTakesTheNestsOwnTiles) {
  ir::Graph graph;
  jit::Program program;
  EXPECT_FALSE(parts_of(attention_text("f64", 64, 64), graph, program));
  EXPECT_FALSE(parts_of(attention_text("f16", 130, 64), graph, program));
  EXPECT_FALSE(parts_of(attention_text("f16", 64, 160), graph, program));
  EXPECT_FALSE(parts_of(attention_text("f16", 1, 1), graph, program));
  EXPECT_FALSE(parts_of(
      R"(graph @turned(%q: f16[1, 1, s0, 16], %k: f16[1, 1, 16, s1], %v: f16[1, 1, s1, 16]) {
    %b = permute(%k) {perm = [0, 1, 3, 2]}
    %o = attention(%q, %b, %v)
    return %o
  })",
      graph, program))
      << "keys lie along the length";
  ASSERT_TRUE(parts_of(attention_text("f16", 64, 64), graph, program));
  const jit::Nest& nest = *program.kernels.at(0).nest;
  EXPECT_EQ(jit::cuda::emit_code(nest, {.tensor_cores = false}).variants.size(), 1u);
  EXPECT_EQ(jit::cuda::emit_code(nest, {.tensor_cores = false}).variants[0].variant, "");
  EXPECT_EQ(jit::cuda::emit_code(nest, {.max_shared_bytes = 30 * 1024}).variants[0].variant, "");
  const auto code = jit::cuda::emit_code(nest);
  EXPECT_EQ(code.variants.size(), 3u);
  EXPECT_EQ(code.choose(std::vector<std::int64_t>{1, 1000}).variant, 0u);
  EXPECT_EQ(code.choose(std::vector<std::int64_t>{4000, 4000}).variant, 1u) << "of two heads";
}

TEST(CudaAttentions, ScalesOfTheNestAreThoseOfItsKey) {
  const auto key = [](const char* attrs) {
    const OneAttention one(attention_text("f16", 64, 64, attrs));
    return jit::structural_key(one.nest()).hex();
  };
  EXPECT_NE(key(""), key("scale = 0.25"));
  EXPECT_EQ(key(""), key("scale = 0.125"));
  EXPECT_NE(key(""), key("causal = true"));
}

/// The variant for so many heads of 64 or `size` on an H200, and among how many blocks keys are parted.
std::string chosen_attention(std::int64_t heads, std::int64_t queries, std::int64_t keys,
                             std::int64_t size = 64, bool causal = false) {
  const auto tiles = jit::cuda::attention_tiles(f16, size, size, false, kH200);
  const AttentionShape shape{heads, queries, keys, causal, heads};
  const jit::cuda::TileChoice choice = jit::cuda::cheapest_tile(tiles, shape, kH200);
  return tiles[choice.tile].name() +
         (choice.parts == 1 ? "" : " / " + std::to_string(choice.parts));
}

TEST(CudaAttentions, TheCostModelTakesTilesThatFillTheDevice) {
  EXPECT_EQ(chosen_attention(132, 1, 256), "flash_16x64") << "one query: warps part the keys";
  EXPECT_EQ(chosen_attention(8, 100, 1000), "flash_16x64 / 4")
      << "larger tiles would leave most of it idle";
  EXPECT_EQ(chosen_attention(256, 4096, 4096), "wgmma_128x64");
  EXPECT_EQ(chosen_attention(256, 4096, 4096, 128, true), "wgmma_128x128");
  EXPECT_EQ(chosen_attention(512, 64, 512), "flash_64x64");
}

TEST(CudaAttentions, TheCostModelPartsManyKeysOfFewHeads) {
  EXPECT_EQ(chosen_attention(32, 1, 4096), "flash_16x64 / 8");
  EXPECT_EQ(chosen_attention(1, 1, 100), "flash_16x64") << "there is nothing to part";
  const auto tiles = jit::cuda::attention_tiles(f16, 128, 128, false, kH200);
  for (const std::int64_t heads : {0, 1, 8, 130, 300, 5000})
    for (const std::int64_t queries : {0, 1, 16, 100, 3000})
      for (const std::int64_t keys : {0, 1, 129, 5000, 1 << 17})
        for (const AttentionTile& tile : tiles) {
          const AttentionShape shape{heads, queries, keys, queries > 1, heads};
          const std::int64_t parts = jit::cuda::cheapest_parts(tile, shape, kH200);
          ASSERT_GE(parts, 1);
          if (parts == 1) continue;
          const std::int64_t places = heads * ((queries + tile.rows() - 1) / tile.rows());
          EXPECT_LE(places, jit::cuda::kMostSharedTiles);
          EXPECT_LE((parts - 1) * 128, keys) << "each has a pair of tiles";
          EXPECT_LE(places * parts, 132 * jit::cuda::resident_blocks(tile.threads(), tile.registers,
                                                                     tile.shared_bytes(), kH200))
              << "all run at a time";
          EXPECT_LT(jit::cuda::attention_cycles(tile, shape, kH200, parts),
                    jit::cuda::attention_cycles(tile, shape, kH200));
        }
}

TEST(CudaAttentions, VariantsAreTilesOfQueries) {
  EXPECT_THAT(OneAttention(attention_text("f16", 64, 64)).names(),
              ElementsAre("flash_16x64", "flash_64x64", "flash_128x64", "wgmma_128x64"));
  EXPECT_THAT(OneAttention(attention_text("f16", 128, 128)).names(),
              ElementsAre("flash_16x64", "flash_64x64", "flash_128x64", "wgmma_128x128"))
      << "registers";
  EXPECT_EQ(jit::cuda::attention_tiles(f16, 96, 96, false, kH200).size(), 3u)
      << "head sizes of 64 and 128 alone";
  EXPECT_EQ(jit::cuda::attention_tiles(f16, 64, 64, false, {132, 227 * 1024, true}).size(), 3u);
  EXPECT_TRUE(jit::cuda::attention_tiles(f16, 64, 64, false, {80, 96 * 1024, false}).empty());
  EXPECT_THAT(OneAttention(attention_text("f32", 64, 64)).names(),
              ElementsAre("plain_16x64", "plain_32x64", "plain_64x64"));
  EXPECT_EQ(jit::cuda::attention_tiles(f32, 64, 64, false, {80, 96 * 1024, false}).size(), 2u)
      << "64 queries take more than 96 KiB";
  for (const AttentionTile& tile :
       jit::cuda::attention_tiles(f16, 128, 128, true, {80, 80 * 1024, true}))
    EXPECT_LE(tile.shared_bytes(), 80 * 1024);
}

TEST(CudaAttentions, TextIsThePlaceTheTilesAndTheExpressions) {
  const OneAttention one(attention_text("bf16", 80, 64, "causal = true", "", 4, 2));
  const std::string text = one.text();
  EXPECT_THAT(text, HasSubstr("typedef hd_attention_tile<hd_bf16, 80, 64, 1, 4, 1> Tile;"));
  EXPECT_THAT(text, HasSubstr("heddle_attention_flash_64x64("));
  EXPECT_THAT(text, HasSubstr("hd_fetch_keys<Tile>(shared, 0, hd_lines<hd_bf16>{b1"));
  EXPECT_THAT(text, HasSubstr("tile.scale("));
}

/// A launch of one of attention's kernels between 20 queries and so many keys.
BarriersOf barriers_of(DType dtype, std::int64_t keys, int depth, int columns,
                       const std::string& kernel, std::int64_t parts = 1) {
  const OneAttention one(attention_text(std::string(name_of(dtype)), depth, columns, "", "", 1, 1));
  std::vector<ir::Literal> buffers = test::random_arguments(one.graph(), {20, keys});
  buffers.emplace_back(dtype, ir::Sizes{1, 1, 20, columns});
  const std::vector<std::string> names = one.names();
  const auto found = std::find(names.begin(), names.end(), kernel);
  EXPECT_NE(found, names.end()) << kernel;
  const auto number = static_cast<std::size_t>(found - names.begin());
  return {one.sources(), number, {20, keys}, std::move(buffers), parts};
}

TEST(CudaAttentions, EveryBarrierAndProxyFenceOfWarpgroupsIsNeeded) {
  if (!test::is_nightly()) GTEST_SKIP() << test::kByNight;
  if (!test::on_simulator()) GTEST_SKIP() << test::kNeedsSimulator;
  // One before all, two around the sums on their way out, and the last, after which a block would go on to another tile of queries.
  BarriersOf launch = barriers_of(f16, 300, 128, 128, "wgmma_128x128");
  EXPECT_EQ(launch.count(), 4u);
  EXPECT_THAT(launch.unnoticed(), ElementsAre(4u));
  // Three tiles of keys are four steps. To the simulator the first lane of a warp reads what is multiplied, and threads take turns in
  // changing order: the first lanes' fences are the first ones of each 32, or the last.
  const auto fence = BarriersOf::What::ProxyFence;
  EXPECT_EQ(launch.count(fence), 4u * 256);
  EXPECT_EQ(launch.unnoticed(fence, 32, 1).size() + launch.unnoticed(fence, 32, 32).size(), 4u * 8);
}

TEST(CudaAttentions, WarpgroupsHaveToWaitForFullStagesAndFreeOnes) {
  if (!test::is_nightly()) GTEST_SKIP() << test::kByNight;
  if (!test::on_simulator()) GTEST_SKIP() << test::kNeedsSimulator;
  // Six steps, of which three begin to fetch others.
  BarriersOf launch = barriers_of(f16, 300, 64, 64, "wgmma_128x64");
  const auto wait = BarriersOf::What::MbarrierWait;
  EXPECT_EQ(launch.count(wait), (6u + 3u) * 256);
  // Lanes in the middle of a warp read nothing, but write to free stages.
  EXPECT_EQ(launch.unnoticed(wait, 32, 9).size(), 6u * 8);
  EXPECT_EQ(launch.unnoticed(wait, 32, 1).size() + launch.unnoticed(wait, 32, 32).size(), 6u * 8);
}

TEST(CudaAttentions, EveryBarrierIsNeeded) {
  if (!test::on_simulator()) GTEST_SKIP() << test::kNeedsSimulator;
  // One for the queries, one for each of four tiles of keys, two around the sums on their way out, and the last,
  // after which a block would go on to another tile of queries.
  BarriersOf launch = barriers_of(f16, 200, 16, 16, "flash_64x64");
  EXPECT_EQ(launch.count(), 8u);
  EXPECT_THAT(launch.unnoticed(), ElementsAre(8u));
}

TEST(CudaAttentions, EveryBarrierOfF32IsNeeded) {
  if (!test::on_simulator()) GTEST_SKIP() << test::kNeedsSimulator;
  // Two for each of three tiles of keys, of which one is for the weights; the others as above.
  BarriersOf launch = barriers_of(f32, 130, 16, 128, "plain_32x64");
  EXPECT_EQ(launch.count(), 9u);
  EXPECT_THAT(launch.unnoticed(), ElementsAre(9u));
}

TEST(CudaAttentions, EveryBarrierOfPartedKeysIsNeeded) {
  if (!test::on_simulator()) GTEST_SKIP() << test::kNeedsSimulator;
  for (const DType dtype : {f16, f32}) {
    SCOPED_TRACE(std::string(name_of(dtype)));
    // What the last block leaves in memory it waits for twice, where the others have a fence; nobody goes on to another tile of
    // queries. Of f32 its one tile of keys has nothing left to read when its sums take its place.
    BarriersOf launch = dtype == f32 ? barriers_of(f32, 130, 16, 128, "plain_32x64", 2)
                                     : barriers_of(f16, 200, 16, 128, "flash_64x64", 2);
    EXPECT_EQ(launch.count(), 17u);
    EXPECT_LE(launch.unnoticed().size(), dtype == f16 ? 2u : 4u);
  }
}

}  // namespace
}  // namespace heddle::tests
