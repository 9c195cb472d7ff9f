// Finding the tensors inside a value that a callable returns.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "heddle/tensor.h"

namespace heddle {

/// Visits every tensor in `value`, in structure order, by reference. Knows Tensor, the standard containers and arrays
/// (unordered_map in the order of its keys), tuple, pair, optional, variant, pointers that own, and nestings of
/// them. Numbers, sizes, strings, functions and other plain values are left alone.
///
/// A struct of your own takes one line beside it:
///
///   struct Output { heddle::Tensor logits, hidden; };
///   auto heddle_fields(Output& o) { return std::tie(o.logits, o.hidden); }
template <typename T, typename F>
void visit_tensors(T& value, F&& visit);

namespace detail {

template <typename T>
concept HasFields = requires(T& v) { heddle_fields(v); };
template <typename T>
struct IsTuple : std::false_type {};
template <typename... T>
struct IsTuple<std::tuple<T...>> : std::true_type {};
template <typename A, typename B>
struct IsTuple<std::pair<A, B>> : std::true_type {};
template <typename T>
struct IsPointer : std::false_type {};
template <typename T>
struct IsPointer<std::optional<T>> : std::true_type {};
template <typename T>
struct IsPointer<std::shared_ptr<T>> : std::true_type {};
template <typename T, typename D>
struct IsPointer<std::unique_ptr<T, D>> : std::true_type {};
template <typename T>
struct IsMap : std::false_type {};
template <typename K, typename V, typename C>
struct IsMap<std::map<K, V, C>> : std::true_type {};
template <typename T>
struct IsUnorderedMap : std::false_type {};
template <typename K, typename V, typename H, typename E>
struct IsUnorderedMap<std::unordered_map<K, V, H, E>> : std::true_type {};

/// Calls `each(key, value)` in the order of the keys, which is the same for maps of the same keys.
template <typename Map, typename F>
void visit_by_key(Map& map, F&& each) {
  std::vector<typename Map::value_type*> entries;
  for (auto& entry : map) entries.push_back(&entry);
  std::sort(entries.begin(), entries.end(),
            [](const auto* a, const auto* b) { return a->first < b->first; });
  for (auto* entry : entries) each(entry->first, entry->second);
}

template <typename T>
struct IsVariant : std::false_type {};
template <typename... T>
struct IsVariant<std::variant<T...>> : std::true_type {};
template <typename T>
struct IsFunction : std::false_type {};
template <typename R, typename... A>
struct IsFunction<std::function<R(A...)>> : std::true_type {};

template <typename T>
constexpr bool is_plain() {
  return !std::is_class_v<T> || std::is_same_v<T, SymInt> || std::is_empty_v<T> ||
         IsFunction<T>::value || std::is_convertible_v<T, std::string>;
}

template <typename T>
struct IsStdArray : std::false_type {};
template <typename T, std::size_t N>
struct IsStdArray<std::array<T, N>> : std::true_type {};
/// Arrays and containers that own their elements and have no keys beside them: vector, deque, list, set, …
template <typename T>
concept IsSequence = !std::is_convertible_v<T, std::string> &&
                     (std::is_bounded_array_v<T> || IsStdArray<T>::value ||
                      (requires { typename T::allocator_type; } && std::ranges::forward_range<T> &&
                       !requires { typename T::mapped_type; }));
/// Those of plain values, which need not be references (vector<bool>).
template <typename T>
concept IsPlainSequence = IsSequence<T> && is_plain<std::ranges::range_value_t<T>>();

}  // namespace detail

template <typename T, typename F>
void visit_tensors(T& value, F&& visit) {
  if constexpr (std::is_same_v<T, Tensor>) {
    visit(value);
  } else if constexpr (detail::HasFields<T>) {
    std::apply([&](auto&... field) { (visit_tensors(field, visit), ...); }, heddle_fields(value));
  } else if constexpr (detail::IsTuple<T>::value) {
    std::apply([&](auto&... field) { (visit_tensors(field, visit), ...); }, value);
  } else if constexpr (detail::IsPlainSequence<T>) {
    // Nothing to visit.
  } else if constexpr (detail::IsSequence<T>) {
    for (auto& element : value) visit_tensors(element, visit);
  } else if constexpr (detail::IsMap<T>::value) {
    for (auto& [key, element] : value) visit_tensors(element, visit);
  } else if constexpr (detail::IsUnorderedMap<T>::value) {
    detail::visit_by_key(value, [&](const auto&, auto& element) { visit_tensors(element, visit); });
  } else if constexpr (detail::IsPointer<T>::value) {
    if (value) visit_tensors(*value, visit);
  } else if constexpr (detail::IsVariant<T>::value) {
    std::visit([&](auto& held) { visit_tensors(held, visit); }, value);
  } else {
    static_assert(
        detail::is_plain<T>(),
        "a struct returned from a traced callable needs heddle_fields(); see structure.h");
  }
}

namespace detail {

/// The tensors and symbolic sizes of a host value, in structure order, and how it is built.
struct Leaves {
  struct Leaf {
    Tensor* tensor = nullptr;
    SymInt* size = nullptr;
  };
  std::vector<Leaf> leaves;
  std::string structure;  ///< "(tensor, [tensor], 3)": equal for values that are built alike
};

template <typename T>
std::string constant_text(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_arithmetic_v<T>) {
    return std::to_string(value);
  } else if constexpr (std::is_enum_v<T>) {
    return std::to_string(static_cast<std::underlying_type_t<T>>(value));
  } else if constexpr (std::is_same_v<T, std::nullptr_t> || std::is_same_v<T, std::monostate>) {
    return "none";
  } else if constexpr (std::is_convertible_v<T, std::string>) {
    return '"' + std::string(value) + '"';
  } else {
    return "constant";
  }
}

template <typename T>
void add_leaves(T& value, Leaves& out);

/// Elements between brackets, each with a comma.
template <typename F>
void add_group(Leaves& out, const char* brackets, F&& add_all) {
  out.structure += brackets[0];
  const std::size_t start = out.structure.size();
  add_all();
  if (out.structure.size() > start) out.structure.resize(out.structure.size() - 2);
  out.structure += brackets[1];
}
template <typename T>
void add_element(T& value, Leaves& out) {
  add_leaves(value, out);
  out.structure += ", ";
}

template <typename T>
void add_leaves(T& value, Leaves& out) {
  if constexpr (std::is_same_v<T, Tensor>) {
    out.structure += value.defined() ? "tensor" : "none";
    if (value.defined()) out.leaves.push_back({&value, nullptr});
  } else if constexpr (std::is_same_v<T, SymInt>) {
    out.structure += value.is_symbolic() ? std::string("size") : value.to_string();
    if (value.is_symbolic()) out.leaves.push_back({nullptr, &value});
  } else if constexpr (HasFields<T>) {
    const auto each = [&](auto&... field) { (add_element(field, out), ...); };
    add_group(out, "{}", [&] { std::apply(each, heddle_fields(value)); });
  } else if constexpr (IsTuple<T>::value) {
    const auto each = [&](auto&... field) { (add_element(field, out), ...); };
    add_group(out, "()", [&] { std::apply(each, value); });
  } else if constexpr (IsSequence<T>) {
    add_group(out, "[]", [&] {
      for (auto&& element : value)
        if constexpr (std::is_same_v<std::ranges::range_value_t<T>, bool>) {
          bool plain = element;
          add_element(plain, out);
        } else {
          add_element(element, out);
        }
    });
  } else if constexpr (IsMap<T>::value) {
    add_group(out, "{}", [&] {
      for (auto& [key, element] : value) {
        out.structure += constant_text(key) + ": ";
        add_element(element, out);
      }
    });
  } else if constexpr (IsUnorderedMap<T>::value) {
    add_group(out, "{}", [&] {
      visit_by_key(value, [&](const auto& key, auto& element) {
        out.structure += constant_text(key) + ": ";
        add_element(element, out);
      });
    });
  } else if constexpr (IsPointer<T>::value) {
    if (value)
      add_leaves(*value, out);
    else
      out.structure += "none";
  } else if constexpr (IsVariant<T>::value) {
    std::visit([&](auto& held) { add_leaves(held, out); }, value);
  } else {
    static_assert(is_plain<T>(), "a struct that a region returns needs heddle_fields()");
    out.structure += constant_text(value);
  }
}

template <typename T>
Leaves leaves_of(T& value) {
  Leaves leaves;
  add_leaves(value, leaves);
  return leaves;
}

template <typename T>
struct IsShared : std::false_type {};
template <typename T>
struct IsShared<std::shared_ptr<T>>
    : std::bool_constant<!std::is_const_v<T> && std::is_copy_constructible_v<T>> {};

/// Gives `value` objects of its own in place of those behind its shared pointers, one for each; not of classes derived
/// from the pointer's, nor of what cannot be copied.
template <typename T>
void own_shared(T& value, std::map<const void*, std::shared_ptr<void>>& owned) {
  const auto each = [&](auto&... parts) { (own_shared(parts, owned), ...); };
  if constexpr (IsShared<T>::value) {
    using Object = typename T::element_type;
    if (!value) return;
    const Object& object = *value;
    if (typeid(object) != typeid(Object)) return;
    const auto [at, is_new] = owned.try_emplace(&object);
    if (is_new) {
      const auto copy = std::make_shared<Object>(object);
      at->second = copy;
      own_shared(*copy, owned);
    }
    value = std::static_pointer_cast<Object>(at->second);
  } else if constexpr (HasFields<T>) {
    std::apply(each, heddle_fields(value));
  } else if constexpr (IsTuple<T>::value) {
    std::apply(each, value);
  } else if constexpr (IsPointer<T>::value) {
    if (value) own_shared(*value, owned);
  } else if constexpr (IsVariant<T>::value) {
    std::visit(each, value);
  } else if constexpr (IsMap<T>::value || IsUnorderedMap<T>::value) {
    for (auto& entry : value) own_shared(entry.second, owned);
  } else if constexpr (IsSequence<T> && !IsPlainSequence<T>) {
    for (auto& element : value) own_shared(element, owned);
  }
}

}  // namespace detail
}  // namespace heddle
