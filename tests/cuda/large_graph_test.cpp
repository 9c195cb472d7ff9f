// Graphs of the device with more nodes than those of which it is noted what each comes after.
#include <sstream>

#include "tests/cuda/recorded.h"

namespace heddle::testing {
namespace {

/// %n0 = %x + %x, and then %x added to what is there: each step reads what the first copy brings.
std::string sums(std::size_t steps) {
  std::string text = "graph @main(%x: f32[4]) {\n";
  for (std::size_t k = 0; k < steps; ++k)
    text += "  %n" + std::to_string(k) + " = add(" +
            (k == 0 ? std::string("%x") : "%n" + std::to_string(k - 1)) + ", %x)\n";
  return text + "  return %n" + std::to_string(steps - 1) + "\n}\n";
}

struct Edges {
  std::size_t nodes = 0;
  std::size_t reduced = 0;  ///< launches that come after one node
  std::size_t whole = 0;    ///< after the step before and the copy, which that one comes after
};

/// Of a graph in a record: a copy, then launches, then copies out.
Edges edges_in(const std::string& record) {
  Edges edges;
  std::istringstream lines(record);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  ")) continue;
    ++edges.nodes;
    const std::size_t after = line.find(" after ");
    if (line.find(" launch ") == std::string::npos || after == std::string::npos) continue;
    const bool two = line.find(',', after) != std::string::npos;
    ++(two ? edges.whole : edges.reduced);
    EXPECT_TRUE(!two || line.ends_with(",0")) << line;
  }
  return edges;
}

// Up to the 4096th node those that another one implies are left out; from there on each is an edge. All hold.
TEST(CudaLargeGraph, ImpliedEdgesAreLeftOutUpToABound) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  constexpr std::size_t kNoted = 4096;
  constexpr std::size_t kSteps = kNoted + 4;
  EngineOptions options = on_cuda(1, true);
  options.fuse = false;
  options.order = StepOrder::Given;
  Engine engine(parse_ir(sums(kSteps), options));
  const Tensor x = Tensor::of<float>({1, -2, 0.5, 0}, {4});
  constexpr double kTimes = kSteps + 1;
  const std::vector<double> want{kTimes, -2 * kTimes, 0.5 * kTimes, 0};
  engine.run({x});
  interleave(1);
  std::vector<Tensor> got;
  const std::string record = recorded([&] { got = engine.run({x}); });
  interleave(0);
  EXPECT_EQ(got[0].to_doubles(), want);
  const Edges edges = edges_in(record);
  EXPECT_EQ(edges.nodes, kSteps + 1) << "a copy in";
  EXPECT_EQ(edges.reduced, kNoted - 1) << "the copy is node 0, so these are nodes 1 to 4095";
  EXPECT_EQ(edges.whole, kSteps - (kNoted - 1));
  EXPECT_EQ(engine.stats().graphs, 1u);
}

}  // namespace
}  // namespace heddle::testing
