#include "jit/cpu/onednn/vectors.h"

#include <vector>

namespace heddle::jit::onednn {

std::span<const KernelIsa> kernel_isas() {
  static const std::vector<KernelIsa> found = [] {
    std::vector<KernelIsa> isas;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
      isas.push_back(KernelIsa::Avx512);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
      isas.push_back(KernelIsa::Avx2);
    isas.push_back(KernelIsa::Any);
    return isas;
  }();
  return found;
}

}  // namespace heddle::jit::onednn
