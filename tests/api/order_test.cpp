// Order edges, as the steps that run show them.
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdexcept>

#include "heddle/heddle.h"
#include "tests/support/json.h"

namespace hd = heddle;
using hd::test::Json;

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr hd::StepOrder kOrders[] = {hd::StepOrder::Given, hd::StepOrder::Lpmf, hd::StepOrder::Bfs,
                                     hd::StepOrder::Dfs, hd::StepOrder::Smallest};

/// The plan of `text` for inputs such as these, and how often it was run.
Json plan_of(const std::string& text, const std::vector<hd::Tensor>& inputs,
             hd::EngineOptions options = {}) {
  options.check_plans = true;
  hd::Engine engine = hd::parse_ir(text, std::move(options));
  return Json::parse(engine.plan_json(inputs));
}

/// The nodes of each step in order, as "add,mul | mm".
std::string steps_of(const Json& plan) {
  std::string text;
  for (const auto& step : plan["steps"]) {
    for (const auto& kernel : plan["kernels"]) {
      if (kernel["name"] != step["kernel"]) continue;
      std::string nodes;
      for (const auto& node : kernel["nodes"])
        nodes += (nodes.empty() ? "" : ",") + node.get<std::string>();
      text += (text.empty() ? "" : " | ") + nodes;
    }
  }
  return text;
}

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

/// "m after c1" for each edge that does not stand for data, steps by the first node they compute.
std::vector<std::string> weak_edges_of(const Json& plan) {
  const auto first_node = [&](const Json& step) {
    for (const auto& kernel : plan["kernels"])
      if (kernel["name"] == step["kernel"]) return kernel["nodes"][0].get<std::string>();
    return std::string();
  };
  std::vector<std::string> edges;
  for (const auto& step : plan["steps"])
    for (const auto& edge : step["edges"])
      if (edge["kind"] == "weak")
        edges.push_back(first_node(step) + " after " +
                        first_node(plan["steps"][edge["from"].get<std::size_t>()]));
  std::ranges::sort(edges);
  return edges;
}

constexpr const char* kThree = R"(graph @main(%a: f32[64, 64], %b: f32[64, 64]) {
  %add = add(%a, 1.0: f32)
  %mm = matmul(%b, %b)
  %mul = mul(%add, 2.0: f32)
  return %mm, %mul
}
)";

std::vector<hd::Tensor> two_squares() {
  return {hd::Tensor::full(hd::f32, {64, 64}, 2), hd::Tensor::full(hd::f32, {64, 64}, 0.5)};
}

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
  constexpr const char* kChain = R"(graph @main(%x: f32[4, 4], %w: f32[4, 4]) {
  %mm0 = matmul(%x, %w)
  %mm1 = matmul(%mm0, %w)
  %mm2 = matmul(%mm1, %w)
  %mm3 = matmul(%mm2, %w) after(%mm0)
  return %mm3
}
)";
  for (const hd::StepOrder order : kOrders) {
    const auto x = hd::Tensor::full(hd::f32, {4, 4}, 1);
    const Json plan = plan_of(kChain, {x, x}, {.threads = 1, .order = order});
    EXPECT_EQ(events_of(plan), "+mm0 mm0 +mm1 mm1 -mm0 +mm2 mm2 -mm1 mm3 -mm2");
    EXPECT_EQ(plan["peak_bytes"], 128);
    EXPECT_EQ(plan["lower_bound_bytes"], 128);
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

// A4-16: what waits is called with the strides that it is called with without order, and its result is what the graph said.
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
  const Json apart = plan("  %c = cumsum(%p) {axis = 0} after(%a)\n");
  EXPECT_EQ(steps_of(apart), "p,a | c");
  EXPECT_EQ(apart["steps"][1]["edges"], Json::parse(R"([{"from":0,"kind":"strong"}])"));
  // Nothing of the kernel of %a is read.
  const Json unread = plan("  %c = sin(%y) after(%a)\n");
  EXPECT_EQ(steps_of(unread), "p,a | c");
  EXPECT_EQ(unread["steps"][1]["edges"], Json::parse(R"([{"from":0,"kind":"weak"}])"));
}

// One of two readers of a kernel's value that is read anyway waits for it, beside one that only has to run later: that one
// is not drawn into the kernel by the other.
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

/// to::start(Tensor x) -> Tensor and to::wait(Tensor x) -> Tensor, which copy.
void register_collectives() {
  static const bool done = [] {
    const auto copy = [](const hd::KernelCall& call) {
      std::memcpy(call.results[0].data, call.tensor(0).data,
                  static_cast<std::size_t>(call.tensor(0).count()) * sizeof(float));
    };
    const auto same = [](const hd::ShapeCall& call) { return std::vector{call.tensor(0)}; };
    for (const char* schema : {"to::start(Tensor x) -> Tensor", "to::wait(Tensor x) -> Tensor"})
      hd::register_op({.schema = schema, .shape = same, .cpu = copy, .collective = true});
    return true;
  }();
  EXPECT_TRUE(done);
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

// S4-21: collectives that do not need each other begin in the order of the graph all the same, and never
// together, even where another order takes less memory.
TEST(Order, CollectivesBeginInTheOrderOfTheGraph) {
  register_collectives();
  std::string text = "graph @main(%x: f32[64], %y: f32[4096]) {\n";
  for (const char* k : {"a", "b", "c"}) {
    const std::string name(k);
    text += "  %n" + name + " = cumsum(%" + (name == "b" ? "y" : "x") + ") {axis = 0}\n";
    text += "  %s" + name + " = to::start(%n" + name + ")\n";
  }
  for (const char* k : {"c", "b", "a"}) {
    const std::string name(k);
    text += "  %w" + name + " = to::wait(%s" + name + ")\n  %r" + name + " = reduce_sum(%w" + name +
            ") {axes = [0]}\n";
  }
  text += "  return %ra, %rb, %rc\n}\n";
  const std::vector inputs{hd::Tensor::full(hd::f32, {64}, 1),
                           hd::Tensor::full(hd::f32, {4096}, 1)};
  for (const hd::StepOrder order : kOrders) {
    for (const int threads : {1, 4}) {
      const Json plan = plan_of(text, inputs, {.threads = threads, .order = order});
      const std::string steps = steps_of(plan);
      EXPECT_LT(steps.find("sa"), steps.find("sb")) << steps;
      EXPECT_LT(steps.find("sb"), steps.find("sc")) << steps;
    }
  }
}

// A4-21 as it runs: with the pass the product runs between start and wait, in every order of steps.
TEST(Order, CollectivesAreHidden) {
  register_collectives();
  constexpr const char* kText = R"(graph @main(%x: f32[8], %a: f32[64, 64]) {
  %c = to::start(%x)
  %w = to::wait(%c)
  %m = matmul(%a, %a)
  return %w, %m
}
)";
  const std::vector inputs{hd::Tensor::full(hd::f32, {8}, 3),
                           hd::Tensor::full(hd::f32, {64, 64}, 1)};
  EXPECT_EQ(steps_of(plan_of(kText, inputs)), "c | w | m");
  for (const hd::StepOrder order : kOrders) {
    hd::EngineOptions options;
    options.order = order;
    options.passes = {{.name = "overlap-collectives"}};
    EXPECT_EQ(steps_of(plan_of(kText, inputs, options)), "c | m | w");
    EXPECT_EQ(hd::parse_ir(kText, options).run(inputs)[0].to_doubles(), std::vector<double>(8, 3));
  }
  hd::EngineOptions unknown;
  unknown.passes = {{.name = "overlap-collectivs"}};
  EXPECT_THROW(hd::parse_ir(kText, unknown).run(inputs), hd::OptionError);
}

// A4-22 as it runs: two collectives are one, the product between its start and its wait, and the values those of two.
TEST(Order, A4_22_BucketsAreHidden) {
  register_collectives();
  constexpr const char* kText = R"(graph @main(%x: f32[2, 4], %y: f32[4], %a: f32[64, 64]) {
  %c1 = to::start(%x) @{bucket = "B"}
  %w1 = to::wait(%c1)
  %c2 = to::start(%y) @{bucket = "B"}
  %w2 = to::wait(%c2)
  %m = matmul(%a, %a)
  %n = neg(%m)
  return %w1, %w2, %n
}
)";
  const std::vector inputs{hd::Tensor::full(hd::f32, {2, 4}, 3), hd::Tensor::full(hd::f32, {4}, 5),
                           hd::Tensor::full(hd::f32, {64, 64}, 1)};
  for (const hd::StepOrder order : kOrders) {
    hd::EngineOptions options;
    options.order = order;
    options.passes = {{.name = "bucket-collectives"}, {.name = "overlap-collectives"}};
    const Json plan = plan_of(kText, inputs, options);
    const std::string steps = steps_of(plan);
    EXPECT_THAT(steps, HasSubstr("B_start | m"));
    EXPECT_LT(steps.find("| m"), steps.find("B_wait")) << steps;
    for (const char* gone : {"c1", "c2"}) EXPECT_EQ(steps.find(gone), std::string::npos) << steps;
    std::size_t weak = 0;
    for (const auto& step : plan["steps"])
      for (const auto& edge : step["edges"]) weak += edge["kind"] == "weak" ? 1 : 0;
    EXPECT_EQ(weak, 2u) << "the product after the start, the wait after the product";
    const auto outputs = hd::parse_ir(kText, options).run(inputs);
    EXPECT_EQ(outputs[0].to_doubles(), std::vector<double>(8, 3));
    EXPECT_EQ(outputs[1].to_doubles(), std::vector<double>(4, 5));
    EXPECT_EQ(outputs[2].to_doubles()[0], -64);
  }
}

// A4-21 as it runs: an exposed collective has no edge but the one that keeps collectives in the graph's order.
TEST(Order, A4_21_ExposedCollectivesHaveNoEdges) {
  register_collectives();
  constexpr const char* kText = R"(graph @main(%x: f32[8], %y: f32[8], %a: f32[64, 64]) {
  %c1 = to::start(%x)
  %w1 = to::wait(%c1)
  %c2 = to::start(%y)
  %w2 = to::wait(%c2)
  %m = matmul(%a, %a)
  return %w1, %w2, %m
}
)";
  const std::vector inputs{hd::Tensor::full(hd::f32, {8}, 3), hd::Tensor::full(hd::f32, {8}, 5),
                           hd::Tensor::full(hd::f32, {64, 64}, 1)};
  EXPECT_THAT(weak_edges_of(plan_of(kText, inputs)), ElementsAre("c2 after c1"));
  for (const hd::StepOrder order : kOrders) {
    hd::EngineOptions options;
    options.order = order;
    options.passes = {{.name = "overlap-collectives"}};
    const Json plan = plan_of(kText, inputs, options);
    EXPECT_THAT(weak_edges_of(plan), ElementsAre("c2 after c1", "m after c1", "w1 after m"));
    const auto outputs = hd::parse_ir(kText, options).run(inputs);
    EXPECT_EQ(outputs[1].to_doubles(), std::vector<double>(8, 5));
  }
}

// A4-21 in bodies, and behind bodies.
TEST(Order, A4_21_CollectivesInAndAroundBodiesAreHidden) {
  register_collectives();
  constexpr const char* kText = R"(graph @main(%x: f32[8], %a: f32[64, 64]) {
  %c = to::start(%x)
  %w = to::wait(%c)
  %y = invoke(%a) {body = @product} : f32[64, 64]
  %z, %v = invoke(%w, %y) {body = @both} : f32[8], f32[64, 64]
  return %z, %v
}
graph @product(%a: f32[64, 64]) {
  %m = matmul(%a, %a)
  return %m
}
graph @both(%x: f32[8], %a: f32[64, 64]) {
  %c = to::start(%x)
  %w = to::wait(%c)
  %m = matmul(%a, %a)
  return %w, %m
}
)";
  const std::string text = kText;
  const std::vector inputs{hd::Tensor::full(hd::f32, {8}, 3),
                           hd::Tensor::full(hd::f32, {64, 64}, 1)};
  for (const hd::StepOrder order : kOrders) {
    hd::EngineOptions options;
    options.order = order;
    options.passes = {{.name = "overlap-collectives"}};
    const Json plan = plan_of(text, inputs, options);
    EXPECT_EQ(steps_of(plan), "c | y | w | z");
    EXPECT_EQ(steps_of(plan["steps"][3]["nested"][0]), "c | m | w");
    EXPECT_EQ(hd::parse_ir(text, options).run(inputs)[0].to_doubles(), std::vector<double>(8, 3));
  }
}

// A4-22: edges move with what a later pass joins to a bucket; a map for the graph after that is refused where it names
// a node that is gone.
TEST(Order, A4_22_NodesThatABucketTookAreGone) {
  register_collectives();
  constexpr const char* kText = R"(graph @main(%x: f32[4], %y: f32[4], %a: f32[64, 64]) {
  %c1 = to::start(%x) @{bucket = "B"}
  %w1 = to::wait(%c1)
  %c2 = to::start(%y) @{bucket = "B"}
  %w2 = to::wait(%c2)
  %m = matmul(%a, %a)
  return %w1, %w2, %m
}
)";
  const std::vector inputs{hd::Tensor::full(hd::f32, {4}, 3), hd::Tensor::full(hd::f32, {4}, 5),
                           hd::Tensor::full(hd::f32, {64, 64}, 1)};
  const auto outcome = [&](hd::GraphPass::Point point, const char* node) -> std::string {
    hd::EngineOptions options;
    options.passes = {{.name = "bucket-collectives", .point = point}};
    options.control_deps = {{"m", {node}}};
    try {
      return weak_edges_of(plan_of(kText, inputs, options)).at(0);
    } catch (const hd::ArgumentError& refused) {
      return refused.what();
    }
  };
  using Point = hd::GraphPass::Point;
  EXPECT_EQ(outcome(Point::BeforeReinplace, "c1"), "m after B_start");
  EXPECT_EQ(outcome(Point::First, "B_start"), "m after B_start");
  EXPECT_THAT(outcome(Point::First, "c1"),
              HasSubstr("control_deps: name of a node: expected a node of the graph"));
  EXPECT_THAT(outcome(Point::First, "c1"), HasSubstr("got c1"));
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
