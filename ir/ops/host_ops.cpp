#include "ir/ops/host_ops.h"

namespace heddle::ir::ops {

std::vector<std::unique_ptr<CustomOp>> host_ops() {
  std::vector<std::unique_ptr<CustomOp>> ops;
  ops.push_back(as_size_op());
  ops.push_back(bit_cast_op());
  ops.push_back(non_max_suppression_op());
  ops.push_back(random_key_op());
  return ops;
}

}  // namespace heddle::ir::ops
