// CUDA C++ text of a nest: what NVRTC compiles, and what people read.
#pragma once

#include <cstdint>
#include <string>

#include "jit/nest.h"

namespace heddle::jit::cuda {

struct CudaOptions {
  std::uint32_t block_threads = 256;  ///< at most; a multiple of 32
  std::int64_t max_blocks = 1 << 20;  ///< kernels go round for more iterations than this
  std::int64_t max_scratch_blocks =
      1024;  ///< the same where each block has scratch in global memory
  std::int64_t max_shared_bytes = 99 * 1024;  ///< of a block; dynamic beyond 48 KiB
};

/// One kernel as text, and how to launch it.
///
/// The kernel's parameters are, in order: a pointer for each global buffer of the nest, a long long
/// for each size parameter, where scratch_bytes is not 0 an unsigned char* to
/// blocks * scratch_bytes bytes of global memory, and int* status (0 before the first launch; a
/// BindStmt's check afterwards if one failed).
struct CudaSource {
  std::string text;    ///< prelude and kernel; includes no header
  std::string kernel;  ///< the kernel alone; prelude_for() gives several kernels one prelude
  std::string entry;   ///< name of the kernel, extern "C"
  std::uint32_t block_threads = 0;
  SymExpr blocks;  ///< in size parameters; 0: nothing to launch
  std::int64_t dynamic_shared_bytes = 0;
  SymExpr scratch_bytes;  ///< of one block
};

/// @pre check(nest) passes.
CudaSource emit_cuda(const Nest& nest, const CudaOptions& options = {});

}  // namespace heddle::jit::cuda
