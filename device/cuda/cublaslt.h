// Matrix products by cuBLASLt: an optional library, opened while running, the part of its ABI that is used declared here.
// Source: NVIDIA, cuBLAS Library documentation, "Using the cuBLASLt API".
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/device.h"
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

/// Where cuBLASLt is looked for: $HEDDLE_CUBLASLT_PATH alone if set, nowhere if that is "none"; else toolkit_paths().
std::vector<std::string> cublaslt_paths();

/// The library on one device. Threads: any.
class CublasLt {
 public:
  /// What addresses of operands and results have to be multiples of.
  static constexpr std::size_t kAlignment = 16;
  /// Of a product's workspace, at most.
  static constexpr std::size_t kMostWorkspace = std::size_t{32} << 20;

  /// Opens nothing yet. @param paths  tried in order; empty: there is no library
  CublasLt(Device& device, std::vector<std::string> paths);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  bool is_wanted() const { return !paths_.empty(); }
  /// Opens the library, which may take long. False, also from then on: there is none that works, and `why()` says why.
  bool open();
  bool is_open() const { return open_.load(std::memory_order_acquire) != nullptr; }
  /// Empty: nothing went wrong.
  std::string why() const;

  /// A product at some sizes, and the way that the library chose for it. Threads: any.
  class Plan;
  /// @pre is_open(). @return null: the library has no way to do it.
  /// @throws DeviceError, DeviceLost.
  std::shared_ptr<const Plan> plan(const LibraryProduct& product) const;

 private:
  struct Opened;

  Device& device_;
  const std::vector<std::string> paths_;
  mutable std::mutex mutex_;
  bool tried_ = false;              ///< under `mutex_`
  std::string why_;                 ///< under `mutex_`
  std::shared_ptr<Opened> opened_;  ///< under `mutex_`
  std::atomic<Opened*> open_{nullptr};
};

class CublasLt::Plan {
 public:
  virtual ~Plan() = default;
  virtual std::size_t workspace_bytes() const = 0;
  /// Queued on a stream of the platform's. Addresses are multiples of kAlignment, that of the workspace of 256.
  /// @throws DeviceError, DeviceLost.
  virtual void run(const void* left, const void* right, void* result, void* workspace,
                   void* stream) const = 0;
};

}  // namespace heddle::device::cuda
