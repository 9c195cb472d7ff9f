// What the tests of regions, branches and loops share.
#pragma once

#include <algorithm>
#include <gtest/gtest.h>
#include <span>
#include <string>
#include <vector>

#include "heddle/heddle.h"
#include "ir/graph.h"
#include "ir/text.h"

namespace heddle::testing {

inline Tensor numbers(std::initializer_list<float> values) {
  return Tensor::of<float>(values, {static_cast<std::int64_t>(values.size())});
}
inline Tensor flag(bool value) { return Tensor::scalar_int(boolean, value ? 1 : 0); }

/// A tensor of small numbers that differ.
inline Tensor ramp(Sizes sizes, double first = 0) {
  Tensor tensor = Tensor::empty(f32, std::move(sizes));
  for (std::int64_t k = 0; k < tensor.count(); ++k)
    tensor.data_as<float>()[k] = static_cast<float>(first + 0.25 * static_cast<double>(k % 17));
  return tensor;
}

/// Runs `f` compiled, with one thread and several, and by the evaluator; all must agree.
template <typename F>
std::vector<Tensor> everywhere(F f, const std::vector<Tensor>& inputs) {
  Engine reference(f, {.device = Device::reference()});
  const std::vector<Tensor> wanted = reference.run(inputs);
  std::vector<Tensor> got;
  for (const int threads : {1, 3}) {
    Engine engine(f, {.threads = threads});
    for (int repeat = 0; repeat < 2; ++repeat) {
      got = engine.run(inputs);
      EXPECT_EQ(got.size(), wanted.size());
      for (std::size_t k = 0; k < got.size() && k < wanted.size(); ++k) {
        EXPECT_TRUE(std::ranges::equal(got[k].sizes(), wanted[k].sizes())) << "output " << k;
        const std::vector<double> a = got[k].to_doubles();
        const std::vector<double> b = wanted[k].to_doubles();
        for (std::size_t i = 0; i < a.size() && i < b.size(); ++i)
          EXPECT_NEAR(a[i], b[i], 1e-5 * (1 + std::abs(b[i]))) << "output " << k << ", " << i;
      }
    }
    EXPECT_EQ(engine.stats().evaluator_steps, 0u);
  }
  return got;
}

/// The graph of `f` before the passes.
template <typename F>
ir::Graph traced(F f, const std::vector<Tensor>& inputs) {
  Engine engine(f);
  return ir::parse(engine.graph_text(inputs, false));
}

inline std::vector<ir::NodePtr> nodes_of(const ir::Graph& graph, std::string_view op) {
  std::vector<ir::NodePtr> found;
  for (const ir::NodePtr& node : graph.nodes())
    if (node->op_name() == op) found.push_back(node);
  return found;
}

/// The ops that compute the outputs of `graph`.
inline std::vector<std::string> output_ops(const ir::Graph& graph) {
  std::vector<std::string> ops;
  for (const ir::Value& output : graph.outputs()) ops.emplace_back(output.node->op_name());
  return ops;
}

/// What the error that `action` ends with says, but for the place.
template <typename E, typename F>
std::string unplaced_text_of(F&& action) {
  try {
    action();
  } catch (const E& error) {
    return Error::format({error.parts().what, "", error.parts().expected, error.parts().got});
  } catch (const std::exception& error) {
    return std::string("another error: ") + error.what();
  }
  return "no error";
}

}  // namespace heddle::testing
