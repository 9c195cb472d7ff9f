// Resizing by weights made when the model is read: what filters that are widened and crops need.
#pragma once

#include "engine/onnx/node.h"

namespace heddle::onnx {

/// How one dimension is resized.
struct ResizedDim {
  std::int64_t axis = 0;
  std::int64_t in = 1;
  std::int64_t out = 1;
  double scale = 1;  ///< out / in, or what the model says
  double begin = 0;  ///< of the crop, as a share of the dimension
  double end = 1;
};

/// What a Resize node says of all its dimensions.
struct ResizeRules {
  std::string mode;         ///< nearest, linear or cubic
  std::string coordinates;  ///< coordinate_transformation_mode
  std::string nearest;      ///< nearest_mode
  double cubic_a = -0.75;
  bool exclude_outside = false;
  bool antialias =
      false;  ///< where a dimension shrinks, the filter is as wide as what an element stands for
  double extrapolation = 0;  ///< elements whose position in a crop is outside of x
};

/// x with `dims` resized, of its dtype or f32 at least: what is between elements is not rounded to integers.
/// @throws UnsupportedError of a dimension without elements, or whose sizes multiply to more than 2^26; ModelError for rules
///         that are none.
/// Source: ONNX Resize-19 and its evaluator.
Tensor resized_by_weights(const Node& node, const Tensor& x, const std::vector<ResizedDim>& dims,
                          const ResizeRules& rules);

}  // namespace heddle::onnx
