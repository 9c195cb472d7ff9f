#include "jit/lower/element_emitter.h"

#include <bit>

#include "base/check.h"
#include "base/hash.h"
#include "ir/op.h"
#include "ir/scope_name.h"

namespace heddle::jit {

using ir::ScalarOp;

std::int32_t CheckTable::code(std::string what, std::string where) {
  ++asked_;
  for (std::size_t k = 0; k < checks_.size(); ++k)
    if (checks_[k].what == what && checks_[k].where == where)
      return static_cast<std::int32_t>(k) + 1;
  checks_.push_back({std::move(what), std::move(where)});
  return static_cast<std::int32_t>(checks_.size());
}

/// The builder that one node's element lowering sees.
class NodeElements final : public ir::ElementBuilder {
 public:
  NodeElements(ElementEmitter& emitter, const Node& node)
      : emitter_(emitter), node_(node), builder_(emitter.builder_) {}

  Scalar operand(std::size_t k, std::span<const SymExpr> index) override {
    return emitter_.request(node_.input(k), Index(index.begin(), index.end()));
  }
  Scalar constant(DType dtype, double value) override {
    const bool floating = is_floating(dtype);
    return emitter_.constant(dtype, value, floating ? 0 : static_cast<std::int64_t>(value));
  }
  Scalar constant_int(DType dtype, std::int64_t value) override {
    return emitter_.constant(dtype, static_cast<double>(value), value);
  }
  Scalar apply(ScalarOp op, std::span<const Scalar> operands) override {
    if (op == ScalarOp::And && emitter_.is_true(operands[0])) return operands[1];
    if (op == ScalarOp::And && emitter_.is_true(operands[1])) return operands[0];
    if (op == ScalarOp::And && emitter_.is_false(operands[0])) return operands[0];
    if (op == ScalarOp::And && emitter_.is_false(operands[1])) return operands[1];
    if (op == ScalarOp::Select && emitter_.is_true(operands[0])) return operands[1];
    if (op == ScalarOp::Select && emitter_.is_false(operands[0])) return operands[2];
    return builder_.apply(op, operands);
  }
  Scalar convert(Scalar value, DType dtype) override { return builder_.convert(value, dtype); }
  Scalar from_index(const SymExpr& index) override { return emitter_.index_scalar(index); }
  SymExpr to_index(Scalar value, const SymExpr& low, const SymExpr& high, bool checked) override {
    const std::string what = ir::spoken_op(node_) + ": index out of range";
    const std::int32_t code =
        checked ? emitter_.checks_.code(what, node_.location().to_string()) : 0;
    const Scalar index = value.dtype == DType::I32 ? value : builder_.convert(value, DType::I64);
    return builder_.bind(index, low, high, code, emitter_.guard());
  }
  Scalar predicate(const base::Predicate& predicate) override {
    return emitter_.predicate(predicate);
  }
  void begin_guard(Scalar condition) override {
    const Scalar outer{emitter_.guard(), DType::Bool};
    if (emitter_.is_true(condition)) {
      condition = outer;
    } else if (outer.id != kNoScalar) {
      condition = builder_.apply(ScalarOp::And, {outer, condition});
    }
    emitter_.guards_.push_back(condition);
  }
  void end_guard() override { emitter_.guards_.pop_back(); }

 private:
  ElementEmitter& emitter_;
  const Node& node_;
  NestBuilder& builder_;
};

ElementEmitter::ElementEmitter(const LiveGraph& graph, NestBuilder& builder, KernelMemory& memory,
                               CheckTable& checks)
    : graph_(graph), builder_(builder), memory_(memory), checks_(checks) {
  open_scope();
}

std::size_t ElementEmitter::KeyHash::operator()(const Key& key) const {
  std::uint64_t hash = base::combine(reinterpret_cast<std::uintptr_t>(key.value.node),
                                     key.value.index + (std::uint64_t{key.guard} << 32));
  hash = base::combine(hash, static_cast<std::uint64_t>(key.extra));
  for (const SymExpr& expr : key.index) hash = base::combine(hash, expr.hash());
  return hash;
}

std::optional<Scalar> ElementEmitter::recall(const Key& key) const {
  for (std::size_t k = scopes_.size(); k-- > 0;) {
    const auto found = scopes_[k].find(key);
    if (found != scopes_[k].end()) return found->second;
  }
  return std::nullopt;
}

Scalar ElementEmitter::remember(Key key, Scalar scalar) {
  scopes_.back().insert_or_assign(std::move(key), scalar);
  return scalar;
}

Scalar ElementEmitter::request(Value value, const Index& index) {
  Index simple;
  simple.reserve(index.size());
  for (const SymExpr& expr : index) simple.push_back(builder_.simplify(expr));
  Key key{value, std::move(simple), guard()};
  if (auto known = recall(key)) return *known;
  if (key.guard != kNoScalar) {
    // What is right everywhere is right under a guard.
    if (auto known = recall({value, key.index, kNoScalar})) return *known;
  }
  const Scalar scalar = compute(value, key.index);
  HD_CHECK(scalar.dtype == value.meta().dtype, "element of " + value.name());
  return remember(std::move(key), scalar);
}

Scalar ElementEmitter::request_masked(Value value, const Index& index, ScalarId mask) {
  if (mask == kNoScalar) return request(value, index);
  guards_.push_back(Scalar{mask, DType::Bool});
  const Scalar scalar = request(value, index);
  guards_.pop_back();
  return scalar;
}

Scalar ElementEmitter::compute(Value value, const Index& index) {
  const Value storage = graph_.storage(value);
  if (memory_.is_loaded(storage)) return load(storage, value, index);
  if (override_value) {
    if (auto given = override_value(value, index)) return *given;
  }
  const Node& node = *value.node;
  if (is_computed_.insert(&node).second) computed_.push_back(&node);
  const ir::Lowering& ways = node.op().lowering;
  switch (graph_.class_of(&node)) {
    case NodeClass::View:
      return request(node.input(0), ways.view(node, index));
    case NodeClass::Element: {
      NodeElements elements(*this, node);
      return ways.element(elements, node, value.index, index);
    }
    default:
      base::check_failed(__FILE__, __LINE__, "an element expression", value.name());
  }
}

Scalar ElementEmitter::load(Value storage, Value value, const Index& index) {
  if (const auto splat = splat_of(*storage.node))
    return constant(storage.meta().dtype, splat->number, splat->integer);
  const ir::TensorMeta& meta = storage.meta();
  const bool strided = graph_.is_strided(storage);
  HD_CHECK(!strided || storage == value, "a view of strided memory is no relabelling");
  const SymExpr position = builder_.simplify(strided ? strided_index(index, meta.strides)
                                                     : linear_index(index, value.meta().sizes));
  // Views of one memory are values of their own; what they read is not.
  Key key{storage, {position}, guard(), 4};
  if (auto known = recall(key)) return *known;
  return remember(std::move(key), builder_.load(memory_.buffer(storage), position, guard()));
}

Scalar ElementEmitter::constant(DType dtype, double number, std::int64_t integer) {
  const bool floating = is_floating(dtype);
  const std::int64_t bits = floating ? std::bit_cast<std::int64_t>(number) : integer;
  Key key{Value{}, {SymExpr(bits)}, static_cast<ScalarId>(dtype), 1};
  if (auto known = recall(key)) return *known;
  const Scalar made =
      floating ? builder_.constant(dtype, number) : builder_.constant_int(dtype, integer);
  if (dtype == DType::Bool) (integer != 0 ? true_ : false_).insert(made.id);
  return remember(std::move(key), made);
}

Scalar ElementEmitter::index_scalar(const SymExpr& index) {
  const SymExpr simple = builder_.simplify(index);
  if (simple.is_constant()) return constant(DType::I64, 0, simple.constant());
  Key key{Value{}, {simple}, kNoScalar, 2};
  if (auto known = recall(key)) return *known;
  return remember(std::move(key), builder_.from_index(simple));
}

Scalar ElementEmitter::predicate(const base::Predicate& predicate) {
  if (const auto truth = predicate.decide(builder_.facts()))
    return constant(DType::Bool, 0, *truth ? 1 : 0);
  const auto op = static_cast<ScalarId>(predicate.op);
  Key key{Value{}, {builder_.simplify(predicate.left), builder_.simplify(predicate.right)}, op, 3};
  if (auto known = recall(key)) return *known;
  constexpr ScalarOp kOps[] = {ScalarOp::Eq, ScalarOp::Ne, ScalarOp::Lt, ScalarOp::Le};
  const Scalar left = index_scalar(predicate.left);
  const Scalar right = index_scalar(predicate.right);
  return remember(std::move(key), builder_.apply(kOps[op], {left, right}));
}

}  // namespace heddle::jit
