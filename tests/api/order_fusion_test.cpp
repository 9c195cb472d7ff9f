// What order edges leave of fusion and of views.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/api/order_support.h"

namespace hd = heddle;
using hd::test::Json;
using namespace hd::order_test;

using ::testing::HasSubstr;

// S4-28: an edge onto what is read anyway, itself or by a chain, says nothing more: all are one kernel.
TEST(Order, S4_28_EdgesThatDataImpliesDoNotStopFusion) {
  const std::vector inputs{hd::Tensor::full(hd::f32, {8}, 0.5)};
  for (const char* last : {"neg(%b) after(%b)", "neg(%b) after(%a)", "add(%b, %a) after(%a, %b)"}) {
    const Json plan = plan_of("graph @main(%x: f32[8]) {\n  %a = exp(%x)\n  %b = sin(%a)\n  %c = " +
                                  std::string(last) + "\n  return %c\n}\n",
                              inputs);
    EXPECT_EQ(steps_of(plan), "a,b,c") << last;
    EXPECT_EQ(plan["peak_bytes"], 0) << last;
  }
}

// S4-28: so does one onto another node of a kernel that is read: one kernel, and for a reader apart only a strong edge.
TEST(Order, S4_28_EdgesOntoAKernelThatIsReadDoNotStopFusion) {
  const std::vector inputs{hd::Tensor::full(hd::f32, {8}, 0.5), hd::Tensor::full(hd::f32, {8}, 2)};
  const auto plan = [&](const std::string& last) {
    return plan_of("graph @main(%x: f32[8], %y: f32[8]) {\n  %p = exp(%x)\n  %a = neg(%p)\n" +
                       last + "  return %a, %c\n}\n",
                   inputs);
  };
  for (const char* last : {"  %c = sin(%p) after(%a)\n", "  %c = add(%p, %y) after(%a)\n",
                           "  %r = reshape(%p) {sizes = [2, 4]}\n  %c = sin(%r) after(%a)\n",
                           "  %b = sin(%p)\n  %d = cos(%p)\n  %c = mul(%d, %y) after(%a, %b)\n"}) {
    const Json fused = plan(last);
    EXPECT_EQ(fused["steps"].size(), 1u) << last << steps_of(fused);
    EXPECT_EQ(fused["steps"][0]["edges"].size(), 0u);
  }
  // Views that are stored, and what is made of nothing, are read as well.
  for (const char* made : {"slice(%x) {start = [0], limit = [4], stride = [1]}",
                           "slice(%x) {start = [0], limit = [0], stride = [1]}",
                           "iota() {sizes = [8], axis = 0, dtype = f32}"}) {
    const Json fused =
        plan_of("graph @main(%x: f32[8], %y: f32[8]) {\n  %p = " + std::string(made) +
                    "\n  %a = neg(%p)\n  %c = sin(%p) after(%a)\n"
                    "  return %a, %c, %p\n}\n",
                inputs, {.check_plans = true});
    EXPECT_EQ(steps_of(fused), "p,a,c") << made;
  }
  const Json apart = plan("  %c = cumsum(%p) {axis = 0} after(%a)\n");
  EXPECT_EQ(steps_of(apart), "p,a | c");
  EXPECT_EQ(apart["steps"][1]["edges"], Json::parse(R"([{"from":0,"kind":"strong"}])"));
  // Nothing of the kernel of %a is read.
  const Json unread = plan("  %c = sin(%y) after(%a)\n");
  EXPECT_EQ(steps_of(unread), "p,a | c");
  EXPECT_EQ(unread["steps"][1]["edges"], Json::parse(R"([{"from":0,"kind":"weak"}])"));
}

// One of two readers of a kernel's value that is read anyway waits for it, beside one that only has to run later:
// that one is not drawn into the kernel by the other.
TEST(Order, SiblingsOfAReaderAreOrderedToo) {
  constexpr const char* kText = R"(graph @main(%x: f32[4, 4], %y: f32[4, 4]) {
  %na = matmul(%x, %x)
  %nb = variance(%y) {axes = [0], keepdims = true, correction = 0}
  %nbm = add(%nb, %x) after(%na)
  %nc = tanh(%na) after(%nbm)
  %ne = tanh(%nbm)
  %nf = mul(%nbm, %nc)
  %ng = permute(%na) {perm = [1, 0]} after(%nbm)
  return %nf, %ng, %ne
}
)";
  const std::vector inputs{hd::Tensor::full(hd::f32, {4, 4}, 0.5),
                           hd::Tensor::full(hd::f32, {4, 4}, 0.25)};
  hd::EngineOptions checked;
  checked.check_plans = true;
  hd::EngineOptions reference;
  reference.device = hd::Device::reference();
  const auto got = hd::parse_ir(kText, checked).run(inputs);
  const auto want = hd::parse_ir(kText, reference).run(inputs);
  for (std::size_t k = 0; k < want.size(); ++k)
    EXPECT_THAT(got[k].to_doubles(),
                ::testing::Pointwise(::testing::DoubleNear(1e-6), want[k].to_doubles()));
}

// S4-30: what vanishes in a kernel is waited for all the same, and has no memory for it.
TEST(Order, S4_30_WhatIsWaitedForMayVanishInAKernel) {
  constexpr const char* kText = R"(graph @main(%x: f32[64], %y: f32[64]) {
  %a = exp(%x)
  %b = neg(%a)
  %d = cumsum(%y) {axis = 0} after(%a)
  return %b, %d
}
)";
  const std::vector inputs{hd::Tensor::full(hd::f32, {64}, 1), hd::Tensor::full(hd::f32, {64}, 1)};
  for (const hd::StepOrder order : kOrders) {
    const Json plan = plan_of(kText, inputs, {.order = order});
    EXPECT_EQ(steps_of(plan), "a,b | d");
    EXPECT_EQ(plan["steps"][1]["edges"], Json::parse(R"([{"from":0,"kind":"weak"}])"));
    for (const auto& buffer : plan["buffers"]) EXPECT_NE(buffer["value"], "a");
  }
}

// S4-29: two that could be one kernel are two where what lies between them waits and is waited for, however far around.
TEST(Order, S4_29_NoKernelGoesAroundAnEdge) {
  constexpr const char* kText = R"(graph @main(%x: f32[64], %y: f32[64]) {
  %a = exp(%x)
  %d = cumsum(%y) {axis = 0} after(%a)
  %e = cumsum(%y) {axis = 0, reverse = true}
  %f = cumsum(%e) {axis = 0} after(%d)
  %b = neg(%a) after(%f)
  %g = sin(%a)
  return %b, %d, %f, %g
}
)";
  const std::vector inputs{hd::Tensor::full(hd::f32, {64}, 1), hd::Tensor::full(hd::f32, {64}, 1)};
  for (const hd::StepOrder order : kOrders) {
    const Json plan = plan_of(kText, inputs, {.order = order});
    const std::string steps = steps_of(plan);
    EXPECT_THAT(steps, HasSubstr("a,g")) << "no edge stands between these";
    EXPECT_LT(steps.find('a'), steps.find('d')) << steps;
    EXPECT_LT(steps.find('d'), steps.find('f')) << steps;
    EXPECT_LT(steps.find('f'), steps.find('b')) << steps;
  }
}

// AX-01: a marked product that waits, inside a compile unit: one unit, the order kept in it.
TEST(Order, InsideACompileUnit) {
  constexpr const char* kUnit = R"(graph @main(%a: f32[64, 64], %b: f32[64, 64]) {
  %add = add(%a, 1.0: f32) @{compile = "u"}
  %mm = matmul(%b, %b) @{compile = "u"} after(%add)
  %mul = mul(%add, 2.0: f32) @{compile = "u"} after(%mm)
  %out = sub(%mm, %mul) @{compile = "u"}
  return %out, %mul
}
)";
  for (const hd::CompileScope scope : {hd::CompileScope::Whole, hd::CompileScope::Annotated}) {
    hd::EngineOptions options{.scope = scope};
    int compiled = 0;
    options.on_region_compile = [&](const hd::RegionInfo&) { ++compiled; };
    const Json plan = plan_of(kUnit, two_squares(), options);
    EXPECT_EQ(compiled, 1);
    EXPECT_EQ(plan["regions"].size(), 1u);
    EXPECT_THAT(steps_of(plan), ::testing::StartsWith("add | mm | mul"));
    for (const auto& kernel : plan["kernels"])
      EXPECT_EQ(kernel["unit"], plan["regions"][0]["name"]);
  }
}

// The edges of a view that goes into another one stay with it.
TEST(Order, ViewsThatWait) {
  constexpr const char* kViews = R"(graph @main(%x: f32[4, 6], %y: f32[8]) {
  %d = cumsum(%y) {axis = 0}
  %a = reshape(%x) {sizes = [24]} after(%d)
  %b = reshape(%a) {sizes = [12, 2]}
  %c = exp(%b)
  return %c, %d
}
)";
  const std::vector inputs{hd::Tensor::zeros(hd::f32, {4, 6}), hd::Tensor::zeros(hd::f32, {8})};
  const Json plan = plan_of(kViews, inputs, {.threads = 2});
  EXPECT_EQ(plan["steps"].size(), 2u);
  EXPECT_THAT(plan["steps"][1]["edges"].dump(), HasSubstr(R"({"from":0,"kind":"weak"})"));
}

TEST(Order, WhatAViewLooksAtIsWaitedFor) {
  constexpr const char* kViews = R"(graph @main(%x: u8[8], %y: i16[3, 8], %z: f32[8]) {
  %c = convert(%x) {dtype = i16}
  %e = eq(%c, %x)
  %v = slice(%e) {start = [0], limit = [1], stride = [1]}
  %d = cumsum(%z) {axis = 0} after(%v)
  %r = eq(%y, %v)
  return %r, %d
}
)";
  const std::vector inputs{hd::Tensor::zeros(hd::u8, {8}), hd::Tensor::zeros(hd::i16, {3, 8}),
                           hd::Tensor::zeros(hd::f32, {8})};
  for (const hd::StepOrder order : kOrders) {
    const Json plan = plan_of(kViews, inputs, {.threads = 1, .order = order, .check_plans = true});
    const std::string steps = steps_of(plan);
    EXPECT_LT(steps.find('e'), steps.find('d')) << steps;
    EXPECT_EQ(plan["steps"].size(), 3u) << steps;
  }
}

// A kernel may store what it computes under the name of a view that is asked for; the edge from that view says no
// more than the data does, and the readers stay in one kernel with it.
TEST(Order, AViewThatNamesAResultIsThatResult) {
  constexpr const char* kViews = R"(graph @main(%x: f32[1, 4, 3, 2], %y: f32[1, 4, 3, 1]) {
  %m = reduce_max(%x) {axes = [3], keepdims = true}
  %p = permute(%m) {perm = [3, 1, 0, 2]}
  %a = relu(%m)
  %b = silu(%p)
  %c = add(%a, %y) after(%p)
  return %c, %p, %b
}
)";
  const std::vector inputs{hd::Tensor::full(hd::f32, {1, 4, 3, 2}, 2),
                           hd::Tensor::full(hd::f32, {1, 4, 3, 1}, 1)};
  const Json plan = plan_of(kViews, inputs, {.threads = 1, .check_plans = true});
  EXPECT_EQ(plan["steps"].size(), 1u) << steps_of(plan);
  EXPECT_EQ(hd::parse_ir(kViews).run(inputs)[0].to_doubles(), std::vector<double>(12, 3));
}
