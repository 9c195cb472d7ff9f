#include "engine/onnx/lean_model.h"

#include <cstdint>
#include <google/protobuf/io/coded_stream.h>

namespace heddle::onnx {

namespace {

using google::protobuf::io::CodedInputStream;

// Field numbers of onnx.proto.
constexpr std::uint32_t kModelGraph = 7;
constexpr std::uint32_t kGraphInitializer = 5;
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
    field = {.number = tag >> 3, .wire_type = tag & 7, .whole = {}, .payload = {}};
    if (!skip(field)) return false;
    field.whole = between(begin, stream_.CurrentPosition());
    return true;
  }
  /// Whether next() has gone through the whole message.
  bool at_end() const { return whole_; }

 private:
  bool skip(Field& field) {
    std::uint64_t number = 0;
    std::uint32_t length = 0;
    switch (field.wire_type) {
      case 0:
        return stream_.ReadVarint64(&number);
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

void append_without_raw_data(std::string& out, std::string_view tensor) {
  std::string rest;
  Fields fields(tensor);
  for (Field field; fields.next(field);)
    if (field.number != kTensorRawData) rest += field.whole;
  append_message(out, kGraphInitializer, rest);
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

}  // namespace

std::optional<LeanModel> without_weights(std::string_view model) {
  const auto graph = only_graph(model);
  if (!graph) return {};
  LeanModel lean;
  std::size_t left_out = 0;
  Fields scan(*graph);
  for (Field field; scan.next(field);) {
    if (!is_initializer(field)) continue;
    if (!find_weights(field.payload, lean.weights.emplace_back())) return {};
    left_out += lean.weights.back().size();
  }
  if (!scan.at_end() || left_out < model.size() / 2) return {};
  std::string rest;
  std::size_t k = 0;
  Fields fields(*graph);
  for (Field field; fields.next(field);) {
    if (is_initializer(field) && !lean.weights[k++].empty())
      append_without_raw_data(rest, field.payload);
    else
      rest += field.whole;
  }
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
