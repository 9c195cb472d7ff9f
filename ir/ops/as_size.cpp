// heddle::as_size: a number as a size.
//
//   number   i64[]
//   result   u8[u, 0], without elements; u is a size that only the run tells: the number
//
// The inverse of symint. iota, expand, reshape and all that take sizes take u: what keeps as many elements as the data
// say is made of it.
//
// Constraints. Tests are named AsSize.C1 ...
//   C1  number is one i64
//   C2  number >= 0, as all sizes: whoever asks for the sizes of results checks it, when the call runs
//
// Memory: no bytes.
#include "ir/known_sizes.h"
#include "ir/ops/host_ops.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> shape_as_size(const CustomShapes& shapes) {
  const TensorMeta& number = shapes.tensors[0];
  if (number.dtype != DType::I64 || number.rank() != 0)
    shapes.context.fail_dtype("C1 number", "i64[]", seen(shapes.context.env, number).to_string());
  return {TensorMeta::of(DType::U8, {shapes.context.env.fresh_unbacked(), 0})};
}

std::vector<Sizes> sizes(const KernelCall& call) {
  return {{*call.tensor(0).as<const std::int64_t>(), 0}};
}

}  // namespace

std::unique_ptr<CustomOp> as_size_op() {
  auto op = std::make_unique<CustomOp>();
  op->schema = parse_op_schema("heddle::as_size(Tensor number) -> Tensor");
  op->shape = shape_as_size;
  op->sizes = sizes;
  op->cpu = [](const KernelCall&) {};
  op->cuda = [](const KernelCall&, void*) {};
  return op;
}

}  // namespace heddle::ir::ops
