// A4-12: random graphs with random order edges between any two nodes that data does not order the other way.
// The edges hold in the steps that run, whatever reorders them.
#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>

#include "engine/executable.h"
#include "heddle/heddle.h"
#include "ir/analysis/plan_checker.h"
#include "ir/op.h"
#include "ir/text.h"
#include "scheduler/capture.h"

namespace heddle::engine {
namespace {

void register_ops() {
  static const bool done = [] {
    register_op({.schema = "tr::make(Tensor[] deps, int bytes, int tag=0) -> Tensor",
                 .shape =
                     [](const ShapeCall& call) {
                       return std::vector{TensorType{u8, {call.integer("bytes")}}};
                     },
                 .cpu = [](const KernelCall&) {}});
    return true;
  }();
  EXPECT_TRUE(done);
}

/// Nodes n0, n1, … whose data edges lead forward, and order edges that lead forward in another order of them.
struct RandomOrder {
  std::string text;
  ControlDeps deps;

  explicit RandomOrder(std::uint32_t seed) : random_(seed), count_(4 + below(12)) {
    std::vector<std::vector<int>> reads(count_);
    std::vector<bool> read(count_, false);
    text = "graph @main(%in: u8[1]) {\n";
    for (std::uint32_t k = 0; k < count_; ++k) {
      for (std::uint32_t j = 0; j < k; ++j)
        if (below(3) == 0 && reads[k].size() < 3) reads[k].push_back(static_cast<int>(j));
      std::string operands;
      for (const int j : reads[k]) {
        operands += fmt::format("{}%n{}_", operands.empty() ? "" : ", ", j);
        read[static_cast<std::size_t>(j)] = true;
      }
      if (operands.empty()) operands = "%in";
      text +=
          fmt::format("  %n{}_ = tr::make({}) {{_lists = [{}], bytes = {}, tag = {}}}\n", k,
                      operands, std::max<std::size_t>(1, reads[k].size()), 64 * (1 + below(8)), k);
    }
    text += "  return ";
    for (std::uint32_t k = 0, any = 0; k < count_; ++k)
      if (!read[k]) text += fmt::format("{}%n{}_", any++ == 0 ? "" : ", ", k);
    text += "\n}\n";
    add_order_edges(reads);
  }

 private:
  std::uint32_t below(std::uint32_t limit) { return random_() % limit; }

  /// Ready nodes in random order: edges forward in it make no cycle with the data edges.
  void add_order_edges(const std::vector<std::vector<int>>& reads) {
    std::vector<int> order;
    std::vector<bool> placed(count_, false);
    while (order.size() < count_) {
      const std::uint32_t k = below(count_);
      const bool ready = !placed[k] && std::ranges::all_of(reads[k], [&](int j) {
        return placed[static_cast<std::size_t>(j)];
      });
      if (!ready) continue;
      placed[k] = true;
      order.push_back(static_cast<int>(k));
    }
    for (std::uint32_t edge = 0; edge < count_; ++edge) {
      const std::uint32_t from = below(count_);
      const std::uint32_t to = below(count_);
      if (from < to) deps[fmt::format("n{}_", order[to])].insert(fmt::format("n{}_", order[from]));
    }
  }

  std::mt19937 random_;
  std::uint32_t count_;
};

std::shared_ptr<Executable> compile(const RandomOrder& random, StepOrder order, int threads) {
  BuildOptions options;
  options.engine.threads = threads;
  options.engine.order = order;
  options.engine.control_deps = random.deps;
  options.engine.check_plans = true;
  options.compiler = &jit::CompileService::shared();
  return std::make_shared<Executable>(ir::parse(random.text), Guards{}, options);
}

/// Where each node runs: the number of its stage.
std::map<std::string, std::size_t> stages_of(const scheduler::Schedule& schedule) {
  std::map<std::string, std::size_t> stages;
  for (std::size_t stage = 0; stage < schedule.stages.size(); ++stage)
    for (const ir::StepId step : schedule.stages[stage])
      for (const std::string& node :
           schedule.record.kernels[schedule.record.steps[step].kernel].nodes)
        stages[node] = stage;
  return stages;
}

void expect_order(const ControlDeps& deps, const std::map<std::string, std::size_t>& places,
                  const std::string& text) {
  for (const auto& [then, firsts] : deps)
    for (const std::string& first : firsts)
      EXPECT_LT(places.at(first), places.at(then)) << first << " before " << then << "\n" << text;
}

/// The order for capture, with every third node or so not capturable.
std::map<std::string, std::size_t> capture_places(const ir::ScheduleRecord& record,
                                                  std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<scheduler::StepTraits> traits(record.steps.size());
  for (scheduler::StepTraits& trait : traits) trait.capture_unsafe = random() % 3 == 0;
  const scheduler::CapturePlan plan = scheduler::plan_capture(record, traits, {});
  std::map<std::string, std::size_t> places;
  for (std::size_t k = 0; k < plan.order.size(); ++k)
    for (const std::string& node : record.kernels[record.steps[plan.order[k]].kernel].nodes)
      places[node] = k;
  return places;
}

TEST(OrderEdges, HoldInEveryOrder) {
  register_ops();
  std::size_t edges = 0;
  std::size_t reordered = 0;
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const RandomOrder random(seed);
    for (const auto& [node, firsts] : random.deps) edges += firsts.size();
    for (const StepOrder order :
         {StepOrder::Given, StepOrder::Lpmf, StepOrder::Bfs, StepOrder::Dfs, StepOrder::Smallest}) {
      for (const int threads : {1, 4}) {
        const std::shared_ptr<Executable> executable = compile(random, order, threads);
        expect_order(random.deps, stages_of(executable->schedule()), random.text);
        EXPECT_NO_THROW(executable->bind({}, threads));
        const auto places = capture_places(executable->schedule().record, seed);
        expect_order(random.deps, places, random.text);
        const auto& given = executable->schedule().given;
        reordered += std::ranges::is_sorted(given) ? 0 : 1;
      }
    }
  }
  EXPECT_GT(edges, 500u);
  EXPECT_GT(reordered, 300u);
}

/// Nodes that fuse in many ways, of eight rows and eight or four columns, with order edges onto any of the nodes before.
/// Some are results too, so that views are stored.
class RandomKernels {
 public:
  explicit RandomKernels(std::uint32_t seed) : random_(seed) {}

  std::string text() {
    const std::uint32_t count = 4 + below(9);
    std::string text = "graph @main(%x: f32[8, 8], %y: f32[8, 8]) {\n";
    for (std::uint32_t k = 0; k < count; ++k) {
      std::vector<std::string>& made = below(4) == 0 ? narrow_ : wide_;
      const std::string node = &made == &narrow_ ? narrow() : wide();
      text += fmt::format("  %n{}_ = {}{}\n", k, node, after(k));
      made.push_back(fmt::format("%n{}_", k));
    }
    text += fmt::format("  return %n{}_", count - 1);
    std::set<std::uint32_t> results{count - 1};
    for (std::uint32_t more = below(4); more > 0; --more)
      if (const std::uint32_t k = below(count); results.insert(k).second)
        text += fmt::format(", %n{}_", k);
    return text + "\n}\n";
  }

 private:
  std::uint32_t below(std::uint32_t limit) { return random_() % limit; }

  /// The last few more often, so that chains form.
  const std::string& any(const std::vector<std::string>& values) {
    const std::uint32_t size = static_cast<std::uint32_t>(values.size());
    return values[below(2) == 0 ? size - 1 - below(std::min(size, 3u)) : below(size)];
  }

  std::string element(const std::vector<std::string>& values) {
    if (below(2) == 0) return fmt::format("add({}, {})", any(values), any(values));
    return fmt::format("{}({})", below(2) == 0 ? "sin" : "neg", any(values));
  }

  std::string narrow() {
    if (!narrow_.empty() && below(2) == 0) return element(narrow_);
    const std::uint32_t first = below(5);
    return fmt::format("slice({}) {{start = [0, {}], limit = [8, {}], stride = [1, 1]}}",
                       any(wide_), first, first + 4);
  }

  std::string wide() {
    switch (below(narrow_.empty() ? 11 : 13)) {
      case 0:
        return fmt::format("matmul({}, {})", any(wide_), any(wide_));
      case 1:
        return fmt::format("permute({}) {{perm = [1, 0]}}", any(wide_));
      case 2:
        return fmt::format("cumsum({}) {{axis = 0}}", any(wide_));
      case 3:
        return fmt::format("softmax({}) {{axis = 1}}", any(wide_));
      case 4:
        return "iota() {sizes = [8, 8], axis = 0, dtype = f32}";
      case 11:
      case 12:
        return fmt::format("concat({}, {}) {{axis = 1}}", any(narrow_), any(narrow_));
      default:
        return element(wide_);
    }
  }

  std::string after(std::uint32_t k) {
    if (k == 0 || below(2) == 0) return {};
    const std::uint32_t first = below(k);
    const std::uint32_t other = below(k);
    if (other == first || below(2) == 0) return fmt::format(" after(%n{}_)", first);
    return fmt::format(" after(%n{}_, %n{}_)", first, other);
  }

  std::mt19937 random_;
  std::vector<std::string> wide_{"%x", "%y"};
  std::vector<std::string> narrow_;
};

std::string random_kernels(std::uint32_t seed) { return RandomKernels(seed).text(); }

/// What the edges of the steps order, and nothing else: each step has a stream of its own.
ir::HappensBefore by_edges(ir::ScheduleRecord record) {
  std::vector<std::vector<ir::StepId>> waits(record.steps.size());
  for (ir::StepId k = 0; k < record.steps.size(); ++k) {
    record.steps[k].stream = k;
    for (const ir::PlanEdge& edge : record.steps[k].edges) waits[k].push_back(edge.from);
  }
  return ir::HappensBefore::on_streams(record, waits);
}

/// Whether kernels compute the node by itself: a view only where it is stored.
bool is_computed(const ir::ScheduleRecord& record, const ir::Node& node) {
  if (node.op().lowering.view == nullptr) return node.op_name() != "input";
  return std::ranges::any_of(record.steps, [&](const ir::PlanStep& step) {
    return std::ranges::any_of(step.writes, [&](ir::BufferId buffer) {
      return record.buffers[buffer].value == node.name();
    });
  });
}

/// Whether data leads to `then` from `first`, or from another node that the kernel computes.
bool data_orders(const ir::Graph& graph, const ir::Node* first, const ir::Node* then,
                 const ir::ScheduleRecord& record, std::size_t kernel) {
  const std::vector<std::string>& names = record.kernels[kernel].nodes;
  std::set<const ir::Node*> behind{then};
  for (std::size_t k = graph.nodes().size(); k-- > 0;)
    if (const ir::Node* node = graph.nodes()[k].get(); behind.contains(node))
      for (const ir::Value& input : node->inputs()) behind.insert(input.node);
  behind.erase(then);
  return std::ranges::any_of(behind, [&](const ir::Node* node) {
    return node == first ||
           (std::ranges::count(names, node->name()) != 0 && is_computed(record, *node));
  });
}

// S4-27, S4-28: whatever is fused, order edges lie between kernels, or in one whose data says as much.
TEST(OrderEdges, HoldHoweverKernelsAreFused) {
  std::size_t between = 0;
  std::size_t within = 0;
  for (std::uint32_t seed = 0; seed < 4000; ++seed) {
    const ir::Graph graph = ir::parse(random_kernels(seed));
    const jit::Program program = jit::lower(graph, {});
    const ir::ScheduleRecord& record = program.record;
    ASSERT_NO_THROW(ir::check_order(graph, program.graph, record, by_edges(record)))
        << ir::print(graph);
    std::map<std::string, std::size_t, std::less<>> kernel_of;
    for (const ir::PlanStep& step : record.steps)
      for (const std::string& node : record.kernels[step.kernel].nodes)
        kernel_of.emplace(node, step.kernel);
    for (const ir::NodePtr& node : graph.nodes()) {
      for (const ir::Value& first : node->after()) {
        const auto from = kernel_of.find(first.node->name());
        const auto to = kernel_of.find(node->name());
        if (from == kernel_of.end() || to == kernel_of.end()) continue;
        if (!is_computed(record, *first.node) || !is_computed(record, *node)) continue;
        if (from->second != to->second) {
          ++between;
          continue;
        }
        ++within;
        EXPECT_TRUE(data_orders(graph, first.node, node.get(), record, to->second))
            << first.name() << " before " << node->name() << "\n"
            << ir::print(graph);
      }
    }
    if (seed >= 100) continue;
    BuildOptions options;
    options.engine.threads = 2;
    options.engine.check_plans = true;
    options.compiler = &jit::CompileService::shared();
    const auto executable =
        std::make_shared<Executable>(ir::parse(random_kernels(seed)), Guards{}, options);
    EXPECT_NO_THROW(executable->bind({}, 2));
  }
  EXPECT_GT(between, 2000u);
  EXPECT_GT(within, 500u);
}

}  // namespace
}  // namespace heddle::engine
