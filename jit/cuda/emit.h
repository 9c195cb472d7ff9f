// CUDA C++ text of a nest: what NVRTC compiles, and what people read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "jit/cuda/attention_tile.h"
#include "jit/cuda/product_tile.h"
#include "jit/nest.h"

namespace heddle::jit::cuda {

class LibraryCall;

struct CudaOptions {
  std::uint32_t block_threads = 256;  ///< at most; a multiple of 32
  std::int64_t max_blocks = 1 << 20;  ///< kernels go round for more iterations than this
  std::int64_t max_scratch_blocks =
      1024;  ///< the same where each block has scratch in global memory
  std::int64_t max_shared_bytes = 99 * 1024;  ///< of a block; dynamic beyond 48 KiB
  int multiprocessors = 132;
  bool tensor_cores = true;  ///< those of sm_80 and later
  bool warpgroups = false;   ///< wgmma, which sm_90a has alone
  bool cublaslt = false;     ///< products get a variant by cuBLASLt
  bool cudnn = false;        ///< products with windows get one by cuDNN
};

/// One kernel as text, and how to launch it.
///
/// The kernel's parameters are, in order: a pointer for each global buffer of the nest, a long long
/// for each size parameter, where scratch_bytes is not 0 an unsigned char* to
/// blocks * scratch_bytes bytes of global memory, and int* status (0 before the first launch; a
/// BindStmt's check afterwards if one failed).
///
/// Where part_bytes is not 0, `blocks` times any number may be launched: so many blocks then share each tile of a
/// product, or of queries. The unsigned char* is one to launched blocks * part_bytes bytes, not read where none are shared, and before
/// the status comes an unsigned int* to a counter for each of `blocks`, which are 0 before and after each launch.
struct CudaSource {
  std::string text;    ///< prelude and kernel; includes no header
  std::string kernel;  ///< the kernel alone; prelude_for() gives several kernels one prelude
  std::string entry;   ///< name of the kernel, extern "C"
  std::uint32_t block_threads = 0;
  SymExpr blocks;  ///< in size parameters; 0: nothing to launch
  std::int64_t dynamic_shared_bytes = 0;
  std::int64_t shared_bytes = 0;  ///< of a block of a loop nest, static or dynamic
  int registers = 0;              ///< of a thread, as the compiler reports; 0: not known
  SymExpr scratch_bytes = 0;      ///< of one block
  std::int64_t part_bytes = 0;    ///< of a block that shares a tile
  std::string variant{};          ///< of several kernels for one nest, which: "tensor_64x64x64"

  bool takes_scratch() const { return part_bytes != 0 || !scratch_bytes.is_constant(0); }
  bool takes_counters() const { return part_bytes != 0; }
};

/// What decides among the kernels of attention: a tile of each, and its sizes in size parameters.
struct AttentionCode {
  std::vector<AttentionTile> tiles;
  SymExpr heads, queries, keys;  ///< heads of all batches
  bool causal = false;
  SymExpr key_heads;       ///< of all batches
  std::int64_t group = 1;  ///< heads whose queries are rows of the same tiles

  AttentionShape shape(std::span<const std::int64_t> sizes) const;
};

/// A product as a library takes it (jit/cuda/library_product.h). Expressions are in size parameters.
///
/// With windows it is a convolution: the left matrix of a group has rows of weights, of the right one there is the buffer, where
/// the first image begins, and from one group to the next.
struct LibraryForm {
  struct Matrix {
    NestBufferId buffer = 0;
    bool along_rows = true;  ///< else neighbours are those of a column
    SymExpr offset = 0;      ///< elements, of the first matrix
    SymExpr stride = 0;      ///< from one row, or one column, to the next
    SymExpr batch_stride = 0;
  };
  Matrix left, right;
  bool tf32 = false;
  bool rounded = false;  ///< sums are of the operands' dtype: they are rounded to it in any case
  /// Where the product goes, if it is stored as it is; its dtype is the buffer's.
  std::optional<Matrix> result{};

  struct Convolution {
    std::int64_t channels = 0;  ///< of a group
    SymExpr image_stride, channel_stride;
    std::vector<WindowAxis> axes;
    bool channels_last = false;  ///< of the result and of sums: [N, out..., M], else [N, M, out...]
    bool inner_channels = false;  ///< of weights: [M, taps..., C], else [M, C, taps...]
  };
  std::optional<Convolution> convolution{};
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
  /// Not null: this call comes first, and `blocks` go over what it leaves in scratch; 0: nothing is left to do.
  std::shared_ptr<const LibraryCall> library{};
};

/// The kernels of a nest: one, or for a product or attention one for each way to do it, between which sizes decide. All
/// take the same parameters.
struct CudaCode {
  std::vector<CudaSource> variants;  ///< not empty
  std::vector<ProductTile>
      tiles{};  ///< of the variants, but for the library's; empty: there is one
  ProductDevice device{};
  DType dtype = DType::F32;  ///< of the left operand
  SymExpr batches = 0, rows = 0, columns = 0, depth = 0;
  bool is_grouped = false;          ///< batches are groups, and rows are those of all
  std::int64_t window_overlap = 0;  ///< ProductShape's
  bool in_pieces = false;           ///< ProductShape's
  std::int64_t stored_bits = 0;     ///< ProductShape's
  std::optional<AttentionCode> attention{};
  std::vector<CudaBuffer> buffers{};     ///< in the nest's order
  std::optional<LibraryForm> library{};  ///< the last variant is the library's

  /// The variant for these sizes and how many blocks share its tiles, by product_cycles() or attention_cycles().
  /// Threads: any.
  CudaChoice choose(std::span<const std::int64_t> sizes) const;
  /// The same of one variant that is not the library's.
  CudaChoice choice_of(std::uint32_t variant, std::span<const std::int64_t> sizes) const;
  bool is_library(std::uint32_t variant) const {
    return library.has_value() && variant + 1 == variants.size();
  }
  /// What the compiler reports of a variant: of a thread; 0: nothing.
  void set_registers(std::uint32_t variant, int registers);
  /// The variants of ours that are expected to take at most `factor` times as long as that one; of groups that one alone,
  /// since how long they take depends on values. Threads: any.
  std::vector<std::uint32_t> plausible(std::span<const std::int64_t> sizes, double factor) const;

  /// Of a product.
  ProductShape shape(std::span<const std::int64_t> sizes) const;

 private:
  CudaChoice choice_of(const TileChoice& way, std::span<const std::int64_t> sizes) const;
  /// Blocks of a loop nest that are worth launching: all that the device runs at once where each has memory of its own in
  /// scratch, else 16 times as many. They go round for what is left, and what a block computes before its first iteration
  /// serves all of them.
  std::int64_t most_blocks(const CudaSource& source) const;
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

/// Threads of a multiprocessor that leave 128 registers to each: what tiles in shared memory, of which few fit anyway, do with.
inline constexpr int kTileThreads = 512;

/// A kernel's text up to its body.
/// @param least_threads  of a multiprocessor, that have to fit; each may have the registers that this leaves to it. 0: the
///                       assembler aims at as many threads as it sees fit, and spills for them
std::string kernel_head(const CudaSource& source, const std::string& parameters,
                        int least_threads = 0);

}  // namespace heddle::jit::cuda
