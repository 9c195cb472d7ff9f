#include "engine/onnx/type_rules.h"

#include <algorithm>
#include <cstdint>
#include <fmt/format.h>

namespace heddle::onnx {

namespace {

constexpr std::uint32_t kAll = ~0u;

/// Operands whose bits are set have one dtype.
struct TypeRule {
  std::string_view op;
  std::uint32_t same = kAll;
};

// Sorted by name. Ops are left out whose operands always differ, or did in some version.
constexpr TypeRule kTypeRules[] = {
    {"Add"},
    {"And"},
    {"BitShift"},
    {"BitwiseAnd"},
    {"BitwiseOr"},
    {"BitwiseXor"},
    {"Clip"},
    {"Concat"},
    {"Conv"},
    {"ConvTranspose"},
    {"Div"},
    {"Einsum"},
    {"Equal"},
    {"Gemm"},
    {"Greater"},
    {"GreaterOrEqual"},
    {"InstanceNormalization"},
    {"Less"},
    {"LessOrEqual"},
    {"MatMul"},
    {"Max"},
    {"Mean"},
    {"Min"},
    {"Mod"},
    {"Mul"},
    {"Or"},
    {"PRelu"},
    {"Pad", 0b101},
    {"Range"},
    {"Scatter", 0b101},
    {"ScatterElements", 0b101},
    {"ScatterND", 0b101},
    {"Sub"},
    {"Sum"},
    {"Where", 0b110},
    {"Xor"},
};

}  // namespace

void check_operand_types(const Node& node) {
  const auto rule = std::ranges::lower_bound(kTypeRules, node.type(), {}, &TypeRule::op);
  if (rule == std::end(kTypeRules) || rule->op != node.type()) return;
  std::optional<std::size_t> first;
  for (std::size_t k = 0; k < node.input_count(); ++k) {
    const bool constrained = k >= 32 || (rule->same >> k & 1) != 0;
    if (!constrained || !node.has(k)) continue;
    if (!first) first = k;
    const DType wanted = node.value(*first).dtype();
    const bool is_text = node.value(*first).is_text();
    if (node.value(k).is_text() != is_text)
      node.malformed(fmt::format("dtype of input {}", k),
                     fmt::format("{} as input {}", is_text ? "strings" : "numbers", *first),
                     is_text ? "numbers" : "strings");
    if (node.value(k).dtype() != wanted)
      node.malformed(fmt::format("dtype of input {}", k),
                     fmt::format("{} as input {}", name_of(wanted), *first),
                     std::string(name_of(node.value(k).dtype())));
  }
}

}  // namespace heddle::onnx
