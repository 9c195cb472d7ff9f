// Order edges, as the steps that run show them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "heddle/heddle.h"

namespace hd = heddle;

namespace {

using ::testing::HasSubstr;

constexpr hd::StepOrder kOrders[] = {hd::StepOrder::Given, hd::StepOrder::Lpmf, hd::StepOrder::Bfs,
                                     hd::StepOrder::Dfs, hd::StepOrder::Smallest};

/// The plan of `text` for inputs such as these, and how often it was run.
nlohmann::json plan_of(const std::string& text, const std::vector<hd::Tensor>& inputs,
                       hd::EngineOptions options = {}) {
  options.check_plans = true;
  hd::Engine engine = hd::parse_ir(text, std::move(options));
  return nlohmann::json::parse(engine.plan_json(inputs));
}

/// The nodes of each step in order, as "add,mul | mm".
std::string steps_of(const nlohmann::json& plan) {
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
    const nlohmann::json plan = plan_of(kThree, two_squares(), options);
    EXPECT_EQ(steps_of(plan), "add | mm | mul");
    EXPECT_EQ(plan["steps"][1]["edges"], nlohmann::json::parse(R"([{"from":0,"kind":"weak"}])"));
    EXPECT_EQ(plan["steps"][2]["edges"],
              nlohmann::json::parse(R"([{"from":0,"kind":"strong"},{"from":1,"kind":"weak"}])"));
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
