// Order edges, as the steps that run show them.
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdexcept>

#include "heddle/heddle.h"
#include "tests/api/order_support.h"

namespace hd = heddle;
using hd::test::Json;
using namespace hd::order_test;

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Ops that only have sizes, and one that has no results.
///
///   to::make(Tensor[] deps, int bytes, int tag=0) -> Tensor   u8[bytes] of ones; reads its operands
///   to::record(Tensor x) -> ()                                notes the call; is not pure
///   to::add_one(Tensor(a!) x) -> Tensor                       x += 1; gives the old sum of x
int recorded = 0;
void register_ops() {
  static const bool done = [] {
    hd::register_op({.schema = "to::make(Tensor[] deps, int bytes, int tag=0) -> Tensor",
                     .shape =
                         [](const hd::ShapeCall& call) {
                           return std::vector{hd::TensorType{hd::u8, {call.integer("bytes")}}};
                         },
                     .cpu =
                         [](const hd::KernelCall& call) {
                           for (const hd::KernelTensor& tensor : call.tensors)
                             for (std::int64_t k = 0; k < tensor.count(); ++k)
                               if (tensor.as<std::uint8_t>()[k] == 0xff)
                                 throw std::runtime_error("reads freed bytes");
                           std::memset(call.results[0].data, 1,
                                       static_cast<std::size_t>(call.results[0].count()));
                         }});
    hd::register_op({.schema = "to::record(Tensor x) -> ()",
                     .shape = [](const hd::ShapeCall&) { return std::vector<hd::TensorType>(); },
                     .cpu = [](const hd::KernelCall&) { ++recorded; },
                     .pure = false});
    hd::register_op(
        {.schema = "to::add_one(Tensor(a!) x) -> Tensor",
         .shape = [](const hd::ShapeCall&) { return std::vector{hd::TensorType{hd::f32, {1}}}; },
         .cpu =
             [](const hd::KernelCall& call) {
               float sum = 0;
               for (std::int64_t k = 0; k < call.tensor(0).count(); ++k)
                 sum += call.tensor(0).as<float>()[k]++;
               call.results[0].as<float>()[0] = sum;
             }});
    return true;
  }();
  EXPECT_TRUE(done);
}

std::string make(const std::string& name, int bytes, const std::vector<std::string>& deps,
                 const std::string& after = {}) {
  static int tag = 0;
  std::string text = "  %" + name + " = to::make(";
  for (std::size_t k = 0; k < deps.size(); ++k) text += (k ? ", %" : "%") + deps[k];
  text += ") {_lists = [" + std::to_string(deps.size()) + "], bytes = " + std::to_string(bytes) +
          ", tag = " + std::to_string(tag++) + "}";
  return text + (after.empty() ? "\n" : " after(" + after + ")\n");
}

/// "+a mm0 -a": memory taken, steps by the first node they compute, memory given back.
std::string events_of(const Json& plan) {
  std::string text;
  for (const auto& event : plan["events"]) {
    text += text.empty() ? "" : " ";
    const auto value = event["value"].get<std::string>();
    if (event["kind"] != "launch") {
      text += (event["kind"] == "alloc" ? "+" : "-") + value;
      continue;
    }
    for (const auto& kernel : plan["kernels"])
      if (kernel["name"] == value) text += kernel["nodes"][0].get<std::string>();
  }
  return text;
}

constexpr const char* kThree = R"(graph @main(%a: f32[64, 64], %b: f32[64, 64]) {
  %add = add(%a, 1.0: f32)
  %mm = matmul(%b, %b)
  %mul = mul(%add, 2.0: f32)
  return %mm, %mul
}
)";

}  // namespace

// A4-01, A4-02: without the map one kernel holds both pointwise nodes; with it, two, around the product.
TEST(ControlDeps, ScheduleFollowsTheMap) {
  EXPECT_THAT(steps_of(plan_of(kThree, two_squares())), HasSubstr("add,mul"));
  for (const hd::StepOrder order : kOrders) {
    hd::EngineOptions options;
    options.order = order;
    options.control_deps = {{"mm", {"add"}}, {"mul", {"mm"}}};
    const Json plan = plan_of(kThree, two_squares(), options);
    EXPECT_EQ(steps_of(plan), "add | mm | mul");
    EXPECT_EQ(plan["kernels"][0]["kind"], "jit");
    EXPECT_EQ(plan["kernels"][2]["kind"], "jit");
    EXPECT_EQ(plan["steps"][1]["edges"], Json::parse(R"([{"from":0,"kind":"weak"}])"));
    EXPECT_EQ(plan["steps"][2]["edges"],
              Json::parse(R"([{"from":0,"kind":"strong"},{"from":1,"kind":"weak"}])"));
  }
}

TEST(ControlDeps, ValuesAreThoseWithoutTheMap) {
  hd::Engine plain = hd::parse_ir(kThree);
  hd::Engine ordered = hd::parse_ir(
      kThree, {.control_deps = {{"mm", {"add"}}, {"mul", {"mm"}}}, .check_plans = true});
  const auto want = plain.run(two_squares());
  const auto got = ordered.run(two_squares());
  for (std::size_t k = 0; k < want.size(); ++k)
    EXPECT_EQ(got[k].to_doubles(), want[k].to_doubles());
}

TEST(ControlDeps, ErrorsLeaveTheEngineUsable) {
  hd::Engine wrong = hd::parse_ir(kThree, {.control_deps = {{"mm", {"nosuch"}}}});
  for (int call = 0; call < 2; ++call) {
    try {
      wrong.run(two_squares());
      FAIL();
    } catch (const hd::ArgumentError& error) {
      EXPECT_THAT(error.what(), HasSubstr("got nosuch"));
    }
  }
  hd::Engine cyclic = hd::parse_ir(kThree, {.control_deps = {{"add", {"mul"}}}});
  EXPECT_THROW(cyclic.run(two_squares()), hd::CycleError);
}

// A3-17: order edges that go round are an error that lists who would wait for whom, each once.
TEST(Order, A3_17_ACycleOfEdgesIsListed) {
  constexpr const char* kBranches = R"(graph @main(%x: f32[8]) {
  %a = cumsum(%x) {axis = 0}
  %b = cumsum(%a) {axis = 0}
  %c = reduce_sum(%x) {axes = [0]}
  %d = neg(%c)
  %e = exp(%x)
  return %b, %d, %e
}
)";
  const std::vector inputs{hd::Tensor::zeros(hd::f32, {8})};
  for (const hd::StepOrder order : kOrders) {
    hd::Engine engine = hd::parse_ir(
        kBranches, {.order = order, .control_deps = {{"c", {"b"}}, {"a", {"d"}}, {"e", {"a"}}}});
    try {
      engine.run(inputs);
      FAIL();
    } catch (const hd::CycleError& error) {
      EXPECT_STREQ(error.what(),
                   "order: expected no cycle, got %a before %b before %c before %d before %a");
    }
  }
}

// A4-07: the edge mm0 => mm3 does not keep mm0's bytes until mm3.
TEST(Order, EdgesKeepNoBytes) {
  constexpr const char* kChain = R"(graph @main(%x: f32[8, 8], %w: f32[8, 8]) {
  %mm0 = matmul(%x, %w)
  %mm1 = matmul(%mm0, %w)
  %mm2 = matmul(%mm1, %w)
  %mm3 = matmul(%mm2, %w) after(%mm0)
  return %mm3
}
)";
  for (const hd::StepOrder order : kOrders) {
    const auto x = hd::Tensor::full(hd::f32, {8, 8}, 1);
    const Json plan = plan_of(kChain, {x, x}, {.threads = 1, .order = order});
    EXPECT_EQ(events_of(plan), "+mm0 mm0 +mm1 mm1 -mm0 +mm2 mm2 -mm1 mm3 -mm2");
    EXPECT_EQ(plan["peak_bytes"], 512);
    EXPECT_EQ(plan["lower_bound_bytes"], 512);
  }
}

// What a branch needs inside counts where an order is chosen.
TEST(Order, CountsTheMemoryOfNestedPlans) {
  constexpr const char* kBranch = R"(graph @main(%p: bool[], %x: f32[64, 64]) {
  %c = cond(%p, %x) {then = @then, else = @else}
  return %c
}

graph @then(%x: f32[64, 64]) {
  %a = matmul(%x, %x)
  %b = matmul(%a, %x)
  return %b
}

graph @else(%x: f32[64, 64]) {
  %n = neg(%x)
  return %n
}
)";
  const std::vector inputs{hd::Tensor::full(hd::boolean, {}, 1),
                           hd::Tensor::full(hd::f32, {64, 64}, 1)};
  const Json plan = plan_of(kBranch, inputs, {.threads = 1});
  EXPECT_EQ(plan["peak_bytes"], 64 * 64 * 4);
  for (const auto& [method, peak] : plan["order"]["peaks"].items())
    EXPECT_EQ(peak, 2 * 64 * 64 * 4) << method << ": the result, and a product inside";
  EXPECT_EQ(plan["order"]["peaks"].size(), 4u);
}

// A4-05: what waits may take a list, and leave operands out.
TEST(Order, OperandsThatAreLists) {
  constexpr const char* kConcat = R"(graph @main(%x: f32[2], %y: f32[2]) {
  %d = exp(%y)
  %c = concat(%x, %y) {axis = 0} after(%d)
  return %c, %d
}
)";
  const std::vector inputs{hd::Tensor::full(hd::f32, {2}, 1), hd::Tensor::full(hd::f32, {2}, 2)};
  EXPECT_EQ(steps_of(plan_of(kConcat, inputs)), "d | c");
  hd::Engine engine = hd::parse_ir(kConcat);
  EXPECT_EQ(engine.run(inputs)[0].to_doubles(), (std::vector<double>{1, 1, 2, 2}));
  constexpr const char* kClamp = R"(graph @main(%x: f32[2], %y: f32[2]) {
  %d = exp(%y)
  %c = clamp(%y, none, %x) after(%d)
  return %c, %d
}
)";
  EXPECT_EQ(steps_of(plan_of(kClamp, inputs)), "d | c");
  hd::Engine clamps = hd::parse_ir(kClamp);
  EXPECT_EQ(clamps.run(inputs)[0].to_doubles(), (std::vector<double>{1, 1}));
}

// A4-14: a written operand of what waits is written, as without order.
TEST(Order, WrittenOperandsOfWhatWaits) {
  register_ops();
  const auto callable = [](const hd::Tensor& x, const hd::Tensor& y) {
    const hd::Tensor first = hd::exp(y);
    const hd::Tensor sum = hd::after({first}, [&] { return hd::call("to::add_one", {x})[0]; });
    return std::vector<hd::Tensor>{sum, first};
  };
  hd::Engine engine(callable, {.threads = 2, .check_plans = true});
  const hd::Tensor x = hd::Tensor::full(hd::f32, {3}, 2);
  const hd::Tensor y = hd::Tensor::zeros(hd::f32, {3});
  EXPECT_EQ(engine.run({x, y})[0].to_doubles(), (std::vector<double>{6}));
  EXPECT_EQ(x.to_doubles(), (std::vector<double>{3, 3, 3}));
  EXPECT_EQ(engine.run({x, y})[0].to_doubles(), (std::vector<double>{9}));
  EXPECT_EQ(x.to_doubles(), (std::vector<double>{4, 4, 4}));
  const Json plan = Json::parse(engine.plan_json({{x, y}}));
  EXPECT_EQ(plan["steps"].back()["edges"].back()["kind"], "weak");
}

// A4-15: what waits and what is waited for are nodes; the parser says what it found instead.
TEST(Order, OnlyNodesCanBeWaitedFor) {
  const auto error = [](const char* after) -> std::string {
    try {
      hd::parse_ir("graph @main(%x: f32[4]) {\n  %a = exp(%x)\n  %b = neg(%x) after(" +
                   std::string(after) + ")\n  return %a, %b\n}\n");
    } catch (const hd::Error& e) {
      return e.what();
    }
    return {};
  };
  EXPECT_EQ(error("%a"), "");
  EXPECT_THAT(error("3"), HasSubstr("at 3:22: expected a value, got '3'"));
  EXPECT_THAT(error("[%a]"), HasSubstr("at 3:22: expected a value, got '['"));
  EXPECT_THAT(error("%nosuch"), HasSubstr("undefined value %nosuch at 3:22"));
}

// A4-16: what waits is called with the strides that it is called with without order, and its result is what the graph
// said.
TEST(Order, A4_16_WhatWaitsKeepsItsStridesAndTypes) {
  static std::vector<std::vector<std::int64_t>> seen;
  static const hd::RegisteredOp note = hd::register_op(
      {.schema = "to::note_strides(Tensor(a!) x) -> Tensor",
       .shape = [](const hd::ShapeCall& call) { return std::vector{call.tensor(0)}; },
       .cpu =
           [](const hd::KernelCall& call) {
             const hd::KernelTensor& x = call.tensor(0);
             seen.emplace_back(x.strides().begin(), x.strides().end());
             for (std::int64_t i = 0; i < x.sizes()[0]; ++i) {
               for (std::int64_t j = 0; j < x.sizes()[1]; ++j) {
                 float& element = x.as<float>()[i * x.strides()[0] + j * x.strides()[1]];
                 call.results[0].as<float>()[i * x.sizes()[1] + j] = element;
                 element = -element;
               }
             }
           }});
  const auto run = [](bool waits, Json& plan) {
    hd::Engine engine(
        [waits](const hd::Tensor& x, const hd::Tensor& y) {
          const hd::Tensor kept = x + 0.5f;
          const hd::Tensor first = hd::cumsum(y, 0);
          const auto call = [&] { return note(hd::transpose(kept, 0, 1))[0]; };
          const hd::Tensor result = waits ? hd::after({first}, call) : call();
          return std::vector{result, kept, first};
        },
        {.threads = 1, .check_plans = true});
    const std::vector inputs{hd::Tensor::of<float>({1, 2, 3, 4, 5, 6}, {2, 3}),
                             hd::Tensor::full(hd::f32, {4}, 1)};
    plan = Json::parse(engine.plan_json(inputs));
    std::vector<std::vector<double>> values;
    for (const hd::Tensor& output : engine.run(inputs)) values.push_back(output.to_doubles());
    return values;
  };
  seen.clear();
  Json plain, ordered;
  const auto want = run(false, plain);
  const auto got = run(true, ordered);
  EXPECT_EQ(got, want);
  EXPECT_EQ(got[0], (std::vector<double>{1.5, 4.5, 2.5, 5.5, 3.5, 6.5}));
  EXPECT_EQ(got[1], (std::vector<double>{-1.5, -2.5, -3.5, -4.5, -5.5, -6.5}));
  EXPECT_EQ(seen, (std::vector<std::vector<std::int64_t>>{{1, 3}, {1, 3}}));
  EXPECT_EQ(ordered["missed_reinplace"], plain["missed_reinplace"]);
  EXPECT_EQ(ordered["buffers"], plain["buffers"]);
  std::size_t weak = 0;
  for (const auto& step : ordered["steps"])
    for (const auto& edge : step["edges"]) weak += edge["kind"] == "weak" ? 1 : 0;
  EXPECT_EQ(weak, 1u);
}

// A4-19: an op without results orders too: what comes after it, and a call of a nested graph.
TEST(Order, OpsWithoutResults) {
  register_ops();
  const std::string text = "graph @main(%in: u8[1]) {\n" + make("a", 64, {"in"}) +
                           "  %e = to::record(%a)\n" + make("b", 64, {"in"}, "%e") +
                           "  %c = invoke(%in) {body = @inner} after(%e)\n" +
                           "  return %b, %c\n}\n"
                           "graph @inner(%y: u8[1]) {\n  %z = add(%y, %y)\n  return %z\n}\n";
  const std::vector inputs{hd::Tensor::zeros(hd::u8, {1})};
  for (const hd::StepOrder order : kOrders) {
    for (const int threads : {1, 3}) {
      const auto plan = plan_of(text, inputs, {.threads = threads, .order = order});
      EXPECT_EQ(steps_of(plan).substr(0, 5), "a | e") << steps_of(plan);
      for (std::size_t k = 2; k < 4; ++k)
        EXPECT_THAT(plan["steps"][k]["edges"].dump(), HasSubstr(R"({"from":1,"kind":"weak"})"));
    }
  }
  hd::Engine engine = hd::parse_ir(text, {.threads = 3});
  recorded = 0;
  engine.run(inputs);
  EXPECT_EQ(recorded, 1);
}

// A node orders by any of its results: after a tuple means after the step that makes it.
TEST(Order, AfterOneOfSeveralResults) {
  constexpr const char* kTopk = R"(graph @main(%x: f32[8], %y: f32[8]) {
  %v, %i = topk(%x) {k = 2}
  %n = neg(%y) after(%i)
  return %v, %n
}
)";
  const std::vector inputs{hd::Tensor::zeros(hd::f32, {8}), hd::Tensor::zeros(hd::f32, {8})};
  const Json plan = plan_of(kTopk, inputs, {.threads = 2});
  EXPECT_EQ(plan["kernels"].back()["nodes"].back(), "n");
  EXPECT_THAT(plan["steps"].back()["edges"].dump(), HasSubstr("weak"));
}

// D2, S4-23: order keeps nothing alive, and an edge onto what is gone goes too.
TEST(Order, WhatIsOnlyWaitedForIsRemoved) {
  const std::vector inputs{hd::Tensor::zeros(hd::f32, {8})};
  EXPECT_EQ(steps_of(plan_of(R"(graph @main(%x: f32[8]) {
  %gone = exp(%x)
  %kept = neg(%x) after(%gone)
  return %kept
}
)",
                             inputs)),
            "kept");
}

// A4-25: who reads it and waits for it reads it.
TEST(Order, ReadersThatWaitAreReaders) {
  const std::vector inputs{hd::Tensor::full(hd::f32, {8}, 0)};
  constexpr const char* kBoth = R"(graph @main(%x: f32[8]) {
  %b = exp(%x)
  %n = cumsum(%b) {axis = 0} after(%b)
  return %n
}
)";
  const Json plan = plan_of(kBoth, inputs);
  EXPECT_EQ(steps_of(plan), "b | n");
  EXPECT_EQ(plan["steps"][1]["edges"], Json::parse(R"([{"from":0,"kind":"strong"}])"));
  EXPECT_EQ(hd::parse_ir(kBoth).run(inputs)[0].to_doubles().back(), 8);
}

// A4-27: while %w, which only waits for %b, has not run, %q does not take the bytes of %b, though it is the last to
// read them; they are given back right after %q all the same.
TEST(Order, AWaiterKeepsNothing) {
  register_ops();
  const auto text = [](const std::string& waits_for) {
    return "graph @main(%x: f32[64], %in: u8[1]) {\n"
           "  %b = cumsum(%x) {axis = 0}\n  %q = neg(%b)\n"
           "  %r = cumsum(%q) {axis = 0}\n" +
           make("w", 256, {"in"}, waits_for) +
           "  %s = cumsum(%r) {axis = 0} after(%w)\n  return %s, %w\n}\n";
  };
  const std::vector inputs{hd::Tensor::full(hd::f32, {64}, 1), hd::Tensor::zeros(hd::u8, {1})};
  hd::Engine reference = hd::parse_ir(text("%b, %q"), {.device = hd::Device::reference()});
  const auto want = reference.run(inputs)[0].to_doubles();
  for (const hd::StepOrder order : kOrders) {
    const hd::EngineOptions options{
        .threads = 1, .fuse = false, .order = order, .check_plans = true};
    hd::Engine engine = hd::parse_ir(text("%b, %q"), options);
    std::vector<hd::Tensor> outputs;
    const auto events = engine.run_trace(inputs, &outputs);
    EXPECT_EQ(outputs[0].to_doubles(), want);
    std::size_t freed = 0, read = 0, waited = 0;
    for (const hd::RunEvent& event : events) {
      if (event.kind == hd::RunEvent::Kind::Free && event.value == "b") freed = event.step;
      if (event.kind == hd::RunEvent::Kind::Launch && event.value == "neg") read = event.step;
      if (event.kind == hd::RunEvent::Kind::Launch && event.value == "to::make")
        waited = event.step;
    }
    EXPECT_EQ(freed, read);
    EXPECT_LT(freed, waited);
    const auto places = [&](const std::string& waits_for) {
      hd::Engine one = hd::parse_ir(text(waits_for), options);
      std::map<std::string, std::int64_t> offsets;
      const Json plan = Json::parse(one.plan_json(inputs));
      for (const auto& buffer : plan["buffers"])
        if (!buffer["offset"].is_null()) offsets[buffer["value"]] = buffer["offset"];
      return offsets;
    };
    auto waiting = places("%b, %q");
    ASSERT_THAT(waiting, testing::IsSupersetOf({testing::Key("b"), testing::Key("q")}));
    EXPECT_NE(waiting.at("q"), waiting.at("b"));
    auto free = places("%q");
    EXPECT_EQ(free.at("q"), free.at("b"));
  }
}

// The order of nodes by name holds on the evaluator too.
TEST(Order, ControlDepsHoldOnEveryDevice) {
  static std::vector<std::int64_t> calls;
  static const hd::RegisteredOp note = hd::register_op(
      {.schema = "to::note(Tensor x, int tag) -> Tensor",
       .shape = [](const hd::ShapeCall& call) { return std::vector{call.tensor(0)}; },
       .cpu =
           [](const hd::KernelCall& call) {
             calls.push_back(call.integer("tag"));
             std::memcpy(call.results[0].data, call.tensor(0).data,
                         static_cast<std::size_t>(4 * call.tensor(0).count()));
           },
       .pure = false});
  const std::string text =
      "graph @main(%x: f32[2]) {\n"
      "  %a = to::note(%x) {tag = 1}\n"
      "  %b = to::note(%x) {tag = 2}\n"
      "  %c = to::note(%x) {tag = 3}\n"
      "  return %a, %b, %c\n}\n";
  const std::vector inputs{hd::Tensor::full(hd::f32, {2}, 1)};
  for (const hd::Device& device : {hd::Device::cpu(), hd::Device::reference()}) {
    hd::Engine engine = hd::parse_ir(text, {.device = device,
                                            .threads = 1,
                                            .order = hd::StepOrder::Given,
                                            .control_deps = {{"a", {"c"}}, {"b", {"a"}}}});
    calls.clear();
    engine.run(inputs);
    EXPECT_THAT(calls, testing::ElementsAre(3, 1, 2)) << device.to_string();
    hd::Engine wrong = hd::parse_ir(text, {.device = device, .control_deps = {{"a", {"z"}}}});
    EXPECT_THROW(wrong.run(inputs), hd::ArgumentError);
  }
}

// A4-28: op by op, and on the evaluator, the same numbers.
TEST(Order, OpByOpGivesTheSame) {
  const std::vector<hd::Tensor> inputs = two_squares();
  const hd::ControlDeps deps{{"mm", {"add"}}, {"mul", {"mm"}}};
  hd::Engine compiled = hd::parse_ir(kThree, {.control_deps = deps});
  hd::Engine alone =
      hd::parse_ir(kThree, {.scope = hd::CompileScope::Annotated, .control_deps = deps});
  hd::Engine evaluator =
      hd::parse_ir(kThree, {.device = hd::Device::reference(), .control_deps = deps});
  const auto want = evaluator.run(inputs);
  for (hd::Engine* engine : {&compiled, &alone}) {
    const auto got = engine->run(inputs);
    for (std::size_t k = 0; k < want.size(); ++k)
      EXPECT_EQ(got[k].to_doubles(), want[k].to_doubles());
  }
}

// A4-20 as it runs: no map, an empty one and one of empty sets are the same plan.
TEST(ControlDeps, A4_20_EmptyMapsChangeNothing) {
  const std::string plain = plan_of(kThree, two_squares())["steps"].dump();
  for (const auto& map : {std::map<std::string, std::set<std::string>>{},
                          std::map<std::string, std::set<std::string>>{{"mm", {}}, {"mul", {}}}}) {
    hd::EngineOptions options;
    options.control_deps = {map.begin(), map.end()};
    EXPECT_EQ(plan_of(kThree, two_squares(), options)["steps"].dump(), plain);
  }
}

// A4-13 as it runs: only who waits for a value and does not read it leaves it to be overwritten.
TEST(Order, A4_13_WaitingIsNoUse) {
  const std::pair<const char*, bool> cases[] = {{"sin(%x) after(%t)", true},
                                                {"add(%t, %x) after(%t)", false},
                                                {"add(%t, %x)", false},
                                                {"neg(%t)", false}};
  const std::vector inputs{hd::Tensor::full(hd::f32, {8}, 0.5), hd::Tensor::full(hd::i64, {1}, 2),
                           hd::Tensor::full(hd::f32, {1}, 7)};
  for (const auto& [reader, in_place] : cases) {
    const std::string text =
        "graph @main(%x: f32[8], %i: i64[1], %v: f32[1]) {\n  %t = cumsum(%x) {axis = 0}\n"
        "  %u = index_put(%t, %v, %i)\n  %w = " +
        std::string(reader) + "\n  return %u, %w\n}\n";
    hd::Engine engine = hd::parse_ir(text, {.threads = 1, .check_plans = true});
    const auto got = engine.run(inputs);
    hd::Engine reference = hd::parse_ir(text, {.device = hd::Device::reference()});
    const auto want = reference.run(inputs);
    for (std::size_t k = 0; k < want.size(); ++k)
      EXPECT_THAT(got[k].to_doubles(),
                  ::testing::Pointwise(::testing::DoubleNear(1e-6), want[k].to_doubles()))
          << reader;
    EXPECT_EQ(engine.stats().in_place, in_place ? 1u : 0u) << reader;
    EXPECT_EQ(engine.stats().missed_in_place, in_place ? 0u : 1u) << reader;
  }
}
