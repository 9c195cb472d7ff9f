#include "engine/onnx/lean_model.h"

#include <cstdint>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

namespace heddle::onnx {

namespace {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::StringOutputStream;

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

void append_message(std::string& out, std::uint32_t number, std::string_view message) {
  StringOutputStream stream(&out);
  CodedOutputStream coded(&stream);
  coded.WriteTag(number << 3 | kLengthDelimited);
  coded.WriteVarint32(static_cast<std::uint32_t>(message.size()));
  coded.WriteRaw(message.data(), static_cast<int>(message.size()));
}

/// The tensor without its raw data, which goes to `raw`; nothing to leave out: the same bytes. False: not a tensor.
bool lean_tensor(std::string_view tensor, std::string& out, std::string_view& raw) {
  int raw_fields = 0;
  bool external = false;
  Fields fields(tensor);
  for (Field field; fields.next(field);) {
    external =
        external || field.number == kTensorExternalData || field.number == kTensorDataLocation;
    if (field.number == kTensorRawData && field.wire_type == kLengthDelimited) {
      ++raw_fields;
      raw = field.payload;
    } else {
      out += field.whole;
    }
  }
  if (!fields.at_end()) return false;
  if (raw_fields == 1 && !external && raw.size() >= kLarge) return true;
  raw = {};
  out = tensor;
  return true;
}

bool lean_graph(std::string_view graph, std::string& out, std::vector<std::string_view>& weights) {
  Fields fields(graph);
  for (Field field; fields.next(field);) {
    if (field.number != kGraphInitializer || field.wire_type != kLengthDelimited) {
      out += field.whole;
      continue;
    }
    std::string tensor;
    if (!lean_tensor(field.payload, tensor, weights.emplace_back())) return false;
    append_message(out, kGraphInitializer, tensor);
  }
  return fields.at_end();
}

}  // namespace

std::optional<LeanModel> without_weights(std::string_view model) {
  LeanModel lean;
  int graphs = 0;
  Fields fields(model);
  for (Field field; fields.next(field);) {
    if (field.number != kModelGraph) {
      lean.bytes += field.whole;
      continue;
    }
    std::string graph;
    if (++graphs > 1 || !lean_graph(field.payload, graph, lean.weights)) return {};
    append_message(lean.bytes, kModelGraph, graph);
  }
  if (!fields.at_end() || graphs != 1) return {};
  return lean;
}

}  // namespace heddle::onnx
