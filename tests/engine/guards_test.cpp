// Guards: what each call is checked for, what the plan says of them and what a failed one says.
#include <array>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "heddle/error.h"
#include "heddle/heddle.h"
#include "tests/support/error_text.h"
#include "tests/support/json.h"

namespace hd = heddle;
using hd::test::Json;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

using heddle::testing::text_of;

hd::Tensor ones_of(hd::Sizes sizes, hd::DType dtype = hd::f32) {
  return hd::Tensor::full(dtype, std::move(sizes), 1);
}

std::vector<std::string> guards_of(hd::Engine& engine, const std::vector<hd::Tensor>& inputs) {
  return Json::parse(engine.plan_json(inputs))["guards"].get<std::vector<std::string>>();
}

/// The one recompile that running on `first` and then on `second` gives.
std::string recompile_of(hd::Engine& engine, const hd::Tensor& first, const hd::Tensor& second) {
  engine.run({first});
  engine.run({second});
  const std::vector<std::string> recompiles = engine.stats().recompiles;
  return recompiles.size() == 1 ? recompiles[0] : std::to_string(recompiles.size());
}

TEST(Guards, TheLastRecompilesAreTold) {
  hd::Engine engine([](const hd::Tensor& x) { return x + 1; }, {.max_executables = 1});
  for (int k = 0; k < 36; ++k)
    for (const hd::DType dtype : {hd::f32, hd::i32}) engine.run({ones_of({2}, dtype)});
  const hd::EngineStats stats = engine.stats();
  EXPECT_EQ(stats.compiles, 72u);
  ASSERT_EQ(stats.recompiles.size(), 64u);
  EXPECT_NE(stats.recompiles.back().find("f32"), std::string::npos) << stats.recompiles.back();
}

// Sizes that a program computes are at least 0 in every call, or it is refused by name.
TEST(Guards, ASizeThatBecomesNegativeIsRefused) {
  hd::CustomOp op{.schema = "guards::less_two(Tensor x) -> Tensor"};
  op.shape = [](const hd::ShapeCall& call) {
    return std::vector{hd::TensorType{hd::f32, {call.tensor(0).sizes[0] - 2}}};
  };
  op.cpu = [](const hd::KernelCall& call) {
    for (std::int64_t k = 0; k < call.results[0].count(); ++k) call.results[0].as<float>()[k] = 1;
  };
  const hd::RegisteredOp less_two = hd::register_op(std::move(op));
  const std::vector<std::pair<std::string, std::function<hd::Tensor(const hd::Tensor&)>>> programs{
      {"iota: C1 sizes", [](const hd::Tensor& x) { return hd::iota({x.size(0) - 2}, 0, hd::f32); }},
      {"expand: C1 sizes",
       [](const hd::Tensor& x) { return hd::expand(hd::sum(x), {x.size(0) - 2}); }},
      {"guards::less_two: sizes of the results",
       [&](const hd::Tensor& x) { return less_two(x)[0] * 2.0f; }},
      {"iota: C1 sizes", [](const hd::Tensor& x) {
         return hd::cond(
             hd::greater(hd::sum(x), 0.0f),
             [&] { return hd::sum(hd::iota({x.size(0) - 2}, 0, hd::f32)); },
             [&] { return hd::sum(x); });
       }}};
  for (const auto& [label, function] : programs) {
    hd::Engine engine([&](const hd::Tensor& x) { return function(x); });
    engine.run({ones_of({4})});
    engine.run({ones_of({2})});
    EXPECT_EQ(engine.stats().compiles, 1u) << label;
    EXPECT_THAT(text_of<hd::ShapeError>([&] { engine.run({ones_of({1})}); }), HasSubstr(label));
    engine.run({ones_of({3})});
  }
}

hd::Engine plus_one() {
  return hd::Engine([](const hd::Tensor& x) { return x + 1; });
}

constexpr const char* kAccumulate =
    "graph @main(%s: f32[s0] \"state\", %x: f32[s0] \"x\") {\n"
    "  %t = add(%s, %x)\n"
    "  %y = mul(%t, %x)\n"
    "  write_back %s = %t\n"
    "  return %y\n"
    "}\n";

}  // namespace

TEST(Guards, ThePlanListsEachWithItsReason) {
  const std::string line = std::to_string(__LINE__ + 2);
  hd::Engine engine(
      [](const hd::Tensor& x, const hd::Tensor& y) { return x.size(0) > 4 ? x + y : x - y; });
  EXPECT_THAT(
      guards_of(engine, {ones_of({3, 8}), ones_of({8}, hd::f64)}),
      ElementsAre("input0 is f32[s0, s1], row-major, on cpu, at a multiple of 4 bytes (what its "
                  "kernels were compiled for)",
                  "input1 is f64[s2], row-major, on cpu, at a multiple of 8 bytes (what its "
                  "kernels were compiled for)",
                  "s0 <= 4 (branch in user code at guards_test.cpp:" + line + ")",
                  "s1 == s2 (broadcast of dimension 1 in sub at guards_test.cpp:" + line + ")",
                  "inputs may overlap (none is written to)"));
}

TEST(Guards, ThePlanSaysWhatTheModelFixes) {
  hd::Engine engine = hd::parse_ir(
      "graph @main(%x: f32[s0, 4] \"x\", %y: f32[2*s0, s0] \"y\") {\n"
      "  return %x, %y\n"
      "}\n");
  EXPECT_THAT(guards_of(engine, {ones_of({3, 4}), ones_of({6, 3})}),
              ElementsAre("x is f32[s0, 4], row-major, on cpu, at a multiple of 4 bytes (what its "
                          "kernels were compiled for)",
                          "size 1 of x is 4 (fixed by the model)",
                          "y is f32[2*s0, s0], row-major, on cpu, at a multiple of 4 bytes (what "
                          "its kernels were compiled for)",
                          "size 0 of y is 2*s0 (declared by the model)",
                          "size 1 of y is s0 (declared by the model to equal size 0 of x)",
                          "inputs may overlap (none is written to)"));
}

TEST(Guards, ThePlanSaysWhatIsWritten) {
  hd::Engine engine = hd::parse_ir(kAccumulate);
  EXPECT_EQ(guards_of(engine, {ones_of({3}), ones_of({3})}).back(),
            "state overlaps no other input and not itself (it is written to)");
}

TEST(Guards, ARecompileSaysThatTheDTypeFailed) {
  hd::Engine engine = plus_one();
  EXPECT_EQ(recompile_of(engine, ones_of({3}), ones_of({3}, hd::f64)),
            "guard failed: input input0: dtype is f64, not f32");
}

TEST(Guards, ARecompileSaysThatTheRankFailed) {
  hd::Engine engine = plus_one();
  EXPECT_EQ(recompile_of(engine, ones_of({3}), ones_of({3, 1})),
            "guard failed: input input0: rank is 2, not 1");
}

TEST(Guards, ARecompileSaysThatTheLayoutFailed) {
  hd::Engine engine = plus_one();
  std::array<float, 6> room{1, 2, 3, 4, 5, 6};
  EXPECT_EQ(recompile_of(engine, ones_of({3, 2}),
                         hd::Tensor::wrap_strided(room.data(), hd::f32, {3, 2}, {1, 3})),
            "guard failed: input input0: layout is strided, not row-major");
}

TEST(Guards, ARecompileSaysWhichBranchFailed) {
  const std::string line = std::to_string(__LINE__ + 1);
  hd::Engine engine([](const hd::Tensor& x) { return x.size(0) > 4 ? x * 2 : x + 1; });
  EXPECT_EQ(
      recompile_of(engine, ones_of({3}), ones_of({5})),
      "guard failed: s0 <= 4 (branch in user code at guards_test.cpp:" + line + "), but s0 = 5");
}

TEST(Guards, ARecompileSaysWhichBroadcastFailed) {
  const hd::Tensor row = ones_of({6});
  const std::string line = std::to_string(__LINE__ + 1);
  hd::Engine engine([row](const hd::Tensor& x) { return x + row; });
  EXPECT_EQ(recompile_of(engine, ones_of({6}), ones_of({1})),
            "guard failed: s0 == 6 (broadcast of dimension 0 in add at guards_test.cpp:" + line +
                "), but s0 = 1");
}

TEST(Guards, StridesOfOneKindShareACompile) {
  hd::Engine engine = plus_one();
  std::vector<float> room(64, 1);
  engine.run({hd::Tensor::wrap_strided(room.data(), hd::f32, {3, 2}, {1, 3})});
  engine.run({hd::Tensor::wrap_strided(room.data(), hd::f32, {4, 5}, {10, 2})});
  EXPECT_EQ(engine.stats().compiles, 1u);
}

TEST(Guards, OneIsAnySizeWhereNoBroadcastDependsOnIt) {
  hd::Engine engine([](const hd::Tensor& x, const hd::Tensor& w) {
    return hd::softmax(hd::matmul(hd::gelu(x * 2), w) + 1, -1);
  });
  for (const std::int64_t n : {1, 7, 2, 1, 30}) {
    for (const std::int64_t k : {1, 5}) engine.run({ones_of({n, k}), ones_of({k, n})});
  }
  EXPECT_EQ(engine.stats().compiles, 1u);
}

TEST(Guards, TwoSizesOfOneAreEqualNotSpecial) {
  hd::Engine engine([](const hd::Tensor& x, const hd::Tensor& y) { return x + y; });
  engine.run({ones_of({1, 4}), ones_of({1, 4})});
  EXPECT_EQ(engine.run({ones_of({5, 4}), ones_of({5, 4})})[0].count(), 20);
  EXPECT_EQ(engine.stats().compiles, 1u);
}

TEST(Guards, OneIsSpecialWhereABroadcastDependsOnIt) {
  const std::string line = std::to_string(__LINE__ + 1);
  hd::Engine engine([](const hd::Tensor& x, const hd::Tensor& y) { return x + y; });
  engine.run({ones_of({5, 4}), ones_of({1, 4})});
  engine.run({ones_of({6, 9}), ones_of({1, 9})});
  EXPECT_EQ(engine.stats().compiles, 1u);
  EXPECT_THAT(guards_of(engine, {ones_of({5, 4}), ones_of({1, 4})}),
              testing::Contains(
                  "s2 == 1 (broadcast of dimension 0 in add at guards_test.cpp:" + line + ")"));
  EXPECT_EQ(engine.run({ones_of({5, 4}), ones_of({5, 4})})[0].count(), 20);
  EXPECT_EQ(engine.stats().compiles, 2u);
  EXPECT_EQ(engine.stats().recompiles.at(0),
            "guard failed: s2 == 1 (broadcast of dimension 0 in add at guards_test.cpp:" + line +
                "), but s2 = 5");
}

TEST(Guards, AMisalignedAddressIsRefused) {
  alignas(8) std::array<char, 64> room{};
  for (std::size_t past = 1; past < 4; ++past) {
    EXPECT_EQ(
        text_of<hd::ArgumentError>([&] { hd::Tensor::wrap(room.data() + past, hd::f32, {2}); }),
        "Tensor::wrap: data: expected an address that is a multiple of 4 bytes for f32, got "
        "one " +
            std::to_string(past) + " past it");
  }
  EXPECT_EQ(text_of<hd::ArgumentError>([&] { hd::Tensor::wrap(room.data() + 4, hd::f64, {2}); }),
            "Tensor::wrap: data: expected an address that is a multiple of 8 bytes for f64, got "
            "one 4 past it");
}

TEST(Guards, ElementAlignmentIsEnough) {
  alignas(64) std::array<float, 40> room{};
  room.fill(1);
  hd::Engine engine = plus_one();
  for (std::size_t past = 0; past < 8; ++past) {
    const hd::Tensor out = engine.run({hd::Tensor::wrap(room.data() + past, hd::f32, {32})})[0];
    EXPECT_THAT(out.to_doubles(), testing::Each(2));
  }
  alignas(64) std::array<std::int8_t, 40> bytes{};
  for (std::size_t past = 0; past < 8; ++past) {
    const hd::Tensor out = engine.run({hd::Tensor::wrap(bytes.data() + past, hd::i8, {32})})[0];
    EXPECT_THAT(out.to_doubles(), testing::Each(1));
  }
  EXPECT_EQ(engine.stats().compiles, 2u);
}

TEST(Guards, InputsThatAreOnlyReadMayOverlap) {
  hd::Engine engine([](const hd::Tensor& x, const hd::Tensor& y) { return x * y; });
  std::array<float, 4> room{1, 2, 3, 4};
  const hd::Tensor x = hd::Tensor::wrap(room.data(), hd::f32, {3});
  const hd::Tensor y = hd::Tensor::wrap(room.data() + 1, hd::f32, {3});
  EXPECT_THAT(engine.run({x, y})[0].to_doubles(), ElementsAre(2, 6, 12));
  EXPECT_THAT(engine.run({x, x})[0].to_doubles(), ElementsAre(1, 4, 9));
}

class Written : public testing::TestWithParam<const char*> {
 protected:
  hd::Engine engine() const {
    return hd::parse_ir(kAccumulate, {.device = hd::Device::parse(GetParam())});
  }
};
INSTANTIATE_TEST_SUITE_P(Guards, Written, testing::Values("cpu", "reference"));

TEST_P(Written, AnInputOfItsOwnIsUpdated) {
  hd::Engine engine = this->engine();
  hd::Tensor state = ones_of({3});
  const hd::Tensor x = hd::Tensor::of<float>({1, 2, 3}, {3});
  EXPECT_THAT(engine.run({state, x})[0].to_doubles(), ElementsAre(2, 6, 12));
  EXPECT_THAT(state.to_doubles(), ElementsAre(2, 3, 4));
  EXPECT_THAT(engine.run({state, x})[0].to_doubles(), ElementsAre(3, 10, 21));
}

TEST_P(Written, AnInputThatOverlapsAnotherIsRefusedAtEachCall) {
  hd::Engine engine = this->engine();
  std::array<float, 8> room{1, 1, 1, 1, 2, 2, 2, 2};
  const auto at = [&](std::size_t k) { return hd::Tensor::wrap(room.data() + k, hd::f32, {4}); };
  engine.run({at(0), at(4)});
  EXPECT_EQ(text_of<hd::AliasingError>([&] { engine.run({at(0), at(3)}); }),
            "run: input state, which the graph writes to, overlaps input x: expected memory of its "
            "own");
  EXPECT_THAT(room, ElementsAre(3, 3, 3, 3, 2, 2, 2, 2));
  engine.run({at(0), at(4)});
  EXPECT_THAT(room, ElementsAre(5, 5, 5, 5, 2, 2, 2, 2));
}

TEST_P(Written, AnInputThatOverlapsItselfIsRefused) {
  hd::Engine engine = this->engine();
  float one = 1;
  const hd::Tensor repeated = hd::Tensor::wrap_strided(&one, hd::f32, {4}, {0});
  EXPECT_EQ(text_of<hd::AliasingError>([&] { engine.run({repeated, ones_of({4})}); }),
            "run: input state, which the graph writes to, overlaps itself: expected memory of its "
            "own");
  EXPECT_EQ(one, 1);
}
