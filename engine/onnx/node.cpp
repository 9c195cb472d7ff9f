#include "engine/onnx/node.h"

#include <algorithm>
#include <fmt/format.h>

#include "engine/onnx/onnx.pb.h"
#include "engine/onnx/reader.h"
#include "heddle/error.h"
#include "heddle/frontend.h"
#include "heddle/onnx.h"

namespace heddle::onnx {

using onnx_format::AttributeProto;

namespace {

/// Names come from the file: long or unprintable ones must not fill a message.
std::string shown(const std::string& text) {
  constexpr std::size_t kLongest = 120;
  std::string result;
  for (const char c : text.substr(0, kLongest)) result += c < ' ' || c == 127 ? '?' : c;
  return text.size() > kLongest ? result + "..." : result;
}

}  // namespace

std::string describe(const onnx_format::NodeProto& node) {
  std::string name = node.name();
  if (name.empty() && node.output_size() > 0) name = "-> " + node.output(0);
  const std::string domain = node.domain().empty() ? "ai.onnx" : node.domain();
  return fmt::format("{} ({} {})", shown(name), shown(domain), shown(node.op_type()));
}

std::string values_of(const onnx_format::NodeProto& node) {
  std::string name = node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name();
  name = shown(name.substr(std::min(name.find_first_not_of('/'), name.size())));
  std::ranges::replace(name, '/', '.');
  return name;
}

Node::Node(const onnx_format::NodeProto& proto, const Converter& row, std::vector<Value> inputs,
           AttributeMap attributes, std::int64_t opset, const TensorSource& source)
    : proto_(proto),
      row_(row),
      inputs_(std::move(inputs)),
      attributes_(std::move(attributes)),
      opset_(opset),
      source_(source),
      where_(describe(proto)) {}

std::string_view Node::ir_op() const { return row_.ir_op; }
std::string_view Node::type() const { return row_.name; }
std::size_t Node::output_count() const { return static_cast<std::size_t>(proto_.output_size()); }
bool Node::wants_output(std::size_t k) const {
  return k < output_count() && !proto_.output(static_cast<int>(k)).empty();
}

const Value& Node::value(std::size_t k) const {
  if (!has(k))
    malformed("inputs", fmt::format("input {}", k), fmt::format("{} inputs", inputs_.size()));
  return inputs_[k];
}

std::vector<Tensor> Node::tensors() const {
  std::vector<Tensor> all;
  for (std::size_t k = 0; k < inputs_.size(); ++k) all.push_back(tensor(k));
  return all;
}

bool Node::is_shape_arithmetic() const {
  if (inputs_.empty()) return false;
  return std::all_of(inputs_.begin(), inputs_.end(),
                     [](const Value& value) { return value.defined() && value.is_shape_like(); });
}

bool Node::has_reals() const {
  return std::any_of(inputs_.begin(), inputs_.end(),
                     [](const Value& value) { return value.defined() && value.has_reals(); });
}

void Node::unknown_value(std::size_t k, std::string_view name) const {
  const std::string& input = inputs_[k].source();
  Error::Parts parts{.what = fmt::format("{}: input {} ({})", proto_.op_type(), k, name),
                     .where = where_,
                     .expected = "a value that is known when tracing",
                     .got = input.empty() ? "a value computed at run time"
                                          : fmt::format("the graph input {}", shown(input))};
  if (input.empty()) throw UnsupportedError(std::move(parts));
  throw NeedsValueError(std::move(parts), input);
}

SymInts Node::known(std::size_t k, std::string_view name) const {
  if (const auto ints = value(k).ints()) return *ints;
  unknown_value(k, name);
}

SymInts Node::known_or_late(std::size_t k, std::string_view name) const {
  const Value& vector = value(k);
  const bool is_asked = vector.ints() || !vector.source().empty();
  const auto parts = is_asked ? std::nullopt : vector.parts();
  if (!parts) return known(k, name);
  const Tensor given = vector.tensor();
  const Tensor numbers = given.dtype() == i64 ? given : cast(given, i64);
  SymInts all;
  for (const std::optional<SymInt>& part : *parts) {
    const auto at = static_cast<std::int64_t>(all.size());
    all.push_back(part ? *part : as_size(reshape(slice(numbers, 0, at, at + 1), {})));
  }
  return all;
}

Ints Node::known_numbers(std::size_t k, std::string_view name) const {
  Ints numbers;
  for (const SymInt& number : known(k, name)) numbers.push_back(number.value());
  return numbers;
}

template <typename T>
const T& Node::only_one(const std::vector<T>& numbers, std::string_view name) const {
  if (numbers.size() != 1)
    malformed(std::string(name), "one number", fmt::format("{} numbers", numbers.size()));
  return numbers[0];
}

SymInt Node::known_size(std::size_t k, std::string_view name) const {
  return only_one(known(k, name), name);
}

std::int64_t Node::known_number(std::size_t k, std::string_view name) const {
  return only_one(known_numbers(k, name), name);
}

double Node::known_real(std::size_t k, std::string_view name) const {
  return only_one(known_reals(k, name), name);
}

std::vector<double> Node::known_reals(std::size_t k, std::string_view name) const {
  if (value(k).has_reals()) {
    const Reals reals = *value(k).reals();
    std::vector<double> numbers;
    for (const Real& real : reals) numbers.push_back(real.number());
    return numbers;
  }
  if (const auto concrete = value(k).concrete()) return concrete->to_doubles();
  unknown_value(k, name);
}

const AttributeProto* Node::find(std::string_view name) const {
  const auto found = attributes_.find(name);
  return found == attributes_.end() ? nullptr : found->second;
}

bool Node::has_attr(std::string_view name) const { return find(name) != nullptr; }

std::int64_t Node::integer(std::string_view name, std::int64_t otherwise) const {
  const AttributeProto* attribute = find(name);
  return attribute == nullptr ? otherwise : attribute->i();
}

double Node::number(std::string_view name, double otherwise) const {
  const AttributeProto* attribute = find(name);
  return attribute == nullptr ? otherwise : static_cast<double>(attribute->f());
}

std::string Node::string(std::string_view name, std::string otherwise) const {
  const AttributeProto* attribute = find(name);
  return attribute == nullptr ? otherwise : attribute->s();
}

Ints Node::integers(std::string_view name, Ints otherwise) const {
  const AttributeProto* attribute = find(name);
  if (attribute == nullptr) return otherwise;
  return {attribute->ints().begin(), attribute->ints().end()};
}

std::vector<double> Node::numbers(std::string_view name) const {
  const AttributeProto* attribute = find(name);
  if (attribute == nullptr) return {};
  return {attribute->floats().begin(), attribute->floats().end()};
}

std::vector<std::string> Node::strings(std::string_view name) const {
  const AttributeProto* attribute = find(name);
  if (attribute == nullptr) return {};
  return {attribute->strings().begin(), attribute->strings().end()};
}

std::optional<Tensor> Node::tensor_attr(std::string_view name) const {
  const Value value = constant_attr(name);
  if (!value.defined()) return {};
  if (value.is_text()) malformed(std::string(name), "numbers", "strings");
  const auto known = value.concrete();
  return known ? *known : value.tensor();
}

Value Node::constant_attr(std::string_view name) const {
  const AttributeProto* attribute = find(name);
  return attribute == nullptr ? Value() : read_constant(attribute->t(), source_, where_);
}

Tensor Node::codes_of(std::span<const std::string> strings) const {
  Tensor codes = Tensor::empty(i64, {static_cast<std::int64_t>(strings.size())});
  for (std::size_t k = 0; k < strings.size(); ++k)
    codes.data_as<std::int64_t>()[k] = source_.code_of(strings[k]);
  return codes;
}

const onnx_format::GraphProto& Node::graph(std::string_view name) const {
  const AttributeProto* attribute = find(name);
  if (attribute == nullptr || !attribute->has_g()) malformed(std::string(name), "a graph", "none");
  return attribute->g();
}

DType Node::dtype(std::string_view name, DType otherwise) const {
  const AttributeProto* attribute = find(name);
  return attribute == nullptr ? otherwise : dtype_of_onnx(static_cast<int>(attribute->i()), where_);
}

std::int64_t Node::bits(std::string_view name) const {
  const AttributeProto* attribute = find(name);
  return attribute == nullptr ? 0 : bits_of_onnx(static_cast<int>(attribute->i()));
}

std::int64_t Node::axis(std::int64_t axis, std::int64_t rank) const {
  const std::int64_t k = axis < 0 ? axis + rank : axis;
  if (k < 0 || k >= rank)
    malformed("axis", fmt::format("in [{}, {})", -rank, rank), std::to_string(axis));
  return k;
}

Ints Node::axes(Ints axes, std::int64_t rank) const {
  for (std::int64_t& k : axes) k = axis(k, rank);
  return axes;
}

void Node::unsupported(std::string what) const {
  throw UnsupportedError({.what = fmt::format("{}: {}", shown(proto_.op_type()), what),
                          .where = where_,
                          .expected = {},
                          .got = {}});
}

void Node::malformed(std::string what, std::string expected, std::string got) const {
  throw ModelError({.what = fmt::format("{}: {}", shown(proto_.op_type()), what),
                    .where = where_,
                    .expected = std::move(expected),
                    .got = std::move(got)});
}

std::string listed(const SymInts& numbers) {
  std::string text;
  for (const SymInt& number : numbers) text += (text.empty() ? "" : ", ") + detail::seen(number);
  return "[" + text + "]";
}

Tensor one(std::string_view op, std::initializer_list<Tensor> operands, OpAttrs attrs) {
  return apply(op, std::span<const Tensor>(operands.begin(), operands.size()), std::move(attrs))[0];
}

bool is_uncountable(const SymInts& sizes) {
  std::int64_t count = 1;
  for (const SymInt& size : sizes) {
    if (size.is_symbolic()) continue;
    if (__builtin_mul_overflow(count, std::max<std::int64_t>(size.value(), 1), &count)) return true;
  }
  return false;
}

SymInt product(std::span<const SymInt> sizes) {
  SymInt result = 1;
  for (const SymInt& size : sizes) result = result * size;
  return result;
}

Tensor unsqueeze_all(const Tensor& x, const Ints& axes) {
  SymInts sizes;
  const auto rank = static_cast<std::size_t>(x.rank()) + axes.size();
  std::int64_t next = 0;
  for (std::size_t k = 0; k < rank; ++k) {
    const bool inserted =
        std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(k)) != axes.end();
    sizes.push_back(inserted ? SymInt(1) : x.size(next++));
  }
  return reshape(x, std::move(sizes));
}

Tensor moved_axis(const Tensor& x, std::int64_t from, std::int64_t to) {
  if (from == to) return x;
  Ints order = range_of(0, x.rank());
  order.erase(order.begin() + from);
  order.insert(order.begin() + to, from);
  return permute(x, order);
}

Ints range_of(std::int64_t first, std::int64_t last) {
  Ints numbers;
  for (std::int64_t k = first; k < last; ++k) numbers.push_back(k);
  return numbers;
}

}  // namespace heddle::onnx
