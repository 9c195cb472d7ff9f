// Convolutions by cuDNN: an optional library, opened while running, the part of its ABI that is used declared here.
// Source: NVIDIA, cuDNN documentation, "Graph API" and "Backend API".
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda/optional_library.h"
#include "heddle/dtype.h"

namespace heddle::device::cuda {

/// A tensor in memory; strides in elements.
struct LibraryTensor {
  std::vector<std::int64_t> sizes, strides;
  auto operator<=>(const LibraryTensor&) const = default;
};

/// A convolution (cross-correlation) with sums in f32. There are as many groups as channels of the weights fit into those of
/// the images.
struct LibraryConvolution {
  struct Axis {
    std::int64_t stride = 1;
    std::int64_t dilation = 1;
    std::int64_t pad_before = 0;
    std::int64_t pad_after = 0;
    auto operator<=>(const Axis&) const = default;
  };
  DType dtype = DType::F16;         ///< of both operands: f16, bf16 or f32
  DType result_dtype = DType::F32;  ///< f32, or that of the operands
  bool tf32 = false;                ///< operands of f32 may be rounded to tf32
  LibraryTensor images;             ///< [N, C, in...], one to three directions
  LibraryTensor weights;            ///< [M, C / groups, taps...]
  LibraryTensor result;             ///< [N, M, out...]
  std::vector<Axis> axes;
  auto operator<=>(const LibraryConvolution&) const = default;
};

/// Where cuDNN is looked for: optional_paths() of $HEDDLE_CUDNN_PATH.
std::vector<std::string> cudnn_paths();

/// The library, version 9, on one device. Threads: any.
///
/// Of the ways that its heuristics offer, the first counts that adds up in an order of its own and does nothing else to
/// elements than a convolution does: none that is not deterministic, by transforms, of fewer bits, or in tf32 where that is
/// not allowed.
class Cudnn final : public OptionalLibrary {
 public:
  /// Of a convolution's workspace, at most.
  static constexpr std::size_t kMostWorkspace = std::size_t{128} << 20;
  /// That are kept; no more are made.
  static constexpr std::size_t kMostPlans = 512;

  Cudnn(Device& device, std::vector<std::string> paths);
  ~Cudnn() override;

  /// "92801", for which only a small part of the library is loaded. Empty: there is none that works, or none is wanted.
  std::string version() const;

  /// Made by the first call for it, which may take seconds since kernels may be compiled, and kept as long as this lives.
  /// @pre open() succeeded. @return null: the library has no way to do it.
  /// @throws DeviceError, once: null from then on. DeviceLost.
  std::shared_ptr<const LibraryPlan> plan(const LibraryConvolution& convolution) const;
  /// Whether plan() gives at once what it gives. @pre open() succeeded
  bool knows(const LibraryConvolution& convolution) const;

 private:
  struct Opened;
  struct Loaded;
  void load() override;

  std::unique_ptr<Loaded> loaded_;
  std::unique_ptr<Opened> opened_;  ///< read where open() succeeded
};

}  // namespace heddle::device::cuda
