#include "ir/ops/concat_ops.h"

#include "ir/ops/families.h"

namespace heddle::ir {

std::span<const OpDef> concat_ops() {
  static const OpDef ops[] = {ops::concat_op(), ops::split_op()};
  return ops;
}

}  // namespace heddle::ir
