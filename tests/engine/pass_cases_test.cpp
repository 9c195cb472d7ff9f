// Acceptance cases of the invariants of passes: what is launched and copied when the whole pipeline has run.
#include <gmock/gmock.h>

#include "tests/engine/case_graph.h"

namespace heddle::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string graph(const std::string& body, const std::string& inputs = "%x: f32[8]") {
  return "graph @main(" + inputs + ") {\n" + body + "}\n";
}

TEST(PassCases, A2_01_AReturnedCloneOfAnInputIsMemoryOfItsOwn) {
  CaseGraph made(graph("  %y = clone(%x)\n  return %y\n"));
  EXPECT_EQ(made.launched(), "y");
}

TEST(PassCases, A2_02_ACloneThatIsReturnedAndWrittenBackStays) {
  CaseGraph made(graph("  %e = neg(%x)\n  %y = clone(%e)\n  write_back %x = %e\n  return %y\n"));
  made.launched();
  ASSERT_EQ(made.outputs().size(), 1u);
  CaseGraph same(graph("  %y = clone(%x)\n  write_back %x = %y\n  return %y\n"));
  EXPECT_THAT(same.launched(), HasSubstr("y"));
}

TEST(PassCases, A2_03_ACloneInsideGoes) {
  CaseGraph made(graph("  %y = clone(%x)\n  %z = mul(%y, 2.0: f32)\n  return %z\n"));
  EXPECT_EQ(made.launched(), "z");
}

TEST(PassCases, A2_04_TwoOutputsAreTwoStorages) {
  CaseGraph made(graph("  %a = add(%x, 1.0: f32)\n  %b = clone(%a)\n  return %a, %b\n"));
  made.launched();
  EXPECT_THAT(made.optimised(), HasSubstr("clone"));
  EXPECT_NE(made.outputs()[0].data(), made.outputs()[1].data());
}

TEST(PassCases, A2_06_WhatDoesNothingVanishes) {
  CaseGraph made(
      graph("  %a = slice(%x) {start = [0, 0], limit = [s0, 4], stride = [1, 1]}\n"
            "  %b = concat(%a) {axis = 0}\n"
            "  %c = expand(%b) {sizes = [s0, 4]}\n"
            "  %d = pad(%c, 0.0: f32) {low = [0, 0], high = [0, 0]}\n"
            "  %e = convert(%d) {dtype = f32}\n"
            "  %f = reshape(%e) {sizes = [s0, 4]}\n"
            "  %g = neg(%f)\n"
            "  %h = floor(%i)\n"
            "  %j = pow(%h, 1: i32)\n"
            "  %k = neg(%j)\n"
            "  return %g, %k\n",
            "%x: f32[s0, 4], %i: i32[4]"));
  EXPECT_EQ(made.launched(), "g | k");
}

const std::string kWithIndices = "%x: f32[8], %v: f32[2], %i: i64[2]";

TEST(PassCases, A2_11_AnUpdateIsInPlaceWhereNobodyCanTell) {
  const auto counts = [](const std::string& body) {
    CaseGraph made(graph(body, kWithIndices));
    made.launched();
    const EngineStats stats = made.engine().stats();
    return std::pair(stats.in_place, stats.missed_in_place);
  };
  const auto missed = std::pair<std::uint64_t, std::uint64_t>(0, 1);
  const auto in_place = std::pair<std::uint64_t, std::uint64_t>(1, 0);
  const std::string put = "  %u = index_put(%t, %v, %i)\n";
  EXPECT_EQ(counts("  %t = cos(%x)\n" + put + "  return %u, %t\n"), missed) << "(i)";
  EXPECT_EQ(counts("  %t = cos(%x)\n  %w = alias(%t)\n  %u = index_put(%w, %v, %i)\n"
                   "  %c = cos(%t)\n  %r = add(%u, %c)\n  return %r\n"),
            missed)
      << "(ii)";
  EXPECT_EQ(counts("  %u = index_put(%x, %v, %i)\n  return %u\n"), missed) << "(iii)";
  EXPECT_EQ(counts("  %t = cos(%x)\n" + put + "  return %u\n"), in_place) << "(iv)";
  EXPECT_EQ(counts("  %u = index_put(%x, %v, %i)\n  write_back %x = %u\n  return %v\n"), in_place)
      << "(v)";
}

// (v): the write-back is gone too: the update is all that is launched besides the copy of an output.
TEST(PassCases, A2_11_AWriteBackOfAnUpdateInPlaceIsNoCopy) {
  CaseGraph made(
      graph("  %u = index_put(%x, %v, %i)\n  %n = neg(%v)\n  write_back %x = %u\n"
            "  return %n\n",
            kWithIndices));
  made.launched();
  for (const auto& kernel : made.plan()["kernels"]) EXPECT_NE(kernel["kind"], "copy");
  EXPECT_EQ(made.engine().stats().in_place, 1u);
}

TEST(PassCases, A2_22_AMutationBeforeTheLastStageIsNamed) {
  GraphPass mutates{.name = "my-pass"};
  mutates.run = [](const std::string& text) {
    const std::size_t end = text.find('\n', text.find("index_put"));
    return text.substr(0, end) + " {in_place = [0]}" + text.substr(end);
  };
  EngineOptions options;
  options.passes = {mutates};
  CaseGraph made(graph("  %u = index_put(%x, %v, %i)\n  return %u\n", kWithIndices), options);
  try {
    made.plan();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("my-pass"));
    EXPECT_THAT(error.what(), HasSubstr("%u"));
  }
  CaseGraph writes(graph("  %n = neg(%x)\n  write_back %x = %n\n  return %n\n"));
  EXPECT_EQ(writes.launched().substr(0, 1), "n") << "a write-back at the end is none";
}

}  // namespace
}  // namespace heddle::testing
