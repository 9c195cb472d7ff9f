#include "ir/custom_op.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <mutex>

#include "base/check.h"
#include "heddle/error.h"
#include "ir/analysis/regions.h"
#include "ir/custom_evaluate.h"
#include "ir/ops/host_ops.h"
#include "ir/ops/result_sizes.h"

namespace heddle::ir {
namespace {

struct Table {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<CustomOp>, std::less<>> ops;
};

const std::vector<std::int64_t>& ints(const Attrs& attrs, std::string_view name) {
  return std::get<std::vector<std::int64_t>>(attrs.find(name)->second);
}

[[noreturn]] void fail(const CustomOp& op, std::string what, std::string expected,
                       std::string got = {}) {
  throw ArgumentError({.what = op.schema.name + ": " + std::move(what),
                       .where = {},
                       .expected = std::move(expected),
                       .got = std::move(got)});
}

/// Takes one operand's view off the front of `rest`.
BaseView take_view(const CustomOp& op, std::span<const SymExpr>& rest) {
  const auto take = [&] {
    if (rest.empty()) fail(op, "_views", "a view for each written operand");
    const SymExpr value = rest.front();
    rest = rest.subspan(1);
    return value;
  };
  BaseView view;
  const SymExpr rank = take();
  if (!rank.is_constant()) fail(op, "_views", "a rank", rank.to_string());
  if (rank.constant() < 0) return view;
  view.whole = false;
  view.offset = take();
  for (std::int64_t k = 0; k < rank.constant(); ++k) view.sizes.push_back(take());
  for (std::int64_t k = 0; k < rank.constant(); ++k) view.strides.push_back(take());
  return view;
}

TensorMeta seen_by_kernel(const CustomLayout& layout, std::span<const Value> inputs,
                          std::size_t operand) {
  TensorMeta meta = inputs[operand] ? inputs[operand].meta() : TensorMeta();
  const WrittenOperand* written = layout.written_at(operand);
  if (written == nullptr || written->view.whole) return meta;
  meta.sizes = written->view.sizes;
  meta.strides = written->view.strides;
  return meta;
}

void check_view(const InferContext& context, const OpSchema& schema, const CustomLayout& layout,
                std::size_t result, const TensorMeta& meta) {
  const auto arguments = schema.tensor_arguments();
  for (std::size_t k = 0; k < arguments.size(); ++k) {
    if (schema.arguments[arguments[k]].type.alias != schema.returns[result].alias) continue;
    const TensorMeta& whole = context.meta(layout.starts[k]);
    const std::string label = fmt::format("result {} views {}", result, whole.to_string());
    if (meta.dtype != whole.dtype)
      context.fail_dtype(label, std::string(name_of(whole.dtype)),
                         std::string(name_of(meta.dtype)));
    context.require_equal(whole.count(), meta.count(), label);
  }
}

std::vector<TensorMeta> infer_custom(const InferContext& context) {
  const CustomOp& op = *context.op.custom;
  const std::string reason = op.collective ? std::string() : op.schema.why_not_functional();
  if (!reason.empty())
    throw UnsupportedError({.what = op.schema.name + ": not implemented",
                            .where = context.location.to_string(),
                            .expected = "an op whose writes can be put into value semantics",
                            .got = reason});
  const CustomLayout layout = layout_of(op, context.inputs, context.attrs);
  std::vector<TensorMeta> seen;
  for (std::size_t k = 0; k < context.inputs.size(); ++k)
    seen.push_back(seen_by_kernel(layout, context.inputs, k));
  std::vector<TensorMeta> outputs;
  if (!op.schema.returns_first()) {
    const std::uint32_t known = context.env.next_unbacked_;
    outputs =
        op.shape ? op.shape(CustomShapes{context, seen, layout.starts}) : std::vector<TensorMeta>();
    if (context.env.next_unbacked_ != known && !op.sizes)
      throw ArgumentError({.what = op.schema.name + ": sizes known only at run time",
                           .where = context.location.to_string(),
                           .expected = "a function `sizes` that tells them",
                           .got = "none"});
    const bool any = op.schema.returns.size() == 1 && op.schema.returns[0].list;
    if (!any && outputs.size() != op.schema.returns.size())
      context.fail_shape("number of results of the shape function",
                         std::to_string(op.schema.returns.size()), std::to_string(outputs.size()));
    for (const TensorMeta& output : outputs)
      ops::require_sizes(context, output.sizes, "sizes of the results");
    for (std::size_t k = 0; k < outputs.size() && !any; ++k)
      if (!op.schema.returns[k].alias.empty())
        check_view(context, op.schema, layout, k, outputs[k]);
  }
  const auto& in_place = ints(context.attrs, "in_place");
  for (std::size_t k = 0; k < layout.bases.size(); ++k) {
    const TensorMeta& base = context.meta(layout.bases[k]);
    outputs.push_back(TensorMeta::of(base.dtype, base.sizes, base.device));
    if (std::find(in_place.begin(), in_place.end(), static_cast<std::int64_t>(layout.bases[k])) !=
        in_place.end())
      outputs.back().strides = base.strides;
  }
  return or_token(std::move(outputs));
}

Alias alias_custom(const Node& node, std::uint32_t output) {
  if (const auto operand = viewed_operand(node, output)) return {Alias::Kind::View, *operand};
  const std::size_t results = result_count(node);
  if (output < results) return {};
  const auto& in_place = node.ints("in_place");
  const std::size_t base = layout_of(node).bases[output - results];
  const bool overwritten = std::find(in_place.begin(), in_place.end(),
                                     static_cast<std::int64_t>(base)) != in_place.end();
  return overwritten ? Alias{Alias::Kind::Mutates, base} : Alias{};
}

OpDef definition(const CustomOp& op) {
  OpDef def;
  def.name = op.schema.name;
  bool lists = false;
  for (const SchemaArgument& argument : op.schema.arguments) {
    if (!argument.type.is_tensor()) {
      def.attrs.push_back({argument.name, attr_kind(argument.type), argument.default_value});
      continue;
    }
    lists = lists || argument.type.list;
    def.operands.push_back({argument.name, argument.type.optional ? OperandSpec::Arity::Optional
                                                                  : OperandSpec::Arity::One});
  }
  if (lists) def.operands = {{"tensors", OperandSpec::Arity::Variadic}};
  const Attr none = std::vector<std::int64_t>();
  if (lists) def.attrs.push_back({"_lists", AttrKind::Ints, none});
  def.attrs.push_back({"_aliases", AttrKind::Bool, Attr(false)});
  def.attrs.push_back({"_bases", AttrKind::Ints, none});
  def.attrs.push_back({"_views", AttrKind::SymInts, Attr(Dims())});
  def.attrs.push_back({"in_place", AttrKind::Ints, none});
  def.outputs = -1;
  def.infer = infer_custom;
  def.alias = alias_custom;
  def.evaluate = evaluate_custom;
  def.pure = op.pure;
  def.expensive = true;
  def.custom = &op;
  return def;
}

void check_functions(const CustomOp& op) {
  if (!op.cpu) fail(op, "registration", "a CPU kernel");
  const bool fresh = std::any_of(op.schema.returns.begin(), op.schema.returns.end(),
                                 [](const SchemaType& type) { return !type.written; });
  if (fresh && !op.shape) fail(op, "registration", "a shape function");
}

KernelAttr kernel_attr(const Attr& attr, const base::SymbolValues& sizes) {
  return std::visit(
      [&](const auto& value) -> KernelAttr {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, SymExpr>) {
          return value.evaluate(sizes);
        } else if constexpr (std::is_same_v<T, Dims>) {
          std::vector<std::int64_t> numbers;
          for (const SymExpr& size : value) numbers.push_back(size.evaluate(sizes));
          return numbers;
        } else if constexpr (std::is_same_v<T, LiteralPtr> || std::is_same_v<T, GraphRef>) {
          HD_CHECK(false, "a schema has no such attribute");
        } else {
          return value;
        }
      },
      attr);
}

/// With the engine's own ops. Never freed: kernels may be asked for while the process ends.
Table& table() {
  static Table* made = [] {
    auto* filled = new Table;
    for (std::unique_ptr<CustomOp>& op : ops::host_ops()) {
      op->def = definition(*op);
      const std::string name = op->schema.name;
      filled->ops.emplace(name, std::move(op));
    }
    return filled;
  }();
  return *made;
}

}  // namespace

const CustomOp& register_custom_op(std::unique_ptr<CustomOp> op) {
  check_functions(*op);
  op->def = definition(*op);
  Table& known = table();
  const std::scoped_lock lock(known.mutex);
  const auto [at, fresh] = known.ops.emplace(op->schema.name, nullptr);
  if (!fresh) fail(*op, "registration", "a name that no op has");
  at->second = std::move(op);
  return *at->second;
}

const CustomOp* find_custom_op(std::string_view name) {
  if (name.find("::") == std::string_view::npos) return nullptr;
  Table& known = table();
  const std::scoped_lock lock(known.mutex);
  const auto found = known.ops.find(name);
  return found == known.ops.end() ? nullptr : found->second.get();
}

std::vector<std::string_view> custom_op_names() {
  Table& known = table();
  const std::scoped_lock lock(known.mutex);
  std::vector<std::string_view> names;
  for (const auto& [name, op] : known.ops) names.push_back(op->schema.name);
  return names;
}

const WrittenOperand* CustomLayout::written_at(std::size_t operand) const {
  for (const WrittenOperand& entry : written)
    if (entry.operand == operand) return &entry;
  return nullptr;
}

CustomLayout layout_of(const CustomOp& op, std::span<const Value> inputs, const Attrs& attrs) {
  CustomLayout layout;
  std::vector<std::size_t> written;
  std::size_t list = 0;
  std::uint32_t next = 0;
  for (const SchemaArgument& argument : op.schema.arguments) {
    if (!argument.type.is_tensor()) continue;
    layout.starts.push_back(next);
    std::int64_t count = 1;
    if (argument.type.list) {
      const auto& lists = ints(attrs, "_lists");
      if (list >= lists.size() || lists[list] < 0)
        fail(op, "_lists", "a length for each list argument");
      count = lists[list++];
    }
    for (; count > 0; --count, ++next) {
      const bool given = next < inputs.size() && inputs[next];
      if (!given && !argument.type.optional)
        fail(op, "argument " + argument.name, "a tensor", "none");
      if (given && argument.type.written) written.push_back(next);
    }
  }
  layout.starts.push_back(next);
  if (inputs.size() > next)
    fail(op, "number of operands", std::to_string(next), std::to_string(inputs.size()));
  const auto& bases = ints(attrs, "_bases");
  if (!bases.empty() && bases.size() != written.size())
    fail(op, "_bases", fmt::format("{} entries", written.size()), std::to_string(bases.size()));
  const Dims& views = std::get<Dims>(attrs.find("_views")->second);
  std::span<const SymExpr> rest = views;
  for (std::size_t k = 0; k < written.size(); ++k) {
    const std::size_t base = bases.empty() ? k : static_cast<std::size_t>(bases[k]);
    if (base > layout.bases.size()) fail(op, "_bases", "bases numbered as they come");
    if (base == layout.bases.size())
      layout.bases.push_back(written[k]);
    else if (inputs[layout.bases[base]] != inputs[written[k]])
      fail(op, "_bases", "one value for all operands of a base", inputs[written[k]].name());
    layout.written.push_back({written[k], base, views.empty() ? BaseView() : take_view(op, rest)});
  }
  if (!rest.empty()) fail(op, "_views", "views of written operands only");
  return layout;
}

void encode_view(const BaseView& view, Dims& encoded) {
  if (view.whole) {
    encoded.emplace_back(-1);
    return;
  }
  encoded.emplace_back(static_cast<std::int64_t>(view.sizes.size()));
  encoded.push_back(view.offset);
  encoded.insert(encoded.end(), view.sizes.begin(), view.sizes.end());
  encoded.insert(encoded.end(), view.strides.begin(), view.strides.end());
}

std::size_t result_count(const Node& node) {
  return node.outputs().size() - layout_of(node).bases.size();
}

std::optional<std::size_t> viewed_operand(const Node& node, std::uint32_t output) {
  const OpSchema& schema = node.op().custom->schema;
  if (schema.returns_first() || output >= schema.returns.size()) return std::nullopt;
  const SchemaType& type = schema.returns[output];
  if (type.alias.empty() || type.list) return std::nullopt;
  const auto arguments = schema.tensor_arguments();
  for (std::size_t k = 0; k < arguments.size(); ++k)
    if (schema.arguments[arguments[k]].type.alias == type.alias) return layout_of(node).starts[k];
  return std::nullopt;
}

KernelAttrs kernel_attrs(const CustomOp& op, const Attrs& attrs, const base::SymbolValues& sizes) {
  KernelAttrs result;
  for (const SchemaArgument& argument : op.schema.arguments)
    if (!argument.type.is_tensor())
      result.emplace(argument.name, kernel_attr(attrs.find(argument.name)->second, sizes));
  return result;
}

}  // namespace heddle::ir
