// heddle plan: what a model becomes for given sizes.

#include <CLI/App.hpp>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/cli/commands.h"
#include "engine/cli/plan_views.h"
#include "heddle/error.h"

namespace heddle::cli {

namespace {

struct PlanOptions {
  ModelOptions model;
  std::string html;
  bool json = false;
};

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush())
    throw ArgumentError(
        {.what = "write " + path, .where = {}, .expected = "a writable file", .got = {}});
}

int plan(const PlanOptions& options) {
  if (options.model.engine_options().device.kind() == Device::Kind::Reference)
    throw UsageError("plan: the reference evaluator has no plan");
  LoadedModel model = load_model(options.model);
  const std::string text = model.engine->plan_json(model.inputs);
  const auto document = nlohmann::ordered_json::parse(text);
  const std::string graph = model.engine->graph_text(model.inputs);
  if (!options.html.empty())
    write_text(options.html, plan_html(document, graph, options.model.model));
  if (options.json)
    fmt::print("{}\n", text);
  else
    fmt::print("{}", plan_text(document, graph));
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("plan", "show what a model becomes");
  const auto options = std::make_shared<PlanOptions>();
  options->model.add_to(*command);
  command->add_option("--html", options->html, "write a page to this file");
  command->add_flag("--json", options->json, "one JSON document on standard output");
  command->callback([options, &exit_code] { exit_code = plan(*options); });
}

}  // namespace heddle::cli
