// Random programs with annotations, regions, writing custom ops, views, order, states and nested bodies: what
// must hold for all of them, and faults that break it.
//
// HEDDLE_NIGHTLY=1 runs 10,000 programs, else 1000; HEDDLE_PROPERTY_COUNT and HEDDLE_PROPERTY_SEED choose
// others.
#include <cstdlib>
#include <gtest/gtest.h>

#include "ir/analysis/regions.h"
#include "ir/op.h"
#include "tests/property/check.h"

namespace heddle::property {
namespace {

std::uint32_t from_environment(const char* name, std::uint32_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : static_cast<std::uint32_t>(std::atoll(text));
}

constexpr std::uint32_t kShards = 8;

/// Programs of a thousand that use a feature, at least.
constexpr std::pair<const char*, int> kFloors[] = {
    {"region", 900},
    {"region options", 400},
    {"fallback", 400},
    {"name", 400},
    {"order", 700},
    {"reduction", 250},
    {"note", 450},
    {"write", 450},
    {"write through a view", 60},
    {"state", 80},
    {"several outputs", 200},
    {"view", 200},
    {"twin", 400},
    {"cond", 200},
    {"while", 200},
    {"scan", 200},
    {"scan of some slices", 60},
    {"invoke", 400},
    {"region in a body", 300},
    {"pointwise", 700},
    {"custom op in a body", 200},
    {"late size", 250},
    {"late size of a late size", 90},
    {"late branch", 90},
    {"late output", 90},
    {"late size alone", 90},
    {"late size in a body", 150},
    {"effect", 300},
    {"write with an effect", 50},
    {"effect in a body", 400},
    {"call for its effects", 300},
    {"cond without results", 40},
    {"cond that nobody reads", 40},
    {"while for its effects", 40},
    {"scan without results", 40},
    {"map for its effects", 40},
    {"invoke without results", 40},
    {"late size of an effect", 40},
    {"order in a body", 200},
    {"write in a body", 200},
    {"call in a body", 200},
};

// AX-06.
class Programs : public testing::TestWithParam<std::uint32_t> {};

TEST_P(Programs, KeepEveryProperty) {
  const bool nightly = from_environment("HEDDLE_NIGHTLY", 0) != 0;
  const std::uint32_t first = from_environment("HEDDLE_PROPERTY_SEED", 1);
  const std::uint32_t count = from_environment("HEDDLE_PROPERTY_COUNT", nightly ? 10000 : 1000);
  Features programs;
  int checked = 0;
  int failures = 0;
  for (std::uint32_t seed = first; seed < first + count && failures < 3; ++seed) {
    if (seed % kShards != GetParam()) continue;
    Program program(seed);
    if (const auto broken = check_program(program)) {
      ADD_FAILURE() << *broken;
      ++failures;
    }
    ++checked;
    for (const auto& [feature, uses] : program.features()) ++programs[feature];
  }
  std::printf("%d programs\n", checked);
  for (const auto& [feature, used] : programs) std::printf("%-24s %6d\n", feature.c_str(), used);
  if (checked < 50 || failures > 0) return;
  for (const auto& [feature, floor] : kFloors)
    EXPECT_GE(programs[feature], floor * checked / 2000) << feature;
}

INSTANTIATE_TEST_SUITE_P(Shard, Programs, testing::Range(0u, kShards));

// Planted faults.

void drop_weak_edges(jit::Program& program) {
  for (ir::PlanStep& step : program.record.steps)
    std::erase_if(step.edges, [](const ir::PlanEdge& edge) { return edge.weak; });
}

/// The memory plan does not see the last read of each buffer.
void free_one_step_early(jit::Program& program) {
  ir::ScheduleRecord& record = program.record;
  const std::vector<ir::BufferId> roots = ir::alias_roots(record);
  std::set<ir::BufferId> read_later;
  for (std::size_t k = record.steps.size(); k-- > 0;) {
    ir::PlanStep& step = record.steps[k];
    std::vector<ir::BufferId> reads;
    for (const ir::BufferId buffer : step.reads) {
      const bool intermediate =
          record.buffers[roots[buffer]].role == ir::PlanBuffer::Role::Intermediate;
      if (!intermediate || !read_later.insert(roots[buffer]).second) reads.push_back(buffer);
    }
    if (reads.size() != step.reads.size()) step.may_reuse.clear();
    step.reads = std::move(reads);
  }
}

/// Bodies of branches, loops and calls lose the order that they ask for.
ir::Graph drop_order_in_bodies(const ir::Graph& graph) {
  return ir::change_regions(graph, [](const ir::Graph& body) {
    return ir::rewrite(body,
                       [](ir::Rewriter& rewriter,
                          const ir::NodePtr& node) -> std::optional<std::vector<ir::Value>> {
                         if (node->after().empty()) return {};
                         const ir::Node* made =
                             rewriter.builder().with_inputs(node, rewriter.map(node->inputs()), {});
                         std::vector<ir::Value> values;
                         for (std::uint32_t k = 0; k < made->outputs().size(); ++k)
                           values.push_back(made->value(k));
                         return values;
                       });
  });
}

/// Ops with effects go when nobody reads what they give.
ir::Graph drop_unread_effects(const ir::Graph& graph) {
  std::set<const ir::Node*> read;
  for (const ir::Value& output : graph.outputs()) read.insert(output.node);
  for (const auto& write : graph.write_backs()) read.insert(write.source.node);
  for (const ir::NodePtr& node : graph.nodes())
    for (const ir::Value& input : node->inputs())
      if (input) read.insert(input.node);
  return ir::Rewriter::keep_only(graph, [&](const ir::Node& node) {
    return ir::is_pure(node) || node.op_name() == "input" || read.contains(&node);
  });
}
ir::Graph drop_unread_effects_in_bodies(const ir::Graph& graph) {
  return ir::change_regions(graph, drop_unread_effects);
}

/// Merges equal nodes, whatever their annotations.
ir::Graph merge_across_marks(const ir::Graph& graph) {
  std::map<std::pair<std::string_view, std::vector<ir::Value>>, std::vector<const ir::Node*>> seen;
  return ir::rewrite(graph,
                     [&](ir::Rewriter& rewriter,
                         const ir::NodePtr& node) -> std::optional<std::vector<ir::Value>> {
                       const bool is_input = node->is_argument();
                       if (is_input || node->outputs().size() != 1 || !node->op().pure) return {};
                       const std::vector<ir::Value> operands = rewriter.map(node->inputs());
                       auto& same = seen[{node->op_name(), operands}];
                       for (const ir::Node* first : same)
                         if (ir::equal(first->attrs(), node->attrs()))
                           return std::vector<ir::Value>{rewriter.map(first->value())};
                       same.push_back(node.get());
                       return {};
                     });
}

/// Ops that write do it in place, whoever still reads.
void drop_copies(jit::Program& program) {
  for (std::size_t k = 0; k < program.record.steps.size(); ++k) {
    const ir::PlanStep& step = program.record.steps[k];
    if (program.record.kernels[step.kernel].kind != ir::PlanKernel::Kind::Copy) continue;
    if (step.reads.empty() || step.writes.empty()) continue;
    ir::PlanBuffer& copy = program.record.buffers[step.writes[0]];
    if (copy.role == ir::PlanBuffer::Role::Intermediate && copy.alias_of == ir::kNone)
      copy.alias_of = step.reads[0];
  }
}

/// A fault, the property that it breaks, and whether the plan's checker finds it before anything runs.
struct Planted {
  Fault fault;
  const char* property;
  bool is_in_plan;
};
constexpr Planted kPlanted[] = {
    {{.name = "weak edges dropped", .program = drop_weak_edges}, "order", true},
    {{.name = "buffers freed one step early", .program = free_one_step_early}, "values", true},
    {{.name = "equal nodes of different marks merged", .graph = merge_across_marks},
     "kernels",
     false},
    {{.name = "a written operand is not copied", .program = drop_copies}, "values", true},
    {{.name = "order in bodies dropped", .optimised = drop_order_in_bodies}, "effects", true},
    {{.name = "effects that nobody reads dropped", .optimised = drop_unread_effects},
     "effects",
     true},
    {{.name = "those of bodies dropped", .optimised = drop_unread_effects_in_bodies},
     "effects",
     true},
};
constexpr std::uint32_t kSeeds = 300;

/// The first program in which the fault breaks a property that `found` recognises.
template <typename F>
void expect_found(const Fault& fault, bool prove, F&& found) {
  std::string broken;
  std::uint32_t seed = 0;
  do {
    Program program(++seed);
    broken = check_program(program, fault, prove).value_or("");
  } while (!found(broken) && seed < kSeeds);
  std::printf("%-40s found at seed %u: %s\n", fault.name, seed,
              broken.substr(0, broken.find('\n')).c_str());
  EXPECT_TRUE(found(broken)) << fault.name << ": no program shows it";
}

TEST(PlantedFaults, EachBreaksItsProperty) {
  for (const auto& [fault, property, is_in_plan] : kPlanted)
    expect_found(fault, false, [property = property](const std::string& broken) {
      return broken.starts_with(std::string(property) + ":");
    });
}

TEST(PlantedFaults, ThoseInThePlanAreFoundByItsChecker) {
  for (const auto& [fault, property, is_in_plan] : kPlanted)
    if (is_in_plan)
      expect_found(fault, true,
                   [](const std::string& broken) { return broken.starts_with("plan"); });
}

}  // namespace
}  // namespace heddle::property
