// heddle bench: times a model.

#include <CLI/App.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include "engine/cli/commands.h"
#include "engine/cli/table.h"

namespace heddle::cli {

namespace {

struct BenchOptions {
  ModelOptions model;
  int iterations = 100;
  bool steps = false;
  bool shares = false;
  bool json = false;
};

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// The smallest time that `share` of all times do not exceed. `times` are sorted.
double percentile(const std::vector<double>& times, double share) {
  const auto last = static_cast<double>(times.size() - 1);
  return times[static_cast<std::size_t>(std::lround(last * share))];
}

std::uint64_t rss_peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

/// Steps by one of their times, the longest first.
std::vector<StepTime> longest_first(std::vector<StepTime> steps, double StepTime::* time) {
  std::ranges::stable_sort(steps, std::greater(), time);
  for (StepTime& step : steps) step.inside = longest_first(std::move(step.inside), time);
  return steps;
}

nlohmann::ordered_json steps_document(const std::vector<StepTime>& steps) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const StepTime& step : steps) {
    list.push_back({{"step", step.step},
                    {"kernel", step.kernel},
                    {"us", step.microseconds},
                    {"bytes", step.bytes},
                    {"work", step.work}});
    if (step.shared_microseconds != 0) list.back()["shared_us"] = step.shared_microseconds;
    if (step.runs != 1) list.back()["runs"] = step.runs;
    if (!step.inside.empty()) list.back()["inside"] = steps_document(step.inside);
  }
  return list;
}

/// Steps of plans that a step runs come behind it, `depth` plans deep.
void add_rows(const std::vector<StepTime>& steps, double total, std::size_t depth,
              std::vector<Row>& rows) {
  for (const StepTime& step : steps) {
    const std::string times = depth == 0 ? "" : fmt::format(" x {:.4g}", step.runs);
    rows.push_back(
        {fmt::format("{:.1f}", step.microseconds),
         fmt::format("{:.1f} %", 100 * step.microseconds / total),
         std::string(2 * depth, ' ') + std::to_string(step.step),
         fmt::format("{:.1f}", static_cast<double>(step.bytes) / step.microseconds / 1000),
         fmt::format("{:.1f}", static_cast<double>(step.work) / step.microseconds / 1000),
         std::string(2 * depth, ' ') + step.kernel + times});
    add_rows(step.inside, total, depth + 1, rows);
  }
}

std::string steps_text(const std::vector<StepTime>& steps) {
  double total = 0;
  for (const StepTime& step : steps) total += step.microseconds;
  std::vector<Row> rows;
  add_rows(steps, total, 0, rows);
  return table({"us", "share", "step", "GB/s", "Gop/s", "kernel"}, rows);
}

/// What threads would take of each step, and of all.
std::string shares_text(const std::vector<StepTime>& steps) {
  std::vector<Row> rows;
  const auto add = [&](double all, double shared, std::string step, std::string kernel) {
    rows.push_back({fmt::format("{:.1f}", shared), fmt::format("{:.1f}", all),
                    fmt::format("{:.1f}", shared == 0 ? 1 : all / shared), std::move(step),
                    std::move(kernel)});
  };
  double all = 0;
  double shared = 0;
  for (const StepTime& step : steps) {
    all += step.microseconds;
    shared += step.shared_microseconds;
  }
  add(all, shared, "all", "");
  for (const StepTime& step : steps)
    add(step.microseconds, step.shared_microseconds, std::to_string(step.step), step.kernel);
  return table({"us shared", "us alone", "times", "step", "kernel"}, rows);
}

/// Lets each call write to the same caches: inputs that are appended to are where the engine put them, as long as they were, and
/// outputs that are donated inputs lie there.
/// @return outputs that calls append to
std::vector<std::size_t> again_in_place(Engine& engine, std::vector<Tensor>& inputs,
                                        std::vector<Tensor>& outputs) {
  std::vector<std::size_t> appended;
  const Signature signature = engine.signature();
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    if (signature.outputs[k].lies_in.empty()) continue;
    const auto input =
        std::ranges::find(signature.inputs, signature.outputs[k].lies_in, &ValueInfo::name);
    Tensor& cache = inputs[static_cast<std::size_t>(input - signature.inputs.begin())];
    if (input->donated) {
      outputs[k] = cache;
      continue;
    }
    appended.push_back(k);
    const auto axis = std::ranges::mismatch(cache.sizes(), outputs[k].sizes()).in1;
    if (axis != cache.sizes().end())
      cache = outputs[k].narrow(axis - cache.sizes().begin(), 0, *axis);
  }
  return appended;
}

int bench(const BenchOptions& options) {
  LoadedModel model = load_model(options.model);
  const auto first = Clock::now();
  std::vector<Tensor> outputs = model.engine->run(model.inputs);
  const double first_call_ms = model.prepare_ms + microseconds_since(first) / 1000;
  model.engine->wait_for_specialisations();  // of what is done in the background
  const std::vector<std::size_t> appended = again_in_place(*model.engine, model.inputs, outputs);
  std::vector<double> times;
  const auto begin = Clock::now();
  for (int k = 0; k < options.iterations; ++k) {
    for (const std::size_t output : appended) outputs[output] = {};
    const auto start = Clock::now();
    model.engine->run_into(model.inputs, outputs);
    times.push_back(microseconds_since(start));
  }
  const double total_us = microseconds_since(begin);
  std::sort(times.begin(), times.end());
  const EngineStats stats = model.engine->stats();
  std::vector<StepTime> steps;
  for (const std::size_t output : appended) outputs[output] = {};
  if (options.steps || options.shares)
    steps =
        longest_first(model.engine->profile(model.inputs, std::min(options.iterations, 100),
                                            options.shares ? Profile::Shares : Profile::Steps),
                      options.shares ? &StepTime::shared_microseconds : &StepTime::microseconds);
  nlohmann::ordered_json document{
      {"p50_us", percentile(times, 0.5)},
      {"p90_us", percentile(times, 0.9)},
      {"p99_us", percentile(times, 0.99)},
      {"per_second", options.iterations * 1e6 / total_us},
      {"load_ms", stats.load_ms},
      {"compile_ms", stats.compile_ms},
      {"found_plans", stats.found_plans},
      {"first_call_ms", first_call_ms},
      {"kernels", stats.kernels},
      {"evaluator_steps", stats.evaluator_steps},
      {"arena_peak_bytes", stats.arena_peak_bytes},
      {"rss_peak_bytes", rss_peak_bytes()},
  };
  if (options.json) {
    if (options.steps || options.shares) document["steps"] = steps_document(steps);
    fmt::print("{}\n", document.dump(1));
    return 0;
  }
  for (const auto& [key, value] : document.items()) {
    const std::string text =
        value.is_number_float() ? fmt::format("{:.3f}", value.get<double>()) : value.dump();
    fmt::print("{:<18} {}\n", key, text);
  }
  if (options.steps || options.shares)
    fmt::print("\n{}", options.shares ? shares_text(steps) : steps_text(steps));
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("bench", "time a model");
  const auto options = std::make_shared<BenchOptions>();
  options->model.add_to(*command);
  command->add_option("--iterations", options->iterations, "timed calls after the first one")
      ->check([](const std::string& text) {
        char* end = nullptr;
        const long number = std::strtol(text.c_str(), &end, 10);
        const bool fine = end != text.c_str() && *end == 0 && number >= 1 && number <= 1000000000;
        return fine ? std::string() : "expected a number >= 1, got " + text;
      });
  command->add_flag("--steps", options->steps,
                    "times of single steps too, run one after another on the CPU");
  command
      ->add_flag("--shares", options->shares,
                 "what each of --threads would take of each step, found on one: how the model does "
                 "on more processors")
      ->excludes("--steps");
  command->add_flag("--json", options->json, "one JSON document on standard output");
  command->callback([options, &exit_code] { exit_code = bench(*options); });
}

}  // namespace heddle::cli
