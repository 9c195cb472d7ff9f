// Models and their inputs from the command line.

#include <CLI/App.hpp>
#include <charconv>
#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <random>

#include "base/float8.h"
#include "base/half.h"
#include "base/solve.h"
#include "base/symexpr.h"
#include "engine/cli/commands.h"
#include "engine/cli/npy.h"
#include "heddle/error.h"

namespace heddle::cli {

namespace {

/// "NAME=VALUE" in its parts; names may hold '=' only in FILE.
std::pair<std::string, std::string> split_pair(const std::string& text, const char* option) {
  const std::size_t at = text.find('=');
  if (at == 0 || at == std::string::npos)
    throw UsageError(fmt::format("{} {}: expected NAME=VALUE", option, text));
  return {text.substr(0, at), text.substr(at + 1)};
}

Sizes parse_sizes(const std::string& text) {
  Sizes sizes;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at != end) {
    std::int64_t size = 0;
    const auto [next, error] = std::from_chars(at, end, size);
    if (error != std::errc() || size < 0 || (next != end && *next != 'x') || next + 1 == end)
      throw UsageError(fmt::format("--shape: expected sizes such as 1x128, got {}", text));
    sizes.push_back(size);
    at = next == end ? end : next + 1;
  }
  return sizes;
}

/// Numbers for missing inputs: the same on every run.
class RandomInputs {
 public:
  Tensor make(DType dtype, const Sizes& sizes) {
    Tensor tensor = Tensor::empty(dtype, sizes);
    void* data = tensor.data();
    for (std::int64_t k = 0, count = tensor.count(); k < count; ++k) store(dtype, data, k);
    return tensor;
  }

 private:
  void store(DType dtype, void* data, std::int64_t k) {
    switch (dtype) {
      case DType::F32:
        static_cast<float*>(data)[k] = static_cast<float>(normal_(bits_));
        return;
      case DType::F64:
        static_cast<double*>(data)[k] = normal_(bits_);
        return;
      case DType::F16:
        static_cast<base::Half*>(data)[k] = base::Half(static_cast<float>(normal_(bits_)));
        return;
      case DType::BF16:
        static_cast<base::BFloat16*>(data)[k] = base::BFloat16(static_cast<float>(normal_(bits_)));
        return;
      case DType::I64:
      case DType::U64:
        static_cast<std::int64_t*>(data)[k] = bit();
        return;
      case DType::I32:
      case DType::U32:
        static_cast<std::int32_t*>(data)[k] = bit();
        return;
      case DType::I16:
      case DType::U16:
        static_cast<std::int16_t*>(data)[k] = static_cast<std::int16_t>(bit());
        return;
      default:
        static_cast<std::uint8_t*>(data)[k] =
            is_float8(dtype) ? base::float8_code(dtype, std::abs(normal_(bits_)))
                             : static_cast<std::uint8_t>(bit());
        return;
    }
  }
  int bit() { return static_cast<int>(bits_() & 1); }

  std::mt19937_64 bits_{0};
  std::normal_distribution<double> normal_;
};

std::string list_of(const Signature& signature) {
  std::string names;
  for (const ValueInfo& info : signature.inputs) names += (names.empty() ? "" : ", ") + info.name;
  return names;
}

/// What the command line says about inputs, and the sizes that follow for the others.
class Inputs {
 public:
  /// @param codes  of strings in files
  Inputs(const ModelOptions& options, const Signature& signature, onnx::StringCodes& codes) {
    for (const std::string& text : options.inputs) {
      const auto [name, path] = split_pair(text, "--input");
      const ValueInfo& info = named_in(signature, name, "--input");
      if (given_.contains(name)) given_twice(name);
      given_[name] = read_tensor_file(path, info.is_text ? &codes : nullptr);
    }
    for (const std::string& text : options.shapes) {
      const auto [name, sizes] = split_pair(text, "--shape");
      named_in(signature, name, "--shape");
      if (given_.contains(name) || shapes_.contains(name)) given_twice(name);
      shapes_[name] = parse_sizes(sizes);
    }
    for (const ValueInfo& info : signature.inputs) {
      if (const auto found = given_.find(info.name); found != given_.end())
        bind(info, {found->second.sizes().begin(), found->second.sizes().end()});
      else if (const auto shape = shapes_.find(info.name); shape != shapes_.end())
        bind(info, shape->second);
    }
    for (const ValueInfo& info : signature.inputs) {
      if (!given_.contains(info.name)) given_[info.name] = random_.make(info.dtype, sizes_of(info));
      // Codes are 0 and 1: strings, where the model has fewer, that it does not know.
      if (info.is_text)
        for (int k = 0; codes.count() < 2; ++k) codes.code_of(fmt::format("string{}", k));
    }
  }

  const Tensor& named(const std::string& name) const { return given_.at(name); }

 private:
  static const ValueInfo& named_in(const Signature& signature, const std::string& name,
                                   const char* option) {
    for (const ValueInfo& info : signature.inputs)
      if (info.name == name) return info;
    throw UsageError(
        fmt::format("{}: the model has no input {} (it has {})", option, name, list_of(signature)));
  }

  [[noreturn]] static void given_twice(const std::string& name) {
    throw UsageError(fmt::format("input {}: expected one --input or --shape, got two", name));
  }

  void bind(const ValueInfo& info, const Sizes& sizes) {
    if (sizes.size() != info.sizes.size())
      throw UsageError(fmt::format("input {}: expected {} dimensions, got {}", info.name,
                                   info.sizes.size(), sizes.size()));
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      if (!info.sizes[d].is_symbolic()) continue;
      const base::SymExpr expr = base::parse_symexpr(info.sizes[d].to_string());
      if (const auto solved = base::solve(expr, sizes[d], symbols_)) symbols_.insert(*solved);
    }
  }

  Sizes sizes_of(const ValueInfo& info) {
    if (const auto shape = shapes_.find(info.name); shape != shapes_.end()) return shape->second;
    Sizes sizes;
    for (const SymInt& size : info.sizes) {
      const base::SymExpr expr = base::parse_symexpr(size.to_string());
      std::vector<base::Symbol> symbols;
      expr.collect_symbols(symbols);
      for (const base::Symbol& symbol : symbols) symbols_.emplace(symbol, 1);
      sizes.push_back(expr.evaluate(symbols_));
    }
    return sizes;
  }

  NamedTensors given_;
  std::map<std::string, Sizes> shapes_;
  base::SymbolValues symbols_;
  RandomInputs random_;
};

bool ends_with(const std::string& text, std::string_view end) { return text.ends_with(end); }

Engine load_engine(const ModelOptions& options, const onnx::Constants& constants) {
  if (ends_with(options.model, ".hir")) return load_ir(options.model, options.engine_options());
  if (ends_with(options.model, ".onnx"))
    return onnx::load(options.model, options.engine_options(), constants);
  throw UsageError(fmt::format("{}: expected a model called .onnx or .hir", options.model));
}

/// Compiles for `inputs` and returns the milliseconds. The reference evaluator only traces, by running; on copies, since
/// a run may write states.
double prepare(Engine& engine, std::span<const Tensor> inputs) {
  std::vector<Tensor> copies;
  if (is_reference(engine))
    for (const Tensor& input : inputs) copies.push_back(input.clone());
  const auto start = std::chrono::steady_clock::now();
  if (is_reference(engine))
    engine.run(copies);
  else
    engine.prepare(inputs);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

/// Whether all of `text` is a number of T that `fits`.
template <typename T, typename F>
std::string checked(const std::string& text, const char* expected, F&& fits) {
  T number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const bool fine = error == std::errc() && rest == end && fits(number);
  return fine ? std::string() : fmt::format("expected {}, got {}", expected, text);
}

}  // namespace

std::string check_count(const std::string& text) {
  return checked<int>(text, "a number >= 0", [](int number) { return number >= 0; });
}

std::string check_tolerance(const std::string& text) {
  return checked<double>(text, "a number >= 0",
                         [](double number) { return number >= 0 && std::isfinite(number); });
}

void ModelOptions::add_to(CLI::App& command, bool with_model) {
  if (with_model) command.add_option("MODEL", model, "an .onnx or .hir file")->required();
  command.add_option("--device", device, "cpu, cuda, cuda:N, cuda-sim or reference");
  command.add_option("--threads", threads, "worker threads; 0: one for each processor")
      ->check(check_count);
  command.add_option(
      "--cpu", cpu,
      "the processor that kernels are made for, by LLVM's name: x86-64-v4; else this one");
  const std::string unused = with_model ? "" : " (not used: cases bring their inputs)";
  command
      .add_option("--pass", passes,
                  "NAME: a pass that is off by default, such as bf16-products (see the README)")
      ->allow_extra_args(false);
  command.add_option("--shape", shapes, "NAME=1x128: sizes of an input" + unused)
      ->allow_extra_args(false);
  command.add_option("--input", inputs, "NAME=FILE: a .npy or .pb file" + unused)
      ->allow_extra_args(false);
  command
      .add_option("--donate", donate, "NAME: an input whose memory each call gives away" + unused)
      ->allow_extra_args(false);
  command
      .add_option("--append", append, "NAME: a cache that calls append to where it lies" + unused)
      ->allow_extra_args(false);
}

EngineOptions ModelOptions::engine_options() const {
  EngineOptions result;
  result.donate.insert(donate.begin(), donate.end());
  result.append.insert(append.begin(), append.end());
  result.device = Device::parse(device);
  result.threads = threads;
  result.cpu = cpu;
  for (const std::string& name : passes) result.passes.push_back({.name = name});
  return result;
}

Tensor read_tensor_file(const std::string& path, onnx::StringCodes* codes) {
  if (ends_with(path, ".npy")) return read_npy(path, codes);
  if (ends_with(path, ".pb"))
    return codes != nullptr ? onnx::load_tensor(path, *codes) : onnx::load_tensor(path);
  throw UsageError(fmt::format("{}: expected a tensor file called .npy or .pb", path));
}

bool is_reference(const Engine& engine) {
  return engine.options().device.kind() == Device::Kind::Reference;
}

LoadedModel load_model(const ModelOptions& options) {
  auto engine = std::make_unique<Engine>(load_engine(options, {}));
  const Signature signature = engine->signature();
  LoadedModel loaded{std::move(engine), {}, 0, onnx::StringCodes(signature)};
  const Inputs inputs(options, signature, loaded.codes);
  onnx::Constants constants;
  while (true) {
    loaded.inputs.clear();
    for (const ValueInfo& info : loaded.engine->signature().inputs)
      loaded.inputs.push_back(inputs.named(info.name));
    try {
      loaded.prepare_ms = prepare(*loaded.engine, loaded.inputs);
      return loaded;
    } catch (const onnx::NeedsValueError& error) {
      constants[error.input()] = inputs.named(error.input());
      loaded.engine = std::make_unique<Engine>(load_engine(options, constants));
    }
  }
}

}  // namespace heddle::cli
