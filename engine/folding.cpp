#include "engine/folding.h"

#include <future>
#include <optional>
#include <utility>

#include "jit/copy_nest.h"
#include "jit/open_nest.h"

namespace heddle::engine {
namespace {

constexpr std::uintptr_t kScratchAlignment = 64;

class CpuFolding final : public FoldingKernels {
 public:
  explicit CpuFolding(jit::CompileService& compiler) : compiler_(compiler) {}

  std::string code_key() const override { return compiler_.code_key(); }

  void submit(std::vector<std::shared_ptr<const jit::Nest>> nests) override {
    nests_ = std::move(nests);
    kernels_.resize(nests_.size());
    copies_.resize(nests_.size());
    own_sizes_.resize(nests_.size());
    for (std::size_t k = 0; k < nests_.size(); ++k) {
      if (nests_[k] == nullptr) continue;
      copies_[k] = jit::CopyNest::of(*nests_[k]);
      if (copies_[k]) continue;
      jit::OpenNest opened = jit::OpenNest::of(nests_[k]);
      nests_[k] = std::move(opened.nest);
      own_sizes_[k] = std::move(opened.sizes);
      kernels_[k] = compiler_.submit(nests_[k]);
    }
  }

  std::int32_t run(std::uint32_t number, std::span<const ir::Literal* const> buffers,
                   std::span<const std::int64_t> given) override {
    std::vector<void*> addresses;
    for (const ir::Literal* buffer : buffers)
      addresses.push_back(const_cast<void*>(buffer->unaligned_data()));
    std::vector<std::int64_t> sizes(given.begin(), given.end());
    sizes.insert(sizes.end(), own_sizes_[number].begin(), own_sizes_[number].end());
    if (copies_[number]) {
      copies_[number]->run(addresses);
      return 0;
    }
    const jit::CpuKernelPtr kernel = kernels_[number].get();
    const auto bytes =
        kernel->scratch_bytes.evaluate_sizes(sizes) + static_cast<std::int64_t>(kScratchAlignment);
    const ir::Literal scratch(u8, {bytes});
    auto address = reinterpret_cast<std::uintptr_t>(scratch.data());
    address = (address + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
    std::int32_t status = 0;
    kernel->entry(addresses.data(), sizes.data(), 0,
                  nests_[number]->parallel_extent.evaluate_sizes(sizes),
                  reinterpret_cast<void*>(address), &status);
    return status;
  }

  jit::IndexReport report() override { return jit::take_index_report(); }

 private:
  jit::CompileService& compiler_;
  std::vector<std::shared_ptr<const jit::Nest>> nests_;
  std::vector<std::optional<jit::CopyNest>> copies_;  ///< nests that are run as they are
  std::vector<std::vector<std::int64_t>> own_sizes_;  ///< of jit::OpenNest
  std::vector<std::shared_future<jit::CpuKernelPtr>> kernels_;
};

class CudaFolding final : public FoldingKernels {
  /// No work uses memory that is given back after this.
  struct Settled {
    device::Stream& stream;
    ~Settled() {
      try {
        stream.synchronize();
      } catch (...) {  // the context is lost, and its memory with it
      }
    }
  };

 public:
  CudaFolding(CudaRuntimePtr runtime, jit::KernelCache* cache)
      : runtime_(std::move(runtime)), cache_(cache) {}

  std::string code_key() const override { return runtime_->compiler().code_key(); }

  void submit(std::vector<std::shared_ptr<const jit::Nest>> nests) override {
    nests_ = std::move(nests);
    std::vector<const jit::Nest*> wanted;
    for (const auto& nest : nests_)
      if (nest != nullptr) wanted.push_back(nest.get());
    const auto pending = runtime_->compiler().compile_all(wanted, cache_);
    kernels_.resize(nests_.size());
    for (std::size_t k = 0, next = 0; k < nests_.size(); ++k)
      if (nests_[k] != nullptr) kernels_[k] = pending[next++];
  }

  std::int32_t run(std::uint32_t number, std::span<const ir::Literal* const> buffers,
                   std::span<const std::int64_t> sizes) override {
    const jit::cuda::CudaKernelPtr kernel = kernels_[number].get();
    const jit::cuda::CudaChoice choice = kernel->expected(sizes);
    // What earlier steps made is on the device still.
    std::vector<std::shared_ptr<DeviceBytes>> memory;
    const Settled settled{*stream_};
    std::vector<void*> addresses;
    const auto clear = [&](std::size_t bytes) {
      runtime_->device().fill(memory.back()->address(), 0, bytes, *stream_);
    };
    for (std::size_t k = 0; k < buffers.size(); ++k) {
      const bool written = nests_[number]->buffers[k].written;
      auto place = written ? runtime_->find(*buffers[k]) : runtime_->upload(*buffers[k]);
      const bool is_new = place == nullptr;
      memory.push_back(is_new ? runtime_->place_for(*buffers[k]) : std::move(place));
      if (is_new) clear(buffers[k]->bytes());
      addresses.push_back(memory.back()->address());
    }
    const auto zeros = [&](std::int64_t bytes) {
      memory.push_back(runtime_->allocate(static_cast<std::size_t>(bytes)));
      clear(static_cast<std::size_t>(bytes));
      return memory.back()->address();
    };
    void* const scratch = zeros(choice.scratch_bytes);
    void* const counters = zeros(jit::cuda::kMostSharedTiles * sizeof(std::uint32_t));
    void* const status_word = zeros(sizeof(std::int32_t));
    kernel->launch(runtime_->device(), choice, addresses, sizes, scratch, counters, status_word,
                   *stream_);
    stream_->synchronize();
    std::int32_t status = 0;
    runtime_->copy_out(&status, status_word, sizeof status);
    for (std::size_t k = 0; k < buffers.size() && status == 0; ++k) {
      if (!nests_[number]->buffers[k].written) continue;
      runtime_->copy_out(const_cast<void*>(buffers[k]->unaligned_data()), addresses[k],
                         buffers[k]->bytes());
      results_.push_back(memory[k]);
    }
    return status;
  }

 private:
  CudaRuntimePtr runtime_;
  jit::KernelCache* cache_;
  std::unique_ptr<device::Stream> stream_ = runtime_->device().make_stream();
  std::vector<std::shared_ptr<const jit::Nest>> nests_;
  std::vector<std::shared_future<jit::cuda::CudaKernelPtr>> kernels_;
  std::vector<std::shared_ptr<DeviceBytes>> results_;
};

}  // namespace

std::unique_ptr<FoldingKernels> fold_on_cpu(jit::CompileService& compiler) {
  return std::make_unique<CpuFolding>(compiler);
}

std::unique_ptr<FoldingKernels> fold_on_cuda(CudaRuntimePtr runtime, jit::KernelCache* cache) {
  return std::make_unique<CudaFolding>(std::move(runtime), cache);
}

}  // namespace heddle::engine
