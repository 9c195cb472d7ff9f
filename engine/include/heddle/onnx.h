// ONNX model files.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "heddle/engine.h"
#include "heddle/error.h"

namespace heddle::onnx {

/// Values of inputs that are known when the model is loaded, by input name. They become parameters and are
/// no inputs of the engine.
using Constants = std::map<std::string, Tensor, std::less<>>;

/// The model needs the value of one of its inputs while it is traced: a shape, axes, a number of steps.
/// Load it with that input among its Constants.
class HEDDLE_API NeedsValueError : public UnsupportedError {
 public:
  NeedsValueError(Parts parts, std::string input);
  NeedsValueError(const NeedsValueError&) = default;
  NeedsValueError& operator=(const NeedsValueError&) = default;
  ~NeedsValueError() override;
  const std::string& input() const { return input_; }

 private:
  std::string input_;
};

/// An engine over the model in `path` (opset 1 to 28 of ai.onnx; external data beside the file). Weights stay mapped
/// from the files: replace such a file by renaming, do not write into it. Declared dtypes of outputs
/// are held to what the nodes give when the model is traced; their declared sizes are taken as hints.
/// @throws ModelError (malformed, hostile), UnsupportedError naming node, op and domain.
HEDDLE_API Engine load(const std::string& path, EngineOptions options = {},
                       const Constants& constants = {});
/// The same from bytes in memory; `folder`: where external data lies, empty if there is none.
HEDDLE_API Engine load_bytes(const void* data, std::size_t size, EngineOptions options = {},
                             const std::string& folder = {}, const Constants& constants = {});
/// Reads a TensorProto file (.pb). @throws ModelError.
HEDDLE_API Tensor load_tensor(const std::string& path);

}  // namespace heddle::onnx
