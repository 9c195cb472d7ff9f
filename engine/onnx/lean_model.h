// Model files without their weights, so that parsing does not copy them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::onnx {

struct LeanModel {
  std::string bytes;  ///< the model without the raw data of its large initialisers
  /// Of each initialiser of the main graph, in order: the raw data left out, where it lies; empty: none.
  std::vector<std::string_view> weights;
};

/// `model`, a serialised ModelProto, without its weights. Nothing where these are less than half of it, and where the
/// bytes are not plainly those of one model: that is left to the parser.
std::optional<LeanModel> without_weights(std::string_view model);

}  // namespace heddle::onnx
