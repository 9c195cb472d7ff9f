// Collectives of plans: their order, and the products that hide them.
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/api/order_support.h"

namespace hd = heddle;
using hd::test::Json;
using namespace hd::order_test;

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

}  // namespace

// S4-21: collectives that do not need each other begin in the order of the graph all the same, and never
// together, even where another order takes less memory.
TEST(Collectives, CollectivesBeginInTheOrderOfTheGraph) {
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
TEST(Collectives, CollectivesAreHidden) {
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
TEST(Collectives, A4_22_BucketsAreHidden) {
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
TEST(Collectives, A4_21_ExposedCollectivesHaveNoEdges) {
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
TEST(Collectives, A4_21_CollectivesInAndAroundBodiesAreHidden) {
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
TEST(Collectives, A4_22_NodesThatABucketTookAreGone) {
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
