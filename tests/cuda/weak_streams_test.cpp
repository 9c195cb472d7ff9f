// Weak edges across CUDA streams: nothing but an event keeps them. Ops that write to one log on the device show the
// order in which they ran, and the simulator objects when two of them are in no order at all.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <map>
#include <random>
#include <set>

#include "heddle/cuda_text.h"
#include "heddle/custom_op.h"
#include "tests/cuda/recorded.h"
#include "tests/support/json.h"

namespace heddle::testing {
namespace {

using test::Json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Nodes that look have 64 bytes each, which is what the simulator tells apart.
constexpr std::int64_t kLogLength = 256;

/// Where ops on the device note that they ran: a count, then their tags. Of the engine at work, so that ops which read it
/// are not captured.
void* log_on_device = nullptr;

/// weak::note(Tensor x, int tag) -> Tensor, x + tag; on CUDA it notes its tag.
/// weak::look(Tensor x, int tag, int mask) -> Tensor, x; on CUDA it notes that it was there, and which of the nodes in
/// the mask were there before it.
/// weak::start(Tensor x) -> Tensor and weak::wait(Tensor x) -> Tensor, collectives: copies, which note 100 and 101.
void register_ops() {
  static const CudaText text(
      R"(extern "C" __global__ void note(const float* x, float* y, long long n, long long tag, float add, int* log) {
    for (long long k = 0; k < n; ++k) y[k] = x[k] + add;
    log[1 + log[0]] = (int)tag;
    log[0] = log[0] + 1;
  })",
      "note");
  static const auto launch = [](const KernelCall& call, void* stream, std::int64_t tag, float add) {
    text.launch(call, stream, {.threads = 1}, call.tensor(0).as<const float>(),
                call.results[0].as<float>(), static_cast<long long>(call.tensor(0).count()),
                static_cast<long long>(tag), add, static_cast<int*>(log_on_device));
  };
  static const CudaText look_text(
      R"(extern "C" __global__ void look(const float* x, float* y, long long n, long long tag, long long mask,
                                     int* log) {
    for (long long k = 0; k < n; ++k) y[k] = x[k];
    int seen = 0;
    for (int k = 0; k < 16; ++k)
      if ((mask >> k & 1) != 0 && log[16 * k] != 0) seen |= 1 << k;
    log[16 * tag] = 1;
    log[16 * tag + 1] = seen;
  })",
      "look");
  static const auto on_host = [](const KernelCall& call, float add) {
    for (std::int64_t k = 0; k < call.tensor(0).count(); ++k)
      call.results[0].as<float>()[k] = call.tensor(0).as<float>()[k] + add;
  };
  static const RegisteredOp note = register_op(
      {.schema = "weak::note(Tensor x, int tag) -> Tensor",
       .shape = like_first,
       .cpu =
           [](const KernelCall& call) { on_host(call, static_cast<float>(call.integer("tag"))); },
       .cuda =
           [](const KernelCall& call, void* stream) {
             launch(call, stream, call.integer("tag"), static_cast<float>(call.integer("tag")));
           },
       .capturable = false});
  static const RegisteredOp look = register_op(
      {.schema = "weak::look(Tensor x, int tag, int mask) -> Tensor",
       .shape = like_first,
       .cpu = [](const KernelCall& call) { on_host(call, 0); },
       .cuda =
           [](const KernelCall& call, void* stream) {
             look_text.launch(
                 call, stream, {.threads = 1}, call.tensor(0).as<const float>(),
                 call.results[0].as<float>(), static_cast<long long>(call.tensor(0).count()),
                 static_cast<long long>(call.integer("tag")),
                 static_cast<long long>(call.integer("mask")), static_cast<int*>(log_on_device));
           },
       .capturable = false});
  static const RegisteredOp start = register_op(
      {.schema = "weak::start(Tensor x) -> Tensor",
       .shape = like_first,
       .cpu = [](const KernelCall& call) { on_host(call, 0); },
       .cuda = [](const KernelCall& call, void* stream) { launch(call, stream, 100, 0); },
       .capturable = false,
       .collective = true});
  static const RegisteredOp wait = register_op(
      {.schema = "weak::wait(Tensor x) -> Tensor",
       .shape = like_first,
       .cpu = [](const KernelCall& call) { on_host(call, 0); },
       .cuda = [](const KernelCall& call, void* stream) { launch(call, stream, 101, 0); },
       .capturable = false,
       .collective = true});
}

/// A graph of f32 inputs on several streams, whose plan is proved when it is bound.
class OnStreams {
 public:
  OnStreams(const std::string& text, int streams, bool graphs = false, EngineOptions options = {})
      : inputs_(prepare(text)), engine_(parse_ir(text, with(options, streams, graphs))) {
    options.device = Device::reference();
    options.control_deps = {};
    options.passes = {};
    want_ = parse_ir(text, options).run(inputs_);
    for (Tensor& input : inputs_) input = input.to(cuda_device());
    plan_ = Json::parse(engine_.plan_json(inputs_));
  }
  ~OnStreams() { log_on_device = nullptr; }

  /// Runs it. @return the tags that were noted, in order.
  std::vector<int> run() {
    clear();
    const std::vector<Tensor> got = engine_.run(inputs_);
    EXPECT_EQ(got.size(), want_.size());
    for (std::size_t k = 0; k < want_.size(); ++k) expect_near(got[k], want_[k], 1e-5);
    const std::vector<int> words = log();
    return {words.begin() + 1, words.begin() + 1 + words[0]};
  }
  /// Of the last run, by node: those of its mask that were there before it.
  std::vector<int> seen() const {
    const std::vector<int> words = log();
    std::vector<int> seen;
    for (std::size_t k = 0; k < plan_["steps"].size(); ++k) seen.push_back(words[16 * k + 1]);
    return seen;
  }
  /// Runs it once more. @return what was queued.
  std::string record() {
    clear();
    return recorded([&] { engine_.run(inputs_); });
  }
  const Json& plan() const { return plan_; }
  EngineStats stats() const { return engine_.stats(); }
  /// "a0 b1 c2": nodes in order, each with its stream.
  std::string streams() const {
    std::string text;
    for (const Json& step : plan_["steps"])
      text += (text.empty() ? "" : " ") + node_of(step) +
              std::to_string(step["stream"].get<std::uint32_t>());
    return text;
  }
  /// Waits for events inside of the plan, "b<a": by node.
  std::set<std::string> waits() const {
    std::set<std::string> found;
    for (const Json& step : plan_["steps"])
      for (const Json& from : step["waits_for"])
        found.insert(node_of(step) + "<" + node_of(plan_["steps"][from.get<std::size_t>()]));
    return found;
  }

 private:
  static EngineOptions with(EngineOptions options, int streams, bool graphs) {
    options.device = cuda_device();
    options.streams = streams;
    options.cuda_graphs = graphs;
    options.fuse = false;
    options.order = StepOrder::Given;
    options.check_plans = true;
    return options;
  }
  std::vector<Tensor> prepare(const std::string& text) {
    register_ops();
    clear();
    std::vector<Tensor> inputs;
    Engine reference = parse_ir(text, {.device = Device::reference()});
    for (const ValueInfo& info : reference.signature().inputs) {
      Sizes sizes;
      for (const SymInt& size : info.sizes) sizes.push_back(size.value());
      inputs.push_back(counted(info.dtype, sizes, static_cast<int>(inputs.size())));
    }
    return inputs;
  }
  std::vector<int> log() const {
    std::vector<int> words;
    for (const double word : log_.to(Device::cpu()).to_doubles())
      words.push_back(static_cast<int>(word));
    return words;
  }
  void clear() {
    log_ = Tensor::zeros(i32, {kLogLength}).to(cuda_device());
    log_on_device = log_.data();
  }
  std::string node_of(const Json& step) const {
    for (const Json& kernel : plan_["kernels"])
      if (kernel["name"] == step["kernel"]) return kernel["nodes"][0];
    return "?";
  }

  Tensor log_;
  std::vector<Tensor> inputs_, want_;
  Engine engine_;
  Json plan_;
};

std::size_t count_of(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    ++count;
  return count;
}

class WeakStreams : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  }
  void TearDown() override {
    if (!on_simulator()) return;
    control().skip_wait(0);
    interleave(0);
  }
};

// Nothing but the edges orders the three.
constexpr const char* kChain =
    "graph @main(%x: f32[8], %y: f32[8], %z: f32[8]) {\n"
    "  %a = weak::note(%x) {tag = 1} @{stream = 0}\n"
    "  %b = weak::note(%y) {tag = 2} @{stream = 1} after(%a)\n"
    "  %c = weak::note(%z) {tag = 3} @{stream = 2} after(%b)\n"
    "  return %a, %b, %c\n"
    "}\n";

TEST_F(WeakStreams, AChainOverThreeStreamsIsAnEventEach) {
  OnStreams chain(kChain, 3);
  EXPECT_EQ(chain.streams(), "a0 b1 c2");
  EXPECT_EQ(chain.waits(), (std::set<std::string>{"b<a", "c<b"}));
  for (unsigned long seed = 0; seed < 12; ++seed) {
    interleave(seed);
    EXPECT_THAT(chain.run(), ElementsAre(1, 2, 3)) << seed;
  }
  interleave(0);
  EXPECT_EQ(chain.record(), R"(
s0 launch note
s0 record e0
s1 wait e0
s1 launch note
s1 record e1
s2 wait e1
s2 launch note
s2 record e2
s0 wait e2
s0 synchronize
)");
}

// Mutation: without the event of a weak edge two ops are in no order, which the simulator sees by the log.
TEST_F(WeakStreams, AnEventOfAWeakEdgeThatIsLeftOutIsNoticed) {
  for (unsigned long n = 1; n <= 2; ++n) {  // the third ends the call
    OnStreams chain(kChain, 3);
    chain.run();
    control().skip_wait(n);
    EXPECT_THROW(chain.run(), DeviceLost) << n;
    EXPECT_THAT(std::string(control().problem()), HasSubstr("neither waits for the other")) << n;
    control().skip_wait(0);
  }
}

// What other edges imply is no event, and data that goes the same way is none either.
TEST_F(WeakStreams, WhatIsImpliedIsNoEvent) {
  OnStreams diamond(
      "graph @main(%x: f32[8], %y: f32[8], %z: f32[8]) {\n"
      "  %a = weak::note(%x) {tag = 1} @{stream = 0}\n"
      "  %b = weak::note(%a) {tag = 2} @{stream = 1} after(%a)\n"
      "  %c = weak::note(%z) {tag = 3} @{stream = 2} after(%a, %b)\n"
      "  %d = weak::note(%y) {tag = 4} @{stream = 0} after(%a, %b, %c)\n"
      "  %e = weak::note(%b) {tag = 5} @{stream = 1} after(%d, %c)\n"
      "  return %c, %d, %e\n"
      "}\n",
      3);
  EXPECT_EQ(diamond.streams(), "a0 b1 c2 d0 e1");
  EXPECT_EQ(diamond.waits(), (std::set<std::string>{"b<a", "c<b", "d<c", "e<d"}));
  for (unsigned long seed = 0; seed < 12; ++seed) {
    interleave(seed);
    EXPECT_THAT(diamond.run(), ElementsAre(1, 2, 3, 4, 5)) << seed;
  }
}

// Streams that are dealt out: beside each other where nothing orders them, an event for each weak edge between.
TEST_F(WeakStreams, BranchesWaitForEachOtherWhereTheyAreToldTo) {
  const std::string text =
      "graph @main(%x: f32[16], %y: f32[16]) {\n"
      "  %a1 = cumsum(%x) {axis = 0}\n"
      "  %a2 = cumsum(%a1) {axis = 0}\n"
      "  %b1 = cumsum(%y) {axis = 0, reverse = true}\n"
      "  %b2 = cumsum(%b1) {axis = 0, reverse = true}AFTER\n"
      "  %r = add(%a2, %b2)\n"
      "  return %r\n"
      "}\n";
  const auto with = [&](const std::string& after) {
    std::string made = text;
    return made.replace(made.find("AFTER"), 5, after);
  };
  OnStreams free(with(""), 2);
  OnStreams ordered(with(" after(%a1)"), 2);
  EXPECT_EQ(free.waits().size(), 1u);
  EXPECT_EQ(ordered.waits().size(), 2u);
  EXPECT_TRUE(ordered.waits().contains("b2<a1"));
  // Its bytes are given back all the same when the last of its readers is done.
  const auto last_step = [](const Json& plan, const char* value) {
    for (const Json& buffer : plan["buffers"])
      if (buffer["value"] == value) return buffer["last_step"].get<int>();
    return -1;
  };
  EXPECT_EQ(last_step(ordered.plan(), "a1"), last_step(free.plan(), "a1"));
  for (unsigned long seed = 0; seed < 8; ++seed) {
    interleave(seed);
    ordered.run();
    free.run();
  }
}

// In a graph of the device events are edges; a part that is in none is waited for as a whole.
TEST_F(WeakStreams, InGraphsWeakEdgesAreEdges) {
  OnStreams graph(
      "graph @main(%x: f32[8], %y: f32[8], %z: f32[8]) {\n"
      "  %a = exp(%x) @{stream = 0}\n"
      "  %b = sin(%y) @{stream = 1} after(%a)\n"
      "  %c = cos(%z) @{stream = 2} after(%b)\n"
      "  %d = neg(%z) @{stream = 2} after(%a)\n"
      "  %n = weak::note(%x) {tag = 7} @{stream = 1} after(%c)\n"
      "  %e = tanh(%y) @{stream = 2} after(%n)\n"
      "  return %a, %b, %c, %d, %n, %e\n"
      "}\n",
      3, true);
  EXPECT_EQ(graph.streams(), "a0 b1 c2 d2 n1 e2");
  EXPECT_THAT(graph.run(), ElementsAre(7));
  for (unsigned long seed = 1; seed < 8; ++seed) {
    interleave(seed);
    EXPECT_THAT(graph.run(), ElementsAre(7)) << seed;
  }
  interleave(0);
  EXPECT_EQ(graph.record(), R"(
s0 graph
  0 launch exp
  1 launch sin after 0
  2 launch cos after 1
  3 launch neg after 2
s0 launch note
s0 graph
  0 launch tanh
s0 synchronize
)");
  EXPECT_EQ(graph.stats().graphs, 2u);
}

// Branches whose results have other sizes, calls and loops are waited for, and wait, as a whole: what runs in them lies
// between. The branch's size parts the steps into two phases, over which edges hold as well.
TEST_F(WeakStreams, NestedGraphsAreOrderedAsAWhole) {
  const std::string text =
      "graph @main(%p: bool[], %x: f32[8], %k: f32[1]) {\n"
      "  %n1 = weak::note(%x) {tag = 1} @{stream = 1}\n"
      "  %c = cond(%p, %x) {then = @yes, else = @no} @{stream = 0} after(%n1) : f32[u0]\n"
      "  %n3 = weak::note(%x) {tag = 3} @{stream = 2} after(%c)\n"
      "  %i = invoke(%x) {body = @yes} @{stream = 1} after(%n3)\n"
      "  %w = while_loop(%k) {condition = @more, body = @step, carried = 1} @{stream = 2} "
      "after(%i)\n"
      "  %n9 = weak::note(%c) {tag = 9} @{stream = 1} after(%w)\n"
      "  return %n1, %c, %n3, %i, %w, %n9\n"
      "}\n"
      "graph @yes(%t: f32[8]) {\n  %u = weak::note(%t) {tag = 2}\n  return %u\n}\n"
      "graph @no(%t: f32[8]) {\n"
      "  %u = weak::note(%t) {tag = 4}\n"
      "  %v = concat(%u, %t) {axis = 0}\n"
      "  return %v\n}\n"
      "graph @more(%t: f32[1]) {\n"
      "  %s = reduce_sum(%t) {axes = [0]}\n"
      "  %m = lt(%s, 14.0: f32)\n"
      "  return %m\n}\n"
      "graph @step(%t: f32[1]) {\n  %u = weak::note(%t) {tag = 6}\n  return %u\n}\n";
  for (const int streams : {1, 2, 3}) {
    for (const bool graphs : {false, true}) {
      OnStreams nested(text, streams, graphs);
      for (unsigned long seed = 0; seed < 6; ++seed) {
        interleave(seed);
        EXPECT_THAT(nested.run(), ElementsAre(1, 4, 3, 2, 6, 6, 6, 9)) << streams << ", " << seed;
      }
      interleave(0);
    }
  }
}

constexpr const char* kBuckets =
    "graph @main(%x: f32[8], %y: f32[4], %a: f32[8, 8]) {\n"
    "  %c1 = weak::start(%x) @{bucket = \"B\", stream = 1}\n"
    "  %w1 = weak::wait(%c1) @{stream = 1}\n"
    "  %c2 = weak::start(%y) @{bucket = \"B\", stream = 1}\n"
    "  %w2 = weak::wait(%c2) @{stream = 1}\n"
    "  %m = matmul(%a, %a) @{stream = 0}\n"
    "  return %w1, %w2, %m\n"
    "}\n";

// A4-21 and A4-22 as they run: one start and one wait on a stream of their own, the product between them in time, and an
// event for each of the two edges.
TEST_F(WeakStreams, A4_22_ABucketIsHiddenBehindAProductOnAnotherStream) {
  OnStreams plain(kBuckets, 2);
  EXPECT_THAT(plain.run(), ElementsAre(100, 101, 100, 101));
  EXPECT_TRUE(plain.waits().empty()) << "the product waits for nobody";
  EngineOptions options;
  options.passes = {{.name = "bucket-collectives"}, {.name = "overlap-collectives"}};
  for (const bool graphs : {false, true}) {
    OnStreams hidden(kBuckets, 2, graphs, options);
    const std::set<std::string> waits = hidden.waits();
    EXPECT_TRUE(waits.contains("m<B_start")) << hidden.streams();
    EXPECT_TRUE(waits.contains("B_wait<m")) << hidden.streams();
    EXPECT_THAT(hidden.streams(), HasSubstr("B_start1 m0 "));
    for (unsigned long seed = 0; seed < 12; ++seed) {
      interleave(seed);
      EXPECT_THAT(hidden.run(), ElementsAre(100, 101)) << seed << ": one start, one wait";
    }
    interleave(0);
    const std::string record = hidden.record();
    EXPECT_LT(record.find("launch note"), record.find("launch matmul")) << record;
    EXPECT_LT(record.find("launch matmul"), record.rfind("launch note")) << record;
    EXPECT_EQ(count_of(record, "launch note"), 2u) << record;
  }
}

/// Nodes on random streams with edges to nodes above them, some of which are data. Each looks whether those that it is to
/// wait for by an order edge have been there, and nothing else, so that others may run at the same time.
struct RandomLookers {
  std::string text;
  std::vector<int> masks;  ///< by node: those that it waits for
  std::size_t edges = 0;

  RandomLookers(std::uint32_t seed, int streams) : random_(seed) {
    const int count = 4 + below(10);
    std::vector<bool> read(static_cast<std::size_t>(count), false);
    text = "graph @main(%x: f32[4]) {\n";
    for (int k = 0; k < count; ++k) {
      std::string after;
      int& mask = masks.emplace_back(0);
      for (int j = 0; j < k; ++j) {
        if (below(4) != 0) continue;
        after += fmt::format("{}%n{}", after.empty() ? "" : ", ", j);
        mask |= 1 << j;
        ++edges;
      }
      const int operand = k > 0 && below(2) == 0 ? below(k) : -1;
      if (operand >= 0) read[static_cast<std::size_t>(operand)] = true;
      text += fmt::format("  %n{} = weak::look({}) {{tag = {}, mask = {}}} @{{stream = {}}}{}\n", k,
                          operand < 0 ? "%x" : fmt::format("%n{}", operand), k, mask,
                          below(streams), after.empty() ? "" : " after(" + after + ")");
    }
    text += "  return ";
    for (int k = 0, any = 0; k < count; ++k)
      if (!read[static_cast<std::size_t>(k)]) text += fmt::format("{}%n{}", any++ ? ", " : "", k);
    text += "\n}\n";
  }

 private:
  int below(int limit) { return static_cast<int>(random_() % static_cast<std::uint32_t>(limit)); }
  std::mt19937 random_;
};

// A4-12 on streams: every edge holds in every interleaving, and events are fewer than edges.
TEST_F(WeakStreams, A4_12_RandomEdgesHoldOnTwoAndThreeStreams) {
  std::size_t edges = 0, waits = 0;
  for (std::uint32_t seed = 0; seed < 32; ++seed) {
    const int streams = 2 + static_cast<int>(seed % 2);
    const RandomLookers random(seed, streams);
    SCOPED_TRACE(random.text);
    OnStreams run(random.text, streams);
    edges += random.edges;
    waits += run.waits().size();
    for (unsigned long order = 0; order < 4; ++order) {
      interleave(order);
      run.run();
      EXPECT_EQ(run.seen(), random.masks) << order;
    }
    interleave(0);
  }
  EXPECT_GT(edges, 250u);
  EXPECT_GT(waits, 60u);
  EXPECT_LT(waits, edges);
}

}  // namespace
}  // namespace heddle::testing
