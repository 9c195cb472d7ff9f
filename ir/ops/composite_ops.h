// Pointwise ops of several scalar instructions.
#pragma once

#include "ir/op.h"

namespace heddle::ir::ops {

OpDef relu_op();
OpDef gelu_op();
OpDef silu_op();
OpDef softplus_op();
OpDef clamp_op();

}  // namespace heddle::ir::ops
