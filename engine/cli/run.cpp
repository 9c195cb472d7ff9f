// heddle run: runs a model once and shows what comes out.

#include <CLI/App.hpp>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "engine/cli/commands.h"
#include "engine/cli/npy.h"

namespace heddle::cli {

namespace {

struct RunOptions {
  ModelOptions model;
  std::string output_dir;
  bool json = false;
};

constexpr std::int64_t kShownValues = 6;

std::vector<double> first_values(const Tensor& tensor) {
  std::vector<double> values = tensor.to_doubles();
  if (values.size() > kShownValues) values.resize(kShownValues);
  return values;
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

void print_text(const Signature& signature, const std::vector<Tensor>& outputs) {
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const Tensor& output = outputs[k];
    fmt::print("{}: {}[{}] = [{}{}]\n", name_of_output(signature, k),
               heddle::name_of(output.dtype()), fmt::join(output.sizes(), ", "),
               fmt::join(first_values(output), ", "), output.count() > kShownValues ? ", ..." : "");
  }
}

void print_json(const Signature& signature, const std::vector<Tensor>& outputs) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const auto sizes = outputs[k].sizes();
    list.push_back({{"name", name_of_output(signature, k)},
                    {"dtype", heddle::name_of(outputs[k].dtype())},
                    {"sizes", std::vector<std::int64_t>(sizes.begin(), sizes.end())},
                    {"values", first_values(outputs[k])}});
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
    std::filesystem::create_directories(options.output_dir);
    for (std::size_t k = 0; k < outputs.size(); ++k)
      write_npy(options.output_dir + "/" + file_name(k, name_of_output(signature, k)), outputs[k]);
  }
  options.json ? print_json(signature, outputs) : print_text(signature, outputs);
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
