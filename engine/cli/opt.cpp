// heddle opt: runs passes over a graph in text form.

#include <CLI/App.hpp>
#include <fmt/format.h>
#include <iostream>
#include <iterator>

#include "engine/cli/commands.h"
#include "ir/passes/pipeline.h"
#include "ir/text.h"

namespace heddle::cli {

namespace {

struct OptOptions {
  std::string file;
  std::string passes;
  bool types = false;
};

std::vector<std::string_view> split_names(std::string_view text) {
  std::vector<std::string_view> names;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    if (comma != 0) names.push_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return names;
}

ir::Graph read_graph(const std::string& file) {
  if (!file.empty() && file != "-") {
    return ir::load(file);
  }
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  return ir::parse(text);
}

int opt(const OptOptions& options) {
  const std::vector<std::string_view> names = split_names(options.passes);
  for (const std::string_view name : names) ir::pass_named(name);
  const ir::Graph graph = ir::run_passes(read_graph(options.file), names);
  fmt::print("{}", ir::print(graph, {.types = options.types}));
  return 0;
}

}  // namespace

void add_opt(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("opt", "run passes over a graph in text form");
  const auto options = std::make_shared<OptOptions>();
  command->add_option("FILE", options->file, "a .hir file; standard input without it");
  command->add_option("--passes", options->passes, "names of passes, separated by commas");
  command->add_flag("--types", options->types, "print every type");
  command->callback([options, &exit_code] { exit_code = opt(*options); });
}

}  // namespace heddle::cli
