#include "heddle/cuda_text.h"

#include <limits>
#include <span>
#include <utility>

#include "engine/cuda_runtime.h"
#include "engine/cuda_text.h"
#include "heddle/error.h"

namespace heddle {

namespace {

CudaText::Text keyed(std::string text, std::string kernel) {
  const base::Hash128 key = base::hash128(kernel + "\n" + text);
  return {{std::move(text), std::move(kernel), key}};
}

}  // namespace

CudaText::CudaText(std::string text, std::string kernel)
    : text_(std::make_shared<const Text>(keyed(std::move(text), std::move(kernel)))) {}

void CudaText::launch_with(const KernelCall& call, void* stream, const Shape& shape,
                           void* const* arguments, std::size_t count) const {
  const auto fail = [&](const char* expected, std::string got) {
    throw ArgumentError({.what = "CudaText " + text_->kernel + ": launch",
                         .where = std::string(call.op),
                         .expected = expected,
                         .got = std::move(got)});
  };
  if (call.device == nullptr) fail("a call on CUDA", "one on the CPU");
  constexpr std::int64_t kMostBlocks = std::numeric_limits<std::int32_t>::max();
  if (shape.blocks < 0 || shape.blocks > kMostBlocks)
    fail("0 to 2^31 - 1 blocks", std::to_string(shape.blocks));
  if (shape.blocks == 0) return;
  auto& runtime = *static_cast<engine::CudaRuntime*>(call.device);
  runtime.device().launch_on(runtime.texts().kernel(*text_),
                             {.blocks = static_cast<std::uint32_t>(shape.blocks),
                              .threads = shape.threads,
                              .dynamic_shared_bytes = shape.dynamic_shared_bytes},
                             {arguments, count}, stream);
}

}  // namespace heddle
