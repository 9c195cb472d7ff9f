#include "engine/onnx/control_flow.h"

#include <algorithm>
#include <fmt/format.h>

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
  for (const auto* list : {&graph.input(), &graph.output()})
    for (const auto& value : *list)
      if (value.type().value_case() != onnx_format::TypeProto::kTensorType &&
          value.type().value_case() != onnx_format::TypeProto::VALUE_NOT_SET)
        node.unsupported("a sequence, map or optional in a nested graph");
}

/// The integer, if it is known while tracing.
std::optional<SymInt> known_size(const Node& node, std::size_t k) {
  if (!node.has(k)) return {};
  const auto ints = node.value(k).ints();
  if (!ints || ints->size() != 1) return {};
  return (*ints)[0];
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

Outputs convert_if(const Node& node, const RunBody& run) {
  const GraphProto& yes = node.graph("then_branch");
  const GraphProto& no = node.graph("else_branch");
  check_types(node, yes);
  check_types(node, no);
  if (const auto known = known_size(node, 0); known && !known->is_symbolic())
    return outputs_of(run(known->value() != 0 ? yes : no, {}));
  const Tensor condition = scalar(node.tensor(0));
  try {
    return outputs_of(cond(condition, [&] { return run(yes, {}); }, [&] { return run(no, {}); }));
  } catch (const ShapeError& misfit) {
    if (node.value(0).source().empty() && !differ_in_results(misfit)) throw;
    refuse_misfit(node, misfit);
  } catch (const DTypeError& misfit) {
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

bool is_true(const onnx_format::TensorProto& tensor, const Node& node) {
  const Tensor value = read_tensor(tensor, node.folder(), node.where());
  return value.count() == 1 && value.item() != 0;
}

/// Whether the body gives its condition on as it got it, or gives true.
bool condition_stays(const Node& node, const GraphProto& body) {
  std::string name = body.output(0).name();
  for (const NodeProto* from = producer(body, name); from != nullptr; from = producer(body, name)) {
    if (from->op_type() == "Constant" && from->attribute_size() == 1 && from->attribute(0).has_t())
      return is_true(from->attribute(0).t(), node);
    if (from->op_type() != "Identity" || from->input_size() != 1) return false;
    name = from->input(0);
  }
  for (const auto& initializer : body.initializer())
    if (initializer.name() == name) return is_true(initializer, node);
  return body.input_size() > 1 && body.input(1).name() == name;
}

struct LoopParts {
  const GraphProto& body;
  std::size_t carried;
  std::vector<Tensor> start;
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

/// Whether what a loop carries has other sizes or another dtype after an iteration.
bool changes_what_it_carries(const Error& error) {
  const std::string& what = error.parts().what;
  return what.starts_with("scan: C4") || what.starts_with("while_loop: C4");
}

[[noreturn]] void refuse_change(const Node& node, const Error& error) {
  node.unsupported("carried values that change their type: " + std::string(error.what()));
}

/// A loop that runs a known number of times: a region where its body can be one.
Outputs known_loop(const Node& node, const LoopParts& loop, const SymInt& length,
                   const RunBody& run) {
  const bool few = !length.is_symbolic() && length.value() > 0 && length.value() <= kMostUnrolled;
  try {
    return counted_loop(loop, length, run);
  } catch (const NeedsValueError&) {
    throw;
  } catch (const UnsupportedError&) {
    if (!few) throw;
  } catch (const Error& error) {
    if (!changes_what_it_carries(error)) throw;
    if (!few) refuse_change(node, error);
  }
  return unrolled_loop(loop, length.value(), run);
}

/// A loop that asks its condition each time.
Outputs asked_loop(const Node& node, const LoopParts& loop, const RunBody& run) {
  std::vector<Tensor> state{Tensor::scalar_int(i64, 0),
                            node.has(1) ? scalar(node.tensor(1)) : Tensor::scalar_int(boolean, 1)};
  state.insert(state.end(), loop.start.begin(), loop.start.end());
  const Tensor limit = node.has(0) ? scalar(node.tensor(0)) : Tensor();
  const auto goes_on = [&](const std::vector<Tensor>& now) {
    return limit.defined() ? logical_and(now[1], less(now[0], limit)) : now[1];
  };
  const auto body = [&](const std::vector<Tensor>& now) {
    std::vector<Tensor> made = run(loop.body, std::vector<Value>(now.begin(), now.end()));
    made[0] = scalar(made[0]);
    made.insert(made.begin(), now[0] + 1);
    return made;
  };
  try {
    state = while_loop(std::move(state), goes_on, body);
  } catch (const Error& error) {
    if (!changes_what_it_carries(error)) throw;
    refuse_change(node, error);
  }
  return outputs_of({state.begin() + 2, state.end()});
}

Outputs convert_loop(const Node& node, const RunBody& run) {
  const GraphProto& body = node.graph("body");
  check_types(node, body);
  LoopParts loop{body, node.input_count() > 2 ? node.input_count() - 2 : 0, {}};
  const std::size_t results = static_cast<std::size_t>(body.output_size());
  if (results < 1 + loop.carried || static_cast<std::size_t>(body.input_size()) != 2 + loop.carried)
    node.malformed("body", fmt::format("{} inputs", 2 + loop.carried),
                   std::to_string(body.input_size()));
  for (std::size_t k = 0; k < loop.carried; ++k) loop.start.push_back(node.tensor(2 + k));
  const bool stacks = results > 1 + loop.carried;
  if (!condition_stays(node, body)) {
    if (stacks) node.unsupported("stacked results of a loop that its own condition ends");
    return asked_loop(node, loop, run);
  }
  if (stacks && !node.has(0)) node.unsupported("stacked results of a loop without a trip count");
  if (stacks) {
    const bool runs = !node.has(1) || node.known_number(1, "cond") != 0;
    return known_loop(node, loop, runs ? node.known_size(0, "M") : SymInt(0), run);
  }
  const std::optional<SymInt> length = known_size(node, 0);
  const std::optional<SymInt> starts = known_size(node, 1);
  const bool always = !node.has(1) || (starts && !starts->is_symbolic() && starts->value() != 0);
  return length && always ? known_loop(node, loop, *length, run) : asked_loop(node, loop, run);
}

// Scan.

/// `tensor` with dimension `from` moved to `to`.
Tensor moved_axis(const Tensor& tensor, std::int64_t from, std::int64_t to) {
  if (from == to) return tensor;
  Ints order = range_of(0, tensor.rank());
  order.erase(order.begin() + from);
  order.insert(order.begin() + to, from);
  return permute(tensor, order);
}

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

Outputs convert_scan(const Node& node, const RunBody& run) {
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

const ControlConverter* find_control(std::string_view name) {
  static constexpr ControlConverter kRows[] = {
      {{"If"}, convert_if}, {{"Loop"}, convert_loop}, {{"Scan"}, convert_scan}};
  for (const ControlConverter& row : kRows)
    if (row.row.name == name) return &row;
  return nullptr;
}

}  // namespace heddle::onnx
