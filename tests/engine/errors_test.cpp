// Every misuse is a typed error with its exact text, and the engine works afterwards.
#include <algorithm>
#include <cmath>
#include <future>
#include <gtest/gtest.h>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "heddle/heddle.h"
#include "memory/allocator.h"
#include "tests/support/error_text.h"

namespace hd = heddle;

namespace {

using heddle::testing::text_of;

hd::Tensor ones(hd::Sizes sizes) { return hd::Tensor::full(hd::f32, std::move(sizes), 1); }

hd::Engine declared() {
  return hd::parse_ir(
      "graph @main(%x: f32[s0, 4] \"x\", %y: f32[s0, 4] \"y\") {\n"
      "  %z = add(%x, %y)\n"
      "  return %z\n"
      "}\n");
}

}  // namespace

TEST(Errors, WrongCount) {
  hd::Engine engine = declared();
  EXPECT_EQ(text_of<hd::ArgumentError>([&] { engine.run({ones({2, 4})}); }),
            "run: number of inputs: expected 2, got 1");
  EXPECT_EQ(engine.run({ones({2, 4}), ones({2, 4})})[0].to_doubles()[0], 2);
}

TEST(Errors, WrongDType) {
  hd::Engine engine = declared();
  EXPECT_EQ(text_of<hd::DTypeError>(
                [&] { engine.run({ones({2, 4}), hd::Tensor::full(hd::f64, {2, 4}, 1)}); }),
            "run: input y: expected f32, got f64");
  EXPECT_EQ(engine.run({ones({2, 4}), ones({2, 4})})[0].to_doubles()[0], 2);
}

TEST(Errors, WrongRankAndSize) {
  hd::Engine engine = declared();
  EXPECT_EQ(text_of<hd::ShapeError>([&] { engine.run({ones({4}), ones({2, 4})}); }),
            "run: input x: expected f32[s0, 4], got f32[4]");
  EXPECT_EQ(text_of<hd::ShapeError>([&] { engine.run({ones({2, 4}), ones({2, 5})}); }),
            "run: input y: expected f32[s0, 4], got f32[2, 5]");
  EXPECT_EQ(engine.run({ones({2, 4}), ones({2, 4})})[0].to_doubles()[0], 2);
}

TEST(Errors, EmptyHandle) {
  hd::Engine engine = declared();
  EXPECT_EQ(text_of<hd::ArgumentError>([&] { engine.run({hd::Tensor(), ones({2, 4})}); }),
            "run: input 0: expected a tensor, got an empty handle");
}

// S0-17: a result that is no tensor is named.
TEST(Errors, S0_17_AnEmptyHandleIsNoResult) {
  hd::Engine engine([](const hd::Tensor& x) { return std::vector{x + 1.0f, hd::Tensor()}; });
  EXPECT_EQ(text_of<hd::TraceError>([&] { engine.run({ones({2})}); }),
            "output 1 of the callable: expected a tensor, got an empty handle");
}

TEST(Errors, UnknownName) {
  hd::Engine engine = declared();
  EXPECT_EQ(text_of<hd::ArgumentError>([&] { engine.run_named({{"w", ones({2, 4})}}); }),
            "run_named: inputs: expected each of x, y once, got w");
  EXPECT_EQ(text_of<hd::ArgumentError>([&] { engine.run_named({{"x", ones({2, 4})}}); }),
            "run_named: inputs: expected each of x, y once, got no y");
}

TEST(Errors, OptionsBelowZero) {
  const auto plus_one = [](const hd::Tensor& x) { return x + 1; };
  EXPECT_EQ(text_of<hd::OptionError>([&] { hd::Engine(plus_one, {.threads = -3}); }),
            "EngineOptions::threads: expected a number >= 0, got -3");
  EXPECT_EQ(text_of<hd::OptionError>([&] { hd::Engine(plus_one, {.specialise_after = -1}); }),
            "EngineOptions::specialise_after: expected a number >= 0, got -1");
}

TEST(Errors, OutputsOfRunInto) {
  hd::Engine engine = declared();
  std::vector<hd::Tensor> inputs{ones({2, 4}), ones({2, 4})};
  std::vector<hd::Tensor> small{ones({2, 3})};
  EXPECT_EQ(text_of<hd::ShapeError>([&] { engine.run_into(inputs, small); }),
            "run_into: output 0: expected row-major f32[2, 4], got f32[2, 3]");
  std::vector<float> columns(8);
  std::vector<hd::Tensor> strided{
      hd::Tensor::wrap_strided(columns.data(), hd::f32, {2, 4}, {1, 2})};
  EXPECT_EQ(text_of<hd::ShapeError>([&] { engine.run_into(inputs, strided); }),
            "run_into: output 0: expected row-major f32[2, 4], got f32[2, 4] with strides [1, 2]");
  std::vector<hd::Tensor> same{inputs[0]};
  EXPECT_EQ(text_of<hd::AliasingError>([&] { engine.run_into(inputs, same); }),
            "run_into: output 0 overlaps input 0: expected memory of its own");
  std::vector<hd::Tensor> good{ones({2, 4})};
  engine.run_into(inputs, good);
  EXPECT_EQ(good[0].to_doubles()[7], 2);
}

TEST(Errors, AThrowingCallableLeavesTheEngineUsable) {
  bool fail = true;
  hd::Engine engine([&](const hd::Tensor& x) {
    if (fail) throw std::runtime_error("mine");
    return x + 1;
  });
  EXPECT_EQ(text_of<std::runtime_error>([&] { engine.run({ones({3})}); }), "mine");
  fail = false;
  EXPECT_EQ(engine.run({ones({3})})[0].to_doubles()[0], 2);
}

TEST(Errors, AGatherOutOfRange) {
  hd::Engine engine([](const hd::Tensor& x, const hd::Tensor& i) { return hd::gather(x, i); });
  const hd::Tensor x = ones({4, 2});
  const std::string text =
      text_of<hd::IndexError>([&] { engine.run({x, hd::Tensor::of<std::int64_t>({1, 9}, {2})}); });
  EXPECT_NE(text.find("gather"), std::string::npos) << text;
  EXPECT_NE(text.find("errors_test.cpp:"), std::string::npos) << text;
  EXPECT_EQ(engine.run({x, hd::Tensor::of<std::int64_t>({1, -1}, {2})})[0].count(), 4);
}

// Of vectors of indices the first that is wrong, of those of other dtypes and of parts of other threads too.
TEST(Errors, AnIndexOutOfRangeIsToldWithItsRange) {
  const auto text = [](const hd::Tensor& table, const hd::Tensor& indices, int threads) {
    hd::Engine engine(
        [](const hd::Tensor& x, const hd::Tensor& i) { return hd::gather(x, i) * 2.0f; },
        {.threads = threads});
    const std::string full = text_of<hd::IndexError>([&] { engine.run({table, indices}); });
    return full.substr(full.find(": expected"));
  };
  const hd::Tensor vector = ones({5});
  EXPECT_EQ(text(vector, hd::Tensor::of<std::int64_t>({1, 9}, {2}), 1),
            ": expected [-5, 5), got 9");
  EXPECT_EQ(text(vector, hd::Tensor::of<std::int32_t>({-6}, {1}), 1), ": expected [-5, 5), got -6");
  EXPECT_EQ(text(vector, hd::Tensor::of<std::uint8_t>({200}, {1}), 1),
            ": expected [-5, 5), got 200");
  hd::Tensor many = hd::Tensor::zeros(hd::i64, {200'003});
  for (const std::int64_t wrong : {17, 99'999, 200'002}) {
    many.data_as<std::int64_t>()[wrong] = -7;
    EXPECT_EQ(text(vector, many, 4), ": expected [-5, 5), got -7") << wrong;
    EXPECT_EQ(text(ones({5, 3}), many, 4), ": expected [-5, 5), got -7") << wrong;
    many.data_as<std::int64_t>()[wrong] = 0;
  }
  EXPECT_EQ(text(ones({0, 3}), hd::Tensor::of<std::int64_t>({1}, {1}), 1),
            ": expected [0, 0), got 1");
  hd::Engine known([&](const hd::Tensor& x) {
    return hd::gather(ones({5}), hd::Tensor::of<std::int64_t>({6}, {1})) + x;
  });
  const std::string folded = text_of<hd::IndexError>([&] { known.run({ones({1})}); });
  EXPECT_TRUE(folded.ends_with("expected [-5, 5), got 6")) << folded;
}

// A thread whose part is right tells nothing of what it found in an earlier call.
TEST(Errors, AnIndexOutOfRangeIsThatOfItsCall) {
  hd::Engine engine(
      [](const hd::Tensor& x, const hd::Tensor& i) { return hd::gather(x, i) * 2.0f; },
      {.threads = 4});
  const hd::Tensor table = ones({5});
  hd::Tensor many = hd::Tensor::zeros(hd::i64, {200'003});
  for (std::int64_t call = 0; call < 200; ++call) {
    const std::int64_t wrong = call * 7919 % 200'003;
    many.data_as<std::int64_t>()[wrong] = 100 + call;
    const std::string text = text_of<hd::IndexError>([&] { engine.run({table, many}); });
    EXPECT_TRUE(text.ends_with(", got " + std::to_string(100 + call))) << text;
    many.data_as<std::int64_t>()[wrong] = 0;
  }
}

// Sizes are symbols of the trace; who calls knows them as numbers.
TEST(Errors, SizesOfTheCallAreNumbers) {
  const auto said = [](auto&& f, std::initializer_list<hd::Tensor> inputs) {
    hd::Engine engine(f);
    const std::string text = text_of<hd::ShapeError>([&] { engine.run(std::vector(inputs)); });
    return text.substr(text.find(": expected"));
  };
  using T = hd::Tensor;
  EXPECT_EQ(
      said([](const T& a, const T& b) { return hd::matmul(a, b); }, {ones({2, 3}), ones({4, 5})}),
      ": expected 3, got 4");
  EXPECT_EQ(said([](const T& a, const T& b) { return a + b; }, {ones({2, 3}), ones({4, 3})}),
            ": expected sizes that are equal or 1, got 2 and 4 in dimension 0");
  EXPECT_EQ(said([](const T& a) { return hd::reshape(a, {7}); }, {ones({2, 3})}),
            ": expected 6, got 7");
  EXPECT_EQ(said([](const T& a) { return hd::reshape(a, {-1, -1}); }, {ones({2, 3})}),
            ": expected at most one -1, got several");
  EXPECT_EQ(said([](const T& a) { return hd::reshape(a, {a.size(0), -2}); }, {ones({2, 3})}),
            ": expected sizes of at least 0, got [2, -2]");
  EXPECT_EQ(said([](const T& a) { return hd::slice(a, 0, 0, 9); }, {ones({2, 3})}),
            ": expected 0 <= start <= limit <= 2 in dimension 0, got start 0, limit 9");
  EXPECT_EQ(said([](const T& a, const T& b) { return hd::concat(std::vector<T>{a, b}, 0); },
                 {ones({2, 3}), ones({2, 4})}),
            ": expected 3, got 4");
  EXPECT_EQ(said([](const T& a,
                    const T& b) { return hd::apply("gather_elements", std::vector{a, b})[0]; },
                 {ones({2, 3}), T::zeros(hd::i64, {2, 4})}),
            ": expected at most 3 in dimension 1, got 4");
  EXPECT_EQ(said([](const T& a) { return hd::pad(a, {-3}, {-2}); }, {ones({4})}),
            ": expected a size of at least 0 in dimension 0, got -1");
}

// A value that integers do not hold is no number of theirs; fractions are dropped as everywhere.
TEST(Errors, ValuesThatADTypeDoesNotHold) {
  EXPECT_EQ(text_of<hd::ArgumentError>([] { hd::Tensor::full(hd::u8, {2}, 300); }),
            "Tensor::full: value: expected a number that u8 holds, got 300");
  EXPECT_EQ(text_of<hd::ArgumentError>([] { hd::Tensor::full(hd::u8, {2}, -1); }),
            "Tensor::full: value: expected a number that u8 holds, got -1");
  EXPECT_EQ(text_of<hd::ArgumentError>([] { hd::Tensor::scalar(hd::i64, 9.3e18); }),
            "Tensor::full: value: expected a number that i64 holds, got 9.3e+18");
  EXPECT_EQ(text_of<hd::ArgumentError>([] { hd::Tensor::scalar_int(hd::i16, 40000); }),
            "Tensor::scalar_int: value: expected a number that i16 holds, got 40000");
  EXPECT_EQ(text_of<hd::ArgumentError>([] { hd::Tensor::full(hd::i32, {}, std::nan("")); }),
            "Tensor::full: value: expected a number that i32 holds, got nan");
  EXPECT_EQ(hd::Tensor::full(hd::i8, {1}, -128.9).to_doubles()[0], -128);
  EXPECT_EQ(hd::Tensor::full(hd::u8, {1}, 255).to_doubles()[0], 255);
  EXPECT_EQ(hd::Tensor::scalar_int(hd::i64, std::numeric_limits<std::int64_t>::min())
                .data_as<std::int64_t>()[0],
            std::numeric_limits<std::int64_t>::min());
}

// Bodies that do the same are told apart by where they were written; calls of one body share it.
TEST(Errors, ABodyTellsItsOwnLine) {
  const auto first = [](const hd::Tensor& table, const hd::Tensor& i) {
    return hd::gather(table, i);
  };
  const auto second = [](const hd::Tensor& table, const hd::Tensor& i) {
    return hd::gather(table, i);
  };
  hd::Engine engine([&](const hd::Tensor& table, const hd::Tensor& i, const hd::Tensor& more) {
    const hd::Tensor j = i + more;
    const hd::Tensor a = hd::invoke({}, first, table, i);
    const hd::Tensor b = hd::invoke({}, second, table, j);
    return a + b + hd::invoke({}, first, table, i) + hd::invoke({}, second, table, j);
  });
  const auto inputs = [](std::int64_t i, std::int64_t j) {
    return std::vector{ones({2, 4}), hd::Tensor::of<std::int64_t>({i}, {1}),
                       hd::Tensor::scalar_int(hd::i64, j - i)};
  };
  const auto line_of = [&](std::int64_t i, std::int64_t j) {
    const std::string text = text_of<hd::IndexError>([&] { engine.run(inputs(i, j)); });
    const std::size_t at = text.find("errors_test.cpp:");
    return at == std::string::npos ? -1 : std::stoi(text.substr(at + 16));
  };
  const int of_first = line_of(9, 0);
  EXPECT_GT(of_first, 0);
  EXPECT_EQ(line_of(0, 9), of_first + 3);
  const std::string plan = engine.plan_json(inputs(0, 0));
  std::size_t graphs = 0;
  for (std::size_t at = 0; (at = plan.find("\"write_backs\"", at)) != std::string::npos; ++at)
    ++graphs;
  EXPECT_EQ(graphs, 3u) << "that of the callable and one for each body";
}

// The annotation "name" is the user's word for a part of the program, and stands before what is said of it.
TEST(Errors, NamesOfScopesStandBeforeTheText) {
  const hd::Tensor x = ones({4, 2});
  hd::Engine lookup([](const hd::Tensor& table, const hd::Tensor& i) {
    const hd::Annotate scope{{"name", "lookup"}};
    return hd::gather(table, i) * 2;
  });
  const std::string at_run =
      text_of<hd::IndexError>([&] { lookup.run({x, hd::Tensor::of<std::int64_t>({9}, {1})}); });
  EXPECT_TRUE(at_run.starts_with("lookup: gather: index out of range at ")) << at_run;
  hd::Engine shaped([](const hd::Tensor& y) {
    const hd::Annotate scope{{"name", "head"}};
    return hd::reshape(y, {7});
  });
  const std::string at_trace = text_of<hd::ShapeError>([&] { shaped.run({x}); });
  EXPECT_TRUE(at_trace.starts_with("head: reshape: C2 element count at ")) << at_trace;
}

TEST(Errors, UnknownOpNamesTheClosest) {
  const hd::Tensor x = ones({2});
  const std::string text =
      text_of<hd::UnsupportedError>([&] { hd::apply("tanhh", std::span(&x, 1)); });
  EXPECT_NE(text.find("tanhh"), std::string::npos) << text;
  EXPECT_NE(text.find("tanh'"), std::string::npos) << text;
}

TEST(Errors, ADeviceThatIsNotThereIsRefusedByName) {
  EXPECT_NE(text_of<hd::DeviceError>([] {
              hd::Engine engine([](const hd::Tensor& x) { return x; },
                                {.device = hd::Device::parse("cuda:77")});
            }).find("CUDA"),
            std::string::npos);
}

TEST(Errors, AThrowingCallableLeavesWhatWasCompiled) {
  hd::Engine engine([](const hd::Tensor& x) {
    const hd::Tensor y = x + 1;
    if (x.dtype() != hd::f32) throw std::runtime_error("only f32");
    return y;
  });
  EXPECT_EQ(engine.run({ones({3})})[0].to_doubles()[0], 2);
  const hd::Tensor doubles = hd::Tensor::full(hd::f64, {3}, 1);
  std::vector<hd::Tensor> inputs{doubles};
  std::vector<hd::Tensor> outputs{doubles.clone()};
  EXPECT_EQ(text_of<std::runtime_error>([&] { engine.run({doubles}); }), "only f32");
  EXPECT_EQ(text_of<std::runtime_error>([&] { engine.run_into(inputs, outputs); }), "only f32");
  EXPECT_EQ(text_of<std::runtime_error>([&] { engine.prepare(inputs); }), "only f32");
  EXPECT_EQ(text_of<std::runtime_error>([&] { engine.submit(inputs).get(); }), "only f32");
  EXPECT_EQ((doubles + 1).to_doubles()[0], 2) << "no trace is left behind";
  EXPECT_EQ(engine.run({ones({4})})[0].to_doubles()[0], 2);
  EXPECT_EQ(engine.stats().compiles, 1u);
}

TEST(Errors, WrongDevice) {
  EXPECT_EQ(
      text_of<hd::DeviceError>([] { hd::Tensor::empty(hd::f32, {2}, hd::Device::reference()); }),
      "Tensor::empty: expected a device that has memory, got reference");
}

TEST(Errors, TooLargeASize) {
  EXPECT_EQ(text_of<hd::ShapeError>(
                [] { hd::Tensor::empty(hd::f32, {std::int64_t{1} << 31, std::int64_t{1} << 30}); }),
            "tensor: size overflows 64 bits: got [2147483648, 1073741824]");
}

namespace {

/// Host memory that runs out: nothing beyond what is in use while alive.
class NoMemory {
 public:
  NoMemory() {
    hd::memory::CachingAllocator& host = hd::memory::CachingAllocator::host();
    host.trim();
    host.set_cap(std::max<std::size_t>(1, host.stats().in_use_bytes));
  }
  ~NoMemory() { hd::memory::CachingAllocator::host().set_cap(0); }
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;
};

std::string out_of_memory(std::size_t bytes) {
  const std::size_t in_use = hd::memory::CachingAllocator::host().stats().in_use_bytes;
  return "allocate at host memory: expected at most " + std::to_string(in_use) +
         " bytes in use, got a request of " + std::to_string(bytes) + " bytes with " +
         std::to_string(in_use) + " in use";
}

}  // namespace

TEST(Errors, OutOfMemoryForAnOutput) {
  hd::Engine engine([](const hd::Tensor& x) { return x + 1; }, {.threads = 1});
  const hd::Tensor x = ones({1000});
  engine.run({x});
  {
    const NoMemory none;
    EXPECT_EQ(text_of<hd::OutOfMemory>([&] { engine.run({x}); }), out_of_memory(4000));
    EXPECT_EQ(text_of<hd::OutOfMemory>([&] { engine.submit({x}).get(); }), out_of_memory(4000));
  }
  EXPECT_EQ(engine.run({x})[0].to_doubles()[999], 2);
}

TEST(Errors, OutOfMemoryForTheArena) {
  hd::Engine engine(
      [](const hd::Tensor& x) { return hd::matmul(hd::matmul(hd::matmul(x, x), x), x); },
      {.threads = 1});
  const hd::Tensor x = ones({64, 64});
  std::vector<hd::Tensor> inputs{x};
  std::vector<hd::Tensor> outputs{x.clone()};
  engine.prepare(inputs);
  {
    const NoMemory none;
    const std::string text = text_of<hd::OutOfMemory>([&] { engine.run_into(inputs, outputs); });
    EXPECT_EQ(text.substr(0, text.find(',')),
              "allocate at host memory: expected at most " +
                  std::to_string(hd::memory::CachingAllocator::host().stats().in_use_bytes) +
                  " bytes in use");
  }
  engine.run_into(inputs, outputs);
  EXPECT_EQ(outputs[0].to_doubles()[0], 64.0 * 64 * 64);
}

TEST(Errors, OutOfMemoryWhileCompiling) {
  const hd::Tensor w = ones({64});
  hd::Engine engine([w](const hd::Tensor& x) { return hd::exp(w) + x; }, {.threads = 1});
  const hd::Tensor x = ones({64});
  {
    const NoMemory none;
    EXPECT_NE(text_of<hd::OutOfMemory>([&] { engine.run({x}); }).find("allocate at host memory"),
              std::string::npos);
  }
  EXPECT_NEAR(engine.run({x})[0].to_doubles()[0], 3.718281828, 1e-6);
}

TEST(Errors, NumbersThatTheDtypeOfTheOtherOperandCannotHold) {
  const hd::Tensor bytes = hd::Tensor::full(hd::u8, {2}, 200);
  const auto text = [](auto action) {
    const std::string whole = text_of<hd::ArgumentError>(action);
    return whole.substr(0, whole.find(" at ")) +
           whole.substr(std::min(whole.find(": exp"), whole.size()));
  };
  EXPECT_EQ(text([&] { hd::less(bytes, 300); }),
            "lt: operand: expected a number that u8 holds, got 300");
  EXPECT_EQ(text([&] { bytes + -1; }), "add: operand: expected a number that u8 holds, got -1");
  EXPECT_EQ(text([&] { hd::Tensor::full(hd::i32, {1}, 1) + 3000000000LL; }),
            "add: operand: expected a number that i32 holds, got 3000000000");
  EXPECT_EQ(text([&] { hd::Tensor::full(hd::i64, {1}, 1) + 18446744073709551615ULL; }),
            "add: operand: expected a number that i64 holds, got 18446744073709551615");
  EXPECT_EQ(text([&] { hd::Tensor() + 1; }),
            "add: operand: expected a tensor or a number, got an empty handle");
  EXPECT_EQ(text([] {
              hd::Engine engine([](const hd::Tensor& x) { return x - 128; });
              engine.run({hd::Tensor::full(hd::i8, {2}, 1)});
            }),
            "sub: operand: expected a number that i8 holds, got 128");
  EXPECT_EQ(hd::less(bytes, 255).to_doubles()[0], 1);
  EXPECT_EQ((hd::Tensor::full(hd::i8, {1}, 0) + -128).to_doubles()[0], -128);
}

TEST(Errors, IntegersInExpressionsAreExact) {
  const std::int64_t large = 9007199254740993;  // no double
  const hd::Tensor x = hd::Tensor::of<std::int64_t>(std::vector<std::int64_t>{0, -5}, {2});
  const auto at = [](const hd::Tensor& tensor, int k) { return tensor.data_as<std::int64_t>()[k]; };
  EXPECT_EQ(at(x + large, 0), large);
  EXPECT_EQ(at(hd::minimum(x, INT64_MAX), 1), -5);
  EXPECT_EQ(at(hd::clamp(x, INT64_MIN, INT64_MAX), 1), -5);
  hd::Engine traced([large](const hd::Tensor& t) { return hd::minimum(t + large, INT64_MAX); });
  EXPECT_EQ(at(traced.run({x})[0], 0), large);
}

TEST(Errors, SymbolicTensorsKeptBeyondTheirTrace) {
  hd::Tensor kept;
  hd::Engine engine([&kept](const hd::Tensor& x) {
    kept = x + 1;
    return kept * 2;
  });
  EXPECT_EQ(engine.run({ones({3})})[0].to_doubles()[0], 4);
  EXPECT_EQ(kept.dtype(), hd::f32);
  EXPECT_EQ(kept.rank(), 1);
  for (const std::string& text : {text_of<hd::TraceError>([&] { kept* kept; }),
                                  text_of<hd::TraceError>([&] { kept.to_doubles(); })}) {
    EXPECT_NE(text.find("a symbolic tensor is used after its trace ended"), std::string::npos)
        << text;
    EXPECT_NE(text.find("expected a tensor with data, got f32[s0]"), std::string::npos) << text;
  }
}

TEST(Errors, AnEngineThatGoesWaitsForSubmittedCalls) {
  for (int k = 0; k < 8; ++k) {
    std::vector<std::future<std::vector<hd::Tensor>>> pending;
    std::promise<void> moves;
    const std::shared_future<void> has_moved = moves.get_future().share();
    {
      hd::Engine first([=](const hd::Tensor& x) {
        has_moved.wait();
        return hd::exp(x) + 1;
      });
      for (int n = 1; n < 4; ++n)
        pending.push_back(first.submit({hd::Tensor::full(hd::f32, {n}, 0)}));
      hd::Engine moved = std::move(first);
      pending.push_back(moved.submit({hd::Tensor::full(hd::f32, {9}, 0)}));
      moves.set_value();
    }
    for (auto& call : pending) EXPECT_EQ(call.get()[0].to_doubles()[0], 2);
  }
}

TEST(Errors, StatesAssignedWhatDoesNotFit) {
  hd::Tensor state = hd::Tensor::full(hd::f32, {2, 3}, 0);
  const auto ends = [](const std::string& text, const std::string& end) {
    EXPECT_TRUE(text.ends_with(end)) << text;
  };
  ends(text_of<hd::DTypeError>([&] { hd::assign(state, hd::Tensor::full(hd::f64, {2, 3}, 1)); }),
       "expected row-major f64[2, 3], got f32[2, 3]");
  ends(text_of<hd::ShapeError>([&] { hd::assign(state, ones({3, 2})); }),
       "expected row-major f32[3, 2], got f32[2, 3]");
}

TEST(Errors, SizesDeclaredAsExpressions) {
  const auto ran = [](const std::string& type, hd::Sizes sizes) {
    hd::Engine engine =
        hd::parse_ir("graph @main(%x: " + type + " \"x\") {\n  %y = neg(%x)\n  return %y\n}\n");
    return engine.run({ones(std::move(sizes))})[0].count();
  };
  EXPECT_EQ(ran("f32[2*s0+1]", {7}), 7);
  EXPECT_EQ(ran("f32[10-s0]", {7}), 7);
  EXPECT_EQ(ran("f32[10-2*s0]", {10}), 10);
  EXPECT_EQ(ran("f32[s0+s1, s1, 3*s0]", {5, 3, 6}), 90);
  EXPECT_EQ(text_of<hd::ShapeError>([&] { ran("f32[2*s0+1]", {6}); }),
            "run: inputs: expected sizes as the model declares them, got input x: size 0 is 6, not "
            "2*s0+1");
  EXPECT_EQ(
      text_of<hd::ShapeError>([&] { ran("f32[s0, s0]", {2, 3}); }),
      "run: inputs: expected sizes as the model declares them, got input x: size 1 is 3, not s0");
  EXPECT_EQ(
      text_of<hd::ShapeError>([&] { ran("f32[s0*s1]", {6}); }),
      "%x: size s0*s1 at 1:13: expected s0 to follow from the sizes of the inputs, got f32[s0*s1]");
  EXPECT_EQ(text_of<hd::ShapeError>([] {
              hd::parse_ir(
                  "graph @main(%x: f32[2]) {\n  %i = iota() {dtype = i64, sizes = [s7], axis = "
                  "0}\n  return %i\n}\n");
            }),
            "%i: size s7 at 2:8: expected s7 to follow from the sizes of the inputs, got i64[s7]");
  EXPECT_EQ(
      text_of<hd::ShapeError>([&] { ran("f32[u0]", {6}); }),
      "%x: size u0 at 1:13: expected a number or a size of the inputs, such as s0, got f32[u0]");
}
