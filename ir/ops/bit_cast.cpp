// heddle::bit_cast: the bits of elements as elements of another dtype.
//
//   x        S[d0 .. dn-1]
//   dtype    T
//   result   T[d0 .. dn-1]
//
// Constraints. The shape function checks them in this order; tests are named BitCast.C1 ...
//   C1  S and T are equally wide
//   C2  T is not bool, whose elements have two values only
//
// Memory: the result is fresh. Only on the CPU.
// Source: ONNX BitCast-26; C++ std::bit_cast.
#include <cstring>

#include "ir/known_sizes.h"
#include "ir/ops/host_ops.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> shape_bit_cast(const CustomShapes& shapes) {
  const InferContext& context = shapes.context;
  const TensorMeta& x = shapes.tensors[0];
  const DType dtype = std::get<DType>(context.attrs.find("dtype")->second);
  const std::string got(name_of(x.dtype));
  if (size_of(dtype) != size_of(x.dtype))
    context.fail_dtype("C1 x", "a dtype as wide as " + std::string(name_of(dtype)), got);
  if (dtype == DType::Bool && x.dtype != DType::Bool)
    context.fail_dtype("C2 dtype", "no bool", std::string(name_of(dtype)));
  return {TensorMeta::of(dtype, x.sizes)};
}

/// Copies the elements of `x` from dimension `d` on to `to`, row by row. @return what is behind them.
char* copy_from(const KernelTensor& x, std::size_t d, const char* from, char* to) {
  const std::size_t width = size_of(x.dtype);
  if (d == x.sizes().size()) {
    std::memcpy(to, from, width);
    return to + width;
  }
  const auto count = static_cast<std::size_t>(x.sizes()[d]);
  if (d + 1 == x.sizes().size() && x.strides()[d] == 1) {
    if (count > 0) std::memcpy(to, from, count * width);
    return to + count * width;
  }
  const std::int64_t step = x.strides()[d] * static_cast<std::int64_t>(width);
  for (std::size_t k = 0; k < count; ++k)
    to = copy_from(x, d + 1, from + static_cast<std::int64_t>(k) * step, to);
  return to;
}

}  // namespace

std::unique_ptr<CustomOp> bit_cast_op() {
  auto op = std::make_unique<CustomOp>();
  op->schema = parse_op_schema("heddle::bit_cast(Tensor x, dtype dtype) -> Tensor");
  op->shape = shape_bit_cast;
  op->cpu = [](const KernelCall& call) {
    if (call.results[0].count() == 0) return;
    copy_from(call.tensor(0), 0, call.tensor(0).as<const char>(), call.results[0].as<char>());
  };
  return op;
}

}  // namespace heddle::ir::ops
