// Vector loops: tails, the ways of addressing memory, masks, checked indices, scatters.
#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>
#include <regex>
#include <vector>

#include "jit/cpu/llvm/codegen.h"
#include "jit/index_report.h"
#include "jit/nest_builder.h"
#include "tests/jit/nest_runner.h"

namespace heddle::jit {
namespace {

using ir::ScalarOp;
using tests::CompiledNest;

constexpr std::int64_t kWidths[] = {64, 32, 16};

/// Counts around every multiple of a vector, up to three times the widest main loop.
std::vector<std::int64_t> counts() {
  std::vector<std::int64_t> all(70);
  std::iota(all.begin(), all.end(), 0);
  for (std::int64_t k : {127, 128, 129, 143, 144, 145, 255, 256, 257, 300, 383, 384, 385, 401})
    all.push_back(k);
  return all;
}

template <typename T>
std::vector<T> iota(std::int64_t count, T first = T(0)) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t k = 0; k < values.size(); ++k)
    values[k] = static_cast<T>(first + static_cast<T>(k));
  return values;
}

/// A nest of one vector loop over s0 with buffers to be added by the test.
struct OneLoop {
  OneLoop() : builder("one_loop") {
    builder.nest().size_count = 1;
    builder.set_parallel(builder.new_axis(1), 1);
  }
  void begin() {
    i = builder.new_axis(n);
    builder.begin_for(i, n, ForStmt::Kind::Vector);
  }
  CompiledNest compile(std::int64_t vector_bytes = 0) {
    builder.end_for();
    return CompiledNest(builder.finish(), vector_bytes);
  }
  NestBuilder builder;
  SymExpr n = SymExpr::size(0);
  Symbol i{};
};

TEST(LlvmLoop, TailsOfEveryLength) {
  for (std::int64_t width : kWidths) {
    OneLoop loop;
    auto& b = loop.builder;
    const auto x = b.add_global(f32, loop.n);
    const auto y = b.add_global(f32, loop.n);
    const auto o = b.add_global(f32, loop.n);
    loop.begin();
    const Scalar sum = b.apply(ScalarOp::Add, {b.load(x, loop.i), b.load(y, loop.i)});
    b.store(o, loop.i, b.apply(ScalarOp::Max, {sum, b.constant(f32, 0)}));
    const CompiledNest code = loop.compile(width);
    for (std::int64_t count : counts()) {
      auto vx = iota<float>(count, -50.0f);
      auto vy = iota<float>(count, -20.0f);
      std::vector<float> out(static_cast<std::size_t>(count) + 1, 7.0f);
      EXPECT_EQ(code.run({vx.data(), vy.data(), out.data()}, {count}), 0);
      for (std::size_t k = 0; k < vx.size(); ++k) ASSERT_EQ(out[k], std::max(vx[k] + vy[k], 0.0f));
      ASSERT_EQ(out[vx.size()], 7.0f) << "written beyond the end of " << count;
    }
  }
}

/// out[i] = x[index(i)] for one way of addressing, on elements of every size.
template <typename T>
void expect_addressing(DType dtype, SymExpr (*index)(const SymExpr& i, const SymExpr& n),
                       std::int64_t (*at)(std::int64_t i, std::int64_t n)) {
  OneLoop loop;
  auto& b = loop.builder;
  const auto x = b.add_global(dtype, loop.n * 3);
  const auto o = b.add_global(dtype, loop.n);
  loop.begin();
  b.store(o, loop.i, b.load(x, index(loop.i, loop.n)));
  const CompiledNest code = loop.compile();
  for (std::int64_t count : counts()) {
    auto vx = iota<T>(count * 3 + 1);
    std::vector<T> out(static_cast<std::size_t>(count));
    code.run({vx.data(), out.data()}, {count});
    for (std::int64_t k = 0; k < count; ++k)
      ASSERT_EQ(out[static_cast<std::size_t>(k)], vx[static_cast<std::size_t>(at(k, count))])
          << "element " << k << " of " << count << " " << name_of(dtype);
  }
}

template <typename T>
void expect_every_addressing(DType dtype) {
  using E = const SymExpr&;
  using I = std::int64_t;
  expect_addressing<T>(dtype, [](E i, E) { return i; }, [](I i, I) { return i; });
  expect_addressing<T>(
      dtype, [](E i, E n) { return n - 1 - i; }, [](I i, I n) { return n - 1 - i; });
  expect_addressing<T>(dtype, [](E i, E) { return i * 2 + 1; }, [](I i, I) { return i * 2 + 1; });
  expect_addressing<T>(dtype, [](E, E n) { return n; }, [](I, I n) { return n; });
  expect_addressing<T>(dtype, [](E i, E) { return floordiv(i, 3); }, [](I i, I) { return i / 3; });
  expect_addressing<T>(
      dtype, [](E i, E n) { return mod(i * 7, n) + mod(i, 4); },
      [](I i, I n) { return i * 7 % n + i % 4; });
  expect_addressing<T>(
      dtype, [](E i, E n) { return max(min(i - 5, n - 9), 0); },
      [](I i, I n) { return std::max(std::min(i - 5, n - 9), I{0}); });
  // A broadcast dimension that may be 1, and one that ends inside the loop.
  expect_addressing<T>(
      dtype, [](E i, E) { return min(SymExpr(0), i) + 2; }, [](I, I) { return I{2}; });
  expect_addressing<T>(
      dtype, [](E i, E n) { return min(n - 3, i) + 3; },
      [](I i, I n) { return std::min(n - 3, i) + 3; });
  expect_addressing<T>(
      dtype, [](E i, E n) { return n + min(i, 100); },
      [](I i, I n) { return n + std::min(i, I{100}); });
  // Negative numerators round down: the axis is at most n - 1, so the sum is not negative.
  expect_addressing<T>(
      dtype, [](E i, E n) { return n + floordiv(-i, 2); },
      [](I i, I n) { return n - (i + 1) / 2; });
}

TEST(LlvmLoop, EveryWayOfAddressing) {
  expect_every_addressing<float>(f32);
  expect_every_addressing<double>(f64);
  expect_every_addressing<std::int16_t>(i16);
  expect_every_addressing<std::uint8_t>(u8);
  expect_every_addressing<std::int64_t>(i64);
}

/// Every third element, from the second on or from the end.
template <typename T>
void expect_strided_stores(DType dtype) {
  for (const bool forward : {true, false}) {
    OneLoop loop;
    auto& b = loop.builder;
    const auto x = b.add_global(dtype, loop.n);
    const auto o = b.add_global(dtype, loop.n * 3);
    loop.begin();
    const SymExpr at = forward ? SymExpr(loop.i) * 3 + 1 : (loop.n - 1 - loop.i) * 3 + 1;
    b.store(o, at, b.load(x, loop.i));
    const CompiledNest code = loop.compile();
    for (const std::int64_t count : counts()) {
      auto vx = iota<T>(count);
      std::vector<T> out(static_cast<std::size_t>(count * 3), T{77});
      code.run({vx.data(), out.data()}, {count});
      for (std::int64_t k = 0; k < 3 * count; ++k) {
        const std::int64_t from = forward ? k / 3 : count - 1 - k / 3;
        const T want = k % 3 == 1 ? vx[static_cast<std::size_t>(from)] : T{77};
        ASSERT_EQ(out[static_cast<std::size_t>(k)], want) << k << " of " << 3 * count;
      }
    }
  }
}

TEST(LlvmLoop, StridedStores) {
  expect_strided_stores<float>(f32);
  expect_strided_stores<double>(f64);
  expect_strided_stores<std::uint8_t>(u8);
  expect_strided_stores<std::int64_t>(i64);
}

TEST(LlvmLoop, MasksKeepMemoryUntouched) {
  OneLoop loop;
  auto& b = loop.builder;
  const auto x = b.add_global(f32, loop.n);
  const auto o = b.add_global(f32, loop.n);
  loop.begin();
  // Reads x[i - 3] where i >= 3, writes where i is even; nothing else is touched.
  const Scalar at = b.from_index(loop.i);
  const Scalar inside = b.apply(ScalarOp::Ge, {at, b.constant_int(i64, 3)});
  const Scalar odd = b.apply(ScalarOp::And, {at, b.constant_int(i64, 1)});
  const Scalar even = b.apply(ScalarOp::Eq, {odd, b.constant_int(i64, 0)});
  b.store(o, loop.i, b.load(x, SymExpr(loop.i) - 3, inside.id), even.id);
  const CompiledNest code = loop.compile();
  for (std::int64_t count : counts()) {
    auto vx = iota<float>(count, 1.0f);
    std::vector<float> out(static_cast<std::size_t>(count), -1.0f);
    code.run({vx.data(), out.data()}, {count});
    for (std::int64_t k = 0; k < count; ++k) {
      const float want = k % 2 != 0 ? -1.0f : k < 3 ? 0.0f : static_cast<float>(k - 2);
      ASSERT_EQ(out[static_cast<std::size_t>(k)], want) << k << " of " << count;
    }
  }
}

TEST(LlvmLoop, IndicesCompareAsTheirValuesDo) {
  using enum ScalarOp;
  for (ScalarOp op : {Eq, Ne, Lt, Le, Gt, Ge}) {
    for (bool swapped : {false, true}) {
      OneLoop loop;
      auto& b = loop.builder;
      const auto limit = b.add_global(i64, 1);
      const auto o = b.add_global(boolean, loop.n);
      loop.begin();
      const Scalar index = b.from_index(SymExpr(loop.i) - 7);
      const Scalar bound = b.load(limit, 0);
      b.store(o, loop.i, swapped ? b.apply(op, {bound, index}) : b.apply(op, {index, bound}));
      const CompiledNest code = loop.compile();
      for (std::int64_t bound_value :
           {std::int64_t{-1} << 40, std::int64_t{-8}, std::int64_t{-7}, std::int64_t{0},
            std::int64_t{9}, std::int64_t{121}, std::int64_t{122}, std::int64_t{1} << 40}) {
        std::vector<std::uint8_t> out(150);
        code.run({&bound_value, out.data()}, {150});
        for (std::int64_t k = 0; k < 150; ++k) {
          const std::int64_t x = swapped ? bound_value : k - 7;
          const std::int64_t y = swapped ? k - 7 : bound_value;
          const bool want[] = {x == y, x != y, x<y, x <= y, x> y, x >= y};
          ASSERT_EQ(out[static_cast<std::size_t>(k)] != 0,
                    want[static_cast<int>(op) - static_cast<int>(Eq)])
              << x << " " << ir::name_of(op) << " " << y;
        }
      }
    }
  }
}

TEST(LlvmLoop, AMaskedUniformLoadReadsNothingWhereFalse) {
  OneLoop loop;
  auto& b = loop.builder;
  const auto x = b.add_global(f32, 1);
  const auto m = b.add_global(boolean, loop.n);
  const auto o = b.add_global(f32, loop.n);
  loop.begin();
  const Scalar mask = b.load(m, loop.i);
  b.store(o, loop.i, b.load(x, 0, mask.id));
  const CompiledNest code = loop.compile();
  std::vector<std::uint8_t> none(40, 0);
  std::vector<float> out(40, -1.0f);
  code.run({nullptr, none.data(), out.data()}, {40});  // would crash if it read
  EXPECT_EQ(out, std::vector<float>(40, 0.0f));
  none[5] = 1;
  float five = 5;
  code.run({&five, none.data(), out.data()}, {40});
  EXPECT_EQ(out[5], 5.0f);
  EXPECT_EQ(out[6], 0.0f);
}

/// out[i] = table[indices[i]] with a check of the range [0, rows).
CompiledNest compile_gather(std::int64_t rows) {
  OneLoop loop;
  auto& b = loop.builder;
  const auto table = b.add_global(f32, rows);
  const auto indices = b.add_global(i64, loop.n);
  const auto o = b.add_global(f32, loop.n);
  loop.begin();
  const SymExpr t = b.bind(b.load(indices, loop.i), 0, rows - 1, 42);
  b.store(o, loop.i, b.load(table, t));
  return loop.compile();
}

TEST(LlvmLoop, AGatheredIndexOutOfRangeIsToldAndEndsTheKernel) {
  const CompiledNest code = compile_gather(10);
  auto table = iota<float>(10);
  for (std::int64_t count : counts()) {
    auto indices = iota<std::int64_t>(count);
    for (auto& index : indices) index = index * 3 % 10;
    std::vector<float> out(indices.size());
    EXPECT_EQ(code.run({table.data(), indices.data(), out.data()}, {count}), 0);
    for (std::size_t k = 0; k < out.size(); ++k) ASSERT_EQ(out[k], static_cast<float>(indices[k]));
    if (count == 0) continue;
    for (std::int64_t wrong : {std::int64_t{-1}, std::int64_t{10}, INT64_MIN, INT64_MAX}) {
      auto broken = indices;
      broken.back() = wrong;
      out.back() = -7;
      EXPECT_EQ(code.run({table.data(), broken.data(), out.data()}, {count}), 42);
      ASSERT_EQ(out.back(), -7) << "nothing is read, and nothing written";
      const IndexReport report = take_index_report();
      EXPECT_EQ(report.check, 42);
      EXPECT_EQ(report.size, 10);
      EXPECT_TRUE(wrong < 0 || report.index == wrong) << report.index;
    }
  }
}

TEST(LlvmLoop, AnEmptyTableIsReportedAndNotRead) {
  const CompiledNest code = compile_gather(0);
  std::vector<std::int64_t> indices(20, 0);
  std::vector<float> out(20);
  EXPECT_EQ(code.run({nullptr, indices.data(), out.data()}, {20}), 42);
  EXPECT_EQ(code.run({nullptr, nullptr, nullptr}, {0}), 0);
}

TEST(LlvmLoop, AMaskedOutIndexIsNotReported) {
  OneLoop loop;
  auto& b = loop.builder;
  const auto indices = b.add_global(i64, loop.n);
  const auto o = b.add_global(i64, loop.n);
  loop.begin();
  const Scalar index = b.load(indices, loop.i);
  const Scalar wanted = b.apply(ScalarOp::Lt, {index, b.constant_int(i64, 100)});
  const SymExpr t = b.bind(index, 0, 9, 7, wanted.id);
  b.store(o, loop.i, b.from_index(t));
  const CompiledNest code = loop.compile();
  std::vector<std::int64_t> values(50, 1000);
  std::vector<std::int64_t> out(50);
  EXPECT_EQ(code.run({values.data(), out.data()}, {50}), 0);
  EXPECT_EQ(out[3], 9);
  values[49] = 99;
  EXPECT_EQ(code.run({values.data(), out.data()}, {50}), 7);
}

/// The kernel ends where a check fails: behind it nothing needs bounds.
TEST(LlvmLoop, CheckedIndicesAreNotBoundedAgain) {
  for (const std::int32_t check : {0, 7}) {
    NestBuilder b("checked");
    const auto indices = b.add_global(i64, 64);
    const auto x = b.add_global(f32, 10);
    const auto o = b.add_global(f32, 64);
    b.set_parallel(b.new_axis(1), 1);
    const Symbol i = b.begin_for(64, ForStmt::Kind::Vector);
    b.store(o, i, b.load(x, b.bind(b.load(indices, i), 0, 9, check)));
    b.end_for();
    cpu::CodegenTexts texts;
    cpu::compile_object(b.finish(), cpu::host_target(), &texts);
    EXPECT_EQ(texts.ir.find("@llvm.smin.v") == std::string::npos, check != 0) << texts.ir;
  }
}

/// Up to the largest indices, by products.
TEST(LlvmLoop, DividesIndicesByNumbers) {
  for (const std::int64_t divisor : {3, 7, 641, 1000003}) {
    OneLoop loop;
    const auto o = loop.builder.add_global(i64, 64);
    loop.builder.nest().size_count = 2;
    loop.begin();
    const SymExpr place = floordiv(SymExpr(loop.i) + SymExpr::size(1), divisor);
    loop.builder.store(o, loop.i, loop.builder.from_index(place));
    loop.builder.end_for();
    const Nest nest = loop.builder.finish();
    cpu::CodegenTexts texts;
    cpu::compile_object(nest, cpu::host_target(), &texts);
    EXPECT_EQ(texts.ir.find("fdiv"), std::string::npos) << texts.ir;
    const CompiledNest code(nest, 0);
    for (const int bits : {0, 31, 50, 51}) {
      for (const std::int64_t side : {-1, 1}) {
        const std::int64_t multiple = side * ((std::int64_t{1} << bits) / divisor) * divisor;
        const std::int64_t first = multiple - (side > 0 ? 64 : 0);
        std::vector<std::int64_t> out(64);
        code.run({out.data()}, {64, first});
        for (std::int64_t k = 0; k < 64; ++k)
          ASSERT_EQ(out[static_cast<std::size_t>(k)],
                    floordiv(SymExpr(first + k), SymExpr(divisor)).constant())
              << first + k << " by " << divisor;
      }
    }
  }
}

/// A masked load of no lanes where there is no memory is right, and takes a microsecond on Zen 4.
TEST(LlvmLoop, LoadsOfNoLanesAreMadeFromMemoryThatIsThere) {
  OneLoop loop;
  auto& b = loop.builder;
  const auto x = b.add_global(f32, loop.n);
  const auto o = b.add_global(f32, loop.n);
  const Scalar is_long = b.apply(ScalarOp::Lt, b.i64(100), b.from_index(loop.n));
  loop.begin();
  b.store(o, loop.i, b.load(x, SymExpr(loop.i) - 1000000 * loop.n + 100000000, is_long.id));
  b.end_for();
  const Nest nest = b.finish();
  cpu::CodegenTexts texts;
  cpu::compile_object(nest, cpu::host_target(), &texts);
  EXPECT_TRUE(std::regex_search(texts.ir, std::regex("select i1 .*, ptr .*, ptr @zeros")))
      << texts.ir;
  std::vector<float> out(70, 1.0f);
  std::vector<float> in(70, 2.0f);
  CompiledNest(nest, 0).run({in.data(), out.data()}, {70});
  EXPECT_EQ(out, std::vector<float>(70, 0.0f));
}

TEST(LlvmLoop, ScatteredSumsSeeEachOther) {
  OneLoop loop;
  auto& b = loop.builder;
  const auto indices = b.add_global(i64, loop.n);
  const auto o = b.add_global(i32, 4);
  b.nest().buffers[o].read = true;
  loop.begin();
  const SymExpr t = b.bind(b.load(indices, loop.i), 0, 3, 0);
  b.store(o, t, b.constant_int(i32, 1));
  b.last_store().combine = ir::ReduceOp::Sum;
  const CompiledNest code = loop.compile();
  std::vector<std::int64_t> indices_data = iota<std::int64_t>(203);
  for (auto& index : indices_data) index %= 3;
  std::vector<std::int32_t> out(4, 10);
  code.run({indices_data.data(), out.data()}, {203});
  EXPECT_EQ(out, (std::vector<std::int32_t>{78, 78, 77, 10}));
}

TEST(LlvmLoop, ScattersWriteWhereTheyAreTold) {
  OneLoop loop;
  auto& b = loop.builder;
  const auto x = b.add_global(f16, loop.n);
  const auto o = b.add_global(f16, loop.n * 2);
  loop.begin();
  b.store(o, SymExpr(loop.i) * 2 + 1, b.load(x, loop.i));
  const CompiledNest code = loop.compile();
  for (std::int64_t count : counts()) {
    auto vx = iota<std::uint16_t>(count, 0x3c00);
    std::vector<std::uint16_t> out(static_cast<std::size_t>(2 * count), 1);
    code.run({vx.data(), out.data()}, {count});
    for (std::size_t k = 0; k < vx.size(); ++k) {
      ASSERT_EQ(out[2 * k], 1);
      ASSERT_EQ(out[2 * k + 1], vx[k]);
    }
  }
}

TEST(LlvmLoop, UniformValuesAreSharedByAllLanes) {
  OneLoop loop;
  auto& b = loop.builder;
  const auto scale = b.add_global(f32, 2);
  const auto x = b.add_global(f32, loop.n);
  const auto o = b.add_global(f32, loop.n);
  loop.begin();
  const Scalar product = b.apply(ScalarOp::Mul, {b.load(scale, 0), b.load(scale, 1)});
  b.store(o, loop.i, b.apply(ScalarOp::Mul, {product, b.load(x, loop.i)}));
  const CompiledNest code = loop.compile();
  EXPECT_EQ(code.run({nullptr, nullptr, nullptr}, {0}), 0);  // reads nothing for no iteration
  float scales[] = {2, 3};
  auto vx = iota<float>(77);
  std::vector<float> out(77);
  code.run({scales, vx.data(), out.data()}, {77});
  for (std::size_t k = 0; k < out.size(); ++k) ASSERT_EQ(out[k], 6 * vx[k]);
}

TEST(LlvmLoop, UniformIfsAndStores) {
  NestBuilder b("uniform");
  b.nest().size_count = 1;
  const auto o = b.add_global(i64, 2);
  b.set_parallel(b.new_axis(1), 1);
  const Scalar n = b.from_index(SymExpr::size(0));
  b.begin_if(b.apply(ScalarOp::Gt, {n, b.constant_int(i64, 5)}));
  b.store(o, 0, n);
  b.end_if();
  b.store(o, 1, b.constant_int(i64, 3), b.apply(ScalarOp::Lt, {n, b.constant_int(i64, 5)}).id);
  const CompiledNest code(b.finish());
  std::int64_t out[] = {0, 0};
  code.run({out}, {9});
  EXPECT_EQ(out[0], 9);
  EXPECT_EQ(out[1], 0);
  out[0] = 0;
  code.run({out}, {4});
  EXPECT_EQ(out[0], 0);
  EXPECT_EQ(out[1], 3);
}

TEST(LlvmLoop, ParallelIterationsAndScratch) {
  NestBuilder b("rows");
  b.nest().size_count = 2;
  const SymExpr rows = SymExpr::size(0);
  const SymExpr n = SymExpr::size(1);
  const auto x = b.add_global(f32, rows * n);
  const auto o = b.add_global(f32, rows * n);
  const auto first = b.add_local(f32, n, 0);
  const auto second = b.add_local(f64, n, 0);
  const Symbol row = b.new_axis(rows);
  b.set_parallel(row, rows);
  const Symbol i = b.new_axis(n);
  b.begin_for(i, n, ForStmt::Kind::Vector);
  const Scalar value = b.load(x, SymExpr(row) * n + SymExpr(i));
  b.store(first, i, value);
  b.store(second, i, b.convert(value, f64));
  b.end_for();
  const Symbol j = b.new_axis(n);
  b.begin_for(j, n, ForStmt::Kind::Vector);
  const Scalar sum = b.apply(
      ScalarOp::Add, {b.load(first, n - 1 - SymExpr(j)), b.convert(b.load(second, j), f32)});
  b.store(o, SymExpr(row) * n + SymExpr(j), sum);
  b.end_for();
  const CompiledNest code(b.finish());
  for (std::int64_t count : {1, 15, 16, 17, 130}) {
    auto vx = iota<float>(3 * count);
    std::vector<float> out(vx.size());
    code.run({vx.data(), out.data()}, {3, count});
    for (std::int64_t r = 0; r < 3; ++r)
      for (std::int64_t k = 0; k < count; ++k)
        ASSERT_EQ(out[static_cast<std::size_t>(r * count + k)],
                  static_cast<float>(2 * r * count + count - 1));
  }
}

/// y[p] = the iteration that ran before p, which z tells.
TEST(LlvmLoop, ParallelIterationsRunBackwardsWhereTheLastIsGivenFirst) {
  NestBuilder b("order");
  const Symbol p = b.new_axis(9);
  b.set_parallel(p, 9);
  const NestBufferId y = b.add_global(DType::I64, 9);
  const NestBufferId z = b.add_global(DType::I64, 1);
  b.store(y, p, b.load(z, 0));
  b.store(z, 0, b.from_index(p));
  const CompiledNest code(b.finish());
  std::vector<std::int64_t> before(9, -2);
  std::int64_t last = -1;
  EXPECT_EQ(code.run({before.data(), &last}, {}, 2, 5), 0);
  EXPECT_EQ(before, (std::vector<std::int64_t>{-2, -2, -1, 2, 3, -2, -2, -2, -2}));
  last = -1;
  EXPECT_EQ(code.run({before.data(), &last}, {}, 8, 5), 0);
  EXPECT_EQ(before, (std::vector<std::int64_t>{-2, -2, -1, 2, 3, 6, 7, -1, -2}));
  EXPECT_EQ(code.run({before.data(), &last}, {}, 4, 4), 0);
  EXPECT_EQ(last, 5) << "there is none";
}

}  // namespace
}  // namespace heddle::jit
