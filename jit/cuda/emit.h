// CUDA C++ text of a nest: what NVRTC compiles, and what people read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "jit/cuda/attention_tile.h"
#include "jit/cuda/product_tile.h"
#include "jit/nest.h"

namespace heddle::jit::cuda {

struct CudaOptions {
  std::uint32_t block_threads = 256;  ///< at most; a multiple of 32
  std::int64_t max_blocks = 1 << 20;  ///< kernels go round for more iterations than this
  std::int64_t max_scratch_blocks =
      1024;  ///< the same where each block has scratch in global memory
  std::int64_t max_shared_bytes = 99 * 1024;  ///< of a block; dynamic beyond 48 KiB
  int multiprocessors = 132;
  bool tensor_cores = true;  ///< those of sm_80 and later
};

/// One kernel as text, and how to launch it.
///
/// The kernel's parameters are, in order: a pointer for each global buffer of the nest, a long long
/// for each size parameter, where scratch_bytes is not 0 an unsigned char* to
/// blocks * scratch_bytes bytes of global memory, and int* status (0 before the first launch; a
/// BindStmt's check afterwards if one failed).
///
/// Where part_bytes is not 0, `blocks` times any number may be launched: so many blocks then share each tile of a
/// product. The unsigned char* is one to launched blocks * part_bytes bytes, not read where none are shared, and before
/// the status comes an unsigned int* to a counter for each of `blocks`, which are 0 before and after each launch.
struct CudaSource {
  std::string text;    ///< prelude and kernel; includes no header
  std::string kernel;  ///< the kernel alone; prelude_for() gives several kernels one prelude
  std::string entry;   ///< name of the kernel, extern "C"
  std::uint32_t block_threads = 0;
  SymExpr blocks;  ///< in size parameters; 0: nothing to launch
  std::int64_t dynamic_shared_bytes = 0;
  SymExpr scratch_bytes = 0;    ///< of one block
  std::int64_t part_bytes = 0;  ///< of a block that shares a tile
  std::string variant{};        ///< of several kernels for one nest, which: "tensor_64x64x64"

  bool takes_scratch() const { return part_bytes != 0 || !scratch_bytes.is_constant(0); }
  bool takes_counters() const { return part_bytes != 0; }
};

/// What decides among the kernels of attention: a tile of each, and its sizes in size parameters.
struct AttentionCode {
  std::vector<AttentionTile> tiles;
  SymExpr heads, queries, keys;  ///< heads of all batches
  bool causal = false;

  AttentionShape shape(std::span<const std::int64_t> sizes) const;
};

/// A global buffer of a kernel.
struct CudaBuffer {
  DType dtype = DType::F32;
  SymExpr count;  ///< elements, in size parameters
};

/// How a nest is launched at some sizes.
struct CudaChoice {
  std::uint32_t variant = 0;
  std::uint32_t blocks = 0;        ///< 0: nothing to launch
  std::uint32_t parts = 1;         ///< blocks that share a tile
  std::int64_t scratch_bytes = 0;  ///< of all blocks
};

/// The kernels of a nest: one, or for a product or attention one for each way to do it, between which sizes decide. All
/// take the same parameters.
struct CudaCode {
  std::vector<CudaSource> variants;  ///< not empty
  std::vector<ProductTile> tiles{};  ///< of the variants; empty: there is one
  ProductDevice device{};
  DType dtype = DType::F32;  ///< of the left operand
  SymExpr batches = 0, rows = 0, columns = 0, depth = 0;
  std::optional<AttentionCode> attention{};
  std::vector<CudaBuffer> buffers{};  ///< in the nest's order

  /// The variant for these sizes and how many blocks share its tiles, by product_cycles() or attention_cycles().
  /// Threads: any.
  CudaChoice choose(std::span<const std::int64_t> sizes) const;
  /// The same of one variant.
  CudaChoice choice_of(std::uint32_t variant, std::span<const std::int64_t> sizes) const;
  /// The variants that are expected to take at most `factor` times as long as that one. Threads: any.
  std::vector<std::uint32_t> plausible(std::span<const std::int64_t> sizes, double factor) const;

 private:
  ProductShape shape(std::span<const std::int64_t> sizes) const;
  CudaChoice choice_of(const ProductChoice& way, std::span<const std::int64_t> sizes) const;
};

/// The kernel that any nest can be.
/// @pre check(nest) passes.
CudaSource emit_cuda(const Nest& nest, const CudaOptions& options = {});

/// All that the nest should be.
/// @pre check(nest) passes.
CudaCode emit_code(const Nest& nest, const CudaOptions& options = {});

/// The name of a kernel, "heddle_" and the characters of `name` that names may have.
std::string entry_name(const std::string& name);
/// The kernel's parameters.
/// @param scratch   whether there is global scratch
/// @param counters  whether there are counters
std::string parameters_text(const Nest& nest, bool scratch, bool counters = false);

}  // namespace heddle::jit::cuda
