#include "jit/compile_threads.h"

#include <algorithm>
#include <pthread.h>
#include <utility>
#include <vector>

namespace heddle::jit {
namespace {

bool create(pthread_t* thread, void* (*run)(void*), void* given) {
  pthread_attr_t attributes;
  if (pthread_getattr_default_np(&attributes) != 0) return false;
  std::size_t usual = 0;
  pthread_attr_getstacksize(&attributes, &usual);
  pthread_attr_setstacksize(&attributes, std::max(usual, kCompileStackBytes));
  const int failed = pthread_create(thread, &attributes, run, given);
  pthread_attr_destroy(&attributes);
  return failed == 0;
}

}  // namespace

struct CompileThread::Handle {
  std::function<void()> work;
  pthread_t thread{};
};

std::unique_ptr<CompileThread> CompileThread::start(std::function<void()> work) {
  auto handle = std::make_unique<Handle>(Handle{std::move(work)});
  const auto run = [](void* given) -> void* {
    static_cast<Handle*>(given)->work();
    return nullptr;
  };
  if (!create(&handle->thread, run, handle.get())) return nullptr;
  return std::unique_ptr<CompileThread>(new CompileThread(std::move(handle)));
}

bool start_compile_thread(std::function<void()> work) {
  using Work = std::function<void()>;
  auto given = std::make_unique<Work>(std::move(work));
  const auto run = [](void* work) -> void* {
    (*std::unique_ptr<Work>(static_cast<Work*>(work)))();
    return nullptr;
  };
  pthread_t thread{};
  if (!create(&thread, run, given.get())) return false;
  pthread_detach(thread);
  static_cast<void>(given.release());  // the thread's
  return true;
}

CompileThread::CompileThread(std::unique_ptr<Handle> handle) : handle_(std::move(handle)) {}

CompileThread::~CompileThread() { pthread_join(handle_->thread, nullptr); }

void on_compile_threads(std::size_t threads, const std::function<void()>& work) {
  std::vector<std::unique_ptr<CompileThread>> started;
  while (started.size() < threads) {
    auto thread = CompileThread::start(work);
    if (thread == nullptr) break;
    started.push_back(std::move(thread));
  }
  if (started.empty() && threads > 0) work();
}

}  // namespace heddle::jit
