// The libraries that kernels of ours compete with, on one device.
#pragma once

#include <string>
#include <vector>

#include "device/cuda/cublaslt.h"
#include "device/cuda/cudnn.h"

namespace heddle::jit::cuda {

struct LibraryForm;

/// Where each may be; empty: it is not wanted.
struct LibraryPaths {
  std::vector<std::string> cublaslt{};
  std::vector<std::string> cudnn{};
};

struct Libraries {
  Libraries(device::Device& device, const LibraryPaths& paths)
      : cublaslt(device, paths.cublaslt), cudnn(device, paths.cudnn) {}

  /// The one for such a product.
  device::cuda::OptionalLibrary& of(const LibraryForm& form);

  device::cuda::CublasLt cublaslt;
  device::cuda::Cudnn cudnn;
};

}  // namespace heddle::jit::cuda
