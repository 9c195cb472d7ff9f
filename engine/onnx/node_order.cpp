#include "engine/onnx/node_order.h"

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/onnx/onnx.pb.h"

namespace heddle::onnx {

using onnx_format::GraphProto;
using onnx_format::NodeProto;

namespace {

using Reader = std::function<void(const std::string&)>;

std::set<std::string> names_of(const GraphProto& graph) {
  std::set<std::string> names;
  for (const auto& input : graph.input()) names.insert(input.name());
  for (const auto& initializer : graph.initializer()) names.insert(initializer.name());
  for (const NodeProto& node : graph.node())
    names.insert(node.output().begin(), node.output().end());
  return names;
}

/// Calls f with what `node` reads, and the graphs within it from around them: their own names hide others.
void for_each_read(const NodeProto& node, const Reader& f) {
  for (const std::string& input : node.input()) f(input);
  for (const auto& attribute : node.attribute()) {
    if (!attribute.has_g()) continue;
    const std::set<std::string> own = names_of(attribute.g());
    const Reader from_around = [&](const std::string& name) {
      if (!own.contains(name)) f(name);
    };
    for (const NodeProto& inner : attribute.g().node()) for_each_read(inner, from_around);
    for (const auto& output : attribute.g().output()) from_around(output.name());
  }
}

class Sorter {
 public:
  explicit Sorter(GraphProto& graph) : graph_(graph) {
    for (int k = 0; k < graph.node_size(); ++k)
      for (const std::string& output : graph.node(k).output())
        if (!output.empty()) makers_.emplace(output, k);
  }

  void sort() {
    if (is_sorted()) return;
    states_.resize(static_cast<std::size_t>(graph_.node_size()), State::Waiting);
    for (int k = 0; k < graph_.node_size(); ++k) place(k);
    google::protobuf::RepeatedPtrField<NodeProto> nodes;
    for (const int k : order_) nodes.Add()->Swap(graph_.mutable_node(k));
    graph_.mutable_node()->Swap(&nodes);
  }

 private:
  enum class State : std::uint8_t { Waiting, Entered, Placed };

  bool is_sorted() const {
    for (int k = 0; k < graph_.node_size(); ++k) {
      bool follows = true;
      for_each_read(graph_.node(k), [&](const std::string& name) {
        const auto maker = makers_.find(name);
        follows = follows && (maker == makers_.end() || maker->second < k);
      });
      if (!follows) return false;
    }
    return true;
  }

  /// Places what `first` reads, then `first`: without recursion, as chains are as long as models.
  void place(int first) {
    std::vector<int> stack{first};
    while (!stack.empty()) {
      const int k = stack.back();
      State& state = states_[static_cast<std::size_t>(k)];
      if (state == State::Placed) {
        stack.pop_back();
        continue;
      }
      const bool is_new = state == State::Waiting;
      state = is_new ? State::Entered : State::Placed;
      if (!is_new) {
        order_.push_back(k);
        stack.pop_back();
        continue;
      }
      for_each_read(graph_.node(k), [&](const std::string& name) {
        const auto maker = makers_.find(name);
        if (maker == makers_.end()) return;
        if (states_[static_cast<std::size_t>(maker->second)] == State::Waiting)
          stack.push_back(maker->second);
      });
    }
  }

  GraphProto& graph_;
  std::map<std::string, int> makers_;
  std::vector<State> states_;
  std::vector<int> order_;
};

}  // namespace

void sort_nodes(GraphProto& graph) {
  for (NodeProto& node : *graph.mutable_node())
    for (auto& attribute : *node.mutable_attribute())
      if (attribute.has_g()) sort_nodes(*attribute.mutable_g());
  Sorter(graph).sort();
}

}  // namespace heddle::onnx
