// A graph in IR text through the engine: what was compiled, what is launched, and that the values are right.
#pragma once

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "heddle/heddle.h"
#include "tests/support/json.h"

namespace heddle::testing {

/// Inputs are small numbers that differ; symbolic sizes are 8.
class CaseGraph {
 public:
  using Json = test::Json;

  explicit CaseGraph(const std::string& text, EngineOptions options = {})
      : engine_(parse_ir(text, disk_free(std::move(options)))),
        reference_(parse_ir(text, {.device = Device::reference()})) {
    for (std::size_t k = 0; k < engine_.signature().inputs.size(); ++k)
      inputs_.push_back(input(engine_.signature().inputs[k], static_cast<int>(k)));
  }

  Engine& engine() { return engine_; }
  Json plan() { return Json::parse(engine_.plan_json(inputs_)); }
  /// The graph after the passes.
  std::string optimised() { return engine_.graph_text(inputs_, true); }

  /// Runs step by step, checks values and written inputs against the evaluator. @return what was launched, by its
  /// region and nodes: "s | region_0: m a | o".
  std::string launched() {
    std::vector<Tensor> want_inputs;
    for (std::size_t k = 0; k < inputs_.size(); ++k)
      want_inputs.push_back(input(engine_.signature().inputs[k], static_cast<int>(k)));
    const std::vector<Tensor> want = reference_.run(want_inputs);
    outputs_.clear();
    events_ = engine_.run_trace(inputs_, &outputs_);
    expect_equal(outputs_, want);
    expect_equal(inputs_, want_inputs);
    EXPECT_EQ(engine_.stats().evaluator_steps, 0u);
    const Json plan = this->plan();
    std::string text;
    for (const RunEvent& event : events_) {
      if (event.kind != RunEvent::Kind::Launch) continue;
      for (const Json& kernel : plan["kernels"]) {
        if (kernel["name"] != event.value) continue;
        text += text.empty() ? "" : " | ";
        const std::string region = kernel["unit"];
        if (!region.empty()) text += region + ": ";
        for (std::size_t n = 0; n < kernel["nodes"].size(); ++n)
          text += (n == 0 ? "" : " ") + kernel["nodes"][n].get<std::string>();
      }
    }
    return text;
  }
  /// Of the last launched().
  const std::vector<RunEvent>& events() const { return events_; }
  const std::vector<Tensor>& outputs() const { return outputs_; }
  const std::vector<Tensor>& inputs() const { return inputs_; }

 private:
  static EngineOptions disk_free(EngineOptions options) {
    options.disk_cache = false;
    options.threads = 1;
    return options;
  }
  static Tensor input(const ValueInfo& info, int start) {
    Sizes sizes;
    for (const SymInt& size : info.sizes) sizes.push_back(size.is_symbolic() ? 8 : size.value());
    Tensor tensor = Tensor::full(info.dtype, sizes, 0);
    for (std::int64_t k = 0; k < tensor.count(); ++k) {
      const std::int64_t number = (k * 5 + start * 3) % 7;
      if (info.dtype == f32)
        tensor.data_as<float>()[k] = static_cast<float>(number) / 4 - 0.75f;
      else if (info.dtype == f64)
        tensor.data_as<double>()[k] = static_cast<double>(number) / 4 - 0.75;
      else if (info.dtype == i32)
        tensor.data_as<std::int32_t>()[k] = static_cast<std::int32_t>(number % 3);
      else if (info.dtype == i64)
        tensor.data_as<std::int64_t>()[k] = number % 3;
    }
    return tensor;
  }
  static void expect_equal(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t k = 0; k < want.size(); ++k) {
      const std::vector<double> a = got[k].to_doubles();
      const std::vector<double> b = want[k].to_doubles();
      ASSERT_EQ(a.size(), b.size());
      for (std::size_t i = 0; i < a.size(); ++i)
        EXPECT_NEAR(a[i], b[i], 1e-5) << "tensor " << k << ", element " << i;
    }
  }

  Engine engine_, reference_;
  std::vector<Tensor> inputs_, outputs_;
  std::vector<RunEvent> events_;
};

}  // namespace heddle::testing
