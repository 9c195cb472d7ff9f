// Compiles a nest and calls it once, for tests.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <vector>

#include "jit/cpu/llvm/codegen.h"

namespace heddle::tests {

/// Code of one nest.
class CompiledNest {
 public:
  explicit CompiledNest(const jit::Nest& nest, std::int64_t vector_bytes = 0)
      : scratch_(jit::scratch_bytes(nest)),
        extent_(nest.parallel_extent),
        object_(load(nest, jit::cpu::host_target(vector_bytes))) {}

  /// Runs all parallel iterations; the kernel's status word.
  std::int32_t run(const std::vector<void*>& buffers,
                   const std::vector<std::int64_t>& sizes = {}) const {
    return run(buffers, sizes, 0, extent_.evaluate_sizes(sizes));
  }

  /// Runs the iterations from `begin` to `end`.
  std::int32_t run(const std::vector<void*>& buffers, const std::vector<std::int64_t>& sizes,
                   std::int64_t begin, std::int64_t end) const {
    const auto bytes = static_cast<std::size_t>(scratch_.evaluate_sizes(sizes));
    const std::unique_ptr<void, decltype(&std::free)> scratch(
        bytes == 0 ? nullptr : std::aligned_alloc(64, bytes), &std::free);
    std::int32_t status = 0;
    object_.entry(buffers.data(), sizes.data(), begin, end, scratch.get(), &status);
    return status;
  }

 private:
  static jit::cpu::LoadedObject load(const jit::Nest& nest, const jit::cpu::CodegenTarget& target) {
    return jit::cpu::load_object(jit::cpu::compile_object(nest, target), target);
  }

  base::SymExpr scratch_;
  base::SymExpr extent_;
  jit::cpu::LoadedObject object_;
};

}  // namespace heddle::tests
