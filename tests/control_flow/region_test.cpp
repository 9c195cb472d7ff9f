// Regions whose results are found in whatever the body returns. Each test is named after its case.
#include <cmath>
#include <gmock/gmock.h>
#include <map>
#include <memory>
#include <tuple>

#include "tests/api/custom/ops.h"
#include "tests/control_flow/support.h"

namespace heddle::testing {
namespace {

using ::testing::ElementsAre;

struct Foo {
  Tensor a;
  Tensor b;
};
auto heddle_fields(Foo& foo) { return std::tie(foo.a, foo.b); }

struct Single {
  Tensor c;
};
auto heddle_fields(Single& single) { return std::tie(single.c); }

using Wanted = std::vector<std::string>;

Tensor region_a0_01(const Tensor& x, const Tensor& y) {
  const auto body = [](const Tensor& p, const Tensor& q) {
    const Tensor a = sin(p);
    const Tensor b = cos(q);
    return std::pair(Foo{a, b}, p * q);
  };
  auto [foo, m] = invoke({.name = "g"}, body, x, y);
  return foo.a + foo.b + m;
}

TEST(Region, A0_01_ResultsAreFoundInAnObjectAndTheHostKeepsIt) {
  const Tensor x = numbers({1, 2, 3});
  const Tensor y = numbers({4, 5, 6});
  const ir::Graph graph = traced(region_a0_01, {x, y});
  const auto calls = nodes_of(graph, "invoke");
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(output_ops(calls[0]->graph("body")), (Wanted{"sin", "cos", "mul"}));
  const auto adds = nodes_of(graph, "add");
  ASSERT_EQ(adds.size(), 2u);
  EXPECT_EQ(adds[0]->input(0), calls[0]->value(0));
  EXPECT_EQ(adds[0]->input(1), calls[0]->value(1));
  EXPECT_EQ(adds[1]->input(1), calls[0]->value(2));
  EXPECT_EQ(nodes_of(graph, "sin").size(), 0u);
  const Tensor plain = everywhere(
      [](const Tensor& p, const Tensor& q) { return sin(p) + cos(q) + p * q; }, {x, y})[0];
  EXPECT_EQ(everywhere(region_a0_01, {x, y})[0].to_doubles(), plain.to_doubles());
}

TEST(Region, AX_04_AMarkedBodyIsCompiledOnceAndTheObjectStays) {
  const auto f = [](const Tensor& x, const Tensor& y) {
    const auto body = [](const Tensor& p, const Tensor& q) {
      const Annotate scope{{"compile", "object"}};
      return std::pair(Foo{sin(p), cos(q)}, p * q);
    };
    const auto [foo, m] = invoke({.name = "g"}, body, x, y);
    const auto [again, n] = invoke({.name = "g"}, body, m, y);
    return foo.a + foo.b + again.a + again.b + n;
  };
  Engine engine(f, {.threads = 1, .disk_cache = false});
  const std::vector<Tensor> inputs{numbers({1, 2, 3}), numbers({4, 5, 6})};
  const std::vector<double> got = engine.run(inputs)[0].to_doubles();
  for (std::size_t k = 0; k < 3; ++k) {
    const double x = static_cast<double>(k) + 1;
    const double y = x + 3;
    EXPECT_NEAR(got[k], std::sin(x) + 2 * std::cos(y) + std::sin(x * y) + x * y * y, 1e-4);
  }
  EXPECT_EQ(engine.stats().regions_compiled, 1u);
  const ir::Graph graph = ir::parse(engine.graph_text(inputs, false));
  const auto calls = nodes_of(graph, "invoke");
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(std::get<ir::GraphRef>(calls[0]->attr("body")).graph,
            std::get<ir::GraphRef>(calls[1]->attr("body")).graph);
  EXPECT_EQ(output_ops(calls[0]->graph("body")), (Wanted{"sin", "cos", "mul"}));
}

TEST(Region, A0_01_HandlesKeepTheirIdentity) {
  bool same = false;
  Engine engine([&](const Tensor& x) {
    const Tensor::Impl* inside = nullptr;
    const Foo foo = invoke(
        {},
        [&](const Tensor& p) {
          Foo made{sin(p), cos(p)};
          inside = made.a.impl().get();
          return made;
        },
        x);
    same = inside == foo.a.impl().get();
    return foo.a + foo.b;
  });
  engine.run({numbers({1})});
  EXPECT_TRUE(same);
}

TEST(Region, A0_02_ConstantsAreNoResults) {
  std::tuple<int, std::nullptr_t, std::string, Tensor> seen;
  const auto f = [&](const Tensor& x) {
    seen = invoke(
        {}, [](const Tensor& p) { return std::tuple(3, nullptr, std::string("s"), sin(p)); }, x);
    return std::get<3>(seen);
  };
  const ir::Graph graph = traced(f, {numbers({1, 2})});
  ASSERT_EQ(nodes_of(graph, "invoke").size(), 1u);
  EXPECT_EQ(nodes_of(graph, "invoke")[0]->outputs().size(), 1u);
  EXPECT_EQ(std::get<0>(seen), 3);
  EXPECT_EQ(std::get<2>(seen), "s");
}

TEST(Region, A0_02_ABodyOfConstantsHasNoResultsAndItsCallIsRemoved) {
  std::pair<int, std::string> seen;
  const auto f = [&](const Tensor& x) {
    seen = invoke({}, [](const Tensor&) { return std::pair(1, std::string("k")); }, x);
    return x + 1;
  };
  Engine engine(f);
  const std::vector<Tensor> inputs{numbers({1, 2})};
  const ir::Graph before = ir::parse(engine.graph_text(inputs, false));
  ASSERT_EQ(nodes_of(before, "invoke").size(), 1u);
  const ir::Node& call = *nodes_of(before, "invoke")[0];
  EXPECT_TRUE(call.graph("body").outputs().empty());
  ASSERT_EQ(call.outputs().size(), 1u);
  EXPECT_EQ(call.output().to_string(), "u8[0]");  // a token, so that order can name the call
  EXPECT_EQ(nodes_of(ir::parse(engine.graph_text(inputs)), "invoke").size(), 0u);
  EXPECT_EQ(seen.second, "k");
  EXPECT_THAT(engine.run(inputs)[0].to_doubles(), ElementsAre(2, 3));
}

TEST(Region, A0_03_ResultsFollowTheStructure) {
  const auto f = [](const Tensor& x) {
    auto made = invoke(
        {},
        [](const Tensor& p) {
          const Tensor c = cos(p);
          const Tensor b = exp(p);
          const Tensor a = sin(p);
          return std::pair(std::pair(std::vector<Tensor>{a}, std::pair(b, 7)), Single{c});
        },
        x);
    return made.first.first[0] + made.first.second.first * made.second.c;
  };
  const ir::Graph graph = traced(f, {numbers({1, 2})});
  EXPECT_EQ(output_ops(nodes_of(graph, "invoke")[0]->graph("body")), (Wanted{"sin", "exp", "cos"}));
  everywhere(f, {numbers({1, 2})});
}

TEST(Region, A0_04_AHandleReachableTwiceIsOneResult) {
  const auto f = [](const Tensor& x) {
    const auto [a, b] = invoke(
        {},
        [](const Tensor& p) {
          const Tensor s = sin(p);
          return std::pair(s, s);
        },
        x);
    EXPECT_EQ(a.impl(), b.impl());
    return a * b;
  };
  const ir::Graph graph = traced(f, {numbers({1, 2})});
  EXPECT_EQ(nodes_of(graph, "invoke")[0]->outputs().size(), 1u);
}

TEST(Region, A0_05_OuterNodesReadTheCallAndNeverAnInnerNode) {
  const ir::Graph graph = traced(region_a0_01, {numbers({1}), numbers({2})});
  std::vector<const ir::Node*> own;
  for (const ir::NodePtr& node : graph.nodes()) own.push_back(node.get());
  for (const ir::NodePtr& node : graph.nodes())
    for (const ir::Value& input : node->inputs())
      EXPECT_EQ(std::ranges::count(own, input.node), 1) << node->name();
}

template <typename F>
std::string error_of(F f, std::vector<Tensor> inputs) {
  Engine engine(f);
  return unplaced_text_of<AliasingError>([&] { engine.run(inputs); });
}

TEST(Region, A0_07_StrictRegionsDoNotReturnAnOperand) {
  const auto f = [](const Tensor& x, const Tensor& y) {
    const auto [a, b] = invoke(
        {.name = "g"}, [](const Tensor& p, const Tensor& q) { return std::pair(p, p * q); }, x, y);
    return a + b;
  };
  EXPECT_EQ(error_of(f, {numbers({1}), numbers({2})}),
            "region g: result 0 and operand 0 share storage: expected storage of its own: copy one "
            "of them with clone(), got the same storage");
}

TEST(Region, A0_08_StrictRegionsShareNoStorageAmongResultsOrOperands) {
  const Tensor x = ramp({2, 3});
  const auto results = [](const Tensor& p) {
    const auto [a, b] = invoke(
        {.name = "g"},
        [](const Tensor& q) {
          const Tensor z = sin(q);
          return std::pair(z, permute(z, {1, 0}));
        },
        p);
    return sum(a) + sum(b);
  };
  EXPECT_EQ(error_of(results, {x}),
            "region g: results 0 and 1 share storage: expected storage of its own: copy one of "
            "them with clone(), got the same storage");
  const auto operands = [](const Tensor& p) {
    return invoke(
        {.name = "g"}, [](const Tensor& q, const Tensor& r) { return sum(q) + sum(r); }, p,
        permute(p, {1, 0}));
  };
  EXPECT_EQ(error_of(operands, {x}),
            "region g: operands 0 and 1 share storage: expected storage of its own: copy one of "
            "them with clone(), got the same storage");
  const auto copied = [](const Tensor& p) {
    const auto [a, b] = invoke(
        {.name = "g"},
        [](const Tensor& q) {
          const Tensor z = sin(q);
          return std::pair(z, z.clone());
        },
        p);
    return sum(a) + sum(b);
  };
  everywhere(copied, {x});
}

TEST(Region, A0_09_ABodyThatMutatesAnOperandIsRefusedAndLeavesNoTrace) {
  test::accumulate();
  const std::string refused =
      ": the body mutates what it is given: expected new values, returned from the body, got a "
      "write to an input of the region";
  const auto f = [&](const Tensor& x) {
    EXPECT_EQ(unplaced_text_of<MutationError>([&] {
                invoke(
                    {.name = "g"},
                    [](const Tensor& p) {
                      test::accumulate()(p * 2, p);
                      return p + 1;
                    },
                    x);
              }),
              "region g" + refused);
    EXPECT_EQ(unplaced_text_of<MutationError>([&] {
                cond(
                    greater(sum(x), 0),
                    [&] {
                      test::accumulate()(x * 2, x);
                      return x + 1;
                    },
                    [&] { return x + 2; });
              }),
              "cond then" + refused);
    return x * 2;
  };
  Engine engine(f);
  const std::vector<Tensor> inputs{numbers({1, 2})};
  const ir::Graph graph = traced(f, inputs);
  EXPECT_EQ(nodes_of(graph, "mul").size(), 1u);
  EXPECT_EQ(nodes_of(graph, "invoke").size() + nodes_of(graph, "cond").size(), 0u);
  EXPECT_TRUE(graph.write_backs().empty());
  EXPECT_THAT(engine.run(inputs)[0].to_doubles(), ElementsAre(2, 4));
}

TEST(Region, ABodyMayMutateWhatItComputed) {
  test::accumulate();
  const auto f = [](const Tensor& x, const Tensor& n) {
    using State = std::pair<Tensor, Tensor>;
    return while_loop(
        State(x, n), [](const State& s) { return greater(s.second, 0); },
        [](const State& s) {
          const Tensor total = s.first * 2;
          test::accumulate()(s.first, total);
          return State(total, s.second - 1);
        });
  };
  EXPECT_THAT(everywhere(f, {numbers({1, 2}), Tensor::scalar_int(i64, 3)})[0].to_doubles(),
              ElementsAre(27, 54));
}

TEST(Region, A0_10_WhatTheBodyKeepsIsAFurtherResultWhereThatIsPermitted) {
  const auto with = [](bool permitted) {
    return [permitted](const Tensor& x) {
      std::vector<Tensor> kept;
      const Tensor result = invoke(
          {.name = "g", .allow_side_effects = permitted},
          [&](const Tensor& p) {
            const Tensor o = sin(p);
            kept.push_back(o);
            return cos(o);
          },
          x);
      return result + kept[0];
    };
  };
  const ir::Graph graph = traced(with(true), {numbers({1, 2})});
  const auto call = nodes_of(graph, "invoke")[0];
  EXPECT_EQ(output_ops(call->graph("body")), (Wanted{"cos", "sin"}));
  EXPECT_EQ(nodes_of(graph, "add")[0]->input(1), call->value(1));
  everywhere(with(true), {numbers({1, 2})});
  Engine refused(with(false));
  EXPECT_EQ(unplaced_text_of<SideEffectError>([&] { refused.run({numbers({1, 2})}); }),
            "region g: the body keeps a tensor that it does not return: expected no handle of the "
            "body's values outside its return value, got sin: f32[s0]");
}

TEST(Region, A0_12_CapturedValuesFollowTheArgumentsInOrderOfFirstUse) {
  const auto f = [](const Tensor& x, const Tensor& y, const Tensor& c1, const Tensor& c2) {
    return invoke(
        {},
        [&](const Tensor& p, const Tensor& q) {
          const Tensor first = p * c2;
          return first + q * c1;
        },
        x, y);
  };
  const std::vector<Tensor> inputs{numbers({1}), numbers({2}), numbers({3}), numbers({4})};
  const ir::Graph graph = traced(f, inputs);
  const auto call = nodes_of(graph, "invoke")[0];
  const std::vector<ir::Value> operands(call->inputs().begin(), call->inputs().end());
  EXPECT_EQ(operands, (std::vector<ir::Value>{graph.inputs()[0], graph.inputs()[1],
                                              graph.inputs()[3], graph.inputs()[2]}));
  everywhere(f, inputs);
}

TEST(Region, A0_14_UnusedArgumentsAreInputsOnlyWhereTheyAreForced) {
  const auto with = [](bool keep) {
    return [keep](const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& d) {
      return invoke(
          {.keep_unused = keep},
          [](const Tensor&, const Tensor& q, const Tensor&, const Tensor& s) { return q - s; }, a,
          b, c, d);
    };
  };
  const std::vector<Tensor> inputs{numbers({1}), numbers({2}), numbers({3}), numbers({4})};
  const auto operands_of = [&](bool keep) {
    Wanted names;
    const ir::Graph graph = traced(with(keep), inputs);
    for (const ir::Value& operand : nodes_of(graph, "invoke")[0]->inputs())
      names.push_back(operand.name());
    return names;
  };
  EXPECT_EQ(operands_of(true), (Wanted{"%input0", "%input1", "%input2", "%input3"}));
  EXPECT_EQ(operands_of(false), (Wanted{"%input1", "%input3"}));
  EXPECT_EQ(everywhere(with(true), inputs)[0].to_doubles(), std::vector<double>{-2});
  EXPECT_EQ(everywhere(with(false), inputs)[0].to_doubles(), std::vector<double>{-2});
}

TEST(Region, A0_14_AReturnedOperandIsAViewOfItWhereThatIsAllowed) {
  const auto f = [](const Tensor& x) {
    const Tensor y = invoke({.strict = false}, [](const Tensor& p) { return p; }, x);
    EXPECT_NE(y.impl(), x.impl());
    return y + x;
  };
  const ir::Graph graph = traced(f, {numbers({1, 2})});
  const auto call = nodes_of(graph, "invoke")[0];
  EXPECT_EQ(output_ops(call->graph("body")), Wanted{"alias"});
  EXPECT_EQ(call->output().storage, graph.inputs()[0].meta().storage);
  everywhere(f, {numbers({1, 2})});
}

TEST(Region, A0_15_OneBodyIsInstalledOnceAndEachCallHasItsOwnObject) {
  const auto f = [](const Tensor& x, const Tensor& y) {
    const auto body = [](const Tensor& p) { return Foo{sin(p), cos(p)}; };
    const Foo one = invoke({.name = "g"}, body, x);
    const Foo two = invoke({.name = "g"}, body, y);
    EXPECT_NE(one.a.impl(), two.a.impl());
    return one.a * two.b;
  };
  const std::vector<Tensor> inputs{ramp({4}), ramp({4}, 1)};
  Engine engine([](const Tensor& x) {
    const auto body = [](const Tensor& p) { return Foo{sin(p), cos(p)}; };
    return invoke({.name = "g"}, body, x).a * invoke({.name = "g"}, body, x + 1).b;
  });
  const std::string text = engine.graph_text(std::vector<Tensor>{ramp({4})}, false);
  EXPECT_EQ(text.find("graph @g("), text.rfind("graph @g")) << text;
  EXPECT_EQ(nodes_of(ir::parse(text), "invoke").size(), 2u);
  everywhere(f, inputs);
}

TEST(Region, A0_16_ASymbolicSizeIsAResultAndAStaticOneIsNot) {
  const auto f = [](const Tensor& x) {
    const auto [twice, y] =
        invoke({}, [](const Tensor& p) { return std::pair(p.size(0) * 2, p + 1); }, x);
    EXPECT_EQ(twice.to_string(), "2*s0");
    return concat({y, y}, 0) * expand(cast(size_tensor(twice), f32), {twice});
  };
  EXPECT_EQ(nodes_of(traced(f, {ramp({8})}), "invoke")[0]->outputs().size(), 2u);
  everywhere(f, {ramp({8})});
  SymInt host;
  const Tensor captured = ramp({8});
  const auto g = [&](const Tensor& x) {
    const auto [twice, y] =
        invoke({}, [&](const Tensor& p) { return std::pair(captured.size(0) * 2, p + 1); }, x);
    host = twice;
    return y;
  };
  EXPECT_EQ(nodes_of(traced(g, {ramp({3})}), "invoke")[0]->outputs().size(), 1u);
  EXPECT_EQ(host.value(), 16);
}

TEST(Region, A0_18_BranchesOfDifferentStructureAreRefused) {
  const auto f = [](const Tensor& x) {
    return cond(
        greater(sum(x), 0), [&] { return std::vector<Tensor>{x + 1}; },
        [&] { return std::vector<Tensor>{x, x + 2}; })[0];
  };
  Engine engine(f);
  EXPECT_EQ(unplaced_text_of<StructureError>([&] { engine.run({numbers({1, 2})}); }),
            "cond: the bodies return different structures: expected [tensor], got [tensor, "
            "tensor]");
  const auto constants = [](const Tensor& x) {
    return cond(
               greater(sum(x), 0), [&] { return std::pair(x + 1, 3); },
               [&] { return std::pair(x + 2, 4); })
        .first;
  };
  Engine other(constants);
  EXPECT_EQ(unplaced_text_of<StructureError>([&] { other.run({numbers({1, 2})}); }),
            "cond: the bodies return different structures: expected (tensor, 3), got (tensor, 4)");
}

TEST(Region, A0_18_BranchesShareOneSignature) {
  const auto f = [](const Tensor& p, const Tensor& a, const Tensor& b, const Tensor& c,
                    const Tensor& d) {
    return cond(p, [&] { return d * c - b; }, [&] { return a + c + d; });
  };
  const std::vector<Tensor> inputs{flag(true), numbers({1}), numbers({2}), numbers({3}),
                                   numbers({4})};
  const ir::Graph graph = traced(f, inputs);
  const auto call = nodes_of(graph, "cond")[0];
  // Both use c and d; only the first uses b, only the second a.
  const std::vector<ir::Value> operands(call->inputs().begin() + 1, call->inputs().end());
  EXPECT_EQ(operands, (std::vector<ir::Value>{graph.inputs()[3], graph.inputs()[4],
                                              graph.inputs()[2], graph.inputs()[1]}));
  EXPECT_EQ(call->graph("then").inputs().size(), 4u);
  EXPECT_EQ(call->graph("else").inputs().size(), 4u);
  everywhere(f, inputs);
}

TEST(Region, S0_8_ACapturedValueThatIsOnlyReturnedIsAnInputAndAResult) {
  const auto f = [](const Tensor& x, const Tensor& c) {
    const auto [a, b] =
        invoke({.strict = false}, [&](const Tensor& p) { return std::pair(sin(p), c); }, x);
    return a * b + c;
  };
  const ir::Graph graph = traced(f, {numbers({1}), numbers({2})});
  const auto call = nodes_of(graph, "invoke")[0];
  EXPECT_EQ(call->inputs().size(), 2u);
  EXPECT_EQ(call->outputs().size(), 2u);
  EXPECT_EQ(nodes_of(graph, "add")[0]->input(1), graph.inputs()[1]);
  everywhere(f, {numbers({1}), numbers({2})});
}

TEST(Region, S0_18_AFailedBodyLeavesTheTraceAsItWas) {
  const Tensor weight = ramp({3});
  const auto f = [&](const Tensor& x) {
    const Tensor y = x + 1;
    EXPECT_THROW(
        invoke(
            {.name = "g"},
            [&](const Tensor& p) { return p * weight + reshape(p, std::vector<SymInt>{7}); }, y),
        ShapeError);
    return y * 2;
  };
  Engine engine(f);
  const std::vector<Tensor> inputs{ramp({3})};
  EXPECT_EQ(engine.graph_text(inputs, false),
            "graph @main(%input0: f32[s0]) {\n  %v0 = add(%input0, 1.0: f32)\n  %v1 = mul(%v0, "
            "2.0: f32)\n"
            "  return %v1\n}\n");
}

TEST(Region, S0_18_TheErrorNamesTheRegionAndTheCause) {
  Engine engine([](const Tensor& x) {
    return invoke(
        {.name = "outer"},
        [](const Tensor& p) {
          return invoke({.name = "inner"}, [](const Tensor& q) { return permute(q, {0, 0}); }, p);
        },
        x);
  });
  const std::string text = unplaced_text_of<ShapeError>([&] { engine.run({ramp({2, 3})}); });
  EXPECT_TRUE(text.starts_with("region outer: region inner: permute: ")) << text;
}

TEST(Region, S0_18_ErrorsOfEveryKindNameTheRegion) {
  const auto failing = [](const auto& fail) {
    return Engine([fail](const Tensor& x) {
      return while_loop(
          x, [](const Tensor& y) { return less(sum(y), 1.0f); },
          [fail](const Tensor& y) {
            fail();
            return y;
          });
    });
  };
  const std::vector<Tensor> inputs{ramp({2})};
  Engine options = failing([] { throw OptionError({.what = "mine"}); });
  EXPECT_EQ(unplaced_text_of<OptionError>([&] { options.run(inputs); }), "while_loop body: mine");
  Engine cycle = failing([] { throw CycleError({.what = "mine"}); });
  EXPECT_EQ(unplaced_text_of<CycleError>([&] { cycle.run(inputs); }), "while_loop body: mine");
  Engine lost = failing([] { throw DeviceLost({.what = "mine"}); });
  EXPECT_EQ(unplaced_text_of<DeviceLost>([&] { lost.run(inputs); }), "while_loop body: mine");
  Engine custom = failing([] { throw CustomOpError({.what = "mine"}); });
  EXPECT_EQ(unplaced_text_of<CustomOpError>([&] { custom.run(inputs); }), "while_loop body: mine");
}

TEST(Region, S0_18_AnExceptionOfTheHostIsTheCauseOfATraceError) {
  struct Mine : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  Engine engine([](const Tensor& x) {
    return invoke({.name = "g"}, [](const Tensor&) -> Tensor { throw Mine("mine"); }, x);
  });
  try {
    engine.run({ramp({2})});
    FAIL() << "no error";
  } catch (const TraceError& error) {
    EXPECT_EQ(error.parts().what, "region g: mine");
    EXPECT_THAT(error.where(), ::testing::HasSubstr("region_test.cpp:"));
    EXPECT_THROW(std::rethrow_if_nested(error), Mine);
  }
}

// D1, S4-26: an order edge keeps nothing alive, whatever body it leads from.
TEST(Region, OrderFromABodyOntoAnOuterValueIsOrderOfTheCall) {
  const auto branch = [](const Tensor& p, const Tensor& x) {
    const Tensor first = cumsum(x, 0);
    return cond(p, [&] { return after({first}, [&] { return sin(x); }); }, [&] { return cos(x); });
  };
  const auto nested = [](const Tensor& p, const Tensor& x) {
    const Tensor first = cumsum(x, 0);
    return invoke(
        {},
        [&](const Tensor& y) {
          return cond(
              p, [&] { return after({first, y}, [&] { return sin(y); }); }, [&] { return y; });
        },
        x);
  };
  const std::vector<Tensor> inputs{flag(true), ramp({4})};
  const auto check = [&](const auto& f, const char* op) {
    Engine engine(f);
    const ir::Graph before = ir::parse(engine.graph_text(inputs, false));
    const ir::NodePtr call = nodes_of(before, op)[0];
    const ir::Value first = nodes_of(before, "cumsum")[0]->value();
    EXPECT_EQ(call->inputs().size(), 2u);
    EXPECT_EQ(std::ranges::count(call->inputs(), first), 0);
    ASSERT_EQ(call->after().size(), 1u);
    EXPECT_EQ(call->after()[0], first);
    EXPECT_TRUE(nodes_of(ir::parse(engine.graph_text(inputs)), "cumsum").empty());
    everywhere(f, inputs);
  };
  check(branch, "cond");
  check(nested, "invoke");
}

TEST(Region, S0_21_NestedRegionsNameTheOutermostCall) {
  const auto f = [](const Tensor& x) {
    const Foo foo = invoke(
        {.name = "outer"},
        [](const Tensor& p) {
          Foo made =
              invoke({.name = "inner"}, [](const Tensor& q) { return Foo{sin(q), cos(q)}; }, p);
          return made;
        },
        x);
    return foo.a - foo.b;
  };
  const ir::Graph graph = traced(f, {numbers({1, 2})});
  const auto calls = nodes_of(graph, "invoke");
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(nodes_of(graph, "sub")[0]->input(0), calls[0]->value(0));
  EXPECT_EQ(output_ops(calls[0]->graph("body")), (Wanted{"invoke", "invoke"}));
  everywhere(f, {numbers({1, 2})});
}

TEST(Region, ParametersAreCapturedThroughEveryLevel) {
  const Tensor weight = ramp({3, 3});
  const auto f = [&](const Tensor& x) {
    return invoke(
        {},
        [&](const Tensor& p) {
          return invoke({}, [&](const Tensor& q) { return matmul(q, weight); }, p) + weight;
        },
        x);
  };
  everywhere(f, {ramp({3, 3}, 1)});
}

}  // namespace
}  // namespace heddle::testing
