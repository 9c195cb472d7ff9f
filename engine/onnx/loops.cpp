// Loop: a scan where it counts, else a while loop; iterations one by one where they are few and each has its own types.
#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "engine/onnx/control_flow.h"
#include "engine/onnx/loop_graph.h"
#include "engine/onnx/nested_values.h"
#include "engine/onnx/onnx.pb.h"
#include "heddle/control_flow.h"
#include "heddle/error.h"
#include "heddle/onnx.h"

namespace heddle::onnx {

using onnx_format::GraphProto;

namespace {

/// A loop without what it only hands on.
struct LoopParts {
  const GraphProto& body;
  std::size_t carried;
  std::vector<Tensor> start;
  bool stacks;  ///< it has results that it does not carry
};

/// A loop that runs a known number of times: a scan over the iteration numbers.
Outputs counted_loop(const LoopParts& loop, const SymInt& length, const RunBody& run) {
  const Tensor numbers = iota({length});
  const auto body = [&](const std::vector<Tensor>& carry, const Tensor& number) {
    std::vector<Value> given{number, Tensor::scalar_int(boolean, 1)};
    given.insert(given.end(), carry.begin(), carry.end());
    const std::vector<Tensor> made = run(loop.body, std::move(given));
    const auto middle = made.begin() + 1 + static_cast<std::ptrdiff_t>(loop.carried);
    return std::pair(std::vector<Tensor>(made.begin() + 1, middle),
                     std::vector<Tensor>(middle, made.end()));
  };
  auto [carry, stacked] = scan(loop.start, numbers, body, {.length = length});
  Outputs outputs = outputs_of(carry);
  for (const Tensor& tensor : stacked) outputs.emplace_back(tensor);
  return outputs;
}

/// Iterations that are traced one by one where the body needs its iteration number while tracing.
constexpr std::int64_t kMostUnrolled = 64;

Outputs unrolled_loop(const LoopParts& loop, std::int64_t length, const RunBody& run) {
  std::vector<Tensor> carry = loop.start;
  std::vector<std::vector<Tensor>> elements;
  for (std::int64_t k = 0; k < length; ++k) {
    std::vector<Value> given{Value::of_ints({k}, true), Tensor::scalar_int(boolean, 1)};
    given.insert(given.end(), carry.begin(), carry.end());
    const std::vector<Tensor> made = run(loop.body, std::move(given));
    carry.assign(made.begin() + 1, made.begin() + 1 + static_cast<std::ptrdiff_t>(loop.carried));
    elements.resize(made.size() - 1 - loop.carried);
    for (std::size_t e = 0; e < elements.size(); ++e)
      elements[e].push_back(made[1 + loop.carried + e]);
  }
  Outputs outputs = outputs_of(carry);
  for (const auto& list : elements) outputs.emplace_back(detail::stacked(list));
  return outputs;
}

/// A loop that carries sequences, traced iteration by iteration.
Outputs loop_over_sequences(const Node& node, const GraphProto& body, const SymInt& trips,
                            const RunBody& run) {
  const std::int64_t length = trips.value();
  if (length > kMostUnrolled)
    node.unsupported(fmt::format("sequences between more than {} iterations", kMostUnrolled));
  std::vector<Value> carry(node.values().begin() + 2, node.values().end());
  const auto carried = static_cast<std::ptrdiff_t>(carry.size());
  const auto stacks = static_cast<std::size_t>(body.output_size()) - 1 - carry.size();
  if (length < 1 && stacks != 0) node.unsupported("stacked results of a loop that never runs");
  std::vector<std::vector<Tensor>> elements(stacks);
  for (std::int64_t k = 0; k < length; ++k) {
    std::vector<Value> given{Value::of_ints({k}, true), Tensor::scalar_int(boolean, 1)};
    given.insert(given.end(), carry.begin(), carry.end());
    const std::vector<Value> made = run.values(body, std::move(given));
    carry.assign(made.begin() + 1, made.begin() + 1 + carried);
    for (std::size_t e = 0; e < stacks; ++e)
      elements[e].push_back(tensor_between(made[1 + carry.size() + e]));
  }
  for (const auto& list : elements) carry.emplace_back(detail::stacked(list));
  return carry;
}

/// Whether what a loop carries has other sizes or another dtype after an iteration.
bool changes_what_it_carries(const Error& error) {
  const std::string& what = error.parts().what;
  return what.starts_with("scan: C4") || what.starts_with("while_loop: C4");
}

/// One iteration of a loop that asks its condition; `now`: its number, the condition, and what is carried. Gives the next of these,
/// and elements of stacked results.
std::pair<std::vector<Tensor>, std::vector<Tensor>> next_state(const LoopParts& loop,
                                                               const std::vector<Tensor>& now,
                                                               const RunBody& run) {
  std::vector<Tensor> made = run(loop.body, std::vector<Value>(now.begin(), now.end()));
  const auto middle = made.begin() + 1 + static_cast<std::ptrdiff_t>(loop.carried);
  std::vector<Tensor> elements(middle, made.end());
  made.erase(middle, made.end());
  made[0] = scalar_of(made[0]);
  made.insert(made.begin(), now[0] + 1);
  return {std::move(made), std::move(elements)};
}

/// A loop that asks its condition each time: what it carried last, and its stacked results. What changes its type in the first
/// iteration only, as a placeholder does, is carried from the second one on; sizes may change in every one.
Outputs asked_loop(const Node& node, const LoopParts& loop, const RunBody& run) {
  std::vector<Tensor> state{Tensor::scalar_int(i64, 0), node.has(1)
                                                            ? scalar_of(node.tensor(1))
                                                            : Tensor::scalar_int(boolean, 1)};
  state.insert(state.end(), loop.start.begin(), loop.start.end());
  const Tensor limit = node.has(0) ? scalar_of(node.tensor(0)) : Tensor();
  using Elements = std::vector<Tensor>;
  /// @param first  elements of iterations before
  const auto run_from = [&](const std::vector<Tensor>& start, const Elements& first,
                            const WhileOptions& options) {
    const auto goes_on = [&](const std::vector<Tensor>& now) {
      return limit.defined() ? logical_and(now[1], less(now[0], limit)) : now[1];
    };
    std::vector<Tensor> last;
    Elements stacked;
    if (loop.stacks) {
      std::tie(last, stacked) = scan_while(
          start, goes_on,
          [&](const std::vector<Tensor>& now) { return next_state(loop, now, run); }, options);
      for (std::size_t k = 0; k < first.size(); ++k)
        stacked[k] = concat({unsqueeze(first[k], 0), stacked[k]}, 0);
    } else {
      last = while_loop(
          start, goes_on,
          [&](const std::vector<Tensor>& now) { return next_state(loop, now, run).first; },
          options);
    }
    Outputs outputs = outputs_of({last.begin() + 2, last.end()});
    for (const Tensor& tensor : stacked) outputs.emplace_back(tensor);
    return outputs;
  };
  const bool may_begin = surely_runs(node);
  std::string why;
  for (const bool fixed_sizes : {true, false}) {
    for (const bool begun : {false, true}) {
      if (begun && !may_begin) continue;
      try {
        const auto [first_state, first] =
            begun ? next_state(loop, state, run) : std::pair(state, Elements());
        return run_from(first_state, first, {.fixed_sizes = fixed_sizes});
      } catch (const Error& error) {
        if (!changes_what_it_carries(error)) throw;
        why = error.what();
      }
    }
  }
  node.unsupported("carried values that change their type: " + why);
}

/// Iterations that are traced one by one where only the sizes of what is carried change: more of them are a loop.
constexpr std::int64_t kMostCopies = 8;

/// A loop that runs a known number of times: a region where its body can be one.
Outputs known_loop(const Node& node, const LoopParts& loop, const SymInt& length,
                   const RunBody& run) {
  const auto is_at_most = [&](std::int64_t most) {
    return !length.is_symbolic() && length.value() > 0 && length.value() <= most;
  };
  try {
    return counted_loop(loop, length, run);
  } catch (const NeedsValueError&) {
    throw;
  } catch (const UnsupportedError&) {
    if (!is_at_most(kMostUnrolled)) throw;
  } catch (const Error& error) {
    if (!changes_what_it_carries(error)) throw;
    if (!is_at_most(kMostUnrolled)) return asked_loop(node, loop, run);
    if (!is_at_most(kMostCopies)) {
      try {
        return asked_loop(node, loop, run);
      } catch (const Error&) {
        // As long as it is few, iterations of which each has its own types are traced.
      }
    }
  }
  return unrolled_loop(loop, length.value(), run);
}

/// Runs a loop that carries only what changes.
Outputs run_loop(const Node& node, const LoopParts& loop, const RunBody& run,
                 const FindValue& find) {
  const GraphProto& body = loop.body;
  if (!condition_stays(node, body)) {
    if (const auto trips = known_trips(node, body, find))
      return known_loop(node, loop, *trips, run);
    return asked_loop(node, loop, run);
  }
  if (loop.stacks && !node.has(0))
    node.unsupported("stacked results of a loop without a trip count");
  const std::optional<SymInt> length = known_integer(node, 0);
  const std::optional<SymInt> starts = known_integer(node, 1);
  const bool always = !node.has(1) || (starts && !starts->is_symbolic() && starts->value() != 0);
  return length && always ? known_loop(node, loop, *length, run) : asked_loop(node, loop, run);
}

/// The sequences that a loop begins with as slices of tensors; of one without elements the first iteration tells what they are.
class StartedSequences {
 public:
  StartedSequences(const Node& node, const GraphProto& body, const RunBody& run)
      : node_(node), body_(body), run_(run) {}

  Tensor rows(std::size_t carried) {
    const Value& sequence = node_.value(2 + carried);
    if (element_type(sequence)) return sequence.rows();
    if (first_.empty()) {
      std::vector<Value> given{Value::of_ints({0}, true), Tensor::scalar_int(boolean, 1)};
      given.insert(given.end(), node_.values().begin() + 2, node_.values().end());
      first_ = run_.values(body_, std::move(given));
    }
    const Value& next = first_[1 + carried];
    const auto type = next.is_sequence() ? element_type(next) : std::nullopt;
    if (!type) node_.unsupported("a sequence whose elements the first iteration does not tell");
    return no_rows(*type);
  }

 private:
  const Node& node_;
  const GraphProto& body_;
  const RunBody& run_;
  std::vector<Value> first_;
};

/// A loop as a region. What a body only hands on, as exporters do with weights, it reads as a value from around it; a sequence that it
/// only appends to is a stacked result.
class TensorLoop {
 public:
  TensorLoop(const Node& node, const GraphProto& body, const RunBody& run, const FindValue& find)
      : node_(node), body_(body), run_(run), find_(find) {}

  Outputs convert() {
    const std::size_t carried = node_.input_count() > 2 ? node_.input_count() - 2 : 0;
    LoopParts loop{body_, 0, {}, static_cast<std::size_t>(body_.output_size()) > 1 + carried};
    StartedSequences sequences(node_, body_, run_);
    for (std::size_t k = 0; k < carried; ++k) {
      const Value& start = node_.value(2 + k);
      if (stays(body_, k)) {
        held_.push_back({k, start});
      } else if (start.is_sequence() && is_appended_to(body_, k)) {
        held_.push_back({k, Value::of_sequence({}), true});
        loop.stacks = true;
      } else if (start.is_sequence()) {
        sequences_.push_back(loop.start.size());
        loop.start.push_back(sequences.rows(k));
      } else {
        loop.start.push_back(start.tensor());
      }
    }
    loop.carried = loop.start.size();
    starts_ = loop.start;
    const RunBody run_whole([&](const GraphProto& graph, std::vector<Value> given) {
      return iteration(graph, std::move(given));
    });
    return with_held(run_loop(node_, loop, run_whole, find_));
  }

 private:
  /// A value between iterations that the region does not carry.
  struct Held {
    std::size_t k;       ///< of those that the loop carries
    Value given;         ///< to the body
    bool grows = false;  ///< by an element in each iteration
  };

  /// @param given  the number, the condition, what the region carries
  std::vector<Value> iteration(const GraphProto& graph, std::vector<Value> given) const {
    for (const std::size_t k : sequences_) given[2 + k] = Value::of_rows(given[2 + k].tensor());
    for (const Held& held : held_)
      given.insert(given.begin() + 2 + static_cast<std::ptrdiff_t>(held.k), held.given);
    std::vector<Value> made = run_.values(graph, std::move(given));
    std::vector<Value> appended;
    for (const Held& held : held_)
      if (held.grows) appended.push_back(made[1 + held.k].elements().at(0));
    for (auto held = held_.rbegin(); held != held_.rend(); ++held)
      made.erase(made.begin() + 1 + static_cast<std::ptrdiff_t>(held->k));
    for (const std::size_t k : sequences_) {
      Value& next = made[1 + k];
      if (!next.is_sequence()) node_.malformed("body", "a sequence as it was given", "a tensor");
      next = element_type(next) ? next.rows() : slice(starts_[k], 0, 0, 0);
    }
    made.insert(made.end(), appended.begin(), appended.end());
    return made;
  }

  Outputs with_held(Outputs outputs) const {
    for (const std::size_t k : sequences_) outputs[k] = Value::of_rows(outputs[k].tensor());
    const auto growing = std::ranges::count_if(held_, &Held::grows);
    std::vector<Value> appended(outputs.end() - growing, outputs.end());
    outputs.resize(outputs.size() - appended.size());
    auto next = appended.begin();
    for (const Held& held : held_) {
      Value value = node_.value(2 + held.k);
      if (held.grows) {
        Tensor rows = (next++)->tensor();
        if (element_type(value)) rows = concat({value.rows(), rows}, 0);
        value = Value::of_rows(rows);
      }
      outputs.insert(outputs.begin() + static_cast<std::ptrdiff_t>(held.k), value);
    }
    return outputs;
  }

  const Node& node_;
  const GraphProto& body_;
  const RunBody& run_;
  const FindValue& find_;
  std::vector<Held> held_;
  std::vector<std::size_t> sequences_;  ///< among what the region carries
  std::vector<Tensor> starts_;
};

/// How often a loop runs whose number of iterations must be known. @throws NeedsValueError, UnsupportedError.
SymInt trips_known(const Node& node, const GraphProto& body, const FindValue& find) {
  if (!condition_stays(node, body)) {
    if (const auto trips = known_trips(node, body, find)) return *trips;
    node.unsupported("sequences between iterations that a condition ends");
  }
  if (!node.has(0)) node.unsupported("sequences in a loop without a trip count");
  const bool runs = !node.has(1) || node.known_number(1, "cond") != 0;
  return runs ? node.known_size(0, "M") : SymInt(0);
}

/// Whether a loop runs a few times, and how often tracing knows.
bool runs_few_times(const Node& node, const GraphProto& body, const FindValue& find) {
  const std::optional<SymInt> starts = node.has(1) ? known_integer(node, 1) : SymInt(1);
  const std::optional<SymInt> trips =
      condition_stays(node, body) ? known_integer(node, 0) : known_trips(node, body, find);
  return starts && !starts->is_symbolic() && trips && !trips->is_symbolic() &&
         trips->value() <= kMostUnrolled;
}

}  // namespace

Outputs convert_loop(const Node& node, const RunBody& run, const FindValue& find) {
  const GraphProto& body = node.graph("body");
  check_types(node, body);
  const std::size_t carried = node.input_count() > 2 ? node.input_count() - 2 : 0;
  if (static_cast<std::size_t>(body.output_size()) < 1 + carried ||
      static_cast<std::size_t>(body.input_size()) != 2 + carried)
    node.malformed("body", fmt::format("{} inputs", 2 + carried),
                   std::to_string(body.input_size()));
  if (std::ranges::none_of(node.values(), &Value::is_sequence))
    return TensorLoop(node, body, run, find).convert();
  if (runs_few_times(node, body, find))
    return loop_over_sequences(node, body, trips_known(node, body, find), run);
  try {
    return TensorLoop(node, body, run, find).convert();
  } catch (const NeedsValueError&) {
    throw;
  } catch (const Error& misfit) {
    // Elements of several types may lie in a list.
    const std::optional<SymInt> limit = node.has(0) ? known_integer(node, 0) : SymInt(0);
    const bool is_open = !limit || limit->is_symbolic();
    if (!is_open || !condition_stays(node, body))
      node.unsupported("sequences in a loop: " + std::string(misfit.what()));
  }
  return loop_over_sequences(node, body, trips_known(node, body, find), run);
}

}  // namespace heddle::onnx
