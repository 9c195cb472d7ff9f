// The nest IR: its text, its key and its checks.
#include "jit/nest.h"

#include <array>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "jit/nest_builder.h"

namespace heddle::jit {
namespace {

using ir::ReduceOp;
using ir::ScalarOp;

/// Rows of x, less their largest element, into out; the largest and its place into two more.
Nest example(const std::string& name = "example") {
  NestBuilder b(name);
  b.nest().size_count = 2;
  const SymExpr rows = SymExpr::size(0);
  const SymExpr n = SymExpr::size(1);
  const auto x = b.add_global(f32, rows * n);
  const auto indices = b.add_global(i64, rows);
  const auto out = b.add_global(f32, rows * n);
  const auto tile = b.add_local(f32, 64, 64);
  b.add_local(f16, n, 0);
  b.add_local(f32, rows, 0);
  const Symbol row = b.new_axis(rows);
  b.set_parallel(row, rows);
  const SymExpr t = b.bind(b.load(indices, row), 0, rows - 1, 3);
  const Symbol i = b.new_axis(n);
  b.begin_for(i, n, ForStmt::Kind::Vector);
  const std::array value{b.load(x, t * n + SymExpr(i)), b.from_index(i)};
  const auto best = b.reduce(ReduceOp::ArgMax, f32, value);
  b.end_for();
  const Symbol k = b.new_axis(4);
  b.begin_for(k, 4, ForStmt::Kind::Unroll);
  const Scalar sum = b.carry(best[0]);
  const Scalar total = b.set_next(sum, b.apply(ScalarOp::Mul, {sum, sum}));
  b.end_for();
  b.contract({tile, f32, 4, 16, 4, min(n, 16), n, {x, 0, n, 1}, {x, 0, n, 1}, false});
  b.begin_if(b.apply(ScalarOp::Lt, {best[1], b.constant_int(i64, 9)}));
  b.store(out, SymExpr(row) * n, b.convert(b.convert(total, f16), f32));
  b.last_store().combine = ReduceOp::Sum;
  b.end_if();
  return b.finish();
}

TEST(Nest, PrintsEveryStatement) {
  EXPECT_EQ(print(example()), R"(nest @example(2 sizes) {
  buffer b0: f32[s0*s1] read
  buffer b1: i64[s0] read
  buffer b2: f32[s0*s1] written
  local l0: f32[64] max 64 written
  local l1: f16[s1]
  local l2: f32[s0]
  fact i0 in [0, s0-1]
  fact i1 in [0, s1-1]
  fact i2 in [0, 3]
  fact t0 in [0, s0-1]
  parallel i0 < s0
  %0 = load b1[i0]: i64
  t0 = bind %0 in [0, s0-1] check 3
  vector i1 < s1 reduce(%3, %4 = argmax f32 of %1, %2) {
    %1 = load b0[s1*t0+i1]: f32
    %2 = index(i1)
  }
  unroll i2 < 4 carry(%7, %5: f32 = %3 then %6) {
    %6 = mul(%5, %5): f32
  }
  contract l0 = b0[0]{s1, 1} x b0[0]{s1, 1}: f32 tile 4x16 rows 4 columns min(s1,16) depth s1
  %8 = const 9: i64
  %9 = lt(%4, %8): bool
  if %9 {
    %10 = convert(%7): f16
    %11 = convert(%10): f32
    store b2[s1*i0] sum= %11
  }
}
)");
}

TEST(Nest, PrintsWhatBytesStandFor) {
  Nest nest = example();
  Dequantised& d = std::get<ContractStmt>(nest.body[4].node).b.dequantised.emplace();
  d = {.dtype = DType::F16,
       .scale = {0, 2, 0, 1},
       .zero = Dequantised::Part{1, 3, 4, 1},
       .group = 32};
  EXPECT_NE(
      print(nest).find("x b0[0]{s1, 1} less b1[3]{4, 1} by b0[2]{0, 1} of 32 rows as f16: f32"),
      std::string::npos)
      << print(nest);
}

TEST(Nest, TheNameIsNoPartOfTheKey) {
  EXPECT_EQ(structural_key(example("one")), structural_key(example("two")));
  EXPECT_NE(print(example("one")), print(example("two")));
  Nest other = example();
  other.buffers[0].name = "renamed";
  EXPECT_EQ(structural_key(other), structural_key(example()));
}

TEST(Nest, WhatCodeDependsOnIsPartOfTheKey) {
  const auto changed = [](void (*change)(Nest&)) {
    Nest nest = example();
    change(nest);
    return !(structural_key(nest) == structural_key(example()));
  };
  EXPECT_TRUE(changed([](Nest& n) { n.buffers[0].dtype = f16; }));
  EXPECT_TRUE(changed([](Nest& n) { n.buffers[3].max_count = 65; }));
  EXPECT_TRUE(changed([](Nest& n) { n.size_count = 3; }));
  EXPECT_TRUE(changed([](Nest& n) { n.parallel_extent = 4; }));
  EXPECT_TRUE(changed([](Nest& n) { n.facts.sizes_positive = true; }));
  EXPECT_TRUE(changed([](Nest& n) { std::get<BindStmt>(n.body[1].node).check = 4; }));
  EXPECT_TRUE(changed([](Nest& n) { std::get<ForStmt>(n.body[2].node).extent = 5; }));
  EXPECT_TRUE(changed([](Nest& n) { std::get<ForStmt>(n.body[2].node).reductions[0].mask = 9; }));
  EXPECT_TRUE(changed([](Nest& n) { std::get<ContractStmt>(n.body[4].node).tile_rows = 3; }));
  EXPECT_TRUE(changed([](Nest& n) { std::get<ContractStmt>(n.body[4].node).runs = {{2, 3, 4}}; }));
  EXPECT_TRUE(changed([](Nest& n) { std::get<ConstStmt>(n.body[5].node).integer = 8; }));
}

TEST(Nest, ConstantsThatDifferSlightlyHaveDifferentKeys) {
  const auto key = [](double value) {
    NestBuilder b("constant");
    const auto out = b.add_global(f64, 1);
    b.set_parallel(b.new_axis(1), 1);
    b.store(out, 0, b.constant(f64, value));
    return structural_key(b.finish()).hex();
  };
  EXPECT_NE(key(0.1), key(std::nextafter(0.1, 1)));
  EXPECT_NE(key(0.0), key(-0.0));
}

TEST(Nest, ScratchHoldsLocalBuffersWithoutABound) {
  const Nest nest = example();
  const auto offsets = scratch_offsets(nest);
  ASSERT_EQ(offsets.size(), 2u);
  const std::int64_t sizes[] = {5, 33};
  EXPECT_EQ(offsets[0].evaluate_sizes(sizes), 0);
  EXPECT_EQ(offsets[1].evaluate_sizes(sizes), 128);  // 66 bytes, to a multiple of 64
  EXPECT_EQ(scratch_bytes(nest).evaluate_sizes(sizes), 192);
}

/// Breaks a good nest and expects check() to name the rule.
void expect_broken(const std::string& rule, void (*change)(Nest&)) {
  Nest nest = example();
  check(nest);
  change(nest);
  try {
    check(nest);
    ADD_FAILURE() << "no failure of " << rule;
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(rule));
  }
}

ForStmt& loop_at(Nest& nest, std::size_t k) { return std::get<ForStmt>(nest.body[k].node); }

TEST(NestCheck, N1DefinedOnce) {
  expect_broken("N1 %0", [](Nest& n) { n.body.push_back(n.body[0]); });
}
TEST(NestCheck, N2DefinedBeforeUse) {
  expect_broken("N2 %0", [](Nest& n) { n.body.erase(n.body.begin()); });
  // A scalar of a loop's body is gone after the loop.
  expect_broken("N2 %1", [](Nest& n) { std::get<ApplyStmt>(n.body[6].node).operands[0] = 1; });
}
TEST(NestCheck, N3BuffersExistAndAreDeclared) {
  expect_broken("N3", [](Nest& n) { std::get<LoadStmt>(n.body[0].node).buffer = 9; });
  expect_broken("N3", [](Nest& n) { n.buffers[1].read = false; });
  expect_broken("N3", [](Nest& n) { std::swap(n.buffers[2], n.buffers[3]); });
}
TEST(NestCheck, N4VectorLoopsDoNotNest) {
  expect_broken("N4", [](Nest& n) {
    loop_at(n, 2).body->push_back(Stmt{ForStmt{.axis = {Symbol::Kind::Axis, 9},
                                               .extent = 1,
                                               .kind = ForStmt::Kind::Vector,
                                               .body = std::make_shared<Block>()}});
  });
}
TEST(NestCheck, N5VectorLoopsCarryNothing) {
  expect_broken("N5", [](Nest& n) { loop_at(n, 3).kind = ForStmt::Kind::Vector; });
}
TEST(NestCheck, N6IfsAndContractionsAreUniform) {
  expect_broken("N6", [](Nest& n) { loop_at(n, 2).body->push_back(n.body[4]); });
  expect_broken("N6", [](Nest& n) { loop_at(n, 2).body->push_back(n.body[7]); });
}
TEST(NestCheck, N7OperandsFit) {
  expect_broken("N7", [](Nest& n) { std::get<ApplyStmt>(n.body[6].node).op = ScalarOp::Exp; });
  expect_broken("N7", [](Nest& n) { std::get<ApplyStmt>(n.body[6].node).operands[0] = 3; });
  expect_broken("N7", [](Nest& n) { std::get<ApplyStmt>(n.body[6].node).operands.pop_back(); });
}
TEST(NestCheck, N8SymbolsAreInScope) {
  expect_broken("N8", [](Nest& n) { n.parallel_extent = SymExpr::size(7); });
  expect_broken("N8", [](Nest& n) { std::get<LoadStmt>(n.body[0].node).index = SymExpr::axis(1); });
  expect_broken("N8", [](Nest& n) { loop_at(n, 2).axis = n.parallel_axis; });
}
TEST(NestCheck, N9MasksAreBools) {
  expect_broken("N9", [](Nest& n) { std::get<BindStmt>(n.body[1].node).mask = 0; });
  expect_broken("N9", [](Nest& n) { std::get<IfStmt>(n.body[7].node).condition = 8; });
}
TEST(NestCheck, N10ReductionsAreComplete) {
  expect_broken("N10", [](Nest& n) { loop_at(n, 2).reductions[0].contributions.pop_back(); });
  expect_broken("N10", [](Nest& n) { loop_at(n, 2).reductions[0].dtype = f64; });
}
TEST(NestCheck, N11MemoryKeepsItsDtype) {
  expect_broken("N11", [](Nest& n) { n.buffers[1].dtype = i32; });
}
TEST(NestCheck, N12AccumulatorsAreLocal) {
  expect_broken("N12", [](Nest& n) { std::get<ContractStmt>(n.body[4].node).acc = 2; });
  expect_broken("N12", [](Nest& n) { std::get<ContractStmt>(n.body[4].node).tile_columns = 99; });
}
TEST(NestCheck, N13LoopsInsideVectorLoopsAreUniform) {
  expect_broken("N13", [](Nest& n) {
    loop_at(n, 2).body->push_back(Stmt{ForStmt{.axis = {Symbol::Kind::Axis, 9},
                                               .extent = SymExpr::axis(1),
                                               .body = std::make_shared<Block>()}});
  });
}
Windows three_taps() {
  return {0,
          {{.taps = 3,
            .stride = 1,
            .pad = 1,
            .dilation = 1,
            .windows = 4,
            .size = 4,
            .memory_stride = 1}}};
}
TEST(NestCheck, N14WindowsAreOfTheRightOperand) {
  expect_broken("N14",
                [](Nest& n) { std::get<ContractStmt>(n.body[4].node).a.windows = three_taps(); });
  expect_broken("N14", [](Nest& n) {
    Windows without = three_taps();
    without.axes[0].taps = 0;
    std::get<ContractStmt>(n.body[4].node).b.windows = without;
  });
  expect_broken("N8", [](Nest& n) {
    Windows far = three_taps();
    far.axes[0].size = SymExpr::size(7);
    std::get<ContractStmt>(n.body[4].node).b.windows = far;
  });
}
Dequantised by_first() { return {.dtype = DType::F32, .scale = {0, 0, 0, 1}, .zero = {}}; }
TEST(NestCheck, N15WhatIsDequantisedIsARightOperandOfBytes) {
  expect_broken("N15",
                [](Nest& n) { std::get<ContractStmt>(n.body[4].node).a.dequantised = by_first(); });
  expect_broken("N15",
                [](Nest& n) { std::get<ContractStmt>(n.body[4].node).b.dequantised = by_first(); });
}

TEST(NestCheck, N18RunsLieAlongTheDepthOrAreOfGroupsOfBytes) {
  expect_broken("N18", [](Nest& n) { std::get<ContractStmt>(n.body[4].node).runs = {{2, 3, 4}}; });
  expect_broken("N8", [](Nest& n) {
    std::get<ContractStmt>(n.body[4].node).runs = {{SymExpr::size(7), 3, 4}};
  });
}

TEST(NestCheck, N16NumbersOfAFewBitsLieInWords) {
  expect_broken("N16", [](Nest& n) {
    Dequantised of_bits = by_first();
    of_bits.bits = 4;
    std::get<ContractStmt>(n.body[4].node).b.dequantised = of_bits;
  });
}

}  // namespace
}  // namespace heddle::jit
