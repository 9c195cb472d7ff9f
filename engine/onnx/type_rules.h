// Which operands of an ONNX op have one dtype.
#pragma once

#include "engine/onnx/node.h"

namespace heddle::onnx {

/// Holds the operands of a node of the default domain to the type constraints of its schema, as far as they ask for
/// equal dtypes: the ops that they are converted to would promote instead.
/// @throws ModelError that names the node and both dtypes.
void check_operand_types(const Node& node);

}  // namespace heddle::onnx
