// Inputs that calls give away.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/executable.h"
#include "heddle/custom_op.h"
#include "heddle/error.h"
#include "heddle/heddle.h"
#include "ir/text.h"
#include "memory/allocator.h"
#include "tests/support/error_text.h"
#include "tests/support/json.h"

namespace hd = heddle;
using hd::test::Json;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

namespace {

using heddle::testing::text_of;

hd::Tensor floats(std::initializer_list<float> values) {
  return hd::Tensor::of<float>(values, {static_cast<std::int64_t>(values.size())});
}

/// One thread and one kernel an op, so that what comes after what is plain.
hd::EngineOptions plain(hd::Donations donate = {}) {
  hd::EngineOptions options;
  options.threads = 1;
  options.fuse = false;
  options.order = hd::StepOrder::Given;
  options.donate = std::move(donate);
  return options;
}

/// "+a v -a": what a run takes, the first node of each step, and what it gives back.
std::string events_of(hd::Engine& engine, const std::vector<hd::Tensor>& inputs) {
  const Json plan = Json::parse(engine.plan_json(inputs));
  std::map<std::string, std::string> nodes;
  for (const auto& kernel : plan["kernels"])
    nodes[kernel["name"]] = kernel["nodes"].empty() ? kernel["kind"].get<std::string>()
                                                    : kernel["nodes"][0].get<std::string>();
  std::string text;
  for (const hd::RunEvent& event : engine.run_trace(inputs)) {
    text += text.empty() ? "" : " ";
    if (event.kind == hd::RunEvent::Kind::Launch)
      text += nodes.at(event.value);
    else
      text += (event.kind == hd::RunEvent::Kind::Alloc ? "+" : "-") + event.value + ":" +
              std::to_string(event.bytes);
  }
  return text;
}

hd::Tensor put(const hd::Tensor& x, const hd::Tensor& values, const hd::Tensor& at) {
  const hd::Tensor operands[] = {x, values, at};
  return hd::apply("index_put", operands)[0];
}

constexpr const char* kTwoReaders =
    "graph @main(%x: donated f32[4]) {\n"
    "  %a = add(%x, 1.0: f32)\n"
    "  %b = mul(%x, 2.0: f32)\n"
    "  return %a, %b\n}\n";

/// Says whether the memory of tensors made by tracked() is gone.
struct Tracker {
  std::atomic<int> freed{0};
  std::array<float, 4> memory{1, 2, 3, 4};
  hd::Tensor tensor() {
    return hd::Tensor::wrap(memory.data(), hd::f32, {4}, [this](void*) { ++freed; });
  }
};

/// tdo::look(Tensor x) -> Tensor: x, and `freed` of the tracker at that moment into `seen`.
Tracker* tracked = nullptr;
int seen = -1;
void register_look() {
  static const hd::RegisteredOp op = hd::register_op(
      {.schema = "tdo::look(Tensor x) -> Tensor",
       .shape = [](const hd::ShapeCall& call) { return std::vector{call.tensor(0)}; },
       .cpu =
           [](const hd::KernelCall& call) {
             if (tracked != nullptr) seen = tracked->freed;
             std::memcpy(call.results[0].data, call.tensor(0).data,
                         static_cast<std::size_t>(call.tensor(0).count()) * 4);
           },
       .pure = false});
}

/// The elements above 0: a result of late size.
const hd::RegisteredOp& positive_of() {
  static const hd::RegisteredOp positive = hd::register_op(
      {.schema = "tdo::positive(Tensor x) -> Tensor",
       .shape =
           [](const hd::ShapeCall& call) {
             return std::vector{hd::TensorType{hd::f32, {call.unbacked()}}};
           },
       .cpu =
           [](const hd::KernelCall& call) {
             std::copy_if(call.tensor(0).as<float>(),
                          call.tensor(0).as<float>() + call.tensor(0).count(),
                          call.results[0].as<float>(), [](float e) { return e > 0; });
           },
       .sizes =
           [](const hd::KernelCall& call) {
             const float* x = call.tensor(0).as<float>();
             return std::vector<hd::Sizes>{hd::Sizes{
                 std::count_if(x, x + call.tensor(0).count(), [](float e) { return e > 0; })}};
           }});
  return positive;
}

}  // namespace

TEST(Donate, TextParsesAndPrints) {
  EXPECT_EQ(hd::ir::print(hd::ir::parse(kTwoReaders)), kTwoReaders);
  hd::Engine engine = hd::parse_ir(kTwoReaders, plain());
  EXPECT_TRUE(engine.signature().inputs[0].donated);
  EXPECT_THAT(engine.graph_text(std::array{floats({1, 2, 3, 4})}),
              StartsWith("graph @main(%x: donated f32[4])"));
}

TEST(Donate, OfNestedGraphsAndOfStatesIsRefused) {
  EXPECT_THAT(text_of<hd::InvariantError>([] {
                hd::parse_ir(
                    "graph @main(%x: f32[2]) {\n  %y = invoke(%x) {body = @b}\n  return %y\n}\n"
                    "graph @b(%t: donated f32[2]) {\n  %u = neg(%t)\n  return %u\n}\n");
              }),
              HasSubstr("V13 only arguments of the whole graph are donated"));
  EXPECT_THAT(text_of<hd::InvariantError>([] {
                hd::parse_ir(
                    "graph @main(%x: donated f32[2]) {\n  %y = neg(%x)\n"
                    "  write_back %x = %y\n  return %y\n}\n");
              }),
              HasSubstr("V14 a donated argument is not written back to"));
}

TEST(Donate, UnknownNamesAreRefused) {
  hd::Engine engine([](const hd::Tensor& x) { return x + 1.0f; }, plain({"input1"}));
  try {
    engine.run({floats({1})});
    FAIL();
  } catch (const hd::OptionError& error) {
    EXPECT_THAT(error.what(), HasSubstr("donate"));
    EXPECT_THAT(error.what(), HasSubstr("expected an input: input0"));
    EXPECT_THAT(error.what(), HasSubstr("got input1"));
  }
}

// The plan says it: guard, buffers, and an event after the last reader, with bytes; none takes it.
TEST(Donate, IsGivenBackAfterTheLastReader) {
  hd::Engine engine = hd::parse_ir(
      "graph @main(%x: donated f32[4], %y: f32[4]) {\n"
      "  %a = add(%x, 1.0: f32)\n  %b = mul(%a, %x)\n  %c = cumsum(%b) {axis = 0}\n"
      "  %d = add(%c, %y)\n  return %d\n}\n",
      plain());
  const std::vector inputs{floats({1, 2, 3, 4}), floats({1, 1, 1, 1})};
  EXPECT_EQ(events_of(engine, inputs), "+a:16 a b -x:16 c d -a:16")
      << "b and c lie in the bytes of a";
  const Json plan = Json::parse(engine.plan_json(inputs));
  EXPECT_THAT(plan["guards"].dump(),
              HasSubstr("x overlaps no other input and no parameter (it is donated)"));
  for (const auto& buffer : plan["buffers"])
    EXPECT_EQ(buffer.contains("donated"), buffer["value"] == "x") << buffer.dump();
  EXPECT_THAT(plan["events"].dump(), HasSubstr("\"value\":\"x\""));
}

TEST(Donate, WhatNoStepUsesGoesFirst) {
  hd::Engine engine = hd::parse_ir(
      "graph @main(%x: donated f32[4], %y: f32[2]) {\n  %a = neg(%y)\n  return %a\n}\n", plain());
  EXPECT_EQ(events_of(engine, {floats({1, 2, 3, 4}), floats({1, 2})}), "-x:16 a");
  EXPECT_EQ(engine.stats().missed_donations, 1u);
  EXPECT_EQ(engine.stats().missed_donation_bytes, 16u);
}

// What a trace gives back it overwrites: only steps before the event may read it.
TEST(Donate, TracesOverwriteWhatIsGivenBack) {
  hd::Engine engine = hd::parse_ir(kTwoReaders, plain());
  const hd::Tensor x = floats({1, 2, 3, 4});
  std::vector<hd::Tensor> outputs;
  engine.run_trace(std::array{x}, &outputs);
  EXPECT_THAT(outputs[0].to_doubles(), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(outputs[1].to_doubles(), ElementsAre(2, 4, 6, 8));
  EXPECT_TRUE(std::isnan(x.data_as<float>()[0]));
}

// A handle that is handed over is gone before the next step; memory that others still hold stays.
TEST(Donate, MemoryHandedOverIsFreedEarly) {
  register_look();
  const char* text =
      "graph @main(%x: donated f32[4]) {\n"
      "  %a = cumsum(%x) {axis = 0}\n  %b = tdo::look(%a)\n  return %b\n}\n";
  for (const bool handed_over : {true, false}) {
    for (const bool kept : {true, false}) {
      hd::Engine engine = hd::parse_ir(text, plain());
      Tracker tracker;
      tracked = &tracker;
      std::vector<hd::Tensor> inputs{tracker.tensor()};
      const hd::Tensor other = kept ? inputs[0] : hd::Tensor();
      const auto outputs = handed_over ? engine.run(std::move(inputs)) : engine.run(inputs);
      EXPECT_EQ(seen, handed_over && !kept ? 1 : 0);
      EXPECT_EQ(inputs[0].defined(), !handed_over);
      EXPECT_THAT(outputs[0].to_doubles(), ElementsAre(1, 3, 6, 10));
      tracked = nullptr;
    }
  }
}

// Only donated inputs are let go of.
TEST(Donate, OtherHandlesStay) {
  hd::Engine engine([](const hd::Tensor& x, const hd::Tensor& y) { return hd::sum(x, {0}) + y; },
                    plain({"input0"}));
  std::vector inputs{floats({1, 2}), floats({3})};
  EXPECT_THAT(engine.run(std::move(inputs))[0].to_doubles(), ElementsAre(6));
  EXPECT_FALSE(inputs[0].defined());
  EXPECT_TRUE(inputs[1].defined());
}

// Many steps and workers: the release comes between stages.
TEST(Donate, ManyThreads) {
  hd::EngineOptions options = plain({"input0"});
  options.threads = 4;
  hd::Engine engine(
      [](const hd::Tensor& x) {
        const hd::Tensor sums = hd::cumsum(x, 0) + hd::cumsum(x * 2.0f, 0);
        return hd::cumsum(hd::exp(hd::cumsum(sums, 0) * 0.0f), 0);
      },
      options);
  for (int k = 0; k < 4; ++k) {
    std::vector inputs{hd::Tensor::full(hd::f32, {1 << 15}, 1)};
    const auto outputs = engine.run(std::move(inputs));
    EXPECT_EQ(outputs[0].data_as<float>()[(1 << 15) - 1], 1 << 15);
    EXPECT_FALSE(inputs[0].defined());
  }
}

// ---- What may lie in the memory.

TEST(Donate, UpdatesOverwriteItAfterItsLastReader) {
  const auto f = [](const hd::Tensor& x, const hd::Tensor& v, const hd::Tensor& at) {
    const hd::Tensor before = hd::sum(x, {0});
    return hd::sum(put(x, v, at), {0}) + before;
  };
  const std::array others{floats({10}), hd::Tensor::of<std::int64_t>({1}, {1})};
  for (const bool donated : {true, false}) {
    hd::Engine engine(f, plain(donated ? hd::Donations{"input0"} : hd::Donations{}));
    const hd::Tensor x = floats({1, 2, 3, 4});
    EXPECT_EQ(engine.run({x, others[0], others[1]})[0].item(), 18 + 10);
    EXPECT_EQ(x.data_as<float>()[1], donated ? 10 : 2);
    EXPECT_EQ(engine.stats().in_place, donated ? 1u : 0u);
    EXPECT_EQ(engine.stats().missed_in_place, donated ? 0u : 1u);
    EXPECT_EQ(engine.stats().missed_in_place_bytes, 0u) << "the size is symbolic";
    EXPECT_EQ(engine.stats().missed_donations, 0u);
  }
}

// A later reader of any view keeps the update from overwriting.
TEST(Donate, LaterReadersKeepIt) {
  const auto f = [](const hd::Tensor& x, const hd::Tensor& v, const hd::Tensor& at) {
    const hd::Tensor view = hd::reshape(x, {2, 2});
    const hd::Tensor changed = hd::sum(put(x, v, at), {0});
    return std::vector{changed, hd::sum(view, {0}) + changed};
  };
  hd::Engine engine(f, plain({"input0"}));
  const hd::Tensor x = floats({1, 2, 3, 4});
  const auto outputs = engine.run({x, floats({10}), hd::Tensor::of<std::int64_t>({1}, {1})});
  EXPECT_EQ(outputs[0].item(), 18);
  EXPECT_THAT(outputs[1].to_doubles(), ElementsAre(22, 24));
  EXPECT_EQ(engine.stats().in_place, 0u);
  EXPECT_THAT(x.to_doubles(), ElementsAre(1, 2, 3, 4));
}

// What is returned is memory of its own, not the caller's.
TEST(Donate, ReturnedUpdatesDoNotLieInIt) {
  hd::Engine engine(put, plain({"input0"}));
  const hd::Tensor x = floats({1, 2});
  const hd::Tensor got = engine.run({x, floats({5}), hd::Tensor::of<std::int64_t>({0}, {1})})[0];
  EXPECT_NE(got.data(), x.data());
  EXPECT_THAT(got.to_doubles(), ElementsAre(5, 2));
  EXPECT_THAT(x.to_doubles(), ElementsAre(1, 2));
}

// Handed over, its memory is the output's, of which the update alone is written: a cache goes from call to call where it lies.
TEST(Donate, ReturnedUpdatesOfWhatIsHandedOverLieInIt) {
  const auto step = [](const hd::Tensor& cache, const hd::Tensor& v, const hd::Tensor& at) {
    const hd::Tensor now = put(cache, v, at);
    return std::vector{hd::sum(now, {0}), now};
  };
  hd::Engine engine(step, plain({"input0"}));
  const auto at = [](std::int64_t k) { return hd::Tensor::of<std::int64_t>(std::array{k}, {1}); };
  std::vector<float> callers{1, 2, 3, 4};
  hd::Tensor cache = hd::Tensor::wrap(callers.data(), hd::f32, {4});
  const void* place = nullptr;
  for (std::int64_t k = 0; k < 4; ++k) {
    std::vector<hd::Tensor> inputs{std::move(cache), floats({10}), at(k)};
    auto outputs = engine.run(std::move(inputs));
    EXPECT_FALSE(inputs[0].defined());
    EXPECT_EQ(outputs[0].item(), 10 * (k + 1) + 10 - (k + 1) * (k + 2) / 2);
    cache = std::move(outputs[1]);
    EXPECT_TRUE(k == 0 || std::as_const(cache).data() == place);
    place = std::as_const(cache).data();
  }
  EXPECT_THAT(cache.to_doubles(), Each(10));
  EXPECT_THAT(callers, ElementsAre(1, 2, 3, 4)) << "the caller's own memory";
  // Somebody else has a handle.
  const hd::Tensor kept = cache;
  std::vector<hd::Tensor> inputs{std::move(cache), floats({5}), at(0)};
  EXPECT_THAT(engine.run(std::move(inputs))[1].to_doubles(), ElementsAre(5, 10, 10, 10));
  EXPECT_THAT(kept.to_doubles(), Each(10));
  EXPECT_EQ(engine.stats().in_place, 1u);
  EXPECT_TRUE(engine.signature().inputs[0].donated);
}

// Whether a copy would have to be made or not.
TEST(Donate, WhatIsUpdatedOverlapsNothingAndMayBeWritten) {
  hd::Engine engine([](const hd::Tensor& cache, const hd::Tensor& v,
                       const hd::Tensor& at) { return put(cache, v, at); },
                    plain({"input0"}));
  const hd::Tensor at = hd::Tensor::of<std::int64_t>({1}, {1});
  const hd::Tensor cache = floats({1, 2, 3}).clone();
  EXPECT_THROW(engine.run({cache, cache.narrow(0, 1, 1), at}), hd::AliasingError);
  EXPECT_THAT(engine.run({cache, floats({9}), at})[0].to_doubles(), ElementsAre(1, 9, 3));
}

TEST(Donate, RunIntoWhatIsUpdated) {
  const auto step = [](const hd::Tensor& cache, const hd::Tensor& v, const hd::Tensor& at) {
    const hd::Tensor now = put(cache, v, at);
    return std::vector{now, now * 2.0f};
  };
  hd::Engine engine(step, plain({"input0"}));
  const hd::Tensor v = floats({10}), at = hd::Tensor::of<std::int64_t>({1}, {1});
  hd::Tensor cache = floats({1, 2, 3}), twice = floats({0, 0, 0}), other = floats({0, 0, 0});
  std::vector<hd::Tensor> outputs{cache, twice};
  engine.run_into(std::array{cache, v, at}, outputs);
  EXPECT_THAT(cache.to_doubles(), ElementsAre(1, 10, 3));
  EXPECT_THAT(twice.to_doubles(), ElementsAre(2, 20, 6));
  EXPECT_EQ(engine.stats().copied_outputs, 0u);
  outputs = {other, cache};  // another output where the update would lie
  engine.run_into(std::array{cache, v, at}, outputs);
  EXPECT_THAT(other.to_doubles(), ElementsAre(1, 10, 3));
  EXPECT_THAT(cache.to_doubles(), ElementsAre(2, 20, 6));
  outputs = {{}, twice};
  engine.run_into(std::array{cache, v, at}, outputs);
  EXPECT_THAT(outputs[0].to_doubles(), ElementsAre(2, 10, 6));
  outputs = {cache, cache};
  EXPECT_THROW(engine.run_into(std::array{cache, v, at}, outputs), hd::AliasingError);
}

// Found by random programs: the update of one donated input is wanted in the memory of another.
TEST(Donate, RunIntoMemoryOfAnotherThatIsDonated) {
  const auto step = [](const hd::Tensor& cache, const hd::Tensor& v, const hd::Tensor& at,
                       const hd::Tensor& spare) {
    return std::pair(put(cache, v, at), hd::sum(spare));
  };
  hd::Engine engine(step, plain({"input0", "input3"}));
  const hd::Tensor v = floats({10}), at = hd::Tensor::of<std::int64_t>({1}, {1});
  hd::Tensor cache = floats({1, 2, 3}), spare = floats({4, 5, 6});
  hd::Tensor total = hd::Tensor::full(hd::f32, {}, 0);
  std::vector<hd::Tensor> outputs{spare, total};
  engine.run_into(std::array{cache, v, at, spare}, outputs);
  EXPECT_THAT(spare.to_doubles(), ElementsAre(1, 10, 3));
  EXPECT_EQ(total.item(), 15);
  outputs = {v, total};
  EXPECT_THROW(engine.run_into(std::array{cache, v, at, spare}, outputs), hd::Error);
}

// Assigned to and donated: nobody reads the new elements, so they are not written back.
TEST(Donate, WhatIsAssignedToItIsNotWrittenBack) {
  hd::Engine traced(
      [](const hd::Tensor& x) {
        hd::assign(x, x + 1.0f);
        return hd::sum(x, {0});
      },
      plain({"input0"}));
  hd::Engine replayed = hd::parse_ir(
      "graph @main(%x: f32[2]) {\n  %y = add(%x, 1.0: f32)\n  write_back %x = %y\n"
      "  %s = reduce_sum(%y) {axes = [0]}\n  return %s\n}\n",
      plain({"x"}));
  for (hd::Engine* engine : {&traced, &replayed}) {
    const hd::Tensor x = floats({1, 2});
    const hd::Tensor got = engine->run({x})[0];
    EXPECT_EQ(got.item(), 5);
    EXPECT_THAT(engine->graph_text(std::array{x}, false), testing::Not(HasSubstr("write_back")));
  }
}

TEST(Donate, RunIntoTheSameMemory) {
  hd::Engine engine([](const hd::Tensor& x) { return x * 2.0f + 1.0f; }, {.donate = {"input0"}});
  hd::Tensor x = hd::Tensor::full(hd::f32, {1000}, 1);
  for (const double want : {3.0, 7.0, 15.0}) {
    engine.run_into(std::array{x}, std::span(&x, 1));
    EXPECT_THAT(x.to_doubles(), Each(want));
  }
  EXPECT_EQ(engine.stats().copied_outputs, 0u);
  EXPECT_EQ(engine.stats().missed_donations, 0u);
}

// The first output is written while the second still reads the input: it is made elsewhere; the second need not be.
TEST(Donate, RunIntoMemoryThatIsStillRead) {
  hd::Engine engine = hd::parse_ir(kTwoReaders, plain());
  for (const std::size_t same : {0, 1}) {
    const hd::Tensor x = floats({1, 2, 3, 4});
    std::vector<hd::Tensor> outputs{hd::Tensor::zeros(hd::f32, {4}),
                                    hd::Tensor::zeros(hd::f32, {4})};
    outputs[same] = x;
    const std::uint64_t before = engine.stats().copied_outputs;
    engine.run_into(std::array{x}, outputs);
    EXPECT_THAT(outputs[0].to_doubles(), ElementsAre(2, 3, 4, 5));
    EXPECT_THAT(outputs[1].to_doubles(), ElementsAre(2, 4, 6, 8));
    EXPECT_EQ(engine.stats().copied_outputs - before, same == 0 ? 1u : 0u);
  }
}

// The input itself, and a view of it that reads its elements in another order, returned into its own memory.
TEST(Donate, TheInputAndItsViewsAsOutputs) {
  const auto check = [](const hd::Tensor& x, const auto& f, std::vector<double> want) {
    hd::Engine engine(f, plain({"input0"}));
    hd::Tensor into = x;
    engine.run_into(std::array{x}, std::span(&into, 1));
    EXPECT_EQ(x.to_doubles(), want);
    EXPECT_EQ(engine.run({x})[0].rank(), 2);
  };
  const auto square = [] { return hd::Tensor::of<float>({1, 2, 3, 4}, {2, 2}); };
  check(square(), [](const hd::Tensor& x) { return x; }, {1, 2, 3, 4});
  check(square(), [](const hd::Tensor& x) { return hd::permute(x, {1, 0}); }, {1, 3, 2, 4});
  check(square(), [](const hd::Tensor& x) { return hd::permute(x, {1, 0}) + 0.5f; },
        {1.5, 3.5, 2.5, 4.5});
}

TEST(Donate, OtherOverlapsAreRefused) {
  hd::Engine engine([](const hd::Tensor& x) { return x + 1.0f; }, plain({"input0"}));
  hd::Engine other([](const hd::Tensor& x) { return x + 1.0f; }, plain());
  std::array<float, 6> memory{};
  const hd::Tensor x = hd::Tensor::wrap(memory.data(), hd::f32, {4});
  std::array shifted{hd::Tensor::wrap(memory.data() + 1, hd::f32, {4})};
  std::array same{x};
  const auto refused = [&](hd::Engine& e, std::span<hd::Tensor> outputs) {
    EXPECT_THAT(text_of<hd::AliasingError>([&] { e.run_into(std::array{x}, outputs); }),
                HasSubstr("run_into: output 0 overlaps input 0"));
  };
  refused(engine, shifted);
  refused(other, same);
  EXPECT_NO_THROW(engine.run_into(std::array{x}, same));
}

TEST(Donate, MemoryOfOthersIsNotGivenAway) {
  const hd::Tensor weight = floats({1, 2, 3, 4});
  hd::Engine engine([=](const hd::Tensor& x, const hd::Tensor& y) { return (x + y) * weight; },
                    plain({"input0"}));
  const hd::Tensor x = floats({1, 1, 1, 1});
  EXPECT_THAT(text_of<hd::AliasingError>([&] { engine.run({x, x}); }),
              HasSubstr("run: input input0, which is donated, overlaps input input1"));
  EXPECT_THAT(text_of<hd::AliasingError>([&] { engine.run({weight, x}); }),
              HasSubstr("run: input input0, which is donated, overlaps a parameter"));
  EXPECT_THAT(engine.run({x, weight})[0].to_doubles(), ElementsAre(2, 6, 12, 20))
      << "a parameter may be read twice";
}

// The memory goes round: each output lies where the input of that call lay.
TEST(Donate, OutputsTakeOverMemoryThatIsHandedOver) {
  hd::Engine engine([](const hd::Tensor& x) { return x + 1.0f; }, plain({"input0"}));
  std::vector<hd::Tensor> state{floats({0, 0, 0, 0})};
  const void* const memory = state[0].data();
  state = engine.run(std::move(state));
  const std::size_t in_use = hd::memory::CachingAllocator::host().stats().in_use_bytes;
  for (int k = 0; k < 3; ++k) {
    state = engine.run(std::move(state));
    EXPECT_EQ(state[0].data(), memory);
  }
  EXPECT_THAT(state[0].to_doubles(), Each(4));
  const hd::Tensor kept = state[0];
  state = engine.run(std::move(state));
  EXPECT_NE(state[0].data(), memory) << "somebody has a handle";
  EXPECT_THAT(kept.to_doubles(), Each(4));
  EXPECT_THAT(state[0].to_doubles(), Each(5));
  state.clear();
  EXPECT_EQ(hd::memory::CachingAllocator::host().stats().in_use_bytes, in_use)
      << "just that of `kept`";
}

// The caller's own memory, which it may fill again, is nobody's output.
TEST(Donate, OutputsDoNotTakeOverWrappedMemory) {
  hd::Engine engine([](const hd::Tensor& x) { return x + 1.0f; }, plain({"input0"}));
  std::array<float, 2> memory{1, 2};
  const auto outputs = engine.run(std::vector{hd::Tensor::wrap(memory.data(), hd::f32, {2})});
  EXPECT_NE(outputs[0].data(), memory.data());
  EXPECT_THAT(outputs[0].to_doubles(), ElementsAre(2, 3));
}

// An error in the middle leaves the engine usable, and the handles that were not used up.
TEST(Donate, ErrorsLeaveTheEngineUsable) {
  hd::Engine engine(
      [](const hd::Tensor& x, const hd::Tensor& at) { return hd::gather(hd::cumsum(x, 0), at); },
      plain({"input0", "input1"}));
  const auto run = [&](std::int64_t at) {
    std::vector inputs{floats({1, 2}), hd::Tensor::of<std::int64_t>({at}, {1})};
    return engine.run(std::move(inputs))[0].item();
  };
  EXPECT_EQ(run(1), 3);
  EXPECT_THROW(run(7), hd::IndexError);
  EXPECT_EQ(run(0), 1);
}

TEST(Donate, ManyCallsAtOnce) {
  hd::Engine engine([](const hd::Tensor& x) { return hd::cumsum(x + 1.0f, 0) * 2.0f; },
                    {.threads = 2, .donate = {"input0"}});
  std::vector<std::future<std::vector<hd::Tensor>>> calls;
  for (int k = 0; k < 32; ++k)
    calls.push_back(engine.submit({hd::Tensor::full(hd::f32, {257}, k)}));
  for (int k = 0; k < 32; ++k)
    EXPECT_EQ(calls[static_cast<std::size_t>(k)].get()[0].data_as<float>()[256],
              257.0f * 2 * static_cast<float>(k + 1));
}

// Sizes that only the run tells: inputs that later phases read stay until then.
TEST(Donate, OutputsOfLateSizesInDonatedMemory) {
  hd::Engine two(
      [](const hd::Tensor& x, const hd::Tensor& y) {
        const hd::Tensor later = positive_of()(y)[0];
        const hd::Tensor first = positive_of()(x)[0];
        return std::vector{first, later};
      },
      {.donate = {"input0"}});
  hd::Tensor x = hd::Tensor::full(hd::f32, {4}, 3);
  std::vector<hd::Tensor> outputs{x, hd::Tensor::full(hd::f32, {5}, 0)};
  two.run_into(std::vector{x, hd::Tensor::full(hd::f32, {5}, 2)}, outputs);
  EXPECT_EQ(outputs[0].to_doubles(), (std::vector<double>{3, 3, 3, 3}));
  EXPECT_EQ(outputs[1].to_doubles(), (std::vector<double>{2, 2, 2, 2, 2}));
  hd::Engine apart([](const hd::Tensor& t) { return positive_of()(hd::exp(t))[0]; },
                   {.donate = {"input0"}});
  hd::Tensor zeros = hd::Tensor::full(hd::f32, {6}, 0);
  std::vector<hd::Tensor> one{zeros};
  apart.run_into(std::vector{zeros}, one);
  EXPECT_EQ(one[0].to_doubles(), std::vector<double>(6, 1));
}

TEST(Donate, AcrossPhases) {
  hd::Engine engine(
      [](const hd::Tensor& x, const hd::Tensor& y) {
        const hd::Tensor found = positive_of()(x)[0];
        return std::vector{hd::sum(found, {0}) + y, y * 2.0f, found};
      },
      plain({"input0", "input1"}));
  const auto outputs = engine.run(std::vector{floats({-1, 3, 1}), floats({1, 2, 3})});
  EXPECT_THAT(outputs[0].to_doubles(), ElementsAre(5, 6, 7));
  EXPECT_THAT(outputs[1].to_doubles(), ElementsAre(2, 4, 6));
  EXPECT_THAT(outputs[2].to_doubles(), ElementsAre(3, 1));
  // An output of a size that only the run tells, where a donated input lies.
  const hd::Tensor x = floats({1, 2, 3});
  std::vector<hd::Tensor> into{hd::Tensor::zeros(hd::f32, {2}), hd::Tensor::zeros(hd::f32, {2}), x};
  engine.run_into(std::array{x, floats({1, 2})}, into);
  EXPECT_THAT(into[0].to_doubles(), ElementsAre(7, 8));
  EXPECT_THAT(x.to_doubles(), ElementsAre(1, 2, 3));
  EXPECT_EQ(engine.stats().copied_outputs, 1u);
  const hd::Tensor negative = floats({-1, 2, 3});
  into[2] = negative;
  EXPECT_THROW(engine.run_into(std::array{negative, floats({1, 2})}, into), hd::ShapeError);
}

// The reference evaluator has the same rules about memory.
TEST(Donate, OnTheReferenceDevice) {
  hd::EngineOptions options = plain({"input0"});
  options.device = hd::Device::reference();
  hd::Engine engine([](const hd::Tensor& x) { return x + 1.0f; }, options);
  hd::Tensor x = floats({1, 2});
  engine.run_into(std::array{x}, std::span(&x, 1));
  EXPECT_THAT(x.to_doubles(), ElementsAre(2, 3));
}
