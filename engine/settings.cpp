#include "engine/settings.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "base/processors.h"
#include "heddle/error.h"
#include "ir/op.h"

namespace heddle::engine {
namespace {

/// The field that stands before a variable: "threads" of HEDDLE_THREADS.
std::string field_of(std::string_view variable) {
  std::string name(variable.substr(std::string_view("HEDDLE_").size()));
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

/// `given` if it is positive, else the environment's, else `otherwise`.
int positive(int given, const char* variable, int otherwise) {
  if (given > 0) return given;
  if (given < 0)
    throw OptionError({.what = "EngineOptions::" + field_of(variable),
                       .where = {},
                       .expected = "a number >= 0",
                       .got = std::to_string(given)});
  const char* text = std::getenv(variable);
  if (text == nullptr) return otherwise;
  const int number = std::atoi(text);
  if (number > 0) return number;
  throw OptionError({.what = variable, .where = {}, .expected = "a number >= 1", .got = text});
}

/// What was given, else the environment's 0 or 1, else `otherwise`.
bool is_wanted(std::optional<bool> given, const char* variable, bool otherwise) {
  if (given) return *given;
  const char* text = std::getenv(variable);
  if (text == nullptr) return otherwise;
  const std::string_view value = text;
  if (value == "0" || value == "1") return value == "1";
  throw OptionError({.what = variable, .where = {}, .expected = "0 or 1", .got = text});
}

/// What stands between commas.
std::vector<std::string> list_of(const char* variable) {
  const char* text = std::getenv(variable);
  std::vector<std::string> list;
  for (std::stringstream rest(text == nullptr ? "" : text);
       std::getline(rest, list.emplace_back(), ',');) {
  }
  list.pop_back();
  return list;
}

/// Ops whose steps go into no graph.
std::vector<std::string> ops_outside_graphs() {
  std::vector<std::string> ops = list_of("HEDDLE_GRAPH_SPLIT_OPS");
  for (const std::string& op : ops) ir::op_named(op);  // throws for an unknown one
  return ops;
}

/// Sizes, as plans name them, whose users go into no graph.
std::vector<base::Symbol> sizes_outside_graphs() {
  constexpr const char* kVariable = "HEDDLE_GRAPH_UNSAFE_SIZES";
  std::vector<base::Symbol> symbols;
  for (const std::string& name : list_of(kVariable)) {
    base::Symbol& symbol = symbols.emplace_back();
    if (name.starts_with('u')) symbol.kind = base::Symbol::Kind::Unbacked;
    const char* end = name.data() + name.size();
    const auto [rest, failure] =
        std::from_chars(name.data() + std::min<std::size_t>(1, name.size()), end, symbol.id);
    if (failure == std::errc() && rest == end && symbol.to_string() == name) continue;
    throw OptionError(
        {.what = kVariable, .where = {}, .expected = "sizes such as s0 and u1", .got = name});
  }
  return symbols;
}

/// What the environment says; 0: nothing.
std::size_t bytes_of(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return 0;
  const std::string_view digits = text;
  std::size_t bytes = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), bytes);
  if (read.ec == std::errc() && read.ptr == digits.data() + digits.size()) return bytes;
  throw OptionError({.what = variable, .where = {}, .expected = "a number of bytes", .got = text});
}

}  // namespace

int thread_count(const EngineOptions& options) {
  return std::min(positive(options.threads, "HEDDLE_THREADS", base::processors()), 1024);
}

int calls_before_specialising(const EngineOptions& options) {
  return positive(options.specialise_after, "HEDDLE_SPECIALISE_AFTER", 0);
}

std::uint32_t stream_count(const EngineOptions& options) {
  constexpr int kDefault = 4;
  constexpr int kMost = 64;
  return static_cast<std::uint32_t>(
      std::min(positive(options.streams, "HEDDLE_STREAMS", kDefault), kMost));
}

std::size_t device_memory_cap() { return bytes_of("HEDDLE_DEVICE_MEMORY_CAP"); }

std::size_t pinned_memory_cap() { return bytes_of("HEDDLE_PINNED_MEMORY_CAP"); }

std::int64_t second_level_cache() {
  static const long known = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (const std::size_t given = bytes_of("HEDDLE_L2_CACHE"))
    return static_cast<std::int64_t>(std::min(given, std::size_t{1} << 40));
  return known > 0 ? std::int64_t{known} : std::int64_t{512} << 10;
}

bool wants_graphs(const EngineOptions& options) {
  return is_wanted(options.cuda_graphs, "HEDDLE_CUDA_GRAPHS", true);
}

bool keeps_constants(const EngineOptions& options) {
  return is_wanted(options.keep_constants, "HEDDLE_KEEP_CONSTANTS", true);
}

bool flushes_subnormals(const EngineOptions& options) {
  return is_wanted(options.flush_subnormals, "HEDDLE_FLUSH_SUBNORMALS", false);
}

bool wants_autotune(const EngineOptions& options) {
  return is_wanted(options.autotune, "HEDDLE_AUTOTUNE",
                   options.device.kind() == Device::Kind::Cuda);
}

scheduler::CaptureOptions capture_options() {
  scheduler::CaptureOptions capture;
  capture.min_kernels = static_cast<std::size_t>(positive(0, "HEDDLE_GRAPH_MIN_KERNELS", 1));
  capture.split_ops = ops_outside_graphs();
  capture.unsafe_symbols = sizes_outside_graphs();
  capture.split_dynamic = is_wanted({}, "HEDDLE_GRAPH_SPLIT_DYNAMIC", false);
  return capture;
}

}  // namespace heddle::engine
