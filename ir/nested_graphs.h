// The graphs nested in a graph and the names that tell them apart.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace heddle::ir {

/// The name of a graph without '@'.
std::string graph_name(std::string_view name);

/// Every graph that lies in `entry` at any depth, each once under each name by which nodes call it. A name that another
/// graph has before it is numbered: of two graphs called body the second is body_1.
class NestedGraphs {
 public:
  struct Named {
    std::string name;
    std::shared_ptr<const Graph> graph;
  };
  /// Cost: linear in nodes, however many paths of calls lead to a graph.
  explicit NestedGraphs(const Graph& entry);

  /// In the order in which their first callers come: those of `entry`, then those of the first of them, and so on.
  std::span<const Named> all() const { return all_; }
  /// What the graph is called that nodes call `name`; that name for one that does not lie in `entry`.
  std::string name_of(const Graph* graph, std::string_view name) const;

 private:
  void add_callees(const Graph& graph);
  void add(const GraphRef& ref);

  std::vector<Named> all_;
  std::map<std::string, const Graph*, std::less<>> taken_;
  std::map<std::pair<const Graph*, std::string>, std::string> names_;
};

}  // namespace heddle::ir
