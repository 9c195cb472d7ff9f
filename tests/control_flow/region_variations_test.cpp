// Regions beyond the listed cases: sizes that a body returns, handles that share storage, bodies with many callers.
#include <deque>
#include <gmock/gmock.h>
#include <list>

#include "tests/control_flow/late_programs.h"
#include "tests/support/json.h"

namespace heddle::testing {
namespace {

using test::Json;
using ::testing::ElementsAre;

/// Regions of the kernels in the graphs nested in a plan.
std::vector<std::string> nested_regions(const Json& plan) {
  std::vector<std::string> regions;
  for (const Json& step : plan["steps"])
    for (const Json& nested : step.value("nested", Json::array()))
      for (const Json& kernel : nested["kernels"]) regions.push_back(kernel["unit"]);
  return regions;
}

struct Layers {
  Tensor ends[2];
  std::deque<Tensor> between;
  std::list<std::pair<Tensor, int>> numbered;
  std::vector<bool> flags;
};
auto heddle_fields(Layers& l) { return std::tie(l.ends, l.between, l.numbered, l.flags); }

// S0-1, S0-3: arrays and containers of every kind, through a call, a branch and a loop.
TEST(RegionVariations, S0_3_ResultsLieInContainersOfEveryKind) {
  const auto grown = [](const Layers& l) {
    Layers next = l;
    for (Tensor& end : next.ends) end = end + 1;
    for (Tensor& tensor : next.between) tensor = tensor * 2;
    for (auto& entry : next.numbered) entry.first = entry.first - next.ends[1];
    return next;
  };
  const auto f = [&](const Tensor& x) {
    const Layers start = invoke(
        {},
        [](const Tensor& p) {
          return Layers{{p + 1, p + 2}, {p * 3}, {{sin(p), 4}}, {true, false}};
        },
        x);
    const Layers chosen = cond(
        greater(sum(x), 0), grown,
        [](const Layers& l) {
          return Layers{
              {l.ends[1] * 1, l.ends[0] * 1}, {exp(l.between[0])}, {{l.ends[0] * 5, 4}}, l.flags};
        },
        start);
    Layers last =
        while_loop(chosen, [](const Layers& l) { return less(sum(l.ends[0]), 20); }, grown);
    EXPECT_EQ(last.numbered.front().second, 4);
    EXPECT_THAT(last.flags, ElementsAre(true, false));
    return std::vector<Tensor>{last.ends[0], last.ends[1], last.between[0],
                               last.numbered.front().first};
  };
  everywhere(f, {numbers({1, 2})});
  everywhere(f, {numbers({-3, 2})});
}

// S1-8: a body has many callers, so that it carries the annotations of none: it is installed and compiled once.
TEST(RegionVariations, S1_8_ABodyDoesNotCarryTheAnnotationsOfItsCaller) {
  int compiles = 0;
  EngineOptions options{.threads = 1, .disk_cache = false};
  options.on_region_compile = [&](const RegionInfo&) { ++compiles; };
  Engine engine(
      [](const Tensor& x) {
        const auto body = [](const Tensor& p) {
          Tensor y;
          {
            const Annotate own{{"compile", "inside"}, {"stage", 3}};
            y = sin(p) * 2;
          }
          return cos(y);
        };
        Tensor y = x;
        for (const char* caller : {"first", "second"}) {
          const Annotate scope{{"name", caller}, {"stage", 7}};
          y = invoke({.name = "g"}, body, y + 1);
        }
        return y;
      },
      options);
  const std::vector<Tensor> inputs{ramp({4})};
  const ir::Graph graph = ir::parse(engine.graph_text(inputs, false));
  const auto calls = nodes_of(graph, "invoke");
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0]->name(), "first.invoke");
  EXPECT_EQ(calls[1]->name(), "second.invoke");
  const auto body = [&](int k) { return std::get<ir::GraphRef>(calls[k]->attr("body")).graph; };
  EXPECT_EQ(body(0), body(1));
  for (const ir::NodePtr& node : body(0)->nodes()) {
    const auto stage = node->annotations().find("stage");
    const bool is_own = node->op_name() == "sin" || node->op_name() == "mul";
    if (node->op_name() == "const") continue;
    EXPECT_EQ(stage != node->annotations().end(), is_own) << node->name();
    EXPECT_TRUE(!is_own || std::get<std::int64_t>(stage->second.value) == 3);
  }
  engine.run(inputs);
  EXPECT_EQ(compiles, 1);
  EXPECT_EQ(engine.stats().regions_compiled, 1u);
}

// What is marked outside owns the body: its options hold there.
TEST(RegionVariations, AMarkedCallsOptionsHoldInItsBody) {
  const auto kernels = [](bool fuse) {
    Engine engine(
        [fuse](const Tensor& x) {
          const Annotate scope{
              {"compile",
               AnnotationMap{{"id", "outer"}, {"options", AnnotationMap{{"fuse", fuse}}}}}};
          return invoke({}, [](const Tensor& p) { return tanh(sin(p) * 2); }, x + 1);
        },
        {.threads = 1, .disk_cache = false});
    const std::vector<Tensor> inputs{ramp({4})};
    engine.run(inputs);
    return nested_regions(Json::parse(engine.plan_json(inputs)));
  };
  EXPECT_THAT(kernels(true), ElementsAre("region_0"));
  EXPECT_THAT(kernels(false), ElementsAre("region_0", "region_0", "region_0"));
}

// Also where only the run tells the sizes of its results, of branches that differ and of a body that tells them itself;
// what speaks of these sizes further down does so still.
TEST(RegionVariations, AMarkedCallsOptionsHoldWhereItTellsSizes) {
  const auto branch = [](const Tensor& p, const Tensor& x) {
    return cond(
        p, [](const Tensor& t) { return tanh(sin(t) * 2); },
        [](const Tensor& t) { return pad(cos(exp(t) + 1), {0}, {2}); }, x);
  };
  const auto body = [](const Tensor&, const Tensor& x) {
    return invoke(
        {.name = "kept"}, [](const Tensor& t) { return tanh(positive()(sin(t) * 2)[0]) + 1; }, x);
  };
  const auto with = [](auto call, bool fuse) {
    return [call, fuse](const Tensor& p, const Tensor& x) {
      Tensor y;
      {
        const AnnotationMap options{{"fuse", fuse}};
        const Annotate scope{{"compile", AnnotationMap{{"id", "own"}, {"options", options}}}};
        y = call(p, x);
      }
      return std::pair(exp(y) * 0.5f, iota({y.size(0) * 2}, 0, f32) * 3);
    };
  };
  const auto kernels = [&](auto call, bool fuse) {
    Engine engine(with(call, fuse), {.threads = 1, .disk_cache = false});
    return nested_regions(Json::parse(engine.plan_json(std::vector{flag(true), numbers({1, 2})})));
  };
  EXPECT_EQ(kernels(branch, true), std::vector<std::string>(2, "region_0"));
  EXPECT_EQ(kernels(branch, false), std::vector<std::string>(7, "region_0"));
  EXPECT_EQ(kernels(body, true), std::vector<std::string>(3, "region_0"));
  EXPECT_EQ(kernels(body, false), std::vector<std::string>(5, "region_0"));
  for (const bool taken : {true, false}) {
    for (const bool fuse : {true, false}) {
      everywhere(with(branch, fuse), {flag(taken), numbers({1, -2, 3})});
      everywhere(with(body, fuse), {flag(taken), numbers({1, -2, 3})});
    }
  }
}

// S0-19 of bodies that find sizes, nested ones too: each call has sizes of its own, and one body serves all.
TEST(RegionVariations, S0_19_ABodyThatFindsSizesIsInstalledOnce) {
  const auto inner = [](const Tensor& t) {
    const Annotate scope{{"compile", "inside"}};
    return tanh(positive()(t)[0]) * 2;
  };
  const auto body = [inner](const Tensor& t) {
    const Tensor kept = positive()(t - 1)[0];
    const Tensor again = invoke({.name = "inner"}, inner, kept);
    return std::tuple(again, iota({again.size(0) * 2}, 0, f32), kept, kept.size(0) + 1);
  };
  const auto f = [body, inner](const Tensor& p, const Tensor& x) {
    const auto [a, m, one, k] = invoke({.name = "g"}, body, x);
    const auto [b, n, two, l] = invoke({.name = "g"}, body, x * -1);
    const auto [c, o] = cond(
        p, [inner](const Tensor& t) { return std::pair(inner(t), t); },
        [inner](const Tensor& t) { return std::pair(inner(t), t); }, x + 1);
    return std::tuple(a, m, b, n, c, o, iota({k * 10 + l}, 0, f32), one, two);
  };
  const std::vector<Tensor> inputs{flag(true), numbers({3, -4, 2, -2, 0.5})};
  const auto got = everywhere(f, inputs);
  EXPECT_THAT(got[1].sizes(), ElementsAre(4));
  EXPECT_THAT(got[3].sizes(), ElementsAre(4));
  EXPECT_THAT(got[6].sizes(), ElementsAre(33));
  everywhere(f, {flag(false), numbers({3, 4, 2, -2, 0.5})});
  EngineOptions options{.threads = 1, .disk_cache = false};
  Engine engine(f, options);
  const std::string text = engine.graph_text(inputs, false);
  for (const char* name : {"graph @g", "graph @inner"})
    EXPECT_EQ(text.find(name), text.rfind(name)) << text;
  const auto branches = nodes_of(ir::parse(text), "cond");
  EXPECT_EQ(std::get<ir::GraphRef>(branches[0]->attr("then")).graph,
            std::get<ir::GraphRef>(branches[0]->attr("else")).graph);
}

// S2-4: passes change the graphs of a call that tells sizes, twice over; its sizes keep their names, also where two calls
// follow each other, and what is made of a size alone has that size.
TEST(RegionVariations, S2_4_SizesOfTheRunKeepTheirNames) {
  const auto f = [](const Tensor& p, const Tensor& x) {
    const auto grown = [&](const Tensor& given) {
      return cond(
          p, [](const Tensor& t) { return exp(t) + exp(t); },
          [](const Tensor& t) {
            const Annotate scope{{"compile", "inside"}};
            return pad(cos(t * 1), {0}, {3});
          },
          given);
    };
    const Tensor a = grown(x);
    const Tensor b = grown(a);
    return std::tuple(b, iota({a.size(0)}, 0, f32), iota({b.size(0) * 2 + a.size(0)}, 0, f32));
  };
  for (const bool taken : {true, false}) everywhere(f, {flag(taken), numbers({0.5, -1})});
  Engine engine(f);
  const std::vector<Tensor> inputs{flag(false), numbers({1, 2})};
  const auto got = engine.run(inputs);
  EXPECT_THAT(got[1].sizes(), ElementsAre(5));
  EXPECT_THAT(got[2].sizes(), ElementsAre(2 * 8 + 5));
  const ir::Graph graph = ir::parse(engine.graph_text(inputs, true));
  const auto calls = nodes_of(graph, "cond");
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0]->output().to_string(), "f32[u0]");
  EXPECT_EQ(calls[1]->output().to_string(), "f32[u1]");
  EXPECT_EQ(graph.outputs()[1].meta().to_string(), "f32[u0]");
  EXPECT_EQ(graph.outputs()[2].meta().to_string(), "f32[u0+2*u1]");
}

// S2-4 where units tell sizes: each of two has a branch that its own passes change, in a loop's body too. The sizes of one are
// not taken for those of the other, inside or outside of them.
TEST(RegionVariations, S2_4_UnitsThatTellSizesKeepThemApart) {
  const auto grown = [](const char* unit, const Tensor& p, const Tensor& x, std::int64_t by) {
    const Annotate scope{{"compile", unit}};
    const Tensor y = cond(
        p, [](const Tensor& t) { return exp(t * 0.5f) + exp(t * 0.5f); },
        [by](const Tensor& t) { return pad(cos(t * 1) + cos(t), {0}, {by}); }, x);
    return y + iota({y.size(0)}, 0, f32) * 0.25f;
  };
  const auto f = [=](const Tensor& p, const Tensor& q, const Tensor& x) {
    const Tensor a = grown("first", p, x, 2);
    const Tensor b = grown("second", q, a, 3);
    const Tensor sums = while_loop(
        sum(b), [](const Tensor& s) { return less(s, 60.0f); },
        [&](const Tensor& s) {
          const Tensor c = grown("inside", greater(s, 20.0f), x + s * 0.01f, 4);
          return s + sum(c * c) + cast(size_tensor(c.size(0)), f32);
        });
    return std::tuple(b, iota({a.size(0) + b.size(0) * 10}, 0, f32), concat({a, b}, 0), sums);
  };
  for (const bool p : {true, false})
    for (const bool q : {true, false}) {
      const auto got = everywhere(f, {flag(p), flag(q), numbers({0.5, -1, 2})});
      const std::int64_t a = p ? 3 : 5;
      const std::int64_t b = q ? a : a + 3;
      EXPECT_THAT(got[1].sizes(), ElementsAre(a + 10 * b));
      EXPECT_THAT(got[2].sizes(), ElementsAre(a + b));
    }
  int compiled = 0;
  EngineOptions options{.threads = 1, .disk_cache = false};
  options.on_region_compile = [&](const RegionInfo&) { ++compiled; };
  Engine engine(f, options);
  engine.run({flag(true), flag(false), numbers({0.5, -1, 2})});
  engine.run({flag(false), flag(false), numbers({0.5, -1, 2, 4})});
  EXPECT_EQ(compiled, 3);
  EXPECT_EQ(engine.stats().compiles, 1u);
}

// Who uses only the size of a value needs it: of a unit's, whose body is cut to what is read of it, and of what is in none
// where there are units.
TEST(RegionVariations, S2_4_ASizeAloneKeepsWhatTellsIt) {
  for (const bool inside : {true, false}) {
    const auto f = [inside](const Tensor& x) {
      Tensor kept;
      {
        const Annotate scope{{"compile", inside}};
        kept = positive()(x + 1.0f)[0];
      }
      Tensor own;
      {
        const Annotate scope{{"compile", "other"}};
        own = exp(x) * 2.0f + x;
      }
      return std::pair(iota({kept.size(0)}, 0, f32) + 1.0f, own);
    };
    EXPECT_THAT(everywhere(f, {numbers({1, -3, 2, 0})})[0].to_doubles(), ElementsAre(1, 2, 3))
        << inside;
    everywhere(f, {numbers({-3, -2})});
    Engine engine(f, {.threads = 1, .disk_cache = false});
    const Json plan = Json::parse(engine.plan_json(std::vector{numbers({1, 2})}));
    EXPECT_EQ(plan["regions"].size(), inside ? 2u : 1u);
  }
}

// A size that a loop carries stays what it was, or the loop is refused: it is no number that the run tells.
TEST(RegionVariations, ASizeThatALoopCarriesDoesNotChange) {
  const auto loop = [](std::int64_t more) {
    return [more](const Tensor& x, const Tensor& n) {
      using State = std::tuple<Tensor, SymInt, Tensor>;
      const auto [y, size, left] = while_loop(
          State(x, x.size(0), n), [](const State& s) { return greater(std::get<2>(s), 0); },
          [more](const State& s) {
            return State(std::get<0>(s) * 2, std::get<1>(s) + more, std::get<2>(s) - 1);
          });
      return y * expand(cast(size_tensor(size), f32), {x.size(0)});
    };
  };
  const std::vector<Tensor> inputs{numbers({1, 2, 3}), Tensor::scalar_int(i64, 2)};
  EXPECT_THAT(everywhere(loop(0), inputs)[0].to_doubles(), ElementsAre(12, 24, 36));
  Engine grows(loop(1));
  EXPECT_EQ(unplaced_text_of<StructureError>([&] { grows.run(inputs); }),
            "while_loop: a size that it carries: expected s0, got s0+1");
  const auto scanned = [](const Tensor& x) {
    using Carry = std::pair<Tensor, SymInt>;
    const auto [carry, ys] =
        scan(Carry(sum(x), x.size(0)), x, [](const Carry& c, const Tensor& element) {
          return std::pair(Carry(c.first + element, c.second * 2), element);
        });
    return ys * carry.first;
  };
  Engine doubles(scanned);
  EXPECT_EQ(unplaced_text_of<StructureError>([&] { doubles.run({numbers({1, 2})}); }),
            "scan: a size that it carries: expected s0, got 2*s0");
}

// A size that depends on the branch is refused too.
TEST(RegionVariations, ASizeThatBranchesReturnIsTheSameInBoth) {
  const auto with = [](std::int64_t times) {
    return [times](const Tensor& p, const Tensor& x) {
      const auto [y, size] = cond(
          p, [](const Tensor& t) { return std::pair(t * 2, t.size(0) * 2); },
          [times](const Tensor& t) { return std::pair(t * 3, t.size(0) * times); }, x);
      return y * cast(size_tensor(size), f32);
    };
  };
  EXPECT_THAT(everywhere(with(2), {flag(true), numbers({1, 2})})[0].to_doubles(),
              ElementsAre(8, 16));
  EXPECT_THAT(everywhere(with(2), {flag(false), numbers({1, 2})})[0].to_doubles(),
              ElementsAre(12, 24));
  Engine other(with(3));
  EXPECT_EQ(unplaced_text_of<StructureError>([&] { other.run({flag(true), numbers({1, 2})}); }),
            "cond: a size that the bodies return: expected 2*s0, got 3*s0");
}

// S0-15, S0-16: what a body keeps beyond its results becomes results too, nested bodies included; what shares storage with
// a result is not one of them in a strict region, and its handle says so when it is used.
TEST(RegionVariations, KeptHandlesOfNestedBodiesAreResultsOfAll) {
  const auto f = [](const Tensor& x) {
    std::vector<Tensor> kept;
    const Tensor result = invoke(
        {.name = "outer", .allow_side_effects = true},
        [&](const Tensor& p) {
          const Tensor inner = invoke(
              {.name = "inner", .allow_side_effects = true},
              [&](const Tensor& q) {
                kept.push_back(sin(q));
                return cos(q);
              },
              p);
          kept.push_back(inner + 1);
          return inner * kept[0];
        },
        x);
    return result + kept[0] * kept[1];
  };
  const ir::Graph graph = traced(f, {numbers({1, 2})});
  const auto calls = nodes_of(graph, "invoke");
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0]->outputs().size(), 3u);
  everywhere(f, {numbers({1, 2})});
}

TEST(RegionVariations, S0_16_AKeptViewOfAResultIsNoResultOfAStrictRegion) {
  const auto with = [](bool strict) {
    return [strict](const Tensor& x) {
      Tensor kept;
      const Tensor result = invoke(
          {.name = "g", .strict = strict, .allow_side_effects = true},
          [&](const Tensor& p) {
            const Tensor s = sin(p);
            kept = permute(s, {1, 0});
            return s;
          },
          x);
      return sum(result) + sum(kept);
    };
  };
  const std::vector<Tensor> inputs{ramp({2, 3})};
  EXPECT_EQ(nodes_of(traced(with(false), inputs), "invoke")[0]->outputs().size(), 2u);
  everywhere(with(false), inputs);
  Engine strict(with(true));
  EXPECT_NE(unplaced_text_of<TraceError>([&] { strict.run(inputs); }).find("a symbolic tensor"),
            std::string::npos);
}

// Captures of every kind through every kind of body: outer values, a parameter, sizes, and one that is only returned.
TEST(RegionVariations, CapturesThroughBranchesInLoopsInRegions) {
  const Tensor weight = ramp({3});
  const auto f = [&](const Tensor& x, const Tensor& limit) {
    return invoke(
        {.strict = false},
        [&](const Tensor& p) {
          const auto [last, all] = scan(sum(p), p, [&](const Tensor& carry, const Tensor& row) {
            const Tensor next = cond(
                greater(carry, limit), [&] { return carry - sum(row * weight); },
                [&] { return carry + sum(x) * cast(size_tensor(x.size(0)), f32); });
            return std::pair(next, row + next);
          });
          return std::tuple(all * last, limit, last);
        },
        x);
  };
  const auto first = [&](const Tensor& x, const Tensor& limit) {
    const auto [a, b, c] = f(x, limit);
    return a + b * c;
  };
  everywhere(first, {ramp({5, 3}), Tensor::full(f32, {}, 4)});
  everywhere(first, {ramp({1, 3}), Tensor::full(f32, {}, -4)});
}

}  // namespace
}  // namespace heddle::testing
