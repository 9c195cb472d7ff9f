// Heads and rotary embeddings, as standard ops and those of com.microsoft have them.
#pragma once

#include "engine/onnx/node.h"

namespace heddle::onnx {

/// [B, H, L, D] of x [B, L, H * D]; `name` is the attribute that says how many heads. @throws ModelError.
Tensor split_heads(const Node& node, const Tensor& x, std::int64_t heads, std::string_view name);
/// [B, L, H * D] of x [B, H, L, D].
Tensor join_heads(const Tensor& x);
/// [B, heads, L, D] of x [B, H, L, D]: each of its heads heads / H times in a row.
Tensor repeat_heads(const Tensor& x, const SymInt& heads);

/// Angles by which pairs of numbers are turned.
struct Rotary {
  Tensor cosines;            ///< [B or 1, L, size / 2]
  Tensor sines;              ///< the same
  std::int64_t size = 0;     ///< numbers of each head that are turned, the first ones; 0: all
  bool interleaved = false;  ///< pairs are neighbours, not half the size apart
};

/// x [B, H, L, D], or [B, L, heads * D]. @throws ModelError.
Tensor rotated(const Node& node, const Tensor& x, std::int64_t heads, const Rotary& rotary);

/// x of four dimensions, the last one D, to which the angles broadcast but for that.
Tensor rotated(const Node& node, const Tensor& x, const Tensor& cosines, const Tensor& sines,
               const Rotary& rotary);

}  // namespace heddle::onnx
