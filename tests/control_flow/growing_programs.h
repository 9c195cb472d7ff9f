// Loops whose carried values change their sizes, for every backend.
#pragma once

#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/control_flow/late_programs.h"

namespace heddle::testing {

/// Tenths of ramp(): made without an op, which a build without a compiler cannot run.
inline Tensor small_ramp(Sizes sizes, double first = 0) {
  Tensor tensor = ramp(std::move(sizes), first);
  for (std::int64_t k = 0; k < tensor.count(); ++k) tensor.data_as<float>()[k] *= 0.1f;
  return tensor;
}

inline Tensor count_of(std::int64_t n) { return Tensor::scalar_int(i64, n); }

/// Numbers up to the n-th: each iteration appends what the ones so far add up to. Then what was carried beside them.
inline std::vector<Tensor> append_sums(std::span<const Tensor> in) {
  using State = std::pair<Tensor, Tensor>;
  const auto [numbers, left] = while_loop(
      State(in[0], in[1]), [](const State& s) { return greater(s.second, 0); },
      [](const State& s) {
        const Tensor next = sum(s.first, {0}, true) * 0.5f;
        return State(concat({s.first, next}, 0), s.second - 1);
      });
  return {numbers * 2.0f, cast(left, f32)};
}

/// Two caches that grow as one, and a state that does not: attention of one query behind a cache, as a decoder has it.
inline std::vector<Tensor> decode(std::span<const Tensor> in) {
  using Carried = std::tuple<Tensor, Tensor, Tensor, Tensor>;
  const Tensor& w = in[3];
  const auto [x, keys, values, left] = while_loop(
      Carried(in[0], in[1], in[2], in[4]),
      [](const Carried& s) { return greater(std::get<3>(s), 0); },
      [&](const Carried& s) {
        const auto& [now, past_keys, past_values, n] = s;
        const Tensor k = concat({past_keys, matmul(now, w)}, 0);
        const Tensor v = concat({past_values, tanh(now)}, 0);
        const Tensor scores = softmax(matmul(now, permute(k, {1, 0})), -1);
        return Carried(matmul(scores, v) + now * 0.5f, k, v, n - 1);
      });
  return {x, keys, values};
}

/// Keeps the positive numbers, less 1, until fewer than three are left: the body itself only knows how many when it runs.
inline std::vector<Tensor> dwindle(std::span<const Tensor> in) {
  const auto [last, seen] = scan_while(
      in[0], [](const Tensor& s) { return greater(sum(s * 0.0f + 1.0f), 2.5f); },
      [](const Tensor& s) { return std::pair(positive()(s)[0] - 1.0f, sum(s)); });
  return {last, seen};
}

/// Starts with equal sizes that grow differently, and one that is made to follow.
inline std::vector<Tensor> part_ways(std::span<const Tensor> in) {
  using State = std::tuple<Tensor, Tensor, Tensor, Tensor>;
  const auto [a, b, c, left] = while_loop(
      State(in[0], in[0] + 1.0f, in[0] * 0.0f, in[1]),
      [](const State& s) { return greater(std::get<3>(s), 0); },
      [](const State& s) {
        const auto& [x, y, mask, n] = s;
        const Tensor longer = concat({x, slice(y, 0, 0, 1)}, 0);
        return State(longer, concat({y, y}, 0), longer * 0.0f + cast(n, f32), n - 1);
      });
  return {a, b, a + c};
}

/// A loop that grows in one that counts, in a branch.
inline std::vector<Tensor> nested_growth(std::span<const Tensor> in) {
  const auto grown = [&](const Tensor& x, const Tensor& times) {
    return append_sums(std::vector{x, times})[0];
  };
  return {cond(
      greater(in[1], 2),
      [&] {
        return while_loop(
                   std::pair(in[0], in[1]),
                   [](const std::pair<Tensor, Tensor>& s) { return greater(s.second, 0); },
                   [&](const std::pair<Tensor, Tensor>& s) {
                     return std::pair(grown(s.first, count_of(2)) * 0.25f, s.second - 1);
                   })
            .first;
      },
      [&] { return grown(in[0], in[1]); })};
}

/// Two rows more in the middle of three dimensions, so often that memory must grow; what was there is read before and after.
inline std::vector<Tensor> grow_in_the_middle(std::span<const Tensor> in) {
  using State = std::tuple<Tensor, Tensor, Tensor>;
  const auto [all, last, left] = while_loop(
      State(in[0], sum(in[0], {1}), in[1]),
      [](const State& s) { return greater(std::get<2>(s), 0); },
      [](const State& s) {
        const auto& [some, sums, n] = s;
        const Tensor row = unsqueeze(tanh(sums * 0.1f) + amax(some, {1}), 1);
        const Tensor more = concat({some, row, row * 0.5f}, 1);
        return State(more, sum(more, {1}) * 0.25f, n - 1);
      });
  return {all * 2.0f, last};
}

/// One list as two, which part in nothing, beside one that begins with what it appends, and a condition that reads one of them.
inline std::vector<Tensor> grow_as_two(std::span<const Tensor> in) {
  using State = std::tuple<Tensor, Tensor, Tensor>;
  const auto [a, b, c] = while_loop(
      State(in[0], in[0], in[0] * 2.0f),
      [&](const State& s) {
        return less(sum(abs(std::get<2>(s)) * 0.0f + 1.0f), cast(in[1] * 3, f32));
      },
      [](const State& s) {
        const auto& [x, y, z] = s;
        const Tensor longer = concat({x, slice(z, 0, 0, 1)}, 0);
        return State(longer, longer, concat({slice(y, 0, 0, 1), z}, 0));
      });
  return {a, b + 1.0f, c};
}

inline std::vector<LateProgram> growing_programs() {
  const auto with_counts = [](const Tensor& x) {
    std::vector<std::vector<Tensor>> calls;
    for (const std::int64_t n : {0, 1, 2, 5}) calls.push_back({x, count_of(n)});
    return calls;
  };
  std::vector<std::vector<Tensor>> decoded;
  for (const std::int64_t past : {0, 3})
    for (const std::int64_t n : {0, 1, 6})
      decoded.push_back({small_ramp({1, 8}), ramp({past, 8}, 1), ramp({past, 8}, -1),
                         small_ramp({8, 8}, -2), count_of(n)});
  std::vector<std::vector<Tensor>> empty{{Tensor::zeros(f32, {0}), count_of(3)}};
  std::vector<std::vector<Tensor>> appended = with_counts(numbers({1, 2, -1}));
  appended.insert(appended.end(), empty.begin(), empty.end());
  return {
      {"AppendsSums", append_sums, appended},
      {"Decodes", decode, decoded},
      {"Dwindles", dwindle, {{numbers({5, 1, 2, 7, 3, 4})}, {numbers({1})}, {numbers({1, 1, 1})}}},
      {"PartsWays", part_ways, with_counts(numbers({1, 2, 3}))},
      {"GrowsInTheMiddle",
       grow_in_the_middle,
       {{ramp({2, 1, 3}), count_of(40)},
        {ramp({2, 5, 3}), count_of(1)},
        {ramp({3, 2, 2}), count_of(0)}}},
      {"GrowsAsTwo", grow_as_two, with_counts(numbers({1, -2}))},
      {"GrowsInALoopInABranch", nested_growth, with_counts(numbers({1, -2}))}};
}

}  // namespace heddle::testing
