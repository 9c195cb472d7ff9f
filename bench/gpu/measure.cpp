// Heddle's part of the GPU suite (bench/gpu/README.md).
//
//   heddle_gpu_measure facts --device D              what the device and its libraries are
//   heddle_gpu_measure inputs --case FOLDER          writes the inputs of a case
//   heddle_gpu_measure copy --device D --bytes N --seconds S
//                                                    a copy on the device: its bandwidth, read and written bytes
//   heddle_gpu_measure run --device D --case FOLDER --out FOLDER [--seconds S] [--cache FOLDER]
//                                                    times a case and writes what is compared
//
//   heddle_gpu_measure texts --device D --case FOLDER [--cache FOLDER]
//                                                    compiles a case and runs nothing; $HEDDLE_DUMP_DIR gets the texts
//   heddle_gpu_measure serve                         does what lines of JSON on standard input ask for, in one process:
//                                                    {"command": "run", "device": "cuda", ...}
//
// One JSON line on standard output; of serve one for each line, {"error": TEXT} for what failed. Exit codes: 0 done, 1 an
// error, told on standard error, 2 wrong usage.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "bench/gpu/case.h"

#include "engine/cuda_runtime.h"

namespace heddle::bench::gpu {
namespace {

using Clock = std::chrono::steady_clock;
using Arguments = std::map<std::string, std::string>;
using nlohmann::json;

/// Bytes that tensors of a case which rotates have together at least: several times any cache.
constexpr std::int64_t kRotatedBytes = std::int64_t{256} << 20;
constexpr std::int64_t kMostSets = 64;
/// Calls between waits when the host's time is taken: fewer than an engine leaves under way.
constexpr int kCallsUnwaited = 3;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double median(std::vector<double> numbers) {
  if (numbers.empty()) return 0;
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

/// Sets of so many bytes that calls go round.
std::int64_t sets_of(std::int64_t bytes) {
  bytes = std::max<std::int64_t>(bytes, 1);
  return std::clamp<std::int64_t>((kRotatedBytes + bytes - 1) / bytes, 1, kMostSets);
}

/// The device's time of a call, in microseconds, and how many of its medians that is from.
/// @param call  queues call k, counted from 0, on the stream; calls go round `sets` sets of tensors
json time_calls(device::Device& device, device::Stream& stream, std::int64_t sets, double seconds,
                const std::function<void(std::int64_t)>& call) {
  const auto begin = device.make_event(true);
  const auto end = device.make_event(true);
  const auto batch = [&](std::int64_t calls) {
    stream.record(*begin);
    for (std::int64_t k = 0; k < calls; ++k) call(k);
    stream.record(*end);
    end->synchronize();
    return end->milliseconds_since(*begin) * 1000 / static_cast<double>(calls);
  };
  batch(3 * sets);
  const double once = std::max(batch(sets), 0.1);
  // Samples of about two milliseconds.
  const std::int64_t rounds = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(2000 / (once * static_cast<double>(sets))), 1, 1000);
  std::vector<double> samples;
  const auto start = Clock::now();
  do {
    samples.push_back(batch(rounds * sets));
  } while (milliseconds_since(start) < 1000 * seconds && samples.size() < 1000);
  const auto [fastest, slowest] = std::ranges::minmax(samples);
  return {{"device_us", median(samples)},
          {"fastest_us", fastest},
          {"slowest_us", slowest},
          {"samples", samples.size()},
          {"calls_per_sample", rounds * sets},
          {"sets", sets}};
}

/// The engine, what it runs on, and sets of tensors that calls go round.
class Runner {
 public:
  Runner(const Case& one, const Device& device, const std::string& cache)
      : runtime_(engine::CudaRuntime::get(device)),
        stream_(runtime_->device().make_stream()),
        case_(one) {
    EngineOptions options;
    options.device = device;
    options.stream = stream_->native();
    options.disk_cache = !cache.empty();
    options.cache_dir = cache;
    const auto start = Clock::now();
    engine_ = std::make_unique<Engine>(parse_ir(one.graph, options));
    load_ms_ = milliseconds_since(start);
    add_set();
    const auto first = Clock::now();
    outputs_.push_back(engine_->run(inputs_[0]));
    stream_->synchronize();
    first_call_ms_ = milliseconds_since(first);
    engine_
        ->wait_for_specialisations();  // what is timed are the kernels that were measured to be the fastest
    if (!one.rotate) return;
    const std::int64_t sets = sets_of(set_bytes());
    const bool small = set_bytes() * sets < runtime_->device().properties().memory_bytes / 3;
    for (std::int64_t k = 1; small && k < sets; ++k) {
      add_set();
      outputs_.push_back(engine_->run(inputs_.back()));
      stream_->synchronize();
    }
  }

  /// time_calls() of the engine's.
  json device_time(double seconds) {
    return time_calls(runtime_->device(), *stream_, static_cast<std::int64_t>(inputs_.size()),
                      seconds, [this](std::int64_t k) { call(static_cast<std::size_t>(k)); });
  }

  /// How long a call keeps the host, in microseconds.
  double host_us(int samples) {
    std::vector<double> times;
    for (int k = 0; k < samples; ++k) {
      if (k % kCallsUnwaited == 0) stream_->synchronize();
      const auto start = Clock::now();
      call(0);
      times.push_back(milliseconds_since(start) * 1000);
    }
    stream_->synchronize();
    return median(times);
  }

  json facts() const {
    const EngineStats stats = engine_->stats();
    return {{"load_ms", load_ms_},
            {"first_call_ms", first_call_ms_},
            {"compile_ms", stats.compile_ms},
            {"kernels", stats.kernels},
            {"kernels_compiled", stats.kernels_compiled},
            {"disk_hits", stats.disk_hits},
            {"measurements", stats.measurements},
            {"variants", of_steps("variant")},
            {"variant_us", of_steps("variant_us")},
            {"graph_launches", stats.graph_launches},
            {"arena_bytes", stats.arena_peak_bytes},
            {"evaluator_steps", stats.evaluator_steps}};
  }

  /// One more call on the first set, after which its outputs and states are those of the case.
  void write_outputs(const Case& one, const std::string& folder) {
    call(0);
    stream_->synchronize();
    for (std::size_t k = 0; k < outputs_[0].size(); ++k)
      write_samples(folder, "output" + std::to_string(k), outputs_[0][k]);
    for (std::size_t k = 0; k < one.inputs.size(); ++k)
      if (one.inputs[k].state) write_samples(folder, "state" + std::to_string(k), inputs_[0][k]);
  }

 private:
  /// What steps say of kernels that have several variants.
  json of_steps(const char* key) const {
    json taken = json::array();
    const json plan = json::parse(engine_->plan_json(inputs_[0]));
    for (const json& step : plan.at("steps"))
      if (step.contains(key)) taken.push_back(step.at(key));
    return taken;
  }
  void add_set() { inputs_.push_back(read_inputs_to(case_, *runtime_)); }
  void call(std::size_t k) {
    engine_->run_into(inputs_[k % inputs_.size()], outputs_[k % outputs_.size()]);
  }
  std::int64_t set_bytes() const {
    std::int64_t bytes = 0;
    for (const auto* list : {&inputs_[0], &outputs_[0]})
      for (const Tensor& tensor : *list)
        bytes += tensor.count() * static_cast<std::int64_t>(size_of(tensor.dtype()));
    return bytes;
  }

  engine::CudaRuntimePtr runtime_;
  std::unique_ptr<device::Stream> stream_;
  const Case& case_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::vector<Tensor>> inputs_;
  std::vector<std::vector<Tensor>> outputs_;
  double load_ms_ = 0;
  double first_call_ms_ = 0;
};

/// The definition, on the host, for machines without a peer to compare with.
json run_reference(const Case& one, const std::string& folder) {
  Engine engine = parse_ir(one.graph, {.device = Device::reference()});
  const std::vector<Tensor> inputs = read_inputs(one);
  const std::vector<Tensor> outputs = engine.run(inputs);
  for (std::size_t k = 0; k < outputs.size(); ++k)
    write_samples(folder, "output" + std::to_string(k), outputs[k]);
  for (std::size_t k = 0; k < one.inputs.size(); ++k)
    if (one.inputs[k].state) write_samples(folder, "state" + std::to_string(k), inputs[k]);
  return {{"evaluator_steps", engine.stats().evaluator_steps}};
}

json run(const Arguments& arguments) {
  const Case one = read_case(arguments.at("case"));
  const std::string& folder = arguments.at("out");
  std::filesystem::create_directories(folder);
  const Device device = Device::parse(arguments.at("device"));
  if (device == Device::reference()) return run_reference(one, folder);
  const double seconds = arguments.contains("seconds") ? std::stod(arguments.at("seconds")) : 0.2;
  Runner runner(one, device, arguments.contains("cache") ? arguments.at("cache") : std::string());
  json result = runner.device_time(seconds);
  result["host_us"] = runner.host_us(seconds < 0.1 ? 10 : 301);
  runner.write_outputs(one, folder);
  result.update(runner.facts());
  return result;
}

json copy(const Arguments& arguments) {
  const auto runtime = engine::CudaRuntime::get(Device::parse(arguments.at("device")));
  device::Device& device = runtime->device();
  const std::size_t bytes = std::stoull(arguments.at("bytes"));
  const std::int64_t sets = sets_of(static_cast<std::int64_t>(2 * bytes));
  const device::Allocation from(device, bytes * static_cast<std::size_t>(sets));
  const device::Allocation to(device, bytes * static_cast<std::size_t>(sets));
  const auto stream = device.make_stream();
  device.fill(from.get(), 1, bytes * static_cast<std::size_t>(sets), *stream);
  const auto at = [&](const device::Allocation& memory, std::int64_t k) {
    return static_cast<char*>(memory.get()) + static_cast<std::size_t>(k % sets) * bytes;
  };
  json result =
      time_calls(device, *stream, sets, std::stod(arguments.at("seconds")), [&](std::int64_t k) {
        device.copy(at(to, k), at(from, k), bytes, device::CopyKind::DeviceToDevice, *stream);
      });
  const double us = std::max(result.at("device_us").get<double>(), 1e-3);
  result["bytes"] = bytes;
  result["bytes_per_second"] = 2e6 * static_cast<double>(bytes) / us;
  return result;
}

json facts(const Arguments& arguments) {
  const auto runtime = engine::CudaRuntime::get(Device::parse(arguments.at("device")));
  const device::Properties& properties = runtime->device().properties();
  return {{"device", properties.name},
          {"arch", properties.arch},
          {"multiprocessors", properties.multiprocessors},
          {"memory_bytes", properties.memory_bytes},
          {"compiler", runtime->compiler().version()}};
}

json texts(const Arguments& arguments) {
  const Case one = read_case(arguments.at("case"));
  EngineOptions options;
  options.device = Device::parse(arguments.at("device"));
  options.autotune = false;  // others use the device
  options.disk_cache = arguments.contains("cache");
  if (options.disk_cache) options.cache_dir = arguments.at("cache");
  Engine engine = parse_ir(one.graph, options);
  std::vector<Tensor> inputs;
  for (const CaseInput& input : one.inputs)
    inputs.push_back(Tensor::empty(input.dtype, input.sizes));
  engine.prepare(inputs);
  return {{"kernels", engine.stats().kernels}};
}

json inputs(const Arguments& arguments) {
  const Case one = read_case(arguments.at("case"));
  write_inputs(one);
  return {{"inputs", one.inputs.size()}};
}

using Command = json (*)(const Arguments&);
const std::map<std::string, Command> kCommands = {
    {"facts", facts}, {"inputs", inputs}, {"copy", copy}, {"run", run}, {"texts", texts}};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int k = 2; k + 1 < argc; k += 2) {
    const std::string key = argv[k];
    if (!key.starts_with("--")) throw std::out_of_range(key);
    arguments[key.substr(2)] = argv[k + 1];
  }
  return arguments;
}

/// Engines come and go, the device stays open.
int serve() {
  std::map<std::string, engine::CudaRuntimePtr> open;
  for (std::string line; std::getline(std::cin, line);) {
    json reply;
    try {
      const auto arguments = json::parse(line).get<Arguments>();
      const auto device = arguments.find("device");
      if (device != arguments.end() && Device::parse(device->second).is_cuda())
        open.try_emplace(device->second, engine::CudaRuntime::get(Device::parse(device->second)));
      reply = kCommands.at(arguments.at("command"))(arguments);
    } catch (const DeviceLost& error) {
      open.clear();
      reply = {{"error", error.what()}};
    } catch (const std::exception& error) {
      reply = {{"error", error.what()}};
    }
    std::puts(reply.dump().c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace heddle::bench::gpu

int main(int argc, char** argv) {
  using namespace heddle::bench::gpu;
  try {
    if (argc == 2 && std::string(argv[1]) == "serve") return serve();
    const Command command = kCommands.at(argc > 1 ? argv[1] : "");
    std::puts(command(parse(argc, argv)).dump().c_str());
    return 0;
  } catch (const std::out_of_range&) {
    std::fputs(
        "usage: heddle_gpu_measure facts|inputs|copy|run|texts|serve --KEY VALUE...; see "
        "measure.cpp\n",
        stderr);
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "heddle_gpu_measure: %s\n", error.what());
    return 1;
  }
}
