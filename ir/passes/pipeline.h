// The one gate that every pass goes through.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/verifier.h"

namespace heddle::ir {

/// A pass: a function over a graph; returns the same graph when nothing changed.
struct Pass {
  std::string_view name;  ///< "merge-slices"
  Graph (*run)(const Graph& graph);
  Stage stage = Stage::Functional;  ///< what the graph must satisfy afterwards
};

/// Every pass by name, sorted.
std::span<const Pass> all_passes();
/// The passes that a compile runs on a graph, and on each region of it, in order.
std::span<const std::string_view> default_pipeline();
/// @throws OptionError naming the unknown pass and the closest known one.
const Pass& pass_named(std::string_view name);

/// Where passes of the user run.
enum class PassPoint : std::uint8_t {
  First,            ///< on the graph as traced
  BeforeReinplace,  ///< on what the other passes leave, while it is still functional
};

/// A pass of the user: held to the same rules as ours, at Stage::Functional, and checked to keep the types of
/// inputs and outputs, and to let none of them share storage that did not before.
struct UserPass {
  std::string name;
  PassPoint point = PassPoint::BeforeReinplace;
  std::function<Graph(const Graph&)> run;
};

struct PassRecord {
  std::string name;
  double microseconds = 0;
  bool changed = false;
  std::size_t nodes_before = 0;
  std::size_t nodes_after = 0;
  std::uint64_t inferred = 0;  ///< nodes whose metadata it had inferred
};

struct PipelineOptions {
  std::vector<std::string> skip;  ///< names of passes to leave out
  /// Verify after each pass: where metadata is not inferred again and no user has passes, at first after the last alone, and after
  /// each when something is wrong.
  bool verify = true;
  /// Metadata is inferred again for that after our own passes too, not only after those of users: builders inferred it once.
  bool infer_again = true;
  std::string dump_dir;  ///< write the graph text after each change when not empty
  /// Run in order at their points: First before the first of the passes, BeforeReinplace before reinplace,
  /// or after the last pass where it is not among them.
  std::vector<UserPass> user_passes;
};

/// Runs `passes` one after another through the gate.
Graph run_passes(const Graph& graph, std::span<const std::string_view> passes,
                 const PipelineOptions& options = {}, std::vector<PassRecord>* records = nullptr);

}  // namespace heddle::ir
