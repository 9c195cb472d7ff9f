// Model files without their weights, so that parsing does not copy them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::onnx {

struct LeanModel {
  /// The model without the raw data of its large initialisers. Constant nodes of as much data became initialisers, after
  /// all others.
  std::string bytes;
  std::size_t constants = 0;  ///< initialisers that were Constant nodes
  /// Of each initialiser of the main graph, in order: the raw data left out, where it lies; empty: none.
  std::vector<std::string_view> weights;
};

/// `model`, a serialised ModelProto, without its weights. Nothing where these are less than half of it, and where the
/// bytes are not plainly those of one model: that is left to the parser.
std::optional<LeanModel> without_weights(std::string_view model);

}  // namespace heddle::onnx
