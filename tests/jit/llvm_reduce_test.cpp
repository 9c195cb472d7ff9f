// Reductions and carried values in every kind of loop.
#include <algorithm>
#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "jit/nest_builder.h"
#include "tests/jit/nest_runner.h"

namespace heddle::jit {
namespace {

using ir::ReduceOp;
using ir::ScalarOp;
using tests::CompiledNest;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
const std::int64_t kCounts[] = {0,   1,   2,   15,  16,  17,  63,  64, 65,
                                100, 127, 128, 129, 191, 255, 256, 400};

struct Shape {
  ForStmt::Kind kind = ForStmt::Kind::Vector;
  bool masked = false;
  bool bounded = false;  ///< whether it shows that places fit 32 bits
};
const Shape kShapes[] = {{ForStmt::Kind::Vector, false},       {ForStmt::Kind::Vector, false, true},
                         {ForStmt::Kind::Serial, false, true}, {ForStmt::Kind::Vector, true},
                         {ForStmt::Kind::Serial, false},       {ForStmt::Kind::Serial, true}};

/// out_k[0] = component k of the reduction of x[0 .. n); masked: of the elements at even places.
Nest make_reduction(ReduceOp op, DType dtype, Shape shape, const SymExpr& n) {
  NestBuilder b("reduce");
  b.nest().size_count = 1;
  const auto x = b.add_global(dtype, n);
  std::vector<NestBufferId> out;
  const bool arg = op == ReduceOp::ArgMax || op == ReduceOp::ArgMin;
  for (int k = 0; k < ir::width_of(op); ++k)
    out.push_back(b.add_global(arg && k == 1 ? DType::I64 : dtype, 1));
  b.set_parallel(b.new_axis(1), 1);
  const Symbol i = b.new_axis(n);
  b.begin_for(i, shape.bounded ? min(n, 4096) : n, shape.kind);
  std::vector<Scalar> contributions = {b.load(x, i)};
  const Scalar at = b.from_index(i);
  if (arg) contributions.push_back(at);
  const Scalar odd = b.apply(ScalarOp::And, {at, b.constant_int(i64, 1)});
  const Scalar even = b.apply(ScalarOp::Eq, {odd, b.constant_int(i64, 0)});
  const auto results = b.reduce(op, dtype, contributions, shape.masked ? even.id : kNoScalar);
  b.end_for();
  for (std::size_t k = 0; k < out.size(); ++k) b.store(out[k], 0, results[k]);
  return b.finish();
}

CompiledNest compile_reduction(ReduceOp op, DType dtype, Shape shape) {
  return CompiledNest(make_reduction(op, dtype, shape, SymExpr::size(0)));
}

template <typename T>
std::vector<T> values(std::int64_t count) {
  std::vector<T> x(static_cast<std::size_t>(count));
  for (std::size_t k = 0; k < x.size(); ++k)
    x[k] = static_cast<T>(static_cast<int>((k * 37 + k / 7) % 19) - (std::is_signed_v<T> ? 9 : 0));
  return x;
}

/// The elements that count, with their places.
template <typename T>
std::vector<std::pair<T, std::int64_t>> chosen(const std::vector<T>& x, bool masked) {
  std::vector<std::pair<T, std::int64_t>> all;
  for (std::size_t k = 0; k < x.size(); ++k)
    if (!masked || k % 2 == 0) all.emplace_back(x[k], static_cast<std::int64_t>(k));
  return all;
}

template <typename T>
void expect_reduction(ReduceOp op, DType dtype, T identity, T (*combine)(T, T)) {
  for (const Shape& shape : kShapes) {
    const CompiledNest code = compile_reduction(op, dtype, shape);
    for (std::int64_t count : kCounts) {
      auto x = values<T>(count);
      T want = identity;
      for (const auto& [value, place] : chosen(x, shape.masked)) want = combine(want, value);
      T got{};
      code.run({x.data(), &got}, {count});
      ASSERT_EQ(got, want) << ir::name_of(op) << " of " << count << " " << name_of(dtype)
                           << (shape.masked ? ", masked" : "")
                           << (shape.kind == ForStmt::Kind::Vector ? ", vector" : ", serial");
    }
  }
}

template <typename T>
void expect_number_reductions(DType dtype) {
  using Limits = std::numeric_limits<T>;
  // Small integers sum exactly in every dtype.
  expect_reduction<T>(ReduceOp::Sum, dtype, T(0), [](T a, T b) { return static_cast<T>(a + b); });
  const T lowest = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  const T highest = Limits::has_infinity ? Limits::infinity() : Limits::max();
  expect_reduction<T>(ReduceOp::Max, dtype, lowest, [](T a, T b) { return std::max(a, b); });
  expect_reduction<T>(ReduceOp::Min, dtype, highest, [](T a, T b) { return std::min(a, b); });
}

TEST(LlvmReduce, NumbersOfEveryDtype) {
  expect_number_reductions<float>(f32);
  expect_number_reductions<double>(f64);
  expect_number_reductions<std::int8_t>(i8);
  expect_number_reductions<std::uint8_t>(u8);
  expect_number_reductions<std::int16_t>(i16);
  expect_number_reductions<std::int32_t>(i32);
  expect_number_reductions<std::int64_t>(i64);
}

TEST(LlvmReduce, ProductsWrap) {
  expect_reduction<std::int32_t>(ReduceOp::Prod, i32, 1, [](std::int32_t a, std::int32_t b) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) * static_cast<std::uint32_t>(b));
  });
}

TEST(LlvmReduce, BoolsOfEveryPattern) {
  for (ReduceOp op : {ReduceOp::And, ReduceOp::Or, ReduceOp::Max, ReduceOp::Min}) {
    const bool any = op == ReduceOp::Or || op == ReduceOp::Max;
    for (const Shape& shape : kShapes) {
      const CompiledNest code = compile_reduction(op, boolean, shape);
      for (std::int64_t count : kCounts) {
        // All alike, and one that differs at each end and in the middle.
        for (std::int64_t odd_one : {std::int64_t{-1}, std::int64_t{0}, count / 4 * 2, count - 1}) {
          std::vector<std::uint8_t> x(static_cast<std::size_t>(count), any ? 0 : 1);
          if (odd_one >= 0 && odd_one < count) x[static_cast<std::size_t>(odd_one)] ^= 1;
          bool want = !any;
          for (const auto& [value, place] : chosen(x, shape.masked))
            want = any ? want || value != 0 : want && value != 0;
          std::uint8_t got = 2;
          code.run({x.data(), &got}, {count});
          ASSERT_EQ(got, want ? 1 : 0) << ir::name_of(op) << " of " << count;
        }
      }
    }
  }
}

TEST(LlvmReduce, NaNWinsWhereverItIs) {
  for (ReduceOp op : {ReduceOp::Max, ReduceOp::Min}) {
    for (const Shape& shape : kShapes) {
      if (shape.masked) continue;
      const CompiledNest code = compile_reduction(op, f32, shape);
      for (std::int64_t count : {1, 16, 17, 64, 65, 129, 300}) {
        for (std::int64_t at = 0; at < count; at += 1 + count / 9) {
          auto x = values<float>(count);
          x[static_cast<std::size_t>(at)] = kNaN;
          float got = 0;
          code.run({x.data(), &got}, {count});
          ASSERT_TRUE(std::isnan(got)) << "NaN at " << at << " of " << count;
        }
      }
    }
  }
}

template <typename T>
std::int64_t best_place(const std::vector<std::pair<T, std::int64_t>>& all, bool largest) {
  std::int64_t best = -1;
  T value{};
  for (const auto& [x, place] : all) {
    const bool nan = x != x;
    const bool best_nan = best >= 0 && value != value;
    if (best < 0 || (nan && !best_nan) || (!best_nan && (largest ? x > value : x < value))) {
      best = place;
      value = x;
    }
  }
  return best;
}

template <typename T>
void expect_arg(DType dtype, const std::vector<T>& x) {
  for (ReduceOp op : {ReduceOp::ArgMax, ReduceOp::ArgMin}) {
    for (const Shape& shape : kShapes) {
      const CompiledNest code = compile_reduction(op, dtype, shape);
      for (std::size_t count = 1; count <= x.size(); count += 1 + count / 5) {
        std::vector<T> part(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(count));
        const std::int64_t want = best_place(chosen(part, shape.masked), op == ReduceOp::ArgMax);
        T value{};
        std::int64_t place = -1;
        code.run({part.data(), &value, &place}, {static_cast<std::int64_t>(count)});
        ASSERT_EQ(place, want) << ir::name_of(op) << " of " << count << " " << name_of(dtype);
      }
    }
  }
}

TEST(LlvmReduce, TheSmallestPlaceOfTheLargestAndSmallest) {
  expect_arg<float>(f32, values<float>(300));
  expect_arg<double>(f64, values<double>(200));
  expect_arg<std::int32_t>(i32, values<std::int32_t>(300));
  expect_arg<std::uint8_t>(u8, values<std::uint8_t>(300));
  expect_arg<float>(f32, std::vector<float>(150, -kInfinity));
  expect_arg<float>(f32, std::vector<float>(150, kInfinity));
  auto with_nan = values<float>(200);
  with_nan[101] = with_nan[37] = kNaN;
  expect_arg<float>(f32, with_nan);
}

TEST(LlvmReduce, WelfordOfLargeMeans) {
  for (const Shape& shape : kShapes) {
    const CompiledNest code = compile_reduction(ReduceOp::Welford, f32, shape);
    for (std::int64_t count : kCounts) {
      auto x = values<float>(count);
      for (float& v : x) v += 1000;
      const auto all = chosen(x, shape.masked);
      double mean = 0;
      double squares = 0;
      for (const auto& [v, place] : all) mean += v / static_cast<double>(all.size());
      for (const auto& [v, place] : all) squares += (v - mean) * (v - mean);
      float got[3] = {-1, -1, -1};
      code.run({x.data(), &got[0], &got[1], &got[2]}, {count});
      ASSERT_EQ(got[2], static_cast<float>(all.size()));
      ASSERT_NEAR(got[0], mean, 1e-3);
      ASSERT_NEAR(got[1], squares, 1e-3 * squares + 1e-3);
    }
  }
}

/// Where all lanes count alike, no step that joins them waits for a division, and results are the same bit by bit.
TEST(LlvmReduce, WelfordOfWholeVectorsDividesNothingToJoinLanes) {
  const CompiledNest any = compile_reduction(ReduceOp::Welford, f32, {});
  const cpu::CodegenTarget host = cpu::host_target();
  for (const std::int64_t vectors : {1, 4, 8, 25, 48}) {
    const std::int64_t count = vectors * host.vector_bytes / 4;
    const Nest nest = make_reduction(ReduceOp::Welford, f32, {}, count);
    cpu::CodegenTexts texts;
    cpu::compile_object(nest, host, &texts);
    // 1 / count in the main loop, if that is one, and of masked lanes where the last vectors are no whole step.
    const auto divisions = [&](const char* type) {
      return texts.optimized.find(std::string("fdiv contract ") + type) != std::string::npos;
    };
    EXPECT_EQ(divisions("float"), vectors > 1) << count;
    EXPECT_EQ(divisions("<"), vectors == 25) << count;
    const auto x = values<float>(count);
    float want[3];
    float got[3];
    any.run({const_cast<float*>(x.data()), &want[0], &want[1], &want[2]}, {count});
    CompiledNest(nest).run({const_cast<float*>(x.data()), &got[0], &got[1], &got[2]}, {0});
    EXPECT_EQ(std::vector(got, got + 3), std::vector(want, want + 3)) << count;
  }
}

/// out[j] = sum over k of x[k, j] and the largest of them: serial reductions inside a vector loop.
TEST(LlvmReduce, SerialLoopsInsideAVectorLoop) {
  NestBuilder b("columns");
  b.nest().size_count = 2;
  const SymExpr rows = SymExpr::size(0);
  const SymExpr n = SymExpr::size(1);
  const auto x = b.add_global(f32, rows * n);
  const auto sums = b.add_global(f32, n);
  const auto tops = b.add_global(f32, n);
  const auto means = b.add_global(f32, n);
  b.set_parallel(b.new_axis(1), 1);
  const Symbol j = b.new_axis(n);
  b.begin_for(j, n, ForStmt::Kind::Vector);
  const Symbol k = b.new_axis(rows);
  b.begin_for(k, rows, ForStmt::Kind::Serial);
  const std::array value{b.load(x, SymExpr(k) * n + SymExpr(j))};
  const Scalar sum = b.reduce(ReduceOp::Sum, f32, value)[0];
  const Scalar top = b.reduce(ReduceOp::Max, f32, value)[0];
  const Scalar mean = b.reduce(ReduceOp::Welford, f32, value)[0];
  b.end_for();
  b.store(sums, j, sum);
  b.store(tops, j, top);
  b.store(means, j, mean);
  b.end_for();
  const CompiledNest code(b.finish());
  for (std::int64_t count : {1, 16, 40, 129}) {
    for (std::int64_t height : {1, 2, 7}) {
      auto data = values<float>(height * count);
      const auto width = static_cast<std::size_t>(count);
      std::vector<float> sum_out(width), top_out(width), mean_out(width);
      code.run({data.data(), sum_out.data(), top_out.data(), mean_out.data()}, {height, count});
      for (std::size_t c = 0; c < width; ++c) {
        float want = 0;
        float largest = -kInfinity;
        for (std::int64_t r = 0; r < height; ++r) {
          const float v = data[static_cast<std::size_t>(r) * width + c];
          want += v;
          largest = std::max(largest, v);
        }
        ASSERT_EQ(sum_out[c], want);
        ASSERT_EQ(top_out[c], largest);
        ASSERT_NEAR(mean_out[c], want / static_cast<float>(height), 1e-5);
      }
    }
  }
}

/// Running sums along rows (carried values), one row a lane, and written out by the loop itself.
CompiledNest compile_scan(ForStmt::Kind outer, ForStmt::Kind inner, const SymExpr& length) {
  NestBuilder b("scan");
  b.nest().size_count = 2;
  const SymExpr n = SymExpr::size(0);
  const auto x = b.add_global(f32, n * length);
  const auto o = b.add_global(f32, n * length);
  const auto totals = b.add_global(f32, n);
  b.set_parallel(b.new_axis(1), 1);
  const Symbol j = b.new_axis(n);
  b.begin_for(j, n, outer);
  const Scalar zero = b.constant(f32, 100);
  const Symbol k = b.new_axis(length);
  b.begin_for(k, length, inner);
  const Scalar current = b.carry(zero);
  const SymExpr at = SymExpr(j) * length + SymExpr(k);
  const Scalar next = b.apply(ScalarOp::Add, {current, b.load(x, at)});
  b.store(o, at, next);
  const Scalar total = b.set_next(current, next);
  b.end_for();
  b.store(totals, j, total);
  b.end_for();
  return CompiledNest(b.finish());
}

void expect_scan(const CompiledNest& code, std::int64_t rows, std::int64_t length) {
  auto x = values<float>(rows * length);
  std::vector<float> out(x.size());
  std::vector<float> totals(static_cast<std::size_t>(rows));
  code.run({x.data(), out.data(), totals.data()}, {rows, length});
  for (std::int64_t r = 0; r < rows; ++r) {
    float running = 100;
    for (std::int64_t k = 0; k < length; ++k) {
      const auto at = static_cast<std::size_t>(r * length + k);
      running += x[at];
      ASSERT_EQ(out[at], running);
    }
    ASSERT_EQ(totals[static_cast<std::size_t>(r)], running);
  }
}

TEST(LlvmReduce, CarriedValuesInEveryKindOfLoop) {
  using Kind = ForStmt::Kind;
  for (Kind outer : {Kind::Vector, Kind::Serial}) {
    const CompiledNest code = compile_scan(outer, Kind::Serial, SymExpr::size(1));
    for (std::int64_t rows : {1, 17, 70})
      for (std::int64_t length : {0, 1, 9}) expect_scan(code, rows, length);
    expect_scan(compile_scan(outer, Kind::Unroll, 5), 33, 5);
  }
}

/// out[j] = sum of x[k, j] over k: many columns go by at once, those left over by fewer.
TEST(LlvmReduce, SumsDownColumns) {
  NestBuilder b("columns");
  b.nest().size_count = 2;
  const SymExpr rows = SymExpr::size(0);
  const SymExpr columns = SymExpr::size(1);
  const auto x = b.add_global(f32, rows * columns);
  const auto out = b.add_global(f32, columns);
  b.set_parallel(b.new_axis(1), 1);
  const Symbol j = b.begin_for(columns, ForStmt::Kind::Vector);
  const Symbol k = b.begin_for(rows, ForStmt::Kind::Serial);
  const Scalar elements[] = {b.load(x, SymExpr(k) * columns + SymExpr(j))};
  const auto sums = b.reduce(ReduceOp::Sum, f32, elements);
  b.end_for();
  b.store(out, j, sums[0]);
  b.end_for();
  const Nest nest = b.finish();
  for (const std::int64_t vector_bytes : {16, 32, 64}) {
    const CompiledNest code(nest, vector_bytes);
    for (const std::int64_t down : {0, 1, 3, 70})
      for (const std::int64_t across : {1, 15, 16, 17, 63, 64, 100, 255, 256, 257, 300, 511, 600}) {
        auto from = values<float>(down * across);
        std::vector<float> to(static_cast<std::size_t>(across) + 1, kNaN);
        code.run({from.data(), to.data()}, {down, across});
        for (std::int64_t column = 0; column < across; ++column) {
          float want = 0;
          for (std::int64_t row = 0; row < down; ++row)
            want += from[static_cast<std::size_t>(row * across + column)];
          ASSERT_EQ(to[static_cast<std::size_t>(column)], want) << down << " x " << across;
        }
        ASSERT_TRUE(std::isnan(to.back()));
      }
  }
}

TEST(LlvmReduce, TheSameSumForTheSameLengthWhereverItLies) {
  const CompiledNest code = compile_reduction(ReduceOp::Sum, f32, {});
  std::vector<float> x(2000);
  for (std::size_t k = 0; k < x.size(); ++k) x[k] = 1.0f / static_cast<float>(k + 3);
  float first = 0;
  code.run({x.data(), &first}, {1777});
  for (std::size_t shift : {1u, 5u, 16u, 33u}) {
    std::vector<float> moved(x.size() + shift);
    std::copy(x.begin(), x.end(), moved.begin() + static_cast<std::ptrdiff_t>(shift));
    float again = 0;
    code.run({moved.data() + shift, &again}, {1777});
    EXPECT_EQ(first, again);
  }
  double exact = 0;
  for (std::size_t k = 0; k < 1777; ++k) exact += x[k];
  EXPECT_NEAR(first, exact, 1e-5);
}

}  // namespace
}  // namespace heddle::jit
