// What goes in and out of the parts of a plan that are captured.
#include <gmock/gmock.h>

#include "tests/cuda/capture_support.h"

namespace heddle::testing {
namespace {

using test::Json;

TEST_F(CudaCapture, A3_29_30_SmallPartsAreQueuedWithoutAGraphAndMapsNameArguments) {
  const std::string text =
      "graph @main(%x: f32[s0], %y: f32[s0]) {\n"
      "  %a = exp(%x)\n"
      "  %b = add(%a, %y)\n"
      "  %h = cuda_ct::host(%b)\n"
      "  %o = sin(%h)\n"
      "  return %o, %a\n"
      "}\n";
  Captured captured(text);
  EXPECT_EQ(captured.parts(), "[a,b] [h]! [o]");
  EXPECT_EQ(captured.part(0)["arguments"], Json::array({0, 1}));
  EXPECT_EQ(captured.part(2)["arguments"], Json::array({Json()}));
  EXPECT_EQ(captured.part(2)["results"], Json::array({0}));
  EXPECT_FALSE(captured.part(1).contains("arguments")) << "a part in no graph has no map";
  EXPECT_EQ(captured.steady(), R"(
s0 graph
  0 launch exp
  1 launch add after 0
s0 launch host
s0 graph
  0 launch sin
s0 synchronize
)");
  const Variable least("HEDDLE_GRAPH_MIN_KERNELS", "2");
  Captured larger(text);
  EXPECT_EQ(larger.parts(), "[a,b] [h]! [o]!") << "as many parts, fewer graphs";
  EXPECT_EQ(larger.part(2)["reason"], "");
  EXPECT_EQ(larger.steady(), R"(
s0 graph
  0 launch exp
  1 launch add after 0
s0 launch host
s0 launch sin
s0 synchronize
)");
  EXPECT_EQ(larger.stats().graphs, 1u);
}

// S3-29: a part takes the sizes that its kernels and inputs have, by name.
TEST_F(CudaCapture, S3_29_SizesOfAPartAreSorted) {
  Captured captured(
      "graph @main(%x: f32[s2, 4], %y: f32[s0], %z: f32[4]) {\n"
      "  %a = reduce_sum(%x) {axes = [1]}\n"
      "  %b = exp(%y)\n"
      "  %h = cuda_ct::host(%z)\n"
      "  %c = add(%h, %z)\n"
      "  return %a, %b, %c\n"
      "}\n");
  EXPECT_EQ(captured.parts(), "[h]! [a,b,c]");
  EXPECT_EQ(captured.part(0)["sizes"], Json::array());
  EXPECT_EQ(captured.part(1)["sizes"], Json::array({"s0", "s2"}));
}

// S3-32: bytes that one part is the last to read are taken by the next; graphs take no more memory than streams.
TEST_F(CudaCapture, S3_32_InputsOfAPartDieInIt) {
  const std::string text =
      "graph @main(%x: f32[512]) {\n"
      "  %a = cumsum(%x) {axis = 0}\n"
      "  %h = cuda_ct::host(%a)\n"
      "  %b = cumsum(%h) {axis = 0}\n"
      "  %c = cumsum(%b) {axis = 0, reverse = true}\n"
      "  %g = cuda_ct::host(%c)\n"
      "  %d = cumsum(%g) {axis = 0}\n"
      "  return %d\n"
      "}\n";
  Captured graphs(text);
  Captured streams(text, on_cuda(1, false));
  EXPECT_EQ(graphs.parts(), "[a] [h]! [b,c] [g]! [d]");
  EXPECT_EQ(graphs.part(2)["inputs"], Json::array({"h"}));
  EXPECT_EQ(graphs.part(2)["outputs"], Json::array({"c"})) << "%h has died there";
  EXPECT_EQ(graphs.peak_bytes(), 2 * 512 * 4);
  EXPECT_EQ(streams.peak_bytes(), graphs.peak_bytes());
  graphs.steady();
  EXPECT_EQ(graphs.stats().arena_peak_bytes, static_cast<std::uint64_t>(graphs.peak_bytes()));
}

// S3-32: a donated argument ends in the part that reads it last, and is not given back by it; S3-28: others are.
TEST_F(CudaCapture, S3_32_DonatedArgumentsEndInsideParts) {
  for (const bool donated : {true, false}) {
    const Captured captured(std::string("graph @main(%x: ") + (donated ? "donated " : "") +
                            "f32[8]) {\n"
                            "  %a = exp(%x)\n"
                            "  %h = cuda_ct::host(%a)\n"
                            "  %o = add(%h, %x)\n"
                            "  %g = cuda_ct::host(%o)\n"
                            "  %r = sin(%g)\n"
                            "  return %r\n"
                            "}\n");
    EXPECT_EQ(captured.parts(), "[a] [h]! [o] [g]! [r]");
    EXPECT_EQ(captured.part(0)["outputs"], Json::array({"x", "a"})) << "it is read again";
    EXPECT_EQ(captured.part(2)["inputs"], Json::array({"x", "h"}));
    EXPECT_EQ(captured.part(2)["outputs"], donated ? Json::array({"o"}) : Json::array({"x", "o"}));
  }
}

// S3-26, S4-31: who is only waited for is nothing that a part takes; the wait holds all the same.
TEST_F(CudaCapture, S4_31_WeakEdgesAreNoInputsOfParts) {
  for (const int streams : {1, 3}) {
    Captured captured(
        "graph @main(%x: f32[8], %y: f32[8]) {\n"
        "  %a = exp(%x)\n"
        "  %h = cuda_ct::host(%y) after(%a)\n"
        "  %o = sin(%y) after(%h)\n"
        "  %r = cos(%o) after(%a)\n"
        "  return %r, %a, %h\n"
        "}\n",
        on_cuda(streams, true));
    EXPECT_EQ(captured.parts(), "[a] [h]! [o,r]");
    EXPECT_EQ(captured.part(0)["inputs"], Json::array({"x"}));
    EXPECT_EQ(captured.part(1)["inputs"], Json::array({"y"}));
    EXPECT_EQ(captured.part(2)["inputs"], Json::array({"y"}));
    EXPECT_EQ(captured.part(2)["arguments"], Json::array({1}));
    EXPECT_EQ(captured.steady(), R"(
s0 graph
  0 launch exp
s0 launch host
s0 graph
  0 launch sin
  1 launch cos after 0
s0 synchronize
)");
  }
}

// A region's result feeds an op that writes; its results are taken in two parts.
TEST_F(CudaCapture, AX_03_ARegionIntoAWritingOpWhoseResultsArePartedByASplit) {
  Captured captured(
      "graph @main(%x: f32[8], %counts: f32[8]) {\n"
      "  %m = mul(%x, %x) @{compile = \"r\"}\n"
      "  %s = sin(%m) @{compile = \"r\"}\n"
      "  %u, %v, %new = cuda_ct::route(%s, %counts)\n"
      "  %a = exp(%u)\n"
      "  %h = cuda_ct::host(%a)\n"
      "  %b = add(%h, %v)\n"
      "  write_back %counts = %new\n"
      "  return %b\n"
      "}\n",
      on_cuda(1, true), true);
  EXPECT_EQ(captured.parts(), "[m+s,u,a] [h]! [b]");
  EXPECT_EQ(captured.part(0)["inputs"], Json::array({"x", "counts"}));
  EXPECT_EQ(captured.part(0)["outputs"], Json::array({"x", "counts", "v", "a"}));
  EXPECT_EQ(captured.part(1)["inputs"], Json::array({"a"}));
  EXPECT_EQ(captured.part(2)["inputs"], Json::array({"v", "h"}));
  EXPECT_EQ(captured.steady(), R"(
s0 graph
  0 launch mul_sin
  1 launch route after 0
  2 launch exp after 1
s0 launch host
s0 graph
  0 launch add
s0 synchronize
)");
  EXPECT_EQ(captured.stats().graphs, 2u);
}

}  // namespace
}  // namespace heddle::testing
