// Heddle as an embedder calls it: onnx::load, then run_into on tensors that wrap the caller's memory.
//
// Options: cache_dir (compiled kernels are kept there; none by default), pass (a graph pass that is off by default), order (smallest
// or given: that order of steps, and what its plan says of memory among the facts), append (INPUT,…: caches to which calls append
// where they lie; each call goes on from the same length, where the call before it was).

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "bench/peers/protocol.h"

#include "heddle/heddle.h"
#include "heddle/onnx.h"

namespace hd = heddle;
using hd::bench::peers::Arguments;
using hd::bench::peers::Array;

namespace {

const std::map<std::string, hd::DType>& dtypes() {
  static const std::map<std::string, hd::DType> kDTypes{
      {"float32", hd::f32}, {"float64", hd::f64}, {"float16", hd::f16}, {"int64", hd::i64},
      {"int32", hd::i32},   {"int8", hd::i8},     {"uint8", hd::u8},    {"bool", hd::boolean}};
  return kDTypes;
}

std::string dtype_name(hd::DType dtype) {
  for (const auto& [name, value] : dtypes())
    if (value == dtype) return name;
  throw std::runtime_error("an output has a dtype that the comparison does not write");
}

class HeddlePeer final : public hd::bench::peers::Peer {
 public:
  void load(const Arguments& arguments) override {
    const std::string cache = arguments.option("cache_dir", "");
    path_ = arguments.model;
    options_ = {.threads = arguments.threads, .disk_cache = !cache.empty(), .cache_dir = cache};
    const std::string pass = arguments.option("pass", "");
    if (!pass.empty()) options_.passes = {{.name = pass}};
    std::istringstream appends(arguments.option("append", ""));
    for (std::string name; std::getline(appends, name, ',');) options_.append.insert(name);
    order_ = arguments.option("order", "");
    if (order_ == "given") options_.order = hd::StepOrder::Given;
    engine_.emplace(load_with({}));
  }

  void first_call(std::vector<Array>& inputs) override {
    try {
      bind(inputs);
      outputs_ = engine_->run(inputs_);
    } catch (const hd::onnx::NeedsValueError& error) {
      // An input that decides shapes becomes a constant, as the error tells an embedder to do.
      for (Array& input : inputs)
        if (input.name == error.input()) engine_.emplace(load_with({{input.name, wrapped(input)}}));
      bind(inputs);
      outputs_ = engine_->run(inputs_);
    }
    cut_back();
  }

  void call() override {
    for (const std::size_t output : appended_) outputs_[output] = {};
    engine_->run_into(inputs_, outputs_);
  }

  std::function<void()> caller() override {
    return
        [this, outputs = engine_->run(inputs_)]() mutable { engine_->run_into(inputs_, outputs); };
  }

  std::vector<Array> outputs() override {
    const hd::Signature signature = engine_->signature();
    std::vector<Array> arrays;
    for (std::size_t k = 0; k < outputs_.size(); ++k) {
      const hd::Tensor& output = outputs_[k];
      const hd::Tensor dense = output.is_row_major() ? output : output.clone();
      arrays.push_back(
          hd::bench::peers::copied(signature.outputs[k].name, dtype_name(output.dtype()),
                                   {output.sizes().begin(), output.sizes().end()}, dense.data()));
    }
    return arrays;
  }

  nlohmann::json facts() override {
    const hd::EngineStats stats = engine_->stats();
    nlohmann::json facts{{"version", "this tree"},
                         {"compile_ms", stats.compile_ms},
                         {"kernels", stats.kernels},
                         {"evaluator_steps", stats.evaluator_steps},
                         {"arena_bytes", stats.arena_peak_bytes}};
    if (!order_.empty()) {
      const auto plan = nlohmann::json::parse(engine_->plan_json(inputs_));
      for (const char* key : {"peak_bytes", "lower_bound_bytes"}) facts["plan"][key] = plan.at(key);
    }
    return facts;
  }

 private:
  hd::Engine load_with(const hd::onnx::Constants& constants) {
    return hd::onnx::load(path_, options_, constants);
  }

  static hd::Tensor wrapped(Array& input) {
    return hd::Tensor::wrap(input.data.get(), dtypes().at(input.dtype), input.sizes);
  }

  void bind(std::vector<Array>& inputs) {
    inputs_.clear();
    for (const hd::ValueInfo& info : engine_->signature().inputs) {
      bool found = false;
      for (Array& input : inputs) {
        if (input.name != info.name) continue;
        inputs_.push_back(wrapped(input));
        found = true;
      }
      if (!found) throw std::runtime_error("the case has no input " + info.name);
    }
  }

  /// Caches where the engine put them, as long as they were.
  void cut_back() {
    const hd::Signature signature = engine_->signature();
    for (std::size_t output = 0; output < outputs_.size(); ++output)
      for (std::size_t k = 0; k < inputs_.size(); ++k) {
        if (signature.inputs[k].name != signature.outputs[output].lies_in) continue;
        appended_.push_back(output);
        const auto before = inputs_[k].sizes();
        const auto axis = std::ranges::mismatch(before, outputs_[output].sizes()).in1;
        inputs_[k] = outputs_[output].narrow(axis - before.begin(), 0, *axis);
      }
  }

  std::string path_;
  std::vector<std::size_t> appended_;  ///< outputs
  std::string order_;
  hd::EngineOptions options_;
  std::optional<hd::Engine> engine_;
  std::vector<hd::Tensor> inputs_;
  std::vector<hd::Tensor> outputs_;
};

}  // namespace

int main(int argc, char** argv) {
  HeddlePeer peer;
  return hd::bench::peers::serve(argc, argv, peer);
}
