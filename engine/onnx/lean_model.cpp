#include "engine/onnx/lean_model.h"

#include <algorithm>
#include <cstdint>
#include <google/protobuf/io/coded_stream.h>
#include <set>
#include <utility>

namespace heddle::onnx {

namespace {

using google::protobuf::io::CodedInputStream;

// Field numbers of onnx.proto.
constexpr std::uint32_t kModelGraph = 7;
constexpr std::uint32_t kGraphNode = 1;
constexpr std::uint32_t kGraphInitializer = 5;
constexpr std::uint32_t kNodeInput = 1;
constexpr std::uint32_t kNodeOutput = 2;
constexpr std::uint32_t kNodeName = 3;
constexpr std::uint32_t kNodeOpType = 4;
constexpr std::uint32_t kNodeAttribute = 5;
constexpr std::uint32_t kNodeDocString = 6;
constexpr std::uint32_t kNodeDomain = 7;
constexpr std::uint32_t kAttributeName = 1;
constexpr std::uint32_t kAttributeTensor = 5;
constexpr std::uint32_t kAttributeGraph = 6;
constexpr std::uint32_t kAttributeGraphs = 11;
constexpr std::uint32_t kAttributeType = 20;
constexpr std::uint64_t kTypeTensor = 4;
constexpr std::uint32_t kTensorName = 8;
constexpr std::uint32_t kTensorRawData = 9;
constexpr std::uint32_t kTensorExternalData = 13;
constexpr std::uint32_t kTensorDataLocation = 14;

constexpr std::uint32_t kLengthDelimited = 2;
/// Smaller tensors are copied by the parser.
constexpr std::size_t kLarge = 4096;

/// One field of a message in wire format.
struct Field {
  std::uint32_t number = 0;
  std::uint32_t wire_type = 0;
  std::uint64_t varint = 0;  ///< of those with wire type 0
  std::string_view whole;    ///< with its tag
  std::string_view payload;  ///< of length-delimited ones
};

/// The fields of a message one after another.
class Fields {
 public:
  explicit Fields(std::string_view message)
      : message_(message),
        stream_(reinterpret_cast<const std::uint8_t*>(message.data()),
                static_cast<int>(message.size())) {}

  /// False at the end, or where the bytes are no field.
  bool next(Field& field) {
    const int begin = stream_.CurrentPosition();
    const std::uint32_t tag = stream_.ReadTag();
    whole_ = tag == 0 && begin == static_cast<int>(message_.size());
    if (tag == 0) return false;
    field = {.number = tag >> 3, .wire_type = tag & 7, .varint = 0, .whole = {}, .payload = {}};
    if (!skip(field)) return false;
    field.whole = between(begin, stream_.CurrentPosition());
    return true;
  }
  /// Whether next() has gone through the whole message.
  bool at_end() const { return whole_; }

 private:
  bool skip(Field& field) {
    std::uint32_t length = 0;
    switch (field.wire_type) {
      case 0:
        return stream_.ReadVarint64(&field.varint);
      case 1:
        return stream_.Skip(8);
      case kLengthDelimited: {
        if (!stream_.ReadVarint32(&length)) return false;
        const int begin = stream_.CurrentPosition();
        if (length > message_.size() - static_cast<std::size_t>(begin)) return false;
        if (!stream_.Skip(static_cast<int>(length))) return false;
        field.payload = between(begin, stream_.CurrentPosition());
        return true;
      }
      case 5:
        return stream_.Skip(4);
      default:
        return false;  // groups, which ONNX has none of
    }
  }
  std::string_view between(int begin, int end) const {
    return message_.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  }

  std::string_view message_;
  CodedInputStream stream_;
  bool whole_ = false;
};

void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void append_message(std::string& out, std::uint32_t number, std::string_view message) {
  append_varint(out, number << 3 | kLengthDelimited);
  append_varint(out, message.size());
  out += message;
}

/// The raw data of `tensor`, if it is large and all that holds its elements. False: not a tensor.
bool find_weights(std::string_view tensor, std::string_view& raw) {
  int raw_fields = 0;
  bool external = false;
  Fields fields(tensor);
  for (Field field; fields.next(field);) {
    external =
        external || field.number == kTensorExternalData || field.number == kTensorDataLocation;
    if (field.number != kTensorRawData) continue;
    ++raw_fields;
    raw = field.payload;
  }
  if (raw_fields != 1 || external || raw.size() < kLarge) raw = {};
  return fields.at_end();
}

/// An initialiser: `tensor` without its raw data, and of the name `name` if there is one.
void append_without_raw_data(std::string& out, std::string_view tensor,
                             std::optional<std::string_view> name = {}) {
  std::string rest;
  Fields fields(tensor);
  for (Field field; fields.next(field);)
    if (field.number != kTensorRawData && !(name && field.number == kTensorName))
      rest += field.whole;
  if (name) append_message(rest, kTensorName, *name);
  append_message(out, kGraphInitializer, rest);
}

/// A Constant node whose value is one tensor.
struct Constant {
  std::string_view output;
  std::string_view tensor;
};

/// The tensor of `attribute`, if it is a node's value and nothing else.
std::optional<std::string_view> tensor_of(std::string_view attribute) {
  std::optional<std::string_view> tensor;
  std::string_view name;
  std::uint64_t type = 0;
  Fields fields(attribute);
  for (Field field; fields.next(field);) {
    if (field.number == kAttributeName) {
      name = field.payload;
    } else if (field.number == kAttributeTensor && !tensor) {
      tensor = field.payload;
    } else if (field.number == kAttributeType) {
      type = field.varint;
    } else {
      return {};
    }
  }
  const bool is_value = name == "value" && type == kTypeTensor;
  return fields.at_end() && is_value ? tensor : std::nullopt;
}

std::optional<Constant> constant_of(std::string_view node) {
  Constant constant;
  std::string_view op;
  std::string_view domain;
  int outputs = 0;
  int attributes = 0;
  Fields fields(node);
  for (Field field; fields.next(field);) {
    if (field.number == kNodeOutput) {
      ++outputs;
      constant.output = field.payload;
    } else if (field.number == kNodeOpType) {
      op = field.payload;
    } else if (field.number == kNodeDomain) {
      domain = field.payload;
    } else if (field.number == kNodeAttribute) {
      ++attributes;
      const auto tensor = tensor_of(field.payload);
      if (!tensor) return {};
      constant.tensor = *tensor;
    } else if (field.number != kNodeName && field.number != kNodeDocString) {
      return {};
    }
  }
  const bool is_constant = op == "Constant" && (domain.empty() || domain == "ai.onnx");
  const bool is_one = fields.at_end() && outputs == 1 && attributes == 1;
  return is_constant && is_one && !constant.output.empty() ? std::optional(constant) : std::nullopt;
}

/// The weights of the node that `field` of a graph is, if it is a Constant with large ones.
std::optional<std::pair<Constant, std::string_view>> large_constant(const Field& field) {
  // Most of a graph's nodes are smaller than that.
  if (field.number != kGraphNode || field.whole.size() < kLarge) return {};
  const auto constant = constant_of(field.payload);
  std::string_view raw;
  if (!constant || !find_weights(constant->tensor, raw) || raw.empty()) return {};
  return std::pair(*constant, raw);
}

/// Deeper graphs than that are no model: the parser refuses 100 messages in one another.
constexpr int kMaxDepth = 40;

void add_names_read(std::string_view graph, int depth, std::set<std::string_view>& names);

/// What a node reads, and the graphs that it holds.
void add_names_read_by(std::string_view node, int depth, std::set<std::string_view>& names) {
  Fields fields(node);
  for (Field field; fields.next(field);) {
    if (field.number == kNodeInput) names.insert(field.payload);
    if (field.number != kNodeAttribute) continue;
    Fields attribute(field.payload);
    for (Field part; attribute.next(part);)
      if (part.number == kAttributeGraph || part.number == kAttributeGraphs)
        add_names_read(part.payload, depth + 1, names);
  }
}

void add_names_read(std::string_view graph, int depth, std::set<std::string_view>& names) {
  if (depth > kMaxDepth) return;
  Fields fields(graph);
  for (Field field; fields.next(field);)
    if (field.number == kGraphNode) add_names_read_by(field.payload, depth, names);
}

/// Whether a node reads a large constant that comes after it, which is an error: initialisers come before all nodes.
bool reads_ahead(std::string_view graph) {
  std::set<std::string_view> names;
  Fields fields(graph);
  for (Field field; fields.next(field);) {
    if (field.number != kGraphNode) continue;
    if (const auto constant = large_constant(field)) {
      if (names.contains(constant->first.output)) return true;
    } else {
      add_names_read_by(field.payload, 0, names);
    }
  }
  return false;
}

bool is_initializer(const Field& field) {
  return field.number == kGraphInitializer && field.wire_type == kLengthDelimited;
}

/// The one graph of the model; nothing if there are more, or the bytes are no model.
std::optional<std::string_view> only_graph(std::string_view model) {
  std::optional<std::string_view> graph;
  Fields fields(model);
  for (Field field; fields.next(field);) {
    if (field.number != kModelGraph) continue;
    if (graph || field.wire_type != kLengthDelimited) return {};
    graph = field.payload;
  }
  return fields.at_end() ? graph : std::nullopt;
}

/// Bytes of weights that a graph could do without; 0 too where it is none.
std::size_t weights_of(std::string_view graph) {
  std::size_t bytes = 0;
  Fields fields(graph);
  for (Field field; fields.next(field);) {
    std::string_view raw;
    if (const auto constant = large_constant(field))
      raw = constant->second;
    else if (is_initializer(field) && !find_weights(field.payload, raw))
      return 0;
    bytes += raw.size();
  }
  return fields.at_end() ? bytes : 0;
}

}  // namespace

std::optional<LeanModel> without_weights(std::string_view model) {
  const auto graph = only_graph(model);
  if (!graph || weights_of(*graph) < std::max<std::size_t>(model.size() / 2, 1)) return {};
  if (reads_ahead(*graph)) return {};
  LeanModel lean;
  std::vector<std::string_view> of_constants;
  std::string constants;
  std::string rest;
  Fields fields(*graph);
  for (Field field; fields.next(field);) {
    if (const auto constant = large_constant(field)) {
      of_constants.push_back(constant->second);
      append_without_raw_data(constants, constant->first.tensor, constant->first.output);
      continue;
    }
    const bool is_tensor = is_initializer(field);
    if (is_tensor) find_weights(field.payload, lean.weights.emplace_back());
    if (is_tensor && !lean.weights.back().empty())
      append_without_raw_data(rest, field.payload);
    else
      rest += field.whole;
  }
  lean.constants = of_constants.size();
  lean.weights.insert(lean.weights.end(), of_constants.begin(), of_constants.end());
  rest += constants;
  Fields outer(model);
  for (Field field; outer.next(field);) {
    if (field.number == kModelGraph)
      append_message(lean.bytes, kModelGraph, rest);
    else
      lean.bytes += field.whole;
  }
  return lean;
}

}  // namespace heddle::onnx
