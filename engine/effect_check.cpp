#include "engine/effect_check.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <unordered_map>

#include "heddle/error.h"
#include "ir/analysis/plan_nodes.h"
#include "ir/analysis/regions.h"
#include "ir/op.h"
#include "jit/lower/region.h"

namespace heddle::engine {

namespace {

/// Kinds of effects, sorted: of a call of a custom op its name, of one with nested graphs the effects in these too.
using Effects = std::vector<std::uint32_t>;

bool has_effects(const ir::Node& node) {
  return node.op_name() != "input" && node.op_name() != "param" && !ir::is_pure(node);
}

class EffectFinder {
 public:
  Effects of(const ir::Graph& graph) {
    if (const auto known = of_graph_.find(&graph); known != of_graph_.end()) return known->second;
    Effects effects;
    for (const ir::NodePtr& node : graph.nodes()) add(*node, effects);
    std::ranges::sort(effects);
    return of_graph_[&graph] = std::move(effects);
  }

  Effects of(const Unit& unit) {
    if (const auto known = of_unit_.find(&unit); known != of_unit_.end()) return known->second;
    const ir::ScheduleRecord& record = unit.schedule().record;
    const ir::PlanNodes nodes(unit.program().graph, record);
    Effects effects;
    for (ir::StepId step = 0; step < record.steps.size(); ++step) {
      const std::uint32_t kernel = record.steps[step].kernel;
      for (const ir::Node* node : nodes.computed_by(step)) {
        if (!has_effects(*node)) continue;
        std::vector<Effects> bodies;
        for (const auto& nested : unit.nested(kernel)) bodies.push_back(of(*nested));
        effects.push_back(kind(*node, bodies));
      }
    }
    std::ranges::sort(effects);
    return of_unit_[&unit] = std::move(effects);
  }

  std::string name_of(std::uint32_t kind) const { return names_[kind]; }

 private:
  void add(const ir::Node& node, Effects& effects) {
    if (!has_effects(node)) return;
    if (node.op_name() == "region") {  // its body runs in place of its call
      const Effects body = of(node.graph("body"));
      effects.insert(effects.end(), body.begin(), body.end());
      return;
    }
    std::vector<Effects> bodies;
    if (node.op().lowering.region)
      for (const std::string_view name : jit::region_names(*node.op().lowering.region))
        bodies.push_back(of(node.graph(name)));
    effects.push_back(kind(node, bodies));
  }

  std::uint32_t kind(const ir::Node& node, const std::vector<Effects>& bodies) {
    const std::string key = fmt::format("{} {}", node.op_name(), bodies);
    const auto [at, fresh] = kinds_.try_emplace(key, static_cast<std::uint32_t>(names_.size()));
    if (fresh) {
      std::string inside;
      for (const Effects& body : bodies)
        for (const std::uint32_t effect : body)
          inside += (inside.empty() ? "" : ", ") + names_[effect].substr(0, kMaxName);
      names_.push_back(std::string(node.op_name()) +
                       (inside.empty() ? "" : " with " + inside.substr(0, kMaxName)));
    }
    return at->second;
  }

  static constexpr std::size_t kMaxName = 200;  ///< of what an error shows
  std::map<std::string, std::uint32_t> kinds_;
  std::vector<std::string> names_;  ///< by kind
  std::unordered_map<const ir::Graph*, Effects> of_graph_;
  std::unordered_map<const Unit*, Effects> of_unit_;
};

/// `kinds` as text, at most eight of them.
std::string text_of(const Effects& kinds, const EffectFinder& finder) {
  std::string text;
  for (std::size_t k = 0; k < kinds.size() && k < 8; ++k)
    text += (text.empty() ? "" : ", ") + finder.name_of(kinds[k]);
  return text.empty() ? "nothing" : text;
}

}  // namespace

void check_effects(const ir::Graph& graph, const Unit& unit) {
  EffectFinder finder;
  const Effects wanted = finder.of(graph);
  const Effects planned = finder.of(unit);
  if (wanted == planned) return;
  Effects missing;
  Effects surplus;
  std::ranges::set_difference(wanted, planned, std::back_inserter(missing));
  std::ranges::set_difference(planned, wanted, std::back_inserter(surplus));
  throw InvariantError({.what = "plan: P14 each node with effects runs in one step",
                        .where = "@" + graph.name(),
                        .expected = text_of(missing, finder),
                        .got = text_of(surplus, finder)});
}

}  // namespace heddle::engine
