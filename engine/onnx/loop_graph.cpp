#include "engine/onnx/loop_graph.h"

#include <algorithm>
#include <utility>

#include "engine/onnx/nested_values.h"
#include "engine/onnx/onnx.pb.h"
#include "engine/onnx/reader.h"

namespace heddle::onnx {

using onnx_format::GraphProto;
using onnx_format::NodeProto;

namespace {

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

}  // namespace

bool condition_stays(const Node& node, const GraphProto& body) {
  const std::string name = origin_of(body, body.output(0).name(), is_identity);
  if (const auto constant = constant_of(node, body, name))
    return constant->count() == 1 && constant->item() != 0;
  return body.input_size() > 1 && body.input(1).name() == name;
}

std::optional<SymInt> known_trips(const Node& node, const GraphProto& body, const FindValue& find) {
  const std::optional<SymInt> starts = node.has(1) ? known_integer(node, 1) : SymInt(1);
  if (!starts || starts->is_symbolic()) return {};
  if (starts->value() == 0) return 0;
  const std::optional<SymInt> trips = CountedCondition(node, body, find).trips();
  if (!trips || !node.has(0)) return trips;
  const std::optional<SymInt> limit = known_integer(node, 0);
  return limit ? std::optional(*trips < *limit ? *trips : *limit) : std::nullopt;
}

bool surely_runs(const Node& node) {
  const auto holds = [&](std::size_t k) {
    if (!node.has(k)) return true;
    const std::optional<SymInt> known = known_integer(node, k);
    return known && !known->is_symbolic() && known->value() > 0;
  };
  return holds(0) && holds(1);
}

bool stays(const GraphProto& body, std::size_t k) {
  const std::string& name = body.output(static_cast<int>(1 + k)).name();
  return origin_of(body, name, is_identity) == body.input(static_cast<int>(2 + k)).name();
}

bool is_appended_to(const GraphProto& body, std::size_t k) {
  const std::string& given = body.input(static_cast<int>(2 + k)).name();
  const std::string& made = body.output(static_cast<int>(1 + k)).name();
  const NodeProto* inserts = producer(body, made);
  return inserts != nullptr && inserts->op_type() == "SequenceInsert" &&
         inserts->input_size() == 2 && inserts->input(0) == given && reads_of(body, given) == 1 &&
         reads_of(body, made) == 1;
}

}  // namespace heddle::onnx
