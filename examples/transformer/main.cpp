// Runs an encoder over batches of many sizes: one trace, one compile, no stall when a size is new.
#include <chrono>
#include <cstdio>
#include <exception>

#include "encoder.h"

namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

heddle::Tensor make_ids(std::int64_t batch, std::int64_t length, std::int64_t vocabulary) {
  heddle::Tensor ids = heddle::Tensor::empty(heddle::i64, {batch, length});
  for (std::int64_t k = 0; k < batch * length; ++k)
    ids.data_as<std::int64_t>()[k] = (k * 7919 + 13) % vocabulary;
  return ids;
}

void run() {
  const example::EncoderConfig config;
  heddle::Engine engine(example::Encoder{config});
  auto start = Clock::now();
  engine.run({make_ids(1, 16, config.vocabulary)});
  std::printf("first call, 1 x 16:   %8.2f ms (traces and compiles)\n", milliseconds_since(start));
  for (const auto& [batch, length] : {std::pair{1, 16}, {1, 128}, {4, 33}, {8, 128}, {2, 500}}) {
    const heddle::Tensor ids = make_ids(batch, length, config.vocabulary);
    start = Clock::now();
    engine.run({ids});
    const double fresh = milliseconds_since(start);
    double steady = 1e30;
    for (int repeat = 0; repeat < 10; ++repeat) {
      start = Clock::now();
      engine.run({ids});
      steady = std::min(steady, milliseconds_since(start));
    }
    std::printf("%d x %3d: first time %8.2f ms, steady %8.2f ms\n", batch, length, fresh, steady);
  }
  const heddle::EngineStats stats = engine.stats();
  std::printf("traces %llu, compiles %llu, distinct kernels %llu\n",
              static_cast<unsigned long long>(stats.traces),
              static_cast<unsigned long long>(stats.compiles),
              static_cast<unsigned long long>(stats.kernels));
}

}  // namespace

int main() {
  try {
    run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "transformer: %s\n", error.what());
    return 1;
  }
}
