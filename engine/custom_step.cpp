#include "engine/custom_step.h"

#include "engine/failure.h"
#include "heddle/custom_op.h"
#include "jit/custom/custom_call.h"

namespace heddle::engine {

namespace {

std::exception_ptr failure_of(const jit::CustomCall& call, const std::string& message) {
  return std::make_exception_ptr(
      CustomOpError({.what = call.op->schema.name + ": the kernel failed",
                     .where = call.node,
                     .expected = {},
                     .got = message}));
}

}  // namespace

void run_custom(const scheduler::BoundStep& step, std::int64_t begin, std::int64_t end, int worker,
                std::int32_t* status) {
  const auto* bound = static_cast<const jit::BoundCustomCall*>(step.code);
  auto* failure = static_cast<Failure*>(step.request);
  try {
    bound->run(step.buffers, begin, end, worker,
               static_cast<char*>(step.scratch) + worker * step.scratch_stride);
    return;
  } catch (const std::exception& error) {
    failure->store(failure_of(bound->call(), error.what()));
  } catch (...) {
    failure->store(failure_of(bound->call(), "an exception that is no std::exception"));
  }
  if (*status == 0) *status = kFailed;
}

}  // namespace heddle::engine
