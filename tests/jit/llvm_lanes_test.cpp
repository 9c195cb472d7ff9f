// Lanes that read every n-th element, several of them one element, or near each other, from memory that ends with the last that
// is wanted.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "jit/nest_builder.h"
#include "tests/jit/nest_runner.h"
#include "tests/support/guarded_memory.h"

namespace heddle::jit {
namespace {

using tests::CompiledNest;
using tests::GuardedMemory;

/// out[i] = in[at(i)] for i < count.
template <typename T>
void expect_read(DType dtype, std::int64_t count, const std::function<SymExpr(SymExpr)>& at,
                 const std::function<std::int64_t(std::int64_t)>& want) {
  NestBuilder b("lanes");
  b.nest().size_count = 1;
  const SymExpr n = SymExpr::size(0);
  const auto x = b.add_global(dtype, SymExpr::size(0) * 12);
  const auto y = b.add_global(dtype, n);
  b.set_parallel(b.new_axis(1), 1);
  const Symbol i = b.new_axis(n);
  b.begin_for(i, n, ForStmt::Kind::Vector);
  b.store(y, i, b.load(x, at(i)));
  b.end_for();
  const auto elements = static_cast<std::size_t>(want(count - 1)) + 1;
  GuardedMemory in(elements * sizeof(T));
  for (std::size_t k = 0; k < elements; ++k) in.as<T>()[k] = static_cast<T>(k % 101);
  std::vector<T> out(static_cast<std::size_t>(count), T{113});
  const Nest nest = b.finish();
  for (const std::int64_t vector_bytes : {16, 32, 64}) {
    CompiledNest(nest, vector_bytes).run({in.as<T>(), out.data()}, {count});
    for (std::int64_t k = 0; k < count; ++k)
      ASSERT_EQ(out[static_cast<std::size_t>(k)], static_cast<T>(want(k) % 101))
          << k << " of " << count << ", vectors of " << vector_bytes;
  }
}

template <typename T>
void expect_all(DType dtype) {
  for (const std::int64_t count : {1, 15, 16, 33, 64, 150}) {
    for (const std::int64_t step : {2, 3, 4, 5, 8, 9}) {
      SCOPED_TRACE(::testing::Message() << "every " << step);
      expect_read<T>(
          dtype, count, [&](const SymExpr& i) { return i * step + 1; },
          [&](std::int64_t k) { return k * step + 1; });
    }
    for (const std::int64_t each : {2, 3, 4, 8, 64}) {
      SCOPED_TRACE(::testing::Message() << "each " << each << " times");
      expect_read<T>(
          dtype, count, [&](const SymExpr& i) { return floordiv(i, each) + 2; },
          [&](std::int64_t k) { return k / each + 2; });
    }
  }
}

/// out[width * i + k] = in[width * i + width - 1 - k], where memory ends with the last row.
template <typename T>
void expect_rows(DType dtype, std::int64_t width, std::int64_t count) {
  NestBuilder b("rows");
  b.nest().size_count = 1;
  const SymExpr n = SymExpr::size(0);
  const auto x = b.add_global(dtype, n * width);
  const auto y = b.add_global(dtype, n * width);
  b.set_parallel(b.new_axis(1), 1);
  const Symbol i = b.new_axis(n);
  b.begin_for(i, n, ForStmt::Kind::Vector);
  std::vector<Scalar> row;
  for (std::int64_t k = 0; k < width; ++k)
    row.push_back(b.load(x, SymExpr(i) * width + width - 1 - k));
  for (std::int64_t k = 0; k < width; ++k)
    b.store(y, SymExpr(i) * width + k, row[static_cast<std::size_t>(k)]);
  b.end_for();
  const auto elements = static_cast<std::size_t>(width * count);
  GuardedMemory in(elements * sizeof(T));
  GuardedMemory out(elements * sizeof(T));
  for (std::size_t k = 0; k < elements; ++k) in.as<T>()[k] = static_cast<T>(k % 101);
  const Nest nest = b.finish();
  for (const std::int64_t vector_bytes : {16, 32, 64}) {
    std::fill_n(out.as<T>(), elements, T{113});
    CompiledNest(nest, vector_bytes).run({in.as<T>(), out.as<T>()}, {count});
    for (std::int64_t k = 0; k < width * count; ++k) {
      const std::int64_t from = k / width * width + width - 1 - k % width;
      ASSERT_EQ(out.as<T>()[k], static_cast<T>(from % 101))
          << k << " of " << count << " rows, vectors of " << vector_bytes;
    }
  }
}

/// out[i] = in[i] + 1, of as many as a size says or of `count`; the sum of all behind them.
Nest next_numbers(DType dtype, std::optional<std::int64_t> count) {
  NestBuilder b("rest");
  b.nest().size_count = 1;
  const SymExpr n = count ? SymExpr(*count) : SymExpr::size(0);
  const auto x = b.add_global(dtype, n);
  const auto y = b.add_global(dtype, n + 1);
  b.set_parallel(b.new_axis(1), 1);
  const Symbol i = b.new_axis(n);
  b.begin_for(i, n, ForStmt::Kind::Vector);
  const ir::Scalar next =
      b.apply(ir::ScalarOp::Add,
              {b.load(x, i), is_floating(dtype) ? b.constant(dtype, 1) : b.constant_int(dtype, 1)});
  b.store(y, i, next);
  const ir::Scalar sum = b.reduce(ir::ReduceOp::Sum, dtype, std::span(&next, 1))[0];
  b.end_for();
  b.store(y, n, sum);
  return b.finish();
}

template <typename T>
void expect_rests(DType dtype) {
  for (const std::int64_t bytes : {16, 32, 64}) {
    const CompiledNest of_any(next_numbers(dtype, {}), bytes);
    for (std::int64_t count = 1; count < 42; ++count) {
      const auto elements = static_cast<std::size_t>(count);
      GuardedMemory x(elements * sizeof(T));
      for (std::size_t k = 0; k < elements; ++k) x.as<T>()[k] = static_cast<T>(k % 3);
      const auto expect_all_of = [&](const CompiledNest& code) {
        GuardedMemory y((elements + 1) * sizeof(T));
        code.run({x.as<T>(), y.as<T>()}, {count});
        T sum = 0;
        for (std::size_t k = 0; k < elements; ++k) {
          ASSERT_EQ(y.as<T>()[k], static_cast<T>(k % 3 + 1)) << k << " of " << count;
          sum = static_cast<T>(sum + y.as<T>()[k]);
        }
        ASSERT_EQ(y.as<T>()[elements], sum) << count << ", vectors of " << bytes;
      };
      expect_all_of(of_any);
      if (count % 5 == 0) expect_all_of(CompiledNest(next_numbers(dtype, count), bytes));
    }
  }
}

TEST(LlvmRests, OfFourBytes) { expect_rests<float>(f32); }
TEST(LlvmRests, OfEightBytes) { expect_rests<std::int64_t>(i64); }
TEST(LlvmRests, OfTwoBytes) { expect_rests<std::int16_t>(i16); }
TEST(LlvmRests, OfOneByte) { expect_rests<std::uint8_t>(u8); }

/// Stores under a mask take sixteen cycles on some processors.
TEST(LlvmRests, AreStoredByPiecesWithoutAvx512) {
  for (const auto& count : {std::optional<std::int64_t>(), std::optional<std::int64_t>(13)}) {
    cpu::CodegenTexts texts;
    cpu::compile_object(next_numbers(f32, count), cpu::host_target(32), &texts);
    EXPECT_EQ(texts.optimized.find("masked.store"), std::string::npos) << texts.optimized;
  }
}

TEST(LlvmLanes, OfWholeRows) {
  for (const std::int64_t width : {2, 3, 4, 5, 6, 7, 8, 9}) {
    for (const std::int64_t count : {7, 64, 150}) {
      SCOPED_TRACE(width);
      expect_rows<float>(f32, width, count);
      expect_rows<std::int64_t>(i64, width, count);
      expect_rows<std::uint8_t>(u8, width, count);
    }
  }
}

/// out[i] = s0 < 50 ? in[i / 4] : 0: a condition that all lanes share.
Nest repeated_where_few() {
  NestBuilder b("repeated");
  b.nest().size_count = 1;
  const SymExpr n = SymExpr::size(0);
  const auto x = b.add_global(f32, n);
  const auto y = b.add_global(f32, n);
  b.set_parallel(b.new_axis(1), 1);
  const Scalar few = b.apply(ir::ScalarOp::Lt, {b.from_index(n), b.constant_int(DType::I64, 50)});
  const Symbol i = b.new_axis(n);
  b.begin_for(i, n, ForStmt::Kind::Vector);
  b.store(y, i, b.load(x, floordiv(i, 4), few.id));
  b.end_for();
  return b.finish();
}

TEST(LlvmLanes, RepeatedOnesAreReadTogetherWhereAllAreWanted) {
  const Nest nest = repeated_where_few();
  for (const std::int64_t vector_bytes : {16, 32, 64}) {
    cpu::CodegenTexts texts;
    cpu::compile_object(nest, cpu::host_target(vector_bytes), &texts);
    EXPECT_EQ(texts.ir.find("masked.gather"), std::string::npos) << vector_bytes;
    for (const std::int64_t count : {1, 7, 32, 49, 50, 90}) {
      const bool few = count < 50;
      GuardedMemory in(few ? static_cast<std::size_t>(count + 3) / 4 * sizeof(float) : 1);
      for (std::int64_t k = 0; few && k < count; k += 4)
        in.as<float>()[k / 4] = static_cast<float>(k);
      std::vector<float> out(static_cast<std::size_t>(count), -1);
      CompiledNest(nest, vector_bytes).run({in.as<float>(), out.data()}, {count});
      for (std::int64_t k = 0; k < count; ++k)
        ASSERT_EQ(out[static_cast<std::size_t>(k)], few ? static_cast<float>(k / 4 * 4) : 0.0F)
            << k << " of " << count << ", vectors of " << vector_bytes;
    }
  }
}

/// table[i] = places[i]; y[r, i] = x[r, table[i]] for two rows.
Nest tabulated(DType dtype, const SymExpr& lanes = SymExpr::size(0),
               const SymExpr& width = SymExpr::size(1)) {
  NestBuilder b("tabulated");
  b.nest().size_count = 2;
  const auto x = b.add_global(dtype, width * 2);
  const auto places = b.add_global(i64, lanes);
  const auto y = b.add_global(dtype, lanes * 2);
  const auto table = b.add_local(i64, lanes, 256);
  b.set_parallel(b.new_axis(1), 1);
  const Symbol j = b.begin_for(lanes, ForStmt::Kind::Vector);
  b.store(table, j, b.load(places, j));
  b.end_for();
  const Symbol r = b.begin_for(2, ForStmt::Kind::Serial);
  const Symbol i = b.begin_for(lanes, ForStmt::Kind::Vector);
  const SymExpr t = b.bind(b.load(table, i), 0, width - 1, 0);
  b.store(y, SymExpr(r) * lanes + SymExpr(i), b.load(x, SymExpr(r) * width + t));
  b.end_for();
  b.end_for();
  return b.finish();
}

template <typename T>
void expect_tabulated(DType dtype) {
  const Nest any = tabulated(dtype);
  const auto at = [](std::int64_t step, std::int64_t first, std::int64_t width) {
    return [=](std::int64_t k) {
      return std::clamp<std::int64_t>(first + k * step / 8, 0, width - 1);
    };
  };
  const auto scattered = [](std::int64_t k) { return k * 37 % 100; };
  for (const std::int64_t count : {1, 15, 16, 17, 32, 40, 100}) {
    std::vector<std::pair<std::int64_t, CompiledNest>> compiled;
    for (const std::int64_t vector_bytes : {16, 32, 64}) {
      compiled.emplace_back(vector_bytes, CompiledNest(any, vector_bytes));
      compiled.emplace_back(vector_bytes, CompiledNest(tabulated(dtype, count, 100), vector_bytes));
    }
    // A quarter to six elements from lane to lane, forwards and back, from before the first to behind the last.
    for (const std::function<std::int64_t(std::int64_t)>& place :
         std::vector<std::function<std::int64_t(std::int64_t)>>{
             at(2, -3, 100), at(8, 0, 100), at(15, 40, 100), at(24, 0, 100), at(48, 0, 100),
             at(-4, 99, 100), at(0, 99, 100), scattered}) {
      GuardedMemory x(2 * 100 * sizeof(T));
      for (std::int64_t k = 0; k < 200; ++k) x.as<T>()[k] = static_cast<T>(k % 113);
      std::vector<std::int64_t> places;
      for (std::int64_t k = 0; k < count; ++k) places.push_back(place(k));
      for (const auto& [vector_bytes, code] : compiled) {
        std::vector<T> y(static_cast<std::size_t>(2 * count), T{117});
        code.run({x.as<T>(), places.data(), y.data()}, {count, 100});
        for (std::int64_t k = 0; k < 2 * count; ++k) {
          const std::int64_t from = k / count * 100 + place(k % count);
          ASSERT_EQ(y[static_cast<std::size_t>(k)], static_cast<T>(from % 113))
              << k << " of " << count << ", vectors of " << vector_bytes;
        }
      }
    }
  }
}

TEST(LlvmLanes, NearEachOther) {
  expect_tabulated<float>(f32);
  expect_tabulated<std::int32_t>(i32);
  expect_tabulated<double>(DType::F64);
  expect_tabulated<std::uint8_t>(u8);
}

/// Places that another place decides, and places that the loop itself stores, are no tables that are there before it.
TEST(LlvmLanes, PlacesMadeInTheLoopAreNoTables) {
  constexpr std::int64_t kCount = 40;
  for (const bool stores : {false, true}) {
    NestBuilder b("own_places");
    const auto x = b.add_global(f32, kCount), which = b.add_global(i64, kCount);
    const auto y = b.add_global(f32, kCount);
    const auto table = b.add_local(i64, 2 * kCount, 2 * kCount);
    b.set_parallel(b.new_axis(1), 1);
    const Symbol j = b.begin_for(2 * kCount, ForStmt::Kind::Vector);
    b.store(table, j, b.from_index(mod(j, kCount)));
    b.end_for();
    const Symbol i = b.begin_for(kCount, ForStmt::Kind::Vector);
    const SymExpr place = b.bind(b.load(which, i), 0, kCount - 1, 0);
    if (stores) b.store(table, i, b.from_index(place));
    const SymExpr at = stores ? SymExpr(i) : SymExpr(i) + b.bind(b.load(which, 0), 0, 1, 0);
    b.store(y, i, b.load(x, b.bind(b.load(table, at), 0, kCount - 1, 0)));
    b.end_for();
    const Nest nest = b.finish();
    std::vector<float> in, out(kCount);
    std::vector<std::int64_t> places;
    for (std::int64_t k = 0; k < kCount; ++k) {
      in.push_back(static_cast<float>(k));
      places.push_back(kCount - 1 - k);
    }
    for (const std::int64_t vector_bytes : {16, 32, 64}) {
      CompiledNest(nest, vector_bytes).run({in.data(), places.data(), out.data()}, {});
      for (std::int64_t k = 0; k < kCount; ++k)
        ASSERT_EQ(out[static_cast<std::size_t>(k)],
                  static_cast<float>(stores ? kCount - 1 - k : (k + 1) % kCount))
            << vector_bytes;
    }
  }
}

TEST(LlvmLanes, NearEachOtherAreShuffled) {
  const cpu::CodegenTarget target = cpu::host_target(64);
  if (target.vector_bytes != 64) GTEST_SKIP() << "this processor has no AVX-512";
  for (const auto& [lanes, near] : {std::pair{100, true}, {40, true}, {20, false}}) {
    cpu::CodegenTexts texts;
    cpu::compile_object(tabulated(f32, lanes, 100), target, &texts);
    EXPECT_EQ(texts.ir.find("vpermi2var") != std::string::npos, near) << lanes;
    EXPECT_NE(texts.ir.find("masked.gather"), std::string::npos) << "others may still be far";
  }
}

TEST(LlvmLanes, OfFourBytes) { expect_all<float>(f32); }
TEST(LlvmLanes, OfEightBytes) { expect_all<std::int64_t>(i64); }
TEST(LlvmLanes, OfOneByte) { expect_all<std::uint8_t>(u8); }

}  // namespace
}  // namespace heddle::jit
