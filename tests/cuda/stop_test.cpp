// Calls on the CUDA device that their caller ends early.
#include <chrono>
#include <gmock/gmock.h>
#include <stop_token>
#include <thread>

#include "tests/cuda/support.h"
#include "tests/support/error_text.h"

namespace heddle::testing {
namespace {

TEST(CudaStop, EndsALoopThatWouldNotEnd) {
  const auto f = [](const Tensor& x, const Tensor& limit) {
    return while_loop(
        x, [&](const Tensor& s) { return greater(sum(abs(s)), limit); },
        [](const Tensor& s) { return s * 0.5f + 0.25f; });
  };
  Engine engine(f, on_cuda(4));
  const Tensor x = Tensor::of<float>({1, 2, 3}, {3});
  const Tensor reachable = Tensor::scalar(f32, 1.6), never = Tensor::scalar(f32, 0.5);
  const std::vector<double> want = engine.run({x, reachable})[0].to_doubles();
  engine.trim();
  const std::size_t in_use = engine.memory().device.in_use_bytes;
  for (int repeat = 0; repeat < 3; ++repeat) {
    std::stop_source source;
    std::thread asks([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20 * repeat));
      source.request_stop();
    });
    {
      const StopScope scope(source.get_token());
      EXPECT_EQ(text_of<Cancelled>([&] { engine.run({x, never}); }),
                "run: ended before its last step, as its caller asked");
    }
    asks.join();
    EXPECT_EQ(engine.run({x, reachable})[0].to_doubles(), want);
  }
  engine.trim();
  EXPECT_EQ(engine.memory().device.in_use_bytes, in_use);
}

}  // namespace
}  // namespace heddle::testing
