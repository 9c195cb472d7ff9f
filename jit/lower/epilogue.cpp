#include "jit/lower/epilogue.h"

#include <algorithm>

#include "ir/op.h"
#include "ir/passes/form_regions.h"

namespace heddle::jit {

namespace {

using Kind = EpilogueOp::Kind;

bool is_commutative(const Node& node) { return node.op_name() == "add" || node.op_name() == "mul"; }

}  // namespace

/// Channels must be the last dimension: operands of Scale and Shift run along it.
bool takes_epilogue(const Node& node) {
  return node.op().lowering.library == "conv" && node.flag("channels_last");
}

EpilogueFinder::EpilogueFinder(const ReadAnalysis& reads) : reads_(reads), graph_(reads.graph()) {
  for (const Value& value : reads.pinned()) wanted_.insert(value.node);
  for (const Node* node : graph_.nodes()) {
    if (reads.is_owned(node)) find_readers(node);
    if (node->after().empty()) continue;
    ordered_.insert(node);
    for (const Value& before : node->after()) ordered_.insert(before.node);
  }
}

void EpilogueFinder::find_readers(const Node* node) {
  for (const Read& read : reads_.of(node).reads) {
    auto& list = readers_[read.value.node];
    if (list.empty() || list.back() != node) list.push_back(node);
  }
  std::vector<Value> opaque = reads_.of(node).opaque;
  while (!opaque.empty()) {
    const Value value = opaque.back();
    opaque.pop_back();
    wanted_.insert(value.node);
    if (reads_.is_owned(value.node)) continue;
    for (const Value& input : value.node->inputs())
      if (input) opaque.push_back(input);
  }
}

const std::vector<const Node*>& EpilogueFinder::readers_of(const Node& node) const {
  static const std::vector<const Node*> kNone;
  const auto found = readers_.find(&node);
  return found == readers_.end() || wanted_.contains(&node) ? kNone : found->second;
}

const Node* EpilogueFinder::only_reader(const Node& node) const {
  const auto& readers = readers_of(node);
  return readers.size() == 1 ? readers[0] : nullptr;
}

bool EpilogueFinder::may_follow(const Node& root, const Node& node) const {
  return node.output().dtype == root.output().dtype &&
         graph_.class_of(&node) == NodeClass::Element && region_of(node) == region_of(root) &&
         unit_of(node, graph_.options()).fuse && !ir::wants_fallback(node) &&
         !ordered_.contains(&node);
}

std::vector<EpilogueStep> EpilogueFinder::find(const Node& root) const {
  std::vector<EpilogueStep> steps;
  const Node* at = &root;
  const bool begins = unit_of(root, graph_.options()).fuse && !ir::wants_fallback(root) &&
                      root.output().dtype == DType::F32 && !ordered_.contains(&root);
  while (begins && steps.size() < kMaxEpilogue) {
    Step step = next(*at);
    const auto fits = [&](const Node* node) { return may_follow(root, *node); };
    if (!step || !std::ranges::all_of(step->nodes, fits)) break;
    at = step->nodes.back();
    const bool by_channel = step->op.kind == Kind::Scale || step->op.kind == Kind::Shift;
    if (by_channel && !same_dims(at->output().sizes, root.output().sizes)) break;
    steps.push_back(std::move(*step));
  }
  return steps;
}

EpilogueFinder::Step EpilogueFinder::next(const Node& node) const {
  const auto& readers = readers_of(node);
  if (readers.size() == 1) {
    if (Step step = unary(node, *readers[0])) return step;
    return binary(node, *readers[0]);
  }
  return readers.size() == 2 ? gate(node) : std::nullopt;
}

/// The value that `value` only shows in another order or size.
Value EpilogueFinder::behind_views(Value value) const {
  while (!reads_.is_owned(value.node) && graph_.class_of(value.node) == NodeClass::View)
    value = value.node->input(0);
  return value;
}

/// Whether `operand` of `reader` is the value of `node` in its own order, if perhaps of other sizes.
bool EpilogueFinder::shows(Value operand, const Node& node, const Node& reader) const {
  if (!operand || behind_views(operand) != node.value()) return false;
  const NodeReads& reads = reads_.of(&reader);
  return std::ranges::all_of(reads.reads, [&](const Read& read) {
    return read.value != node.value() || reads_same(reads, read);
  });
}

/// The other operand of a reader with two, one of which shows `node`; null when both or none do.
Value EpilogueFinder::other_operand(const Node& reader, const Node& node) const {
  if (reader.inputs().size() != 2) return {};
  const bool first = shows(reader.input(0), node, reader);
  if (first == shows(reader.input(1), node, reader)) return {};
  return reader.input(first ? 1 : 0);
}

std::optional<float> EpilogueFinder::number(Value value) const {
  if (!value || value.meta().dtype != DType::F32) return {};
  const auto splat = splat_of(*behind_views(value).node);
  return splat ? std::optional(static_cast<float>(splat->number)) : std::nullopt;
}

bool EpilogueFinder::take_bounds(const Node& clamp, EpilogueOp& op) const {
  for (const std::size_t k : {std::size_t{1}, std::size_t{2}}) {
    if (k >= clamp.inputs().size() || !clamp.input(k)) continue;
    const auto bound = number(clamp.input(k));
    if (!bound) return false;
    (k == 1 ? op.low : op.high) = *bound;
  }
  return op.low <= op.high;
}

EpilogueFinder::Step EpilogueFinder::unary(const Node& node, const Node& reader) const {
  EpilogueOp op{.kind = Kind::Clamp};
  const bool is_relu = reader.op_name() == "relu";
  if ((!is_relu && reader.op_name() != "clamp") || !shows(reader.input(0), node, reader)) return {};
  if (is_relu)
    op.low = 0;
  else if (!take_bounds(reader, op))
    return {};
  return EpilogueStep{op, {&reader}, {}};
}

EpilogueFinder::Step EpilogueFinder::binary(const Node& node, const Node& reader) const {
  const Value other = other_operand(reader, node);
  const std::string_view name = reader.op_name();
  const bool is_first = other && other == reader.input(1);
  if (!other || !(is_commutative(reader) || (is_first && (name == "sub" || name == "div"))))
    return {};
  if (const auto value = number(other)) {
    EpilogueOp op{.kind = Kind::Linear};
    if (name == "add") op.b = *value;
    if (name == "sub") op.b = -*value;
    if (name == "mul") op.a = *value;
    if (name == "div") op.a = 1.0f / *value;
    return EpilogueStep{op, {&reader}, {}};
  }
  return is_commutative(reader) ? with_tensor(reader, other) : std::nullopt;
}

/// How `reader` reads what `other` shows; nothing where that is computed on the way.
std::optional<Read> EpilogueFinder::read_of(const Node& reader, Value other) const {
  const Value base = behind_views(other);
  std::optional<Read> found;
  for (const Read& read : reads_.of(&reader).reads) {
    if (read.value != base) continue;
    if (found) return {};
    found = read;
  }
  return found;
}

EpilogueFinder::Step EpilogueFinder::with_tensor(const Node& reader, Value other) const {
  if (other.meta().dtype != DType::F32) return {};
  const auto read = read_of(reader, other);
  if (!read) return {};
  const NodeReads& reads = reads_.of(&reader);
  const bool adds = reader.op_name() == "add";
  if (adds && reads_same(reads, *read))
    return EpilogueStep{{.kind = Kind::Add}, {&reader}, read->value};
  const ir::Dims& sizes = read->value.meta().sizes;
  const SymExpr count = base::product(sizes);
  const SymExpr at = linear_index(read->index, sizes);
  const SymExpr& channel = reads.axes.back();
  const bool by_channel =
      same(count, reads.domain.back(), reads.facts) && same(at, channel, reads.facts);
  if (!by_channel && !count.is_constant(1)) return {};
  return EpilogueStep{{.kind = adds ? Kind::Shift : Kind::Scale}, {&reader}, read->value};
}

/// v times a clamped line of v, as hard swish is.
EpilogueFinder::Step EpilogueFinder::gate(const Node& node) const {
  const Node& last = *readers_of(node)[1];
  if (last.op_name() != "mul") return {};
  const Value gate = other_operand(last, node);
  if (!gate || gate.node->op_name() != "clamp") return {};
  EpilogueStep step{{.kind = Kind::Gate}, {gate.node, &last}, {}};
  if (only_reader(*gate.node) != &last || !take_bounds(*gate.node, step.op)) return {};
  // From the clamp back to the value: what comes later multiplies and adds first.
  Value line = gate.node->input(0);
  while (line != node.value()) {
    const Node& part = *line.node;
    const bool is_mul = part.op_name() == "mul";
    if ((!is_mul && part.op_name() != "add") || only_reader(part) != step.nodes[0]) return {};
    const auto right = number(part.input(1));
    const auto value = right ? right : number(part.input(0));
    if (!value) return {};
    if (is_mul)
      step.op.a *= *value;
    else
      step.op.b += step.op.a * *value;
    step.nodes.insert(step.nodes.begin(), &part);
    line = part.input(right ? 0 : 1);
  }
  return step;
}

}  // namespace heddle::jit
