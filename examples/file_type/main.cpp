// Tells what kind of file each argument is, with magika's model: bytes in, label and score out.
//
//   file_type MODEL.onnx CONFIG.json FILE…
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <heddle/heddle.h>
#include <heddle/onnx.h>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "tokens.h"

namespace {

using example::Config;
using example::tokens_of;
using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::size_t number_after(const std::string& json, const std::string& key) {
  const std::size_t at = json.find("\"" + key + "\":");
  if (at == std::string::npos) throw std::runtime_error("config: no " + key);
  return std::stoul(json.substr(at + key.size() + 3));
}

/// The config is a flat JSON object; these five keys are all that is needed.
Config read_config(const std::string& path) {
  const std::string json = read_file(path);
  Config config;
  config.begin_bytes = number_after(json, "beg_size");
  config.end_bytes = number_after(json, "end_size");
  config.block_bytes = number_after(json, "block_size");
  config.padding = static_cast<int>(number_after(json, "padding_token"));
  std::size_t at = json.find('[', json.find("\"target_labels_space\""));
  const std::size_t end = json.find(']', at);
  while ((at = json.find('"', at + 1)) < end) {
    const std::size_t close = json.find('"', at + 1);
    config.labels.push_back(json.substr(at + 1, close - at - 1));
    at = close;
  }
  return config;
}

int classify(const std::string& model, const std::string& config_path,
             const std::vector<std::string>& paths) {
  const Config config = read_config(config_path);
  const auto start = Clock::now();
  heddle::Engine engine = heddle::onnx::load(model);
  std::printf("loaded in %.1f ms\n", milliseconds_since(start));
  double first_ms = 0;
  double steady_ms = 1e30;
  for (const std::string& path : paths) {
    const std::vector<std::int32_t> tokens = tokens_of(read_file(path), config);
    const heddle::Tensor input =
        heddle::Tensor::of<std::int32_t>(tokens, {1, static_cast<std::int64_t>(tokens.size())});
    std::vector<heddle::Tensor> outputs;
    for (int repeat = 0; repeat < 3; ++repeat) {
      const auto call = Clock::now();
      outputs = engine.run({input});
      const double took = milliseconds_since(call);
      if (first_ms == 0) first_ms = took;
      steady_ms = std::min(steady_ms, took);
    }
    const float* scores = outputs[0].data_as<float>();
    const auto best = std::max_element(scores, scores + config.labels.size()) - scores;
    std::printf("%-40s %-16s %.4f\n", path.c_str(),
                config.labels[static_cast<std::size_t>(best)].c_str(), scores[best]);
  }
  std::printf("first call %.1f ms (compiles), steady %.3f ms\n", first_ms, steady_ms);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: file_type MODEL.onnx CONFIG.json FILE...\n");
    return 2;
  }
  try {
    return classify(argv[1], argv[2], std::vector<std::string>(argv + 3, argv + argc));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "file_type: %s\n", error.what());
    return 1;
  }
}
