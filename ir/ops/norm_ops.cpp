#include "ir/ops/norm_ops.h"

#include <cmath>

#include "ir/ops/families.h"

namespace heddle::ir {
namespace ops {

std::vector<std::int64_t> axes_between(std::int64_t first, std::int64_t last) {
  std::vector<std::int64_t> axes;
  for (std::int64_t axis = first; axis < last; ++axis) axes.push_back(axis);
  return axes;
}

Value emit_standardized(Emitter& emit, Value value, const std::vector<std::int64_t>& axes,
                        double epsilon) {
  const Value centred = emit.sub(value, emit.reduce("reduce_mean", value, axes));
  const Value variance = emit.reduce("reduce_mean", emit.mul(centred, centred), axes);
  return emit.mul(centred, emit.one_operand("rsqrt", emit.add_number(variance, epsilon)));
}

void standardize(std::span<double> values, double epsilon) {
  const auto count = static_cast<double>(values.size());
  double mean = 0;
  for (const double value : values) mean += value / count;
  double variance = 0;
  for (const double value : values) variance += (value - mean) * (value - mean) / count;
  for (double& value : values) value = (value - mean) / std::sqrt(variance + epsilon);
}

}  // namespace ops

std::span<const OpDef> norm_ops() {
  static const OpDef defs[] = {ops::softmax_op(),  ops::log_softmax_op(), ops::layer_norm_op(),
                               ops::rms_norm_op(), ops::group_norm_op(),  ops::batch_norm_op()};
  return defs;
}

}  // namespace heddle::ir
