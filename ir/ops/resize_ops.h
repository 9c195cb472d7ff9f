// Resizing: the definition, its lowering, and the attributes both read.
#pragma once

#include <string_view>

#include "ir/ops/dense.h"

namespace heddle::ir::ops {

enum class ResizeMode : std::uint8_t { Nearest, Linear, Cubic };
ResizeMode resize_mode(const Node& node);

/// Whether dimension `d` is sampled; the others are copied: their size does not change and they
/// have no scale but 1.
bool is_resized(const Node& node, std::size_t d);
/// The scale given for dimension `d`; 0 where there is none.
double given_scale(const Node& node, std::size_t d);

/// One element of the result: nearest reads one element of x, linear 2^n and cubic 4^n over n
/// resized dimensions.
Scalar resize_element(ElementBuilder& builder, const Node& node, std::uint32_t output,
                      std::span<const SymExpr> index);

}  // namespace heddle::ir::ops
