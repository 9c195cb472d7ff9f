#include "engine/custom_step.h"

#include "engine/failure.h"
#include "heddle/custom_op.h"
#include "heddle/error.h"
#include "jit/custom/custom_call.h"

namespace heddle::engine {

namespace {

std::exception_ptr failure_of(const jit::CustomCall& call, const char* what,
                              const std::string& message) {
  return std::make_exception_ptr(CustomOpError(
      {.what = call.op->schema.name + what, .where = call.node, .expected = {}, .got = message}));
}

constexpr const char* kKernel = ": the kernel failed";

/// Calls `function`. @return what it failed with; null: it did not. What the device is out of stays what it is.
template <typename F>
std::exception_ptr failure_in(const jit::CustomCall& call, const char* what, F&& function) {
  try {
    function();
    return nullptr;
  } catch (const DeviceLost&) {
    return std::current_exception();
  } catch (const OutOfMemory&) {
    return std::current_exception();
  } catch (const std::exception& error) {
    return failure_of(call, what, error.what());
  } catch (...) {
    return failure_of(call, what, "an exception that is no std::exception");
  }
}

}  // namespace

void compile_texts(std::span<const jit::CustomCall* const> calls, CudaRuntime& runtime) {
  std::vector<const ir::KernelText*> texts;
  std::vector<const jit::CustomCall*> users;
  for (const jit::CustomCall* call : calls) {
    for (const auto& text : call->op->cuda_texts) {
      texts.push_back(text.get());
      users.push_back(call);
    }
  }
  const auto kernels = runtime.texts().compile_all(texts);
  for (std::size_t k = 0; k < kernels.size(); ++k)
    if (const auto failure =
            failure_in(*users[k], ": a text of its kernels failed", [&] { kernels[k].get(); }))
      std::rethrow_exception(failure);
}

void queue_custom(const scheduler::BoundStep& step, CudaRuntime& runtime, device::Stream& stream,
                  std::vector<KernelTensor>& table) {
  const auto* bound = static_cast<const jit::BoundCustomCall*>(step.code);
  if (bound->extent() == 0) return;
  std::exception_ptr failure;
  runtime.device().with_context([&] {
    failure = failure_in(bound->call(), kKernel,
                         [&] { bound->queue(step.buffers, table, &runtime, stream.native()); });
  });
  if (failure != nullptr) std::rethrow_exception(failure);
}

void queue_sizes(const jit::CustomCall& call, const base::SymbolValues& sizes, void* const* buffers,
                 std::int64_t* told, CudaRuntime& runtime, device::Stream& stream) {
  std::exception_ptr failure;
  runtime.device().with_context([&] {
    failure = failure_in(call, ": the function `cuda_sizes` failed", [&] {
      jit::queue_sizes(call, sizes, buffers, told, &runtime, stream.native());
    });
  });
  if (failure != nullptr) std::rethrow_exception(failure);
}

void run_custom(const scheduler::BoundStep& step, std::int64_t begin, std::int64_t end, int worker,
                std::int32_t* status) {
  const auto* bound = static_cast<const jit::BoundCustomCall*>(step.code);
  const std::exception_ptr failure = failure_in(bound->call(), kKernel, [&] {
    bound->run(step.buffers, begin, end, worker,
               static_cast<char*>(step.scratch) + worker * step.scratch_stride);
  });
  if (failure == nullptr) return;
  static_cast<Failure*>(step.request)->store(failure);
  if (*status == 0) *status = kFailed;
}

}  // namespace heddle::engine
