// JSON documents that are made and printed.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace heddle::base {

/// A value of JSON. Members of an object keep the order in which they came.
class Json {
 public:
  using Member = std::pair<std::string, Json>;

  Json(std::nullptr_t = nullptr) {}
  Json(bool value) : value_(value) {}
  Json(std::integral auto value) : value_(static_cast<std::int64_t>(value)) {}
  Json(double value) : value_(value) {}
  Json(const char* text) : value_(std::string(text)) {}
  Json(std::string_view text) : value_(std::string(text)) {}
  Json(std::string text) : value_(std::move(text)) {}
  /// An object.
  Json(std::initializer_list<Member> members);
  /// A list of what the vector holds.
  template <typename T>
    requires std::constructible_from<Json, const T&>
  Json(const std::vector<T>& values) : value_(List(values.begin(), values.end())) {}

  static Json array();
  static Json object();

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  /// Of a whole number.
  std::int64_t integer() const { return std::get<std::int64_t>(value_); }
  /// The member of an object; it is made, null, where there is none.
  Json& operator[](std::string_view key);
  void push_back(Json value);
  Json& back();

  /// As text, an entry a line with one space for each level. Bytes that are no UTF-8 become U+FFFD.
  std::string dump() const;

 private:
  using List = std::vector<Json>;
  using Members = std::vector<Member>;

  void print(std::string& out, std::size_t level) const;

  std::variant<std::monostate, bool, std::int64_t, double, std::string, List, Members> value_;
};

}  // namespace heddle::base
