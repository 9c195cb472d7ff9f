// What DequantizeLinear and QuantizeLinear are, of one scale and one zero point.
#pragma once

#include "ir/graph.h"

namespace heddle::test {

inline ir::Value dequantised(ir::GraphBuilder& b, ir::Value bytes, std::int64_t zero,
                             double scale) {
  ir::Value wide = b.emit("convert", {bytes}, {{"dtype", DType::I32}});
  if (zero != 0)
    wide = b.emit("sub", {wide, b.constant(ir::Literal::scalar_int(DType::I32, zero))});
  return b.emit("mul", {b.emit("convert", {wide}, {{"dtype", DType::F32}}),
                        b.constant(ir::Literal::scalar(DType::F32, scale))});
}

inline ir::Value quantised(ir::GraphBuilder& b, ir::Value x, DType dtype, double zero,
                           double scale) {
  const auto number = [&](double value) {
    return b.constant(ir::Literal::scalar(DType::F32, value));
  };
  const double least = dtype == DType::I8 ? -128 : 0;
  const ir::Value y = b.emit("round", {b.emit("div", {x, number(scale)})});
  const ir::Value bounded =
      b.emit("clamp", {b.emit("add", {y, number(zero)}), number(least), number(least + 255)});
  return b.emit("convert", {bounded}, {{"dtype", dtype}});
}

}  // namespace heddle::test
