// Sizes that real arithmetic makes, as kernels compute them: on the CPU and on the device, what the evaluator gives.
#include <gtest/gtest.h>
#include <string>

#include "tests/cuda/support.h"

namespace heddle::testing {
namespace {

/// Elements are cut off or put before and after by every function of reals; a sign that is not known keeps them out of names.
std::string padded(const std::string& low, const std::string& high) {
  return "graph @main(%x: f32[s0, s1]) {\n  %v = const 7.0: f32\n"
         "  %p = pad(%x, %v) {low = [" +
         low + ", 0], high = [1, " + high +
         "], mode = \"constant\"}\n"
         "  %s = mul(%p, 2.0: f32)\n  return %s\n}\n";
}

TEST(RealSizes, AreTheSameInKernels) {
  const std::pair<std::string, std::string> cases[] = {
      {"whole(rsub(rmul(real(s0),0.3),2.5))", "whole(single(rsub(single(real(s1)),3.25)))"},
      {"whole(rfloor(rsub(real(s0),4.5)))", "whole(rceil(rsub(rdiv(real(s1),3),2)))"},
      {"whole(rround(rsub(rsqrt(real(s0)),1.5)))", "whole(rmin(rsub(real(s1),8),2.5))"},
      {"whole(rmax(rsub(real(s0),6),-1.5))", "whole(rsub(rabs(rsub(real(s1),20)),9))"},
      {"whole(rsub(rdiv(1,rsub(real(s0),5)),1))", "whole(radd(rsub(real(s1),9),0.75))"}};
  for (const auto& [low, high] : cases) {
    const std::string text = padded(low, high);
    Engine on_device = parse_ir(text, on_cuda());
    Engine on_host = parse_ir(text, {.device = Device::cpu()});
    Engine reference = parse_ir(text, {.device = Device::reference()});
    for (const auto& [rows, columns] : {std::pair{5, 9}, {3, 12}, {6, 30}, {9, 7}}) {
      const Tensor x = counted(f32, {rows, columns});
      const Tensor want = reference.run({x})[0];
      for (Engine* engine : {&on_device, &on_host}) {
        const Tensor got = engine->run({x})[0];
        EXPECT_EQ(got.to_doubles(), want.to_doubles()) << text << rows << " " << columns;
        EXPECT_TRUE(std::ranges::equal(got.sizes(), want.sizes())) << text;
      }
    }
    EXPECT_EQ(on_device.stats().compiles, 1u);
    EXPECT_EQ(on_host.stats().compiles, 1u);
  }
}

}  // namespace
}  // namespace heddle::testing
