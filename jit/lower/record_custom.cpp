// Steps of custom ops.
#include <algorithm>

#include "heddle/error.h"
#include "jit/custom/custom_call.h"
#include "jit/lower/record.h"

namespace heddle::jit {

using ir::PlanBuffer;
using ir::PlanKernel;
using ir::PlanStep;

namespace {

std::string described(const Node& node) {
  return "%" + node.name() + (node.location().empty() ? "" : " at " + node.location().to_string());
}

CustomTensor tensor_in(std::uint32_t buffer, const ir::TensorMeta& meta) {
  return {buffer, meta.dtype, meta.sizes, meta.strides, 0};
}

}  // namespace

void Recorder::add_custom(std::uint32_t group) {
  const Node& node = *state_.grouping.groups[group].root;
  const ir::CustomLayout layout = ir::layout_of(node);
  const auto results = static_cast<std::uint32_t>(ir::result_count(node));
  auto call = std::make_shared<CustomCall>();
  call->op = node.op().custom;
  call->node = described(node);
  call->attrs = node.attrs();
  call->starts = layout.starts;
  PlanStep step;
  Launch launch;
  const auto bind = [&](ir::BufferId buffer) { return place_in(launch.buffers, buffer); };

  std::vector<WrittenBase> bases;
  for (std::uint32_t k = 0; k < layout.bases.size(); ++k)
    bases.push_back(written_base(node, group, layout.bases[k], results + k));
  count_copied(node, bases);
  for (std::size_t k = 0; k < layout.starts.back(); ++k) {
    if (k >= node.inputs().size() || !node.input(k)) {
      call->arguments.emplace_back();
      continue;
    }
    const ir::WrittenOperand* written = layout.written_at(k);
    if (written == nullptr) {
      const ir::BufferId buffer = buffer_of(state_.graph().storage(node.input(k)));
      place_in(step.reads, buffer);
      call->arguments.push_back(tensor_in(bind(buffer), memory_meta(node.input(k))));
      continue;
    }
    const auto& [buffer, meta, copied] = bases[written->base];
    place_in(step.reads, buffer);
    place_in(step.writes, buffer);
    CustomTensor tensor = tensor_in(bind(buffer), meta);
    if (!written->view.whole) {
      tensor.offset = written->view.offset;
      tensor.sizes = written->view.sizes;
      tensor.strides = written->view.strides;
    }
    call->arguments.push_back(std::move(tensor));
  }
  for (std::uint32_t k = 0; k < results; ++k) {
    step.work += node.output(k).count();
    if (ir::viewed_operand(node, k)) continue;
    ir::TensorMeta meta = node.output(k);
    meta.strides = ir::row_major(meta.sizes);
    const ir::BufferId buffer = buffer_of(node.value(k));
    place_in(step.writes, buffer);
    call->results.push_back(tensor_in(bind(buffer), meta));
  }
  for (const WrittenBase& base : bases) step.work += base.meta.count();
  if (step.writes.empty() && node.op().pure) return;  // all results are views
  call->buffers = static_cast<std::uint32_t>(launch.buffers.size());
  add_order_edges(group, step);
  note_late_sizes(node, results, launch);
  PlanKernel kernel;
  kernel.name = std::string(node.op_name());
  kernel.region = region_of(node);
  kernel.nodes = {node.name()};
  kernel.kind = PlanKernel::Kind::Custom;
  steps_of_group_[group].push_back(add_step(std::move(kernel), {nullptr, nullptr, std::move(call)},
                                            std::move(step), std::move(launch)));
}

/// The last group that reads each storage in memory; kNoGroup where the caller reads it at the end. And the
/// storages that other ops overwrite.
void Recorder::find_last_readers() {
  const LiveGraph& graph = state_.graph();
  const auto nodes = graph.nodes();
  std::vector<std::uint32_t> evaluated(nodes.size(), 0);
  const auto later = [](std::uint32_t& last, std::uint32_t group) { last = std::max(last, group); };
  for (std::size_t k = nodes.size(); k-- > 0;) {
    const Node& node = *nodes[k];
    if (state_.reads.is_owned(&node)) {
      // Who reads a view that lies in memory of its own may read what it looks at all the same.
      const bool is_view = graph.class_of(&node) == NodeClass::View;
      const std::uint32_t group = state_.grouping.group_of[k];
      evaluated[k] = is_view ? std::max(evaluated[k], group) : group;
    }
    for (std::uint32_t output = 0; output < node.outputs().size(); ++output) {
      const ir::Alias alias = ir::alias_of(node, output);
      if (node.op().custom == nullptr && alias.kind == ir::Alias::Kind::Mutates)
        overwritten_.insert(graph.storage(node.input(alias.operand)));
    }
    for (const Value& input : node.inputs()) {
      if (!input) continue;
      later(evaluated[graph.position(input.node)], evaluated[k]);
      later(last_readers_[graph.storage(input)], evaluated[k]);
    }
  }
  for (const Value& result : graph.results()) last_readers_[graph.storage(result)] = kNoGroup;
}

/// Whether nobody can tell that the op writes where `base` lies: no later kernel and no result reads the old
/// value, and what the caller owns is donated, or written back to anyway.
bool Recorder::may_overwrite(const Node& node, std::uint32_t group, std::size_t operand,
                             Value result) {
  if (last_readers_.empty()) find_last_readers();
  const Value storage = state_.graph().storage(node.input(operand));
  const auto last = last_readers_.find(storage);
  if (last == last_readers_.end() || last->second > group) return false;
  // The memory of an argument may hold an intermediate value that is going to be written back.
  const ir::BufferId buffer = root_of(buffer_of(storage));
  const PlanBuffer::Role role = program_.record.buffers[buffer].role;
  const auto writes = state_.graph().graph().write_backs();
  const bool written_back = std::any_of(writes.begin(), writes.end(), [&](const auto& write) {
    return buffers_.at(write.target) == buffer;
  });
  const bool donated = program_.record.buffers[buffer].donated;
  if (role != PlanBuffer::Role::Intermediate &&
      !(role == PlanBuffer::Role::Input && (written_back || donated)))
    return false;
  if (role == PlanBuffer::Role::Input && overwritten_.contains(result)) return false;
  // A plain operand would see the writes; an earlier base has taken the bytes.
  const ir::CustomLayout layout = ir::layout_of(node);
  const std::size_t base = layout.written_at(operand)->base;
  if (!memory_meta(node.input(operand)).is_row_major()) return false;
  for (std::size_t k = 0; k < node.inputs().size(); ++k) {
    if (!node.input(k)) continue;
    const ir::WrittenOperand* written = layout.written_at(k);
    if (written == nullptr ? node.flag("_aliases") : written->base >= base) continue;
    if (buffer_of(state_.graph().storage(node.input(k))) == buffer) return false;
  }
  return true;
}

/// The buffer that the op writes for a base, and how it lies there: the operand's own where the op may
/// overwrite it, else a copy.
Recorder::WrittenBase Recorder::written_base(const Node& node, std::uint32_t group,
                                             std::size_t operand, std::uint32_t output) {
  const Value base = node.input(operand);
  const Value storage = state_.graph().storage(base);
  const Value result = node.value(output);
  const bool marked = ir::alias_of(node, output).kind == ir::Alias::Kind::Mutates;
  const auto returned = buffers_.find(result);
  const PlanBuffer& held = program_.record.buffers[root_of(buffer_of(storage))];
  const bool state = held.role == PlanBuffer::Role::Input && !held.donated;
  if (marked ||
      ((returned == buffers_.end() || state) && may_overwrite(node, group, operand, result))) {
    if (returned != buffers_.end()) late_outputs_.emplace_back(result, returned->second);
    buffers_[result] = buffer_of(storage);
    const bool is_part = state_.graph().class_of(storage.node) == NodeClass::View;
    return {buffer_of(storage), memory_meta(base), is_part};
  }
  ir::TensorMeta meta = base.meta();
  meta.strides = ir::row_major(meta.sizes);
  const ir::BufferId copy = buffer_of(result);
  add_copy(buffer_of(storage), memory_meta(base), copy, meta);
  program_.record.kernels.back().name = "clone";
  program_.record.kernels.back().nodes = {node.name()};
  program_.record.kernels.back().region = region_of(node);
  return {copy, meta, true};
}

/// By argument: members of a list are copied together.
void Recorder::count_copied(const Node& node, const std::vector<WrittenBase>& bases) {
  const ir::CustomLayout layout = ir::layout_of(node);
  std::map<std::size_t, std::vector<SymExpr>> copied;
  for (std::size_t k = 0; k < bases.size(); ++k) {
    const auto after = std::ranges::upper_bound(layout.starts, layout.bases[k]);
    const auto argument = static_cast<std::size_t>(after - layout.starts.begin());
    if (bases[k].copied)
      copied[argument].push_back(node.input(layout.bases[k]).meta().bytes());
    else
      ++program_.in_place;
  }
  for (auto& [argument, bytes] : copied) program_.copied_arguments.push_back(std::move(bytes));
}

}  // namespace heddle::jit
