// Engines whose parts the tests of capture look at, on a device that records.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "heddle/cuda_text.h"
#include "heddle/custom_op.h"
#include "tests/cuda/recorded.h"
#include "tests/support/json.h"

namespace heddle::testing {

inline void host_on_cpu(const KernelCall& call) {
  for (std::int64_t k = 0; k < call.tensor(0).count(); ++k)
    call.results[0].as<float>()[k] = call.tensor(0).as<float>()[k] + 1;
}

/// cuda_ct::host(Tensor x) -> Tensor, x + 1, whose work may be in no graph: what stands for work of the host.
inline const RegisteredOp& host_work() {
  static const CudaText text(
      R"(extern "C" __global__ void host(const float* x, float* y, long long n) {
    for (long long k = threadIdx.x; k < n; k += blockDim.x) y[k] = x[k] + 1;
  })",
      "host");
  static const RegisteredOp op =
      register_op({.schema = "cuda_ct::host(Tensor x) -> Tensor",
                   .shape = like_first,
                   .cpu = host_on_cpu,
                   .cuda =
                       [](const KernelCall& call, void* stream) {
                         text.launch(call, stream, {.threads = 64},
                                     call.tensor(0).as<const float>(), call.results[0].as<float>(),
                                     static_cast<long long>(call.tensor(0).count()));
                       },
                   .capturable = false});
  return op;
}

inline void route_on_cpu(const KernelCall& call) {
  for (std::int64_t k = 0; k < call.tensor(0).count(); ++k) {
    const float x = call.tensor(0).as<float>()[k];
    call.results[0].as<float>()[k] = 2 * x;
    call.results[1].as<float>()[k] = 3 * x;
    call.tensor(1).as<float>()[k] += x;
  }
}

/// cuda_ct::route(Tensor x, Tensor(a!) counts) -> (Tensor, Tensor), 2x and 3x; counts += x.
inline void register_route() {
  static const CudaText text(
      R"(extern "C" __global__ void route(const float* x, float* counts, float* u, float* v, long long n) {
    for (long long k = threadIdx.x; k < n; k += blockDim.x) {
      const float value = x[k];
      u[k] = 2 * value;
      v[k] = 3 * value;
      counts[k] = counts[k] + value;
    }
  })",
      "route");
  static const RegisteredOp op = register_op(
      {.schema = "cuda_ct::route(Tensor x, Tensor(a!) counts) -> (Tensor, Tensor)",
       .shape = [](const ShapeCall& call) { return std::vector{call.tensor(0), call.tensor(0)}; },
       .cpu = route_on_cpu,
       .cuda =
           [](const KernelCall& call, void* stream) {
             text.launch(call, stream, {.threads = 64}, call.tensor(0).as<const float>(),
                         call.tensor(1).as<float>(), call.results[0].as<float>(),
                         call.results[1].as<float>(),
                         static_cast<long long>(call.tensor(0).count()));
           }});
}

/// A variable of the environment for as long as it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

/// A graph in an engine on the device, with a kernel for each node unless it is to fuse.
class Captured {
 public:
  explicit Captured(const std::string& text, EngineOptions options = on_cuda(1, true),
                    bool fuse = false) {
    host_work();
    register_route();
    options.fuse = fuse;
    options.order = StepOrder::Given;
    engine_.emplace(parse_ir(text, options));
    reference_.emplace(parse_ir(text, {.device = Device::reference()}));
    int start = 0;
    for (const ValueInfo& info : engine_->signature().inputs) {
      Sizes sizes;
      for (const SymInt& size : info.sizes) sizes.push_back(size.is_symbolic() ? 8 : size.value());
      host_inputs_.push_back(counted(info.dtype, sizes, start++));
      inputs_.push_back(host_inputs_.back().to(cuda_device()));
    }
    plan_ = test::Json::parse(engine_->plan_json(inputs_));
  }

  /// "[x1,y1] [c]!": parts by the nodes of their steps; those that are in no graph have a mark.
  std::string parts() const {
    std::string text;
    for (const test::Json& part : plan_["captures"]) {
      text += text.empty() ? "[" : " [";
      for (std::size_t k = 0; k < part["steps"].size(); ++k)
        text += (k == 0 ? "" : ",") + nodes_of(part["steps"][k]);
      text += part["captured"].get<bool>() ? "]" : "]!";
    }
    return text;
  }
  const test::Json& part(std::size_t k) const { return plan_["captures"][k]; }
  EngineStats stats() const { return engine_->stats(); }
  std::int64_t peak_bytes() const { return plan_["peak_bytes"]; }

  /// The record of a call of a kind that the engine has met twice, whose values are right.
  std::string steady() {
    std::vector<Tensor> want = reference_->run(host_inputs_);
    for (int repeat = 0; repeat < 2; ++repeat) engine_->run(inputs_);
    // States that the calls before have written are as at the beginning again.
    for (std::size_t k = 0; k < inputs_.size(); ++k)
      inputs_[k] = counted(host_inputs_[k].dtype(),
                           {host_inputs_[k].sizes().begin(), host_inputs_[k].sizes().end()},
                           static_cast<int>(k))
                       .to(cuda_device());
    std::vector<Tensor> got;
    const std::string record = recorded([&] { got = engine_->run(inputs_); });
    for (std::size_t k = 0; k < want.size(); ++k) expect_near(got[k], want[k], 1e-5);
    for (std::size_t k = 0; k < inputs_.size(); ++k)  // what was written back to them
      expect_near(inputs_[k], host_inputs_[k], 1e-5);
    return record;
  }

 private:
  std::string nodes_of(std::size_t step) const {
    const std::string kernel = plan_["steps"][step]["kernel"];
    for (const test::Json& entry : plan_["kernels"]) {
      if (entry["name"] != kernel) continue;
      std::string text;
      for (const std::string node : entry["nodes"]) text += (text.empty() ? "" : "+") + node;
      return text;
    }
    return "?";
  }

  std::optional<Engine> engine_, reference_;
  std::vector<Tensor> host_inputs_, inputs_;
  test::Json plan_;
};

class CudaCapture : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  }
};

}  // namespace heddle::testing
