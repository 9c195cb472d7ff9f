// Inputs that calls append to, on the CUDA device.
#include <gmock/gmock.h>

#include "tests/cuda/support.h"

namespace heddle::testing {
namespace {

std::vector<Tensor> grow(const Tensor& x, const Tensor& past) {
  const Tensor all = concat({past, exp(x)}, 1);
  return {sum(all * 2.0f, {1}), all, cumsum(x, 1)};
}

Tensor token(int number) { return Tensor::full(f32, {3, 1, 5}, 0.1 * number); }

void expect_all_near(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t k = 0; k < got.size(); ++k) expect_near(got[k], want[k], 1e-4);
}

TEST(CudaAppend, GrowsWhereItLies) {
  for (const bool graphs : {false, true}) {
    EngineOptions options = on_cuda(4, graphs);
    options.append = {"input1"};
    Engine engine(grow, options);
    Engine reference(grow, {.device = Device::reference()});
    for (unsigned long seed = 0; seed < 4; ++seed) {
      interleave(seed);
      // The first cache is the host's, which is copied to where there is room on the device.
      Tensor past = Tensor::full(f32, {3, 2, 5}, 3), want_past = past;
      for (int number = 0; number < 70; ++number) {
        const auto got = engine.run({token(number), past});
        const auto want = reference.run({token(number), want_past});
        expect_all_near(got, want);
        ASSERT_FALSE(::testing::Test::HasFailure());
        past = got[1], want_past = want[1];
        EXPECT_TRUE(past.device().is_cuda());
      }
    }
    interleave(0);
    EXPECT_EQ(engine.stats().append_copies, 4 * 2u);
    EXPECT_EQ(engine.stats().missed_in_place, 0u);
  }
}

TEST(CudaAppend, BeamsPartAndPartsAreCutBack) {
  EngineOptions options = on_cuda(4, true);
  options.append = {"input1"};
  Engine engine(grow, options);
  Engine reference(grow, {.device = Device::reference()});
  const Tensor start = Tensor::full(f32, {3, 2, 5}, 3);
  const Tensor root = engine.run({token(1), start})[1];
  const Tensor want_root = reference.run({token(1), start})[1];
  std::vector<std::vector<Tensor>> beams;
  for (int beam = 2; beam < 5; ++beam) beams.push_back(engine.run({token(beam), root}));
  for (int beam = 2; beam < 5; ++beam)
    expect_all_near(beams[static_cast<std::size_t>(beam - 2)],
                    reference.run({token(beam), want_root}));
  expect_near(root, want_root, 1e-4);
  EXPECT_EQ(engine.stats().append_copies, 3u);
  const Tensor two = beams[0][1].narrow(1, 0, 2);
  EXPECT_EQ(two.to_doubles(), start.to_doubles());
  beams.clear();
  expect_all_near(engine.run({token(7), two}), reference.run({token(7), start}));
}

}  // namespace
}  // namespace heddle::testing
