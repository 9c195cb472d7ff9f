// Values as bytes and back, for files that the same build writes and reads.
//
// A type takes part by a function fields(archive, value) in its namespace that gives all its parts to the archive, bound by a
// structured binding: a part that is added later, and forgotten there, is then an error of the compiler.
//
//   void fields(auto& archive, Like<Point> auto& point) {
//     auto& [x, y] = point;
//     archive(x, y);
//   }
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/boxed.h"
#include "base/symexpr.h"

namespace heddle::base {

/// A U, const where it is written.
template <typename T, typename U>
concept Like = std::same_as<std::remove_const_t<T>, U>;

/// Bytes that no writer wrote.
struct ArchiveError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

namespace archive {
/// What a shared pointer begins with.
inline constexpr std::uint64_t kNone = 0, kNew = 1, kFirstKnown = 2;
}  // namespace archive

/// Integers are as long as they need to be. Expressions, and what shared pointers point to, are written once and told by their
/// numbers after that.
class ArchiveWriter {
 public:
  static constexpr bool kReads = false;

  template <typename... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }
  void raw(const void* data, std::size_t bytes) {
    bytes_.append(static_cast<const char*>(data), bytes);
  }
  std::string_view bytes() const { return bytes_; }

 private:
  template <typename T>
    requires std::is_enum_v<T>
  void put(const T& value) {
    number(static_cast<std::uint64_t>(value));
  }
  template <std::integral T>
  void put(const T& value) {
    if constexpr (std::is_signed_v<T>) {
      const auto wide = static_cast<std::int64_t>(value);
      number(static_cast<std::uint64_t>(wide) << 1 ^ static_cast<std::uint64_t>(wide >> 63));
    } else {
      number(value);
    }
  }
  template <std::floating_point T>
  void put(const T& value) {
    raw(&value, sizeof value);
  }
  void put(const std::string& text) {
    number(text.size());
    raw(text.data(), text.size());
  }
  template <typename T>
  void put(const std::vector<T>& values) {
    number(values.size());
    for (const auto& value : values) put(value);
  }
  template <typename K, typename V, typename C>
  void put(const std::map<K, V, C>& values) {
    number(values.size());
    for (const auto& [key, value] : values) (*this)(key, value);
  }
  template <typename A, typename B>
  void put(const std::pair<A, B>& pair) {
    (*this)(pair.first, pair.second);
  }
  template <typename T>
  void put(const std::optional<T>& value) {
    put_if(value);
  }
  template <typename T>
  void put(const Boxed<T>& value) {
    put_if(value);
  }
  template <typename T>
  void put(const std::shared_ptr<T>& value) {
    if (value == nullptr) return number(archive::kNone);
    const auto [known, is_new] = shared_.try_emplace(value.get(), shared_.size());
    number(is_new ? archive::kNew : archive::kFirstKnown + known->second);
    if (is_new) put(*value);
  }
  template <typename... T>
  void put(const std::variant<T...>& value) {
    number(value.index());
    std::visit([this](const auto& held) { put(held); }, value);
  }
  void put(const SymExpr& expr);
  template <typename T>
    requires std::is_class_v<T>
  void put(const T& value) {
    fields(*this, value);
  }
  template <typename T>
  void put_if(const T& value) {
    put(static_cast<bool>(value));
    if (value) put(*value);
  }
  void number(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }

  struct ExprHash {
    std::size_t operator()(const SymExpr& expr) const { return expr.hash(); }
  };
  std::string bytes_;
  std::unordered_map<SymExpr, std::uint64_t, ExprHash> exprs_;
  std::unordered_map<const void*, std::uint64_t> shared_;
};

/// @throws ArchiveError, std::bad_alloc; what it reads may then be half there.
class ArchiveReader {
 public:
  static constexpr bool kReads = true;

  explicit ArchiveReader(std::string_view bytes) : bytes_(bytes) {}

  template <typename... T>
  void operator()(T&... values) {
    (get(values), ...);
  }
  void raw(void* data, std::size_t bytes) { std::memcpy(data, take(bytes), bytes); }
  /// The next so many bytes, where they lie.
  const char* take(std::size_t bytes) {
    if (bytes > bytes_.size()) fail();
    const char* taken = bytes_.data();
    bytes_.remove_prefix(bytes);
    return taken;
  }
  bool at_end() const { return bytes_.empty(); }
  [[noreturn]] static void fail() { throw ArchiveError("no archive that this build wrote"); }

 private:
  template <typename T>
    requires std::is_enum_v<T>
  void get(T& value) {
    value = static_cast<T>(number());
  }
  template <std::integral T>
  void get(T& value) {
    const std::uint64_t read = number();
    if constexpr (std::is_signed_v<T>)
      value = static_cast<T>(static_cast<std::int64_t>(read >> 1) ^
                             -static_cast<std::int64_t>(read & 1));
    else
      value = static_cast<T>(read);
  }
  template <std::floating_point T>
  void get(T& value) {
    raw(&value, sizeof value);
  }
  void get(std::string& text) {
    const std::size_t size = count();
    text.assign(take(size), size);
  }
  template <typename T>
  void get(std::vector<T>& values) {
    values.resize(count());
    for (std::size_t k = 0; k < values.size(); ++k) {
      if constexpr (std::same_as<T, bool>)
        values[k] = number() != 0;
      else
        get(values[k]);
    }
  }
  template <typename K, typename V, typename C>
  void get(std::map<K, V, C>& values) {
    for (std::size_t left = count(); left != 0; --left) {
      K key;
      V value;
      (*this)(key, value);
      values.emplace_hint(values.end(), std::move(key), std::move(value));
    }
  }
  template <typename A, typename B>
  void get(std::pair<A, B>& pair) {
    (*this)(pair.first, pair.second);
  }
  template <typename T>
  void get(std::optional<T>& value) {
    if (number() != 0) get(value.emplace());
  }
  template <typename T>
  void get(Boxed<T>& value) {
    if (number() != 0) get(value.emplace());
  }
  template <typename T>
  void get(std::shared_ptr<T>& value) {
    using Made = std::remove_const_t<T>;
    const std::uint64_t tag = number();
    if (tag == archive::kNone) return;
    if (tag == archive::kNew) {
      const std::size_t at = shared_.size();
      shared_.emplace_back();
      const auto made = std::make_shared<Made>();
      get(*made);
      shared_[at] = {made, &typeid(Made)};
      value = made;
      return;
    }
    const std::uint64_t known = tag - archive::kFirstKnown;
    if (known >= shared_.size() || shared_[known].first == nullptr ||
        *shared_[known].second != typeid(Made))
      fail();
    value = std::static_pointer_cast<Made>(shared_[known].first);
  }
  template <typename... T>
  void get(std::variant<T...>& value) {
    get_held(value, number(), std::index_sequence_for<T...>());
  }
  template <typename... T, std::size_t... K>
  void get_held(std::variant<T...>& value, std::uint64_t index, std::index_sequence<K...>) {
    if (index >= sizeof...(T)) fail();
    ((index == K ? get(value.template emplace<K>()) : void()), ...);
  }
  void get(SymExpr& expr);
  template <typename T>
    requires std::is_class_v<T>
  void get(T& value) {
    fields(*this, value);
  }
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(*take(1));
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) return value;
    }
    fail();
  }
  /// Of things that take a byte or more each.
  std::size_t count() {
    const std::uint64_t read = number();
    if (read > bytes_.size()) fail();
    return read;
  }

  std::string_view bytes_;
  std::vector<SymExpr> exprs_;
  std::vector<std::pair<std::shared_ptr<void>, const std::type_info*>> shared_;
};

void fields(auto& archive, Like<Symbol> auto& symbol) {
  auto& [kind, id] = symbol;
  archive(kind, id);
}
void fields(ArchiveWriter& archive, const Facts& facts);
void fields(ArchiveReader& archive, Facts& facts);
void fields(auto& archive, Like<Facts::Range> auto& range) {
  auto& [low, high] = range;
  archive(low, high);
}
void fields(auto& archive, Like<Predicate> auto& predicate) {
  auto& [op, left, right] = predicate;
  archive(op, left, right);
}

}  // namespace heddle::base
