#include "ir/ops/gather_ops.h"

#include "ir/ops/families.h"

namespace heddle::ir {

std::span<const OpDef> gather_ops() {
  static const OpDef ops[] = {ops::gather_op(), ops::gather_elements_op(), ops::gather_nd_op()};
  return ops;
}

}  // namespace heddle::ir
