#include "engine/cuda_texts.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "base/processors.h"
#include "jit/compile_threads.h"

namespace heddle::engine {

struct CudaTexts::Job {
  const ir::KernelText* text;
  std::promise<device::Kernel> promise{};
};

device::Kernel CudaTexts::kernel(const ir::KernelText& text) {
  std::shared_future<device::Kernel> known;
  {
    const std::shared_lock lock(mutex_);
    const auto found = entries_.find(text.key);
    if (found != entries_.end()) known = found->second.kernel;
  }
  if (known.valid()) return known.get();
  const ir::KernelText* one = &text;
  return compile_all({&one, 1}).front().get();
}

std::vector<std::shared_future<device::Kernel>> CudaTexts::compile_all(
    std::span<const ir::KernelText* const> texts) {
  std::vector<Job> jobs;
  jobs.reserve(texts.size());
  std::vector<std::shared_future<device::Kernel>> kernels;
  for (const ir::KernelText* text : texts) {
    const std::scoped_lock lock(mutex_);
    Entry& entry = entries_[text->key];
    if (!entry.kernel.valid())
      entry.kernel = jobs.emplace_back(Job{text}).promise.get_future().share();
    kernels.push_back(entry.kernel);
  }
  std::atomic<std::size_t> next{0};
  const auto processors = static_cast<std::size_t>(base::processors());
  jit::on_compile_threads(std::min(processors, jobs.size()), [&] {
    for (std::size_t k = next++; k < jobs.size(); k = next++) run(jobs[k]);
  });
  for (const auto& kernel : kernels) kernel.wait();
  return kernels;
}

void CudaTexts::run(Job& job) {
  try {
    std::unique_ptr<device::Module> module = compile_(*job.text);
    const device::Kernel kernel = module->kernel(job.text->kernel);
    {
      const std::scoped_lock lock(mutex_);
      entries_[job.text->key].module = std::move(module);
    }
    job.promise.set_value(kernel);
  } catch (...) {
    {
      const std::scoped_lock lock(mutex_);
      entries_.erase(job.text->key);
    }
    job.promise.set_exception(std::current_exception());
  }
}

}  // namespace heddle::engine
