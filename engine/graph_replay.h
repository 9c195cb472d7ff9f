// A graph as a trace function.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "heddle/engine.h"
#include "ir/graph.h"

namespace heddle::engine {

/// Copies the nodes of a graph into the current trace, with the trace's inputs in place of its arguments.
class GraphReplay {
 public:
  /// `parameters`: the tensors that inputs of `graph` stand for; its other inputs are arguments.
  GraphReplay(ir::Graph graph, std::map<ir::Value, Tensor> parameters);

  TraceResult operator()(std::span<const Tensor> inputs) const;

  /// Argument k as the graph calls it, so that what comes of it speaks of the same names.
  const std::string& name(std::size_t k) const { return arguments_[k].name; }
  const std::string& label(std::size_t k) const { return arguments_[k].label; }

 private:
  struct Argument {
    std::string name;
    std::string label;
  };
  ir::Graph graph_;
  std::map<ir::Value, Tensor> parameters_;
  std::vector<Argument> arguments_;
};

}  // namespace heddle::engine
