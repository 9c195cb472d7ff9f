// Runs a mixture-of-experts layer and shows when the memory of its routing op's results is given back.
// usage: moe [cpu|cuda|cuda-sim]
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "layer.h"

namespace {

using Kind = heddle::RunEvent::Kind;

/// A line for each step: live bytes as a bar, and what is taken (+) and given back (-) there.
void print_timeline(const std::vector<heddle::RunEvent>& events) {
  std::int64_t peak = 1;
  std::int64_t live = 0;
  for (const heddle::RunEvent& event : events) {
    if (event.kind == Kind::Alloc) live += event.bytes;
    if (event.kind == Kind::Free) live -= event.bytes;
    peak = std::max(peak, live);
  }
  std::string line;
  live = 0;
  std::int64_t at_launch = 0;
  for (std::size_t k = 0; k < events.size(); ++k) {
    const heddle::RunEvent& event = events[k];
    if (event.kind == Kind::Launch) {
      line = event.value + line;
      at_launch = live;
    } else {
      live += event.kind == Kind::Alloc ? event.bytes : -event.bytes;
      line += (event.kind == Kind::Alloc ? "  +" : "  -") + event.value + ":" +
              std::to_string(event.bytes);
    }
    const bool last = k + 1 == events.size() || events[k + 1].step != event.step;
    if (!last) continue;
    const auto bar = static_cast<std::size_t>(at_launch * 24 / peak);
    std::printf("%3zu |%-24s| %8lld  %s\n", event.step, std::string(bar, '#').c_str(),
                static_cast<long long>(at_launch), line.c_str());
    line.clear();
  }
}

void run(const heddle::Device& device) {
  const example::MoeLayer layer(4);
  heddle::EngineOptions options;
  options.threads = 1;
  options.device = device;
  heddle::Engine engine(
      [&](const heddle::Tensor& x, const heddle::Tensor& counts) { return layer(x, counts); },
      options);
  heddle::Tensor x = heddle::Tensor::empty(heddle::f32, {32, layer.width});
  for (std::int64_t k = 0; k < x.count(); ++k)
    x.data_as<float>()[k] = static_cast<float>((k * 7919 + 13) % 997) / 997 - 0.5f;
  const heddle::Tensor counts = heddle::Tensor::zeros(heddle::i64, {layer.experts});
  const std::vector inputs{x, counts};
  for (int request = 0; request < 3; ++request) engine.run(inputs);
  std::printf("picked after three requests of %lld rows:", static_cast<long long>(32));
  for (const double count : counts.to_doubles()) std::printf(" %.0f", count);
  std::printf("\n");
  if (device != heddle::Device::cpu()) return;  // steps of other devices do not run one by one
  std::printf("\nstep, live bytes, kernel, memory taken (+) and given back (-):\n");
  print_timeline(engine.run_trace(inputs));
}

}  // namespace

int main(int count, char** arguments) {
  try {
    run(heddle::Device::parse(count > 1 ? arguments[1] : "cpu"));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "moe: %s\n", error.what());
    return 1;
  }
}
