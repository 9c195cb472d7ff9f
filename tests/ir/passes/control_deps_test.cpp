#include "ir/passes/control_deps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "heddle/error.h"
#include "ir/passes/pipeline.h"
#include "ir/text.h"
#include "ir/verifier.h"

namespace heddle::ir {
namespace {

using ::testing::HasSubstr;

std::string with(const char* text, const ControlDeps& deps) {
  const Graph graph = control_deps(parse(text), deps);
  verify(graph, Stage::Functional);
  return print(graph);
}

template <typename E>
std::string error_of(const char* text, const ControlDeps& deps) {
  try {
    control_deps(parse(text), deps);
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "no such error";
  return {};
}

constexpr const char* kThree = R"(graph @main(%a: f32[4, 4], %b: f32[4, 4]) {
  %add = add(%a, 1.0: f32)
  %mm = matmul(%b, %b)
  %mul = mul(%add, 2.0: f32)
  return %mm, %mul
}
)";

// A4-01
TEST(ControlDeps, AddsTheEdgesAndKeepsNames) {
  EXPECT_EQ(with(kThree, {{"mm", {"add"}}, {"mul", {"mm"}}}),
            R"(graph @main(%a: f32[4, 4], %b: f32[4, 4]) {
  %add = add(%a, 1.0: f32)
  %mm = matmul(%b, %b) after(%add)
  %mul = mul(%add, 2.0: f32) after(%mm)
  return %mm, %mul
}
)");
}

// A4-16: types, strides, annotations and storages stay; nothing is inferred anew.
TEST(ControlDeps, NodesKeepTheirMetadata) {
  const Graph before = parse(R"(graph @main(%x: f32[4, 6]) {
  %a = exp(%x)
  %p = permute(%x) {perm = [1, 0]} @{stage = 2}
  %m = matmul(%p, %x)
  return %a, %p, %m
}
)");
  const Graph after = control_deps(before, {{"p", {"a"}}});
  ASSERT_EQ(after.nodes().size(), before.nodes().size());
  for (std::size_t k = 0; k < before.nodes().size(); ++k) {
    const Node& old = *before.nodes()[k];
    const Node& now = *after.nodes()[k];
    EXPECT_EQ(now.name(), old.name());
    EXPECT_EQ(now.output().to_string(), old.output().to_string());
    EXPECT_EQ(now.annotations(), old.annotations());
    EXPECT_EQ(now.location().to_string(), old.location().to_string());
  }
  const Node& waits = *after.nodes()[2];
  EXPECT_EQ(waits.output().strides, before.nodes()[2]->output().strides);
  EXPECT_EQ(waits.output().storage, waits.input(0).meta().storage);
}

// A4-04: whichever key comes first, in one call or in two.
TEST(ControlDeps, OrderOfKeysDoesNotMatter) {
  const char* chain = R"(graph @main(%x: f32[4]) {
  %n1 = exp(%x)
  %n2 = neg(%x)
  %n3 = log(%x)
  return %n1, %n2, %n3
}
)";
  const std::string both = with(chain, {{"n2", {"n1"}}, {"n3", {"n2"}}});
  EXPECT_THAT(both, HasSubstr("%n2 = neg(%x) after(%n1)\n  %n3 = log(%x) after(%n2)"));
  EXPECT_EQ(print(control_deps(control_deps(parse(chain), {{"n3", {"n2"}}}), {{"n2", {"n1"}}})),
            both);
  EXPECT_EQ(print(control_deps(control_deps(parse(chain), {{"n2", {"n1"}}}), {{"n3", {"n2"}}})),
            both);
}

// A4-20
TEST(ControlDeps, NothingToAddIsTheSameGraph) {
  const Graph graph = parse(kThree);
  EXPECT_TRUE(control_deps(graph, {}).identical(graph));
  EXPECT_TRUE(control_deps(graph, {{"mm", {}}, {"mul", {}}}).identical(graph));
  const Graph once = control_deps(graph, {{"mm", {"add"}}, {"mul", {}}});
  EXPECT_EQ(once.nodes().back()->after().size(), 0u);
  EXPECT_TRUE(control_deps(once, {{"mm", {"add"}}}).identical(once));
}

// S4-8: what must come first moves up, and nothing else moves.
TEST(ControlDeps, NodesAreSortedWhereTheyHaveTo) {
  EXPECT_EQ(with(kThree, {{"add", {"mm"}}}), R"(graph @main(%a: f32[4, 4], %b: f32[4, 4]) {
  %mm = matmul(%b, %b)
  %add = add(%a, 1.0: f32) after(%mm)
  %mul = mul(%add, 2.0: f32)
  return %mm, %mul
}
)");
}

// Any of a node's results names it; all its dependencies are one edge.
TEST(ControlDeps, ResultsNameTheirNode) {
  const char* text = R"(graph @main(%x: f32[4]) {
  %v, %i = topk(%x) {k = 2}
  %n = neg(%x)
  return %v, %i, %n
}
)";
  EXPECT_THAT(with(text, {{"n", {"v", "i"}}}), HasSubstr("%n = neg(%x) after(%i)\n"));
  EXPECT_THAT(with(text, {{"%i", {"%n"}}}), HasSubstr("after(%n)"));
}

TEST(ControlDeps, InputsAreThereAnyway) {
  EXPECT_THAT(with(kThree, {{"mm", {"a"}}}), HasSubstr("%mm = matmul(%b, %b) after(%a)"));
  EXPECT_THAT(error_of<ArgumentError>(kThree, {{"a", {"mm"}}}), HasSubstr("got input %a"));
}

TEST(ControlDeps, UnknownNodes) {
  EXPECT_THAT(error_of<ArgumentError>(kThree, {{"mn", {"add"}}}),
              ::testing::AllOf(HasSubstr("such as mm"), HasSubstr("got mn")));
  EXPECT_THAT(error_of<ArgumentError>(kThree, {{"mm", {"gone"}}}), HasSubstr("got gone"));
  EXPECT_THAT(error_of<ArgumentError>(kThree, {{"mm", {"another_one"}}}),
              HasSubstr("expected a node of the graph, got another_one"));
  EXPECT_THAT(error_of<ArgumentError>(kThree, {{"gone", {}}}), HasSubstr("got gone"));
  EXPECT_THAT(error_of<ArgumentError>(kThree, {{"mm", {""}}}),
              HasSubstr("control_deps: name of a node"));
}

// A node that a pass has removed is unknown too.
TEST(ControlDeps, ErasedNodes) {
  const std::string_view dce[] = {"dce"};
  const Graph graph = run_passes(parse("graph @main(%x: f32[4]) {\n  %dead = exp(%x)\n"
                                       "  %live = neg(%x)\n  return %live\n}\n"),
                                 dce);
  EXPECT_THROW(control_deps(graph, {{"live", {"dead"}}}), ArgumentError);
}

TEST(ControlDeps, Cycles) {
  EXPECT_THAT(error_of<CycleError>(kThree, {{"add", {"mul"}}}),
              ::testing::AnyOf(HasSubstr("%add before %mul before %add"),
                               HasSubstr("%mul before %add before %mul")));
  EXPECT_THAT(error_of<CycleError>(kThree, {{"mm", {"add"}}, {"add", {"mm"}}}),
              ::testing::AnyOf(HasSubstr("%add before %mm before %add"),
                               HasSubstr("%mm before %add before %mm")));
  EXPECT_THAT(error_of<CycleError>(kThree, {{"mm", {"mm"}}}), HasSubstr("%mm before %mm"));
}

// A state that is written, and what reads it before, keep their order.
TEST(ControlDeps, WriteBacksAndAssumptionsStay) {
  const char* text = R"(graph @main(%x: f32[s0], %s: f32[s0]) {
  %a = exp(%x)
  %b = add(%s, %a)
  write_back %s = %b
  return %a
}
)";
  EXPECT_THAT(with(text, {{"a", {"s"}}}), HasSubstr("write_back %s = %b\n  return %a"));
}

}  // namespace
}  // namespace heddle::ir
