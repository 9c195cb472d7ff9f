// How the driver of the comparison talks to an engine in a process of its own, and what such a process does.
//
//   peer_<name> --model FILE --case FOLDER --threads N [--option KEY=VALUE]...
//
// Loads the model, makes the first call and prints one JSON line of facts: `version`, `load_ms`, `first_call_ms`,
// `rss_before_bytes` and what the engine adds. Then it answers lines on standard input, each with one JSON line:
//
//   turn SECONDS      calls for so long, the first calls unmeasured: {"samples_us": [...], "calls_per_sample": N,
//                     "processor_us": of all threads of the process, a call}
//   callers N SECONDS N threads call at once for so long, each into outputs of its own: {"samples_us": [...] of some calls of all threads,
//                     "calls": N, "seconds": until the last call came back}
//   case FOLDER       calls once on the tensors of another case, which stay those of later turns: {"call_us": ...}
//   outputs FOLDER    writes the outputs of the last call as a case's tensors: {"outputs": N}
//   memory            {"peak_bytes": of the process, "anonymous_bytes": now}
//   end               exits
//
// A case is a folder with `inputs.txt`: a line `name dtype 2x3 file` a tensor (`-` for a scalar's sizes), and the files
// with the elements, row-major, little endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace heddle::bench::peers {

struct FreeBytes {
  void operator()(void* bytes) const;
};

/// A row-major tensor in memory that starts at a multiple of 64 bytes.
struct Array {
  std::string name;
  std::string dtype;  ///< as numpy names it: float32, int64, bool
  std::vector<std::int64_t> sizes;
  std::unique_ptr<void, FreeBytes> data{};
  std::size_t bytes = 0;
};

/// Bytes of an element. @throws std::runtime_error naming a dtype that no case uses.
std::size_t element_bytes(const std::string& dtype);
/// The tensors of a case. @throws std::runtime_error naming a file that is missing or too short.
std::vector<Array> read_case(const std::string& folder);
/// The same tensor with its elements copied from `data`.
Array copied(std::string name, std::string dtype, std::vector<std::int64_t> sizes,
             const void* data);

struct Arguments {
  std::string model;
  std::string folder;
  int threads = 1;
  std::vector<std::pair<std::string, std::string>> options;
  /// The last value given for `key`, or `otherwise`.
  std::string option(const std::string& key, const std::string& otherwise) const;
};

/// An engine that runs one model on one case.
class Peer {
 public:
  virtual ~Peer() = default;
  /// Everything that comes before the first call.
  virtual void load(const Arguments& arguments) = 0;
  /// Runs once on `inputs`, which stay where they are, and keeps memory for the outputs. Again with others: what comes first
  /// at these.
  virtual void first_call(std::vector<Array>& inputs) = 0;
  /// Runs again on the same inputs into the same outputs.
  virtual void call() = 0;
  /// Such a call into outputs of its own, which a thread may make while others make theirs. Valid until the next first_call.
  /// @throws std::runtime_error where a peer has none.
  virtual std::function<void()> caller() { throw std::runtime_error("one caller at a time"); }
  virtual std::vector<Array> outputs() = 0;
  /// `version`, and what else is worth telling.
  virtual nlohmann::json facts() = 0;
};

/// The whole of main(): serves `peer` until the driver ends it.
int serve(int argc, char** argv, Peer& peer);

}  // namespace heddle::bench::peers
