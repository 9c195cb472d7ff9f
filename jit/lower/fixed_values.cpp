#include "jit/lower/fixed_values.h"

#include "jit/lower/decompose.h"

namespace heddle::jit {

bool FixedValues::contains(const ir::Node* node) {
  const auto [found, is_new] = known_.emplace(node, false);
  if (!is_new) return found->second;
  const std::string_view name = node->op_name();
  bool fixed = name == "param" || name == "const";
  if (!fixed && node->after().empty() && !node->inputs().empty()) {
    const NodeClass kind = classify(*node, options_);
    fixed = kind == NodeClass::View || kind == NodeClass::Element;
    for (const ir::Value& input : node->inputs()) fixed = fixed && input && contains(input.node);
  }
  return known_[node] = fixed;
}

}  // namespace heddle::jit
