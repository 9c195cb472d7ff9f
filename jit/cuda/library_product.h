// A product by cuBLASLt, or a convolution by cuDNN, as one more variant of a kernel. The library multiplies; where more
// follows than a store of the product, its sums go to scratch memory, and a kernel of ours goes over them with the nest's own
// expressions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "jit/cuda/emit.h"
#include "jit/cuda/libraries.h"
#include "jit/cuda/product_text.h"

namespace heddle::jit::cuda {

/// The product of a nest as a library takes it: one whose operands lie evenly, with neighbours in rows or columns, or have
/// windows. Nothing where it is none, or of another dtype.
std::optional<LibraryForm> library_form(const ProductParts& parts);

/// The kernel that goes over the sums, which are at the begin of scratch memory: row-major f32, matrix after matrix, or those of a
/// convolution as LibraryForm says.
CudaSource emit_after_library(const ProductParts& parts, const LibraryForm& form,
                              const CudaOptions& options);

/// A product at some sizes, ready to be queued. Threads: any.
class LibraryCall {
 public:
  /// @return null where the library has no way to do it, an operand begins at a place of its buffer that it does not take,
  /// or its sums would take more than kMostSums bytes.
  /// @throws DeviceError, DeviceLost.
  static std::shared_ptr<const LibraryCall> make(const Libraries& libraries, const CudaCode& code,
                                                 std::span<const std::int64_t> sizes);
  /// Whether make() does so at once: a plan of cuDNN takes long.
  static bool is_known(const Libraries& libraries, const CudaCode& code,
                       std::span<const std::int64_t> sizes);

  static constexpr std::int64_t kMostSums = std::int64_t{64} << 20;

  /// Of scratch memory: sums, then the library's workspace.
  std::int64_t scratch_bytes() const { return sums_bytes_ + workspace_bytes_; }
  /// Whether a kernel goes over the sums.
  bool is_followed() const { return !direct_; }
  /// Whether the library takes these addresses: of the kernel's buffers, by their addresses.
  bool takes(std::span<void* const> arguments) const;
  /// @param scratch  as many bytes as it needs, 256-aligned; null for 0
  void run(std::span<void* const> arguments, void* scratch, void* stream) const;

 private:
  struct Place {
    NestBufferId buffer = 0;
    std::int64_t offset = 0;  ///< bytes
    void* in(std::span<void* const> arguments) const {
      return *static_cast<char* const*>(arguments[buffer]) + offset;
    }
  };

  std::shared_ptr<const device::cuda::LibraryPlan> plan_;
  Place left_, right_, result_;
  bool direct_ = false;
  std::int64_t sums_bytes_ = 0;
  std::int64_t workspace_bytes_ = 0;
};

}  // namespace heddle::jit::cuda
