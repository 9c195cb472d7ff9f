#include "tests/fuzz/histogram.h"

#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <numeric>
#include <set>

#include "ir/op.h"
#include "ir/passes/pipeline.h"
#include "jit/library.h"
#include "jit/program.h"
#include "memory/planner.h"
#include "scheduler/order.h"

namespace heddle::fuzz {

namespace {

/// A stage with less work runs on one thread.
constexpr std::int64_t kForkWork = 48 * 1024;

/// Of what divides by a size that is 0 there is none.
std::int64_t work_of(const ir::PlanStep& step, const base::SymbolValues& sizes) try {
  return step.work.evaluate(sizes);
} catch (const ShapeError&) {
  return 0;
}

bool is_view(const ir::Node& node) {
  return !node.inputs().empty() && ir::alias_of(node, 0).kind == ir::Alias::Kind::View;
}

/// Whether a result of the step takes the bytes of an operand.
bool reuses_bytes(const ir::PlanStep& step, const memory::Planner& planner,
                  const memory::MemoryPlan& plan) {
  return std::ranges::any_of(step.may_reuse, [&](const auto& pair) {
    const ir::BufferId from = planner.roots()[step.reads[pair.first]];
    const ir::BufferId to = planner.roots()[step.writes[pair.second]];
    return plan.offsets[from] != memory::kNotInArena && plan.offsets[from] == plan.offsets[to];
  });
}

/// Nodes of a kernel by name, and which of them feed each other.
class KernelNodes {
 public:
  KernelNodes(const ir::Graph& graph, const std::vector<std::string>& names) {
    const std::set<std::string> wanted(names.begin(), names.end());
    for (const ir::NodePtr& node : graph.nodes())
      if (wanted.contains(node->name())) nodes_.push_back(node.get());
  }

  bool feeds_reduction() const {
    return std::ranges::any_of(nodes_, [&](const ir::Node* node) {
      return node->op().lowering.reduce && holds(node->input(0).node) &&
             node->input(0).node->op().lowering.element != nullptr;
    });
  }
  bool reads_reduction() const {
    return std::ranges::any_of(nodes_, [&](const ir::Node* node) {
      return node->op().scalar && std::ranges::any_of(node->inputs(), [&](const ir::Value& input) {
               return input && holds(input.node) && input.node->op().lowering.reduce;
             });
    });
  }
  /// Parts that have no edge between them.
  bool is_horizontal() const {
    std::vector<std::size_t> part(nodes_.size());
    std::iota(part.begin(), part.end(), 0);
    const auto find = [&](std::size_t k) {
      while (part[k] != k) k = part[k];
      return k;
    };
    std::size_t parts = nodes_.size();
    for (std::size_t k = 0; k < nodes_.size(); ++k) {
      for (const ir::Value& input : nodes_[k]->inputs()) {
        const auto found = std::ranges::find(nodes_, input.node);
        if (found == nodes_.end()) continue;
        const std::size_t a = find(k);
        const std::size_t b = find(static_cast<std::size_t>(found - nodes_.begin()));
        if (a != b) --parts;
        part[a] = b;
      }
    }
    return parts > 1;
  }

 private:
  bool holds(const ir::Node* node) const { return std::ranges::count(nodes_, node) > 0; }
  std::vector<const ir::Node*> nodes_;
};

}  // namespace

void Histogram::add(const Case& subject) {
  ++graphs_;
  add_nodes(subject.graph);
  add_calls(subject);
  add_plan(subject);
}

void Histogram::add_nodes(const ir::Graph& graph) {
  std::set<std::string> ops, dtypes, forms;
  for (const ir::NodePtr& node : graph.nodes()) {
    if (!node->inputs().empty() || node->op_name() == "iota")
      ops.insert(std::string(node->op_name()));
    if (graph.parameter(node.get()) != nullptr) forms.insert("parameter");
    for (const ir::TensorMeta& meta : node->outputs())
      dtypes.insert(std::string(name_of(meta.dtype)));
    if (!node->after().empty()) forms.insert("after");
    if (!node->annotations().empty()) forms.insert("annotation");
    if (is_view(*node)) forms.insert("view");
  }
  if (graph.outputs().size() > 1) forms.insert("several outputs");
  if (!graph.write_backs().empty()) forms.insert("write back");
  if (!graph.assumptions().empty()) forms.insert("assumption");
  for (const std::string& op : ops) seen("op", op);
  for (const std::string& dtype : dtypes) seen("dtype", dtype);
  for (const std::string& form : forms) seen("form", form);
}

void Histogram::add_calls(const Case& subject) {
  std::set<std::string> calls;
  calls.insert(fmt::format("{} calls", subject.calls.size()));
  for (const Call& call : subject.calls) {
    calls.insert(call.into ? "run_into" : "run");
    for (const auto& [symbol, size] : call.sizes)
      calls.insert(size == 0 ? "size 0" : size == 1 ? "size 1" : "size above 1");
  }
  static const char* const kLayouts[] = {"row-major", "transposed", "sliced", "expanded"};
  for (const Fill& fill : subject.fills) {
    calls.insert(std::string("input ") + kLayouts[static_cast<int>(fill.layout)]);
    if (fill.kind == Fill::Kind::Special) calls.insert("NaN, infinities, subnormals");
  }
  for (const Quality& quality : subject.qualities)
    calls.insert(quality.error == 0 ? "exact output" : "rounded output");
  for (const std::string& call : calls) seen("call", call);
}

void Histogram::add_plan(const Case& subject) {
  const ir::Graph graph = ir::run_passes(subject.graph, ir::default_pipeline());
  jit::LowerOptions options;
  options.library_available = jit::library_serves;
  const jit::Program program = jit::lower(graph, options);
  const scheduler::Schedule schedule = scheduler::schedule(program.record, {});
  std::vector<std::uint32_t> stages(schedule.record.steps.size());
  std::set<std::string> plans;
  for (std::uint32_t stage = 0; stage < schedule.stages.size(); ++stage) {
    if (schedule.stages[stage].size() > 1) plans.insert("parallel steps");
    for (const ir::StepId step : schedule.stages[stage]) stages[step] = stage;
  }
  const memory::Planner planner(schedule.record, stages, {});
  for (const ir::PlanStep& step : schedule.record.steps) {
    const ir::PlanKernel& kernel = schedule.record.kernels[step.kernel];
    for (const Call& call : subject.calls)
      if (reuses_bytes(step, planner, planner.bind(call.sizes))) plans.insert("in place");
    if (kernel.kind == ir::PlanKernel::Kind::Library) plans.insert("library step");
    if (kernel.kind == ir::PlanKernel::Kind::Copy) plans.insert("copy step");
    if (step.writes.size() > 1) plans.insert("several outputs in one kernel");
    const KernelNodes nodes(graph, kernel.nodes);
    if (kernel.nodes.size() > 1) plans.insert("fused nodes");
    if (nodes.feeds_reduction()) plans.insert("pointwise into reduction");
    if (nodes.reads_reduction()) plans.insert("reduction into pointwise");
    if (nodes.is_horizontal()) plans.insert("horizontal fusion");
    for (const Call& call : subject.calls) {
      const auto& sizes = call.sizes;
      const bool zero = std::ranges::any_of(sizes, [](const auto& s) { return s.second == 0; });
      if (!zero && work_of(step, sizes) >= kForkWork) plans.insert("work for two threads");
    }
  }
  counts_["plan"]["kernels"] += static_cast<int>(schedule.record.steps.size());
  for (const ir::NodePtr& node : graph.nodes()) counts_["plan"]["nodes"] += !node->inputs().empty();
  for (const std::string& plan : plans) seen("plan", plan);
}

int Histogram::count(const std::string& group, const std::string& name) const {
  const auto found = counts_.find(group);
  if (found == counts_.end()) return 0;
  const auto counted = found->second.find(name);
  return counted == found->second.end() ? 0 : counted->second;
}

std::size_t Histogram::names(const std::string& group) const {
  const auto found = counts_.find(group);
  return found == counts_.end() ? 0 : found->second.size();
}

std::string Histogram::to_string() const {
  std::string text = fmt::format("{} graphs\n", graphs_);
  for (const auto& [group, names] : counts_)
    for (const auto& [name, count] : names)
      text += fmt::format("{:<6} {:<30} {:>6}\n", group, name, count);
  return text;
}

namespace {

struct Floor {
  const char* group;
  const char* name;
  int of_thousand;  ///< graphs of a thousand
};

constexpr Floor kFloors[] = {
    {"form", "after", 80},
    {"form", "annotation", 40},
    {"form", "view", 200},
    {"form", "several outputs", 400},
    {"form", "write back", 4},
    {"form", "parameter", 20},
    {"call", "run", 300},
    {"call", "run_into", 300},
    {"call", "size 0", 60},
    {"call", "size 1", 150},
    {"call", "1 calls", 150},
    {"call", "3 calls", 100},
    {"call", "input transposed", 40},
    {"call", "input sliced", 40},
    {"call", "input expanded", 40},
    {"call", "NaN, infinities, subnormals", 20},
    {"call", "exact output", 400},
    {"call", "rounded output", 150},
    {"plan", "parallel steps", 100},
    {"plan", "in place", 8},
    {"plan", "library step", 4},
    {"plan", "several outputs in one kernel", 80},
    {"plan", "fused nodes", 250},
    {"plan", "pointwise into reduction", 20},
    {"plan", "reduction into pointwise", 15},
    {"plan", "horizontal fusion", 40},
    {"plan", "work for two threads", 8},
};

/// Ops that lower to kernels, each seen by itself.
constexpr const char* kOps[] = {
    "abs",
    "add",
    "and",
    "argmax",
    "argmin",
    "atan2",
    "attention",
    "avg_pool",
    "batch_norm",
    "clamp",
    "clone",
    "concat",
    "conv",
    "convert",
    "cumsum",
    "div",
    "eq",
    "erf",
    "expand",
    "floor",
    "gather",
    "gather_elements",
    "gather_nd",
    "ge",
    "group_norm",
    "grouped_matmul",
    "index_put",
    "iota",
    "layer_norm",
    "log_softmax",
    "lt",
    "matmul",
    "max",
    "max_pool",
    "min",
    "mod",
    "mul",
    "neg",
    "not",
    "pad",
    "permute",
    "pow",
    "random_normal",
    "reduce_max",
    "reduce_min",
    "reduce_mean",
    "reduce_prod",
    "reduce_sum",
    "relu",
    "reshape",
    "resize",
    "reverse",
    "rms_norm",
    "round",
    "scatter_elements",
    "scatter_nd",
    "slice",
    "softmax",
    "sort",
    "split",
    "sqrt",
    "sub",
    "tanh",
    "topk",
    "variance",
    "where",
    "xor",
    "conv_transpose",
    "max_pool_indices",
    "random_uniform",
    "exp",
    "sigmoid",
    "gelu",
};

}  // namespace

void expect_floors(const Histogram& histogram) {
  const int graphs = histogram.graphs();
  for (const Floor& floor : kFloors)
    EXPECT_GE(histogram.count(floor.group, floor.name), floor.of_thousand * graphs / 1000)
        << floor.group << ": " << floor.name;
  for (const DType dtype : kArithmeticDTypes)
    EXPECT_GE(histogram.count("dtype", std::string(name_of(dtype))), graphs / 20) << name_of(dtype);
  // Rare ops may be missing from one shard, not from all.
  int missing = 0;
  for (const char* const op : kOps) missing += histogram.count("op", op) == 0;
  EXPECT_LE(missing, graphs >= 1000 ? 0 : 4);
  EXPECT_LT(histogram.count("plan", "kernels"), histogram.count("plan", "nodes"));
}

}  // namespace heddle::fuzz
