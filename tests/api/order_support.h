// What tests of order read from plans.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "heddle/heddle.h"
#include "tests/support/json.h"

namespace heddle::order_test {

inline constexpr StepOrder kOrders[] = {StepOrder::Given, StepOrder::Lpmf, StepOrder::Bfs,
                                        StepOrder::Dfs, StepOrder::Smallest};

/// The plan of `text` for inputs such as these, and how often it was run.
inline test::Json plan_of(const std::string& text, const std::vector<Tensor>& inputs,
                          EngineOptions options = {}) {
  options.check_plans = true;
  Engine engine = parse_ir(text, std::move(options));
  return test::Json::parse(engine.plan_json(inputs));
}

/// The nodes of each step in order, as "add,mul | mm".
inline std::string steps_of(const test::Json& plan) {
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

/// "m after c1" for each edge that does not stand for data, steps by the first node they compute.
inline std::vector<std::string> weak_edges_of(const test::Json& plan) {
  const auto first_node = [&](const test::Json& step) {
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

inline std::vector<Tensor> two_squares() {
  return {Tensor::full(f32, {64, 64}, 2), Tensor::full(f32, {64, 64}, 0.5)};
}

}  // namespace heddle::order_test
