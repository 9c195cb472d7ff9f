#include "ir/passes/pipeline.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <fmt/format.h>
#include <fstream>

#include "base/closest.h"
#include "heddle/error.h"
#include "ir/analysis/regions.h"
#include "ir/passes/canonicalise.h"
#include "ir/passes/cse.h"
#include "ir/passes/dce.h"
#include "ir/passes/decompose.h"
#include "ir/passes/fold_constants.h"
#include "ir/passes/form_regions.h"
#include "ir/passes/merge_views.h"
#include "ir/passes/remove_noops.h"
#include "ir/passes/resolve_sizes.h"
#include "ir/text.h"

namespace heddle::ir {

namespace {

constexpr Pass kPasses[] = {
    {"canonicalise", canonicalise},
    {"cse", cse},
    {"dce", dce},
    {"decompose", decompose},
    {"fold-constants", fold_constants},
    {"form-regions", [](const Graph& graph) { return form_regions(graph); }},
    {"inline-regions", inline_regions},
    {"merge-views", merge_views},
    {"remove-noops", remove_noops},
    {"resolve-sizes", resolve_sizes},
};

constexpr std::string_view kPipeline[] = {
    "decompose",   "fold-constants", "canonicalise", "remove-noops",
    "merge-views", "remove-noops",   "cse",          "dce",
};

void dump(const Graph& graph, const std::string& folder, std::size_t number,
          std::string_view pass) {
  if (folder.empty()) return;
  std::ofstream file(fmt::format("{}/{:02}_{}.hir", folder, number, pass));
  file << print(graph);
}

}  // namespace

std::span<const Pass> all_passes() { return kPasses; }
std::span<const std::string_view> default_pipeline() { return kPipeline; }

const Pass& pass_named(std::string_view name) {
  for (const Pass& pass : kPasses)
    if (pass.name == name) return pass;
  std::vector<std::string_view> known;
  for (const Pass& pass : kPasses) known.push_back(pass.name);
  throw OptionError({.what = "unknown pass",
                     .where = {},
                     .expected = std::string(base::closest(name, known)),
                     .got = std::string(name)});
}

Graph run_passes(const Graph& graph, std::span<const std::string_view> passes,
                 const PipelineOptions& options, std::vector<PassRecord>* records) {
  using Clock = std::chrono::steady_clock;
  for (const std::string& name : options.skip) pass_named(name);
  Graph current = graph;
  for (std::size_t k = 0; k < passes.size(); ++k) {
    const Pass& pass = pass_named(passes[k]);
    if (std::find(options.skip.begin(), options.skip.end(), pass.name) != options.skip.end())
      continue;
    const auto start = Clock::now();
    Graph next = pass.run(change_regions(current, pass.run));
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    const bool changed = !next.identical(current);
    if (records != nullptr)
      records->push_back(
          {pass.name, took.count(), changed, current.nodes().size(), next.nodes().size()});
    if (changed && options.verify) verify(next, pass.stage, pass.name);
    if (changed) dump(next, options.dump_dir, k, pass.name);
    current = std::move(next);
  }
  return current;
}

}  // namespace heddle::ir
