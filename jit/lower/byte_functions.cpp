#include "jit/lower/byte_functions.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
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
using Bytes = std::vector<int>;           ///< patterns
using Numbers = std::vector<HostScalar>;  ///< of each of them

Bytes all_bytes() {
  Bytes all(kBytes);
  std::iota(all.begin(), all.end(), 0);
  return all;
}
/// One that hardly anything but what leaves all as they are leaves as it is.
const Bytes& one_byte() {
  static const Bytes one{100};
  return one;
}

/// What a table must save at least, in simple operations on a vector of 32-bit elements. Reading one takes 5 where registers hold
/// it; else some 3 for each element.
int least_cost(const LowerOptions& options) {
  constexpr int kOfRegisters = 12;
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
  /// @param is_known  to be plain: its element is then told by zeros, which cost nothing
  explicit OneElement(const Node& node, bool is_known = false) : node_(node) {
    if (is_known) {
      axes_.assign(node.output().sizes.size(), SymExpr(0));
      return;
    }
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
  Evaluation(const Node& node, const Known& known, std::size_t bytes)
      : OneElement(node, true), known_(known), bytes_(bytes) {}

  const Numbers& at(Scalar scalar) const { return scalars_[scalar.id]; }

  Scalar constant(DType dtype, double value) override {
    if (!is_floating(dtype)) return constant_int(dtype, static_cast<std::int64_t>(value));
    return same(HostScalar::of_real(dtype, value));
  }
  Scalar constant_int(DType dtype, std::int64_t value) override {
    return same(HostScalar::of_integer(dtype, value));
  }
  Scalar apply(ScalarOp op, std::span<const Scalar> operands) override {
    Numbers result;
    result.reserve(bytes_);
    std::vector<HostScalar> numbers(operands.size());
    for (std::size_t byte = 0; byte < bytes_; ++byte) {
      for (std::size_t k = 0; k < operands.size(); ++k) numbers[k] = at(operands[k])[byte];
      result.push_back(ir::ops::apply(op, numbers));
    }
    return push(std::move(result));
  }
  Scalar convert(Scalar value, DType dtype) override {
    Numbers result = at(value);
    for (HostScalar& number : result) number = ir::ops::convert(number, dtype);
    return push(std::move(result));
  }

 private:
  Scalar read(Value value) override {
    return is_one_constant(value) ? same(ir::ops::load(value.node->literal("value"), 0))
                                  : push(known_.at(value.node));
  }
  Scalar same(const HostScalar& number) { return push(Numbers(bytes_, number)); }
  Scalar push(Numbers numbers) {
    scalars_.push_back(std::move(numbers));
    return {static_cast<std::uint32_t>(scalars_.size() - 1), scalars_.back()[0].dtype};
  }

  const Known& known_;
  const std::size_t bytes_;
  std::vector<Numbers> scalars_;
};

class ByteFunctions {
 public:
  explicit ByteFunctions(const LowerOptions& options)
      : options_(options), least_(least_cost(options)) {}

  std::optional<std::vector<Value>> visit(ir::Rewriter& rewriter, const Node& node) {
    if (!note(node) || !is_byte(node.output().dtype)) return std::nullopt;
    std::vector<Leaf> leaves;
    const auto itself = [](const Numbers& numbers) { return numbers; };
    if (!plan(node.value(), {itself, 0, node.output().dtype}, leaves)) return std::nullopt;
    auto next = leaves.begin();
    return std::vector<Value>{emit(rewriter, node.value(), next)};
  }

 private:
  using Chain = std::vector<const Node*>;
  struct Made {
    Value root;  ///< the byte that decides it, or what shows numbers that are made of some
    int cost;    ///< of the node alone
  };
  /// What becomes of numbers.
  struct Function {
    std::function<Numbers(const Numbers&)> at;
    int cost;
    DType dtype;  ///< of what they become, a byte
  };
  /// A byte, or an entry of a table that it chooses.
  struct Leaf {
    Value byte;
    std::optional<ir::Literal> table;
  };

  bool is_free(const Node& node) const {
    return node.after().empty() && unit_of(node, options_).fuse && !ir::wants_fallback(node);
  }

  /// Whether it shows numbers that are made of bytes, each of one of them: views, and several put together.
  bool shows_numbers(const Node& node) const {
    if (node.outputs().size() != 1 || is_byte(node.output().dtype) || !is_free(node)) return false;
    const bool is_view = node.inputs().size() == 1 && classify(node, options_) == NodeClass::View;
    return (is_view || node.op_name() == "concat") &&
           std::ranges::all_of(node.inputs(), [&](const Value& input) {
             return input && made_.contains(input.node);
           });
  }

  /// Whether one byte decides each element of the node.
  bool note(const Node& node) {
    if (shows_numbers(node)) {
      shows_.insert(&node);
      made_.emplace(&node, Made{node.value(), 0});
      return true;
    }
    if (node.outputs().size() != 1 || node.op().lowering.element == nullptr ||
        node.op_name() == "gather")
      return false;
    Value found;
    for (const Value& input : node.inputs()) {
      if (!input) return false;
      if (is_one_constant(input)) continue;
      const auto made = made_.find(input.node);
      const Value root = made == made_.end() ? input : made->second.root;
      const bool is_root = is_byte(root.meta().dtype) || shows_.contains(root.node);
      if (!is_root || (found && found != root) || input.meta().sizes != node.output().sizes)
        return false;
      found = root;
    }
    if (!found || !is_free(node) || classify(node, options_) != NodeClass::Element) return false;
    Cost cost(node);
    cost.run();
    if (!cost.is_plain()) return false;
    made_.emplace(&node, Made{found, cost.operations});
    return true;
  }

  /// What makes `node` of its root, in order. @return what it costs
  int collect(const Node* node, Chain& chain, std::unordered_set<const Node*>& seen) const {
    const auto made = made_.find(node);
    if (made == made_.end() || shows_.contains(node) || !seen.insert(node).second) return 0;
    int cost = made->second.cost;
    for (const Value& input : node->inputs()) cost += collect(input.node, chain, seen);
    chain.push_back(node);
    return cost;
  }

  /// What a chain makes of numbers of its root.
  static Numbers numbers_of(const Chain& chain, Value root, const Numbers& numbers) {
    if (chain.empty()) return numbers;
    Evaluation::Known known{{root.node, numbers}};
    for (const Node* node : chain) {
      Evaluation evaluation(*node, known, numbers.size());
      const Scalar result = evaluation.run();
      known.emplace(node, evaluation.at(result));
    }
    return known.at(chain.back());
  }

  /// Finds what each byte behind `made` becomes by `behind`. @return whether all are worth it
  bool plan(Value made, const Function& behind, std::vector<Leaf>& leaves) const {
    Chain chain;
    std::unordered_set<const Node*> seen;
    const int cost = collect(made.node, chain, seen) + behind.cost;
    const Value root = made_.at(made.node).root;
    const auto at = [&](const Numbers& numbers) {
      return behind.at(numbers_of(chain, root, numbers));
    };
    if (!shows_.contains(root.node))
      return plan_byte(chain, root, {at, cost, behind.dtype}, leaves);
    return std::ranges::all_of(root.node->inputs(), [&](const Value& input) {
      return plan(input, {at, cost, behind.dtype}, leaves);
    });
  }

  static bool plan_byte_itself(const Chain& chain, Value root, const Function& function,
                               std::vector<Leaf>& leaves) {
    // Copies that a chain begins with are made: they lie where they should.
    Value byte = root;
    auto rest = chain.begin();
    for (; rest != chain.end() && (*rest)->op_name() == "clone"; ++rest) byte = (*rest)->value();
    const auto copies = [](const Node* node) { return node->op_name() == "clone"; };
    if (root.meta().dtype != function.dtype || rest == chain.end() ||
        std::any_of(rest, chain.end(), copies))
      return false;
    const auto are_same = [&](const Bytes& bytes) {
      const Numbers numbers = function.at(numbers_as(function.dtype, bytes));
      for (std::size_t k = 0; k < bytes.size(); ++k)
        if (numbers[k].integer != HostScalar::of_integer(function.dtype, bytes[k]).integer)
          return false;
      return true;
    };
    if (!are_same(one_byte()) || !are_same(all_bytes())) return false;
    leaves.push_back({byte, std::nullopt});
    return true;
  }

  bool plan_byte(const Chain& chain, Value root, const Function& function,
                 std::vector<Leaf>& leaves) const {
    if (plan_byte_itself(chain, root, function, leaves)) return true;
    if (function.cost < least_) return false;
    const Numbers numbers = function.at(numbers_as(root.meta().dtype, all_bytes()));
    ir::Literal table(function.dtype, {kBytes});
    for (int k = 0; k < kBytes; ++k) ir::ops::store(table, k, numbers[static_cast<std::size_t>(k)]);
    leaves.push_back({root, std::move(table)});
    return true;
  }

  static Numbers numbers_as(DType dtype, const Bytes& bytes) {
    Numbers numbers;
    numbers.reserve(bytes.size());
    for (const int pattern : bytes) numbers.push_back(HostScalar::of_integer(dtype, pattern));
    return numbers;
  }

  Value emit(ir::Rewriter& rewriter, Value made, std::vector<Leaf>::iterator& next) const {
    GraphBuilder& builder = rewriter.builder();
    const Value root = made_.at(made.node).root;
    if (!shows_.contains(root.node)) {
      Leaf& leaf = *next++;
      Value byte = rewriter.map(leaf.byte);
      if (!leaf.table) return byte;
      if (byte.meta().dtype != DType::U8)
        byte = builder.emit("convert", {byte}, {{"dtype", DType::U8}});
      return builder.emit("gather", {builder.constant(std::move(*leaf.table)), byte});
    }
    std::vector<Value> operands;
    for (const Value& input : root.node->inputs()) operands.push_back(emit(rewriter, input, next));
    return builder.call(root.node->op(), operands, root.node->attrs())->value();
  }

  const LowerOptions& options_;
  const int least_;  ///< what a chain costs that a table replaces
  std::unordered_map<const Node*, Made> made_;
  std::unordered_set<const Node*> shows_;  ///< those of made_ that show numbers
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
