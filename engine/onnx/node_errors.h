// Errors that a node's conversion meets, told with the node.
#pragma once

#include <functional>
#include <string>

#include "engine/onnx/node.h"

namespace heddle::onnx {

/// What `convert` gives for the node at `where`, an op `type`. An error of the engine that does not say where it comes
/// from is thrown again with `where`.
/// @throws ModelError: `convert` met an exception of the standard library, as for a count that no container holds.
/// @throws OutOfMemory: it met std::bad_alloc.
Outputs convert_at(const std::string& type, const std::string& where,
                   const std::function<Outputs()>& convert);

}  // namespace heddle::onnx
