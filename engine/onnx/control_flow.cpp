#include "engine/onnx/control_flow.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <utility>

#include "engine/onnx/onnx.pb.h"
#include "engine/onnx/reader.h"
#include "heddle/control_flow.h"
#include "heddle/error.h"
#include "heddle/onnx.h"

namespace heddle::onnx {

using onnx_format::GraphProto;
using onnx_format::NodeProto;

namespace {

Outputs outputs_of(const std::vector<Tensor>& tensors) { return {tensors.begin(), tensors.end()}; }

/// A condition of one element as a scalar.
Tensor scalar(const Tensor& tensor) {
  return tensor.rank() == 0 ? tensor : reshape(tensor, std::vector<SymInt>{});
}

void check_types(const Node& node, const GraphProto& graph) {
  using Type = onnx_format::TypeProto;
  for (const auto* list : {&graph.input(), &graph.output()})
    for (const auto& value : *list)
      if (const auto kind = value.type().value_case();
          kind != Type::kTensorType && kind != Type::kSequenceType && kind != Type::VALUE_NOT_SET)
        node.unsupported("a map or optional in a nested graph");
}

/// The integer, if it is known while tracing.
std::optional<SymInt> known_size(const Node& node, std::size_t k) {
  if (!node.has(k)) return {};
  const auto ints = node.value(k).ints();
  if (!ints || ints->size() != 1) return {};
  return (*ints)[0];
}

// Sequences between nested graphs are slices of tensors, in any number.

/// What the elements of a sequence are.
struct ElementType {
  DType dtype = f32;
  SymInts sizes;
};

/// Nothing of a list without elements.
std::optional<ElementType> element_type(const Value& sequence) {
  if (sequence.is_listed() && sequence.elements().empty()) return {};
  const Tensor rows = sequence.rows();
  SymInts sizes = rows.shape();
  sizes.erase(sizes.begin());
  return ElementType{rows.dtype(), std::move(sizes)};
}

/// A sequence without elements.
Tensor no_rows(const ElementType& type) {
  SymInts sizes = type.sizes;
  sizes.insert(sizes.begin(), 0);
  return expand(Tensor::zeros(type.dtype, {}), sizes);
}

// If: the branch in its place when the condition is known, else both as a cond.

/// A branch that does not fit the sizes of the inputs is one that is not meant for them: what chooses must be known.
NeedsValueError branch_misfit(const Node& node, const std::string& input, const Error& misfit) {
  return {{.what = "If: input 0 (cond), a branch of which does not fit the inputs",
           .where = node.where(),
           .expected = "a value that is known when tracing",
           .got = fmt::format("one computed from the graph input {} ({})", input, misfit.what())},
          input};
}

/// Whether both branches are good and only give different types, as ranks.
bool differ_in_results(const Error& misfit) {
  return misfit.parts().what.starts_with("cond: C3 results");
}

[[noreturn]] void refuse_misfit(const Node& node, const Error& misfit) {
  const std::string& input = node.value(0).source();
  if (!input.empty()) throw branch_misfit(node, input, misfit);
  node.unsupported("branches whose results differ: " + std::string(misfit.what()));
}

using Shapes = std::vector<SymInts>;

bool is_one_element(const SymInts& shape) {
  return shape.size() == 1 && !shape[0].is_symbolic() && shape[0].value() == 1;
}

/// Scalars as vectors of one element where the other branch gives such, as Paddle's exporter writes branches.
std::vector<Tensor> as_beside(std::vector<Tensor> results, const Shapes& others) {
  for (std::size_t k = 0; k < std::min(results.size(), others.size()); ++k)
    if (results[k].rank() == 0 && is_one_element(others[k])) results[k] = reshape(results[k], {1});
  return results;
}

/// What a nested graph gives as a tensor, which has numbers alone.
Tensor tensor_between(const Value& value) {
  if (value.is_text() || value.is_maps())
    throw UnsupportedError({.what = "a result of a nested graph",
                            .where = {},
                            .expected = "numbers",
                            .got = value.is_text() ? "strings" : "maps"});
  return value.tensor();
}

/// What the branches of an If give, as tensors.
class BranchResults {
 public:
  explicit BranchResults(const RunBody& run) : run_(run) {}

  /// @param other  the other branch: what it gave when it was traced last tells the elements of a sequence that has none here
  std::vector<Tensor> of(const GraphProto& branch, const GraphProto& other) {
    const std::vector<Value> values = run_.values(branch, {});
    std::vector<Tensor> tensors;
    Types& types = types_[&branch];
    types.assign(values.size(), {});
    is_sequence_.resize(std::max(is_sequence_.size(), values.size()));
    for (std::size_t k = 0; k < values.size(); ++k) {
      if (!values[k].is_sequence()) {
        tensors.push_back(tensor_between(values[k]));
        continue;
      }
      is_sequence_[k] = true;
      types[k] = element_type(values[k]);
      const Types& beside = types_[&other];
      if (types[k])
        tensors.push_back(values[k].rows());
      else if (k < beside.size() && beside[k])
        tensors.push_back(no_rows(*beside[k]));
      else
        misses_ = true, tensors.push_back(Tensor::zeros(f32, {0}));
    }
    return tensors;
  }

  /// Whether the elements of a sequence were not known since the last question: now they may be.
  bool missed() { return std::exchange(misses_, false); }

  Outputs outputs(const std::vector<Tensor>& results) const {
    Outputs outputs = outputs_of(results);
    for (std::size_t k = 0; k < outputs.size(); ++k)
      if (is_sequence_[k]) outputs[k] = Value::of_rows(results[k]);
    return outputs;
  }

 private:
  using Types = std::vector<std::optional<ElementType>>;
  const RunBody& run_;
  std::map<const GraphProto*, Types> types_;
  std::vector<bool> is_sequence_;
  bool misses_ = false;
};

Outputs convert_if(const Node& node, const RunBody& run, const FindValue&) {
  const GraphProto& yes = node.graph("then_branch");
  const GraphProto& no = node.graph("else_branch");
  check_types(node, yes);
  check_types(node, no);
  if (const auto known = known_size(node, 0); known && !known->is_symbolic())
    return run.values(known->value() != 0 ? yes : no, {});
  const Tensor condition = scalar(node.tensor(0));
  BranchResults branches(run);
  const auto choose_once = [&](const auto& results_of) {
    return branches.outputs(
        cond(condition, [&] { return results_of(yes, no); }, [&] { return results_of(no, yes); }));
  };
  const auto choose = [&](const auto& results_of) {
    try {
      Outputs outputs = choose_once(results_of);
      if (!branches.missed()) return outputs;
    } catch (const Error& misfit) {
      if (!branches.missed() || !differ_in_results(misfit)) throw;
    }
    return choose_once(results_of);
  };
  std::map<const GraphProto*, Shapes> shapes;
  try {
    return choose([&](const GraphProto& branch, const GraphProto& other) {
      std::vector<Tensor> results = branches.of(branch, other);
      Shapes& seen = shapes[&branch] = {};
      for (const Tensor& result : results) seen.push_back(result.shape());
      return results;
    });
  } catch (const ShapeError& misfit) {
    if (node.value(0).source().empty() && !differ_in_results(misfit)) throw;
    if (!differ_in_results(misfit)) refuse_misfit(node, misfit);
  } catch (const DTypeError& misfit) {
    if (!differ_in_results(misfit)) throw;
  }
  try {
    return choose([&](const GraphProto& branch, const GraphProto& other) {
      return as_beside(branches.of(branch, other), shapes[&other]);
    });
  } catch (const Error& misfit) {
    if (!differ_in_results(misfit)) throw;
    refuse_misfit(node, misfit);
  }
}

// Loop.

const NodeProto* producer(const GraphProto& graph, const std::string& name) {
  for (const NodeProto& node : graph.node())
    if (std::find(node.output().begin(), node.output().end(), name) != node.output().end())
      return &node;
  return nullptr;
}

/// Whether a node hands its one input on.
bool is_identity(const NodeProto& node) { return node.op_type() == "Identity"; }

/// The value that `name` is handed on from, through nodes that `hands_on` says do so.
template <typename HandsOn>
std::string origin_of(const GraphProto& graph, std::string name, HandsOn&& hands_on) {
  for (const NodeProto* from = producer(graph, name);
       from != nullptr && from->input_size() == 1 && hands_on(*from); from = producer(graph, name))
    name = from->input(0);
  return name;
}

/// A value that the graph itself says.
std::optional<Tensor> constant_of(const Node& node, const GraphProto& graph,
                                  const std::string& name) {
  const auto read = [&](const onnx_format::TensorProto& tensor) {
    return read_tensor(tensor, node.source(), node.where());
  };
  const NodeProto* from = producer(graph, name);
  if (from != nullptr && from->op_type() == "Constant" && from->attribute_size() == 1 &&
      from->attribute(0).has_t() && !is_string(from->attribute(0).t().data_type()))
    return read(from->attribute(0).t());
  for (const auto& initializer : graph.initializer())
    if (initializer.name() == name && !is_string(initializer.data_type())) return read(initializer);
  return {};
}

/// Whether the body gives its condition on as it got it, or gives true.
bool condition_stays(const Node& node, const GraphProto& body) {
  const std::string name = origin_of(body, body.output(0).name(), is_identity);
  if (const auto constant = constant_of(node, body, name))
    return constant->count() == 1 && constant->item() != 0;
  return body.input_size() > 1 && body.input(1).name() == name;
}

/// A loop without what it only hands on.
struct LoopParts {
  const GraphProto& body;
  std::size_t carried;
  std::vector<Tensor> start;
  bool stacks;  ///< it has results that it does not carry
};

/// The condition of a loop that counts: `counter + 1 < limit`, as exporters write a loop over a sequence.
class CountedCondition {
 public:
  CountedCondition(const Node& node, const GraphProto& body, const FindValue& find)
      : node_(node), body_(body), find_(find) {}

  /// How often a loop runs whose condition holds at first; nothing where that is not known while tracing.
  std::optional<SymInt> trips() {
    const NodeProto* compares = producer(body_, origin(body_.output(0).name()));
    if (compares == nullptr || compares->input_size() != 2) return {};
    const bool greater = compares->op_type() == "Greater";
    if (!greater && compares->op_type() != "Less") return {};
    const std::optional<SymInt> first = counted_from(origin(compares->input(greater ? 1 : 0)));
    const std::optional<SymInt> limit = steady(origin(compares->input(greater ? 0 : 1)));
    if (!first || !limit) return {};
    // What every one of the casts keeps.
    constexpr std::int64_t kMost = std::int64_t{1} << 24;
    if (is_cast_ && (*first < -kMost || *limit > kMost)) return {};
    const SymInt trips = *limit - *first;
    return trips < 1 ? SymInt(1) : trips;
  }

 private:
  /// Whether a Cast keeps every integer of up to 24 bits.
  static bool is_wide(const NodeProto& cast) {
    using Type = onnx_format::TensorProto;
    for (const auto& attribute : cast.attribute())
      if (attribute.name() == "to")
        return attribute.i() == Type::FLOAT || attribute.i() == Type::DOUBLE ||
               attribute.i() == Type::INT32 || attribute.i() == Type::INT64;
    return false;
  }

  /// What a value of the body is a copy or a wide cast of.
  std::string origin(const std::string& name) {
    return origin_of(body_, name, [&](const NodeProto& node) {
      const bool casts = node.op_type() == "Cast" && is_wide(node);
      is_cast_ = is_cast_ || casts;
      return casts || is_identity(node);
    });
  }

  std::optional<std::size_t> carried_at(const std::string& name) const {
    for (int k = 2; k < body_.input_size(); ++k)
      if (body_.input(k).name() == name) return static_cast<std::size_t>(k - 2);
    return {};
  }

  static std::optional<SymInt> one_of(const Value& value) {
    const auto ints = is_floating(value.dtype()) ? std::nullopt : value.ints();
    return ints && ints->size() == 1 ? std::optional((*ints)[0]) : std::nullopt;
  }

  /// The number that a value of the body is in every iteration.
  std::optional<SymInt> steady(const std::string& name) {
    if (const auto at = carried_at(name)) {
      if (origin(body_.output(static_cast<int>(1 + *at)).name()) != name) return {};
      return one_of(node_.value(2 + *at));
    }
    if (const auto constant = constant_of(node_, body_, name)) return one_of(Value(*constant));
    if (producer(body_, name) != nullptr || name == body_.input(0).name() ||
        name == body_.input(1).name())
      return {};
    const Value* outer = find_(name);
    return outer != nullptr ? one_of(*outer) : std::nullopt;
  }

  /// What a carried number starts as, if `name` is that number plus 1, and the next one.
  std::optional<SymInt> counted_from(const std::string& name) {
    const NodeProto* adds = producer(body_, name);
    if (adds == nullptr || adds->op_type() != "Add" || adds->input_size() != 2) return {};
    for (int k = 0; k < 2; ++k) {
      const auto at = carried_at(origin(adds->input(k)));
      const std::optional<SymInt> step = steady(origin(adds->input(1 - k)));
      if (!at || !step || step->is_symbolic() || step->value() != 1 ||
          origin(body_.output(static_cast<int>(1 + *at)).name()) != name)
        continue;
      return one_of(node_.value(2 + *at));
    }
    return {};
  }

  const Node& node_;
  const GraphProto& body_;
  const FindValue& find_;
  bool is_cast_ = false;
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

/// Whether a loop runs at least once, as far as tracing tells.
bool surely_runs(const Node& node) {
  const auto holds = [&](std::size_t k) {
    if (!node.has(k)) return true;
    const std::optional<SymInt> known = known_size(node, k);
    return known && !known->is_symbolic() && known->value() > 0;
  };
  return holds(0) && holds(1);
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
  made[0] = scalar(made[0]);
  made.insert(made.begin(), now[0] + 1);
  return {std::move(made), std::move(elements)};
}

/// A loop that asks its condition each time: what it carried last, and its stacked results. What changes its type in the first
/// iteration only, as a placeholder does, is carried from the second one on; sizes may change in every one.
Outputs asked_loop(const Node& node, const LoopParts& loop, const RunBody& run) {
  std::vector<Tensor> state{Tensor::scalar_int(i64, 0),
                            node.has(1) ? scalar(node.tensor(1)) : Tensor::scalar_int(boolean, 1)};
  state.insert(state.end(), loop.start.begin(), loop.start.end());
  const Tensor limit = node.has(0) ? scalar(node.tensor(0)) : Tensor();
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

/// How often a loop runs that its own condition ends, where the condition counts.
std::optional<SymInt> known_trips(const Node& node, const GraphProto& body, const FindValue& find) {
  const std::optional<SymInt> starts = node.has(1) ? known_size(node, 1) : SymInt(1);
  if (!starts || starts->is_symbolic()) return {};
  if (starts->value() == 0) return 0;
  const std::optional<SymInt> trips = CountedCondition(node, body, find).trips();
  if (!trips || !node.has(0)) return trips;
  const std::optional<SymInt> limit = known_size(node, 0);
  return limit ? std::optional(*trips < *limit ? *trips : *limit) : std::nullopt;
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
  const std::optional<SymInt> length = known_size(node, 0);
  const std::optional<SymInt> starts = known_size(node, 1);
  const bool always = !node.has(1) || (starts && !starts->is_symbolic() && starts->value() != 0);
  return length && always ? known_loop(node, loop, *length, run) : asked_loop(node, loop, run);
}

/// Whether the body hands carried value k on as it got it.
bool stays(const GraphProto& body, std::size_t k) {
  const std::string& name = body.output(static_cast<int>(1 + k)).name();
  return origin_of(body, name, is_identity) == body.input(static_cast<int>(2 + k)).name();
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

/// How often `name` is read by the nodes and results of a graph, and of those nested in it.
int reads_of(const GraphProto& graph, const std::string& name) {
  int reads = 0;
  for (const NodeProto& node : graph.node()) {
    reads += static_cast<int>(std::ranges::count(node.input(), name));
    for (const auto& attribute : node.attribute())
      if (attribute.has_g()) reads += reads_of(attribute.g(), name);
  }
  for (const auto& output : graph.output()) reads += output.name() == name ? 1 : 0;
  return reads;
}

/// Whether all that the body does with carried sequence `k` is to append one element.
bool is_appended_to(const GraphProto& body, std::size_t k) {
  const std::string& given = body.input(static_cast<int>(2 + k)).name();
  const std::string& made = body.output(static_cast<int>(1 + k)).name();
  const NodeProto* inserts = producer(body, made);
  return inserts != nullptr && inserts->op_type() == "SequenceInsert" &&
         inserts->input_size() == 2 && inserts->input(0) == given && reads_of(body, given) == 1 &&
         reads_of(body, made) == 1;
}

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
  const std::optional<SymInt> starts = node.has(1) ? known_size(node, 1) : SymInt(1);
  const std::optional<SymInt> trips =
      condition_stays(node, body) ? known_size(node, 0) : known_trips(node, body, find);
  return starts && !starts->is_symbolic() && trips && !trips->is_symbolic() &&
         trips->value() <= kMostUnrolled;
}

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
    const std::optional<SymInt> limit = node.has(0) ? known_size(node, 0) : SymInt(0);
    const bool is_open = !limit || limit->is_symbolic();
    if (!is_open || !condition_stays(node, body))
      node.unsupported("sequences in a loop: " + std::string(misfit.what()));
  }
  return loop_over_sequences(node, body, trips_known(node, body, find), run);
}

// Scan.

Tensor reversed(const Tensor& tensor, bool reverse) {
  return reverse ? one("reverse", {tensor}, {{"axes", Ints{0}}}) : tensor;
}

std::int64_t entry(const Ints& list, std::size_t k) { return k < list.size() ? list[k] : 0; }

struct ScanParts {
  const GraphProto& body;
  std::size_t carried;
  Ints axes, directions, result_axes, result_directions;
};

std::vector<Tensor> scan_once(const Node& node, const ScanParts& parts,
                              const std::vector<Tensor>& inputs, const RunBody& run) {
  const auto middle = inputs.begin() + static_cast<std::ptrdiff_t>(parts.carried);
  std::vector<Tensor> start(inputs.begin(), middle);
  std::vector<Tensor> scanned(middle, inputs.end());
  for (std::size_t k = 0; k < scanned.size(); ++k)
    scanned[k] =
        reversed(moved_axis(scanned[k], node.axis(entry(parts.axes, k), scanned[k].rank()), 0),
                 entry(parts.directions, k) != 0);
  const auto body = [&](const std::vector<Tensor>& carry, const std::vector<Tensor>& slices) {
    std::vector<Value> given(carry.begin(), carry.end());
    given.insert(given.end(), slices.begin(), slices.end());
    const std::vector<Tensor> made = run(parts.body, std::move(given));
    const auto end = made.begin() + static_cast<std::ptrdiff_t>(parts.carried);
    return std::pair(std::vector<Tensor>(made.begin(), end), std::vector<Tensor>(end, made.end()));
  };
  auto [results, stacked] = scan(std::move(start), std::move(scanned), body);
  for (std::size_t k = 0; k < stacked.size(); ++k)
    results.push_back(moved_axis(reversed(stacked[k], entry(parts.result_directions, k) != 0), 0,
                                 node.axis(entry(parts.result_axes, k), stacked[k].rank())));
  return results;
}

Outputs convert_scan(const Node& node, const RunBody& run, const FindValue&) {
  const GraphProto& body = node.graph("body");
  check_types(node, body);
  const std::int64_t wanted = node.integer("num_scan_inputs", 0);
  const std::size_t first = node.opset() < 9 ? 1 : 0;
  if (wanted < 1 || wanted > static_cast<std::int64_t>(node.input_count() - first))
    node.malformed("num_scan_inputs", "1 to the number of inputs", std::to_string(wanted));
  const auto scanned = static_cast<std::size_t>(wanted);
  std::vector<Tensor> inputs;
  for (std::size_t k = first; k < node.input_count(); ++k) inputs.push_back(node.tensor(k));
  ScanParts parts{body, inputs.size() - scanned, {}, {}, {}, {}};
  if (static_cast<std::size_t>(body.input_size()) != inputs.size() ||
      static_cast<std::size_t>(body.output_size()) < parts.carried)
    node.malformed("body", fmt::format("{} inputs", inputs.size()),
                   std::to_string(body.input_size()));
  if (node.opset() >= 9) {
    parts.axes = node.integers("scan_input_axes");
    parts.directions = node.integers("scan_input_directions");
    parts.result_axes = node.integers("scan_output_axes");
    parts.result_directions = node.integers("scan_output_directions");
    return outputs_of(scan_once(node, parts, inputs, run));
  }
  // Version 8 runs a scan for each element of a batch.
  if (node.has(0)) node.unsupported("sequences of different lengths");
  parts.directions = node.integers("directions");
  return outputs_of(
      map([&](const std::vector<Tensor>& element) { return scan_once(node, parts, element, run); },
          inputs));
}

}  // namespace

std::vector<Tensor> RunBody::operator()(const GraphProto& graph, std::vector<Value> given) const {
  std::vector<Tensor> tensors;
  for (const Value& value : values(graph, std::move(given)))
    tensors.push_back(tensor_between(value));
  return tensors;
}

const ControlConverter* find_control(std::string_view domain, std::string_view name) {
  static constexpr ControlConverter kFlexAttention = {{"FlexAttention"}, convert_flex_attention};
  if (domain == "ai.onnx.preview" && name == kFlexAttention.row.name) return &kFlexAttention;
  if (!domain.empty()) return nullptr;
  static constexpr ControlConverter kRows[] = {
      {{"If"}, convert_if}, {{"Loop", nullptr, {}, true}, convert_loop}, {{"Scan"}, convert_scan}};
  for (const ControlConverter& row : kRows)
    if (row.row.name == name) return &row;
  return nullptr;
}

}  // namespace heddle::onnx
