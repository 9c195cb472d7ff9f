#include "jit/cuda/compile.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/hash.h"
#include "base/processors.h"
#include "heddle/error.h"
#include "jit/compile_threads.h"
#include "jit/cuda/library_product.h"
#include "jit/cuda/prelude.h"

namespace heddle::jit::cuda {

/// A hash of this folder's sources, written when they are compiled (jit/CMakeLists.txt).
extern const char* const kEmitterSources;

namespace {

/// Kernels of one program: it still compiles in a moment.
constexpr std::size_t kProgramKernels = 24;
/// Nests that a thread is started for, to emit them and look for them on disk.
constexpr std::size_t kThreadJobs = 12;

void dump(const std::string& folder, const CudaSource& source) {
  if (folder.empty()) return;
  std::filesystem::create_directories(folder);
  std::ofstream(std::filesystem::path(folder) / (source.entry + ".cu")) << source.text;
}

/// An image is known by its bytes.
std::string image_key_of(std::string_view image) {
  return "heddle CUDA image\n" + base::hash128(image).hex() + "\n" + std::to_string(image.size());
}

std::size_t in_parts(std::size_t count, std::size_t part) { return (count + part - 1) / part; }

/// Calls `work` with each number below `count`, on so many threads for compilers at most.
template <typename Work>
void for_each_on_threads(std::size_t threads, std::size_t count, const Work& work) {
  std::atomic<std::size_t> next{0};
  on_compile_threads(threads, [&] {
    for (std::size_t k = next++; k < count; k = next++) work(k);
  });
}

/// Whether code for "sm_80" or later is asked for.
bool has_tensor_cores(const std::string& arch) {
  return arch.starts_with("sm_") && std::atoi(arch.c_str() + 3) >= 80;
}

std::string folder_of(std::string given) {
  const char* variable = std::getenv("HEDDLE_DUMP_DIR");
  return given.empty() && variable != nullptr ? std::string(variable) : given;
}

}  // namespace

CudaKernel::CudaKernel(CudaCode code, std::vector<ModulePtr> modules, std::string verdict_key,
                       Libraries* libraries)
    : code_(std::move(code)),
      modules_(std::move(modules)),
      verdict_key_(std::move(verdict_key)),
      verdicts_(std::make_unique<Verdicts>()),
      libraries_(libraries) {
  for (std::size_t k = 0; k < modules_.size(); ++k) {
    const CudaSource& source = code_.variants[k];
    handles_.push_back(
        modules_[k]->kernel(source.entry, static_cast<std::uint32_t>(source.dynamic_shared_bytes)));
    names_.push_back(code_.variants[k].variant);
    code_.set_registers(static_cast<std::uint32_t>(k), handles_.back().registers);
  }
}

device::cuda::OptionalLibrary* CudaKernel::library() const {
  return code_.library && libraries_ != nullptr ? &libraries_->of(*code_.library) : nullptr;
}

bool CudaKernel::is_ready(std::uint32_t variant) const {
  return !code_.is_library(variant) || (library() != nullptr && library()->is_open());
}

bool CudaKernel::is_prepared(std::uint32_t variant, std::span<const std::int64_t> sizes) const {
  if (!code_.is_library(variant)) return true;
  return is_ready(variant) && LibraryCall::is_known(*libraries_, code_, sizes);
}

void CudaKernel::prepare(std::uint32_t variant, std::span<const std::int64_t> sizes) const {
  if (!is_prepared(variant, sizes)) choice_of(variant, sizes);
}

std::optional<CudaChoice> CudaKernel::choice_of(std::uint32_t variant,
                                                std::span<const std::int64_t> sizes) const {
  if (!code_.is_library(variant)) return code_.choice_of(variant, sizes);
  if (!is_ready(variant)) return std::nullopt;
  CudaChoice choice;
  choice.variant = variant;
  try {
    choice.library = LibraryCall::make(*libraries_, code_, sizes);
  } catch (const DeviceLost&) {
    throw;
  } catch (const DeviceError& error) {  // there are variants of ours
    library()->note(error.what());
  }
  if (choice.library == nullptr) return std::nullopt;
  choice.scratch_bytes = choice.library->scratch_bytes();
  if (choice.library->is_followed())
    choice.blocks = static_cast<std::uint32_t>(source(variant).blocks.evaluate_sizes(sizes));
  return choice;
}

std::vector<std::uint32_t> CudaKernel::plausible(std::span<const std::int64_t> sizes,
                                                 double factor) const {
  std::vector<std::uint32_t> found = code_.plausible(sizes, factor);
  if (code_.library && is_ready(variants() - 1)) found.push_back(variants() - 1);
  return found;
}

void CudaKernel::load_verdicts(KernelCache& cache) const {
  if (variants() < 2) return;
  if (const auto text = cache.find(verdict_key_)) verdicts_->add_text(*text, names_);
}

void CudaKernel::store_verdicts(KernelCache& cache) const {
  load_verdicts(cache);  // of other processes
  cache.store(verdict_key_, verdicts_->to_text(names_));
}

void CudaKernel::launch(device::Device& device, const CudaChoice& choice,
                        std::span<void* const> buffers, std::span<const std::int64_t> sizes,
                        void* scratch, void* counters, void* status, device::Stream& stream) const {
  std::vector<void*> arguments;
  arguments.reserve(buffers.size() + sizes.size() + 3);
  for (void* const& buffer : buffers) arguments.push_back(const_cast<void**>(&buffer));
  for (const std::int64_t& size : sizes) arguments.push_back(const_cast<std::int64_t*>(&size));
  if (source().takes_scratch()) arguments.push_back(&scratch);
  if (source().takes_counters()) arguments.push_back(&counters);
  arguments.push_back(&status);
  if (choice.library != nullptr) {
    if (!choice.library->takes(arguments)) return launch_instead(device, arguments, stream);
    choice.library->run(arguments, scratch, stream.native());
  }
  launch_ours(device, choice.variant, choice.blocks, arguments, stream);
}

void CudaKernel::launch(device::Device& device, std::uint32_t variant, std::uint32_t blocks,
                        const LibraryCall* library, std::span<void* const> arguments,
                        device::Stream& stream) const {
  if (library != nullptr && !run_library(*library, arguments, stream))
    return launch_instead(device, arguments, stream);
  launch_ours(device, variant, blocks, arguments, stream);
}

bool CudaKernel::run_library(const LibraryCall& call, std::span<void* const> arguments,
                             device::Stream& stream) const {
  if (!library()->is_open() || !call.takes(arguments)) return false;
  try {
    call.run(arguments, scratch_of(arguments), stream.native());
    return true;
  } catch (const DeviceLost&) {
    throw;
  } catch (const DeviceError& error) {
    library()->fail(error.what());
    return false;
  }
}

void CudaKernel::launch_ours(device::Device& device, std::uint32_t variant, std::uint32_t blocks,
                             std::span<void* const> arguments, device::Stream& stream) const {
  if (blocks == 0) return;
  const CudaSource& code = source(variant);
  device.launch(handles_[variant],
                {.blocks = blocks,
                 .threads = code.block_threads,
                 .dynamic_shared_bytes = static_cast<std::uint32_t>(code.dynamic_shared_bytes)},
                arguments, stream);
}

/// The variant of ours that is expected to be the fastest, without scratch.
void CudaKernel::launch_instead(device::Device& device, std::span<void* const> arguments,
                                device::Stream& stream) const {
  std::vector<std::int64_t> sizes;
  for (std::size_t k = code_.buffers.size(); k + kAfterSizes < arguments.size(); ++k)
    sizes.push_back(*static_cast<const std::int64_t*>(arguments[k]));
  const std::uint32_t variant = code_.choose(sizes).variant;
  const auto blocks = static_cast<std::uint32_t>(source(variant).blocks.evaluate_sizes(sizes));
  launch_ours(device, variant, blocks, arguments, stream);
}

void* CudaKernel::scratch_of(std::span<void* const> arguments) {
  return *static_cast<void* const*>(arguments[arguments.size() - kAfterSizes]);
}

CudaCompiler::CudaCompiler(device::Device& device, CudaCompileOptions options)
    : device_(device),
      options_(std::move(options)),
      nvrtc_(options_.nvrtc_path, device.properties().driver_version),
      libraries_(device, options_.libraries) {
  options_.dump_folder = folder_of(options_.dump_folder);
  if (options_.threads <= 0) options_.threads = base::processors();
}

struct CudaCompiler::Job {
  std::string key;
  const Nest* nest;
  CudaCode code{};
  std::vector<ModulePtr> modules{};     ///< of the variants
  std::atomic<std::size_t> missing{0};  ///< variants without a module
  std::atomic<bool> is_settled{false};  ///< the promise has been kept, or will be by who set this
  std::promise<CudaKernelPtr> promise{};
};

/// One variant of a kernel to come.
struct CudaCompiler::Unit {
  Job* job;
  std::uint32_t variant;
  std::size_t text_bytes;  ///< with what it uses of the prelude: about how long it compiles

  const CudaSource& source() const { return job->code.variants[variant]; }
};

void CudaCompiler::emit(Job& job) const {
  CudaOptions emit;
  emit.max_shared_bytes = device_.properties().max_shared_bytes;
  emit.multiprocessors = device_.properties().multiprocessors;
  emit.tensor_cores = has_tensor_cores(device_.properties().arch);
  emit.warpgroups = device_.properties().arch == "sm_90a";
  emit.cublaslt = libraries_.cublaslt.is_wanted();
  emit.cudnn = libraries_.cudnn.is_wanted();
  Nest named = *job.nest;
  named.name += "_" + job.key.substr(0, 12);  // several kernels of one name may share a program
  job.code = emit_code(named, emit);
  for (const CudaSource& source : job.code.variants) dump(options_.dump_folder, source);
}

/// One program of several kernels.
void CudaCompiler::build(std::span<const Unit> units, KernelCache* cache) {
  std::string kernels;
  for (const Unit& unit : units) kernels += unit.source().kernel + "\n";
  const auto compiled = nvrtc_.compile_cubin(
      prelude_for(kernels) + kernels, units.front().source().entry, device_.properties().arch);
  const ModulePtr module = device_.load(compiled.image);
  ++programs_;
  if (cache != nullptr) {
    const std::string_view image(compiled.image.data(), compiled.image.size());
    const std::string image_key = image_key_of(image);
    if (cache->store(image_key, image))
      for (const Unit& unit : units)
        cache->store(key_of(unit.source()), unit.source().entry + "\n" + image_key);
  }
  for (const Unit& unit : units) {
    unit.job->modules[unit.variant] = module;
    if (unit.job->missing.fetch_sub(1) == 1) finish(*unit.job, cache);
  }
}

/// All variants are there.
void CudaCompiler::finish(Job& job, KernelCache* cache) {
  if (job.is_settled.exchange(true)) return;
  try {
    const auto kernel =
        std::make_shared<CudaKernel>(job.code, job.modules, verdict_key_of(job.code), &libraries_);
    if (cache != nullptr) kernel->load_verdicts(*cache);
    ++compiled_;
    job.promise.set_value(kernel);
  } catch (...) {
    forget(job);
  }
}

std::string CudaCompiler::code_key() const {
  return "heddle CUDA code\n" + options_.target + "\n" + version() + "\n" +
         device_.properties().name + "\n" + std::to_string(device_.properties().multiprocessors) +
         "\n" + kEmitterSources + "\n";
}

/// The text as it would be under any other name, and all else that the code depends on.
std::string CudaCompiler::key_of(const CudaSource& source) const {
  std::string text = source.kernel;
  for (std::size_t at = text.find(source.entry); at != std::string::npos;
       at = text.find(source.entry, at))
    text.replace(at, source.entry.size(), "@");
  return "heddle CUDA kernel\n" + options_.target + "\n" + version() + "\n" +
         device_.properties().arch + "\n" + device::cuda::Nvrtc::fixed_options() + "\n" +
         base::hash128(prelude_text()).hex() + "\n" + text;
}

/// Of all variants, on a device of this kind, with this cuDNN. No version of cuBLASLt is asked for: loading it takes long.
std::string CudaCompiler::verdict_key_of(const CudaCode& code) const {
  std::string key = "heddle CUDA verdicts\n" + device_.properties().name + "\n" +
                    std::to_string(device_.properties().multiprocessors) + "\n";
  for (const CudaSource& source : code.variants) key += base::hash128(key_of(source)).hex() + "\n";
  if (code.library && code.library->convolution) key += "cuDNN " + libraries_.cudnn.version();
  return key;
}

CudaCompiler::ModulePtr CudaCompiler::load(const std::string& image_key, KernelCache& cache) {
  const std::lock_guard lock(modules_mutex_);
  if (const auto known = modules_.find(image_key); known != modules_.end())
    if (ModulePtr module = known->second.lock()) return module;
  const std::optional<std::string> image = cache.find(image_key);
  if (!image) return nullptr;
  ModulePtr module = device_.load(*image);
  std::erase_if(modules_, [](const auto& entry) { return entry.second.expired(); });
  modules_[image_key] = module;
  return module;
}

CudaKernelPtr CudaCompiler::find(const Job& job, KernelCache& cache) {
  CudaCode code = job.code;
  std::vector<ModulePtr> modules;
  try {
    for (CudaSource& source : code.variants) {
      const std::optional<std::string> entry = cache.find(key_of(source));
      const std::size_t end = entry ? entry->find('\n') : std::string::npos;
      if (end == std::string::npos) return nullptr;
      source.entry = entry->substr(0, end);
      modules.push_back(load(entry->substr(end + 1), cache));
      if (modules.back() == nullptr) return nullptr;
    }
    const auto kernel = std::make_shared<CudaKernel>(std::move(code), std::move(modules),
                                                     verdict_key_of(job.code), &libraries_);
    kernel->load_verdicts(cache);
    return kernel;
  } catch (const DeviceLost&) {
    throw;
  } catch (const DeviceError&) {
    return nullptr;
  }
}

/// A program that does not compile is tried again kernel by kernel, to find out which it is.
void CudaCompiler::run(std::span<const Unit> units, KernelCache* cache) {
  try {
    build(units, cache);
  } catch (...) {
    if (units.size() == 1) return fail(*units[0].job);
    for (std::size_t k = 0; k < units.size(); ++k) run(units.subspan(k, 1), cache);
  }
}

/// Emits the job, and takes its kernel from disk if it is there. @return the variants that have to be compiled.
std::vector<CudaCompiler::Unit> CudaCompiler::prepare(Job& job, KernelCache* cache) {
  try {
    emit(job);
    if (CudaKernelPtr kernel = cache == nullptr ? nullptr : find(job, *cache)) {
      job.promise.set_value(std::move(kernel));
      ++disk_hits_;
      return {};
    }
  } catch (...) {
    fail(job);
    return {};
  }
  std::vector<Unit> units;
  job.modules.resize(job.code.variants.size());
  job.missing = job.code.variants.size();
  for (std::uint32_t k = 0; k < job.code.variants.size(); ++k)
    units.push_back({&job, k, job.code.variants[k].text.size()});
  return units;
}

/// The job ends with the exception that is being handled, unless it has ended.
void CudaCompiler::fail(Job& job) {
  if (!job.is_settled.exchange(true)) forget(job);
}

void CudaCompiler::forget(Job& job) {
  job.promise.set_exception(std::current_exception());
  kernels_.forget(job.key);
}

/// As many programs as there are compilers, of about as much text each, and more where they would grow too large.
std::vector<std::vector<CudaCompiler::Unit>> CudaCompiler::programs_of(std::vector<Unit> units,
                                                                       std::size_t compilers) {
  const std::size_t least_programs = in_parts(units.size(), kProgramKernels);
  std::vector<std::vector<Unit>> programs(
      std::min(units.size(), std::max(compilers, least_programs)));
  std::vector<std::size_t> bytes(programs.size(), 0);
  std::ranges::stable_sort(units, std::ranges::greater{}, &Unit::text_bytes);
  for (const Unit& unit : units) {
    const std::size_t least =
        static_cast<std::size_t>(std::ranges::min_element(bytes) - bytes.begin());
    programs[least].push_back(unit);
    bytes[least] += unit.text_bytes;
  }
  return programs;
}

std::vector<std::shared_future<CudaKernelPtr>> CudaCompiler::compile_all(
    std::span<const Nest* const> nests, KernelCache* cache) {
  std::vector<std::unique_ptr<Job>> jobs;
  std::vector<std::shared_future<CudaKernelPtr>> results;
  for (const Nest* nest : nests) {
    auto job = std::make_unique<Job>(structural_key(*nest).hex(), nest);
    const auto found = kernels_.find_or_add(job->key, job->promise);
    results.push_back(found.kernel);
    if (found.is_new) jobs.push_back(std::move(job));
  }
  const auto compilers = static_cast<std::size_t>(options_.threads);
  std::vector<std::vector<Unit>> found(jobs.size());
  for_each_on_threads(std::min(compilers, in_parts(jobs.size(), kThreadJobs)), jobs.size(),
                      [&](std::size_t k) { found[k] = prepare(*jobs[k], cache); });
  std::vector<Unit> units;
  for (const std::vector<Unit>& some : found) units.insert(units.end(), some.begin(), some.end());
  const std::vector<std::vector<Unit>> programs = programs_of(std::move(units), compilers);
  for_each_on_threads(std::min(compilers, programs.size()), programs.size(),
                      [&](std::size_t k) { run(programs[k], cache); });
  return results;
}

std::unique_ptr<device::Module> CudaCompiler::compile_text(const std::string& text,
                                                           const std::string& name) const {
  return device_.load(nvrtc_.compile_cubin(text, name, device_.properties().arch).image);
}

CudaKernelPtr CudaCompiler::compile(const Nest& nest) {
  const Nest* one = &nest;
  return compile_all({&one, 1}).front().get();
}

}  // namespace heddle::jit::cuda
