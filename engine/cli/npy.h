// NumPy's .npy files, format 1.0 to 3.0.
#pragma once

#include <string>

#include "heddle/tensor.h"

namespace heddle::cli {

/// @throws ParseError (not a .npy file, truncated), UnsupportedError (dtype, byte order).
Tensor read_npy(const std::string& path);
/// Row-major; bf16 is widened to f32. @throws ArgumentError if the file cannot be written.
void write_npy(const std::string& path, const Tensor& tensor);

}  // namespace heddle::cli
