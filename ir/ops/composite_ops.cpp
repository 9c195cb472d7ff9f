#include "ir/ops/composite_ops.h"

#include "ir/ops/families.h"

namespace heddle::ir {

std::span<const OpDef> composite_ops() {
  static const OpDef ops[] = {ops::relu_op(), ops::gelu_op(), ops::silu_op(), ops::softplus_op(),
                              ops::clamp_op()};
  return ops;
}

}  // namespace heddle::ir
