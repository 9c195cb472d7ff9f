#include "bench/peers/protocol.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace heddle::bench::peers {

namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// A line of /proc/self/status in bytes, e.g. "VmHWM".
std::int64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return std::atoll(line.c_str() + key.size() + 1) * 1024;
  }
  return 0;
}

std::size_t element_count(const std::vector<std::int64_t>& sizes) {
  std::size_t count = 1;
  for (const std::int64_t size : sizes) count *= static_cast<std::size_t>(size);
  return count;
}

std::unique_ptr<void, FreeBytes> aligned_bytes(std::size_t bytes) {
  const std::size_t rounded = std::max<std::size_t>(64, (bytes + 63) / 64 * 64);
  return std::unique_ptr<void, FreeBytes>(std::aligned_alloc(64, rounded));
}

std::vector<std::int64_t> parse_sizes(const std::string& text) {
  std::vector<std::int64_t> sizes;
  if (text == "-") return sizes;
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, 'x');) sizes.push_back(std::stoll(part));
  return sizes;
}

std::string sizes_text(const std::vector<std::int64_t>& sizes) {
  std::string text;
  for (const std::int64_t size : sizes) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text.empty() ? "-" : text;
}

void write_case(const std::string& folder, const std::vector<Array>& arrays) {
  std::ofstream list(folder + "/inputs.txt");
  for (std::size_t k = 0; k < arrays.size(); ++k) {
    const std::string file = std::to_string(k) + ".bin";
    std::ofstream(folder + "/" + file, std::ios::binary)
        .write(static_cast<const char*>(arrays[k].data.get()),
               static_cast<std::streamsize>(arrays[k].bytes));
    list << arrays[k].name << ' ' << arrays[k].dtype << ' ' << sizes_text(arrays[k].sizes) << ' '
         << file << '\n';
  }
  if (!list.flush()) throw std::runtime_error("cannot write to " + folder);
}

Arguments parse_arguments(int argc, char** argv) {
  Arguments arguments;
  for (int k = 1; k + 1 < argc; k += 2) {
    const std::string key = argv[k];
    const std::string value = argv[k + 1];
    if (key == "--model") {
      arguments.model = value;
    } else if (key == "--case") {
      arguments.folder = value;
    } else if (key == "--threads") {
      arguments.threads = std::stoi(value);
    } else if (key == "--option") {
      const std::size_t at = value.find('=');
      if (at == std::string::npos) throw std::runtime_error("--option wants KEY=VALUE: " + value);
      arguments.options.emplace_back(value.substr(0, at), value.substr(at + 1));
    } else {
      throw std::runtime_error("unknown option " + key);
    }
  }
  if (arguments.model.empty() || arguments.folder.empty())
    throw std::runtime_error("--model FILE and --case FOLDER are needed");
  return arguments;
}

/// Processor time of all threads of this process, in microseconds.
double processor_microseconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}

/// Puts the model into the page cache, so that loading is timed alike for whoever comes first.
void read_through(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> buffer(std::size_t{1} << 20);
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()))) continue;
}

/// Calls for `seconds`, after calls that bring caches and threads back. A sample of a short call is the mean of as many
/// as take 20 us, so that reading the clock costs nothing.
nlohmann::json take_turn(Peer& peer, double seconds) {
  constexpr double kSampleMicroseconds = 20;
  constexpr std::size_t kMaxSamples = 4000;
  const auto warm = Clock::now();
  double shortest = 1e30;
  for (int k = 0; k < 3 || microseconds_since(warm) < 5e4 * seconds; ++k) {
    const auto start = Clock::now();
    peer.call();
    shortest = std::min(shortest, microseconds_since(start));
    if (k == 0 && shortest > 1e6 * seconds) break;
  }
  const int calls = static_cast<int>(std::clamp(kSampleMicroseconds / shortest, 1.0, 1000.0));
  std::vector<double> samples;
  const double processor_before = processor_microseconds();
  const auto begin = Clock::now();
  while (samples.size() < kMaxSamples &&
         (samples.empty() || microseconds_since(begin) < 1e6 * seconds)) {
    const auto start = Clock::now();
    for (int k = 0; k < calls; ++k) peer.call();
    samples.push_back(microseconds_since(start) / calls);
  }
  const double processor = processor_microseconds() - processor_before;
  return {{"samples_us", samples},
          {"calls_per_sample", calls},
          {"processor_us", processor / (calls * static_cast<double>(samples.size()))}};
}

/// What one of several threads saw that called at once.
struct CallerTurn {
  std::size_t calls = 0;
  std::vector<double> samples_us;
  std::exception_ptr failure;
};

/// Calls until `end`, three times at least. Of short calls every `stride`th is a sample: neither reading the clock nor
/// keeping samples costs as much as the calls.
void call_until(const std::function<void()>& call, Clock::time_point end, std::size_t stride,
                CallerTurn& turn) {
  try {
    for (auto start = Clock::now(); turn.samples_us.size() < 3 || start < end;
         start = Clock::now()) {
      call();
      turn.samples_us.push_back(microseconds_since(start));
      for (std::size_t k = 1; k < stride; ++k) call();
      turn.calls += stride;
    }
  } catch (...) {
    turn.failure = std::current_exception();
  }
}

/// Threads that call at once, as those of a server do, after calls of each that make what later ones use again.
nlohmann::json take_callers_turn(Peer& peer, int callers, double seconds) {
  constexpr double kSampleMicroseconds = 5;
  std::vector<std::function<void()>> calls;
  for (int k = 0; k < callers; ++k) calls.push_back(peer.caller());
  double shortest = 1e30;
  for (const std::function<void()>& call : calls) {
    for (int k = 0; k < 3; ++k) {
      const auto start = Clock::now();
      call();
      shortest = std::min(shortest, microseconds_since(start));
    }
  }
  const auto stride =
      static_cast<std::size_t>(std::clamp(kSampleMicroseconds / shortest, 1.0, 1000.0));
  std::vector<CallerTurn> turns(calls.size());
  std::vector<std::thread> threads;
  const auto begin = Clock::now();
  const auto end =
      begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  for (std::size_t k = 0; k < calls.size(); ++k)
    threads.emplace_back([&, k] { call_until(calls[k], end, stride, turns[k]); });
  for (std::thread& thread : threads) thread.join();
  const double taken = microseconds_since(begin);
  std::size_t made = 0;
  std::vector<double> samples;
  for (const CallerTurn& turn : turns) {
    if (turn.failure) std::rethrow_exception(turn.failure);
    made += turn.calls;
    samples.insert(samples.end(), turn.samples_us.begin(), turn.samples_us.end());
  }
  return {{"samples_us", samples}, {"calls", made}, {"seconds", taken / 1e6}};
}

/// The call at sizes that may not have come before.
nlohmann::json call_on(Peer& peer, const std::string& folder, std::vector<Array>& inputs) {
  std::vector<Array> next = read_case(folder);
  const auto start = Clock::now();
  peer.first_call(next);
  const double taken = microseconds_since(start);
  inputs = std::move(next);
  return {{"call_us", taken}};
}

nlohmann::json answer(Peer& peer, const std::string& line, std::vector<Array>& inputs) {
  std::stringstream words(line);
  std::string command;
  std::string argument;
  words >> command >> argument;
  if (command == "turn") return take_turn(peer, std::stod(argument));
  if (command == "callers") {
    double seconds = 0;
    words >> seconds;
    return take_callers_turn(peer, std::stoi(argument), seconds);
  }
  if (command == "case") return call_on(peer, argument, inputs);
  if (command == "memory")
    return {{"peak_bytes", status_bytes("VmHWM")}, {"anonymous_bytes", status_bytes("RssAnon")}};
  if (command != "outputs") throw std::runtime_error("unknown command " + command);
  const std::vector<Array> arrays = peer.outputs();
  write_case(argument, arrays);
  return {{"outputs", arrays.size()}};
}

void say(const nlohmann::json& document) { std::cout << document.dump() << std::endl; }

int serve_or_throw(int argc, char** argv, Peer& peer) {
  const Arguments arguments = parse_arguments(argc, argv);
  std::vector<Array> inputs = read_case(arguments.folder);
  read_through(arguments.model);
  const std::int64_t before = status_bytes("VmRSS");
  const auto loading = Clock::now();
  peer.load(arguments);
  const double load_ms = microseconds_since(loading) / 1000;
  const auto calling = Clock::now();
  peer.first_call(inputs);
  const double first_call_ms = microseconds_since(calling) / 1000;
  nlohmann::json facts = peer.facts();
  facts["load_ms"] = load_ms;
  facts["first_call_ms"] = first_call_ms;
  facts["rss_before_bytes"] = before;
  say(facts);
  for (std::string line; std::getline(std::cin, line) && line != "end";)
    say(answer(peer, line, inputs));
  return 0;
}

}  // namespace

void FreeBytes::operator()(void* bytes) const { std::free(bytes); }

std::size_t element_bytes(const std::string& dtype) {
  static const std::map<std::string, std::size_t> kBytes{
      {"float32", 4}, {"float64", 8}, {"float16", 2}, {"int64", 8},
      {"int32", 4},   {"int8", 1},    {"uint8", 1},   {"bool", 1}};
  const auto found = kBytes.find(dtype);
  if (found == kBytes.end()) throw std::runtime_error("unknown dtype " + dtype);
  return found->second;
}

std::vector<Array> read_case(const std::string& folder) {
  std::ifstream list(folder + "/inputs.txt");
  if (!list) throw std::runtime_error("cannot read " + folder + "/inputs.txt");
  std::vector<Array> arrays;
  for (std::string name, dtype, sizes, file; list >> name >> dtype >> sizes >> file;) {
    Array array{.name = name, .dtype = dtype, .sizes = parse_sizes(sizes)};
    array.bytes = element_count(array.sizes) * element_bytes(dtype);
    array.data = aligned_bytes(array.bytes);
    std::ifstream elements(folder + "/" + file, std::ios::binary);
    if (!elements.read(static_cast<char*>(array.data.get()),
                       static_cast<std::streamsize>(array.bytes)))
      throw std::runtime_error(folder + "/" + file + " is missing or too short");
    arrays.push_back(std::move(array));
  }
  return arrays;
}

Array copied(std::string name, std::string dtype, std::vector<std::int64_t> sizes,
             const void* data) {
  Array array{.name = std::move(name), .dtype = std::move(dtype), .sizes = std::move(sizes)};
  array.bytes = element_count(array.sizes) * element_bytes(array.dtype);
  array.data = aligned_bytes(array.bytes);
  if (array.bytes > 0) std::memcpy(array.data.get(), data, array.bytes);
  return array;
}

std::string Arguments::option(const std::string& key, const std::string& otherwise) const {
  std::string value = otherwise;
  for (const auto& [name, given] : options)
    if (name == key) value = given;
  return value;
}

int serve(int argc, char** argv, Peer& peer) {
  try {
    return serve_or_throw(argc, argv, peer);
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << '\n';
    return 1;
  }
}

}  // namespace heddle::bench::peers
