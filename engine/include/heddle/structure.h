// Finding the tensors inside a value that a callable returns.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "heddle/tensor.h"

namespace heddle {

/// Visits every tensor in `value`, in structure order, by reference. Knows Tensor, vector, array, map,
/// tuple, pair, optional and nestings of them. Numbers, strings and other plain values are left alone.
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
struct IsSequence : std::false_type {};
template <typename T>
struct IsSequence<std::vector<T>> : std::true_type {};
template <typename T, std::size_t N>
struct IsSequence<std::array<T, N>> : std::true_type {};
template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <typename T>
struct IsMap : std::false_type {};
template <typename K, typename V, typename C>
struct IsMap<std::map<K, V, C>> : std::true_type {};

}  // namespace detail

template <typename T, typename F>
void visit_tensors(T& value, F&& visit) {
  if constexpr (std::is_same_v<T, Tensor>) {
    visit(value);
  } else if constexpr (detail::HasFields<T>) {
    std::apply([&](auto&... field) { (visit_tensors(field, visit), ...); }, heddle_fields(value));
  } else if constexpr (detail::IsTuple<T>::value) {
    std::apply([&](auto&... field) { (visit_tensors(field, visit), ...); }, value);
  } else if constexpr (detail::IsSequence<T>::value) {
    for (auto& element : value) visit_tensors(element, visit);
  } else if constexpr (detail::IsMap<T>::value) {
    for (auto& [key, element] : value) visit_tensors(element, visit);
  } else if constexpr (detail::IsOptional<T>::value) {
    if (value) visit_tensors(*value, visit);
  } else {
    static_assert(
        !std::is_class_v<T> || std::is_convertible_v<T, std::string>,
        "a struct returned from a traced callable needs heddle_fields(); see structure.h");
  }
}

}  // namespace heddle
