// What a run of the fuzz covered.
#pragma once

#include <map>
#include <string>

#include "tests/fuzz/random_case.h"

namespace heddle::fuzz {

class Histogram {
 public:
  /// Adds a case; lowers its graph as the engine does to see what fused.
  void add(const Case& subject);
  /// Lines "class name count", in order of class and name.
  std::string to_string() const;
  int count(const std::string& group, const std::string& name) const;
  /// How many names of the class were seen at all.
  std::size_t names(const std::string& group) const;
  int graphs() const { return graphs_; }

 private:
  void add_nodes(const ir::Graph& graph);
  void add_calls(const Case& subject);
  void add_plan(const Case& subject);
  void seen(const std::string& group, const std::string& name) { ++counts_[group][name]; }

  std::map<std::string, std::map<std::string, int>> counts_;  // graphs that have it, by class, name
  int graphs_ = 0;
};

/// Adds a test failure for every class of `histogram` that covers less than its floor.
void expect_floors(const Histogram& histogram);

}  // namespace heddle::fuzz
