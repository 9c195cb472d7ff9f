// Recurrent layers: a scan of the cell over the steps.

#include <algorithm>
#include <utility>

#include "engine/onnx/activations.h"
#include "engine/onnx/converters.h"
#include "engine/onnx/quantised.h"
#include "heddle/control_flow.h"

namespace heddle::onnx {

namespace {

/// A matrix that rows are multiplied with: of reals, or, with a scale, of bytes, beside which the rows become bytes too.
struct Weights {
  Tensor numbers;
  Tensor scale{};  ///< of all columns or of each; undefined: reals
  Tensor zero{};   ///< the same
};

/// One direction of a layer: what a cell reads at every step.
struct Direction {
  const Node& node;
  std::int64_t index;  ///< 0, or 1 for the second one of a bidirectional layer
  bool reversed;
  std::int64_t hidden;
  std::int64_t gates;
  std::vector<Activation> activations;  ///< f, g and h of the ONNX equations, those that there are
  Weights w;                            ///< [input, gates * hidden]
  Weights r;                            ///< [hidden, gates * hidden]: turned once, before the steps
  /// [hidden, hidden] of a GRU that resets before this product; r has no columns for it then
  Tensor candidate_r;
  Tensor input_bias;  ///< [gates * hidden] or undefined
  Tensor hidden_bias;
  Tensor peepholes;  ///< [3 * hidden] or undefined
};

struct State {
  Tensor hidden;  ///< [batch, hidden]
  Tensor cell;    ///< the same, of an LSTM
};

Tensor of_direction(const Tensor& x, std::int64_t index, std::int64_t axis = 0) {
  return squeeze(slice(x, axis, index, index + 1), axis);
}

bool is_batch_first(const Node& node) { return node.integer("layout", 0) != 0; }

/// Activation `which` of a cell, of what the attribute clips.
Tensor activated(const Direction& d, std::size_t which, const Tensor& x) {
  const double limit = d.node.number("clip", 0);
  return d.activations[which](limit > 0 ? clamp(x, -limit, limit) : x);
}

/// Part `k` of the last dimension of `x`, which holds one block of `hidden` a gate.
Tensor gate(const Direction& d, const Tensor& x, std::int64_t k) {
  return slice(x, -1, k * d.hidden, (k + 1) * d.hidden);
}

Tensor times(const Tensor& x, const Weights& weights) {
  if (!weights.scale.defined()) return matmul(x, weights.numbers);
  const Quantised rows = dynamically_quantised(x);
  const Tensor product = matmul(cast(rows.numbers, i32) - cast(rows.zero, i32),
                                cast(weights.numbers, i32) - cast(weights.zero, i32));
  return cast(product, x.dtype()) * (rows.scale * weights.scale);
}

Tensor affine(const Tensor& x, const Weights& weights, const Tensor& bias) {
  const Tensor product = times(x, weights);
  return bias.defined() ? product + bias : product;
}

State rnn_cell(const Direction& d, const Tensor& input, const State& state) {
  const Tensor sum = input + affine(state.hidden, d.r, d.hidden_bias);
  return {activated(d, 0, sum), {}};
}

/// The bias of the update and reset gates.
Tensor gate_bias(const Direction& d) {
  return d.hidden_bias.defined() ? slice(d.hidden_bias, 0, 0, 2 * d.hidden) : Tensor();
}

State gru_cell(const Direction& d, const Tensor& input, const State& state) {
  const bool linear_first = !d.candidate_r.defined();
  const Tensor recurrent = linear_first ? affine(state.hidden, d.r, d.hidden_bias)
                                        : affine(state.hidden, d.r, gate_bias(d));
  const Tensor update = activated(d, 0, gate(d, input, 0) + gate(d, recurrent, 0));
  const Tensor reset = activated(d, 0, gate(d, input, 1) + gate(d, recurrent, 1));
  Tensor through;
  if (linear_first) {
    through = reset * gate(d, recurrent, 2);
  } else {
    const Tensor bias = d.hidden_bias.defined() ? gate(d, d.hidden_bias, 2) : Tensor();
    through = affine(reset * state.hidden, {d.candidate_r}, bias);
  }
  const Tensor candidate = activated(d, 1, gate(d, input, 2) + through);
  return {candidate - update * candidate + update * state.hidden, {}};
}

State lstm_cell(const Direction& d, const Tensor& input, const State& state) {
  const Tensor all = input + affine(state.hidden, d.r, d.hidden_bias);
  const auto peep = [&](const Tensor& x, std::int64_t k, const Tensor& cell) {
    return d.peepholes.defined() ? x + gate(d, d.peepholes, k) * cell : x;
  };
  const Tensor in = activated(d, 0, peep(gate(d, all, 0), 0, state.cell));
  const Tensor forget = d.node.integer("input_forget", 0) != 0
                            ? 1.0 - in
                            : activated(d, 0, peep(gate(d, all, 2), 2, state.cell));
  const Tensor candidate = activated(d, 1, gate(d, all, 3));
  const Tensor cell = forget * state.cell + in * candidate;
  const Tensor out = activated(d, 0, peep(gate(d, all, 1), 1, cell));
  return {out * d.activations[2](cell), cell};
}

using Cell = State (*)(const Direction&, const Tensor&, const State&);

Tensor initial(const Direction& d, std::size_t input, const Tensor& x) {
  if (d.node.has(input))
    return of_direction(d.node.tensor(input), d.index, is_batch_first(d.node) ? 1 : 0);
  return expand(Tensor::scalar(x.dtype(), 0), {x.size(1), d.hidden});
}

/// What a direction gives: the last state, and the hidden states of all steps [steps, batch, hidden].
struct Run {
  State last;
  Tensor outputs;
};

State state_of(const std::vector<Tensor>& carry) {
  return {carry[0], carry.size() > 1 ? carry[1] : Tensor()};
}

std::vector<Tensor> carry_of(const State& state) {
  if (!state.cell.defined()) return {state.hidden};
  return {state.hidden, state.cell};
}

/// One step; `slices`: its input, and its number where sequences have lengths of their own.
std::pair<State, Tensor> run_step(const Direction& d, Cell cell, const State& state,
                                  const std::vector<Tensor>& slices, const Tensor& lengths) {
  State next = cell(d, slices[0], state);
  if (!lengths.defined()) return {next, next.hidden};
  const Tensor active = greater(lengths, slices[1]);
  const Tensor shown = where(active, next.hidden, 0.0);
  next.hidden = where(active, next.hidden, state.hidden);
  if (next.cell.defined()) next.cell = where(active, next.cell, state.cell);
  return {next, shown};
}

/// How many steps are multiplied at once where only some of `x` are run: enough rows for a product, and a divisor of
/// the number of steps, if one is. 0: all of them.
std::int64_t steps_at_once(const Tensor& x) {
  constexpr std::int64_t kRows = 32;
  const std::int64_t batch = x.size(1).is_symbolic() ? 2 : x.size(1).value();
  const std::int64_t least = (kRows + batch - 1) / std::max<std::int64_t>(batch, 1);
  // A single sequence in a model for any number of steps is as long as that.
  if (x.size(0).is_symbolic()) return x.size(1).is_symbolic() || batch > 1 ? least : 0;
  const std::int64_t steps = x.size(0).value();
  for (std::int64_t part = least; part < steps; ++part)
    if (steps % part == 0) return part;
  return steps >= 2 * least ? least : 0;
}

/// What the gates see of x [steps, batch, input], `part` steps at a time; zeros from about `count` steps on.
Tensor input_in_parts(const Direction& d, const Tensor& x, std::int64_t part, const Tensor& count) {
  const Tensor parts = reshape(x, {x.size(0) / part, SymInt(part), x.size(1), x.size(2)});
  const Tensor number = one("div", {count + (part - 1), Tensor::scalar_int(i64, part)});
  const auto body = [&](std::tuple<>, const Tensor& some) {
    return std::pair(std::tuple<>(), affine(some, d.w, d.input_bias));
  };
  const Tensor product = scan(std::tuple<>(), parts, body, {.count = number}).second;
  return reshape(product, {x.size(0), x.size(1), SymInt(d.gates * d.hidden)});
}

/// What the gates of all steps see of x, [steps, batch, gates * hidden]. Of steps behind the first `count` it may be zeros.
Tensor input_of_gates(const Direction& d, const Tensor& x, const std::optional<Tensor>& count) {
  // Rows become bytes by the range of all of them.
  const std::int64_t part = count && !d.w.scale.defined() ? steps_at_once(x) : 0;
  if (part == 0) return affine(x, d.w, d.input_bias);
  const SymInt steps = x.size(0);
  const SymInt whole = steps / part * part;
  if (!steps.is_symbolic() && whole == steps) return input_in_parts(d, x, part, *count);
  const Tensor first = input_in_parts(d, slice(x, 0, 0, whole), part, *count);
  return concat({first, affine(slice(x, 0, whole, steps), d.w, d.input_bias)}, 0);
}

/// Runs one direction over x [steps, batch, input].
Run run_direction(const Direction& d, Cell cell, const Tensor& x) {
  const State start{initial(d, 5, x), d.gates == 4 ? initial(d, 6, x) : Tensor()};
  const Tensor lengths = d.node.has(4) ? unsqueeze(cast(d.node.tensor(4), i64), 1) : Tensor();
  std::optional<Tensor> count;
  if (lengths.defined()) count = amax(lengths, {0, 1});
  std::vector<Tensor> scanned{input_of_gates(d, x, count)};
  if (lengths.defined()) scanned.push_back(iota({x.size(0)}));
  if (!x.size(0).is_symbolic() && x.size(0).value() == 1) {
    for (Tensor& slice : scanned) slice = of_direction(slice, 0);
    const auto [last, shown] = run_step(d, cell, start, scanned, lengths);
    return {last, unsqueeze(shown, 0)};
  }
  const auto body = [&](const std::vector<Tensor>& carry, const std::vector<Tensor>& slices) {
    const auto [next, shown] = run_step(d, cell, state_of(carry), slices, lengths);
    return std::pair(carry_of(next), std::vector<Tensor>{shown});
  };
  auto [carry, stacked] =
      scan(carry_of(start), scanned, body, {.reverse = d.reversed, .count = count});
  return {state_of(carry), stacked[0]};
}

/// Input k of a layer, whose scale, if its weights are bytes, is input `scale`, and whose zero point follows.
Weights weights_of(const Node& node, std::int64_t index, std::size_t k, std::size_t scale) {
  const Tensor numbers = of_direction(node.tensor(k), index);
  if (node.type() != "DynamicQuantizeLSTM") return {transpose(numbers, 0, 1)};
  return {numbers, of_direction(node.tensor(scale), index),
          of_direction(node.tensor(scale + 1), index)};
}

std::vector<Activation> activations_of(const Node& node, std::int64_t index, std::int64_t gates) {
  std::vector<std::string> each{"tanh"};
  if (gates == 3) each = {"sigmoid", "tanh"};
  if (gates == 4) each = {"sigmoid", "tanh", "tanh"};
  std::vector<std::string> otherwise = each;
  otherwise.insert(otherwise.end(), each.begin(), each.end());
  const std::vector<Activation> all = recurrent_activations(node, otherwise);
  const auto first = all.begin() + index * std::ssize(each);
  return {first, first + std::ssize(each)};
}

Direction direction_of(const Node& node, std::int64_t index, bool reversed, std::int64_t gates) {
  const Weights weights = weights_of(node, index, 2, 10);
  const Tensor& r = weights.numbers;
  const std::int64_t hidden = r.size(0).value();
  if (node.integer("hidden_size", hidden) != hidden)
    node.malformed("hidden_size", std::to_string(hidden) + ", the last size of R",
                   std::to_string(node.integer("hidden_size", hidden)));
  Direction d{.node = node,
              .index = index,
              .reversed = reversed,
              .hidden = hidden,
              .gates = gates,
              .activations = activations_of(node, index, gates),
              .w = weights_of(node, index, 1, 8),
              .r = weights,
              .candidate_r = {},
              .input_bias = {},
              .hidden_bias = {},
              .peepholes = {}};
  if (gates == 3 && node.integer("linear_before_reset", 0) == 0) {
    d.candidate_r = slice(r, 1, 2 * d.hidden, 3 * d.hidden);
    d.r.numbers = slice(r, 1, 0, 2 * d.hidden);
  }
  if (node.has(3)) {
    const Tensor bias = of_direction(node.tensor(3), index);
    d.input_bias = slice(bias, 0, 0, gates * d.hidden);
    d.hidden_bias = slice(bias, 0, gates * d.hidden, 2 * gates * d.hidden);
  }
  if (gates == 4 && node.has(7)) d.peepholes = of_direction(node.tensor(7), index);
  return d;
}

/// [directions, batch, hidden], batch first with layout 1.
Tensor joined(const std::vector<Tensor>& states, bool batch_first) {
  std::vector<Tensor> parts;
  for (const Tensor& state : states) parts.push_back(unsqueeze(state, batch_first ? 1 : 0));
  return concat(parts, batch_first ? 1 : 0);
}

Outputs recurrent(const Node& node, Cell cell, std::int64_t gates) {
  const bool batch_first = is_batch_first(node);
  const Tensor x = batch_first ? transpose(node.tensor(0), 0, 1) : node.tensor(0);
  const std::string order = node.string("direction", "forward");
  const std::int64_t directions = order == "bidirectional" ? 2 : 1;
  std::vector<Tensor> hidden;
  std::vector<Tensor> cells;
  std::vector<Tensor> outputs;
  for (std::int64_t k = 0; k < directions; ++k) {
    const Direction d = direction_of(node, k, order == "reverse" || k == 1, gates);
    const Run run = run_direction(d, cell, x);
    hidden.push_back(run.last.hidden);
    cells.push_back(run.last.cell);
    outputs.push_back(
        unsqueeze(batch_first ? transpose(run.outputs, 0, 1) : run.outputs, batch_first ? 2 : 1));
  }
  Outputs results{concat(outputs, batch_first ? 2 : 1), joined(hidden, batch_first)};
  if (gates == 4) results.emplace_back(joined(cells, batch_first));
  return results;
}

Outputs lstm(const Node& node) { return recurrent(node, lstm_cell, 4); }
Outputs gru(const Node& node) { return recurrent(node, gru_cell, 3); }
Outputs rnn(const Node& node) { return recurrent(node, rnn_cell, 1); }

constexpr Converter kContrib[] = {
    {"DynamicQuantizeLSTM", lstm},
};

}  // namespace

std::span<const Converter> recurrent_converters() {
  static constexpr Converter kConverters[] = {
      {"GRU", gru},
      {"LSTM", lstm},
      {"RNN", rnn},
  };
  return kConverters;
}
std::span<const Converter> contrib_recurrent_converters() { return kContrib; }

}  // namespace heddle::onnx
