// The commands of `heddle` and what they share.
#pragma once

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "heddle/engine.h"
#include "heddle/onnx.h"

namespace CLI {
class App;
}

namespace heddle::cli {

/// The command line is wrong: exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Options of every command that runs a model.
struct ModelOptions {
  std::string model;
  std::string device = "cpu";
  int threads = 0;
  std::string cpu;
  std::vector<std::string> shapes;  ///< NAME=1x128
  std::vector<std::string> inputs;  ///< NAME=FILE
  std::vector<std::string> donate;  ///< NAME
  std::vector<std::string> append;  ///< NAME
  std::vector<std::string> passes;  ///< NAME

  /// Adds the options to a command. `with_model`: and the positional MODEL.
  void add_to(CLI::App& command, bool with_model = true);
  EngineOptions engine_options() const;
};

using NamedTensors = std::map<std::string, Tensor, std::less<>>;

/// A model ready to run: the engine and one tensor for each of its inputs.
struct LoadedModel {
  std::unique_ptr<Engine> engine;
  std::vector<Tensor> inputs;
  double prepare_ms = 0;                 ///< tracing and compiling for these inputs
  onnx::StringCodes codes{Signature()};  ///< of strings among inputs and outputs
};

/// Loads the model, reads or makes its inputs and compiles for them. Inputs whose value the model needs
/// while it is traced become constants.
LoadedModel load_model(const ModelOptions& options);

/// A tensor from a .npy or .pb file, strings as `codes`; null: these are refused. @throws UsageError for another extension.
Tensor read_tensor_file(const std::string& path, onnx::StringCodes* codes);

/// Whether the engine's device is the reference evaluator, which compiles nothing.
bool is_reference(const Engine& engine);

/// Checks of an option's text: empty if it is a whole number, or a number, that is at least 0, else what is wrong with it.
std::string check_count(const std::string& text);
std::string check_tolerance(const std::string& text);

// Each adds a command; its callback returns through `exit_code`.
void add_run(CLI::App& app, int& exit_code);
void add_verify(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);
void add_opt(CLI::App& app, int& exit_code);

}  // namespace heddle::cli
