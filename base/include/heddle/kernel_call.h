// What the kernel of a custom op is called with.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "heddle/dtype.h"
#include "heddle/export.h"

namespace heddle {

/// A tensor as a kernel sees it: an address, and where elements lie. Valid during the call.
struct KernelTensor {
  void* data = nullptr;  ///< of element [0, …, 0]; null where only sizes are asked about
  DType dtype = f32;
  bool present = false;  ///< false: an optional argument that was not given
  std::int32_t rank = 0;
  const std::int64_t* size_data = nullptr;
  const std::int64_t* stride_data = nullptr;

  std::span<const std::int64_t> sizes() const {
    return {size_data, static_cast<std::size_t>(rank)};
  }
  /// In elements.
  std::span<const std::int64_t> strides() const {
    return {stride_data, static_cast<std::size_t>(rank)};
  }
  std::int64_t count() const {
    std::int64_t product = 1;
    for (const std::int64_t size : sizes()) product *= size;
    return product;
  }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

/// The value of an attribute (an argument that is no tensor) when the kernel runs.
using KernelAttr = std::variant<bool, std::int64_t, double, std::string, DType,
                                std::vector<std::int64_t>, std::vector<double>>;
using KernelAttrs = std::map<std::string, KernelAttr, std::less<>>;

/// One call of a custom op's kernel, workspace, extent or reference function. Addresses are the host's for
/// kernels of the CPU, the device's for kernels of CUDA; sizes, strides and attributes are the host's.
class HEDDLE_API KernelCall {
 public:
  std::string_view op;
  /// The tensor arguments in schema order, those of lists one after another. What the schema marks as
  /// written is read and written in place.
  std::span<const KernelTensor> tensors;
  /// Where the results go: row-major, uninitialised. Results that alias an argument are not among them.
  std::span<const KernelTensor> results;
  void* workspace = nullptr;  ///< 64-aligned, this call's own, uninitialised
  std::int64_t workspace_bytes = 0;
  /// The part of [0, extent) to do; [0, 1) for an op without an extent function.
  std::int64_t begin = 0;
  std::int64_t end = 1;
  int worker = 0;   ///< this thread's number in [0, workers)
  int workers = 1;  ///< how many threads may call the kernel at once

  /// The tensor of argument `argument` (counted among the tensor arguments of the schema).
  const KernelTensor& tensor(std::size_t argument) const { return tensors[starts[argument]]; }
  /// The tensors of list argument `argument`.
  std::span<const KernelTensor> list(std::size_t argument) const {
    return tensors.subspan(starts[argument], starts[argument + 1] - starts[argument]);
  }

  /// Attribute `name`. @throws ArgumentError when the schema has none of this name and kind.
  std::int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  bool flag(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  DType dtype(std::string_view name) const;
  const std::vector<std::int64_t>& integers(std::string_view name) const;
  const std::vector<double>& numbers(std::string_view name) const;

  std::span<const std::uint32_t> starts;  ///< first of `tensors` by argument, and their number
  const KernelAttrs* attrs = nullptr;
  void* device = nullptr;  ///< on CUDA: the engine's, for CudaText
};

}  // namespace heddle
