// Ops that run nested graphs.
#include "ir/ops/families.h"
#include "ir/ops/regions.h"

namespace heddle::ir {

std::span<const OpDef> control_ops() {
  static const OpDef ops[] = {ops::cond_op(), ops::while_loop_op(), ops::scan_op(), ops::map_op(),
                              ops::invoke_op()};
  return ops;
}

}  // namespace heddle::ir
