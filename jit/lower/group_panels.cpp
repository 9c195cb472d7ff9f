#include "jit/lower/group_panels.h"

namespace heddle::jit {

ir::Value emit_group_panels(ir::GraphBuilder& builder, ir::Value matrix, std::int64_t group,
                            std::int64_t width) {
  const DType dtype = matrix.meta().dtype;
  const SymExpr depth = matrix.meta().sizes[0];
  const SymExpr columns = matrix.meta().sizes[1];
  const SymExpr groups = ceildiv(depth, group);
  const SymExpr count = ceildiv(columns, width);
  const ir::Dims missing{groups * group - depth, count * width - columns};
  if (!missing[0].is_constant(0) || !missing[1].is_constant(0)) {
    const ir::Value zero = builder.constant(is_floating(dtype) ? ir::Literal::scalar(dtype, 0)
                                                               : ir::Literal::scalar_int(dtype, 0));
    matrix = builder.emit("pad", {matrix, zero}, {{"low", ir::Dims{0, 0}}, {"high", missing}});
  }
  const ir::Dims split{groups, SymExpr(group), count, SymExpr(width)};
  const ir::Value parts = builder.emit("reshape", {matrix}, {{"sizes", split}});
  return builder.emit("clone", {builder.emit("permute", {parts},
                                             {{"perm", std::vector<std::int64_t>{2, 0, 3, 1}}})});
}

ir::Value without_widening(ir::Value value) {
  if (value.node->op_name() != "convert" || value.meta().dtype != DType::F32) return value;
  const ir::Value narrow = value.node->input(0);
  const DType dtype = narrow.meta().dtype;
  return dtype == DType::F16 || dtype == DType::BF16 || is_float8(dtype) ? narrow : value;
}

namespace {

/// Whether a value is that of attention in another order.
bool shows_attention(ir::Value value) {
  bool is_view = false;
  while (value.node->op_name() == "permute" || value.node->op_name() == "reshape") {
    value = value.node->input(0);
    is_view = true;
  }
  return is_view && value.node->op_name() == "attention";
}

}  // namespace

ir::Value as_bf16(ir::GraphBuilder& builder, ir::Value value) {
  if (value.meta().dtype == DType::BF16) return value;
  const ir::Value from = without_widening(value);
  if (from.meta().dtype == DType::BF16) return from;
  if (shows_attention(value)) {
    const ir::Node& view = *value.node;
    return builder.emit(view.op_name(), {as_bf16(builder, view.input(0))}, view.attrs());
  }
  return builder.emit("convert", {value}, {{"dtype", DType::BF16}});
}

}  // namespace heddle::jit
