// Scans as nests, and those of few long rows and columns in parts, against the definition.
#include <cmath>

#include "jit/lower/split_scans.h"
#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

const jit::LowerOptions kScansOnCuda{.target = jit::LowerOptions::Target::Cuda};

TEST(ScanNest, EachAxisBothWays) {
  for (const DType dtype : testing::kNumbers) {
    for (const std::int64_t axis : {0, 1, -1}) {
      for (const bool exclusive : {false, true}) {
        for (const bool reverse : {false, true}) {
          expect_nest_right({"cumsum",
                             {noise(dtype, {3, 4, 21})},
                             {{"axis", axis}, {"exclusive", exclusive}, {"reverse", reverse}}});
        }
      }
    }
  }
}

TEST(ScanNest, ManyColumnsInBlocks) {
  for (const DType dtype : {f32, f16, i64, u8})
    for (const std::int64_t columns : {65, 512, 513, 1100})
      for (const bool exclusive : {false, true})
        expect_nest_right({"cumsum",
                           {noise(dtype, {2, 5, columns})},
                           {{"axis", 1}, {"exclusive", exclusive}, {"reverse", !exclusive}}});
}

/// Sums of many columns are kept once for two rows, and for a last one alone where their number is odd.
TEST(ScanNest, SumsOfManyColumnsAreStoredOnceForTwoRows) {
  const auto times_stored = [](std::int64_t rows, const char* what) {
    const ir::Graph graph =
        testing::graph_of({"cumsum", {noise(f32, {rows, 100})}, {{"axis", std::int64_t{0}}}});
    const std::string nests = nests_of(lowered(graph));
    std::size_t times = 0;
    for (std::size_t at = 0; (at = nests.find(what, at)) != std::string::npos; ++at) ++times;
    return times;
  };
  // The first store is that of zeros.
  EXPECT_EQ(times_stored(6, "store l0"), 2u);
  EXPECT_EQ(times_stored(6, "store b1"), 2u);
  EXPECT_EQ(times_stored(7, "store l0"), 3u);
  EXPECT_EQ(times_stored(7, "store b1"), 3u);
  for (const std::int64_t rows : {1, 2, 7})
    expect_nest_right({"cumsum", {noise(f32, {rows, 100})}, {{"axis", std::int64_t{0}}}});
}

TEST(ScanNest, SizesThatAreNotKnownOrZero) {
  for (const std::int64_t axis : {0, 1}) {
    ir::GraphBuilder b("main");
    const ir::Value x = b.input(tensor(f32, {"s0", "s1"}));
    b.output(b.emit("cumsum", {x}, {{"axis", axis}}));
    const ir::Graph graph = b.finish();
    expect_code_right_at(graph, {5, 130});
    expect_code_right_at(graph, {0, 3});
    expect_code_right_at(graph, {3, 0});
  }
}

/// A sum along `axis` as CUDA has it, interpreted and as machine code.
jit::Program expect_scan_right(const ir::Literal& x, std::int64_t axis, bool exclusive = false,
                               bool reverse = false) {
  SCOPED_TRACE(::testing::PrintToString(x.sizes()) + " along " + std::to_string(axis));
  const ir::Graph graph = testing::graph_of(
      {"cumsum", {x}, {{"axis", axis}, {"exclusive", exclusive}, {"reverse", reverse}}});
  jit::Program program = jit::lower(graph, kScansOnCuda);
  // Sums of many come in another order.
  const double tolerance = is_floating(x.dtype()) ? 1e-4 : 0;
  expect_program_right(graph, program, {x}, as_code(), tolerance);
  return program;
}

TEST(ScanNest, RowsOfAnyLength) {
  // Runs that are whole or not, as many as a block has threads, one more, and tiles with and without a rest.
  for (const std::int64_t length :
       {1, 2, 7, 8, 9, 33, 100, 128, 300, 1000, 2047, 2048, 2049, 4096, 5000})
    for (const std::int64_t rows : {1, 3, 70}) {
      const bool exclusive = length % 2 == 0;
      const bool reverse = length % 3 == 0;
      expect_scan_right(noise(f32, {rows, length}), 1, exclusive, reverse);
      expect_scan_right(noise(i32, {rows, length}), -1, !exclusive, !reverse);
    }
}

TEST(ScanNest, RowsOfEveryDTypeInterpreted) {
  for (const DType dtype : testing::kNumbers)
    for (const std::int64_t length : {20, 2100})
      for (const bool exclusive : {false, true})
        for (const bool reverse : {false, true})
          expect_nest_right(
              {"cumsum",
               {noise(dtype, {2, 1, length, 1})},
               {{"axis", std::int64_t{2}}, {"exclusive", exclusive}, {"reverse", reverse}}},
              1e-4);
}

TEST(ScanNest, WhatIsNotANumberStaysWhereItIs) {
  for (const std::int64_t length : {20, 3000}) {
    ir::Literal x = noise(f32, {2, length});
    x.set(length - 9, INFINITY);
    x.set(length - 3, -INFINITY);
    x.set(length + 5, NAN);
    expect_scan_right(x, 1);
    expect_scan_right(x, 1, true, true);
    // Of zeros that are negative, sums are positive.
    ir::Literal zeros(f32, {1, length});
    for (std::int64_t k = 0; k < length; ++k) zeros.set(k, -0.0);
    expect_scan_right(zeros, 1);
  }
}

TEST(ScanNest, AThreadReadsBesideItsNeighbour) {
  struct Case {
    ir::Sizes sizes;
    std::int64_t axis, blocks, threads;
    int touched;
  };
  // A block has a long row, whose threads share the scan, as many short ones as make 2048 elements, or 64 columns of whatever row, 8 elements at once.
  for (const auto& [sizes, axis, blocks, threads, places] :
       {Case{{300, 5000}, 1, 300, 2048, 2}, Case{{300, 1024}, 1, 300, 2048, 2},
        Case{{300, 256}, 1, 38, 2048, 2}, Case{{4096, 4, 16}, 2, 128, 2048, 2},
        Case{{4096, 4, 16}, 1, 1024, 64, 2}, Case{{4096, 16, 16}, 1, 1024, 64, 16}}) {
    SCOPED_TRACE(::testing::PrintToString(sizes));
    const ir::Graph graph = testing::graph_of({"cumsum", {noise(f32, sizes)}, {{"axis", axis}}});
    const jit::Program program = jit::lower(graph, kScansOnCuda);
    ASSERT_EQ(program.kernels.size(), 1u);
    const jit::Nest& nest = *program.kernels[0].nest;
    EXPECT_EQ(nest.parallel_extent.constant(), blocks);
    int touched = 0;  // what touches memory: each element is read once and written once
    const auto follow = [&](const auto& self, const jit::Block& block,
                            std::optional<jit::Symbol> lane) -> void {
      const auto check = [&](jit::NestBufferId buffer, const base::SymExpr& index) {
        if (nest.buffers[buffer].scope == jit::NestBuffer::Scope::Local) return;
        ++touched;
        ASSERT_TRUE(lane.has_value());
        const auto at = [&](std::int64_t k) {
          base::SymbolExprs place{{nest.parallel_axis, base::SymExpr(0)}};
          std::vector<jit::Symbol> symbols;
          index.collect_symbols(symbols);
          for (const jit::Symbol symbol : symbols) place.emplace(symbol, base::SymExpr(0));
          place[*lane] = k;
          return index.substitute(place).constant();
        };
        for (std::int64_t k = 0; k < 15; ++k) EXPECT_EQ(at(k + 1), at(k) + 1);
      };
      for (const jit::Stmt& statement : block) {
        if (const auto* load = std::get_if<jit::LoadStmt>(&statement.node))
          check(load->buffer, load->index);
        if (const auto* store = std::get_if<jit::StoreStmt>(&statement.node))
          check(store->buffer, store->index);
        const auto* loop = std::get_if<jit::ForStmt>(&statement.node);
        if (loop == nullptr) continue;
        const bool scan = loop->kind == jit::ForStmt::Kind::Scan;
        const bool vector = scan || loop->kind == jit::ForStmt::Kind::Vector;
        if (vector && !scan && !lane && loop->extent.is_constant()) {
          EXPECT_LE(loop->extent.constant(), threads);
        }
        self(self, *loop->body, vector ? loop->axis : lane);
      }
    };
    follow(follow, nest.body, {});
    EXPECT_EQ(touched, places);
  }
}

/// Rows of all lengths whose scan a block shares, whole tiles or not, of dtypes of all widths.
TEST(ScanNest, ABlockSharesALongRow) {
  for (const std::int64_t length : {512, 1000, 2048, 4096, 4099, 9000})
    for (const DType dtype : {f32, bf16, f64, i32, u8}) {
      SCOPED_TRACE(::testing::PrintToString(length) + " " + std::string(name_of(dtype)));
      const jit::Program program = expect_scan_right(noise(dtype, {3, length}), 1, length == 1000);
      ASSERT_EQ(program.kernels.size(), 1u);
      const auto& loop = std::get<jit::ForStmt>(program.kernels[0].nest->body.back().node);
      EXPECT_EQ(loop.kind, jit::ForStmt::Kind::Scan);
    }
}

using ::testing::ElementsAre;

TEST(SplitScans, FewLongRows) {
  for (const bool exclusive : {false, true})
    for (const bool reverse : {false, true})
      for (const std::int64_t length : {32768, 40009}) {
        const jit::Program program =
            expect_scan_right(noise(f32, {3, length}, 3), 1, exclusive, reverse);
        const std::size_t kernels = length == 32768 ? 3 : 4;  // what is cut off makes a copy
        EXPECT_EQ(program.kernels.size(), kernels);
        expect_scan_right(noise(u8, {length}, 3), 0, exclusive, reverse);
      }
  expect_scan_right(noise(f16, {2, 36000}, 3), 1);
  const ir::Graph vocabulary =
      testing::graph_of({"cumsum", {noise(f32, {16, 128000})}, {{"axis", std::int64_t{1}}}});
  EXPECT_THAT(blocks_of(jit::lower(vocabulary, kScansOnCuda)), ElementsAre(16 * 25, 1, 16 * 25));
}

TEST(SplitScans, FewLongColumns) {
  for (const bool exclusive : {false, true})
    for (const bool reverse : {false, true}) {
      EXPECT_EQ(expect_scan_right(noise(f32, {2, 4096, 8}), 1, exclusive, reverse).kernels.size(),
                3u);
      expect_scan_right(noise(i64, {1021, 3}), 0, exclusive, reverse);
      expect_scan_right(noise(f32, {300, 2, 50}), 0, exclusive, reverse);
    }
  expect_scan_right(noise(bf16, {3000, 5}), 0);
}

TEST(SplitScans, AnUnknownNumberOfRows) {
  ir::GraphBuilder b("main");
  const ir::Value x = b.input(tensor(f32, {"s0", "32768"}));
  b.output(b.emit("relu", {b.emit("cumsum", {x}, {{"axis", std::int64_t{1}}})}));
  const ir::Graph graph = b.finish();
  const jit::Program program = jit::lower(graph, kScansOnCuda);
  EXPECT_EQ(program.kernels.size(), 3u);
  for (const std::int64_t rows : {0, 1, 3})
    expect_program_right(graph, program, {noise(f32, {rows, 32768})}, as_code(), 1e-4);
}

TEST(SplitScans, OthersStayAsTheyAre) {
  const auto stays = [](std::initializer_list<const char*> sizes, std::int64_t axis,
                        const jit::LowerOptions& options) {
    ir::GraphBuilder b("main");
    b.output(b.emit("cumsum", {b.input(tensor(f32, sizes))}, {{"axis", axis}}));
    const ir::Graph graph = b.finish();
    return jit::split_scans(graph, options).identical(graph);
  };
  EXPECT_FALSE(stays({"263", "32768"}, 1, kScansOnCuda));
  EXPECT_TRUE(stays({"263", "32768"}, 1, {}));
  EXPECT_TRUE(stays({"264", "32768"}, 1, kScansOnCuda)) << "there are blocks enough";
  EXPECT_TRUE(stays({"263", "32767"}, 1, kScansOnCuda));
  EXPECT_TRUE(stays({"4", "s0"}, 1, kScansOnCuda));
  EXPECT_TRUE(stays({"0", "32768"}, 1, kScansOnCuda));
  EXPECT_FALSE(stays({"256", "1024"}, 0, kScansOnCuda));
  EXPECT_TRUE(stays({"255", "1024"}, 0, kScansOnCuda)) << "one thread is done as soon";
  EXPECT_TRUE(stays({"4096", "65536"}, 0, kScansOnCuda)) << "there are threads enough";
  EXPECT_TRUE(stays({"4096", "s0"}, 0, kScansOnCuda));
  EXPECT_TRUE(stays({"4096", "0"}, 0, kScansOnCuda));
}

}  // namespace
}  // namespace heddle::test
