// Inputs that calls append to: caches that grow where they lie.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "heddle/error.h"
#include "heddle/heddle.h"
#include "tests/support/error_text.h"

namespace hd = heddle;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

using heddle::testing::text_of;

constexpr std::int64_t kHeads = 2;
constexpr std::int64_t kSize = 8;

/// A step of a decoder: the token attends to all before it and itself.
std::vector<hd::Tensor> step(const hd::Tensor& x, const hd::Tensor& past_keys,
                             const hd::Tensor& past_values) {
  const hd::Tensor keys = hd::concat({past_keys, hd::sin(x)}, 2);
  const hd::Tensor values = hd::concat({past_values, x * 2.0f}, 2);
  return {hd::attention(x, keys, values), keys, values};
}

hd::EngineOptions appending(hd::Appends names = {"input1", "input2"}) {
  hd::EngineOptions options;
  options.append = std::move(names);
  return options;
}

hd::Tensor token(int number) {
  hd::Tensor x = hd::Tensor::empty(hd::f32, {1, kHeads, 1, kSize});
  for (std::int64_t k = 0; k < x.count(); ++k)
    x.data_as<float>()[k] = std::sin(static_cast<float>(number * 37 + k));
  return x;
}

hd::Tensor no_cache() { return hd::Tensor::empty(hd::f32, {1, kHeads, 0, kSize}); }

/// A cache with as many tokens.
std::vector<hd::Tensor> caches(std::int64_t length) {
  std::vector<hd::Tensor> made;
  for (const double first : {0.25, 0.5}) {
    hd::Tensor cache = hd::Tensor::empty(hd::f32, {1, kHeads, length, kSize});
    for (std::int64_t k = 0; k < cache.count(); ++k)
      cache.data_as<float>()[k] = static_cast<float>(first + 0.01 * static_cast<double>(k));
    made.push_back(std::move(cache));
  }
  return made;
}

void expect_same(const std::vector<hd::Tensor>& got, const std::vector<hd::Tensor>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t k = 0; k < got.size(); ++k) {
    ASSERT_TRUE(std::ranges::equal(got[k].sizes(), wanted[k].sizes()));
    EXPECT_EQ(got[k].to_doubles(), wanted[k].to_doubles()) << "output " << k;
  }
}

TEST(Append, GrowsWhereItLiesAndGivesWhatCopiesGive) {
  hd::Engine engine(step, appending());
  hd::Engine plain(step);
  hd::Tensor keys = no_cache(), values = no_cache();
  hd::Tensor plain_keys = no_cache(), plain_values = no_cache();
  for (int number = 0; number < 200; ++number) {
    const auto got = engine.run({token(number), keys, values});
    const auto wanted = plain.run({token(number), plain_keys, plain_values});
    expect_same(got, wanted);
    keys = got[1], values = got[2];
    plain_keys = wanted[1], plain_values = wanted[2];
  }
  // 0, then at 64, 128 and 192: room for half as many more, in granules of 64.
  EXPECT_LE(engine.stats().append_copies, 8);
  EXPECT_EQ(engine.stats().compiles, 1);
  EXPECT_EQ(engine.stats().missed_in_place, 0);
}

TEST(Append, AFirstRoomHoldsWhatTheOptionsSay) {
  hd::EngineOptions options = appending();
  options.append_room = 1000;
  hd::Engine engine(step, options);
  hd::Tensor keys = no_cache(), values = no_cache();
  const void* place = nullptr;
  for (int number = 0; number < 300; ++number) {
    auto got = engine.run({token(number), keys, values});
    keys = got[1], values = got[2];
    if (number == 0) place = std::as_const(keys).data();
    EXPECT_EQ(std::as_const(keys).data(), place);
  }
  EXPECT_EQ(engine.stats().append_copies, 2);
  EXPECT_EQ(engine.stats().append_copied_bytes, 0);
}

TEST(Append, HandlesKeepTheirElementsAndBeamsPart) {
  hd::Engine engine(step, appending());
  hd::Engine plain(step);
  const auto start = caches(5);
  const auto root = engine.run({token(1), start[0], start[1]});
  const auto root_elements = root[1].to_doubles();
  std::vector<std::vector<hd::Tensor>> beams;
  for (int beam = 2; beam < 5; ++beam) beams.push_back(engine.run({token(beam), root[1], root[2]}));
  for (int beam = 2; beam < 5; ++beam) {
    const auto first = plain.run({token(1), start[0], start[1]});
    expect_same(beams[static_cast<std::size_t>(beam - 2)],
                plain.run({token(beam), first[1], first[2]}));
  }
  EXPECT_EQ(root[1].to_doubles(), root_elements);
  EXPECT_EQ(start[0].to_doubles(), caches(5)[0].to_doubles());  // the caller's own memory
  // The first of the beams went on where the root lies, the others each in a copy.
  EXPECT_EQ(std::as_const(beams[0][1]).data(), std::as_const(root[1]).data());
  EXPECT_EQ(engine.stats().append_copies, 2 + 2 * 2);
}

TEST(Append, WhatIsDroppedOrCutBackIsFree) {
  hd::Engine engine(step, appending());
  hd::Engine plain(step);
  const auto start = caches(5);
  const auto root = engine.run({token(1), start[0], start[1]});
  const auto plain_root = plain.run({token(1), start[0], start[1]});
  for (int number = 2; number < 6; ++number)  // a call again, with another token
    expect_same(engine.run({token(number), root[1], root[2]}),
                plain.run({token(number), plain_root[1], plain_root[2]}));
  EXPECT_EQ(engine.stats().append_copies, 2);
  auto longer = engine.run({token(2), root[1], root[2]});
  longer = engine.run({token(3), longer[1], longer[2]});
  std::vector<hd::Tensor> back;
  for (const std::size_t k : {1, 2}) back.push_back(longer[k].narrow(2, 0, 7));
  const auto seven = longer[1].narrow(2, 0, 7).to_doubles();
  longer.clear();
  const auto again = engine.run({token(9), back[0], back[1]});
  EXPECT_EQ(engine.stats().append_copies, 2);
  EXPECT_EQ(back[0].to_doubles(), seven);
  const auto plain_seven = plain.run({token(2), plain_root[1], plain_root[2]});
  expect_same(again, plain.run({token(9), plain_seven[1], plain_seven[2]}));
}

TEST(Append, PartsOfATensorShareItsMemory) {
  const hd::Tensor cache = caches(5)[0];
  const hd::Tensor part = cache.narrow(-2, 1, 3);
  EXPECT_THAT(part.sizes(), ElementsAre(1, kHeads, 3, kSize));
  EXPECT_EQ(part.to_doubles(), hd::slice(cache, 2, 1, 4).to_doubles());
  EXPECT_EQ(cache.narrow(2, 5, 0).count(), 0);
  EXPECT_THAT(text_of<hd::ShapeError>([&] { cache.narrow(2, 3, 3); }),
              HasSubstr("expected an axis and a part of its elements, got 3 from 3 on along 2 of "
                        "sizes [1, 2, 5, 8]"));
  EXPECT_THROW(cache.narrow(4, 0, 1), hd::ShapeError);
  hd::Engine traced([](const hd::Tensor& x) { return x.narrow(2, 1, 3); });
  EXPECT_EQ(traced.run({cache})[0].to_doubles(), part.to_doubles());
}

TEST(Append, OneTensorForTwoInputs) {
  hd::Engine engine(step, appending());
  hd::Engine plain(step);
  const auto start = caches(3);
  const auto first = engine.run({token(1), start[0], start[0]});
  expect_same(first, plain.run({token(1), start[0], start[0]}));
  const auto plain_keys = first[1].clone();
  expect_same(engine.run({token(2), first[1], first[1]}),
              plain.run({token(2), plain_keys, plain_keys}));
}

// What else reads the memory keeps it as it is.
TEST(Append, ACacheThatIsAnotherInputToo) {
  const auto f = [](const hd::Tensor& past, const hd::Tensor& x, const hd::Tensor& other) {
    return std::vector<hd::Tensor>{hd::concat({past, x}, 1), hd::sum(other, {0, 1})};
  };
  hd::Engine engine(f, appending({"input0"}));
  hd::Engine plain(f);
  const hd::Tensor x = hd::Tensor::full(hd::f32, {2, 1}, 3);
  const hd::Tensor cache = engine.run({x, x, x})[0], copy = cache.clone();
  for (const hd::Tensor& other : {cache, cache.narrow(1, 1, 1), cache.narrow(0, 1, 1)})
    expect_same(engine.run({cache, x, other}), plain.run({copy, x, other.clone()}));
  // Parts that are not its beginning are memory of their own.
  expect_same(engine.run({cache.narrow(1, 1, 1), x, x}), plain.run({copy.narrow(1, 1, 1), x, x}));
  const hd::Tensor row = hd::Tensor::full(hd::f32, {1, 1}, 3);
  expect_same(engine.run({cache.narrow(0, 0, 1), row, x}),
              plain.run({copy.narrow(0, 0, 1), row, x}));
  EXPECT_EQ(cache.to_doubles(), copy.to_doubles());
}

TEST(Append, CallablesOfAnyNumberOfInputs) {
  hd::Engine engine(
      [](std::span<const hd::Tensor> inputs) {
        return hd::concat(std::vector<hd::Tensor>(inputs.begin(), inputs.end()), 0);
      },
      appending({"input0"}));
  const hd::Tensor x = hd::Tensor::full(hd::f32, {1}, 2);
  hd::Tensor cache = x;
  for (int k = 0; k < 10; ++k) {
    cache = engine.run({cache, x})[0];
    cache = engine.run({cache, x, x})[0];
  }
  EXPECT_EQ(cache.to_doubles(), std::vector<double>(31, 2));
  EXPECT_LE(engine.stats().append_copies, 2u);
}

TEST(Append, ManyTokensAtOnceAndThenOne) {
  const auto prompt = [](std::int64_t count) {
    hd::Tensor x = hd::Tensor::empty(hd::f32, {1, kHeads, count, kSize});
    for (std::int64_t k = 0; k < x.count(); ++k)
      x.data_as<float>()[k] = std::cos(static_cast<float>(k));
    return x;
  };
  hd::Engine engine(step, appending());
  hd::Engine plain(step);
  hd::Tensor keys = no_cache(), values = no_cache();
  hd::Tensor plain_keys = no_cache(), plain_values = no_cache();
  for (const std::int64_t count : {130, 1, 1, 70, 1, 300, 1}) {
    const auto got = engine.run({prompt(count), keys, values});
    const auto wanted = plain.run({prompt(count), plain_keys, plain_values});
    expect_same(got, wanted);
    keys = got[1], values = got[2];
    plain_keys = wanted[1], plain_values = wanted[2];
  }
}

TEST(Append, OutputsOfOtherEnginesAndViewsAreTaken) {
  hd::Engine engine(step, appending());
  hd::Engine plain(step);
  const auto start = caches(4);
  const auto other = plain.run({token(1), start[0], start[1]});
  expect_same(engine.run({token(2), other[1], other[2]}),
              plain.run({token(2), other[1], other[2]}));
  // Strides of the caller's own: every other token of a longer cache.
  const auto longer = caches(8);
  const auto half = [&](const hd::Tensor& cache) {
    return hd::Tensor::wrap_strided(const_cast<void*>(cache.data()), hd::f32, {1, kHeads, 4, kSize},
                                    {kHeads * 8 * kSize, 8 * kSize, 2 * kSize, 1});
  };
  expect_same(engine.run({token(2), half(longer[0]), half(longer[1])}),
              plain.run({token(2), half(longer[0]), half(longer[1])}));
}

TEST(Append, AnyAxisAndDType) {
  for (const std::int64_t axis : {0, 1, 2, -1})
    for (const hd::DType dtype : {hd::f32, hd::f16, hd::i64, hd::u8}) {
      const auto grow = [axis](const hd::Tensor& past, const hd::Tensor& x) {
        const hd::Tensor all = hd::concat({past, x, x}, axis);
        return std::vector<hd::Tensor>{hd::sum(hd::cast(all, hd::f32), {axis}), all};
      };
      hd::Engine engine(grow, appending({"input0"}));
      hd::Engine plain(grow);
      hd::Tensor past = hd::Tensor::full(dtype, {3, 2, 5}, 7), plain_past = past;
      for (int number = 0; number < 3; ++number) {
        hd::Sizes sizes{3, 2, 5};
        sizes[static_cast<std::size_t>(axis < 0 ? axis + 3 : axis)] = 35;
        const hd::Tensor x = hd::Tensor::full(dtype, sizes, number + 1);
        const auto got = engine.run({past, x});
        const auto wanted = plain.run({plain_past, x});
        expect_same(got, wanted);
        past = got[1], plain_past = wanted[1];
      }
      EXPECT_EQ(engine.stats().append_copies, 2) << axis;  // the caller's, and when 75 are full
    }
}

TEST(Append, ACallableThatDoesNotAlwaysAppend) {
  const auto grow = [](const hd::Tensor& past, const hd::Tensor& x) {
    return past.size(0) == 0 ? x + 0.0f : hd::concat({past, x}, 0);
  };
  hd::Engine engine(grow, appending({"input0"}));
  const hd::Tensor x = hd::Tensor::full(hd::f32, {2}, 1);
  hd::Tensor past = hd::Tensor::empty(hd::f32, {0});
  for (int number = 0; number < 4; ++number) past = engine.run({past, x})[0];
  EXPECT_EQ(past.to_doubles(), std::vector<double>(8, 1.0));
  EXPECT_EQ(engine.run({hd::Tensor::empty(hd::f32, {0}), x})[0].count(), 2);
  EXPECT_EQ(engine.stats().append_copies, 1);
  // What is not appended to is read where it lies, with or without room.
  hd::Engine reads([](const hd::Tensor& a) { return a * 2.0f; }, appending({"input0"}));
  EXPECT_EQ(reads.run({past})[0].to_doubles(), std::vector<double>(8, 2.0));
}

TEST(Append, AFailedCallLeavesTheRoomToTheNext) {
  const auto grow = [](const hd::Tensor& past, const hd::Tensor& x, const hd::Tensor& at) {
    return std::vector<hd::Tensor>{hd::concat({past, x}, 0), hd::gather(x, at)};
  };
  hd::Engine engine(grow, appending({"input0"}));
  const hd::Tensor x = hd::Tensor::full(hd::f32, {2}, 1);
  const auto at = [](std::int64_t number) {
    return hd::Tensor::of<std::int64_t>(std::array{number}, {1});
  };
  const hd::Tensor first = engine.run({hd::Tensor::full(hd::f32, {3}, 5), x, at(0)})[0];
  EXPECT_THROW(engine.run({first, x, at(7)}), hd::IndexError);
  const hd::Tensor second = engine.run({first, x, at(1)})[0];
  EXPECT_EQ(std::as_const(second).data(), std::as_const(first).data());
  EXPECT_THAT(second.to_doubles(), ElementsAre(5, 5, 5, 1, 1, 1, 1));
  EXPECT_EQ(engine.stats().append_copies, 1);
}

TEST(Append, RunIntoGivesTheViewOrACopy) {
  hd::Engine engine(step, appending());
  hd::Engine plain(step);
  const auto start = caches(3);
  const auto wanted = plain.run({token(1), start[0], start[1]});
  std::vector<hd::Tensor> outputs{hd::Tensor::empty(hd::f32, {1, kHeads, 1, kSize}),
                                  {},
                                  hd::Tensor::empty(hd::f32, {1, kHeads, 4, kSize})};
  engine.run_into(std::array{token(1), start[0], start[1]}, outputs);
  expect_same(outputs, wanted);
  EXPECT_FALSE(outputs[1].is_row_major());
  EXPECT_TRUE(outputs[2].is_row_major());
  // A copy may lie over nothing else.
  std::vector<hd::Tensor> bad{hd::Tensor::empty(hd::f32, {1, kHeads, 1, kSize}), outputs[2],
                              outputs[2]};
  EXPECT_THROW(engine.run_into(std::array{token(1), start[0], start[1]}, bad), hd::AliasingError);
  bad[2] = start[1];
  EXPECT_THROW(engine.run_into(std::array{token(1), start[0], start[1]}, bad), hd::ShapeError);
}

TEST(Append, HandedOverInputsComeBack) {
  hd::EngineOptions options = appending();
  options.donate = {"input0"};
  hd::Engine engine(step, options);
  auto inputs = caches(3);
  inputs.insert(inputs.begin(), token(1));
  const auto outputs = engine.run(std::move(inputs));
  EXPECT_FALSE(inputs[0].defined());
  EXPECT_EQ(inputs[1].to_doubles(), caches(3)[0].to_doubles());
  EXPECT_EQ(outputs[1].sizes()[2], 4);
}

TEST(Append, ThreadsThatAppendToOneCache) {
  hd::Engine engine(step, appending());
  hd::Engine plain(step);
  const auto start = caches(5);
  const auto root = engine.run({token(1), start[0], start[1]});
  const auto plain_root = plain.run({token(1), start[0], start[1]});
  std::vector<std::vector<hd::Tensor>> results(4);
  std::vector<std::thread> threads;
  for (int beam = 0; beam < 4; ++beam)
    threads.emplace_back([&, beam] {
      auto now = root;
      for (int number = 0; number < 20; ++number)
        now = engine.run({token(beam * 100 + number), now[1], now[2]});
      results[static_cast<std::size_t>(beam)] = now;
    });
  for (std::thread& thread : threads) thread.join();
  for (int beam = 0; beam < 4; ++beam) {
    auto now = plain_root;
    for (int number = 0; number < 20; ++number)
      now = plain.run({token(beam * 100 + number), now[1], now[2]});
    expect_same(results[static_cast<std::size_t>(beam)], now);
  }
}

TEST(Append, TracesAndPlansSayWhatHappens) {
  hd::Engine engine(step, appending());
  const auto start = caches(3);
  std::vector<hd::Tensor> outputs;
  engine.run_trace(std::array{token(1), start[0], start[1]}, &outputs);
  expect_same(outputs, hd::Engine(step).run({token(1), start[0], start[1]}));
  EXPECT_THAT(engine.graph_text(std::array{token(1), outputs[1], outputs[2]}),
              HasSubstr("in_place = [0]"));
  EXPECT_EQ(engine.signature().inputs.size(), 3);
  EXPECT_EQ(engine.signature().outputs.size(), 3);
  EXPECT_FALSE(engine.profile(std::array{token(1), outputs[1], outputs[2]}, 3).empty());
}

// What is appended to keeps its name, by which other options know it.
TEST(Append, OrderIsByTheNamesOfTheCallable) {
  hd::EngineOptions options = appending({"past"});
  options.control_deps = {{"y", {"all"}}, {"all", {"z"}}};
  hd::Engine engine = hd::parse_ir(
      "graph @main(%past: f32[s0], %x: f32[2]) {\n  %all = concat(%past, %x) {axis = 0}\n"
      "  %y = exp(%x)\n  %z = neg(%x)\n  %w = sin(%x) after(%all)\n"
      "  return %all, %y, %z, %w\n}\n",
      options);
  const hd::Tensor x = hd::Tensor::full(hd::f32, {2}, 1);
  EXPECT_EQ(engine.run({x, x})[0].to_doubles(), std::vector<double>(4, 1));
  EXPECT_THAT(engine.graph_text(std::array{x, x}), HasSubstr("%all = slice_scatter("));
}

TEST(Append, ExactSizesAndNewParameters) {
  const hd::Tensor scale = hd::Tensor::full(hd::f32, {kSize}, 2);
  const auto scaled = [&](const hd::Tensor& x, const hd::Tensor& past) {
    const hd::Tensor keys = hd::concat({past, x * scale}, 2);
    return std::vector<hd::Tensor>{hd::sum(keys, {2}), keys};
  };
  hd::EngineOptions options = appending({"input1"});
  options.specialise_after = 2;
  hd::Engine engine(scaled, options);
  hd::Engine plain(scaled);
  const auto start = caches(6);
  const auto run_twice = [&] {
    const auto wanted = plain.run({token(1), start[0]});
    for (int k = 0; k < 3; ++k) {
      const auto first = engine.run({token(1), start[0]});
      expect_same(first, wanted);
      expect_same(engine.run({token(2), first[1]}), plain.run({token(2), wanted[1]}));
      engine.wait_for_specialisations();
    }
  };
  run_twice();
  EXPECT_GT(engine.stats().specialisations, 0);
  const hd::Tensor value = hd::Tensor::full(hd::f32, {kSize}, 3);
  engine.update_parameter(scale, value);
  plain.update_parameter(scale, value);
  run_twice();
}

TEST(Append, BadNamesAreRefused) {
  const auto start = caches(3);
  const auto refusal = [&](hd::EngineOptions options) {
    hd::Engine engine(step, std::move(options));
    return text_of<hd::OptionError>([&] { engine.run({token(1), start[0], start[1]}); });
  };
  EXPECT_EQ(refusal(appending({"keys"})),
            "append: expected an input: input0, input1, input2, got keys");
  hd::EngineOptions both = appending();
  both.donate = {"input1"};
  EXPECT_EQ(refusal(both), "append: expected an input that is not donated, got input1");
  hd::Engine engine(step, appending());
  EXPECT_THROW(engine.run({token(1), {}, start[1]}), hd::ArgumentError);
  EXPECT_THROW(engine.run({token(1), start[0]}), hd::OptionError);
  EXPECT_EQ(engine.run({token(1), start[0], start[1]}).size(), 3);
}

TEST(Append, AFullCapIsAnErrorAndTheEngineGoesOn) {
  const auto grow = [](const hd::Tensor& past, const hd::Tensor& x) {
    return hd::concat({past, x}, 0);
  };
  hd::Engine engine(grow, appending({"input0"}));
  const hd::Tensor x = hd::Tensor::full(hd::f32, {1 << 20}, 1);
  hd::Tensor past = engine.run({hd::Tensor::empty(hd::f32, {0}), x})[0];
  past = engine.run({past, x})[0];
  {
    hd::EngineOptions capped;
    capped.memory_cap = engine.memory().host.in_use_bytes + (2 << 20);
    hd::Engine other([](const hd::Tensor& a) { return a + 1.0f; }, capped);
    engine.trim();
    EXPECT_THROW(engine.run({past.clone(), x}), hd::OutOfMemory);
  }
  EXPECT_EQ(engine.run({past, x})[0].count(), 3 << 20);
}

}  // namespace
