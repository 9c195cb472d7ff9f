#include "ir/text_number.h"

#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <limits>

namespace heddle::ir {
namespace {

/// "1" and "1e+20" read as floats once they carry a point or an exponent.
std::string as_float(std::string text) {
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

template <typename T>
std::string shortest(T value) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return as_float(std::string(buffer, end));
}

template <typename T>
std::string shortest_small(double value) {
  const T stored(static_cast<float>(value));
  char buffer[64];
  for (int digits = 1; digits <= 9; ++digits) {
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(stored),
                                   std::chars_format::general, digits)
                         .ptr;
    float back = 0;
    std::from_chars(buffer, end, back);
    if (T(back).bits == stored.bits) return as_float(std::string(buffer, end));
  }
  return shortest(static_cast<float>(stored));
}

}  // namespace

std::string float_text(DType dtype, double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  switch (dtype) {
    case DType::F32:
      return shortest(static_cast<float>(value));
    case DType::F64:
      return shortest(value);
    default:
      return dispatch(dtype, [&]<typename T>() -> std::string {
        if constexpr (std::is_class_v<T>) return shortest_small<T>(value);
        return shortest(value);
      });
  }
}

std::string element_text(const Literal& literal, std::int64_t position) {
  if (is_floating(literal.dtype())) return float_text(literal.dtype(), literal.at(position));
  const std::int64_t value = literal.at_int(position);
  if (literal.dtype() == boolean) return value ? "true" : "false";
  if (literal.dtype() == u64) return std::to_string(static_cast<std::uint64_t>(value));
  return std::to_string(value);
}

std::optional<double> float_value(std::string_view text) {
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

namespace {

template <typename T>
std::optional<T> whole_value(std::string_view text) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

}  // namespace

std::optional<std::int64_t> int_value(std::string_view text) {
  return whole_value<std::int64_t>(text);
}

std::optional<std::uint64_t> unsigned_value(std::string_view text) {
  return whole_value<std::uint64_t>(text);
}

std::string in_quotes(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (c == '\n') {
      result += "\\n";
    } else if (c == '\t') {
      result += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      result += c;
    }
  }
  return result + '"';
}

}  // namespace heddle::ir
