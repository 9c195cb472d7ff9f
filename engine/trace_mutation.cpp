// Calls of ops that write their operands, in a trace: each write makes a new value of the base that the
// operand is, or is a view of; handles of the base and of its views read the new value from then on.
#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "base/check.h"
#include "engine/trace.h"
#include "heddle/error.h"
#include "ir/analysis/regions.h"
#include "ir/custom_op.h"
#include "ir/known_sizes.h"

namespace heddle::engine {

namespace {

using ir::SymExpr;
using ir::Value;

Value root_of(Value value) {
  for (;;) {
    const ir::Alias alias = ir::alias_of(*value.node, value.index);
    if (alias.kind != ir::Alias::Kind::View) return value;
    value = value.node->input(alias.operand);
  }
}

[[noreturn]] void fail_view(const Value& view, const base::Location& where, std::string why) {
  throw MutationError({.what = "a write through " + view.name(),
                       .where = where.to_string(),
                       .expected = "a view whose elements lie at strides of their own",
                       .got = std::move(why)});
}

/// Where the elements of `view` lie in a row-major `root`.
ir::BaseView place_in_base(const Value& view, const Value& root, const base::Location& where) {
  ir::BaseView result;
  if (view == root) return result;
  result.whole = false;
  result.sizes = view.meta().sizes;
  base::Facts facts;
  std::vector<SymExpr> index;
  for (std::uint32_t d = 0; d < result.sizes.size(); ++d) {
    index.push_back(SymExpr::axis(d));
    facts.set_range(index.back().symbol(), 0, result.sizes[d] - 1);
  }
  for (Value at = view; at != root; at = at.node->input(0)) {
    const ir::ViewFn map = at.node->op().lowering.view;
    if (map == nullptr) fail_view(view, where, std::string(at.node->op_name()));
    index = map(*at.node, index);
  }
  const ir::Dims strides = ir::row_major(root.meta().sizes);
  SymExpr place = 0;
  for (std::size_t d = 0; d < index.size(); ++d) place += index[d] * strides[d];
  place = place.simplify(facts);
  for (std::uint32_t d = 0; d < result.sizes.size(); ++d) {
    const auto linear = place.linear_in(SymExpr::axis(d).symbol());
    if (!linear) fail_view(view, where, place.to_string());
    const bool overlaps = linear->coefficient.is_constant(0) && !result.sizes[d].is_constant(1);
    if (overlaps) fail_view(view, where, fmt::format("dimension {} repeats its elements", d));
    result.strides.push_back(linear->coefficient);
    place = linear->rest;
  }
  result.offset = place;
  return result;
}

void check_base(const Value& base, std::string_view op, const base::Location& where) {
  const std::string_view source = base.node->op_name();
  if (source != "const" && source != "param") return;
  throw MutationError({.what = fmt::format("{}: a write to a captured tensor", op),
                       .where = where.to_string(),
                       .expected = "an input of the callable, or a tensor computed in it",
                       .got = base.name()});
}

}  // namespace

/// `value`, a view of `root` or itself, made anew on `by`.
Value Trace::moved(Value value, Value root, Value by) {
  if (value == root) return by;
  const auto known = moved_.find({value, by});
  if (known != moved_.end()) return known->second;
  const std::size_t operand = ir::alias_of(*value.node, value.index).operand;
  std::vector<Value> inputs(value.node->inputs().begin(), value.node->inputs().end());
  inputs[operand] = moved(inputs[operand], root, by);
  ir::GraphBuilder::Context before = std::move(builder_.context);
  builder_.context = {value.node->annotations(), {}, value.node->location(), {}, {}};
  const ir::Node* node = builder_.call(value.node->op(), inputs, value.node->attrs());
  builder_.context = std::move(before);
  for (std::uint32_t k = 0; k < node->outputs().size(); ++k)
    moved_[{value.node->value(k), by}] = node->value(k);
  return node->value(value.index);
}

ir::Value Trace::current(Value value) {
  for (;;) {
    const Value root = root_of(value);
    const auto written = written_.find(root);
    if (written == written_.end()) return value;
    value = moved(value, root, written->second);
  }
}

std::vector<Tensor> Trace::apply_custom(const ir::OpDef& op, std::vector<Value> values,
                                        ir::Attrs attrs, const base::Location& where) {
  const ir::CustomOp& custom = *op.custom;
  for (const char* name : {"_bases", "in_place", "_lists"})
    attrs.try_emplace(name, std::vector<std::int64_t>());
  attrs.try_emplace("_views", ir::Dims());
  const std::vector<Value> given = values;
  std::vector<Value> bases;
  std::vector<std::int64_t> numbers;
  ir::Dims views;
  bool identity = true;
  bool whole = true;
  for (const ir::WrittenOperand& written : ir::layout_of(custom, values, attrs).written) {
    const Value root = root_of(given[written.operand]);
    check_base(root, op.name, where);
    const ir::BaseView view = place_in_base(given[written.operand], root, where);
    const auto known = std::find(bases.begin(), bases.end(), root);
    identity = identity && known == bases.end();
    whole = whole && view.whole;
    numbers.push_back(known - bases.begin());
    if (known == bases.end()) bases.push_back(root);
    ir::encode_view(view, views);
    values[written.operand] = root;
  }
  // A plain argument that is the very tensor that is written may see the writes, as in the program; one that
  // only shares some of its bytes reads the old value.
  bool same = false;
  bool overlaps = !whole;
  const auto layout = ir::layout_of(custom, given, attrs);
  for (std::size_t k = 0; k < given.size(); ++k) {
    if (!given[k] || layout.written_at(k) != nullptr) continue;
    const bool in_base = std::find(bases.begin(), bases.end(), root_of(given[k])) != bases.end();
    same = same || in_base;
    overlaps = overlaps || (in_base && root_of(given[k]) != given[k]);
  }
  if (same && !overlaps) attrs["_aliases"] = true;
  if (!identity) attrs["_bases"] = numbers;
  if (!whole) attrs["_views"] = views;
  const bool lists = std::any_of(
      custom.schema.arguments.begin(), custom.schema.arguments.end(),
      [](const auto& argument) { return argument.type.list && argument.type.is_tensor(); });
  if (!lists) attrs.erase("_lists");

  builder_.context.location = where;
  const std::vector<Value> after = builder_.context.after;
  if (!custom.pure && last_effect_) builder_.context.after.push_back(last_effect_);
  const ir::Node* node = builder_.call(op, values, std::move(attrs));
  builder_.context.after = after;
  if (!custom.pure) last_effect_ = node->value();
  const std::size_t results = ir::result_count(*node);
  for (std::size_t k = 0; k < bases.size(); ++k)
    written_[bases[k]] = node->value(static_cast<std::uint32_t>(results + k));
  if (custom.schema.returns_first()) return {handle(current(given[0]))};
  std::vector<Tensor> handles;
  for (std::uint32_t k = 0; k < results; ++k) handles.push_back(handle(node->value(k)));
  return handles;
}

bool Trace::writes_inputs() const {
  return std::any_of(written_.begin(), written_.end(),
                     [](const auto& entry) { return entry.first.node->op_name() == "input"; });
}

const ir::Node* Trace::call_regions(std::string_view op, std::span<const Value> operands,
                                    ir::Attrs attrs) {
  const std::vector<Value> after = builder_.context.after;
  bool pure = true;
  for (const auto& [name, attr] : attrs)
    if (const auto* ref = std::get_if<ir::GraphRef>(&attr)) pure = pure && ir::is_pure(*ref->graph);
  if (!pure && last_effect_) builder_.context.after.push_back(last_effect_);
  for (const Value& first : std::exchange(call_after_, {}))
    if (std::ranges::find(builder_.context.after, first) == builder_.context.after.end())
      builder_.context.after.push_back(first);
  const ir::Node* node = builder_.call(op, operands, std::move(attrs));
  builder_.context.after = after;
  if (!pure) last_effect_ = node->value();
  return node;
}

void Trace::assign(const Tensor& state, const Tensor& value, const base::Location& where) {
  const bool is_input = state.is_symbolic() && state.impl()->trace.get() == this &&
                        state.impl()->value.node->op_name() == "input";
  if (!is_input)
    throw TraceError(
        {.what = "assign: state",
         .where = where.to_string(),
         .expected = "an input of the callable",
         .got = state.is_symbolic() ? "another value" : "a tensor that the callable captured"});
  const Value target = state.impl()->value;
  Value source = value_of(value, where);
  const ir::TensorMeta& wanted = target.meta();
  if (!source || source.meta().dtype != wanted.dtype)
    throw DTypeError({.what = "assign: value",
                      .where = where.to_string(),
                      .expected = std::string(name_of(wanted.dtype)),
                      .got = source ? std::string(name_of(source.meta().dtype)) : "none"});
  bool fits = source.meta().sizes.size() == wanted.sizes.size();
  for (std::size_t d = 0; fits && d < wanted.sizes.size(); ++d)
    fits = env().require({base::Predicate::Op::Eq, source.meta().sizes[d], wanted.sizes[d]},
                         "sizes of a state and its value", where);
  if (!fits)
    throw ShapeError({.what = "assign: value",
                      .where = where.to_string(),
                      .expected = ir::seen(env(), wanted).to_string(),
                      .got = ir::seen(env(), source.meta()).to_string()});
  builder_.context.location = where;
  if (source.meta().sizes != wanted.sizes)
    source = builder_.emit("reshape", {source}, {{"sizes", wanted.sizes}});
  // A view of an input would follow what is written there.
  if (root_of(source).node->op_name() == "input") source = builder_.emit("clone", {source});
  written_[target] = source;
}

void Trace::write_back_inputs() {
  std::vector<Value> inputs;
  for (const auto& [base, value] : written_)
    if (base.node->op_name() == "input" && !ir::is_donated(base)) inputs.push_back(base);
  std::sort(inputs.begin(), inputs.end(), [](const Value& a, const Value& b) {
    return a.node->output().storage < b.node->output().storage;
  });
  for (const Value& input : inputs) builder_.write_back(input, current(input));
}

}  // namespace heddle::engine
