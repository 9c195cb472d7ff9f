// heddle run: runs a model once and shows what comes out.

#include <CLI/App.hpp>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <span>

#include "engine/cli/commands.h"
#include "engine/cli/npy.h"
#include "heddle/error.h"

namespace heddle::cli {

namespace {

struct RunOptions {
  ModelOptions model;
  std::string output_dir;
  bool json = false;
};

constexpr std::int64_t kShownValues = 6;

/// The first elements: strings that codes stand for as such; integers exactly; NaN and infinities, which JSON has no numbers for,
/// as "nan", "inf" and "-inf".
nlohmann::ordered_json first_values(const Tensor& tensor, const onnx::StringCodes* codes) {
  nlohmann::ordered_json values = nlohmann::ordered_json::array();
  const std::int64_t shown = std::min(tensor.count(), kShownValues);
  if (tensor.dtype() == i64) {
    const Tensor dense = tensor.is_row_major() ? tensor : tensor.clone();
    for (std::int64_t k = 0; k < shown; ++k) {
      const std::int64_t value = dense.data_as<std::int64_t>()[k];
      if (codes != nullptr)
        values.push_back(codes->string_of(value));
      else
        values.push_back(value);
    }
    return values;
  }
  const std::vector<double> numbers = tensor.to_doubles();
  for (const double number : std::span(numbers).first(static_cast<std::size_t>(shown))) {
    if (is_floating(tensor.dtype()) && std::isfinite(number))
      values.push_back(number);
    else if (is_floating(tensor.dtype()))
      values.push_back(fmt::format("{}", number));
    else
      values.push_back(static_cast<std::int64_t>(number));
  }
  return values;
}

std::string text_of(const nlohmann::ordered_json& value) {
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string file_name(std::size_t index, const std::string& name) {
  std::string safe = fmt::format("{}_{}.npy", index, name);
  for (char& c : safe) {
    const bool kept = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '_' || c == '.' || c == '-';
    if (!kept) c = '_';
  }
  return safe;
}

std::string name_of_output(const Signature& signature, std::size_t k) {
  return k < signature.outputs.size() ? signature.outputs[k].name : fmt::format("output{}", k);
}

/// Of output k, if it is of strings.
const onnx::StringCodes* codes_of(const Signature& signature, std::size_t k,
                                  const onnx::StringCodes& codes) {
  return k < signature.outputs.size() && signature.outputs[k].is_text ? &codes : nullptr;
}

void print_text(const Signature& signature, const std::vector<Tensor>& outputs,
                const onnx::StringCodes& codes) {
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const Tensor& output = outputs[k];
    std::vector<std::string> shown;
    const onnx::StringCodes* strings = codes_of(signature, k, codes);
    for (const auto& value : first_values(output, strings)) shown.push_back(text_of(value));
    fmt::print("{}: {}[{}] = [{}{}]\n", name_of_output(signature, k),
               strings != nullptr ? "string" : heddle::name_of(output.dtype()),
               fmt::join(output.sizes(), ", "), fmt::join(shown, ", "),
               output.count() > kShownValues ? ", ..." : "");
    if (k < signature.outputs.size() && !signature.outputs[k].columns.empty())
      fmt::print("  columns: {}\n", fmt::join(signature.outputs[k].columns, ", "));
  }
}

void print_json(const Signature& signature, const std::vector<Tensor>& outputs,
                const onnx::StringCodes& codes) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const auto sizes = outputs[k].sizes();
    const onnx::StringCodes* strings = codes_of(signature, k, codes);
    const std::string_view dtype =
        strings != nullptr ? "string" : heddle::name_of(outputs[k].dtype());
    list.push_back({{"name", name_of_output(signature, k)},
                    {"dtype", dtype},
                    {"sizes", std::vector<std::int64_t>(sizes.begin(), sizes.end())},
                    {"values", first_values(outputs[k], strings)}});
    if (k < signature.outputs.size() && !signature.outputs[k].columns.empty())
      list.back()["columns"] = signature.outputs[k].columns;
  }
  const nlohmann::ordered_json document{{"outputs", list}};
  fmt::print("{}\n", document.dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
}

int run(const RunOptions& options) {
  LoadedModel model = load_model(options.model);
  std::vector<Tensor> outputs = model.engine->run(model.inputs);
  for (Tensor& output : outputs) output = output.to(Device::cpu());
  const Signature signature = model.engine->signature();
  if (!options.output_dir.empty()) {
    std::error_code error;
    std::filesystem::create_directories(options.output_dir, error);
    if (error)
      throw ArgumentError({.what = "--output-dir " + options.output_dir,
                           .where = {},
                           .expected = "a folder, or a place where one can be made",
                           .got = error.message()});
    for (std::size_t k = 0; k < outputs.size(); ++k)
      write_npy(options.output_dir + "/" + file_name(k, name_of_output(signature, k)), outputs[k],
                codes_of(signature, k, model.codes));
  }
  options.json ? print_json(signature, outputs, model.codes)
               : print_text(signature, outputs, model.codes);
  return 0;
}

}  // namespace

void add_run(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("run", "run a model and show its outputs");
  const auto options = std::make_shared<RunOptions>();
  options->model.add_to(*command);
  command->add_option("--output-dir", options->output_dir, "write the outputs here as .npy files");
  command->add_flag("--json", options->json, "one JSON document on standard output");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace heddle::cli
