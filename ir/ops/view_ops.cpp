#include "ir/ops/view_ops.h"

#include "ir/ops/families.h"

namespace heddle::ir {

std::span<const OpDef> view_ops() {
  static const OpDef ops[] = {
      ops::reshape_op(), ops::permute_op(), ops::expand_op(), ops::slice_op(),
      ops::reverse_op(), ops::clone_op(),   ops::alias_op(),  ops::unfold_op(),
  };
  return ops;
}

}  // namespace heddle::ir
