// Ops that join tensors along an axis and take them apart.
#pragma once

#include "ir/op.h"

namespace heddle::ir::ops {

OpDef concat_op();
OpDef split_op();

}  // namespace heddle::ir::ops
