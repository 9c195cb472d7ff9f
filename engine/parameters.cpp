#include "engine/parameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/closest.h"
#include "heddle/error.h"
#include "ir/environment.h"

namespace heddle::engine {

void ParameterTable::add(const Tensor& original, std::string_view name, bool is_label) {
  const std::scoped_lock lock(mutex_);
  if (!by_handle_.emplace(original.impl().get(), entries_.size()).second) return;
  std::string free(name);
  for (int k = 1; by_name_.contains(free); ++k) free = fmt::format("{}_{}", name, k);
  by_name_.emplace(free, entries_.size());
  entries_.push_back({std::move(free), original, original, is_label});
}

Tensor ParameterTable::value_of(const Tensor& original) const {
  const std::scoped_lock lock(mutex_);
  const auto found = by_handle_.find(original.impl().get());
  return found == by_handle_.end() ? original : entries_[found->second].value;
}

std::string ParameterTable::label_of(const Tensor& original) const {
  const std::scoped_lock lock(mutex_);
  const auto found = by_handle_.find(original.impl().get());
  const bool labelled = found != by_handle_.end() && entries_[found->second].is_label;
  return labelled ? entries_[found->second].name : std::string();
}

std::string ParameterTable::name_of(const Tensor& original) const {
  const std::scoped_lock lock(mutex_);
  const auto found = by_handle_.find(original.impl().get());
  return found == by_handle_.end() ? std::string() : entries_[found->second].name;
}

Tensor ParameterTable::original(std::string_view name) const {
  const std::scoped_lock lock(mutex_);
  const auto found = by_name_.find(name);
  if (found != by_name_.end()) return entries_[found->second].original;
  std::vector<std::string_view> known;
  for (const Entry& entry : entries_) known.push_back(entry.name);
  const std::string_view close = base::closest(name, known);
  throw ArgumentError({.what = "update_parameters: unknown parameter",
                       .where = {},
                       .expected = known.empty() ? "a trace first, which makes parameters known"
                                   : close.empty()
                                       ? fmt::format("one of {}", fmt::join(known, ", "))
                                       : std::string(close),
                       .got = std::string(name)});
}

void ParameterTable::replace(const Tensor& original, Tensor value) {
  const std::scoped_lock lock(mutex_);
  entries_[by_handle_.at(original.impl().get())].value = std::move(value);
}

std::vector<ParameterTable::Entry> ParameterTable::entries() const {
  const std::scoped_lock lock(mutex_);
  return entries_;
}

ir::Graph with_parameters(const ir::Graph& graph,
                          const std::map<ir::Value, ir::LiteralPtr>& values) {
  ir::GraphBuilder builder(graph.name(), ir::environment_of(graph));
  std::map<ir::Value, ir::Value> now;
  for (std::size_t k = 0; k < graph.inputs().size(); ++k) {
    const ir::Value input = graph.inputs()[k];
    const std::string& name = input.node->name();
    if (input.node->op_name() == "input") {
      now[input] = builder.input(input.meta(), name, graph.input_label(k), ir::is_donated(input));
      continue;
    }
    const auto found = values.find(input);
    ir::LiteralPtr literal;
    if (found != values.end())
      literal = found->second;
    else if (const ir::Literal* kept = graph.parameter(input.node))
      literal = std::make_shared<const ir::Literal>(*kept);
    now[input] = builder.parameter(input.meta(), std::move(literal), name, graph.input_label(k));
  }
  for (const ir::NodePtr& node : graph.nodes()) {
    if (node->is_argument()) continue;
    std::vector<ir::Value> operands;
    for (const ir::Value& operand : node->inputs())
      operands.push_back(operand ? now.at(operand) : ir::Value{});
    std::vector<ir::Value> after;
    for (const ir::Value& first : node->after()) after.push_back(now.at(first));
    const ir::Node* made = builder.transplant(node, operands, after, node->annotations());
    for (std::uint32_t k = 0; k < node->outputs().size(); ++k) now[node->value(k)] = made->value(k);
  }
  for (std::size_t k = 0; k < graph.outputs().size(); ++k)
    builder.output(now.at(graph.outputs()[k]), graph.output_label(k));
  for (const auto& [target, source] : graph.write_backs())
    builder.write_back(now.at(target), now.at(source));
  return builder.finish();
}

}  // namespace heddle::engine
