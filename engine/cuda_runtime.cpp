#include "engine/cuda_runtime.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <tuple>
#include <utility>

#include "device/cuda/cublaslt.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cudnn.h"
#include "engine/settings.h"
#include "heddle/error.h"

namespace heddle::engine {

namespace {

namespace fs = std::filesystem;

/// The folder of the library or program that this function is part of.
fs::path own_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&cuda_sim_path), &info) == 0) return {};
  std::error_code error;
  return fs::absolute(info.dli_fname, error).parent_path();
}

std::string driver_path(const Device& device) {
  return device.kind() == Device::Kind::CudaSim ? cuda_sim_path() : std::string();
}

jit::cuda::CudaCompileOptions compile_options(const Device& device) {
  jit::cuda::CudaCompileOptions options;
  // The simulated driver brings a compiler of its own.
  options.nvrtc_path = driver_path(device);
  // On the simulated one only the simulator's own make sense, which have to be asked for.
  const auto is_wanted = [&](const char* variable) {
    return device.kind() != Device::Kind::CudaSim || std::getenv(variable) != nullptr;
  };
  if (is_wanted("HEDDLE_CUBLASLT_PATH"))
    options.libraries.cublaslt = device::cuda::cublaslt_paths();
  if (is_wanted("HEDDLE_CUDNN_PATH")) options.libraries.cudnn = device::cuda::cudnn_paths();
  options.target = device.kind() == Device::Kind::CudaSim ? "cuda-sim" : "cuda";
  return options;
}

}  // namespace

std::string cuda_sim_path() {
  if (const char* path = std::getenv("HEDDLE_CUDA_SIM_PATH")) return path;
  const fs::path folder = own_folder();
  const fs::path places[] = {folder / "libheddle_cuda_sim.so",
                             folder.parent_path() / "lib" / "libheddle_cuda_sim.so"};
  std::error_code error;
  for (const fs::path& place : places)
    if (fs::exists(place, error)) return place.string();
  throw DeviceError(
      {.what = "cuda-sim: the simulated driver was not found",
       .where = {},
       .expected = "$HEDDLE_CUDA_SIM_PATH, " + places[0].string() + " or " + places[1].string(),
       .got = "no such file"});
}

CudaRuntimePtr CudaRuntime::get(const Device& device, void* context) {
  static std::mutex mutex;
  static std::map<std::tuple<Device::Kind, int, void*>, std::weak_ptr<CudaRuntime>> open;
  const std::scoped_lock lock(mutex);
  std::weak_ptr<CudaRuntime>& known = open[{device.kind(), device.index(), context}];
  CudaRuntimePtr runtime = known.lock();
  if (runtime != nullptr && !runtime->device().lost()) return runtime;
  auto made = std::make_shared<CudaRuntime>(device, runtime != nullptr, context);
  known = made;
  return made;
}

CudaRuntime::CudaRuntime(const Device& device, bool reset, void* context)
    : name_(device),
      device_(device::cuda::open_cuda(device.index(), driver_path(device), reset, context)),
      compiler_(*device_, compile_options(device)),
      texts_([this](const ir::KernelText& text) {
        return compiler_.compile_text(text.text, text.kernel);
      }),
      pool_(*device_, memory::DevicePool::Kind::Device),
      pinned_(*device_, memory::DevicePool::Kind::Pinned),
      stream_(device_->make_stream()) {
  pool_.set_cap(device_memory_cap());
  pinned_.set_cap(pinned_memory_cap());
}

std::shared_ptr<DeviceBytes> CudaRuntime::allocate(std::size_t bytes) {
  auto made = std::make_shared<DeviceBytes>();
  made->runtime = shared_from_this();
  made->block = std::make_shared<memory::PoolBlock>(pool_, bytes);
  return made;
}

std::shared_ptr<DeviceBytes> CudaRuntime::find(const ir::Literal& literal) {
  const std::scoped_lock lock(mutex_);
  const auto found = uploads_.find(literal.identity());
  if (found == uploads_.end()) return nullptr;
  const Upload& upload = found->second;
  const bool same = !upload.source.expired() && upload.count == literal.bytes();
  return same ? upload.bytes.lock() : nullptr;
}

void CudaRuntime::note(const ir::Literal& literal, const std::shared_ptr<DeviceBytes>& bytes) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(uploads_, [](const auto& entry) {
    return entry.second.bytes.expired() || entry.second.source.expired();
  });
  uploads_[literal.identity()] = {bytes, literal.life(), literal.bytes()};
}

std::shared_ptr<DeviceBytes> CudaRuntime::upload(const ir::Literal& literal) {
  if (auto bytes = find(literal)) return bytes;
  auto bytes = allocate(literal.bytes());
  copy_in(bytes->address(), literal.unaligned_data(), literal.bytes());
  note(literal, bytes);
  return bytes;
}

std::shared_ptr<DeviceBytes> CudaRuntime::place_for(const ir::Literal& literal) {
  auto bytes = allocate(literal.bytes());
  note(literal, bytes);
  return bytes;
}

void CudaRuntime::copy(void* to, const void* from, std::size_t bytes, device::CopyKind kind) {
  if (bytes == 0) return;
  const std::scoped_lock lock(mutex_);
  device_->copy(to, from, bytes, kind, *stream_);
  stream_->synchronize();
}

void CudaRuntime::copy_rows(Rows<char> to, Rows<const char> from, std::size_t bytes,
                            std::size_t count, bool from_device) {
  if (bytes == 0) return;
  const auto kind = from_device ? device::CopyKind::DeviceToDevice : device::CopyKind::HostToDevice;
  const std::scoped_lock lock(mutex_);
  for (std::size_t row = 0; row < count; ++row)
    device_->copy(to.begin + row * to.pitch, from.begin + row * from.pitch, bytes, kind, *stream_);
  stream_->synchronize();
}

void CudaRuntime::copy_in(void* to, const void* from, std::size_t bytes) {
  copy(to, from, bytes, device::CopyKind::HostToDevice);
}

void CudaRuntime::copy_within(void* to, const void* from, std::size_t bytes) {
  copy(to, from, bytes, device::CopyKind::DeviceToDevice);
}

void CudaRuntime::copy_out(void* to, const void* from, std::size_t bytes) {
  copy(to, from, bytes, device::CopyKind::DeviceToHost);
}

}  // namespace heddle::engine
