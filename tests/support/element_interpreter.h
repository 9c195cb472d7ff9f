// Runs element and view lowerings point by point on host tensors: the other side of the
// differential test of op definitions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/element.h"
#include "ir/graph.h"
#include "ir/literal.h"
#include "ir/op.h"
#include "ir/ops/host_scalar.h"

namespace heddle::testing {

/// An element builder that computes at once. Every index it is given is evaluated; outside a guard
/// that does not hold, one out of range throws std::out_of_range. What is read where a guard does
/// not hold is a poison value, so that a lowering which forgets its Select shows.
class ElementInterpreter final : public ir::ElementBuilder {
 public:
  /// `values`: size symbols, and the axes that the result index is written with.
  ElementInterpreter(const ir::Node& node, std::span<const ir::Literal> operands,
                     base::SymbolValues values)
      : node_(node), operands_(operands), values_(std::move(values)) {}

  ir::Scalar operand(std::size_t k, std::span<const base::SymExpr> index) override;
  ir::Scalar constant(DType dtype, double value) override;
  ir::Scalar constant_int(DType dtype, std::int64_t value) override;
  ir::Scalar apply(ir::ScalarOp op, std::span<const ir::Scalar> operands) override;
  ir::Scalar convert(ir::Scalar value, DType dtype) override;
  ir::Scalar from_index(const base::SymExpr& index) override;
  base::SymExpr to_index(ir::Scalar value, const base::SymExpr& low, const base::SymExpr& high,
                         bool checked) override;
  ir::Scalar predicate(const base::Predicate& predicate) override;
  void begin_guard(ir::Scalar condition) override;
  void end_guard() override;

  const ir::ops::HostScalar& value(ir::Scalar scalar) const { return scalars_.at(scalar.id); }
  bool guards_closed() const { return guards_.empty(); }

 private:
  ir::Scalar push(ir::ops::HostScalar value);
  bool reachable() const;

  const ir::Node& node_;
  std::span<const ir::Literal> operands_;
  base::SymbolValues values_;
  std::vector<ir::ops::HostScalar> scalars_;
  std::vector<bool> guards_;
  std::uint32_t next_temp_ = 0;
};

/// Output `output` of `node` by its element lowering, or its view lowering where it has no other.
///
/// @param operands  concrete tensors, one for each of the node's inputs (default where absent).
/// @param sizes     values of the size symbols in the node's metadata.
/// @throws IndexError where a checked index is out of range.
ir::Literal interpret(const ir::Node& node, std::span<const ir::Literal> operands,
                      const base::SymbolValues& sizes, std::uint32_t output = 0);

/// Whether interpret() can run `op`.
inline bool interpretable(const ir::OpDef& op) {
  return op.lowering.element != nullptr || op.lowering.view != nullptr;
}

}  // namespace heddle::testing
