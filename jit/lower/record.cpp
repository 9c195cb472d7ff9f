#include "jit/lower/record.h"

#include <algorithm>

#include "base/check.h"
#include "ir/analysis/unbacked.h"
#include "ir/op.h"
#include "jit/lower/late_sizes.h"
#include "jit/lower/nest_rewrite.h"
#include "jit/lower/region.h"

namespace heddle::jit {

using ir::PlanBuffer;
using ir::PlanKernel;
using ir::PlanStep;

namespace {

std::string plain_name(Value value) {
  const std::string name = value.name();
  return name.starts_with('%') ? name.substr(1) : name;
}

/// Scalar operations of a library call: of a convolution two for each weight that an element of the result meets.
SymExpr work_of(const Node& node) {
  SymExpr work = 0;
  for (std::uint32_t k = 0; k < node.outputs().size(); ++k) work += node.output(k).count();
  if (node.op().lowering.library != "conv") return work;
  const ir::Dims& weights = node.input(1).meta().sizes;
  return work * base::product(ir::Dims(weights.begin() + 1, weights.end())) * 2;
}

}  // namespace

std::uint32_t place_in(std::vector<ir::BufferId>& list, ir::BufferId id) {
  const auto found = std::find(list.begin(), list.end(), id);
  const auto position = static_cast<std::uint32_t>(found - list.begin());
  if (found == list.end()) list.push_back(id);
  return position;
}

Recorder::Recorder(const LoweringState& state, Program& program)
    : state_(state), program_(program), steps_of_group_(state.grouping.groups.size()) {
  add_inputs();
  choose_output_buffers();
}

ir::BufferId Recorder::add_buffer(Value value, PlanBuffer::Role role, std::uint32_t position) {
  const ir::TensorMeta& meta = value.meta();
  PlanBuffer buffer;
  buffer.value = plain_name(value);
  buffer.dtype = meta.dtype;
  buffer.sizes = meta.sizes;
  buffer.bytes = meta.bytes();
  buffer.role = role;
  buffer.position = position;
  program_.record.buffers.push_back(std::move(buffer));
  writers_.emplace_back();
  readers_.emplace_back();
  return static_cast<ir::BufferId>(program_.record.buffers.size() - 1);
}

/// Every argument and parameter has a buffer, used or not: callers bind them by position.
void Recorder::add_inputs() {
  std::uint32_t arguments = 0;
  std::uint32_t parameters = 0;
  for (const Value& input : state_.graph().graph().inputs()) {
    const bool parameter = input.node->op_name() == "param";
    const auto role = parameter ? PlanBuffer::Role::Parameter : PlanBuffer::Role::Input;
    buffers_[input] = add_buffer(input, role, parameter ? parameters++ : arguments++);
    program_.record.buffers.back().donated = ir::is_donated(input);
  }
}

/// A graph output is written by the kernel that computes it, unless its memory already has another use.
void Recorder::choose_output_buffers() {
  const auto outputs = state_.graph().graph().outputs();
  program_.outputs.assign(outputs.size(), ir::kNone);
  for (std::uint32_t k = 0; k < outputs.size(); ++k) {
    const Value storage = state_.graph().storage(outputs[k]);
    if (state_.graph().class_of(storage.node) == NodeClass::Source) continue;
    if (!output_positions_.emplace(storage, k).second) continue;
    const ir::BufferId buffer = add_buffer(outputs[k], PlanBuffer::Role::Output, k);
    buffers_[storage] = buffer;
    program_.outputs[k] = buffer;
  }
}

ir::BufferId Recorder::buffer_of(Value storage) {
  const auto found = buffers_.find(storage);
  if (found != buffers_.end()) return found->second;
  ir::BufferId buffer = ir::kNone;
  if (storage.node->op_name() == "const") {
    const auto position = static_cast<std::uint32_t>(program_.constants.size());
    program_.constants.push_back(std::get<ir::LiteralPtr>(storage.node->attr("value")));
    buffer = add_buffer(storage, PlanBuffer::Role::Constant, position);
  } else {
    buffer = add_buffer(storage, PlanBuffer::Role::Intermediate, ir::kNone);
  }
  buffers_[storage] = buffer;
  return buffer;
}

std::shared_ptr<const Nest> Recorder::shared(std::shared_ptr<const Nest> nest) {
  if (const auto twin = twins_.find(nest); twin != twins_.end()) return twin->second;
  const base::Hash128 key = structural_key(*nest);
  auto& known = nests_[{key.low, key.high}];
  if (known.empty()) known.push_back(nest);
  twins_.emplace(std::move(nest), known.front());
  return known.front();
}

void Recorder::add_kernel(std::uint32_t group, BuiltKernel built) {
  PlanStep step;
  Launch launch;
  std::map<Value, std::uint32_t> read_places;
  std::map<Value, std::uint32_t> write_places;
  for (std::size_t k = 0; k < built.buffers.size(); ++k) {
    const Value value = built.buffers[k];
    const ir::BufferId buffer = buffer_of(value);
    launch.buffers.push_back(buffer);
    const NestBuffer& access = built.nest->buffers[k];
    // What the kernel reads again after it wrote it needs no step before.
    const bool made_here = state_.grouping.group_of[state_.graph().position(value.node)] == group;
    if (access.read && !made_here) read_places[value] = place_in(step.reads, buffer);
    if (access.written) write_places[value] = place_in(step.writes, buffer);
  }
  for (const Node* node : state_.grouping.groups[group].nodes) place_overwriting(*node, step);
  for (const auto& [read, write] : built.in_place)
    step.may_reuse.emplace_back(read_places.at(read), write_places.at(write));
  launch.sizes = built.sizes;
  base::SymbolExprs sizes;
  for (std::uint32_t k = 0; k < built.sizes.size(); ++k)
    sizes.emplace(Symbol{Symbol::Kind::Size, k}, built.sizes[k]);
  step.work = built.nest->work.substitute(sizes);
  add_order_edges(group, step);

  PlanKernel kernel;
  kernel.name = built.nest->name;
  kernel.region = region_of(*state_.grouping.groups[group].nodes[0]);
  for (const Node* node : built.nodes) kernel.nodes.push_back(node->name());
  const ir::StepId id = add_step(std::move(kernel), {shared(built.nest), nullptr}, std::move(step),
                                 std::move(launch));
  steps_of_group_[group].push_back(id);
}

void Recorder::add_library(std::uint32_t group) {
  const Group& members = state_.grouping.groups[group];
  const Node& node = *members.root;
  auto call = std::make_shared<LibraryCall>();
  call->name = node.op().lowering.library;
  call->attrs = node.attrs();
  call->winograd = unit_of(node, state_.options()).winograd;
  PlanStep step;
  Launch launch;
  const auto add_operand = [&](Value input) {
    call->inputs.push_back(ir::TensorMeta::of(input.meta().dtype, input.meta().sizes));
    launch.buffers.push_back(row_major_buffer(input));
    return place_in(step.reads, launch.buffers.back());
  };
  for (const Value& input : node.inputs())
    if (input) add_operand(input);
  call->node_inputs = static_cast<std::uint32_t>(call->inputs.size());
  std::vector<std::uint32_t> added;  // positions in `reads`
  for (const EpilogueStep& part : members.epilogue) {
    call->epilogue.push_back(part.op);
    if (!part.operand) continue;
    call->epilogue.back().operand = static_cast<std::uint32_t>(call->inputs.size());
    const std::uint32_t read = add_operand(part.operand);
    if (part.op.kind == EpilogueOp::Kind::Add) added.push_back(read);
  }
  const auto add_result = [&](const ir::TensorMeta& seen, Value result) {
    call->outputs.push_back(seen);
    const ir::BufferId buffer = buffer_of(result);
    place_in(step.writes, buffer);
    launch.buffers.push_back(buffer);
  };
  if (members.epilogue.empty()) {
    for (std::uint32_t k = 0; k < node.outputs().size(); ++k)
      add_result(node.output(k), node.value(k));
  } else {
    add_result(node.output(), members.library_result());
  }
  for (const std::uint32_t read : added)
    if (is_read_once(step.reads[read], launch)) step.may_reuse.emplace_back(read, 0);
  step.work = work_of(node);
  add_order_edges(group, step);
  PlanKernel kernel;
  kernel.name = members.epilogue.empty() ? call->name : kernel_name(members.nodes);
  kernel.region = region_of(node);
  for (const Node* member : members.nodes) kernel.nodes.push_back(member->name());
  kernel.kind = PlanKernel::Kind::Library;
  steps_of_group_[group].push_back(
      add_step(std::move(kernel), {nullptr, std::move(call)}, std::move(step), std::move(launch)));
}

/// Whether no other operand of the launch has the bytes of `buffer`.
bool Recorder::is_read_once(ir::BufferId buffer, const Launch& launch) const {
  const auto shares = [&](ir::BufferId other) { return root_of(other) == root_of(buffer); };
  return std::ranges::count_if(launch.buffers, shares) == 1;
}

void Recorder::add_region(std::uint32_t group) {
  const Node& node = *state_.grouping.groups[group].root;
  const auto number = static_cast<std::uint32_t>(program_.record.steps.size());
  std::shared_ptr<const NestedCall> call = lower_regions(node, state_, number);
  PlanStep step;
  Launch launch;
  for (const Value& input : node.inputs()) {
    const ir::BufferId buffer = row_major_buffer(input);
    place_in(step.reads, buffer);
    launch.buffers.push_back(buffer);
  }
  for (std::uint32_t k = 0; k < node.outputs().size(); ++k) {
    const ir::BufferId buffer = buffer_of(node.value(k));
    place_in(step.writes, buffer);
    launch.buffers.push_back(buffer);
    step.work += node.output(k).count();
  }
  PlanBuffer workspace;
  workspace.value = node.name() + ".workspace";
  workspace.dtype = DType::U8;
  workspace.sizes = {SymExpr(call->workspace)};
  workspace.bytes = workspace.sizes[0];
  workspace.role = PlanBuffer::Role::Workspace;
  program_.record.buffers.push_back(std::move(workspace));
  writers_.emplace_back();
  readers_.emplace_back();
  launch.buffers.push_back(static_cast<ir::BufferId>(program_.record.buffers.size() - 1));
  step.writes.push_back(launch.buffers.back());
  add_order_edges(group, step);
  note_late_sizes(node, call->results, launch);
  PlanKernel kernel;
  kernel.name = std::string(node.op_name());
  kernel.region = region_of(node);
  kernel.nodes = {node.name()};
  kernel.kind = PlanKernel::Kind::Nested;
  ProgramKernel code;
  code.nested = std::move(call);
  steps_of_group_[group].push_back(
      add_step(std::move(kernel), std::move(code), std::move(step), std::move(launch)));
}

/// Where `value` lies row-major: a copy of an input with strides of its own.
ir::BufferId Recorder::row_major_buffer(Value value) {
  const Value storage = state_.graph().storage(value);
  if (!state_.graph().is_strided(storage)) return buffer_of(storage);
  const ir::TensorMeta target = ir::TensorMeta::of(value.meta().dtype, value.meta().sizes);
  const ir::BufferId copy = add_buffer(value, PlanBuffer::Role::Intermediate, ir::kNone);
  add_copy(buffer_of(storage), memory_meta(value), copy, target);
  return copy;
}

void Recorder::add_order_edges(std::uint32_t group, PlanStep& step) {
  const auto edges = std::ranges::equal_range(state_.grouping.weak_edges, group, {},
                                              &std::pair<std::uint32_t, std::uint32_t>::second);
  for (const auto& [before, after] : edges)
    for (const ir::StepId from : steps_of_group_[before]) add_edge(step, from, true);
}

void Recorder::place_overwriting(const Node& node, PlanStep& step) {
  for (const ir::InPlace& pair : node.op().in_place) {
    if (!node.input(pair.operand)) continue;
    if (!ir::overwrites(node, pair.operand)) {
      program_.copied_arguments.push_back({node.input(pair.operand).meta().bytes()});
      continue;
    }
    ++program_.in_place;
    const ir::BufferId target = buffer_of(state_.graph().storage(node.input(pair.operand)));
    const ir::BufferId result = buffer_of(node.value(pair.output));
    program_.record.buffers[result].alias_of = target;
    place_in(step.reads, target);
  }
}

void Recorder::add_edge(PlanStep& step, ir::StepId from, bool weak) {
  for (ir::PlanEdge& edge : step.edges) {
    if (edge.from != from) continue;
    edge.weak = edge.weak && weak;
    return;
  }
  step.edges.push_back({from, weak});
}

/// After the writers of what the step reads, and after all earlier accesses of what it writes.
void Recorder::add_data_edges(PlanStep& step) {
  for (const ir::BufferId buffer : step.reads)
    for (const ir::StepId from : writers_[root_of(buffer)]) add_edge(step, from, false);
  for (const ir::BufferId buffer : step.writes) {
    for (const ir::StepId from : readers_[root_of(buffer)]) add_edge(step, from, false);
    for (const ir::StepId from : writers_[root_of(buffer)]) add_edge(step, from, false);
  }
}

/// What a step that makes sizes of the first `results` results known has to say.
void Recorder::note_late_sizes(const Node& node, std::uint32_t results, Launch& launch) {
  launch.late_sizes = ir::unbacked_defined(node);
  if (launch.late_sizes.empty()) return;
  for (std::uint32_t k = 0; k < results; ++k) launch.late_results.push_back(node.output(k).sizes);
}

/// After the steps that make known the sizes which the step uses, though it may read nothing they write.
void Recorder::add_size_edges(PlanStep& step, const ProgramKernel& code, const Launch& launch) {
  if (makers_.empty()) return;
  for (const Symbol& symbol : sizes_of_step(program_.record, step, code, launch))
    if (const auto maker = makers_.find(symbol); maker != makers_.end())
      add_edge(step, maker->second, false);
}

ir::StepId Recorder::add_step(PlanKernel kernel, ProgramKernel code, PlanStep step, Launch launch) {
  const auto id = static_cast<ir::StepId>(program_.record.steps.size());
  add_data_edges(step);
  add_size_edges(step, code, launch);
  for (const Symbol& symbol : launch.late_sizes) makers_.emplace(symbol, id);
  std::sort(step.edges.begin(), step.edges.end(),
            [](const ir::PlanEdge& a, const ir::PlanEdge& b) { return a.from < b.from; });
  for (const ir::BufferId buffer : step.reads) readers_[root_of(buffer)].push_back(id);
  for (const ir::BufferId buffer : step.writes) writers_[root_of(buffer)].push_back(id);
  step.kernel = static_cast<std::uint32_t>(program_.record.kernels.size());
  program_.record.kernels.push_back(std::move(kernel));
  program_.kernels.push_back(std::move(code));
  program_.record.steps.push_back(std::move(step));
  program_.launches.push_back(std::move(launch));
  return id;
}

void Recorder::add_copies() {
  const auto& graph = state_.graph();
  const auto outputs = graph.graph().outputs();
  for (std::uint32_t k = 0; k < outputs.size(); ++k) {
    if (program_.outputs[k] != ir::kNone) continue;
    program_.outputs[k] = add_buffer(outputs[k], PlanBuffer::Role::Output, k);
    ir::TensorMeta target = outputs[k].meta();
    target.strides = ir::row_major(target.sizes);
    add_copy(buffer_of(graph.storage(outputs[k])), memory_meta(outputs[k]), program_.outputs[k],
             target);
  }
  for (const auto& [value, output] : late_outputs_) {
    ir::TensorMeta target = value.meta();
    target.strides = ir::row_major(target.sizes);
    add_copy(buffers_.at(value), target, output, target);
  }
  add_write_backs();
}

/// A source that is itself a target is copied aside before anything is overwritten.
void Recorder::add_write_backs() {
  const LiveGraph& graph = state_.graph();
  const auto writes = graph.graph().write_backs();
  std::vector<std::pair<ir::BufferId, ir::TensorMeta>> sources;
  for (const auto& write : writes) {
    const Value storage = graph.storage(write.source);
    ir::TensorMeta meta = memory_meta(write.source);
    ir::BufferId source = buffer_of(storage);
    const bool in_place = buffers_.at(write.target) == source;
    const bool overwritten = std::any_of(writes.begin(), writes.end(), [&](const auto& other) {
      return buffers_.at(other.target) == root_of(source);
    });
    if (overwritten && !in_place) {
      ir::TensorMeta aside = meta;
      aside.strides = ir::row_major(aside.sizes);
      const ir::BufferId copy = add_buffer(write.source, PlanBuffer::Role::Intermediate, ir::kNone);
      add_copy(source, meta, copy, aside);
      source = copy;
      meta = aside;
    }
    sources.emplace_back(source, meta);
  }
  for (std::size_t k = 0; k < writes.size(); ++k) {
    const ir::BufferId target = buffers_.at(writes[k].target);
    if (sources[k].first != target)
      add_copy(sources[k].first, sources[k].second, target, writes[k].target.meta());
    program_.write_backs.emplace_back(target, sources[k].first);
  }
}

/// How `value` lies in the memory of its storage.
ir::TensorMeta Recorder::memory_meta(Value value) const {
  const Value storage = state_.graph().storage(value);
  ir::TensorMeta meta = value.meta();
  meta.strides =
      state_.graph().is_strided(storage) ? storage.meta().strides : ir::row_major(meta.sizes);
  return meta;
}

void Recorder::add_copy(ir::BufferId source, const ir::TensorMeta& source_meta, ir::BufferId target,
                        const ir::TensorMeta& target_meta) {
  FinishedNest finished = build_copy(source_meta, target_meta, state_.options());
  PlanStep step;
  Launch launch;
  const ir::BufferId buffers[] = {source, target};
  for (const NestBufferId id : finished.globals) launch.buffers.push_back(buffers[id]);
  step.reads = {source};
  step.writes = {target};
  step.work = source_meta.count();
  launch.sizes = finished.sizes;
  PlanKernel kernel;
  kernel.name = finished.nest->name;
  kernel.kind = PlanKernel::Kind::Copy;
  add_step(std::move(kernel), {shared(finished.nest), nullptr}, std::move(step), std::move(launch));
}

}  // namespace heddle::jit
