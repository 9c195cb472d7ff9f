// Codes of strings, for those who call an engine.
#include "heddle/error.h"
#include "heddle/onnx.h"

namespace heddle::onnx {

StringCodes::StringCodes(const Signature& signature)
    : known_(signature.strings != nullptr ? signature.strings
                                          : std::make_shared<const std::vector<std::string>>()) {}

std::int64_t StringCodes::code_of(std::string_view text) {
  if (const std::int64_t code = place_of(*known_, text); code >= 0) return code;
  const auto [found, is_new] = codes_of_met_.try_emplace(std::string(text), count());
  if (is_new) met_.emplace_back(text);
  return found->second;
}

const std::string& StringCodes::string_of(std::int64_t code) const {
  const auto at = static_cast<std::size_t>(code);
  if (code < 0 || code >= count())
    throw ArgumentError({.what = "StringCodes: a code",
                         .where = {},
                         .expected = "0 or more, and less than " + std::to_string(count()),
                         .got = std::to_string(code)});
  return at < known_->size() ? (*known_)[at] : met_[at - known_->size()];
}

Tensor StringCodes::encode(std::span<const std::string> strings, Sizes sizes) {
  Tensor codes = Tensor::empty(i64, std::move(sizes));
  if (codes.count() != static_cast<std::int64_t>(strings.size()))
    throw ArgumentError({.what = "StringCodes::encode: strings",
                         .where = {},
                         .expected = std::to_string(codes.count()),
                         .got = std::to_string(strings.size())});
  for (std::size_t k = 0; k < strings.size(); ++k)
    codes.data_as<std::int64_t>()[k] = code_of(strings[k]);
  return codes;
}

std::vector<std::string> StringCodes::decode(const Tensor& codes) const {
  if (codes.dtype() != i64 || codes.device() != Device::cpu())
    throw ArgumentError(
        {.what = "StringCodes::decode: the tensor",
         .where = {},
         .expected = "i64 on the CPU",
         .got = std::string(name_of(codes.dtype())) + " on " + codes.device().to_string()});
  const Tensor dense = codes.is_row_major() ? codes : codes.clone();
  std::vector<std::string> strings;
  for (std::int64_t k = 0; k < dense.count(); ++k)
    strings.push_back(string_of(dense.data_as<std::int64_t>()[k]));
  return strings;
}

}  // namespace heddle::onnx
