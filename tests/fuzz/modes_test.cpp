// The plans of random graphs and of every graph in tests/passes are proved in every mode: what is compiled
// together, in which order, for how many threads, fused or not.
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <heddle_test_paths.h>

#include "engine/executable.h"
#include "heddle/error.h"
#include "ir/evaluate.h"
#include "ir/text.h"
#include "tests/fuzz/random_case.h"
#include "tests/support/collectives.h"

namespace heddle::fuzz {
namespace {

struct Mode {
  CompileScope scope = CompileScope::Whole;
  StepOrder order = StepOrder::Smallest;
  int threads = 1;
  bool fuse = true;
};

std::vector<Mode> all_modes() {
  std::vector<Mode> modes;
  for (const StepOrder order :
       {StepOrder::Smallest, StepOrder::Given, StepOrder::Lpmf, StepOrder::Bfs, StepOrder::Dfs})
    for (const int threads : {1, 4})
      for (const bool fuse : {true, false})
        modes.push_back({CompileScope::Whole, order, threads, fuse});
  for (const CompileScope scope : {CompileScope::Annotated, CompileScope::Unmarked})
    for (const int threads : {1, 4}) modes.push_back({scope, StepOrder::Smallest, threads, true});
  return modes;
}

/// Compiles and binds with the checker on. @return false for graphs that nothing can be compiled of.
bool prove(const ir::Graph& graph, const base::SymbolValues& sizes, const Mode& mode) {
  engine::BuildOptions options;
  options.engine.scope = mode.scope;
  options.engine.order = mode.order;
  options.engine.threads = mode.threads;
  options.engine.fuse = mode.fuse;
  options.engine.check_plans = true;
  options.compiler = &jit::CompileService::shared();
  options.hints = sizes;
  try {
    std::make_shared<engine::Executable>(graph, engine::Guards{}, options)
        ->bind(sizes, mode.threads);
  } catch (const UnsupportedError&) {
    return false;
  } catch (const InvariantError& error) {
    ADD_FAILURE() << error.what() << "\n"
                  << fmt::format("scope {}, order {}, {} threads, fuse {}\n",
                                 static_cast<int>(mode.scope), static_cast<int>(mode.order),
                                 mode.threads, mode.fuse)
                  << ir::print(graph);
  }
  return true;
}

bool has_all_parameters(const ir::Graph& graph) {
  return std::ranges::all_of(graph.inputs(), [&](const ir::Value& input) {
    return input.node->op_name() != "param" || graph.parameter(input.node) != nullptr;
  });
}

TEST(Modes, RandomGraphs) {
  std::size_t proved = 0;
  for (std::uint32_t seed = 1; seed <= 30; ++seed) {
    const Case subject = random_case(seed);
    if (subject.calls.empty() || !has_all_parameters(subject.graph)) continue;
    const base::SymbolValues sizes = ir::bind_sizes(subject.graph, arguments_of(subject, 0));
    for (const Mode& mode : all_modes()) proved += prove(subject.graph, sizes, mode) ? 1 : 0;
  }
  EXPECT_GE(proved, 25 * all_modes().size());
}

/// What stands before "==>" in each case of the files.
std::vector<std::string> corpus() {
  std::vector<std::string> texts;
  const auto folder = std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/passes";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".hir") continue;
    std::ifstream file(entry.path());
    std::string text;
    bool reading = true;
    for (std::string line; std::getline(file, line);) {
      if (line == "==>") {
        texts.push_back(std::move(text));
        text.clear();
        reading = false;
      } else if (line.starts_with("----")) {
        reading = true;
      } else if (reading) {
        text += line + "\n";
      }
    }
  }
  return texts;
}

TEST(Modes, GraphsOfThePassTests) {
  testing::register_collectives();
  std::size_t graphs = 0;
  std::size_t proved = 0;
  for (const std::string& text : corpus()) {
    const ir::Graph graph = ir::parse(text);
    if (!has_all_parameters(graph)) continue;
    ++graphs;
    base::SymbolValues sizes;
    for (std::uint32_t k = 0; k < graph.next_size_symbol(); ++k)
      sizes[base::Symbol{base::Symbol::Kind::Size, k}] = 8;
    for (const Mode& mode : all_modes()) proved += prove(graph, sizes, mode) ? 1 : 0;
  }
  EXPECT_GE(graphs, 50u);
  EXPECT_GE(proved, graphs * all_modes().size() * 3 / 4);
}

}  // namespace
}  // namespace heddle::fuzz
