#include "tests/cuda_sim/host_compiler.h"

#include <atomic>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash.h"

extern char** environ;

namespace heddle::sim {
namespace {

namespace fs = std::filesystem;

constexpr const char* kShim = "tests/cuda_sim/kernel_shim.h";
constexpr const char* kState = "tests/cuda_sim/state.h";
constexpr const char* kFlags[] = {
    "-std=c++17", "-O1", "-g0", "-w", "-fPIC", "-shared", "-fwrapv", "-ffp-contract=off",
    "-fno-strict-aliasing", "-fno-math-errno", "-fno-trapping-math", "-fno-exceptions", "-fno-rtti",
    "-fno-gnu-unique", "-nostdlib",
    // Calls of the shim before each access through a pointer, and no more of what the sanitizer does. That for addresses
    // would leave out the write of an element that is read and written at once.
    "-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0",
    // Calls of the shim where the text is undefined. Integers wrap, and casts of floats saturate, in kernels.
    "-fsanitize=shift,integer-divide-by-zero,bounds,alignment,null,bool",
    "-fno-sanitize-recover=all", "-Wl,-Bsymbolic", "-x", "c++"};

std::string environment_or(const char* variable, const char* otherwise) {
  const char* value = std::getenv(variable);
  return value == nullptr ? otherwise : value;
}

/// The folder that holds tests/cuda_sim: of the tree that the simulator was built from, if nobody says otherwise.
std::string root() { return environment_or("HEDDLE_CUDA_SIM_ROOT", HEDDLE_CUDA_SIM_ROOT); }
std::string compiler() {
  return environment_or("HEDDLE_CUDA_SIM_COMPILER", HEDDLE_CUDA_SIM_COMPILER);
}

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

fs::path cache_folder() {
  const char* chosen = std::getenv("HEDDLE_CUDA_SIM_CACHE");
  fs::path folder = chosen != nullptr ? fs::path(chosen)
                                      : fs::temp_directory_path() /
                                            ("heddle-cuda-sim-" + std::to_string(::getuid()));
  fs::create_directories(folder);
  return folder;
}

/// Runs the compiler; its messages go to `log`. True if it succeeded.
bool compile(const fs::path& source, const fs::path& output, const fs::path& log) {
  std::vector<std::string> words = {compiler()};
  words.insert(words.end(), std::begin(kFlags), std::end(kFlags));
  words.insert(words.end(), {"-I", root(), "-include", root() + "/" + kShim, source.string(), "-o",
                             output.string()});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child = 0;
  const int failed =
      ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return false;
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// What makes kernels callable from outside, after their text.
std::string exports_of(const std::vector<std::string>& kernels) {
  std::string text = "\n#define HEDDLE_SIM_HIDDEN __attribute__((weak, visibility(\"hidden\")))\n";
  for (const std::string& name : kernels) {
    const std::string section = "heddle_shared_" + name;
    text += "extern \"C\" {\nvoid heddle_sim_call_" + name + "(void** a) { heddle_sim_call(&" +
            name + ", a); }\nconst char* heddle_sim_kinds_" + name +
            "() { return heddle_sim_kinds(&" + name + "); }\nextern unsigned char __start_" +
            section + "[] HEDDLE_SIM_HIDDEN, __stop_" + section +
            "[] HEDDLE_SIM_HIDDEN;\nHEDDLE_SIM_PLAIN void "
            "heddle_sim_shared_" +
            name + "(unsigned char** begin, unsigned char** end) {\n  *begin = __start_" + section +
            ";\n  *end = __stop_" + section + ";\n}\n}\n";
  }
  return text;
}

/// `text` with __shared__ defined before each kernel: statics in a section of the kernel's name.
std::string with_sections(const std::string& text, const std::vector<std::string>& kernels) {
  static constexpr std::string_view kBegin = "extern \"C\" __global__ void";
  std::string result;
  std::size_t from = 0;
  for (const std::string& name : kernels) {
    const std::size_t at = text.find(kBegin, from);
    if (at == std::string::npos) break;
    result +=
        text.substr(from, at - from) +
        "\n#undef __shared__\n#define __shared__ static __attribute__((section(\"heddle_shared_" +
        name + "\")))\n" + std::string(kBegin);
    from = at + kBegin.size();
  }
  return result + text.substr(from);
}

}  // namespace

std::vector<std::string> kernels_in(const std::string& text) {
  static constexpr std::string_view kWord = "__global__ void";
  std::vector<std::string> names;
  for (std::size_t at = text.find(kWord); at != std::string::npos; at = text.find(kWord, at)) {
    at += kWord.size();
    // The kernel's name is the word before the first parenthesis that is not of the launch bounds.
    std::string word;
    for (;; ++at) {
      while (at < text.size() && !is_word(text[at])) ++at;
      word.clear();
      while (at < text.size() && is_word(text[at])) word += text[at++];
      if (word != "__launch_bounds__") break;
      at = text.find(')', at);
    }
    names.push_back(word);
  }
  return names;
}

const std::string& compiler_stamp() {
  static const std::string stamp = [] {
    const fs::path folder = root();
    std::string all = read(folder / kShim) + read(folder / kState) + compiler();
    for (const char* flag : kFlags) all += flag;
    return base::hash128(all).hex();
  }();
  return stamp;
}

HostImage compile_for_host(const std::string& text) {
  const std::vector<std::string> kernels = kernels_in(text);
  const std::string whole = with_sections(text, kernels) + exports_of(kernels);
  const fs::path folder = cache_folder();
  const fs::path kept = folder / (base::hash128(whole + compiler_stamp()).hex() + ".so");
  HostImage image;
  if (!fs::exists(kept)) {
    static std::atomic<int> count{0};
    const std::string unique =
        kept.string() + "." + std::to_string(::getpid()) + "." + std::to_string(count++);
    const fs::path source = unique + ".cu";
    std::ofstream(source) << whole;
    const bool good = compile(source, unique + ".so", unique + ".log");
    image.log = read(unique + ".log");
    fs::remove(unique + ".log");
    fs::remove(source);
    if (!good) return image;
    fs::rename(unique + ".so", kept);
  }
  const std::string bytes = read(kept);
  image.bytes.assign(bytes.begin(), bytes.end());
  return image;
}

}  // namespace heddle::sim
