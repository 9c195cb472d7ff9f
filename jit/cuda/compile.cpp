#include "jit/cuda/compile.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "base/check.h"

namespace heddle::jit::cuda {
namespace {

void dump(const std::string& folder, const std::string& key, const CudaSource& source) {
  if (folder.empty()) return;
  std::filesystem::create_directories(folder);
  std::ofstream(std::filesystem::path(folder) / (source.entry + "_" + key.substr(0, 8) + ".cu"))
      << source.text;
}

std::string folder_of(std::string given) {
  const char* variable = std::getenv("HEDDLE_DUMP_DIR");
  return given.empty() && variable != nullptr ? std::string(variable) : given;
}

}  // namespace

CudaKernel::CudaKernel(CudaSource source, std::unique_ptr<device::Module> module)
    : source_(std::move(source)),
      module_(std::move(module)),
      kernel_(module_->kernel(source_.entry)) {}

std::int64_t CudaKernel::scratch_bytes(std::span<const std::int64_t> sizes) const {
  if (source_.scratch_bytes.is_constant(0)) return 0;
  return source_.blocks.evaluate_sizes(sizes) * source_.scratch_bytes.evaluate_sizes(sizes);
}

void CudaKernel::launch(device::Device& device, std::span<void* const> buffers,
                        std::span<const std::int64_t> sizes, void* scratch, void* status,
                        device::Stream& stream) const {
  const std::int64_t blocks = source_.blocks.evaluate_sizes(sizes);
  if (blocks <= 0) return;
  std::vector<void*> arguments;
  arguments.reserve(buffers.size() + sizes.size() + 2);
  for (void* const& buffer : buffers) arguments.push_back(const_cast<void**>(&buffer));
  for (const std::int64_t& size : sizes) arguments.push_back(const_cast<std::int64_t*>(&size));
  if (!source_.scratch_bytes.is_constant(0)) arguments.push_back(&scratch);
  arguments.push_back(&status);
  device.launch(kernel_,
                {.blocks = static_cast<std::uint32_t>(blocks),
                 .threads = source_.block_threads,
                 .dynamic_shared_bytes = static_cast<std::uint32_t>(source_.dynamic_shared_bytes)},
                arguments, stream);
}

CudaCompiler::CudaCompiler(device::Device& device, CudaCompileOptions options)
    : device_(device), options_(std::move(options)), nvrtc_(options_.nvrtc_path) {
  options_.dump_folder = folder_of(options_.dump_folder);
}

CudaKernelPtr CudaCompiler::build(const Nest& nest) const {
  CudaOptions emit;
  emit.max_shared_bytes = device_.properties().max_shared_bytes;
  CudaSource source = emit_cuda(nest, emit);
  dump(options_.dump_folder, structural_key(nest).hex(), source);
  const auto compiled = nvrtc_.compile_cubin(source.text, source.entry, device_.properties().arch);
  return std::make_shared<CudaKernel>(std::move(source), device_.load(compiled.image));
}

CudaKernelPtr CudaCompiler::compile(const Nest& nest) {
  const std::string key = structural_key(nest).hex();
  std::promise<CudaKernelPtr> mine;
  std::shared_future<CudaKernelPtr> result;
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    auto [place, inserted] = kernels_.try_emplace(key);
    if (inserted) place->second = mine.get_future().share();
    first = inserted;
    result = place->second;
  }
  if (first) {
    try {
      mine.set_value(build(nest));
    } catch (...) {
      mine.set_exception(std::current_exception());
      const std::lock_guard lock(mutex_);
      kernels_.erase(key);
    }
  }
  return result.get();
}

std::uint64_t CudaCompiler::compiled() const {
  const std::lock_guard lock(mutex_);
  return kernels_.size();
}

}  // namespace heddle::jit::cuda
