// A4-12: random graphs with random order edges between any two nodes that data does not order the other way.
// The edges hold in the steps that run, whatever reorders them.
#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <random>

#include "engine/executable.h"
#include "heddle/heddle.h"
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

}  // namespace
}  // namespace heddle::engine
