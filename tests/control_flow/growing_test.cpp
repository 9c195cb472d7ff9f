// Loops whose carried values change their sizes between iterations.
#include <gmock/gmock.h>
#include <thread>

#include "memory/allocator.h"
#include "tests/control_flow/growing_programs.h"
#include "tests/support/error_text.h"

namespace heddle::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// `f` over the tensors of a call.
auto over(std::vector<Tensor> (*f)(std::span<const Tensor>)) {
  return [f](std::span<const Tensor> inputs) { return f(inputs); };
}

TEST(GrowingLoop, OfEachProgram) {
  for (const LateProgram& program : growing_programs()) {
    SCOPED_TRACE(program.name);
    for (const std::vector<Tensor>& call : program.calls) {
      // Outside of a trace the body simply runs.
      const std::vector<Tensor> eager = program.function(call);
      const std::vector<Tensor> got = everywhere(program.function, call);
      ASSERT_EQ(got.size(), eager.size());
      for (std::size_t k = 0; k < got.size(); ++k) {
        EXPECT_TRUE(std::ranges::equal(got[k].sizes(), eager[k].sizes())) << k;
        const std::vector<double> a = got[k].to_doubles(), b = eager[k].to_doubles();
        for (std::size_t i = 0; i < a.size() && i < b.size(); ++i)
          EXPECT_NEAR(a[i], b[i], 1e-5 * (1 + std::abs(b[i]))) << k << ", " << i;
      }
    }
  }
}

TEST(GrowingLoop, CompilesOnceForAllSizes) {
  Engine engine(over(append_sums), {.disk_cache = false});
  std::uint64_t compiled = 0;
  for (const std::int64_t n : {3, 0, 1, 40}) {
    for (const std::int64_t start : {2, 7}) {
      EXPECT_THAT(engine.run({ramp({start}), count_of(n)})[0].sizes(), ElementsAre(start + n));
      if (compiled == 0) compiled = engine.stats().kernels_compiled;
      EXPECT_EQ(engine.stats().kernels_compiled, compiled);
    }
  }
  EXPECT_EQ(engine.stats().compiles, 1u);
  EXPECT_EQ(engine.stats().evaluator_steps, 0u);
}

TEST(GrowingLoop, ServesManyThreadsAtOnce) {
  Engine engine(over(append_sums));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int repeat = 0; repeat < 20; ++repeat) {
        const std::int64_t n = (t + repeat) % 5;
        const Tensor got = engine.run({numbers({4}), count_of(n)})[0];
        ASSERT_EQ(got.count(), 1 + n);
        double total = 4;
        for (std::int64_t k = 1; k <= n; ++k, total *= 1.5)
          EXPECT_NEAR(got.to_doubles()[static_cast<std::size_t>(k)], total, 1e-3);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(GrowingLoop, GivesItsMemoryBack) {
  Engine engine(over(decode));
  const std::vector<Tensor> inputs{ramp({1, 64}) * 0.1f, ramp({100, 64}), ramp({100, 64}),
                                   ramp({64, 64}) * 0.01f, count_of(50)};
  engine.run(inputs);
  engine.trim();
  const auto in_use = [] { return memory::CachingAllocator::host().stats().in_use_bytes; };
  const auto before = in_use();
  for (int repeat = 0; repeat < 3; ++repeat) engine.run(inputs);
  engine.trim();
  EXPECT_EQ(in_use(), before);
}

/// What the graph says of a size that changes: a symbol of the bodies' own, and another one of the results.
TEST(GrowingLoop, HasAText) {
  const ir::Graph graph = traced(over(append_sums), {numbers({1, 2}), count_of(1)});
  const std::vector<ir::NodePtr> loops = nodes_of(graph, "while_loop");
  ASSERT_EQ(loops.size(), 1u);
  const ir::Graph& body = loops[0]->graph("body");
  const std::string symbol = body.inputs()[0].meta().sizes[0].to_string();
  EXPECT_THAT(symbol, ::testing::StartsWith("u"));
  EXPECT_EQ(body.outputs()[0].meta().sizes[0].to_string(), symbol + "+1");
  EXPECT_EQ(loops[0]->graph("condition").inputs()[0].meta().sizes[0].to_string(), symbol);
  EXPECT_THAT(loops[0]->output(0).sizes[0].to_string(), ::testing::StartsWith("u"));
  EXPECT_NE(loops[0]->output(0).sizes[0].to_string(), symbol);
  EXPECT_EQ(loops[0]->output(1).to_string(), "i64[]");
}

TEST(GrowingLoop, PlacesThatGrowAlikeShareASize) {
  const auto one_cache = [](const Tensor& x, const Tensor& cache, const Tensor& w,
                            const Tensor& n) {
    return decode(std::vector{x, cache, cache * 2.0f, w, n});
  };
  const ir::Graph graph =
      traced(one_cache, {ramp({1, 8}), ramp({3, 8}), ramp({8, 8}), count_of(1)});
  const ir::NodePtr loop = nodes_of(graph, "while_loop").at(0);
  EXPECT_EQ(loop->output(1).to_string(), loop->output(2).to_string());
  EXPECT_EQ(loop->output(0).to_string(), loop->input(0).meta().to_string());
  const ir::NodePtr parted =
      nodes_of(traced(over(part_ways), {numbers({1, 2, 3}), count_of(2)}), "while_loop").at(0);
  EXPECT_NE(parted->output(0).to_string(), parted->output(1).to_string());
  EXPECT_EQ(parted->output(0).to_string(), parted->output(2).to_string());
}

TEST(GrowingLoop, MayBeRefused) {
  Engine engine([](const Tensor& x) {
    return while_loop(
        x, [](const Tensor& s) { return less(sum(s), 10); },
        [](const Tensor& s) { return concat({s, s}, 0); }, {.fixed_sizes = true});
  });
  EXPECT_EQ(unplaced_text_of<ShapeError>([&] { engine.run({numbers({1, 2})}); }),
            "while_loop: C4 the body keeps the shape of carried value 0: expected f32[2], got "
            "f32[4]");
}

TEST(GrowingLoop, StacksOnlyWhatKeepsItsSizes) {
  Engine engine([](const Tensor& x) {
    return scan_while(
               x, [](const Tensor& s) { return less(sum(s), 10); },
               [](const Tensor& s) { return std::pair(concat({s, s}, 0), s); })
        .second;
  });
  EXPECT_THAT(unplaced_text_of<ShapeError>([&] { engine.run({numbers({1, 2})}); }),
              HasSubstr("while_loop: C5 result 1: expected the same sizes in each iteration"));
}

/// Halves of an odd number of elements are not equal: the third iteration finds that out, and the engine goes on.
TEST(GrowingLoop, SizesThatDoNotFitAreRefusedWhenAnIterationComesToThem) {
  const auto f = [](const Tensor& x, const Tensor& n) {
    using State = std::pair<Tensor, Tensor>;
    return while_loop(
               State(x, n), [](const State& s) { return greater(s.second, 0); },
               [](const State& s) {
                 const SymInt half = s.first.size(0) / 2;
                 return State(slice(s.first, 0, 0, half) + slice(s.first, 0, half, s.first.size(0)),
                              s.second - 1);
               })
        .first;
  };
  Engine engine(f);
  const std::vector<Tensor> good{numbers({1, 2, 3, 4}), count_of(2)};
  EXPECT_THAT(engine.run(good)[0].to_doubles(), ElementsAre(10));
  EXPECT_THAT(engine.run({ramp({12}), count_of(2)})[0].sizes(), ElementsAre(3));
  EXPECT_THAT(text_of<ShapeError>([&] { engine.run({ramp({12}), count_of(3)}); }),
              HasSubstr("expected u0-floor(u0/2) == floor(u0/2), got u0-floor(u0/2) = 2, "));
  EXPECT_THAT(engine.run(good)[0].to_doubles(), ElementsAre(10));
}

std::string failure_of_text(const std::string& call, const std::string& bodies) {
  return text_of<Error>([&] {
    ir::parse(
        "graph @main(%x: f32[s0], %y: f32[s0], %w: f32[s0]) {\n  %a, %b = while_loop(%x, %y, %w) "
        "{condition = @more, "
        "body = @next, carried = 2} : " +
        call + "\n  return %a\n}\n" + bodies);
  });
}

TEST(GrowingLoop, ChecksWhatATextSays) {
  const std::string more =
      "graph @more(%x: f32[u0], %y: f32[u0], %w: f32[s0]) {\n  %s = reduce_sum(%w) {axes = [0]}\n  "
      "%g = gt(%s, 0.0: f32)\n  return %g\n}\n";
  const auto next = [](const std::string& inputs, const std::string& second) {
    return "graph @next(" + inputs + ") {\n  %a = concat(%x, %x) {axis = 0}\n  %b = concat(%y, " +
           second + ") {axis = 0}\n  return %a, %b\n}\n";
  };
  const std::string inputs = "%x: f32[u0], %y: f32[u0], %w: f32[s0]";
  EXPECT_EQ(failure_of_text("f32[u1], f32[u1]", more + next(inputs, "%y")), "no error");
  EXPECT_THAT(
      failure_of_text("f32[u1], f32[u1]", more + next(inputs, "%w")),
      HasSubstr("while_loop: C6 size 0 of operand 1 at 2:12: expected 2*u0 in the next iteration, "
                "as elsewhere, got "));
  EXPECT_THAT(
      failure_of_text("f32[u1], f32[u1]",
                      more + next("%x: f32[u0], %y: f32[u0], %w: f32[u0]", "%y")),
      HasSubstr("while_loop: C6 size 0 of operand 2 at 2:12: expected a carried value's whole "
                "size, as it changes, got u0"));
  const std::string asked =
      "graph @more(%x: f32[u0], %y: f32[s0], %w: f32[s0]) {\n  %s = reduce_sum(%w) {axes = [0]}\n  "
      "%g = gt(%s, 0.0: f32)\n  return %g\n}\n";
  EXPECT_THAT(
      failure_of_text("f32[u1], f32[u1]", asked + next(inputs, "%y")),
      HasSubstr("while_loop: C7 size 0 of the condition's operand 1 at 2:12: expected a symbol, as "
                "it changes, got s0"));
}

}  // namespace
}  // namespace heddle::testing
