// Deliberate faults in passes, lowering, the memory plan and the schedule: the fuzz finds each.
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "engine/context.h"
#include "engine/executable.h"
#include "ir/evaluate.h"
#include "ir/op.h"
#include "ir/text.h"
#include "tests/fuzz/shrink.h"

namespace heddle::fuzz {
namespace {

using engine::BoundPlan;
using ir::Literal;
using ir::Value;

struct Fault {
  const char* name;
  ir::Graph (*graph)(const ir::Graph&) = nullptr;  ///< a pass that is wrong
  void (*program)(jit::Program&) = nullptr;        ///< what lowering got wrong
  void (*plan)(BoundPlan&) = nullptr;              ///< what memory or order got wrong
};

// Passes.

/// Replaces every node called `op` that has the type of its first operand by that operand.
ir::Graph without(const ir::Graph& graph, std::string_view op) {
  return ir::rewrite(
      graph,
      [op](ir::Rewriter& rewriter, const ir::NodePtr& node) -> std::optional<std::vector<Value>> {
        if (node->op_name() != op || node->output().dtype != node->input(0).meta().dtype ||
            node->output().sizes != node->input(0).meta().sizes)
          return {};
        return std::vector<Value>{rewriter.map(node->input(0))};
      });
}
ir::Graph without_clamp(const ir::Graph& graph) { return without(graph, "clamp"); }
ir::Graph without_reverse(const ir::Graph& graph) { return without(graph, "reverse"); }

/// Merges nodes of one op over the same operands, whatever their attributes.
ir::Graph merge_careless(const ir::Graph& graph) {
  std::map<std::pair<std::string_view, std::vector<Value>>, const ir::Node*> seen;
  return ir::rewrite(
      graph,
      [&](ir::Rewriter& rewriter, const ir::NodePtr& node) -> std::optional<std::vector<Value>> {
        if (node->inputs().empty() || node->outputs().size() != 1) return {};
        const std::vector<Value> operands(node->inputs().begin(), node->inputs().end());
        const ir::Node* first =
            seen.try_emplace({node->op_name(), operands}, node.get()).first->second;
        if (first == node.get() || first->output().dtype != node->output().dtype ||
            first->output().sizes != node->output().sizes)
          return {};
        return std::vector<Value>{rewriter.map(first->value())};
      });
}

/// Windows begin one element early.
ir::Graph shift_slices(const ir::Graph& graph) {
  return ir::rewrite(
      graph,
      [](ir::Rewriter& rewriter, const ir::NodePtr& node) -> std::optional<std::vector<Value>> {
        if (node->op_name() != "slice") return {};
        ir::Attrs attrs = node->attrs();
        auto& start = std::get<ir::Dims>(attrs.at("start"));
        auto& limit = std::get<ir::Dims>(attrs.at("limit"));
        bool changed = false;
        for (std::size_t d = 0; d < start.size(); ++d) {
          if (!start[d].is_constant() || start[d].constant() < 1) continue;
          start[d] = start[d] - 1;
          limit[d] = limit[d] - 1;
          changed = true;
        }
        if (!changed) return {};
        return std::vector<Value>{
            rewriter.builder().emit("slice", {rewriter.map(node->input(0))}, attrs)};
      });
}

/// Folds 2 to 3.
ir::Graph fold_wrong(const ir::Graph& graph) {
  return ir::rewrite(
      graph,
      [](ir::Rewriter& rewriter, const ir::NodePtr& node) -> std::optional<std::vector<Value>> {
        if (node->op_name() != "const") return {};
        const Literal& literal = node->literal("value");
        if (literal.rank() != 0 || literal.at(0) != 2) return {};
        return std::vector<Value>{rewriter.builder().scalar(literal.dtype(), 3)};
      });
}

// Lowering.

void for_each_block(jit::Block& block, void (*visit)(jit::Block&)) {
  visit(block);
  for (jit::Stmt& statement : block) {
    if (auto* loop = std::get_if<jit::ForStmt>(&statement.node)) for_each_block(*loop->body, visit);
    if (auto* branch = std::get_if<jit::IfStmt>(&statement.node))
      for_each_block(*branch->body, visit);
  }
}

/// Calls `visit` with every block of every nest, the nests made anew.
void bend_nests(jit::Program& program, void (*visit)(jit::Block&)) {
  for (jit::ProgramKernel& kernel : program.kernels) {
    if (kernel.nest == nullptr) continue;
    auto nest = std::make_shared<jit::Nest>(*kernel.nest);
    for_each_block(nest->body, visit);
    kernel.nest = nest;
  }
}

void shorten_loops(jit::Program& program) {
  bend_nests(program, [](jit::Block& block) {
    for (jit::Stmt& statement : block) {
      auto* loop = std::get_if<jit::ForStmt>(&statement.node);
      if (loop != nullptr && loop->kind == jit::ForStmt::Kind::Vector)
        loop->extent = max(loop->extent - 1, 1);
    }
  });
}

void drop_second_store(jit::Program& program) {
  bend_nests(program, [](jit::Block& block) {
    int stores = 0;
    std::erase_if(block, [&](const jit::Stmt& statement) {
      return std::holds_alternative<jit::StoreStmt>(statement.node) && ++stores == 2;
    });
  });
}

void reduce_wrong(jit::Program& program) {
  bend_nests(program, [](jit::Block& block) {
    for (jit::Stmt& statement : block) {
      auto* loop = std::get_if<jit::ForStmt>(&statement.node);
      if (loop == nullptr) continue;
      for (jit::LoopReduction& reduction : loop->reductions)
        if (reduction.op == ir::ReduceOp::Max) reduction.op = ir::ReduceOp::Min;
    }
  });
}

void add_for_sub(jit::Program& program) {
  bend_nests(program, [](jit::Block& block) {
    for (jit::Stmt& statement : block) {
      auto* apply = std::get_if<jit::ApplyStmt>(&statement.node);
      if (apply != nullptr && apply->op == ir::ScalarOp::Sub) apply->op = ir::ScalarOp::Add;
    }
  });
}

/// Results take the bytes of operands that others still read.
void alias_operands(jit::Program& program) {
  using Role = ir::PlanBuffer::Role;
  for (const ir::PlanStep& step : program.record.steps) {
    for (const ir::BufferId write : step.writes) {
      ir::PlanBuffer& target = program.record.buffers[write];
      for (const ir::BufferId read : step.reads) {
        const ir::PlanBuffer& source = program.record.buffers[read];
        if (target.role != Role::Intermediate || source.role != Role::Intermediate ||
            target.alias_of != ir::kNone || !(target.bytes == source.bytes))
          continue;
        target.alias_of = read;
      }
    }
  }
}

// The memory plan and the order.

void overlap_buffers(BoundPlan& plan) {
  using Kind = engine::AddressSource::Kind;
  for (engine::AddressSource& source : plan.table)
    if (source.kind == Kind::Arena) source.offset = 0;
}

void swap_stages(BoundPlan& plan) {
  if (plan.stages.size() > 1) std::swap(plan.stages[0], plan.stages[1]);
}

void skip_last_stage(BoundPlan& plan) {
  if (plan.stages.size() > 1) plan.stages.pop_back();
}

void launch_smaller(BoundPlan& plan) {
  for (std::vector<std::int64_t>& sizes : plan.step_sizes)
    if (!sizes.empty() && sizes[0] > 1) --sizes[0];
}

constexpr Fault kFaults[] = {
    {.name = "a pass drops clamps", .graph = without_clamp},
    {.name = "a pass takes reverse for a no-op", .graph = without_reverse},
    {.name = "common subexpressions without attributes", .graph = merge_careless},
    {.name = "slices merged with a wrong start", .graph = shift_slices},
    {.name = "constants folded wrong", .graph = fold_wrong},
    {.name = "loops one short", .program = shorten_loops},
    {.name = "a result of a fused kernel is not stored", .program = drop_second_store},
    {.name = "max reduced as min", .program = reduce_wrong},
    {.name = "sub emitted as add", .program = add_for_sub},
    {.name = "in place over an operand in use", .program = alias_operands},
    {.name = "buffers overlap", .plan = overlap_buffers},
    {.name = "the first two stages swapped", .plan = swap_stages},
    {.name = "the last stage is missing", .plan = skip_last_stage},
    {.name = "launched with a smaller size", .plan = launch_smaller},
};

thread_local const Fault* planted = nullptr;

jit::Program lower_with_fault(const ir::Graph& graph, const jit::LowerOptions& options) {
  jit::Program program = jit::lower(graph, options);
  if (planted->program != nullptr) planted->program(program);
  return program;
}

/// The engine's own parts, put together with a fault between them.
class FaultyProduct : public Product {
 public:
  FaultyProduct(const ir::Graph& graph, const Fault& fault) : graph_(graph), fault_(fault) {
    planted = &fault;
    engine::BuildOptions options;
    options.engine.threads = 1;
    options.compiler = &jit::CompileService::shared();
    options.lower = lower_with_fault;
    executable_ = std::make_shared<engine::Executable>(
        fault.graph == nullptr ? graph : fault.graph(graph), engine::Guards{}, options);
  }

  std::vector<Literal> run(const std::vector<Literal>& arguments, bool) override {
    const base::SymbolValues sizes = ir::bind_sizes(graph_, arguments);
    const std::unique_ptr<BoundPlan> plan = executable_->bind(sizes, executor_.threads());
    if (fault_.plan != nullptr) fault_.plan(*plan);
    std::vector<Tensor> inputs, outputs;
    for (const Literal& argument : arguments)
      inputs.push_back(
          Tensor::wrap(const_cast<void*>(argument.data()), argument.dtype(), argument.sizes()));
    std::vector<Literal> results;
    for (std::size_t k = 0; k < plan->output_sizes.size(); ++k) {
      results.emplace_back(graph_.outputs()[k].meta().dtype, plan->output_sizes[k]);
      outputs.push_back(Tensor::wrap(results[k].data(), results[k].dtype(), results[k].sizes()));
    }
    engine::ExecutionContext context;
    context.use(*plan);
    context.set_io(*plan, inputs, outputs);
    EXPECT_EQ(executor_.run(context.steps(), plan->stages), 0);
    std::map<Value, std::size_t> position;
    for (const Value input : graph_.inputs())
      if (graph_.parameter(input.node) == nullptr) position.emplace(input, position.size());
    for (const auto& write : graph_.write_backs())
      results.push_back(arguments[position.at(write.target)].clone());
    return results;
  }

 private:
  ir::Graph graph_;
  const Fault& fault_;
  std::shared_ptr<engine::Executable> executable_;
  scheduler::Executor executor_{1};
};

Case plain_case(std::uint32_t seed) {
  Case subject = random_case(seed);
  for (Fill& fill : subject.fills) fill.layout = Layout::RowMajor;
  return subject;
}

Compile with(const Fault& fault) {
  return [&fault](const ir::Graph& graph, int) {
    return std::make_unique<FaultyProduct>(graph, fault);
  };
}

constexpr std::uint32_t kSeeds = 100;

TEST(PlantedFaults, NoneIsFoundWhereNoneIs) {
  const Fault none{.name = "none"};
  for (std::uint32_t seed = 1; seed <= 40; ++seed)
    EXPECT_FALSE(check_case(plain_case(seed), with(none))) << report(plain_case(seed), with(none));
}

TEST(PlantedFaults, EachIsFound) {
  for (const Fault& fault : kFaults) {
    std::uint32_t seed = 1;
    while (seed <= kSeeds && !check_case(plain_case(seed), with(fault))) ++seed;
    std::printf("%-45s found at seed %u\n", fault.name, seed);
    EXPECT_LE(seed, kSeeds) << fault.name;
  }
}

/// What lies between the fault and a result stays, so one of a few cases is left with hardly more than the fault.
TEST(PlantedFaults, AreShrunkToTheNodesThatShowThem) {
  const Fault& fault = kFaults[0];
  std::set<std::string_view> ops;
  std::size_t calls = 0;
  const auto is_small = [&] { return calls == 1 && ops.size() <= 2 && ops.contains("clamp"); };
  std::uint32_t seed = 1;
  for (int found = 0; found < 5 && !is_small(); ++seed) {
    const std::optional<Failure> failure = check_case(plain_case(seed), with(fault));
    if (!failure) continue;
    ++found;
    const Case small = shrink(plain_case(seed), *failure, with(fault));
    ops.clear();
    for (const ir::NodePtr& node : small.graph.nodes())
      if (!node->inputs().empty()) ops.insert(node->op_name());
    calls = small.calls.size();
    EXPECT_NO_THROW(ir::parse(ir::print(small.graph)));
  }
  EXPECT_TRUE(is_small());
}

}  // namespace
}  // namespace heddle::fuzz
