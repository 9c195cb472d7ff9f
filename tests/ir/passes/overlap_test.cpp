// Hiding collectives behind computing nodes, and joining them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "heddle/error.h"
#include "ir/evaluate.h"
#include "ir/passes/overlap_collectives.h"
#include "ir/passes/pipeline.h"
#include "ir/text.h"
#include "ir/verifier.h"
#include "tests/support/collectives.h"

namespace heddle::testing {
namespace {

using ir::ControlDeps;
using ir::Graph;
using ir::OverlapLimits;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Graph parsed(const char* text) {
  register_collectives();
  return ir::parse(text);
}

ControlDeps found(const char* text, const OverlapLimits& limits = {}) {
  return ir::overlap_deps(ir::find_overlap(parsed(text), limits));
}

constexpr const char* kTwo = R"(graph @main(%x: f32[8], %y: f32[8], %a: f32[8, 8]) {
  %c1 = dist::start(%x)
  %w1 = dist::wait(%c1)
  %c2 = dist::start(%y)
  %w2 = dist::wait(%c2)
  %mmA = matmul(%a, %a)
  return %w1, %w2, %mmA
}
)";

// A4-21
TEST(Overlap, HiddenOnesGetTwoEdgesAndExposedOnesNone) {
  const ir::Overlap overlap = ir::find_overlap(parsed(kTwo));
  EXPECT_EQ(overlap.hidden.size(), 1u);
  EXPECT_EQ(overlap.exposed.size(), 1u);
  EXPECT_EQ(found(kTwo), (ControlDeps{{"mmA", {"c1"}}, {"w1", {"mmA"}}}));
}

// A4-21: of the edges between collectives, none stays.
TEST(Overlap, EdgesBetweenCollectivesAreDropped) {
  const ControlDeps all{{"mmA", {"c1", "w2"}}, {"w1", {"mmA", "c2"}}, {"w2", {"w1", "c1"}}};
  EXPECT_EQ(ir::without_collective_pairs(parsed(kTwo), all),
            (ControlDeps{{"mmA", {"c1", "w2"}}, {"w1", {"mmA"}}}));
}

TEST(Overlap, EachProductHidesOne) {
  EXPECT_EQ(found(R"(graph @main(%x: f32[8], %y: f32[8], %a: f32[8, 8]) {
  %c1 = dist::start(%x)
  %w1 = dist::wait(%c1)
  %c2 = dist::start(%y)
  %w2 = dist::wait(%c2)
  %m1 = matmul(%a, %a)
  %m2 = matmul(%m1, %a)
  return %w1, %w2, %m2
}
)"),
            (ControlDeps{{"m1", {"c1"}}, {"w1", {"m1"}}, {"m2", {"c2"}}, {"w2", {"m2"}}}));
}

constexpr const char* kLater = R"(graph @main(%x: f32[8], %a: f32[8, 8]) {
  %m1 = matmul(%a, %a)
  %m2 = matmul(%m1, %a)
  %m3 = matmul(%m2, %a)
  %c = dist::start(%x)
  %w = dist::wait(%c)
  return %m3, %w
}
)";

TEST(Overlap, StartsMoveUpOnlySoFar) {
  EXPECT_EQ(found(kLater), (ControlDeps{{"m1", {"c"}}, {"w", {"m1"}}}));
  EXPECT_EQ(found(kLater, {.max_compute_distance = 2}),
            (ControlDeps{{"m2", {"c"}}, {"w", {"m2"}}}));
  EXPECT_EQ(found(kLater, {.max_compute_distance = 0}), ControlDeps());
}

// While the wait for one is moved behind the product, the other is under way: 64 bytes.
TEST(Overlap, BytesInFlightAreLimited) {
  EXPECT_EQ(found(kTwo, {.max_bytes_in_flight = 64}),
            (ControlDeps{{"mmA", {"c1"}}, {"w1", {"mmA"}}}));
  EXPECT_EQ(found(kTwo, {.max_bytes_in_flight = 63}),
            (ControlDeps{{"mmA", {"c2"}}, {"w2", {"mmA"}}}));
  EXPECT_EQ(found(kTwo, {.max_bytes_in_flight = 31}), ControlDeps());
}

// The smaller of the number and the share of the peak holds. %n, of 4096 bytes, lives across the products.
TEST(Overlap, TheIncreaseOfMemoryIsLimited) {
  constexpr const char* kTight = R"(graph @main(%x: f32[1024], %a: f32[32, 32]) {
  %m1 = matmul(%a, %a)
  %m2 = matmul(%m1, %a)
  %c = dist::start(%x)
  %w = dist::wait(%c)
  return %m2, %w
}
)";
  EXPECT_EQ(found(kTight, {.max_memory_increase_share = 1}).size(), 2u);
  EXPECT_EQ(found(kTight, {.max_memory_increase = 0, .max_memory_increase_share = 1}).size(), 2u)
      << "the bytes of the results at the end are more than those in between";
  constexpr const char* kFull = R"(graph @main(%x: f32[1024], %a: f32[32, 32]) {
  %m1 = matmul(%a, %a)
  %m2 = matmul(%m1, %m1)
  %m3 = matmul(%m2, %m1)
  %s = reduce_sum(%m3) {axes = [0, 1]}
  %c = dist::start(%x)
  %t = dist::wait(%c)
  %u = reduce_sum(%t) {axes = [0]}
  return %s, %u
}
)";
  const auto deps = [&](std::int64_t bytes, double share) {
    return found(kFull, {.max_memory_increase = bytes, .max_memory_increase_share = share});
  };
  EXPECT_EQ(deps(1 << 20, 1), (ControlDeps{{"m1", {"c"}}, {"t", {"m1"}}}));
  EXPECT_EQ(deps(0, 1), ControlDeps());
  EXPECT_EQ(deps(1 << 20, 0), ControlDeps());
}

// What lies between may not be another start that is not hidden.
TEST(Overlap, PathsHoldNoOtherCollective) {
  EXPECT_EQ(found(R"(graph @main(%x: f32[8], %a: f32[8, 8]) {
  %m = matmul(%a, %a)
  %c1 = dist::start(%x)
  %w1 = dist::wait(%c1)
  %c2 = dist::start(%w1)
  %w2 = dist::wait(%c2)
  return %m, %w2
}
)"),
            (ControlDeps{{"m", {"c1"}}, {"w1", {"m"}}}));
}

TEST(Overlap, ACollectiveThatNothingWaitsForIsLeftAlone) {
  EXPECT_TRUE(ir::collectives_of(parsed(R"(graph @main(%x: f32[8]) {
  %c = dist::start(%x)
  %n = neg(%c)
  return %n
}
)"))
                  .empty());
}

// A chain in which each start reads what the wait before it gave.
TEST(Overlap, StartsAndWaitsAreToldApart) {
  const Graph graph = parsed(R"(graph @main(%x: f32[8]) {
  %c1 = dist::start(%x)
  %w1 = dist::wait(%c1)
  %c2 = dist::start(%w1)
  %w2 = dist::wait(%c2)
  return %w2
}
)");
  std::vector<std::string> names;
  for (const auto& [start, wait] : ir::collectives_of(graph)) {
    names.push_back(start->name());
    names.push_back(wait->name());
  }
  EXPECT_THAT(names, ElementsAre("c1", "w1", "c2", "w2"));
}

TEST(Overlap, IsNotInTheDefaultPipeline) {
  for (const std::string_view name : ir::default_pipeline())
    EXPECT_FALSE(name.ends_with("collectives")) << name;
}

constexpr const char* kBucket = R"(graph @main(%x: f32[2, 4], %y: f32[4], %a: f32[8, 8]) {
  %c1 = dist::start(%x) @{bucket = "B"}
  %w1 = dist::wait(%c1)
  %c2 = dist::start(%y) @{bucket = "B"}
  %w2 = dist::wait(%c2)
  %mmA = matmul(%a, %a)
  return %w1, %w2, %mmA
}
)";

// A4-22: edges found before move to the bucket; one from a member to another goes.
TEST(Buckets, EdgesMoveToTheBucket) {
  const Graph graph = parsed(kBucket);
  const ir::Bucketed bucketed = ir::join_buckets(graph);
  ir::verify(bucketed.graph, ir::Stage::Functional);
  EXPECT_EQ(bucketed.moved,
            (std::map<std::string, std::string>{
                {"c1", "B_start"}, {"c2", "B_start"}, {"w1", "B_wait"}, {"w2", "B_wait"}}));
  const ControlDeps before{{"mmA", {"c1"}}, {"w1", {"mmA"}}, {"c2", {"c1"}}, {"w2", {"w1"}}};
  const ControlDeps after = ir::move_deps(before, bucketed.moved);
  EXPECT_EQ(after, (ControlDeps{{"mmA", {"B_start"}}, {"B_wait", {"mmA"}}}));
  const std::string text = ir::print(ir::control_deps(bucketed.graph, after));
  EXPECT_THAT(text, HasSubstr("%mmA = matmul(%a, %a) after(%B_start)"));
  EXPECT_THAT(text, HasSubstr("%B_wait = dist::wait(%B_start) after(%mmA)"));
}

TEST(Buckets, ErasedNodesInTheMapAreAnError) {
  const ir::Bucketed bucketed = ir::join_buckets(parsed(kBucket));
  try {
    ir::control_deps(bucketed.graph, {{"mmA", {"c1"}}});
    FAIL();
  } catch (const ArgumentError& error) {
    EXPECT_THAT(error.what(), HasSubstr("got c1"));
  }
}

TEST(Buckets, ValuesAreThoseOfTheMembers) {
  const Graph graph = parsed(kBucket);
  std::vector<ir::Literal> inputs;
  for (const ir::Value input : graph.inputs()) {
    ir::Sizes sizes;
    for (const ir::SymExpr& size : input.meta().sizes) sizes.push_back(size.constant());
    inputs.emplace_back(DType::F32, sizes);
    for (std::int64_t k = 0; k < inputs.back().count(); ++k)
      inputs.back().set(k, static_cast<double>(k + 1));
  }
  const auto want = ir::evaluate(graph, inputs);
  const auto got = ir::evaluate(ir::bucket_collectives(graph), inputs);
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t k = 0; k < want.size(); ++k) {
    ASSERT_EQ(got[k].sizes(), want[k].sizes());
    for (std::int64_t j = 0; j < want[k].count(); ++j) EXPECT_EQ(got[k].at(j), want[k].at(j));
  }
}

TEST(Buckets, JoinedOnesAreHiddenTogether) {
  register_collectives();
  const std::string_view passes[] = {"bucket-collectives", "overlap-collectives"};
  const std::string text = ir::print(ir::run_passes(parsed(kBucket), passes));
  EXPECT_THAT(text, HasSubstr("matmul(%a, %a) after(%B_start)"));
  EXPECT_THAT(text, HasSubstr("dist::wait(%B_start) after(%mmA)"));
}

template <typename E>
std::string error_of_bucket(const char* body) {
  register_collectives();
  const std::string text =
      "graph @main(%x: f32[8], %y: f32[8], %h: f16[8]) {\n" + std::string(body) + "}\n";
  try {
    ir::bucket_collectives(ir::parse(text));
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "no such error";
  return {};
}

TEST(Buckets, MembersFitTogether) {
  EXPECT_THAT(error_of_bucket<ArgumentError>(R"(  %c1 = dist::start(%x) @{bucket = 0}
  %w1 = dist::wait(%c1)
  %c2 = dist::other(%y) @{bucket = 0}
  %w2 = dist::wait(%c2)
  return %w1, %w2
)"),
              ::testing::AllOf(HasSubstr("bucket 0 at %c2"), HasSubstr("of %c1"),
                               HasSubstr("got dist::other")));
  EXPECT_THAT(error_of_bucket<ArgumentError>(R"(  %c1 = dist::start(%x) @{bucket = 0}
  %w1 = dist::wait(%c1)
  %c2 = dist::start(%h) @{bucket = 0}
  %w2 = dist::wait(%c2)
  return %w1, %w2
)"),
              HasSubstr("elements of one dtype, got f16[8]"));
  EXPECT_THAT(error_of_bucket<ArgumentError>(R"(  %c1 = dist::halve(%x) @{bucket = 0}
  %w1 = dist::wait(%c1)
  %c2 = dist::halve(%y) @{bucket = 0}
  %w2 = dist::wait(%c2)
  return %w1, %w2
)"),
              HasSubstr("one result of the type of its operand"));
  EXPECT_THAT(error_of_bucket<ArgumentError>(R"(  %c1 = dist::start(%x) @{bucket = 0}
  %w1 = dist::wait(%c1)
  %c2 = dist::start(%y) @{bucket = 0}
  %w2 = dist::wait(%c2)
  %n = neg(%c2)
  return %w1, %w2, %n
)"),
              HasSubstr("a start that only its wait reads"));
}

TEST(Buckets, MembersThatNeedEachOtherAreACycle) {
  EXPECT_THAT(error_of_bucket<CycleError>(R"(  %c1 = dist::start(%x) @{bucket = 0}
  %w1 = dist::wait(%c1)
  %c2 = dist::start(%w1) @{bucket = 0}
  %w2 = dist::wait(%c2)
  return %w2
)"),
              HasSubstr("%w1 before %c2"));
}

}  // namespace
}  // namespace heddle::testing
