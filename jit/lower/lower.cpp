#include "base/check.h"
#include "ir/analysis/by_entry.h"
#include "ir/op.h"
#include "ir/passes/order_sizes.h"
#include "ir/passes/resolve_sizes.h"
#include "jit/lower/bf16_convs.h"
#include "jit/lower/bits_products.h"
#include "jit/lower/byte_functions.h"
#include "jit/lower/byte_products.h"
#include "jit/lower/conv_channels.h"
#include "jit/lower/conv_products.h"
#include "jit/lower/decompose.h"
#include "jit/lower/dequantised_products.h"
#include "jit/lower/dot_products.h"
#include "jit/lower/float8_products.h"
#include "jit/lower/kernel_memo.h"
#include "jit/lower/nest_context.h"
#include "jit/lower/order_scatters.h"
#include "jit/lower/pack_weights.h"
#include "jit/lower/pool_bytes.h"
#include "jit/lower/quantised_products.h"
#include "jit/lower/record.h"
#include "jit/lower/region.h"
#include "jit/lower/requantise.h"
#include "jit/lower/share_numbers.h"
#include "jit/lower/split_attention.h"
#include "jit/lower/split_columns.h"
#include "jit/lower/split_reductions.h"
#include "jit/lower/split_resizes.h"
#include "jit/lower/split_rows.h"
#include "jit/lower/split_scans.h"
#include "jit/lower/split_sorts.h"
#include "jit/lower/tap_products.h"
#include "jit/lower/turned_sums.h"

namespace heddle::jit {
namespace {

/// Keeps in memory what a kernel reads that another computes, and what must be there anyway.
Placement place_values(const ReadAnalysis& reads, const Grouping& grouping) {
  const LiveGraph& graph = reads.graph();
  Placement placement(graph);
  const auto group_of = [&](const Node* node) { return grouping.group_of[graph.position(node)]; };
  const auto place = [&](Value value) { placement.place(value, group_of(value.node)); };
  for (const Value& value : reads.pinned()) place(value);
  for (const Node* node : graph.nodes()) {
    if (!reads.is_owned(node)) continue;
    for (const Read& read : reads.of(node).reads) {
      const Node* producer = read.value.node;
      if (reads.is_owned(producer) && group_of(producer) != group_of(node)) place(read.value);
    }
    std::vector<Value> opaque = reads.of(node).opaque;
    while (!opaque.empty()) {
      const Value value = opaque.back();
      opaque.pop_back();
      if (reads.is_owned(value.node)) {
        place(value);
        continue;
      }
      for (const Value& input : value.node->inputs())
        if (input) opaque.push_back(input);
    }
    const NodeClass kind = graph.class_of(node);
    const bool whole =
        kind == NodeClass::Library || kind == NodeClass::Region ||
        (kind == NodeClass::Nest && !find_recipe(node->op().lowering.nest)->epilogue);
    if (kind == NodeClass::Library && !grouping.groups[group_of(node)].epilogue.empty()) {
      place(grouping.groups[group_of(node)].library_result());
      continue;
    }
    for (std::uint32_t k = 0; whole && k < node->outputs().size(); ++k) place(node->value(k));
  }
  return placement;
}

/// Sizes put in where they are known, only ops that have code, attention of few queries in parts of the keys, products by one column as sums, with reductions of whole tensors in blocks, on CUDA those
/// and scans of long rows and columns too, scatters by the order of their destinations and sorts in runs, resizes a dimension at a time,
/// quantised products and convolutions of one element as products, constant weights packed, bytes multiplied as such and those that stand
/// for numbers read by the product itself, and functions of one byte as tables.
ir::Graph simplified(const ir::Graph& graph, const LowerOptions& options) {
  const ir::Graph known = decompose_all(ir::order_sizes(ir::resolve_sizes(graph)), options);
  const ir::Graph simple = split_attention(split_resizes(known, options), options);
  const ir::Graph dots = turned_sums(dot_products(simple, options), options);
  const ir::Graph varied =
      decompose_column_variances(decompose_row_variances(dots, options), options);
  const ir::Graph summed = decompose_all(decompose_variances(varied), options);
  const ir::Graph scans = split_scans(summed, options);
  const ir::Graph rows = split_rows(separate_runs(scans, options), options);
  const ir::Graph columns = split_columns(split_reductions(rows), options);
  const ir::Graph split = decompose_all(split_across(columns, options), options);
  const ir::Graph ordered =
      decompose_all(split_sorts(order_scatters(split, options), options), options);
  const ir::Graph narrow = bf16_convs(quantised_products(ordered, options), options);
  const ir::Graph taps = tap_products(narrow, options);
  const ir::Graph products = conv_channels(convs_as_products(taps, options), options);
  const ir::Graph packed =
      pack_weights(float8_products(bits_products(products, options), options), options);
  const ir::Graph bytes = dequantised_products(byte_products(packed, options), options);
  const ir::Graph pools = pool_bytes(bytes, options);
  return byte_functions(requantise(pools, options), options);
}

/// What builds the kernel of a group; null: it has none of its own.
KernelMemo::Build build_of(Group::Kind kind) {
  switch (kind) {
    case Group::Kind::Pointwise:
      return build_pointwise;
    case Group::Kind::Row:
      return build_row;
    case Group::Kind::Nest:
      return build_recipe;
    case Group::Kind::Library:
    case Group::Kind::Region:
      return nullptr;
  }
  return nullptr;
}

}  // namespace

Program lower_graph(const ir::Graph& graph, const LowerOptions& options, SharedLowering& shared) {
  const ir::Graph simple = simplified(graph, options);
  const LiveGraph live(simple, options);
  const ReadAnalysis reads(live);
  const Grouping grouping = form_groups(reads);
  const Placement placement = place_values(reads, grouping);
  const LoweringState state{reads, grouping, placement, shared};

  Program program;
  program.graph = simple;
  program.late_checks = ir::late_checks(simple);
  Recorder recorder(state, program);
  KernelMemo memo(state);
  std::vector<KernelMemo::Job> jobs;
  for (std::uint32_t k = 0; k < grouping.groups.size(); ++k)
    if (const auto build = build_of(grouping.groups[k].kind)) jobs.push_back({k, build});
  memo.build_ahead(jobs);
  for (std::uint32_t k = 0; k < grouping.groups.size(); ++k) {
    const Group& group = grouping.groups[k];
    if (const auto build = build_of(group.kind))
      recorder.add_kernel(k, memo.kernel(k, build));
    else if (group.kind == Group::Kind::Region)
      recorder.add_region(k);
    else if (group.root->op().custom != nullptr)
      recorder.add_custom(k);
    else
      recorder.add_library(k);
  }
  recorder.add_copies();
  if (options.target == LowerOptions::Target::Cpu) {
    share_numbers(program);
    ir::find_batch(simple, program.record);
  }
  return program;
}

Program lower(const ir::Graph& graph, const LowerOptions& options) {
  SharedLowering shared;
  Program program = lower_graph(graph, options, shared);
  program.checks = shared.checks.take();
  return program;
}

}  // namespace heddle::jit
