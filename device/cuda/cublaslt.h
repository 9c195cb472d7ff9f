// Matrix products by cuBLASLt: an optional library, opened while running, the part of its ABI that is used declared here.
// Source: NVIDIA, cuBLAS Library documentation, "Using the cuBLASLt API".
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda/optional_library.h"
#include "heddle/dtype.h"

namespace heddle::device::cuda {

/// A matrix in memory: neighbours are those of a row, or of a column.
struct LibraryMatrix {
  bool along_rows = true;
  std::int64_t stride = 0;  ///< elements from one row, or one column, to the next
  std::int64_t batch_stride = 0;
};

/// result = left * right for each of `batches`, with sums in f32.
struct LibraryProduct {
  DType dtype = DType::F16;         ///< of both operands: f16, bf16 or f32
  DType result_dtype = DType::F32;  ///< f32, or that of the operands
  bool tf32 = false;                ///< operands of f32 may be rounded to tf32
  std::int64_t batches = 1;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t depth = 0;
  LibraryMatrix left;    ///< rows x depth
  LibraryMatrix right;   ///< depth x columns
  LibraryMatrix result;  ///< rows x columns, neighbours of a row
};

/// Where cuBLASLt is looked for: optional_paths() of $HEDDLE_CUBLASLT_PATH.
std::vector<std::string> cublaslt_paths();

/// The library on one device. Threads: any.
class CublasLt final : public OptionalLibrary {
 public:
  /// Of a product's workspace, at most.
  static constexpr std::size_t kMostWorkspace = std::size_t{32} << 20;

  CublasLt(Device& device, std::vector<std::string> paths);
  ~CublasLt() override;

  /// @pre open() succeeded. @return null: the library has no way to do it.
  /// @throws DeviceError, DeviceLost.
  std::shared_ptr<const LibraryPlan> plan(const LibraryProduct& product) const;

 private:
  struct Opened;
  void load() override;

  std::shared_ptr<Opened> opened_;  ///< read where open() succeeded
};

}  // namespace heddle::device::cuda
