#include "jit/lower/kernel.h"

#include <algorithm>

#include "jit/lower/domain.h"
#include "jit/lower/in_place.h"
#include "jit/lower/lane_pieces.h"
#include "jit/lower/nest_rewrite.h"
#include "jit/lower/region.h"

namespace heddle::jit {
namespace {

/// Scalar operations of the whole nest: those of the first parallel iteration, as often as there are.
SymExpr total_work(const Nest& nest) {
  const SymExpr once = work_of(nest.body);
  std::vector<Symbol> symbols;
  once.collect_symbols(symbols);
  base::SymbolExprs start;
  for (const Symbol& symbol : symbols) {
    if (symbol.kind == Symbol::Kind::Axis || symbol.kind == Symbol::Kind::Temp)
      start.emplace(symbol, SymExpr(0));
  }
  return once.substitute(start) * nest.parallel_extent;
}

}  // namespace

std::string kernel_name(const std::vector<const Node*>& nodes) {
  constexpr std::size_t kMaxNames = 4;
  std::string name;
  for (std::size_t k = 0; k < nodes.size() && k < kMaxNames; ++k)
    name += (k == 0 ? "" : "_") + std::string(nodes[k]->op_name());
  return name;
}

Kernel::Kernel(const LoweringState& state, std::uint32_t group_index)
    : state(state),
      group(state.grouping.groups[group_index]),
      builder(kernel_name(group.nodes)),
      memory(state.graph(), state.placement, group_index, builder),
      emitter(state.graph(), builder, memory, state.shared.checks) {
  collect_stored();
}

void Kernel::collect_stored() {
  for (const Node* node : group.nodes) {
    for (std::uint32_t k = 0; k < node->outputs().size(); ++k) {
      const Value value = node->value(k);
      if (memory.is_stored(value)) stored.push_back(value);
    }
  }
  for (const Node* node : group.nodes)
    for (const Value& input : node->inputs())
      if (input) memory.add_loads(input);
  for (const Value& value : stored) memory.buffer(value);
}

void Kernel::store(Value storage, const Index& index, Scalar scalar) {
  builder.store(memory.buffer(storage), linear_index(index, storage.meta().sizes), scalar);
}

FinishedNest finish_nest(NestBuilder& builder, const std::vector<SymExpr>& sizes_first,
                         bool loops_run, const LowerOptions& options) {
  Nest& nest = builder.nest();
  drop_unused(nest.body);
  const bool cpu = options.target == LowerOptions::Target::Cpu;
  if (cpu) loops_run = split_lanes(builder) && loops_run;
  hoist_invariants(nest, loops_run);
  if (cpu) tabulate_columns(nest);
  // A recipe may know better.
  if (nest.work.is_constant(0)) nest.work = total_work(nest);
  Renumbering numbers = renumber(nest, sizes_first);
  FinishedNest finished;
  finished.globals = std::move(numbers.globals);
  finished.sizes = std::move(numbers.sizes);
  finished.in_place = in_place_pairs(nest);
  finished.nest = std::make_shared<const Nest>(builder.finish());
  return finished;
}

bool Kernel::is_empty() const {
  return std::all_of(stored.begin(), stored.end(),
                     [](const Value& value) { return value.meta().count().is_constant(0); });
}

BuiltKernel Kernel::finish_empty() {
  builder.set_parallel(builder.new_axis(0), 0);
  for (const Value& value : stored)
    builder.store(memory.buffer(value), 0, builder.constant(value.meta().dtype, 0));
  return finish(/*loops_run=*/false);
}

BuiltKernel Kernel::finish(bool loops_run) {
  std::vector<SymExpr> sizes_first = group.domain;
  for (const Value& value : memory.values()) {
    const ir::Dims& dims = value.meta().sizes;
    sizes_first.insert(sizes_first.end(), dims.begin(), dims.end());
  }
  FinishedNest finished = finish_nest(builder, sizes_first, loops_run, state.options());
  BuiltKernel built;
  for (const NestBufferId id : finished.globals) built.buffers.push_back(memory.values()[id]);
  built.sizes = std::move(finished.sizes);
  for (const auto& [read, write] : finished.in_place)
    built.in_place.emplace_back(built.buffers[read], built.buffers[write]);
  built.nest = std::move(finished.nest);
  built.nodes = group.nodes;
  for (const Node* node : emitter.computed())
    if (!state.reads.is_owned(node)) built.nodes.push_back(node);
  return built;
}

}  // namespace heddle::jit
