#include "tests/sweep/op_callable.h"

#include <stdexcept>
#include <type_traits>
#include <variant>

#include "engine/tensor_impl.h"
#include "heddle/heddle.h"

namespace heddle::testing {

using ir::Literal;

namespace {

struct ToOpAttr {
  template <typename T>
  OpAttr operator()(const T& value) const {
    if constexpr (std::is_same_v<T, ir::SymExpr>) {
      return SymInt(value.constant());
    } else if constexpr (std::is_same_v<T, ir::Dims>) {
      std::vector<std::int64_t> sizes;
      for (const ir::SymExpr& size : value) sizes.push_back(size.constant());
      return sizes;
    } else if constexpr (std::is_same_v<T, ir::LiteralPtr>) {
      return engine::from_literal(*value);
    } else if constexpr (std::is_same_v<T, ir::GraphRef>) {
      throw std::logic_error("no op of the table has nested graphs");
    } else {
      return value;
    }
  }
};

OpAttrs attrs_of(const OneOp& call) {
  OpAttrs attrs;
  for (const auto& [name, value] : call.attrs) attrs.emplace(name, std::visit(ToOpAttr(), value));
  return attrs;
}

}  // namespace

bool is_absent(const Literal& operand) { return operand.data() == nullptr && operand.rank() == 0; }

TraceFunction callable_of(const OneOp& call) {
  std::vector<bool> there;
  for (const Literal& operand : call.operands) there.push_back(!is_absent(operand));
  return [there, op = std::string(call.op), attrs = attrs_of(call)](std::span<const Tensor> given) {
    std::vector<Tensor> operands;
    std::size_t next = 0;
    for (const bool given_here : there) operands.push_back(given_here ? given[next++] : Tensor());
    return TraceResult{apply(op, operands, attrs), {}, nullptr};
  };
}

std::vector<Tensor> inputs_of(const OneOp& call) {
  std::vector<Tensor> inputs;
  for (const Literal& operand : call.operands)
    if (!is_absent(operand)) inputs.push_back(engine::from_literal(operand));
  return inputs;
}

}  // namespace heddle::testing
