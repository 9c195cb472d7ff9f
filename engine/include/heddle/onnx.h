// ONNX model files.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

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

/// The codes by which an engine's inputs and outputs of strings (ValueInfo::is_text) say them. Those of the model's own strings are the
/// same in each; others get one when they are first met, which holds in this object alone: one for each call, or for as many calls as
/// shall pass strings on to each other. Cheap to make; not for several threads at once.
class HEDDLE_API StringCodes {
 public:
  explicit StringCodes(const Signature& signature);
  std::int64_t code_of(std::string_view text);
  /// Codes are below it.
  std::int64_t count() const { return static_cast<std::int64_t>(known_->size() + met_.size()); }
  /// @throws ArgumentError: no string has that code.
  const std::string& string_of(std::int64_t code) const;
  /// A tensor of codes. @throws ArgumentError: another number of strings than `sizes` say.
  Tensor encode(std::span<const std::string> strings, Sizes sizes);
  /// Row-major. @throws ArgumentError: not i64 on the CPU, or as string_of() does.
  std::vector<std::string> decode(const Tensor& codes) const;

 private:
  StringTable known_;
  std::deque<std::string> met_;
  std::unordered_map<std::string, std::int64_t> codes_of_met_;
};

/// An engine over the model in `path` (opset 1 to 28 of ai.onnx; external data beside the file). Weights stay mapped
/// from the files: replace such a file by renaming, do not write into it. Declared dtypes of outputs
/// are held to what the nodes give when the model is traced; their declared sizes are taken as hints. Tensors of strings are tensors
/// of their codes, and the maps of ZipMap the tensor of their values, [rows, keys] (ValueInfo::columns).
/// @throws ModelError (malformed, hostile), UnsupportedError naming node, op and domain.
HEDDLE_API Engine load(const std::string& path, EngineOptions options = {},
                       const Constants& constants = {});
/// The same from bytes in memory; `folder`: where external data lies, empty if there is none.
HEDDLE_API Engine load_bytes(const void* data, std::size_t size, EngineOptions options = {},
                             const std::string& folder = {}, const Constants& constants = {});
/// Reads a TensorProto file (.pb). @throws ModelError; UnsupportedError if it is of strings.
HEDDLE_API Tensor load_tensor(const std::string& path);
/// The same; strings become codes.
HEDDLE_API Tensor load_tensor(const std::string& path, StringCodes& codes);

}  // namespace heddle::onnx
