// Loops that overwrite a part of what they carry, for every backend.
#pragma once

#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/control_flow/growing_programs.h"

namespace heddle::testing {

/// `x` with row `at`, i64[1, 1], replaced by `row`.
inline Tensor with_row(const Tensor& x, const Tensor& at, const Tensor& row) {
  const Tensor operands[] = {x, at, unsqueeze(row, 0)};
  return apply("scatter_nd", operands)[0];
}
inline Tensor place(const Tensor& number) { return reshape(number, {1, 1}); }

/// Rows of a table, each the sum of the one before and x; a loop that its own condition ends.
inline std::vector<Tensor> fill_rows(std::span<const Tensor> in) {
  using State = std::tuple<Tensor, Tensor, Tensor>;
  const auto [table, x, at] = while_loop(
      State(in[0], in[1], Tensor::scalar_int(i64, 0)),
      [&](const State& s) { return less(std::get<2>(s), in[2]); },
      [](const State& s) {
        const auto& [now, row, k] = s;
        const Tensor next = gather(now, k) + row;
        return State(with_row(now, place(k), next), next * 0.5f, k + 1);
      });
  return {table, x, in[0] + 0.0f};
}

/// The same beside stacked results, so that the run counts iterations, and two tables of which one reads the other.
inline std::vector<Tensor> fill_two(std::span<const Tensor> in) {
  using State = std::tuple<Tensor, Tensor, Tensor>;
  const auto [last, sums] = scan_while(
      State(in[0], in[0] * 2.0f, Tensor::scalar_int(i64, 0)),
      [&](const State& s) { return less(std::get<2>(s), in[2]); },
      [&](const State& s) {
        const auto& [a, b, k] = s;
        const Tensor row = gather(b, k) * 0.5f + in[1];
        const Tensor next = with_row(a, place(k), row);
        return std::pair(State(next, with_row(b, place(k), sum(next, {0})), k + 1), sum(a));
      });
  return {std::get<0>(last), std::get<1>(last), sums};
}

/// A counted loop; rows are written twice over.
inline std::vector<Tensor> fill_in_a_scan(std::span<const Tensor> in) {
  const auto [carry, sums] = scan(
      std::pair(in[0], in[1]), iota({6}), [](const std::pair<Tensor, Tensor>& c, const Tensor& k) {
        const auto& [table, row] = c;
        const Tensor once = with_row(table, place(mod(k, 2)), row);
        const Tensor twice = with_row(once, place(mod(k, 3)), row * 0.25f);
        return std::pair(std::pair(twice, row + 1.0f), sum(twice, {0}));
      });
  return {carry.first, sums};
}

/// What may not be overwritten: the old value is read once more, returned beside, or another one's next.
inline std::vector<Tensor> fill_and_keep(std::span<const Tensor> in) {
  using Carry = std::tuple<Tensor, Tensor, Tensor, Tensor>;
  const auto [carry, before] =
      scan(Carry(in[0], in[0] + 1.0f, in[0] + 2.0f, in[0] + 3.0f), iota({3}),
           [&](const Carry& c, const Tensor& k) {
             const auto& [a, b, left, right] = c;
             const Tensor next = with_row(a, place(k), in[1]);
             const Tensor other = with_row(b, place(k), sum(next - a, {0}));
             return std::pair(Carry(next, other, with_row(right, place(k), in[1]),
                                    with_row(left, place(k), in[1] * 2.0f)),
                              std::pair(b, next));
           });
  return {std::get<0>(carry), std::get<1>(carry), std::get<2>(carry),
          std::get<3>(carry), before.first,       before.second};
}

/// A table that is updated and read in one loop in another, which both carry it.
inline std::vector<Tensor> fill_in_loops(std::span<const Tensor> in) {
  const auto [table, unused] = scan(in[0], iota({3}), [&](const Tensor& t, const Tensor& k) {
    const auto [inner, sums] = scan(t, iota({2}), [&](const Tensor& now, const Tensor& j) {
      return std::pair(with_row(now, place(k + j), in[1] * cast(j + 1, f32)), sum(now));
    });
    return std::pair(with_row(inner, place(k), gather(inner, k) + 1.0f), sums);
  });
  return {table, unused};
}

/// A cache of fixed length behind another one that grows.
inline std::vector<Tensor> fill_beside_growth(std::span<const Tensor> in) {
  using State = std::tuple<Tensor, Tensor, Tensor>;
  const auto [table, list, k] = while_loop(
      State(in[0], in[1], Tensor::scalar_int(i64, 0)),
      [&](const State& s) { return less(std::get<2>(s), in[2]); },
      [&](const State& s) {
        const auto& [now, some, at] = s;
        const Tensor row = in[1] * sum(some);
        return State(with_row(now, place(at), row), concat({some, slice(row, 0, 0, 1)}, 0), at + 1);
      });
  return {table, list};
}

inline std::vector<LateProgram> updating_programs() {
  std::vector<std::vector<Tensor>> counted, plain;
  for (const std::int64_t n : {0, 1, 4})
    counted.push_back({ramp({5, 3}), numbers({1, 2, 3}), count_of(n)});
  plain.push_back({ramp({5, 3}), numbers({1, 2, 3})});
  return {
      {"FillsRows", fill_rows, counted},       {"FillsTwo", fill_two, counted},
      {"FillsInAScan", fill_in_a_scan, plain}, {"FillsAndKeeps", fill_and_keep, plain},
      {"FillsInLoops", fill_in_loops, plain},  {"FillsBesideGrowth", fill_beside_growth, counted}};
}

}  // namespace heddle::testing
