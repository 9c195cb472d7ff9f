// The whole path on the CPU: trace, guard, compile, bind, run.
#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <random>

#include "heddle/heddle.h"

namespace hd = heddle;

namespace {

hd::Tensor random_tensor(hd::Sizes sizes, unsigned seed = 1) {
  hd::Tensor tensor = hd::Tensor::empty(hd::f32, std::move(sizes));
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  float* data = tensor.data_as<float>();
  for (std::int64_t k = 0; k < tensor.count(); ++k) data[k] = normal(engine);
  return tensor;
}

/// Runs `f` compiled and by the reference evaluator, and compares.
template <typename F>
void expect_agrees(F f, const std::vector<hd::Tensor>& inputs, double tolerance = 1e-5) {
  hd::Engine compiled(f);
  hd::Engine reference(f, {.device = hd::Device::reference()});
  const auto got = compiled.run(inputs);
  const auto want = reference.run(inputs);
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t k = 0; k < got.size(); ++k) {
    const auto a = got[k].to_doubles();
    const auto b = want[k].to_doubles();
    ASSERT_EQ(a.size(), b.size());
    double largest = 0;
    for (const double v : b) largest = std::max(largest, std::abs(v));
    for (std::size_t i = 0; i < a.size(); ++i)
      ASSERT_NEAR(a[i], b[i], tolerance * (std::abs(b[i]) + largest))
          << "output " << k << " at " << i;
  }
  EXPECT_EQ(compiled.stats().evaluator_steps, 0u);
}

/// More rows than any cache holds by panels that the second-level one does not: blocks of rows, the last of which is not full.
TEST(Run, ManyRowsByManyPanels) {
  constexpr std::int64_t kDepth = 1024;
  constexpr std::int64_t kColumns = 136;
  const auto element = [](std::int64_t row, std::int64_t column) {
    return static_cast<float>((row * 7 + column * 13 + row * column / 3) % 5) - 2;
  };
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    hd::Tensor made = hd::Tensor::empty(hd::f32, {rows, columns});
    for (std::int64_t k = 0; k < rows * columns; ++k)
      made.data_as<float>()[k] = element(k / columns, k % columns);
    return made;
  };
  for (const int threads : {1, 3}) {
    hd::Engine engine(
        [w = matrix(kDepth, kColumns)](const hd::Tensor& x) { return hd::matmul(x, w); },
        {.threads = threads, .check_plans = true});
    for (const std::int64_t rows : {1, 1055, 1057, 1090}) {
      const hd::Tensor y = engine.run({matrix(rows, kDepth)})[0];
      for (std::int64_t row = 0; row < rows; row += row < rows - 70 ? 61 : 1)
        for (const std::int64_t column : {0, 63, 64, 135}) {
          float sum = 0;  // of whole numbers: exact
          for (std::int64_t k = 0; k < kDepth; ++k) sum += element(row, k) * element(k, column);
          ASSERT_EQ(y.data_as<float>()[row * kColumns + column], sum) << row << ", " << column;
        }
    }
  }
}

}  // namespace

TEST(Run, AddsOne) {
  hd::Engine engine([](const hd::Tensor& x) { return x + 1; });
  const auto out = engine.run({hd::Tensor::of<float>({1, 2, 3}, {3})});
  EXPECT_EQ(out[0].to_doubles(), (std::vector<double>{2, 3, 4}));
}

TEST(Run, PointwiseChain) {
  expect_agrees(
      [](const hd::Tensor& x) { return hd::tanh(x * 2 + 1) / (hd::abs(x) + 1) - hd::exp(-x); },
      {random_tensor({37, 53})});
}

// f32 has no bits left for distances from a mean of a million: they are kept in f64.
TEST(Run, VariancesOfLargeMeansKeepTheirBits) {
  const auto expect_variances = [](const hd::Sizes& sizes, std::vector<std::int64_t> axes) {
    hd::Tensor x = random_tensor(sizes);
    for (std::int64_t k = 0; k < x.count(); ++k) x.data_as<float>()[k] += 1e6f;
    expect_agrees([axes](const hd::Tensor& t) { return hd::variance(t, axes); }, {x}, 1e-6);
    expect_agrees([axes](const hd::Tensor& t) { return hd::variance(hd::relu(t), axes, true, 1); },
                  {x}, 1e-6);
  };
  expect_variances({6, 56}, {1});
  expect_variances({6, 3}, {1});
  expect_variances({56, 6}, {0});
  expect_variances({5, 7, 3}, {0, 2});
  expect_variances({300, 300}, {0, 1});  // in blocks
}

TEST(Run, TakesInputsByName) {
  hd::Engine model = hd::parse_ir(
      "graph @main(%x: f32[2] \"input_ids\", %y: f32[2] \"mask\") {\n"
      "  %d = sub(%x, %y)\n  return %d\n}\n");
  const hd::Tensor ids = hd::Tensor::of<float>({5, 7}, {2});
  const hd::Tensor mask = hd::Tensor::of<float>({1, 2}, {2});
  const std::vector<double> want{4, 5};
  EXPECT_EQ(model.run({{"mask", mask}, {"input_ids", ids}})[0].to_doubles(), want);
  EXPECT_EQ(model.run({ids, mask})[0].to_doubles(), want);
  hd::Engine callable([](const hd::Tensor& x) { return x + 1; });
  EXPECT_EQ(callable.run({{"input0", ids}})[0].to_doubles(), (std::vector<double>{6, 8}))
      << "before the first call too";
  hd::Engine nothing([] { return hd::Tensor::full(hd::f32, {1}, 3); });
  EXPECT_EQ(nothing.run({})[0].to_doubles(), std::vector<double>{3});
}

TEST(Run, PreparesForSizes) {
  hd::Engine model = hd::parse_ir(
      "graph @main(%x: f32[s0, 4], %i: i64[s1]) {\n"
      "  %g = gather(%x, %i) {axis = 0}\n  return %g\n}\n");
  model.prepare({{3, 4}, {2}});
  EXPECT_EQ(model.stats().compiles, 1u);
  EXPECT_EQ(model.stats().binds, 1u);
  EXPECT_EQ(model.run({hd::Tensor::full(hd::f32, {3, 4}, 2), hd::Tensor::full(hd::i64, {2}, 1)})[0]
                .to_doubles(),
            std::vector<double>(8, 2.0));
  EXPECT_EQ(model.stats().binds, 1u) << "what was prepared is used";
  const auto text_of = [](hd::Engine& engine, std::initializer_list<hd::Sizes> shapes) {
    try {
      engine.prepare(shapes);
    } catch (const hd::ArgumentError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(text_of(model, {{3, 4}}), "prepare: shapes: expected 2, one an input, got 1");
  hd::Engine callable([](const hd::Tensor& x) { return x + 1; });
  EXPECT_EQ(
      text_of(callable, {{3, 4}}),
      "prepare: shapes: expected inputs whose dtypes are known: of a model, or after the first "
      "call, got 1");
  callable.run({hd::Tensor::full(hd::f32, {3}, 2)});
  EXPECT_EQ(text_of(callable, {{5}}), "no error");
  EXPECT_EQ(callable.stats().binds, 2u);
}

// Outside of an engine sizes are numbers, also where an earlier call with others was traced for all of them.
TEST(Run, ErrorsOutsideOfEnginesTellNumbersAndTheirOwnPlace) {
  const hd::Tensor x = random_tensor({4, 6});
  hd::matmul(x, random_tensor({6, 2}));
  const auto text_of = [](auto&& action) -> std::string {
    try {
      action();
    } catch (const hd::ShapeError& error) {
      return error.what();
    }
    return "no error";
  };
  const int line = __LINE__ + 1;
  const std::string text = text_of([&] { hd::matmul(x, random_tensor({5, 2})); });
  EXPECT_NE(text.find("run_test.cpp:" + std::to_string(line)), std::string::npos) << text;
  EXPECT_NE(text.find("expected 6, got 5"), std::string::npos) << text;
  const std::string reshaped = text_of([&] { hd::reshape(x, {5, -1}); });
  EXPECT_EQ(reshaped.find("s0"), std::string::npos) << reshaped;
  EXPECT_EQ(reshaped.find("s1"), std::string::npos) << reshaped;
}

TEST(Run, Softmax) {
  expect_agrees([](const hd::Tensor& x) { return hd::softmax(x * 3, -1); },
                {random_tensor({7, 129})});
}

TEST(Run, LayerNorm) {
  expect_agrees([](const hd::Tensor& x, const hd::Tensor& s,
                   const hd::Tensor& b) { return hd::layer_norm(x, s, b, -1); },
                {random_tensor({5, 3, 77}), random_tensor({77}, 2), random_tensor({77}, 3)});
}

TEST(Run, MatmulGelu) {
  const hd::Tensor w = random_tensor({70, 90}, 5);
  const hd::Tensor b = random_tensor({90}, 6);
  expect_agrees([=](const hd::Tensor& x) { return hd::gelu(hd::matmul(x, w) + b); },
                {random_tensor({33, 70})});
}

TEST(Run, TransposedMatmul) {
  expect_agrees(
      [](const hd::Tensor& q, const hd::Tensor& k) {
        return hd::softmax(hd::matmul(q, hd::transpose(k, -1, -2)) * 0.125, -1);
      },
      {random_tensor({2, 3, 40, 64}), random_tensor({2, 3, 50, 64}, 2)});
}

TEST(Run, SizesAreSymbolic) {
  hd::Engine engine([](const hd::Tensor& x) { return hd::softmax(x + 1, -1); });
  for (std::int64_t n = 1; n < 40; ++n) engine.run({random_tensor({n % 5 + 1, n})});
  EXPECT_EQ(engine.stats().compiles, 1u);
  EXPECT_EQ(engine.stats().traces, 1u);
}

TEST(Run, BranchOnASizeIsAGuard) {
  hd::Engine engine([](const hd::Tensor& x) { return x.size(0) > 4 ? x * 2 : x + 1; });
  EXPECT_EQ(engine.run({hd::Tensor::full(hd::f32, {3}, 5)})[0].to_doubles()[0], 6);
  EXPECT_EQ(engine.run({hd::Tensor::full(hd::f32, {5}, 5)})[0].to_doubles()[0], 10);
  EXPECT_EQ(engine.run({hd::Tensor::full(hd::f32, {4}, 5)})[0].to_doubles()[0], 6);
  EXPECT_EQ(engine.stats().compiles, 2u);
  ASSERT_EQ(engine.stats().recompiles.size(), 1u);
  EXPECT_NE(engine.stats().recompiles[0].find("branch in user code at run_test.cpp"),
            std::string::npos)
      << engine.stats().recompiles[0];
}

TEST(Run, EagerOps) {
  const hd::Tensor x = hd::Tensor::of<float>({1, 4, 9}, {3});
  EXPECT_EQ(hd::sqrt(x).to_doubles(), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(hd::sum(x).item(), 14);
}

TEST(Run, ReadingDataWhileTracingIsAnError) {
  hd::Engine engine([](const hd::Tensor& x) { return x * x.item(); });
  try {
    engine.run({hd::Tensor::scalar(hd::f32, 1)});
    FAIL();
  } catch (const hd::TraceError& error) {
    EXPECT_NE(std::string(error.what()).find("data cannot be read while tracing at run_test.cpp"),
              std::string::npos)
        << error.what();
  }
}

/// A cache that is empty yet, or a batch without requests: whichever operand of a concatenation it is.
TEST(Run, EmptyOperandsOfAConcatenation) {
  const auto joined = [](const hd::Tensor& a, const hd::Tensor& b, const hd::Tensor& c) {
    return hd::concat({a, b, c}, 1);
  };
  hd::Engine engine(joined, {.threads = 1, .disk_cache = false});
  for (const auto& [a, b, c] : {std::array<std::int64_t, 3>{3, 2, 40},
                                {3, 0, 40},
                                {3, 2, 0},
                                {0, 2, 40},
                                {0, 0, 5},
                                {0, 5, 0},
                                {5, 0, 0},
                                {0, 0, 0}}) {
    std::vector<double> wanted;
    for (int row = 0; row < 3; ++row) {
      wanted.insert(wanted.end(), static_cast<std::size_t>(a), 1);
      wanted.insert(wanted.end(), static_cast<std::size_t>(b), 2);
      wanted.insert(wanted.end(), static_cast<std::size_t>(c), 3);
    }
    const hd::Tensor result =
        engine.run({hd::Tensor::full(hd::f32, {3, a}, 1), hd::Tensor::full(hd::f32, {3, b}, 2),
                    hd::Tensor::full(hd::f32, {3, c}, 3)})[0];
    EXPECT_EQ(result.to_doubles(), wanted) << a << " " << b << " " << c;
  }
  EXPECT_EQ(engine.stats().evaluator_steps, 0u);
}
