// Features and scores as the models of ai.onnx.ml take and give them.
#pragma once

#include "engine/onnx/node.h"

namespace heddle::onnx {

/// [numbers], i64, or floats.
Tensor row_of(const Ints& numbers);
Tensor row_of(const std::vector<double>& numbers, DType dtype = f32);
Tensor as_f32(const Tensor& x);
/// The node's first input as rows [n, features] of f32, or f64 if it is that and `wide`. Of one dimension it is one row.
Tensor rows_of(const Node& node, bool wide = false);

/// What the attribute `post_transform` makes of scores [n, classes].
Tensor transformed(const Node& node, const Tensor& scores, const std::string& post_transform);

/// The labels of a classifier, one for each class.
struct Labels {
  Labels(const Node& node, const char* ints, const char* strings);
  /// One for each class number: i64, or strings.
  Value of(const Tensor& classes) const;

  std::int64_t count = 0;
  Tensor all;  ///< numbers, or codes of strings
  bool are_text = false;
};

/// The class numbers [n] and scores [n, 2] of two classes of which the second one has `score` [n, 1].
/// @param threshold  what the score of the second class exceeds
/// @param complement  the first one's score is 1 - score; else -score
Outputs two_classes(const Labels& labels, const Tensor& score, double threshold, bool complement,
                    const std::string& post_transform);

}  // namespace heddle::onnx
