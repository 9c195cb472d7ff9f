// Regions: bodies traced into graphs of their own, and branches and loops over them.
//
// A body is any callable. What it returns may be built as you like (see structure.h): the tensors in it
// become the region's results, and afterwards the very same handles name them in the surrounding trace;
// everything else in it stays as it was. Tensors of the surrounding trace and tensors with data may be
// captured. Outside a trace the bodies simply run.
//
// Bodies may not mutate what they are given (MutationError), nor keep tensors that they do not return
// (SideEffectError; invoke() can permit it). When a body throws, the surrounding trace is as it was before.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "heddle/ops.h"
#include "heddle/structure.h"

namespace heddle {

/// How invoke() treats its region.
struct RegionOptions {
  std::string name = "region";
  /// No two operands, two results, or operand and result share storage: AliasingError. When false, a result
  /// that is an operand becomes a view of it.
  bool strict = true;
  /// Tensors that the body keeps elsewhere become further results.
  bool allow_side_effects = false;
  /// Operands that the body does not use stay inputs of the region.
  bool keep_unused = false;
  At where = At::current();
};

/// How scan() and map() run.
struct ScanOptions {
  std::optional<SymInt> length{};  ///< iterations; needed when nothing is scanned
  bool reverse = false;            ///< from the last slice to the first
  /// i64[], of scan(): how many slices are run, the first ones. Elements of the others are zeros.
  std::optional<Tensor> count{};
  At where = At::current();
};

/// How while_loop() and scan_while() run.
struct WhileOptions {
  /// Sizes of what is carried may not change between iterations: those of the results are known before the run, and nothing is
  /// bound to sizes in an iteration.
  bool fixed_sizes = false;
  At where = At::current();
};

namespace detail {

/// A callable over the tensors of its arguments; the leaves lie in the value that it returned.
using Body = std::function<Leaves(std::span<const Tensor>)>;

HEDDLE_API bool tracing();
HEDDLE_API void trace_invoke(const RegionOptions& options, std::span<const Tensor> operands,
                             const Body& body);
/// The results are put into the leaves of the value that `then_body` returned.
HEDDLE_API void trace_cond(const Arg& predicate, std::span<const Tensor> operands,
                           const Body& then_body, const Body& else_body);
/// Those of the value that `body` returned. `stacks`: which is the next state and an element of the result.
HEDDLE_API void trace_while(const Leaves& start, const Body& condition, const Body& body,
                            bool stacks, const WhileOptions& options);
/// `body` takes the carried tensors, then the slices.
HEDDLE_API void trace_scan(const Leaves& start, std::span<const Tensor> scanned, const Body& body,
                           const ScanOptions& options, bool is_map);

/// Without a trace: how many iterations, slice `at` of the first dimension, and elements stacked along it.
HEDDLE_API std::int64_t scan_length(std::span<const Tensor> scanned, const ScanOptions& options);
HEDDLE_API Tensor slice_at(const Tensor& tensor, std::int64_t at);
HEDDLE_API Tensor zeros_like(const Tensor& tensor);
HEDDLE_API Tensor stacked(const std::vector<Tensor>& elements);

template <typename T>
std::vector<Tensor> tensors_of(T& value) {
  std::vector<Tensor> tensors;
  for (const Leaves::Leaf& leaf : leaves_of(value).leaves)
    if (leaf.tensor != nullptr) tensors.push_back(*leaf.tensor);
  return tensors;
}
/// `value` with its tensors replaced by the first of `tensors`, which it takes.
template <typename T>
T with_tensors(T value, std::span<const Tensor>& tensors) {
  for (const Leaves::Leaf& leaf : leaves_of(value).leaves) {
    if (leaf.tensor == nullptr) continue;
    *leaf.tensor = tensors.front();
    tensors = tensors.subspan(1);
  }
  return value;
}

/// `f` over the tensors of `arguments`, its return value kept in `result`.
template <typename R, typename F, typename A>
Body body_of(F& f, const A& arguments, std::optional<R>& result) {
  return [&](std::span<const Tensor> tensors) {
    A given = with_tensors(arguments, tensors);
    result.emplace(std::apply(f, std::move(given)));
    return leaves_of(*result);
  };
}

}  // namespace detail

/// Runs `body` on `arguments` as a region that is compiled once: bodies that trace to the same graph share
/// it, however often they are called.
///
/// @throws AliasingError, MutationError, SideEffectError; what the body throws, naming the region.
template <typename F, typename... A>
auto invoke(const RegionOptions& options, F&& body, A... arguments) {
  using R = std::decay_t<std::invoke_result_t<F&, A...>>;
  if (!detail::tracing()) return R(body(std::move(arguments)...));
  const std::tuple<A...> given(std::move(arguments)...);
  std::optional<R> result;
  std::tuple<A...> copy = given;
  detail::trace_invoke(options, detail::tensors_of(copy), detail::body_of(body, given, result));
  return std::move(*result);
}

/// Runs one of two bodies, chosen by a bool tensor; only the chosen one is executed. Both get `arguments`
/// and must return values that are built alike, with the same constants in them.
///
/// @throws StructureError when they do not; DTypeError, ShapeError when the tensors differ in dtype or rank.
template <typename Then, typename Else, typename... A>
auto cond(const Arg& predicate, Then&& then_body, Else&& else_body, A... arguments) {
  using R = std::decay_t<std::invoke_result_t<Then&, A...>>;
  static_assert(std::is_same_v<R, std::decay_t<std::invoke_result_t<Else&, A...>>>,
                "both bodies of a cond return the same type");
  if (!detail::tracing())
    return predicate.tensor.item() != 0 ? R(then_body(std::move(arguments)...))
                                        : R(else_body(std::move(arguments)...));
  const std::tuple<A...> given(std::move(arguments)...);
  std::tuple<A...> copy = given;
  std::optional<R> result;
  std::optional<R> other;
  detail::trace_cond(predicate, detail::tensors_of(copy), detail::body_of(then_body, given, result),
                     detail::body_of(else_body, given, other));
  return std::move(*result);
}

/// `state = body(state)` as long as condition(state), a bool tensor, holds. The state is built like the
/// first one in every iteration, its tensors of the same dtypes and ranks.
///
/// Their sizes may change, as those of a sequence that grows: body and condition are traced for any such sizes, compiled once and bound
/// to those of each iteration, and only the run tells the sizes of the results.
///
/// @throws StructureError, ShapeError naming the carried value that changes.
template <typename State, typename Condition, typename F>
State while_loop(State state, Condition&& condition, F&& body, const WhileOptions& options = {}) {
  if (!detail::tracing()) {
    while (condition(std::as_const(state)).item() != 0) state = body(std::as_const(state));
    return state;
  }
  const std::tuple<State> given(state);
  std::optional<Tensor> answer;
  std::optional<State> result;
  detail::trace_while(detail::leaves_of(state), detail::body_of(condition, given, answer),
                      detail::body_of(body, given, result), false, options);
  return std::move(*result);
}

/// As while_loop(), but that body(state) returns the next state and an element of the result, of the same sizes in each iteration. Outside of a trace the body runs once
/// where there is no iteration, to tell sizes and dtypes of elements.
///
/// @throws StructureError, ShapeError naming the carried value that changes.
/// @return the last state, and the elements stacked: the element's structure with a dimension more, whose size only the run tells.
template <typename State, typename Condition, typename F>
auto scan_while(State state, Condition&& condition, F&& body, const WhileOptions& options = {}) {
  using R = std::decay_t<std::invoke_result_t<F&, State>>;
  using Y = typename R::second_type;
  std::optional<R> result;
  if (detail::tracing()) {
    const std::tuple<State> given(state);
    std::optional<Tensor> answer;
    detail::trace_while(detail::leaves_of(state), detail::body_of(condition, given, answer),
                        detail::body_of(body, given, result), true, options);
    return std::pair<State, Y>(std::move(result->first), std::move(result->second));
  }
  std::vector<std::vector<Tensor>> elements;
  while (condition(std::as_const(state)).item() != 0) {
    result.emplace(body(std::as_const(state)));
    state = result->first;
    std::vector<Tensor> made = detail::tensors_of(result->second);
    elements.resize(made.size());
    for (std::size_t k = 0; k < made.size(); ++k) elements[k].push_back(made[k]);
  }
  // Where there is no iteration, what the body returns tells sizes and types.
  const bool none = !result;
  if (none) {
    result.emplace(body(std::as_const(state)));
    for (const Tensor& element : detail::tensors_of(result->second)) elements.push_back({element});
  }
  std::vector<Tensor> stacks;
  for (const auto& list : elements) {
    const Tensor all = detail::stacked(list);
    stacks.push_back(none ? slice(all, 0, 0, 0) : all);
  }
  std::span<const Tensor> left(stacks);
  return std::pair<State, Y>(std::move(state), detail::with_tensors(result->second, left));
}

/// Runs body(carry, slice) for each slice of `xs` along the first dimension; it returns the next carry and
/// an element of the result. `xs` is built of tensors of one length.
///
/// @return the last carry, and the elements stacked: the element's structure with a dimension more.
template <typename Carry, typename Xs, typename F>
auto scan(Carry carry, Xs xs, F&& body, const ScanOptions& options = {}) {
  using R = std::decay_t<std::invoke_result_t<F&, Carry, Xs>>;
  using Y = typename R::second_type;
  const std::vector<Tensor> scanned = detail::tensors_of(xs);
  std::optional<R> result;
  if (detail::tracing()) {
    const std::tuple<Carry, Xs> given(carry, xs);
    detail::trace_scan(detail::leaves_of(carry), scanned, detail::body_of(body, given, result),
                       options, false);
    return std::pair<Carry, Y>(std::move(result->first), std::move(result->second));
  }
  const std::int64_t length = detail::scan_length(scanned, options);
  std::vector<std::vector<Tensor>> elements;
  for (std::int64_t step = 0; step < length; ++step) {
    const std::int64_t at = options.reverse ? length - 1 - step : step;
    std::vector<Tensor> slices;
    for (const Tensor& tensor : scanned) slices.push_back(detail::slice_at(tensor, at));
    std::span<const Tensor> left(slices);
    // Of slices beyond the count, what the body returns tells sizes and types only.
    const bool counts = !options.count || static_cast<double>(at) < options.count->item();
    result.emplace(body(carry, detail::with_tensors(xs, left)));
    if (counts) carry = result->first;
    std::vector<Tensor> made = detail::tensors_of(result->second);
    if (!counts) {
      for (Tensor& element : made) element = detail::zeros_like(element);
    }
    elements.resize(made.size());
    for (std::size_t k = 0; k < made.size(); ++k)
      elements[k].insert(options.reverse ? elements[k].begin() : elements[k].end(), made[k]);
  }
  std::vector<Tensor> stacks;
  for (const auto& list : elements) stacks.push_back(detail::stacked(list));
  std::span<const Tensor> left(stacks);
  return std::pair<Carry, Y>(std::move(carry), detail::with_tensors(result->second, left));
}

/// Runs body(slice) for each slice of `xs` along the first dimension.
///
/// @return what the body returns, its tensors stacked.
template <typename Xs, typename F>
auto map(F&& body, Xs xs, const ScanOptions& options = {}) {
  using Y = std::decay_t<std::invoke_result_t<F&, Xs>>;
  const std::vector<Tensor> scanned = detail::tensors_of(xs);
  std::optional<Y> result;
  if (detail::tracing()) {
    const std::tuple<Xs> given(xs);
    detail::trace_scan({}, scanned, detail::body_of(body, given, result), options, true);
    return std::move(*result);
  }
  const auto step = [&](std::tuple<>, Xs slice) { return std::pair(std::tuple<>(), body(slice)); };
  return scan(std::tuple<>(), std::move(xs), step, options).second;
}

}  // namespace heddle
