#include "jit/compile_service.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <tbb/concurrent_queue.h>
#include <vector>

#include "base/check.h"
#include "base/processors.h"
#include "heddle/error.h"
#include "jit/compile_threads.h"
#include "jit/constant_cache.h"
#include "jit/kernel_cache.h"
#include "jit/library_choice.h"
#include "jit/recent_kernels.h"
#if HEDDLE_WITH_LLVM
#include "jit/cpu/llvm/codegen.h"
#endif

namespace heddle::jit {
namespace {

using Task = std::packaged_task<CpuKernelPtr()>;

std::string environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::string() : std::string(text);
}

/// Numbers that several threads take until none is left.
class SharedWork {
 public:
  SharedWork(std::size_t count, const std::function<void(std::size_t)>& work)
      : count_(count), work_(&work), errors_(count) {}

  void take_all() {
    while (take_one() != 0) continue;
  }
  /// @return how many were left when it took one, that one included.
  std::size_t take_one() {
    const std::size_t k = next_.fetch_add(1);
    if (k >= count_) return 0;
    try {
      (*work_)(k);
    } catch (...) {
      errors_[k] = std::current_exception();
    }
    if (done_.fetch_add(1) + 1 == count_) done_.notify_all();
    return count_ - k;
  }

  /// Until all calls have returned. Who comes later finds nothing to do.
  void wait() const {
    for (std::size_t done = done_.load(); done != count_; done = done_.load()) done_.wait(done);
    for (const std::exception_ptr& error : errors_)
      if (error != nullptr) std::rethrow_exception(error);
  }

 private:
  const std::size_t count_;
  const std::function<void(std::size_t)>* const work_;  ///< its owner waits until all is done
  std::vector<std::exception_ptr> errors_;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::size_t> done_{0};
};

}  // namespace

struct CompileService::State {
  explicit State(CompileOptions given) : options(std::move(given)) {
    if (options.dump_folder.empty()) options.dump_folder = environment("HEDDLE_DUMP_DIR");
    if (options.disk_cache) cache.emplace(options.cache_folder, options.max_cache_bytes);
#if HEDDLE_WITH_LLVM
    const bool amx = options.amx && environment("HEDDLE_AMX") != "0";
    if (options.cpu.empty()) options.cpu = environment("HEDDLE_CPU");
    target = options.cpu.empty() ? cpu::host_target(options.vector_bytes, amx)
                                 : cpu::named_target(options.cpu, options.vector_bytes, amx);
    key_prefix = "heddle kernel\n" + cpu::codegen_version() + "\n" + target.key() + "\n";
#endif
    if (cache && options.keep_constants && !cache->folder().empty())
      constants.emplace(cache->folder() + "/constants", options.max_constant_bytes);
    verdicts.emplace(cache ? &*cache : nullptr, key_prefix + library_version());
  }

  CpuKernelPtr make(const Nest& nest, const std::string& key);
  std::size_t most_threads() const;
  void enqueue(Task task);
  void work();
  void stop();

  CompileOptions options;
  std::optional<KernelCache> cache;
  std::optional<ConstantCache> constants;
#if HEDDLE_WITH_LLVM
  cpu::CodegenTarget target;
#endif
  std::string key_prefix;
  std::optional<LibraryVerdicts> verdicts;

  RecentKernels<CpuKernel> kernels{options.max_idle_kernels};

  std::atomic<std::uint64_t> compiled{0};
  std::atomic<std::uint64_t> memory_hits{0};
  std::atomic<std::uint64_t> disk_hits{0};
  std::atomic<std::uint64_t> microseconds{0};

  tbb::concurrent_bounded_queue<Task> queue;  ///< a task without a function ends its thread
  std::mutex threads_mutex;
  std::vector<std::unique_ptr<CompileThread>> threads;
};

#if HEDDLE_WITH_LLVM
namespace {

void write_text(const std::string& path, const std::string& text) {
  if (!text.empty()) std::ofstream(path) << text;
}

/// Writes a nest's text before it is compiled and what came of it afterwards, whether it succeeded or
/// not.
class Dump {
 public:
  Dump(const std::string& folder, const Nest& nest) {
    std::error_code ignored;
    std::filesystem::create_directories(folder, ignored);
    stem_ = folder + "/" + nest.name + "_" + structural_key(nest).hex().substr(0, 8);
    texts_.want_assembly = !environment("HEDDLE_DUMP_ASM").empty();
    write_text(stem_ + ".nest", print(nest));
  }
  ~Dump() {
    write_text(stem_ + ".ll", texts_.ir);
    write_text(stem_ + ".opt.ll", texts_.optimized);
    write_text(stem_ + ".s", texts_.assembly);
  }
  Dump(const Dump&) = delete;
  Dump& operator=(const Dump&) = delete;

  cpu::CodegenTexts* texts() { return &texts_; }

 private:
  std::string stem_;
  cpu::CodegenTexts texts_;
};

/// The disk cache, for functions that kernels share.
class CachedObjects final : public cpu::ObjectStore {
 public:
  explicit CachedObjects(KernelCache& cache) : cache_(cache) {}
  std::optional<std::string> find(const std::string& key) override { return cache_.find(key); }
  void store(const std::string& key, const std::string& object) override {
    cache_.store(key, object);
  }
  std::string place() const override { return cache_.folder(); }

 private:
  KernelCache& cache_;
};

CpuKernelPtr load(const Nest& nest, const std::string& object, const cpu::CodegenTarget& target,
                  std::optional<KernelCache>& cache) {
  std::optional<CachedObjects> store;
  if (cache) store.emplace(*cache);
  cpu::LoadedObject loaded = cpu::load_object(object, target, store ? &*store : nullptr);
  auto kernel = std::make_shared<CpuKernel>();
  kernel->entry = loaded.entry;
  kernel->scratch_bytes = scratch_bytes(nest);
  kernel->code = std::move(loaded.code);
  return kernel;
}

}  // namespace

CpuKernelPtr CompileService::State::make(const Nest& nest, const std::string& key) {
  if (cache) {
    if (const auto object = cache->find(key)) {
      try {
        CpuKernelPtr kernel = load(nest, *object, target, cache);
        disk_hits.fetch_add(1);
        return kernel;
      } catch (const CompileError&) {
        // An object that does not link is as good as none.
      }
    }
  }
  const auto start = std::chrono::steady_clock::now();
  std::optional<Dump> dump;
  if (!options.dump_folder.empty()) dump.emplace(options.dump_folder, nest);
  const std::string object = cpu::compile_object(nest, target, dump ? dump->texts() : nullptr);
  CpuKernelPtr kernel = load(nest, object, target, cache);
  const auto spent = std::chrono::steady_clock::now() - start;
  compiled.fetch_add(1);
  microseconds.fetch_add(static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(spent).count()));
  if (cache) cache->store(key, object);
  return kernel;
}
#else
CpuKernelPtr CompileService::State::make(const Nest& nest, const std::string&) {
  throw UnsupportedError({.what = "compiling kernels for the CPU",
                          .where = nest.name,
                          .expected = "a build with HEDDLE_WITH_LLVM, or Device::reference()",
                          .got = "one without"});
}
#endif

std::size_t CompileService::State::most_threads() const {
  constexpr int kMost = 4;
  return options.threads != 0 ? options.threads
                              : static_cast<unsigned>(std::min(kMost, base::processors()));
}

/// A thread is started when none waits for a task, up to the number allowed.
void CompileService::State::enqueue(Task task) {
  queue.push(std::move(task));
  const std::lock_guard lock(threads_mutex);
  const std::size_t most = most_threads();
  if (!threads.empty() && (queue.size() <= 0 || threads.size() >= most)) return;
  if (auto thread = CompileThread::start([this] { work(); })) threads.push_back(std::move(thread));
  HD_CHECK(!threads.empty(), "a compile thread could not be started");
}

void CompileService::State::work() {
  Task task;
  for (queue.pop(task); task.valid(); queue.pop(task)) task();
}

void CompileService::State::stop() {
  for (std::size_t k = 0; k < threads.size(); ++k) queue.push(Task());
  threads.clear();
}

CompileService::CompileService(CompileOptions options)
    : state_(std::make_unique<State>(std::move(options))) {}

CompileService::~CompileService() { state_->stop(); }

CompileService& CompileService::shared() {
  // Never destroyed: kernels are asked for until the process ends.
  static CompileService* const service = new CompileService;
  return *service;
}

CpuKernelPtr CompileService::compile(const Nest& nest) {
  const std::string key = state_->key_prefix + structural_text(nest);
  std::promise<CpuKernelPtr> promise;
  if (const auto found = state_->kernels.find_or_add(key, promise); !found.is_new) {
    state_->memory_hits.fetch_add(1);
    return found.kernel.get();
  }
  try {
    CpuKernelPtr kernel = state_->make(nest, key);
    promise.set_value(kernel);
    return kernel;
  } catch (...) {
    // Those who wait see the failure; who comes later tries anew.
    promise.set_exception(std::current_exception());
    state_->kernels.forget(key);
    throw;
  }
}

std::shared_future<CpuKernelPtr> CompileService::submit(std::shared_ptr<const Nest> nest) {
  Task task([this, nest = std::move(nest)] { return compile(*nest); });
  std::shared_future<CpuKernelPtr> future = task.get_future().share();
  state_->enqueue(std::move(task));
  return future;
}

void CompileService::for_each(std::size_t count, const std::function<void(std::size_t)>& work,
                              bool may_be_short) {
  if (count == 0) return;
  const auto shared = std::make_shared<SharedWork>(count, work);
  constexpr auto kShort = std::chrono::microseconds(50);
  const auto start = std::chrono::steady_clock::now();
  std::size_t left = count;
  while (may_be_short && left != 0 && std::chrono::steady_clock::now() - start < kShort)
    left = shared->take_one() - 1;
  const auto help = [shared]() -> CpuKernelPtr {
    shared->take_all();
    return nullptr;
  };
  try {
    for (std::size_t k = 1; k < std::min(left, state_->most_threads()); ++k)
      state_->enqueue(Task(help));
  } catch (const std::exception&) {
    // Without help, or with less, it takes longer.
  }
  shared->take_all();
  shared->wait();
}

CompileCounters CompileService::counters() const {
  return {state_->compiled.load(), state_->memory_hits.load(), state_->disk_hits.load(),
          state_->microseconds.load()};
}

KernelCache* CompileService::disk_cache() { return state_->cache ? &*state_->cache : nullptr; }

ConstantCache* CompileService::constants() {
  return state_->constants ? &*state_->constants : nullptr;
}

const std::string& CompileService::code_key() const { return state_->key_prefix; }

bool CompileService::can_compile() const { return HEDDLE_WITH_LLVM != 0; }

LibraryVerdicts& CompileService::library_verdicts() { return *state_->verdicts; }

#if HEDDLE_WITH_LLVM
std::int64_t CompileService::vector_bytes() const { return state_->target.vector_bytes; }
bool CompileService::has_byte_dot() const { return cpu::has_byte_dot(state_->target); }
bool CompileService::has_amx() const { return cpu::has_amx(state_->target); }
bool CompileService::has_byte_tables() const { return cpu::has_byte_tables(state_->target); }
bool CompileService::has_bf16_dot() const { return cpu::has_bf16_dot(state_->target); }
bool CompileService::has_fast_bf16_dot() const { return cpu::has_fast_bf16_dot(state_->target); }
#else
std::int64_t CompileService::vector_bytes() const { return 16; }
bool CompileService::has_byte_dot() const { return false; }
bool CompileService::has_amx() const { return false; }
bool CompileService::has_byte_tables() const { return false; }
bool CompileService::has_bf16_dot() const { return false; }
bool CompileService::has_fast_bf16_dot() const { return false; }
#endif

}  // namespace heddle::jit
