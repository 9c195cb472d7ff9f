// ONNX model files.
#pragma once

#include <cstddef>
#include <string>

#include "heddle/engine.h"

namespace heddle::onnx {

/// An engine over the model in `path` (opset 1 to 21 of ai.onnx; external data beside the file).
/// @throws ModelError (malformed, hostile), UnsupportedError naming node, op and domain.
HEDDLE_API Engine load(const std::string& path, EngineOptions options = {});
/// The same from bytes in memory; `folder`: where external data lies, empty if there is none.
HEDDLE_API Engine load_bytes(const void* data, std::size_t size, EngineOptions options = {},
                             const std::string& folder = {});
/// Reads a TensorProto file (.pb). @throws ModelError.
HEDDLE_API Tensor load_tensor(const std::string& path);

}  // namespace heddle::onnx
