// When the memory of custom ops' operands and results is taken and given back, and the order of steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/api/custom/ops.h"
#include "tests/support/json.h"

namespace hd = heddle;
using hd::test::Json;

namespace {

/// Ops that only have sizes: each result is u8[its bytes], and its bytes hold `tag`.
///
///   tm::make(Tensor[] deps, int bytes, int tag=0) -> Tensor
///   tm::two(Tensor[] deps, int first, int second) -> (Tensor, Tensor)
///   tm::touch(Tensor dep, Tensor(a!)? x, int first, int second) -> (Tensor, Tensor)   adds 1 to x
void register_ops() {
  static const bool done = [] {
    const auto bytes = [](const hd::ShapeCall& call, const char* name) {
      return hd::TensorType{hd::u8, {call.integer(name)}};
    };
    const auto fill = [](const hd::KernelCall& call) {
      for (const hd::KernelTensor& result : call.results)
        std::memset(result.data, 1, static_cast<std::size_t>(result.count()));
      for (const hd::KernelTensor& tensor : call.tensors)
        for (std::int64_t k = 0; k < tensor.count() && tensor.present; ++k)
          if (tensor.as<std::uint8_t>()[k] == 0xff) throw std::runtime_error("reads freed bytes");
    };
    hd::register_op(
        {.schema = "tm::make(Tensor[] deps, int bytes, int tag=0) -> Tensor",
         .shape = [=](const hd::ShapeCall& call) { return std::vector{bytes(call, "bytes")}; },
         .cpu = fill});
    const auto pair = [=](const hd::ShapeCall& call) {
      return std::vector{bytes(call, "first"), bytes(call, "second")};
    };
    hd::register_op({.schema = "tm::two(Tensor[] deps, int first, int second) -> (Tensor, Tensor)",
                     .shape = pair,
                     .cpu = fill});
    hd::register_op(
        {.schema =
             "tm::touch(Tensor dep, Tensor(a!)? x, int first, int second) -> (Tensor, Tensor)",
         .shape = pair,
         .cpu = [=](const hd::KernelCall& call) {
           fill(call);
           if (call.tensor(1).present) ++call.tensor(1).as<std::uint8_t>()[0];
         }});
    return true;
  }();
  EXPECT_TRUE(done);
}

/// Runs a graph over one input u8[1] on one thread, and keeps what happened.
class Traced {
 public:
  explicit Traced(const std::string& body, hd::StepOrder order = hd::StepOrder::Given)
      : engine_(engine(body, order)), inputs_{hd::Tensor::zeros(hd::u8, {1})} {
    document_ = Json::parse(engine_.plan_json(inputs_));
    events_ = engine_.run_trace(inputs_, &outputs_);
  }

  /// "+u +v two -u": memory taken, steps by the first node they compute, memory given back.
  std::string text() const {
    std::string result;
    for (const hd::RunEvent& event : events_) {
      if (!result.empty()) result += ' ';
      if (event.kind == hd::RunEvent::Kind::Launch)
        result += nodes().at(event.value);
      else
        result += (event.kind == hd::RunEvent::Kind::Alloc ? '+' : '-') + event.value;
    }
    return result;
  }
  /// Steps by the first node they compute.
  std::string order() const {
    std::string result;
    for (const auto& step : document_["steps"])
      result += (result.empty() ? "" : ",") + nodes().at(step["kernel"].get<std::string>());
    return result;
  }
  /// Live bytes after each step's allocations.
  std::vector<std::int64_t> live() const {
    std::vector<std::int64_t> bytes;
    std::int64_t sum = 0;
    for (const hd::RunEvent& event : events_) {
      if (event.kind == hd::RunEvent::Kind::Launch) bytes.push_back(sum);
      if (event.kind == hd::RunEvent::Kind::Alloc) sum += event.bytes;
      if (event.kind == hd::RunEvent::Kind::Free) sum -= event.bytes;
    }
    return bytes;
  }
  const Json& plan() const { return document_; }
  const std::vector<hd::RunEvent>& events() const { return events_; }
  const std::vector<hd::Tensor>& outputs() const { return outputs_; }
  hd::Engine& engine() { return engine_; }

 private:
  static hd::Engine engine(const std::string& body, hd::StepOrder order) {
    register_ops();
    hd::EngineOptions options;
    options.threads = 1;
    options.order = order;
    return hd::parse_ir("graph @main(%in: u8[1]) {\n" + body + "}\n", options);
  }
  std::map<std::string, std::string> nodes() const {
    std::map<std::string, std::string> names;
    for (const auto& kernel : document_["kernels"])
      names[kernel["name"]] = kernel["nodes"].empty() ? kernel["name"].get<std::string>()
                                                      : kernel["nodes"][0].get<std::string>();
    return names;
  }

  hd::Engine engine_;
  std::vector<hd::Tensor> inputs_;
  std::vector<hd::Tensor> outputs_;
  std::vector<hd::RunEvent> events_;
  Json document_;
};

/// A call of tm::make over `deps` that makes `bytes` bytes.
std::string make(const std::string& name, int bytes, const std::vector<std::string>& deps) {
  static int tag = 0;
  std::string text = "  %" + name + " = tm::make(";
  for (std::size_t k = 0; k < deps.size(); ++k) text += (k ? ", %" : "%") + deps[k];
  return text + ") {_lists = [" + std::to_string(deps.size()) +
         "], bytes = " + std::to_string(bytes) + ", tag = " + std::to_string(tag++) + "}\n";
}

}  // namespace

// A3-01: a donated argument that a step overwrites goes right after it, and each of the step's results, which need no
// container, after its own last reader. As text and as a callable.
TEST(CustomMemory, A3_01_ADonatedArgumentThatIsOverwrittenGoesAtOnce) {
  register_ops();
  hd::register_op({.schema = "tm::op1(Tensor(a!) x, int first, int second) -> (Tensor, Tensor)",
                   .shape =
                       [](const hd::ShapeCall& call) {
                         return std::vector{hd::TensorType{hd::u8, {call.integer("first")}},
                                            hd::TensorType{hd::u8, {call.integer("second")}}};
                       },
                   .cpu =
                       [](const hd::KernelCall& call) {
                         ++call.tensor(0).as<std::uint8_t>()[0];
                         for (const hd::KernelTensor& result : call.results)
                           std::memset(result.data, call.tensor(0).as<std::uint8_t>()[0],
                                       static_cast<std::size_t>(result.count()));
                       }});
  hd::EngineOptions options;
  options.threads = 1;
  options.order = hd::StepOrder::Given;
  hd::Engine text = hd::parse_ir(
      "graph @main(%x: donated u8[8]) {\n"
      "  %u, %v, %x1 = tm::op1(%x) {first = 10, second = 20}\n"
      "  %m = tm::make(%u) {_lists = [1], bytes = 5, tag = 101}\n"
      "  %n = tm::make(%v, %m) {_lists = [2], bytes = 5, tag = 102}\n"
      "  return %n\n}\n",
      options);
  options.donate = {"input0"};
  hd::Engine callable(
      [](const hd::Tensor& x) {
        const auto r = hd::call("tm::op1", {x, 10, 20});
        const hd::Tensor m = hd::call("tm::make", {std::vector{r[0]}, 5, 101})[0];
        return hd::call("tm::make", {std::vector{r[1], m}, 5, 102})[0];
      },
      options);
  for (hd::Engine* engine : {&text, &callable}) {
    SCOPED_TRACE(engine == &text ? "text" : "callable");
    const hd::Tensor x = hd::Tensor::zeros(hd::u8, {8});
    std::vector<std::string> events;
    for (const hd::RunEvent& event : engine->run_trace(std::vector{x})) {
      if (event.kind == hd::RunEvent::Kind::Launch) events.push_back(event.value);
      if (event.kind == hd::RunEvent::Kind::Free)
        events.push_back("free " + std::to_string(event.bytes));
    }
    EXPECT_THAT(events, testing::ElementsAre("tm::op1", "free 8", "tm::make", "free 10",
                                             "tm::make_1", "free 20", "free 5"));
    const auto given = engine->run_trace(std::vector{hd::Tensor::zeros(hd::u8, {8})});
    const auto freed = std::ranges::find_if(
        given, [](const auto& event) { return event.kind == hd::RunEvent::Kind::Free; });
    EXPECT_EQ(freed->value, engine == &text ? "x" : "input0");
    EXPECT_EQ(engine->stats().missed_in_place, 0u);
    EXPECT_EQ(engine->stats().in_place, 1u);
    const hd::Tensor other = hd::Tensor::zeros(hd::u8, {8});
    EXPECT_THAT(engine->run({other})[0].to_doubles(), testing::Each(1));
    EXPECT_EQ(other.to_doubles()[0], 1) << "it was written where it lies";
  }
}

// A3-01 of an intermediate value: what a step overwrites goes right after it.
TEST(CustomMemory, WhatIsOverwrittenIsFreedAtOnce) {
  const Traced run(make("x", 8, {"in"}) +
                   "  %u, %v, %x1 = tm::touch(%in, %x) {first = 10, second = 20}\n" +
                   make("m", 5, {"u"}) + make("n", 5, {"v", "m"}) + "  return %n\n");
  EXPECT_EQ(run.text(), "+x x +u +v u -x +m m -u n -v -m");
  EXPECT_EQ(run.plan()["missed_reinplace"]["count"], 0);
}

// A3-02: each result of a step with two is given back after its own last reader.
TEST(CustomMemory, ResultsAreFreedOneByOne) {
  const Traced run(make("x", 8, {"in"}) +
                   "  %u, %v = tm::two(%x) {_lists = [1], first = 10, second = 20}\n" +
                   make("m", 5, {"u"}) + make("n", 5, {"v", "m"}) + "  return %n\n");
  EXPECT_EQ(run.text(), "+x x +u +v u -x +m m -u n -v -m");
}

// A3-11
TEST(CustomMemory, LiveBytesOfTwoResults) {
  const Traced run("  %u, %v = tm::two(%in) {_lists = [1], first = 10, second = 20}\n" +
                   make("a", 5, {"u"}) + make("b", 5, {"v"}) + make("c", 1, {"b", "a"}) +
                   "  return %c\n");
  EXPECT_EQ(run.live(), (std::vector<std::int64_t>{30, 35, 30, 10}));
  EXPECT_EQ(run.plan()["lower_bound_bytes"], 35);
}

// A3-08: what a later op takes whole lives until then.
TEST(CustomMemory, ResultsTakenTogetherLiveTogether) {
  const Traced run("  %u, %v = tm::two(%in) {_lists = [1], first = 10, second = 20}\n" +
                   make("m", 5, {"u"}) + make("n", 5, {"m", "u", "v"}) + make("o", 1, {"n"}) +
                   "  return %o\n");
  EXPECT_EQ(run.text(), "+u +v u +m m +n n -u -v -m o -n");
}

// A3-09: a result that is an output is never given back.
TEST(CustomMemory, OutputsStay) {
  const Traced run("  %u, %v = tm::two(%in) {_lists = [1], first = 10, second = 20}\n" +
                   make("m", 5, {"v"}) + make("n", 5, {"m"}) + "  return %u, %n\n");
  EXPECT_EQ(run.text(), "+v u +m m -v n -m");
  EXPECT_THAT(run.outputs()[0].to_doubles(), testing::Each(1));
}

// A3-05: an absent written argument changes nothing.
TEST(CustomMemory, AbsentWrittenArgument) {
  const Traced run("  %u, %v = tm::touch(%in, none) {first = 10, second = 20}\n" +
                   make("m", 5, {"u"}) + make("n", 5, {"v", "m"}) + "  return %n\n");
  EXPECT_EQ(run.text(), "+u +v u +m m -u n -v -m");
}

// A3-13
TEST(CustomMemory, SmallResultsBeforeTheNextLargeOne) {
  const std::string graph = make("A", 100, {"in"}) + make("B", 100, {"in"}) + make("sa", 1, {"A"}) +
                            make("sb", 1, {"B"}) + make("J", 1, {"sa", "sb"}) +
                            make("out", 1, {"J"}) + "  return %out\n";
  const Traced given(graph);
  EXPECT_EQ(given.order(), "A,B,sa,sb,J,out");
  EXPECT_EQ(given.plan()["lower_bound_bytes"], 201);
  const Traced smallest(graph, hd::StepOrder::Smallest);
  EXPECT_EQ(smallest.order(), "A,sa,B,sb,J,out");
  EXPECT_EQ(smallest.plan()["lower_bound_bytes"], 102);
  EXPECT_EQ(smallest.plan()["order"]["method"], "lpmf");
  EXPECT_LT(smallest.plan()["peak_bytes"], given.plan()["peak_bytes"]);
}

// A3-14
TEST(CustomMemory, BranchesOneAfterAnother) {
  constexpr int kUnit = 64;  // what the arena rounds sizes to
  std::string graph = make("r", 8 * kUnit, {"in"});
  for (const char* k : {"1", "2", "3"}) graph += make(std::string("p") + k, 64 * kUnit, {"r"});
  for (const char* k : {"1", "2", "3"})
    graph += make(std::string("q") + k, 4 * kUnit, {std::string("p") + k});
  graph += make("s", 4 * kUnit, {"q1", "q2", "q3"}) + make("out", 1, {"s"}) + "  return %out\n";
  EXPECT_EQ(Traced(graph).plan()["peak_bytes"], 200 * kUnit);
  const Traced smallest(graph, hd::StepOrder::Smallest);
  EXPECT_EQ(smallest.order(), "r,p1,q1,p2,q2,p3,q3,s,out");
  EXPECT_EQ(smallest.plan()["peak_bytes"], 80 * kUnit);
}

// A3-15
TEST(CustomMemory, TiesKeepTheGivenOrder) {
  const Traced smallest(make("A", 10, {"in"}) + make("B", 10, {"A"}) + make("C", 10, {"B"}) +
                            make("out", 1, {"C"}) + "  return %out\n",
                        hd::StepOrder::Smallest);
  EXPECT_EQ(smallest.plan()["order"]["method"], "given");
  for (const auto& [method, peak] : smallest.plan()["order"]["peaks"].items())
    EXPECT_EQ(peak, 20) << method;
}

// Each method can be asked for, and order edges hold in all of them.
TEST(CustomMemory, EveryOrderKeepsWeakEdges) {
  register_ops();
  std::string graph = make("A", 100, {"in"}) + make("B", 100, {"in"});
  std::string after = make("sa", 1, {"A"});
  after.insert(after.size() - 1, " after(%B)");
  graph += after + make("sb", 1, {"B"}) + make("J", 1, {"sa", "sb"}) + "  return %J\n";
  for (const hd::StepOrder order : {hd::StepOrder::Given, hd::StepOrder::Lpmf, hd::StepOrder::Bfs,
                                    hd::StepOrder::Dfs, hd::StepOrder::Smallest}) {
    const std::string steps = Traced(graph, order).order();
    EXPECT_LT(steps.find('B'), steps.find("sa")) << steps;
  }
}

// The run trace is what the plan lists.
TEST(CustomMemory, TraceAndPlanAgree) {
  const Traced run(make("x", 8, {"in"}) + make("y", 16, {"x"}) + make("z", 8, {"y"}) +
                   "  return %z\n");
  const auto& planned = run.plan()["events"];
  ASSERT_EQ(planned.size(), run.events().size());
  const char* kinds[] = {"alloc", "launch", "free"};
  for (std::size_t k = 0; k < planned.size(); ++k) {
    const hd::RunEvent& event = run.events()[k];
    EXPECT_EQ(planned[k]["kind"], kinds[static_cast<int>(event.kind)]);
    EXPECT_EQ(planned[k]["step"], event.step);
    EXPECT_EQ(planned[k]["value"], event.value);
    EXPECT_EQ(planned[k]["bytes"], event.bytes);
  }
}

// A3-06
TEST(CustomMemory, ResultsThatShareWrittenBytesAreNotImplemented) {
  hd::register_op({.schema = "tm::second_(Tensor x, Tensor(a!) y) -> Tensor(a!)",
                   .shape = {},
                   .cpu = [](const hd::KernelCall&) {}});
  hd::Engine engine([](const hd::Tensor& x) { return hd::call("tm::second_", {x, x * 2.0f})[0]; });
  try {
    engine.run({hd::Tensor::zeros(hd::f32, {2})});
    FAIL();
  } catch (const hd::UnsupportedError& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("tm::second_: not implemented at "));
    EXPECT_THAT(error.what(), testing::HasSubstr("result 0 shares bytes with a written argument"));
  }
}

// A2-21: what cannot be put into value semantics is refused by name, with the reason, when it is called, traced and op by
// op alike; the engine goes on with what can.
TEST(CustomMemory, A2_21_OpsThatAreNotEligibleAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"tm::lists_(Tensor(a!) x) -> Tensor[]", "result 0 is a list of tensors"},
      {"tm::views_(Tensor(a!) x, Tensor(b) y) -> Tensor(b)",
       "result 0 shares bytes with an argument"},
      {"tm::other_(Tensor(b) y, Tensor(a!) x) -> (Tensor, Tensor(a!))",
       "result 1 shares bytes with a written argument"},
      {"tm::counts_(Tensor x, int(a!) k) -> Tensor", "argument k is written and is no tensor"}};
  for (const auto& [schema, reason] : cases) {
    SCOPED_TRACE(schema);
    const std::string text = schema;
    const std::string name = text.substr(0, text.find('('));
    hd::register_op(
        {.schema = schema,
         .shape = [](const hd::ShapeCall& call) { return std::vector(2, call.tensor(0)); },
         .cpu = [](const hd::KernelCall&) { ADD_FAILURE() << "it was called"; }});
    const bool takes_number = text.find(" k)") != std::string::npos;
    const auto call = [&](const hd::Tensor& x) {
      const hd::Tensor own = x * 2.0f;
      if (takes_number) return hd::call(name, {own, 1});
      return text.find(" y") != std::string::npos ? hd::call(name, {own, own + 1.0f})
                                                  : hd::call(name, {own});
    };
    bool refused = true;
    hd::Engine engine([&](const hd::Tensor& x) { return refused ? call(x)[0] : x + 1.0f; });
    const hd::Tensor x = hd::Tensor::full(hd::f32, {2}, 1);
    const auto check = [&, why = reason](auto&& action) {
      try {
        action();
        ADD_FAILURE() << "no error";
      } catch (const hd::UnsupportedError& error) {
        EXPECT_THAT(error.what(), testing::StartsWith(name + ": not implemented"));
        EXPECT_THAT(error.what(), testing::HasSubstr(why));
      }
    };
    check([&] { engine.run({x}); });
    check([&] { call(x); });
    refused = false;
    EXPECT_THAT(engine.run({x})[0].to_doubles(), testing::Each(2));
    EXPECT_EQ(engine.stats().compiles, 1u);
  }
}

// A3-07: a collective op that writes its argument, and a call of nested graphs, are taken as they are: no result of
// theirs is a view of an argument, and no argument of a nested graph is written.
TEST(CustomMemory, CollectivesAndCallsOfNestedGraphsAreAccepted) {
  hd::register_op({.schema = "tm::all_reduce_(Tensor(a!) x) -> Tensor(a!)",
                   .shape = {},
                   .cpu =
                       [](const hd::KernelCall& call) {
                         for (std::int64_t k = 0; k < call.tensor(0).count(); ++k)
                           hd::test::element(call.tensor(0), k) *= 2;
                       },
                   .pure = false,
                   .collective = true});
  hd::Engine engine = hd::parse_ir(
      "graph @main(%p: bool[], %x: f32[2]) {\n"
      "  %a = add(%x, 1.0: f32)\n"
      "  %r = tm::all_reduce_(%a)\n"
      "  %i = invoke(%r) {body = @twice}\n"
      "  %c = cond(%p, %i) {then = @twice, else = @same}\n"
      "  return %c\n}\n"
      "graph @twice(%t: f32[2]) {\n  %u = tm::all_reduce_(%t)\n  return %u\n}\n"
      "graph @same(%t: f32[2]) {\n  %n = neg(%t)\n  return %n\n}\n",
      {.threads = 1, .check_plans = true});
  const hd::Tensor x = hd::Tensor::of<float>({1, 2}, {2});
  const std::vector inputs{hd::Tensor::full(hd::boolean, {}, 1), x};
  EXPECT_THAT(engine.run(inputs)[0].to_doubles(), testing::ElementsAre(16, 24));
  EXPECT_THAT(x.to_doubles(), testing::ElementsAre(1, 2)) << "the caller's, which nobody may write";
  const Json plan = Json::parse(engine.plan_json(inputs));
  for (const auto& buffer : plan["buffers"])
    EXPECT_TRUE(buffer["alias_of"].is_null() || buffer["value"] == "r") << buffer.dump();
  const auto kind_of = [&](const char* node) -> std::string {
    for (const auto& kernel : plan["kernels"])
      if (kernel["nodes"] == Json::array({node})) return kernel["kind"];
    return "none";
  };
  EXPECT_EQ(kind_of("r"), "custom");
  EXPECT_EQ(kind_of("i"), "nested");
  EXPECT_EQ(kind_of("c"), "nested");
  EXPECT_EQ(plan["missed_reinplace"]["count"], 0) << "%a is dead when it is overwritten";
  int bodies = 0;
  for (const auto& step : plan["steps"])
    for (const auto& nested : step.value("nested", Json::array())) {
      if (nested.contains("same_as")) continue;
      ++bodies;
      EXPECT_EQ(nested["missed_reinplace"]["count"], nested["graph"] == "twice" ? 1 : 0)
          << "an argument of the body is copied";
    }
  EXPECT_EQ(bodies, 2);
}

// A result declared as a view of an argument owns no bytes.
TEST(CustomMemory, ViewResultsOwnNothing) {
  static const hd::RegisteredOp flat =
      hd::register_op({.schema = "tm::flat(Tensor(a) x) -> (Tensor(a), Tensor)",
                       .shape =
                           [](const hd::ShapeCall& call) {
                             const hd::TensorType x = call.tensor(0);
                             return std::vector{hd::TensorType{x.dtype, {x.sizes[0] * x.sizes[1]}},
                                                hd::TensorType{x.dtype, {x.sizes[0]}}};
                           },
                       .cpu =
                           [](const hd::KernelCall& call) {
                             ASSERT_EQ(call.results.size(), 1u);
                             for (std::int64_t k = 0; k < call.results[0].count(); ++k)
                               hd::test::element(call.results[0], k) = 7;
                           }});
  hd::EngineOptions options;
  options.threads = 1;
  hd::Engine engine(
      [](const hd::Tensor& x) {
        const auto results = flat(hd::softmax(x));
        return std::vector{results[0] + 1.0f, results[1] * 2.0f};
      },
      options);
  const std::vector inputs{hd::Tensor::zeros(hd::f32, {2, 2})};
  const auto outs = engine.run(inputs);
  EXPECT_THAT(outs[0].to_doubles(), testing::Each(1.5));
  EXPECT_THAT(outs[0].sizes(), testing::ElementsAre(4));
  EXPECT_THAT(outs[1].to_doubles(), testing::ElementsAre(14, 14));
  std::int64_t taken = 0;
  for (const hd::RunEvent& event : engine.run_trace(inputs))
    if (event.kind == hd::RunEvent::Kind::Alloc) taken += event.bytes;
  EXPECT_EQ(taken, 16 + 8);  // the softmax and the second result
}
