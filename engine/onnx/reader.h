// Reading model files: bytes to checked protobuf messages and tensors.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/onnx/value.h"
#include "heddle/engine.h"
#include "heddle/mapped_file.h"
#include "heddle/tensor.h"

namespace heddle::onnx_format {
class ModelProto;
class TensorProto;
}  // namespace heddle::onnx_format

namespace heddle::onnx {

/// The dtype of an ONNX TensorProto.DataType but STRING. @throws UnsupportedError naming it and `where`.
/// Integers of 2 and 4 bits are i8 or u8, floats of 4 bits f8e4m3fn: see bits_of_onnx().
DType dtype_of_onnx(int data_type, const std::string& where);
/// 2 or 4 of the types that have so few bits; else 0.
std::int64_t bits_of_onnx(int data_type);

/// @throws ModelError naming the path.
std::shared_ptr<const MappedFile> map_file(const std::string& path);

struct ParsedModel {
  std::shared_ptr<const onnx_format::ModelProto> proto;
  /// Of each initialiser of the main graph, in order: its raw data, which was left where it lies in the bytes
  /// parsed; empty, or none listed: the message holds it.
  std::vector<std::string_view> weights;
};

/// Parses and checks: version, opset, sizes, and that nodes form an order without cycles.
/// @throws ModelError.
ParsedModel parse_model(const void* data, std::size_t size, const std::string& where);

/// What tensors of a model refer to.
struct TensorSource {
  /// Where external data lies: the model's folder and, where the model is a link, as in caches that keep files by their
  /// hashes, that of the file itself.
  std::vector<std::string> folders{};
  StringTable strings{};
  /// The place of a string of the model. @throws ModelError for others.
  std::int64_t code_of(std::string_view text) const;
};

/// All strings that a model's tensors, labels, keys, values and categories are.
StringTable strings_of(const onnx_format::ModelProto& model);

bool is_string(int data_type);

/// What LabelEncoder and CategoryMapper give for other keys where they do not say.
inline constexpr const char* kUnusedLabel = "_Unused";

/// Of a message that read_tensor() takes: how it holds numbers of less than a byte, if it does.
std::optional<Packing> packing_of(const onnx_format::TensorProto& proto);

/// The tensor of a TensorProto; of numbers of less than a byte the bytes that hold them, in one dimension, of strings their codes.
/// External data must lie inside one of the folders.
/// @throws ModelError (wrong byte count, negative or absurd sizes, paths outside the folders),
///         UnsupportedError (dtype).
Tensor read_tensor(const onnx_format::TensorProto& proto, const TensorSource& source,
                   const std::string& where);

/// The tensor of a TensorProto whose raw data is `raw`: in place where its alignment allows it and `file`, which
/// holds it, is given; else a copy.
Tensor read_tensor(const onnx_format::TensorProto& proto, std::string_view raw,
                   std::shared_ptr<const MappedFile> file, const std::string& where);

/// What a constant of a model is: its tensor, text, or packed numbers. @throws as read_tensor() does.
Value read_constant(const onnx_format::TensorProto& proto, const TensorSource& source,
                    const std::string& where);

}  // namespace heddle::onnx
