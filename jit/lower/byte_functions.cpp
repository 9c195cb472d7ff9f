#include "jit/lower/byte_functions.h"

#include <array>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/element.h"
#include "ir/op.h"
#include "ir/ops/host_scalar.h"
#include "ir/passes/form_regions.h"
#include "jit/lower/decompose.h"

namespace heddle::jit {
namespace {

using ir::GraphBuilder;
using ir::Node;
using ir::Scalar;
using ir::ScalarOp;
using ir::Value;
using ir::ops::HostScalar;

constexpr int kBytes = 256;
using Numbers = std::array<HostScalar, kBytes>;  ///< of each byte

/// What a table must save at least, in simple operations on a vector of 32-bit elements. Reading one takes 5 where registers hold
/// it; else some 3 for each element.
int least_cost(const LowerOptions& options) {
  constexpr int kOfRegisters = 24;
  constexpr int kOfElement = 3;
  constexpr int kElementBytes = 4;
  if (options.byte_tables) return kOfRegisters;
  return kOfElement * static_cast<int>(options.vector_bytes) / kElementBytes;
}

int cost_of(ScalarOp op) {
  switch (op) {
    case ScalarOp::Div:
    case ScalarOp::Sqrt:
    case ScalarOp::Reciprocal:
    case ScalarOp::Rsqrt:
      return 8;
    default:
      return op >= ScalarOp::Exp && op <= ScalarOp::Sigmoid ? 20 : 1;
  }
}

bool is_one_constant(Value value) {
  return value.node->op_name() == "const" && value.meta().count().is_constant(1);
}

/// Element `axes` of a node whose operands are read there alone.
class OneElement : public ir::ElementBuilder {
 public:
  explicit OneElement(const Node& node) : node_(node) {
    std::uint32_t axis = 0;
    for (const SymExpr& size : node.output().sizes) {
      const Symbol symbol{Symbol::Kind::Axis, axis++};
      axes_.push_back(size.is_constant(1) ? SymExpr(0) : SymExpr(symbol));
    }
  }

  Scalar run() { return node_.op().lowering.element(*this, node_, 0, axes_); }
  /// Whether nothing but operands at this element decides it.
  bool is_plain() const { return plain_; }

  Scalar operand(std::size_t k, std::span<const SymExpr> index) override {
    const Value value = node_.input(k);
    plain_ = plain_ && (is_one_constant(value) || std::ranges::equal(index, axes_));
    return read(value);
  }
  Scalar from_index(const SymExpr&) override { return other(DType::I64); }
  SymExpr to_index(Scalar, const SymExpr& low, const SymExpr&, bool) override {
    plain_ = false;
    return low;
  }
  Scalar predicate(const base::Predicate&) override { return other(DType::Bool); }
  void begin_guard(Scalar) override { plain_ = false; }
  void end_guard() override {}

 protected:
  virtual Scalar read(Value value) = 0;

 private:
  Scalar other(DType dtype) {
    plain_ = false;
    return {0, dtype};
  }

  const Node& node_;
  std::vector<SymExpr> axes_;
  bool plain_ = true;
};

/// What a node costs.
class Cost final : public OneElement {
 public:
  using OneElement::OneElement;
  int operations = 0;

  Scalar constant(DType dtype, double) override { return {0, dtype}; }
  Scalar constant_int(DType dtype, std::int64_t) override { return {0, dtype}; }
  Scalar apply(ScalarOp op, std::span<const Scalar> operands) override {
    operations += cost_of(op);
    return {0, ir::result_of(op, operands[op == ScalarOp::Select ? 1 : 0].dtype)};
  }
  Scalar convert(Scalar, DType dtype) override {
    ++operations;
    return {0, dtype};
  }

 private:
  Scalar read(Value value) override { return {0, value.meta().dtype}; }
};

/// What a node is for each byte.
class Evaluation final : public OneElement {
 public:
  using Known = std::unordered_map<const Node*, Numbers>;
  Evaluation(const Node& node, const Known& known) : OneElement(node), known_(known) {}

  const Numbers& at(Scalar scalar) const { return scalars_[scalar.id]; }

  Scalar constant(DType dtype, double value) override {
    return same(HostScalar::of_real(dtype, value));
  }
  Scalar constant_int(DType dtype, std::int64_t value) override {
    return same(HostScalar::of_integer(dtype, value));
  }
  Scalar apply(ScalarOp op, std::span<const Scalar> operands) override {
    Numbers result;
    std::vector<HostScalar> numbers(operands.size());
    for (std::size_t byte = 0; byte < kBytes; ++byte) {
      for (std::size_t k = 0; k < operands.size(); ++k) numbers[k] = at(operands[k])[byte];
      result[byte] = ir::ops::apply(op, numbers);
    }
    return push(result);
  }
  Scalar convert(Scalar value, DType dtype) override {
    Numbers result = at(value);
    for (HostScalar& number : result) number = ir::ops::convert(number, dtype);
    return push(result);
  }

 private:
  Scalar read(Value value) override {
    return is_one_constant(value) ? same(ir::ops::load(value.node->literal("value"), 0))
                                  : push(known_.at(value.node));
  }
  Scalar same(const HostScalar& number) {
    Numbers all;
    all.fill(number);
    return push(all);
  }
  Scalar push(const Numbers& numbers) {
    scalars_.push_back(numbers);
    return {static_cast<std::uint32_t>(scalars_.size() - 1), numbers[0].dtype};
  }

  const Known& known_;
  std::vector<Numbers> scalars_;
};

class ByteFunctions {
 public:
  explicit ByteFunctions(const LowerOptions& options)
      : options_(options), least_(least_cost(options)) {}

  std::optional<std::vector<Value>> visit(ir::Rewriter& rewriter, const Node& node) {
    if (!note(node) || !is_byte(node.output().dtype)) return std::nullopt;
    std::vector<const Node*> chain;
    std::unordered_set<const Node*> seen;
    if (collect(&node, chain, seen) < least_) return std::nullopt;
    GraphBuilder& builder = rewriter.builder();
    Value byte = rewriter.map(made_.at(&node).byte);
    if (byte.meta().dtype != DType::U8)
      byte = builder.emit("convert", {byte}, {{"dtype", DType::U8}});
    return std::vector<Value>{builder.emit("gather", {builder.constant(table_of(chain)), byte})};
  }

 private:
  struct Made {
    Value byte;  ///< that decides it
    int cost;    ///< of the node alone
  };

  /// Whether one byte decides the node.
  bool note(const Node& node) {
    if (node.outputs().size() != 1 || node.op().lowering.element == nullptr ||
        node.op_name() == "gather")
      return false;
    Value byte;
    for (const Value& input : node.inputs()) {
      if (!input) return false;
      if (is_one_constant(input)) continue;
      const auto made = made_.find(input.node);
      const Value root = made == made_.end() ? input : made->second.byte;
      if (!is_byte(root.meta().dtype) || (byte && byte != root) ||
          input.meta().sizes != node.output().sizes)
        return false;
      byte = root;
    }
    if (!byte || !node.after().empty() || !unit_of(node, options_).fuse ||
        ir::wants_fallback(node) || classify(node, options_) != NodeClass::Element)
      return false;
    Cost cost(node);
    cost.run();
    if (!cost.is_plain()) return false;
    made_.emplace(&node, Made{byte, cost.operations});
    return true;
  }

  /// What makes `node` of its byte, in order. @return what it costs
  int collect(const Node* node, std::vector<const Node*>& chain,
              std::unordered_set<const Node*>& seen) const {
    const auto made = made_.find(node);
    if (made == made_.end() || !seen.insert(node).second) return 0;
    int cost = made->second.cost;
    for (const Value& input : node->inputs()) cost += collect(input.node, chain, seen);
    chain.push_back(node);
    return cost;
  }

  ir::Literal table_of(const std::vector<const Node*>& chain) const {
    const Value byte = made_.at(chain.back()).byte;
    Evaluation::Known known;
    Numbers& patterns = known[byte.node];
    for (int pattern = 0; pattern < kBytes; ++pattern)
      patterns[static_cast<std::size_t>(pattern)] =
          HostScalar::of_integer(byte.meta().dtype, pattern);
    for (const Node* node : chain) {
      Evaluation evaluation(*node, known);
      const Scalar result = evaluation.run();
      known.emplace(node, evaluation.at(result));
    }
    ir::Literal table(chain.back()->output().dtype, {kBytes});
    for (int k = 0; k < kBytes; ++k)
      ir::ops::store(table, k, known.at(chain.back())[static_cast<std::size_t>(k)]);
    return table;
  }

  const LowerOptions& options_;
  const int least_;  ///< what a chain costs that a table replaces
  std::unordered_map<const Node*, Made> made_;
};

}  // namespace

ir::Graph byte_functions(const ir::Graph& graph, const LowerOptions& options) {
  if (options.target != LowerOptions::Target::Cpu) return graph;
  ByteFunctions functions(options);
  return ir::rewrite(graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) {
    return functions.visit(rewriter, *node);
  });
}

}  // namespace heddle::jit
