// NumPy's .npy files, format 1.0 to 3.0.
#pragma once

#include <string>

#include "heddle/onnx.h"
#include "heddle/tensor.h"

namespace heddle::cli {

/// @param codes  what strings become; null: they are refused
/// @throws ParseError (not a .npy file, truncated), UnsupportedError (dtype, byte order).
Tensor read_npy(const std::string& path, onnx::StringCodes* codes);
/// Row-major; bf16 is widened to f32. @throws ArgumentError if the file cannot be written.
/// @param codes  of the strings that the elements stand for; null: they are numbers
void write_npy(const std::string& path, const Tensor& tensor,
               const onnx::StringCodes* codes = nullptr);

}  // namespace heddle::cli
