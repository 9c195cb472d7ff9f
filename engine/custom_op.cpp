#include "heddle/custom_op.h"

#include <fmt/format.h>

#include "engine/cuda_text.h"
#include "engine/shape_scope.h"
#include "engine/tensor_impl.h"
#include "engine/trace.h"
#include "ir/custom_op.h"

namespace heddle {

CustomOpError::CustomOpError(Parts parts) : Error(std::move(parts)) {}
CustomOpError::~CustomOpError() = default;

struct ShapeCall::State {
  const ir::CustomShapes& shapes;

  const ir::TensorMeta& meta(std::size_t argument) const {
    return shapes.tensors[shapes.starts[argument]];
  }
  void check(std::size_t argument) const {
    if (argument + 1 < shapes.starts.size()) return;
    throw ArgumentError(
        {.what = std::string(shapes.context.op.name) + ": shape function",
         .where = shapes.context.location.to_string(),
         .expected = fmt::format("a tensor argument below {}", shapes.starts.size() - 1),
         .got = std::to_string(argument)});
  }
};

namespace {

TensorType type_of(const ir::TensorMeta& meta) {
  TensorType type{meta.dtype, {}};
  for (const ir::SymExpr& size : meta.sizes) type.sizes.push_back(engine::from_expr(size, nullptr));
  return type;
}

template <typename T>
const T& attribute(const ir::CustomShapes& shapes, std::string_view name) {
  const auto found = shapes.context.attrs.find(name);
  if (found != shapes.context.attrs.end())
    if (const T* value = std::get_if<T>(&found->second)) return *value;
  throw ArgumentError({.what = fmt::format("{}: shape function", shapes.context.op.name),
                       .where = shapes.context.location.to_string(),
                       .expected = "an attribute of the schema, by its kind",
                       .got = std::string(name)});
}

}  // namespace

bool ShapeCall::has(std::size_t argument) const {
  state_.check(argument);
  const std::size_t operand = state_.shapes.starts[argument];
  return state_.shapes.context.has(operand);
}
TensorType ShapeCall::tensor(std::size_t argument) const {
  state_.check(argument);
  return type_of(state_.meta(argument));
}
std::vector<TensorType> ShapeCall::list(std::size_t argument) const {
  state_.check(argument);
  std::vector<TensorType> types;
  for (std::size_t k = state_.shapes.starts[argument]; k < state_.shapes.starts[argument + 1]; ++k)
    types.push_back(type_of(state_.shapes.tensors[k]));
  return types;
}
std::int64_t ShapeCall::integer(std::string_view name) const {
  return attribute<std::int64_t>(state_.shapes, name);
}
double ShapeCall::number(std::string_view name) const {
  return attribute<double>(state_.shapes, name);
}
bool ShapeCall::flag(std::string_view name) const { return attribute<bool>(state_.shapes, name); }
std::string ShapeCall::text(std::string_view name) const {
  return attribute<std::string>(state_.shapes, name);
}
DType ShapeCall::dtype(std::string_view name) const {
  return attribute<DType>(state_.shapes, name);
}
std::vector<std::int64_t> ShapeCall::integers(std::string_view name) const {
  return attribute<std::vector<std::int64_t>>(state_.shapes, name);
}
SymInt ShapeCall::size(std::string_view name) const {
  return engine::from_expr(attribute<ir::SymExpr>(state_.shapes, name), nullptr);
}
std::vector<SymInt> ShapeCall::sizes(std::string_view name) const {
  std::vector<SymInt> sizes;
  for (const ir::SymExpr& size : attribute<ir::Dims>(state_.shapes, name))
    sizes.push_back(engine::from_expr(size, nullptr));
  return sizes;
}
SymInt ShapeCall::unbacked() const {
  return engine::from_expr(state_.shapes.context.env.fresh_unbacked(), nullptr);
}
void ShapeCall::fail(std::string what, std::string expected, std::string got) const {
  state_.shapes.context.fail_shape(what, std::move(expected), std::move(got));
}

namespace {

std::vector<ir::TensorMeta> shapes_of(
    const std::function<std::vector<TensorType>(const ShapeCall&)>& function,
    const ir::CustomShapes& shapes) {
  const engine::ShapeScope scope(shapes.context.env);
  ShapeCall::State state{shapes};
  std::vector<ir::TensorMeta> metas;
  for (const TensorType& type : function(ShapeCall(state))) {
    ir::Dims sizes;
    for (const SymInt& size : type.sizes) sizes.push_back(engine::to_expr(size));
    metas.push_back(ir::TensorMeta::of(type.dtype, std::move(sizes)));
  }
  return metas;
}

const char* kind_of(const CallArg& argument) {
  if (std::holds_alternative<std::vector<Tensor>>(argument.value)) return "a list of tensors";
  if (const auto* tensor = std::get_if<Tensor>(&argument.value))
    return tensor->defined() ? "a tensor" : "none";
  return "a value that is no tensor";
}

std::string kind_of(const ir::SchemaType& type) {
  if (type.is_tensor())
    return type.list ? "a list of tensors" : type.optional ? "a tensor or none" : "a tensor";
  return std::string(ir::name_of(ir::attr_kind(type)));
}

/// The arguments of one call sorted into operands and attributes.
class Arguments {
 public:
  Arguments(const ir::CustomOp& op, std::span<const CallArg> given, const At& where)
      : op_(op), where_(where) {
    const auto& wanted = op.schema.arguments;
    if (given.size() > wanted.size())
      fail("number of arguments", fmt::format("at most {}", wanted.size()),
           std::to_string(given.size()));
    for (std::size_t k = 0; k < wanted.size(); ++k)
      add(wanted[k], k < given.size() ? &given[k] : nullptr);
    if (!lists_.empty()) attrs.emplace("_lists", lists_);
  }

  std::vector<Tensor> operands;
  OpAttrs attrs;

 private:
  [[noreturn]] void fail(std::string what, std::string expected, std::string got) const {
    throw ArgumentError({.what = op_.schema.name + ": " + std::move(what),
                         .where = engine::location_of(where_).to_string(),
                         .expected = std::move(expected),
                         .got = std::move(got)});
  }

  void add(const ir::SchemaArgument& wanted, const CallArg* given) {
    const ir::SchemaType& type = wanted.type;
    const bool absent = given == nullptr || kind_of(*given) == std::string_view("none");
    if (absent && type.optional) {
      operands.emplace_back();
    } else if (absent && !type.is_tensor() && wanted.default_value) {
      return;
    } else if (given == nullptr) {
      fail("argument " + wanted.name, kind_of(type), "none");
    } else if (const auto* list = std::get_if<std::vector<Tensor>>(&given->value);
               list != nullptr && type.is_tensor() && type.list) {
      operands.insert(operands.end(), list->begin(), list->end());
      lists_.push_back(static_cast<std::int64_t>(list->size()));
    } else if (const auto* tensor = std::get_if<Tensor>(&given->value);
               tensor != nullptr && tensor->defined() && type.is_tensor() && !type.list) {
      operands.push_back(*tensor);
    } else if (const auto* attr = std::get_if<OpAttr>(&given->value);
               attr != nullptr && !type.is_tensor()) {
      attrs.emplace(wanted.name, *attr);
    } else {
      fail("argument " + wanted.name, kind_of(type), kind_of(*given));
    }
  }

  const ir::CustomOp& op_;
  const At& where_;
  std::vector<std::int64_t> lists_;
};

}  // namespace

RegisteredOp register_op(CustomOp op) {
  auto made = std::make_unique<ir::CustomOp>();
  made->schema = ir::parse_op_schema(op.schema);
  if (op.shape)
    made->shape = [shape = std::move(op.shape)](const ir::CustomShapes& shapes) {
      return shapes_of(shape, shapes);
    };
  made->cpu = std::move(op.cpu);
  made->reference = std::move(op.reference);
  made->workspace_bytes = std::move(op.workspace_bytes);
  made->extent = std::move(op.extent);
  made->sizes = std::move(op.sizes);
  made->cuda_sizes = std::move(op.cuda_sizes);
  made->cuda = std::move(op.cuda);
  for (const CudaText& text : op.cuda_texts) made->cuda_texts.push_back(text.impl());
  made->pure = op.pure;
  made->capturable = op.capturable;
  made->collective = op.collective;
  made->is_given = true;
  return RegisteredOp(ir::register_custom_op(std::move(made)).schema.name);
}

std::vector<Tensor> call(std::string_view op, std::span<const CallArg> arguments, At where) {
  const ir::CustomOp* custom = ir::find_custom_op(op);
  if (custom == nullptr) {
    const bool builtin = ir::op_named(op).custom == nullptr;  // throws for an unknown op
    throw ArgumentError({.what = fmt::format("call: {}", op),
                         .where = engine::location_of(where).to_string(),
                         .expected = "a registered op",
                         .got = builtin ? "a built-in one, which apply() takes" : ""});
  }
  Arguments sorted(*custom, arguments, where);
  return apply(op, sorted.operands, std::move(sorted.attrs), where);
}

std::vector<Tensor> RegisteredOp::operator()(const CallArg& a, const CallArg& b, const CallArg& c,
                                             const CallArg& d, const CallArg& e, const CallArg& f,
                                             const CallArg& g, const CallArg& h, const CallArg& i,
                                             const CallArg& j, const CallArg& k,
                                             const CallArg& l) const {
  const CallArg arguments[] = {a, b, c, d, e, f, g, h, i, j, k, l};
  const std::span<const CallArg> all(arguments);
  std::size_t count = all.size();
  while (count > 0 && all[count - 1].omitted) --count;
  return call(name_, all.first(count), a.where);
}

std::vector<Tensor> call(std::string_view op, std::initializer_list<CallArg> arguments, At where) {
  return call(op, std::span<const CallArg>(arguments.begin(), arguments.size()), where);
}

}  // namespace heddle
