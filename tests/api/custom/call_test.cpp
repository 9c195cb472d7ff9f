// Custom ops called from traced callables, eagerly and from IR text, compiled and on the reference device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/api/custom/ops.h"
#include "tests/support/error_text.h"

namespace hd = heddle;
using hd::test::element;
using testing::ElementsAre;

namespace {

using heddle::test::numbers;
using heddle::testing::text_of;

hd::EngineOptions on(hd::Device device) {
  hd::EngineOptions options;
  options.device = device;
  return options;
}

}  // namespace

TEST(CustomOp, CompiledAndReferenceAgree) {
  const auto& scale = hd::test::scale();
  const auto f = [&](const hd::Tensor& x) { return scale(x + 1.0f, 3.0)[0] * 2.0f; };
  for (const hd::Device device : {hd::Device::cpu(), hd::Device::reference()}) {
    hd::Engine engine(f, on(device));
    EXPECT_THAT(engine.run({numbers({1, 2})})[0].to_doubles(), ElementsAre(12, 18));
    EXPECT_THAT(engine.run({numbers({1, 2, 3})})[0].to_doubles(), ElementsAre(12, 18, 24));
  }
}

TEST(CustomOp, StepsAreOfKindCustom) {
  hd::test::scale();
  hd::Engine engine([](const hd::Tensor& x) { return hd::call("tt::scale", {x})[0]; });
  const std::string plan = engine.plan_json(std::vector{numbers({1, 2})});
  EXPECT_THAT(plan, testing::HasSubstr("\"kind\": \"custom\""));
  EXPECT_THAT(plan, testing::HasSubstr("\"name\": \"tt::scale\""));
  EXPECT_EQ(engine.stats().evaluator_steps, 0u);
}

TEST(CustomOp, FromText) {
  hd::test::accumulate();
  const char* text =
      "graph @main(%x: f32[s0] \"x\", %t: f32[s0] \"t\") {\n"
      "  %old, %new = tt::accumulate(%x, %t)\n"
      "  %y = add(%old, %new)\n"
      "  write_back %t = %new\n"
      "  return %y\n"
      "}\n";
  hd::Engine engine = hd::parse_ir(text);
  hd::Tensor total = numbers({10, 20});
  EXPECT_THAT(engine.run({numbers({1, 2}), total})[0].to_doubles(), ElementsAre(21, 42));
  EXPECT_THAT(total.to_doubles(), ElementsAre(11, 22));
  EXPECT_EQ(engine.graph_text(std::vector{numbers({1, 2}), total}, false),
            "graph @main(%x: f32[s0] \"x\", %t: f32[s0] \"t\") {\n"
            "  %old, %new = tt::accumulate(%x, %t)\n"
            "  %y = add(%old, %new)\n"
            "  write_back %t = %new\n"
            "  return %y \"y\"\n"
            "}\n");
}

TEST(CustomOp, ValueSemanticsKeepTheOldValue) {
  hd::test::accumulate();
  hd::Engine engine = hd::parse_ir(
      "graph @main(%x: f32[s0] \"x\", %t: f32[s0] \"t\") {\n"
      "  %a = mul(%t, 2.0: f32)\n"
      "  %old, %new = tt::accumulate(%x, %a)\n"
      "  %y = sub(%new, %a)\n"
      "  return %y, %old, %new\n"
      "}\n");
  hd::Tensor total = numbers({10, 20});
  const auto outs = engine.run({numbers({1, 2}), total});
  EXPECT_THAT(outs[0].to_doubles(), ElementsAre(1, 2));
  EXPECT_THAT(outs[1].to_doubles(), ElementsAre(20, 40));
  EXPECT_THAT(outs[2].to_doubles(), ElementsAre(21, 42));
  EXPECT_THAT(total.to_doubles(), ElementsAre(10, 20));
}

TEST(CustomOp, WritesReachTheCallersInput) {
  const auto& accumulate = hd::test::accumulate();
  for (const hd::Device device : {hd::Device::cpu(), hd::Device::reference()}) {
    hd::Engine engine(
        [&](const hd::Tensor& x, const hd::Tensor& total) {
          const hd::Tensor before = accumulate(x, total)[0];
          return std::vector{before, total * 10.0f};
        },
        on(device));
    hd::Tensor total = numbers({1, 1});
    for (int call = 1; call <= 3; ++call) {
      const auto outs = engine.run({numbers({1, 2}), total});
      EXPECT_THAT(outs[0].to_doubles(), ElementsAre(call, 2 * call - 1));
      EXPECT_THAT(outs[1].to_doubles(), ElementsAre(10 * (call + 1), 10 * (2 * call + 1)));
    }
    EXPECT_THAT(total.to_doubles(), ElementsAre(4, 7));
  }
}

TEST(CustomOp, WritesThroughViewsReachTheBase) {
  const auto& increment = hd::test::increment();
  hd::Engine engine([&](const hd::Tensor& x) {
    const hd::Tensor base = x * 1.0f;
    const hd::Tensor columns = hd::transpose(base, 0, 1);
    const hd::Tensor last = hd::slice(columns, 0, 1, 2);  // column 1 of base
    const hd::Tensor same = increment(last)[0];
    return std::vector{base, columns, last, same};
  });
  const auto outs = engine.run({hd::Tensor::of<float>({0, 10, 20, 30}, {2, 2})});
  EXPECT_THAT(outs[0].to_doubles(), ElementsAre(0, 11, 20, 31));
  EXPECT_THAT(outs[1].to_doubles(), ElementsAre(0, 20, 11, 31));
  EXPECT_THAT(outs[2].to_doubles(), ElementsAre(11, 31));
  EXPECT_THAT(outs[3].to_doubles(), ElementsAre(11, 31));
}

TEST(CustomOp, TwoViewsOfOneBase) {
  const auto& swap = hd::test::swap();
  hd::Engine engine([&](const hd::Tensor& x) {
    const hd::Tensor base = x * 1.0f;
    swap(hd::slice(base, 0, 0, 2), hd::slice(base, 0, 2, 4));
    return base;
  });
  EXPECT_THAT(engine.run({numbers({1, 2, 3, 4})})[0].to_doubles(), ElementsAre(3, 4, 1, 2));
  EXPECT_THAT(
      engine.graph_text(std::vector{numbers({1, 2, 3, 4})}),
      testing::HasSubstr("= tt::swap(%input0, %input0) {_bases = [0, 0], _views = [1, 0, 2, 1, 1, "
                         "2, 2, 1]}"));
}

TEST(CustomOp, Eagerly) {
  const auto& accumulate = hd::test::accumulate();
  hd::Tensor total = numbers({1, 1});
  EXPECT_THAT(accumulate(numbers({5, 6}), total)[0].to_doubles(), ElementsAre(1, 1));
  EXPECT_THAT(total.to_doubles(), ElementsAre(6, 7));
}

TEST(CustomOp, KernelErrorsNameOpAndNode) {
  const auto& fail = hd::test::fail();
  hd::Engine engine([&](const hd::Tensor& x) { return fail(x + 1.0f)[0] + 1.0f; });
  EXPECT_THAT(engine.run({numbers({1, 2})})[0].to_doubles(), ElementsAre(3, 4));
  const std::string text = text_of<hd::CustomOpError>([&] { engine.run({numbers({-5, 2})}); });
  EXPECT_THAT(text, testing::MatchesRegex("tt::fail: the kernel failed at %v[0-9]+ at "
                                          "call_test.cpp:[0-9]+: got negative start"));
  EXPECT_THAT(engine.run({numbers({1, 2})})[0].to_doubles(), ElementsAre(3, 4));
}

TEST(CustomOp, WorkspaceAndParts) {
  static const hd::RegisteredOp rows = hd::register_op(
      {.schema = "tt::row_sums(Tensor x) -> Tensor",
       .shape =
           [](const hd::ShapeCall& call) {
             return std::vector{hd::TensorType{hd::f32, {call.tensor(0).sizes[0]}}};
           },
       .cpu =
           [](const hd::KernelCall& call) {
             const std::int64_t width = call.tensor(0).sizes()[1];
             EXPECT_EQ(call.workspace_bytes, width * 4);
             EXPECT_EQ(reinterpret_cast<std::uintptr_t>(call.workspace) % 64, 0u);
             EXPECT_LT(call.worker, call.workers);
             auto* row = static_cast<float*>(call.workspace);
             for (std::int64_t r = call.begin; r < call.end; ++r) {
               for (std::int64_t k = 0; k < width; ++k)
                 row[k] = element(call.tensor(0), r * width + k);
               float sum = 0;
               for (std::int64_t k = 0; k < width; ++k) sum += row[k];
               element(call.results[0], r) = sum;
             }
           },
       .workspace_bytes = [](const hd::KernelCall& call) { return call.tensor(0).sizes()[1] * 4; },
       .extent = [](const hd::KernelCall& call) { return call.tensor(0).sizes()[0]; }});
  hd::EngineOptions options;
  options.threads = 3;
  hd::Engine engine([&](const hd::Tensor& x) { return rows(x)[0]; }, options);
  const hd::Tensor out = engine.run({hd::Tensor::full(hd::f32, {257, 129}, 2)})[0];
  ASSERT_EQ(out.count(), 257);
  for (const double sum : out.to_doubles()) EXPECT_EQ(sum, 258);
}

TEST(CustomOp, ArgumentsAreChecked) {
  const auto& scale = hd::test::scale();
  const hd::Tensor x = numbers({1});
  EXPECT_THAT(text_of<hd::ArgumentError>([&] { hd::call("tt::scale", {}); }),
              testing::HasSubstr("tt::scale: argument x"));
  EXPECT_THAT(text_of<hd::ArgumentError>([&] { hd::call("tt::scale", {x, x}); }),
              testing::AllOf(testing::StartsWith("tt::scale: argument by at "),
                             testing::EndsWith(": expected float, got a tensor")));
  EXPECT_THAT(text_of<hd::ArgumentError>([&] { scale(x, "two"); }),
              testing::HasSubstr("tt::scale: attribute by"));
  EXPECT_THAT(text_of<hd::UnsupportedError>([&] { hd::call("tt::scael", {x}); }),
              testing::HasSubstr("unknown op 'tt::scael'"));
  EXPECT_THAT(text_of<hd::ArgumentError>([&] {
                hd::register_op(
                    {.schema = "tt::scale(Tensor x) -> Tensor",
                     .shape = [](const hd::ShapeCall& call) { return std::vector{call.tensor(0)}; },
                     .cpu = [](const hd::KernelCall&) {}});
              }),
              testing::HasSubstr("tt::scale: registration: expected a name that no op has"));
}

TEST(CustomOp, CapturedTensorsAreNotWritten) {
  const auto& increment = hd::test::increment();
  const hd::Tensor captured = numbers({1, 2});
  hd::Engine engine([&](const hd::Tensor& x) { return x + increment(captured)[0]; });
  EXPECT_THAT(text_of<hd::MutationError>([&] { engine.run({numbers({1, 2})}); }),
              testing::HasSubstr("tt::increment_: a write to a captured tensor"));
}
