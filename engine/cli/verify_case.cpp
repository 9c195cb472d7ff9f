#include "engine/cli/verify_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "heddle/error.h"

namespace heddle::cli {

namespace {

namespace fs = std::filesystem;
using Result = CaseOutcome::Result;

/// input_0.pb, input_1.pb, … of a data set.
/// @param infos  what the model says of them: those of strings become codes
std::vector<Tensor> read_set(const fs::path& folder, const std::string& prefix,
                             const std::vector<ValueInfo>& infos, onnx::StringCodes& codes) {
  std::vector<Tensor> tensors;
  for (std::size_t k = 0;; ++k) {
    const fs::path file = folder / fmt::format("{}_{}.pb", prefix, k);
    if (!fs::exists(file)) return tensors;
    const bool is_text = k < infos.size() && infos[k].is_text;
    tensors.push_back(is_text ? onnx::load_tensor(file.string(), codes)
                              : onnx::load_tensor(file.string()));
  }
}

/// Data sets of older releases of ONNX hold bf16 as u16 of the same bits.
Tensor as_wanted(const Tensor& tensor, DType wanted) {
  if (tensor.dtype() != u16 || wanted != bf16) return tensor;
  Tensor same = Tensor::empty(bf16, Sizes(tensor.sizes().begin(), tensor.sizes().end()));
  std::memcpy(same.data(), tensor.data(), static_cast<std::size_t>(tensor.count()) * size_of(u16));
  return same;
}

bool close_enough(double got, double want, const Tolerance& tolerance) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (got == want) return true;
  return std::abs(got - want) <= tolerance.absolute + tolerance.relative * std::abs(want);
}

std::string shape_text(const Tensor& tensor) {
  return fmt::format("{}[{}]", heddle::name_of(tensor.dtype()), fmt::join(tensor.sizes(), ", "));
}

/// Why `got` is not what is wanted; empty if it is. Integers and bools must be equal.
std::string difference(const Tensor& got, const Tensor& wanted, const Tolerance& tolerance) {
  const Tensor want = as_wanted(wanted, got.dtype());
  if (shape_text(got) != shape_text(want))
    return fmt::format("expected {}, got {}", shape_text(want), shape_text(got));
  const std::vector<double> left = got.to_doubles();
  const std::vector<double> right = want.to_doubles();
  const Tolerance allowed = is_floating(want.dtype()) ? tolerance : Tolerance{0, 0};
  for (std::size_t k = 0; k < left.size(); ++k) {
    if (!close_enough(left[k], right[k], allowed))
      return fmt::format("element {}: expected {}, got {}", k, right[k], left[k]);
  }
  return {};
}

/// The model of a case, loaded again with constants where it needs values.
class CaseModel {
 public:
  CaseModel(std::string path, const ModelOptions& options)
      : path_(std::move(path)), options_(options.engine_options()) {
    signature_ = onnx::load(path_, options_).signature();
    codes_ = onnx::StringCodes(signature_);
    for (const ValueInfo& info : signature_.inputs) {
      names_.push_back(info.name);
      dtypes_.push_back(info.dtype);
    }
  }

  /// Inputs and outputs of a data set. Strings are equal where their codes are.
  std::vector<Tensor> inputs_in(const fs::path& folder) {
    return read_set(folder, "input", signature_.inputs, codes_);
  }
  std::vector<Tensor> outputs_in(const fs::path& folder) {
    return read_set(folder, "output", signature_.outputs, codes_);
  }

  std::vector<Tensor> run(std::vector<Tensor> inputs, StepCounts& steps) {
    if (inputs.size() != names_.size())
      throw ArgumentError({.what = "data set: inputs",
                           .where = {},
                           .expected = std::to_string(names_.size()),
                           .got = std::to_string(inputs.size())});
    for (std::size_t k = 0; k < names_.size(); ++k) inputs[k] = as_wanted(inputs[k], dtypes_[k]);
    onnx::Constants constants;
    while (true) {
      Engine engine = onnx::load(path_, options_, constants);
      std::vector<Tensor> left;
      for (std::size_t k = 0; k < names_.size(); ++k)
        if (!constants.contains(names_[k])) left.push_back(inputs[k]);
      try {
        std::vector<Tensor> outputs = engine.run(left);
        refuse_random(engine, left);
        count_steps(engine, left, steps);
        return outputs;
      } catch (const onnx::NeedsValueError& error) {
        const auto at = std::find(names_.begin(), names_.end(), error.input()) - names_.begin();
        constants[error.input()] = inputs[static_cast<std::size_t>(at)];
      }
    }
  }

 private:
  /// Numbers that differ from run to run are no case.
  static void refuse_random(Engine& engine, const std::vector<Tensor>& inputs) {
    if (engine.graph_text(inputs, false).find("heddle::random_key") == std::string::npos) return;
    throw UnsupportedError({.what = "verify: the model",
                            .where = {},
                            .expected = "the same outputs in each run",
                            .got = "random numbers"});
  }

  static void count_steps(Engine& engine, const std::vector<Tensor>& inputs, StepCounts& steps) {
    steps.evaluator += engine.stats().evaluator_steps;
    if (is_reference(engine)) return;
    const auto plan = nlohmann::json::parse(engine.plan_json(inputs));
    std::map<std::string, std::string> kinds;
    for (const auto& kernel : plan.at("kernels")) kinds[kernel.at("name")] = kernel.at("kind");
    for (const auto& step : plan.at("steps")) {
      const std::string& kind = kinds[step.at("kernel")];
      steps.jit += kind == "jit";
      steps.library += kind == "library";
      steps.custom += kind == "custom";
      steps.copy += kind == "copy";
    }
    steps.folded += plan.value("folded_steps", std::uint64_t{0});
  }

  std::string path_;
  EngineOptions options_;
  std::vector<std::string> names_;
  std::vector<DType> dtypes_;
  Signature signature_;
  onnx::StringCodes codes_{Signature()};
};

CaseOutcome run_case(const std::string& folder, const ModelOptions& options, Tolerance tolerance) {
  CaseOutcome outcome;
  CaseModel model((fs::path(folder) / "model.onnx").string(), options);
  std::size_t sets = 0;
  std::string without;  // the first set, by name, that has no outputs
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("test_data_set_")) continue;
    const std::vector<Tensor> want = model.outputs_in(entry.path());
    if (want.empty()) {
      if (without.empty() || name < without) without = name;
      continue;
    }
    ++sets;
    const std::vector<Tensor> got = model.run(model.inputs_in(entry.path()), outcome.steps);
    if (want.size() != got.size())
      return {
          Result::Fail, fmt::format("expected {} outputs, got {}", want.size(), got.size()), {}};
    for (std::size_t k = 0; k < want.size(); ++k) {
      const std::string why = difference(got[k], want[k], tolerance);
      if (!why.empty()) return {Result::Fail, fmt::format("output {}: {}", k, why), {}};
    }
  }
  if (sets != 0) return outcome;
  if (without.empty()) return {Result::Skip, "no test_data_set_* folder", {}};
  return {Result::Skip, without + ": no output_0.pb to compare with", {}};
}

}  // namespace

void StepCounts::add(const StepCounts& other) {
  jit += other.jit;
  library += other.library;
  custom += other.custom;
  copy += other.copy;
  folded += other.folded;
  evaluator += other.evaluator;
}

std::string name_of(Result result) {
  if (result == Result::Pass) return "PASS";
  return result == Result::Fail ? "FAIL" : "SKIP";
}

CaseOutcome verify_case(const std::string& folder, const ModelOptions& options,
                        Tolerance tolerance) {
  try {
    return run_case(folder, options, tolerance);
  } catch (const UnsupportedError& error) {
    return {Result::Skip, error.what(), {}};
  } catch (const std::exception& error) {
    return {Result::Fail, error.what(), {}};
  }
}

std::string to_text(const CaseOutcome& outcome) {
  const nlohmann::json document{
      {"result", static_cast<int>(outcome.result)},
      {"reason", outcome.reason},
      {"steps",
       {outcome.steps.jit, outcome.steps.library, outcome.steps.custom, outcome.steps.copy,
        outcome.steps.folded, outcome.steps.evaluator}}};
  return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

CaseOutcome outcome_from_text(const std::string& text) {
  const auto document = nlohmann::json::parse(text);
  const auto& steps = document.at("steps");
  return {static_cast<Result>(document.at("result").get<int>()),
          document.at("reason"),
          {steps[0], steps[1], steps[2], steps[3], steps[4], steps[5]}};
}

}  // namespace heddle::cli
