#include "ir/passes/pipeline.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <optional>

#include "base/closest.h"
#include "heddle/error.h"
#include "ir/analysis/regions.h"
#include "ir/infer_count.h"
#include "ir/passes/bf16_products.h"
#include "ir/passes/bf16_weights.h"
#include "ir/passes/bucket_collectives.h"
#include "ir/passes/byte_convs.h"
#include "ir/passes/canonicalise.h"
#include "ir/passes/channels_last.h"
#include "ir/passes/cse.h"
#include "ir/passes/dce.h"
#include "ir/passes/decompose.h"
#include "ir/passes/drop_operands.h"
#include "ir/passes/fold_constants.h"
#include "ir/passes/form_attention.h"
#include "ir/passes/form_regions.h"
#include "ir/passes/hoist_products.h"
#include "ir/passes/merge_convs.h"
#include "ir/passes/merge_views.h"
#include "ir/passes/narrow_products.h"
#include "ir/passes/order_sizes.h"
#include "ir/passes/overlap_collectives.h"
#include "ir/passes/permuted_products.h"
#include "ir/passes/push_permutes.h"
#include "ir/passes/reinplace.h"
#include "ir/passes/remove_noops.h"
#include "ir/passes/resolve_sizes.h"
#include "ir/passes/tf32_products.h"
#include "ir/passes/wide_convs.h"
#include "ir/passes/widen_permutes.h"
#include "ir/text.h"

namespace heddle::ir {

namespace {

constexpr Pass kPasses[] = {
    {"bf16-products", bf16_products},
    {"bf16-weights", bf16_weights},
    {"bucket-collectives", bucket_collectives},
    {"byte-convs", byte_convs},
    {"canonicalise", canonicalise},
    {"channels-last", channels_last},
    {"cse", cse},
    {"dce", dce},
    {"decompose", decompose},
    {"drop-operands", drop_operands},
    {"fold-constants", fold_constants},
    {"form-attention", form_attention},
    {"form-regions", [](const Graph& graph) { return form_regions(graph); }},
    {"hoist-products", hoist_products},
    {"inline-regions", inline_regions},
    {"merge-convs", merge_convs},
    {"merge-views", merge_views},
    {"narrow-products", narrow_products},
    {"order-sizes", order_sizes},
    {"overlap-collectives", overlap_collectives},
    {"permuted-products", permuted_products},
    {"push-permutes", push_permutes},
    {"reinplace", reinplace, Stage::Reinplaced},
    {"remove-noops", remove_noops},
    {"resolve-sizes", resolve_sizes},
    {"tf32-products", tf32_products},
    {"wide-convs", wide_convs},
    {"widen-permutes", widen_permutes},
};

/// Slices are views, which one pass merges.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"merge-slices", "merge-views"},
};

constexpr std::string_view kPipeline[] = {
    // what ops are
    "form-attention",
    "decompose",
    "fold-constants",
    "canonicalise",
    "remove-noops",
    "merge-views",
    // what they are done in
    "widen-permutes",
    "byte-convs",
    "wide-convs",
    "merge-convs",
    "channels-last",
    "push-permutes",
    "hoist-products",
    "drop-operands",
    "permuted-products",
    "narrow-products",
    "merge-views",
    "fold-constants",
    "remove-noops",
    "cse",
    "dce",
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
  for (const auto& [other, meant] : kOtherNames)
    if (name == other) return pass_named(meant);
  for (const Pass& pass : kPasses)
    if (pass.name == name) return pass;
  std::vector<std::string_view> known;
  for (const Pass& pass : kPasses) known.push_back(pass.name);
  const std::string_view near = base::closest(name, known);
  throw OptionError({.what = "unknown pass",
                     .where = {},
                     .expected = near.empty() ? fmt::format("one of {}", fmt::join(known, ", "))
                                              : std::string(near),
                     .got = name.empty() ? "an empty name" : std::string(name)});
}

namespace {

/// What the caller passes and gets: arguments and parameters, then outputs, then what is written back.
std::vector<Value> visible_values(const Graph& graph) {
  std::vector<Value> values(graph.inputs().begin(), graph.inputs().end());
  values.insert(values.end(), graph.outputs().begin(), graph.outputs().end());
  for (const Graph::WriteBack& write : graph.write_backs()) values.push_back(write.source);
  return values;
}

/// A pass of the user keeps the types of what the caller sees, and makes nothing of it share storage.
void check_contract(const Graph& before, const Graph& after, std::string_view pass) {
  const auto fail = [&](std::string what, std::string expected, std::string got) {
    throw InvariantError({.what = fmt::format("{}: {}", pass, what),
                          .where = {},
                          .expected = std::move(expected),
                          .got = std::move(got)});
  };
  const std::vector<Value> old = visible_values(before);
  const std::vector<Value> now = visible_values(after);
  if (old.size() != now.size() || before.inputs().size() != after.inputs().size() ||
      before.outputs().size() != after.outputs().size())
    fail("a pass keeps inputs, outputs and write-backs", std::to_string(old.size()),
         std::to_string(now.size()));
  for (std::size_t k = 0; k < now.size(); ++k) {
    if (!old[k].meta().same_layout(now[k].meta()))
      fail("a pass keeps the types of inputs and outputs", old[k].meta().to_string(),
           now[k].name() + " is " + now[k].meta().to_string());
    for (std::size_t j = 0; j < k; ++j) {
      const bool shared = now[k].meta().storage == now[j].meta().storage;
      if (shared && old[k].meta().storage != old[j].meta().storage)
        fail("a pass makes no input and output share storage, nor two outputs", "a copy",
             fmt::format("{} and {}", now[j].name(), now[k].name()));
    }
  }
}

/// The gate: runs passes one by one, times, verifies and dumps them.
class Gate {
 public:
  Gate(const Graph& graph, const PipelineOptions& options, std::vector<PassRecord>* records)
      : current_(graph), options_(options), records_(records) {}

  template <typename Run>
  void pass(std::string_view name, Stage stage, Run&& run, bool is_users = false) {
    using Clock = std::chrono::steady_clock;
    const std::uint64_t inferred = inferred_nodes();
    const auto start = Clock::now();
    Graph next = run(current_);
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    const bool changed = !next.identical(current_);
    if (records_ != nullptr)
      records_->push_back({std::string(name), took.count(), changed, current_.nodes().size(),
                           next.nodes().size(), inferred_nodes() - inferred});
    if (changed && options_.verify && !is_users && !options_.infer_again) {
      verify_structure(next, stage, name);
    } else if (changed && options_.verify) {
      verify(next, stage, name, verified_ ? &*verified_ : nullptr);
      verified_ = next;
    }
    if (changed && is_users) check_contract(current_, next, name);
    if (changed) dump(next, options_.dump_dir, number_, name);
    ++number_;
    current_ = std::move(next);
  }

  void user_passes(PassPoint point) {
    for (const UserPass& pass : options_.user_passes)
      if (pass.point == point) this->pass(pass.name, Stage::Functional, pass.run, true);
  }

  void skip() { ++number_; }
  Graph take() { return std::move(current_); }

 private:
  Graph current_;
  std::optional<Graph> verified_;  ///< the last that was; keeps the nodes that it knows
  const PipelineOptions& options_;
  std::vector<PassRecord>* records_;
  std::size_t number_ = 0;
};

}  // namespace

namespace {

Graph run_each(const Graph& graph, std::span<const std::string_view> passes,
               const PipelineOptions& options, std::vector<PassRecord>* records) {
  Gate gate(graph, options, records);
  gate.user_passes(PassPoint::First);
  bool functional = true;
  for (const std::string_view name : passes) {
    const Pass& pass = pass_named(name);
    if (functional && pass.stage == Stage::Reinplaced) {
      gate.user_passes(PassPoint::BeforeReinplace);
      functional = false;
    }
    if (std::ranges::any_of(options.skip, [&](const std::string& skipped) {
          return &pass_named(skipped) == &pass;
        }))
      gate.skip();
    else
      gate.pass(pass.name, pass.stage,
                [&](const Graph& current) { return pass.run(change_regions(current, pass.run)); });
  }
  if (functional) gate.user_passes(PassPoint::BeforeReinplace);
  return gate.take();
}

/// Whether the graph that is left shows what a pass did wrong: those of users, and metadata, are looked at as they come.
bool may_verify_last(std::span<const std::string_view> passes, const PipelineOptions& options) {
  return options.verify && !options.infer_again && options.user_passes.empty() && !passes.empty();
}

}  // namespace

Graph run_passes(const Graph& graph, std::span<const std::string_view> passes,
                 const PipelineOptions& options, std::vector<PassRecord>* records) {
  for (const std::string& name : options.skip) pass_named(name);
  if (!may_verify_last(passes, options)) return run_each(graph, passes, options, records);
  const std::size_t before = records == nullptr ? 0 : records->size();
  PipelineOptions at_once = options;
  at_once.verify = false;
  try {
    Graph result = run_each(graph, passes, at_once, records);
    verify_structure(result, pass_named(passes.back()).stage);
    return result;
  } catch (const std::exception&) {
    // Once more, to find the pass after which something is wrong.
    if (records != nullptr) records->resize(before);
    return run_each(graph, passes, options, records);
  }
}

}  // namespace heddle::ir
