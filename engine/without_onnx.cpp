// ONNX in a build without the importer: each entry says which option it needs.
#include "heddle/onnx.h"

namespace heddle::onnx {

namespace {

[[noreturn]] void not_built(const char* what, const std::string& where) {
  throw UnsupportedError({.what = what,
                          .where = where,
                          .expected = "a build with HEDDLE_WITH_ONNX",
                          .got = "one without"});
}

}  // namespace

NeedsValueError::NeedsValueError(Parts parts, std::string input)
    : UnsupportedError(std::move(parts)), input_(std::move(input)) {}
NeedsValueError::~NeedsValueError() = default;

Engine load(const std::string& path, EngineOptions, const Constants&) {
  not_built("onnx::load", path);
}

Engine load_bytes(const void*, std::size_t, EngineOptions, const std::string&, const Constants&) {
  not_built("onnx::load_bytes", {});
}

Tensor load_tensor(const std::string& path) { not_built("onnx::load_tensor", path); }
Tensor load_tensor(const std::string& path, StringCodes&) { not_built("onnx::load_tensor", path); }

}  // namespace heddle::onnx
