#include "tests/support/element_interpreter.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "base/check.h"
#include "heddle/error.h"
#include "ir/ops/common.h"

namespace heddle::testing {

using base::SymExpr;
using ir::Literal;
using ir::Scalar;
using ir::ops::HostScalar;

namespace {

HostScalar poison(DType dtype) {
  if (is_floating(dtype)) {
    return HostScalar::of_real(dtype, std::numeric_limits<double>::quiet_NaN());
  }
  return HostScalar::of_integer(dtype, 85);
}

}  // namespace

Scalar ElementInterpreter::push(HostScalar value) {
  scalars_.push_back(value);
  return {.id = static_cast<std::uint32_t>(scalars_.size() - 1), .dtype = value.dtype};
}

bool ElementInterpreter::reachable() const {
  return std::all_of(guards_.begin(), guards_.end(), [](bool holds) { return holds; });
}

Scalar ElementInterpreter::operand(std::size_t k, std::span<const SymExpr> index) {
  const Literal& tensor = operands_[k];
  HD_CHECK(index.size() == tensor.sizes().size());
  if (!reachable()) return push(poison(tensor.dtype()));
  ir::Sizes at;
  for (std::size_t d = 0; d < index.size(); ++d) {
    at.push_back(index[d].evaluate(values_));
    if (at[d] < 0 || at[d] >= tensor.sizes()[d]) {
      throw std::out_of_range("operand " + std::to_string(k) + " is read at " +
                              index[d].to_string() + " = " + std::to_string(at[d]) +
                              " in dimension " + std::to_string(d) + " of size " +
                              std::to_string(tensor.sizes()[d]));
    }
  }
  return push(ir::ops::load(tensor, ir::ops::position_of(at, tensor.sizes())));
}

Scalar ElementInterpreter::constant(DType dtype, double value) {
  return push(ir::ops::convert(HostScalar::of_real(DType::F64, value), dtype));
}

Scalar ElementInterpreter::constant_int(DType dtype, std::int64_t value) {
  return push(ir::ops::convert(HostScalar::of_integer(DType::I64, value), dtype));
}

Scalar ElementInterpreter::apply(ir::ScalarOp op, std::span<const Scalar> operands) {
  std::vector<HostScalar> values;
  for (const Scalar operand : operands) values.push_back(value(operand));
  const HostScalar result = ir::ops::apply(op, values);
  HD_CHECK(result.dtype == ir::result_of(op, operands.size() == 3 && op == ir::ScalarOp::Select
                                                 ? operands[1].dtype
                                                 : operands[0].dtype));
  return push(result);
}

Scalar ElementInterpreter::convert(Scalar scalar, DType dtype) {
  return push(ir::ops::convert(value(scalar), dtype));
}

Scalar ElementInterpreter::from_index(const SymExpr& index) {
  return push(HostScalar::of_integer(DType::I64, index.evaluate(values_)));
}

SymExpr ElementInterpreter::to_index(Scalar scalar, const SymExpr& low, const SymExpr& high,
                                     bool checked) {
  HD_CHECK(scalar.dtype == DType::I64 || scalar.dtype == DType::I32);
  const std::int64_t first = low.evaluate(values_);
  const std::int64_t last = high.evaluate(values_);
  std::int64_t index = value(scalar).integer;
  if (index < first || index > last) {
    if (reachable()) {
      HD_CHECK(checked, "an index that the lowering promised to be in range is not");
      throw IndexError({.what = std::string(node_.op_name()) + ": index out of range",
                        .where = {},
                        .expected = {},
                        .got = std::to_string(index)});
    }
    index = first;
  }
  const base::Symbol symbol{base::Symbol::Kind::Temp, next_temp_++};
  values_[symbol] = index;
  return symbol;
}

Scalar ElementInterpreter::predicate(const base::Predicate& predicate) {
  return push(HostScalar::of_bool(predicate.evaluate(values_)));
}

void ElementInterpreter::begin_guard(Scalar condition) {
  HD_CHECK(condition.dtype == DType::Bool);
  guards_.push_back(value(condition).truth());
}

void ElementInterpreter::end_guard() {
  HD_CHECK(!guards_.empty());
  guards_.pop_back();
}

namespace {

HostScalar interpret_point(const ir::Node& node, std::span<const Literal> operands,
                           const base::SymbolValues& values, std::uint32_t output,
                           std::span<const SymExpr> index) {
  ElementInterpreter interpreter(node, operands, values);
  const ir::Lowering& lowering = node.op().lowering;
  const Scalar result = lowering.element != nullptr
                            ? lowering.element(interpreter, node, output, index)
                            : interpreter.operand(0, lowering.view(node, index));
  HD_CHECK(interpreter.guards_closed());
  return interpreter.value(result);
}

}  // namespace

Literal interpret(const ir::Node& node, std::span<const Literal> operands,
                  const base::SymbolValues& sizes, std::uint32_t output) {
  const ir::TensorMeta& meta = node.output(output);
  ir::Sizes result_sizes;
  std::vector<SymExpr> index;
  for (const SymExpr& size : meta.sizes) {
    index.push_back(SymExpr::axis(static_cast<std::uint32_t>(index.size())));
    result_sizes.push_back(size.evaluate(sizes));
  }
  Literal result(meta.dtype, result_sizes);
  base::SymbolValues values = sizes;
  for (std::int64_t p = 0; p < result.count(); ++p) {
    const ir::Sizes at = ir::ops::index_at(p, result_sizes);
    for (std::size_t d = 0; d < at.size(); ++d) values[index[d].symbol()] = at[d];
    ir::ops::store(result, p, interpret_point(node, operands, values, output, index));
  }
  return result;
}

}  // namespace heddle::testing
