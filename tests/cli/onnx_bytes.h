// ONNX files byte by byte, so that these tests need no part of the engine.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace heddle::cli_test {

inline std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
/// A field of a protobuf message: a number, or bytes (text, a nested message).
inline std::string field(int number, std::int64_t value) {
  return varint(static_cast<std::uint64_t>(number) << 3) +
         varint(static_cast<std::uint64_t>(value));
}
inline std::string field(int number, const std::string& bytes) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 2) + varint(bytes.size()) + bytes;
}

constexpr int kOnnxFloat = 1;
constexpr int kOnnxString = 8;

/// A TensorProto of f32.
inline std::string tensor_bytes(const std::vector<std::int64_t>& sizes,
                                const std::vector<float>& values) {
  std::string bytes;
  for (const std::int64_t size : sizes) bytes += field(1, size);
  std::string raw(values.size() * sizeof(float), '\0');
  std::memcpy(raw.data(), values.data(), raw.size());
  return bytes + field(2, kOnnxFloat) + field(9, raw);
}

/// A TensorProto of strings.
inline std::string text_bytes(const std::vector<std::int64_t>& sizes,
                              const std::vector<std::string>& strings) {
  std::string bytes;
  for (const std::int64_t size : sizes) bytes += field(1, size);
  bytes += field(2, kOnnxString);
  for (const std::string& string : strings) bytes += field(6, string);
  return bytes;
}

/// A dimension called "n" and one of 2 elements.
inline std::string value_info(const std::string& name, int dtype) {
  const std::string shape = field(1, field(2, std::string("n"))) + field(1, field(1, 2));
  return field(1, name) + field(2, field(1, field(1, dtype) + field(2, shape)));
}

/// A model of one node over input "x" that gives "y".
inline std::string model_bytes(const std::string& op, int dtype = kOnnxFloat) {
  const std::string node = field(1, std::string("x")) + field(2, std::string("y")) +
                           field(3, std::string("the_node")) + field(4, op);
  const std::string graph = field(1, node) + field(2, std::string("g")) +
                            field(11, value_info("x", dtype)) + field(12, value_info("y", dtype));
  return field(1, 8) + field(7, graph) + field(8, field(2, 17));
}

}  // namespace heddle::cli_test
