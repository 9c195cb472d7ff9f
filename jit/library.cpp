#include "jit/library.h"

#include "heddle/error.h"
#include "jit/nests/dot_conv.h"
#include "jit/nests/row_conv.h"
#if HEDDLE_WITH_ONEDNN
#include "jit/cpu/onednn/onednn.h"
#endif

namespace heddle::jit {

bool library_serves([[maybe_unused]] std::string_view name, [[maybe_unused]] const ir::Node& node) {
#if HEDDLE_WITH_ONEDNN
  return !(name == "conv" && (is_row_conv(node) || is_dot_conv(node))) &&
         onednn::serves(name, node);
#else
  return false;
#endif
}

bool library_prefers_channels_last() { return HEDDLE_WITH_ONEDNN != 0; }

std::unique_ptr<BoundLibraryCall> bind_library_call(
    const LibraryCall& call, [[maybe_unused]] std::span<const LibraryOperand> operands,
    [[maybe_unused]] int threads, [[maybe_unused]] const LibraryWays& ways) {
#if HEDDLE_WITH_ONEDNN
  if (auto bound = onednn::bind(call, operands, threads, ways)) return bound;
#endif
  throw CompileError({.what = "library call " + call.name,
                      .where = {},
                      .expected = "a library that serves it",
                      .got = "none in this build"});
}

std::uint8_t FixedFacts::of(const void* data, const std::function<std::uint8_t()>& read) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = known_.find(data); known != known_.end()) return known->second;
  }
  const std::uint8_t found = read();
  const std::lock_guard lock(mutex_);
  return known_.emplace(data, found).first->second;
}

std::string library_version() {
#if HEDDLE_WITH_ONEDNN
  return onednn::version();
#else
  return {};
#endif
}

}  // namespace heddle::jit
