// Ops that read elements at positions that are values.
#pragma once

#include "ir/op.h"

namespace heddle::ir::ops {

OpDef gather_op();
OpDef gather_elements_op();
OpDef gather_nd_op();

}  // namespace heddle::ir::ops
