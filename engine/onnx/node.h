// One node of a model as its converter sees it.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/onnx/value.h"
#include "heddle/ops.h"

namespace heddle::onnx_format {
class AttributeProto;
class GraphProto;
class NodeProto;
}  // namespace heddle::onnx_format

namespace heddle::onnx {

struct Converter;
struct TensorSource;
using AttributeMap = std::map<std::string, const onnx_format::AttributeProto*, std::less<>>;

/// Inputs, attributes and version of a node, and the errors it may raise. Reads of inputs count from 0;
/// an absent optional input is undefined.
class Node {
 public:
  Node(const onnx_format::NodeProto& proto, const Converter& row, std::vector<Value> inputs,
       AttributeMap attributes, std::int64_t opset, const TensorSource& source);

  std::int64_t opset() const { return opset_; }
  /// The IR op named in the converter's row, for rows that map one op to one.
  std::string_view ir_op() const;
  std::string_view type() const;
  /// "conv1 (ai.onnx Conv)": where errors come from.
  const std::string& where() const { return where_; }
  std::size_t output_count() const;
  bool wants_output(std::size_t k) const;

  std::size_t input_count() const { return inputs_.size(); }
  bool has(std::size_t k) const { return k < inputs_.size() && inputs_[k].defined(); }
  /// @throws ModelError if input k is absent.
  const Value& value(std::size_t k) const;
  Tensor tensor(std::size_t k) const { return value(k).tensor(); }
  /// Undefined if absent.
  Tensor optional(std::size_t k) const { return has(k) ? inputs_[k].tensor() : Tensor(); }
  std::span<const Value> values() const { return inputs_; }
  std::vector<Tensor> tensors() const;
  /// Whether every input is small integers, at least one of them computed from sizes or a constant.
  bool is_shape_arithmetic() const;
  /// Whether the elements of some input are reals that follow from sizes.
  bool has_reals() const;

  /// Values of input k that must be known while tracing; `name` is what the ONNX schema calls it.
  /// @throws NeedsValueError, UnsupportedError.
  SymInts known(std::size_t k, std::string_view name) const;
  Ints known_numbers(std::size_t k, std::string_view name) const;
  /// The same, and where no input of the graph decides them alone, sizes that only the run tells: it throws ShapeError if one is below 0.
  SymInts known_or_late(std::size_t k, std::string_view name) const;
  /// The same of an input of one element. @throws ModelError too.
  SymInt known_size(std::size_t k, std::string_view name) const;
  std::int64_t known_number(std::size_t k, std::string_view name) const;
  double known_real(std::size_t k, std::string_view name) const;
  std::vector<double> known_reals(std::size_t k, std::string_view name) const;

  bool has_attr(std::string_view name) const;
  std::int64_t integer(std::string_view name, std::int64_t otherwise) const;
  double number(std::string_view name, double otherwise) const;
  std::string string(std::string_view name, std::string otherwise) const;
  Ints integers(std::string_view name, Ints otherwise = {}) const;
  std::vector<double> numbers(std::string_view name) const;
  std::vector<std::string> strings(std::string_view name) const;
  /// Of numbers. @throws ModelError for strings.
  std::optional<Tensor> tensor_attr(std::string_view name) const;
  /// The constant that a tensor attribute is; undefined if it is absent.
  Value constant_attr(std::string_view name) const;
  /// A nested graph. @throws ModelError if it is absent.
  const onnx_format::GraphProto& graph(std::string_view name) const;
  const TensorSource& source() const { return source_; }
  /// The codes of strings of the model, in one dimension.
  Tensor codes_of(std::span<const std::string> strings) const;
  DType dtype(std::string_view name, DType otherwise) const;
  /// 2 or 4, where the element type that an attribute names has so few bits; else 0.
  std::int64_t bits(std::string_view name) const;
  /// An axis attribute or number in [0, rank). @throws ModelError.
  std::int64_t axis(std::int64_t axis, std::int64_t rank) const;
  Ints axes(Ints axes, std::int64_t rank) const;

  [[noreturn]] void unsupported(std::string what) const;
  [[noreturn]] void malformed(std::string what, std::string expected, std::string got) const;

 private:
  template <typename T>
  const T& only_one(const std::vector<T>& numbers, std::string_view name) const;
  const onnx_format::AttributeProto* find(std::string_view name) const;
  [[noreturn]] void unknown_value(std::size_t k, std::string_view name) const;

  const onnx_format::NodeProto& proto_;
  const Converter& row_;
  std::vector<Value> inputs_;
  AttributeMap attributes_;
  std::int64_t opset_;
  const TensorSource& source_;
  std::string where_;
};

/// The values of a node's outputs, in order. Absent trailing ones may be left out.
using Outputs = std::vector<Value>;
using ConvertFunction = Outputs (*)(const Node&);

/// What an op does with strings, of which it sees the codes.
enum class Texts : std::uint8_t {
  Refuses,
  Reads,  ///< compares or counts them; its converter says which results are strings
  Moves,  ///< its results are strings where an operand is
};

/// One ONNX op: how it is said with the engine's ops.
struct Converter {
  std::string_view name;
  ConvertFunction convert = nullptr;
  std::string_view ir_op{};  ///< for functions shared by many rows
  bool sequences = false;    ///< takes sequences of tensors too
  Texts texts = Texts::Refuses;
};

/// "conv1 (ai.onnx Conv)".
std::string describe(const onnx_format::NodeProto& node);

/// What the values of a node are called: "layer.0.MatMul" of a node "/layer.0/MatMul"; one without a name goes by its
/// first output.
std::string values_of(const onnx_format::NodeProto& node);

/// One op with one result.
Tensor one(std::string_view op, std::initializer_list<Tensor> operands, OpAttrs attrs = {});

/// "[-3, -2]".
std::string listed(const SymInts& numbers);

/// Whether the sizes that are numbers alone make more elements than 64 bits count, zeros taken as 1 as strides do.
bool is_uncountable(const SymInts& sizes);

/// Product of sizes.
SymInt product(std::span<const SymInt> sizes);
/// `x` with 1-sized dimensions inserted at `axes` (of the result).
Tensor unsqueeze_all(const Tensor& x, const Ints& axes);
/// `x` with dimension `from` moved to `to`.
Tensor moved_axis(const Tensor& x, std::int64_t from, std::int64_t to);
/// first, first+1, … below last.
Ints range_of(std::int64_t first, std::int64_t last);

}  // namespace heddle::onnx
