#include "jit/lower/neighbours.h"

#include <optional>

#include "ir/op.h"
#include "jit/lower/decompose.h"

namespace heddle::jit {
namespace {

/// The last dimension of more than one element; nothing where there is none.
std::optional<std::size_t> innermost_dimension(const ir::Dims& sizes) {
  for (std::size_t d = sizes.size(); d-- > 0;)
    if (!sizes[d].is_constant(1)) return d;
  return {};
}

}  // namespace

bool lies_along(ir::Value value, std::size_t axis, const LowerOptions& options) {
  while (classify(*value.node, options) == NodeClass::View) {
    const ir::Node& view = *value.node;
    const ir::Value from = view.input(0);
    if (view.op_name() == "permute") {
      axis = static_cast<std::size_t>(view.ints("perm")[axis]);
    } else if (view.op_name() == "reshape") {
      if (innermost_dimension(value.meta().sizes) != axis) return false;
      const std::optional<std::size_t> same = innermost_dimension(from.meta().sizes);
      if (!same) return false;
      axis = *same;
    } else if (view.op_name() != "slice" || !view.symints("stride")[axis].is_constant(1)) {
      return false;
    }
    value = from;
  }
  return innermost_dimension(value.meta().sizes) == axis && value.meta().is_row_major();
}

}  // namespace heddle::jit
