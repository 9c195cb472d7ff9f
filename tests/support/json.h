// JSON that the product wrote, as tests read it. The library's templates are instantiated in one source, not in
// every test.
#pragma once

#include <compare>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::test {

class Json {
 public:
  using Entry = std::pair<std::string, Json>;

  /// @throws std::exception for text that is not JSON.
  static Json parse(std::string_view text);
  static Json array(std::initializer_list<Json> items = {});

  Json() = default;  ///< null
  Json(bool value) : kind_(Kind::Bool), whole_(value) {}
  Json(std::integral auto value) : kind_(Kind::Whole), whole_(static_cast<std::int64_t>(value)) {}
  Json(double value) : kind_(Kind::Number), number_(value) {}
  Json(const char* text) : Json(std::string(text)) {}
  Json(std::string_view text) : Json(std::string(text)) {}
  Json(std::string text) : kind_(Kind::Text), text_(std::move(text)) {}

  bool is_null() const { return kind_ == Kind::Null; }
  bool is_string() const { return kind_ == Kind::Text; }
  bool is_number() const { return kind_ == Kind::Whole || kind_ == Kind::Number; }
  bool is_array() const { return kind_ == Kind::Array; }
  bool is_object() const { return kind_ == Kind::Object; }

  /// Of an array or object: its values; of any other none.
  std::size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  std::vector<Json>::const_iterator begin() const { return items_.begin(); }
  std::vector<Json>::const_iterator end() const { return items_.end(); }
  const Json& front() const { return items_.front(); }
  const Json& back() const { return items_.back(); }
  std::vector<Entry> items() const;  ///< of an object

  bool contains(std::string_view key) const { return find(key) != nullptr; }
  /// @throws std::out_of_range for what is not there.
  const Json& at(std::string_view key) const;
  const Json& at(std::size_t index) const { return items_.at(index); }
  const Json& operator[](const char* key) const { return at(key); }
  const Json& operator[](const std::string& key) const { return at(key); }
  const Json& operator[](std::integral auto index) const {
    return at(static_cast<std::size_t>(index));
  }
  Json value(std::string_view key, Json otherwise) const;

  /// @throws std::runtime_error for a value of another kind.
  operator std::string() const { return text(); }
  template <std::integral T>
    requires(!std::same_as<T, char>)
  operator T() const {
    return static_cast<T>(whole());
  }
  template <typename T>
  T get() const;

  /// Numbers are equal by value, whatever they were written as.
  friend bool operator==(const Json& a, const Json& b) { return a.equals(b); }
  template <typename T>
    requires(!std::same_as<T, Json> && std::constructible_from<Json, const T&>)
  friend bool operator==(const Json& a, const T& b) {
    return a.equals(Json(b));
  }

  /// @throws std::runtime_error for what is not a number.
  friend std::partial_ordering operator<=>(const Json& a, const Json& b) {
    return a.number() <=> b.number();
  }
  template <typename T>
    requires std::integral<T> || std::floating_point<T>
  friend std::partial_ordering operator<=>(const Json& a, T b) {
    return a.number() <=> static_cast<double>(b);
  }

  std::string dump(int indent = -1) const;
  friend std::ostream& operator<<(std::ostream& out, const Json& json) {
    return out << json.dump();
  }

 private:
  enum class Kind : std::uint8_t { Null, Bool, Whole, Number, Text, Array, Object };
  struct Convert;

  const Json* find(std::string_view key) const;
  bool equals(const Json& other) const;
  const std::string& text() const;
  std::int64_t whole() const;  ///< of a Bool or Whole
  double number() const;

  Kind kind_ = Kind::Null;
  std::int64_t whole_ = 0;
  double number_ = 0;
  std::string text_;
  std::vector<std::string> keys_;  ///< of an object
  std::vector<Json> items_;
};

template <typename T>
T Json::get() const {
  if constexpr (std::same_as<T, std::string>) {
    return text();
  } else if constexpr (std::integral<T>) {
    return static_cast<T>(whole());
  } else if constexpr (std::floating_point<T>) {
    return static_cast<T>(number());
  } else {
    T list;
    for (const Json& item : items_) list.push_back(item.get<typename T::value_type>());
    return list;
  }
}

}  // namespace heddle::test
