// A step that calls the kernel of a custom op.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ir/custom_op.h"
#include "ir/schedule.h"

namespace heddle::jit {

/// One tensor of the call and where it lies in the buffers of the launch.
struct CustomTensor {
  std::uint32_t buffer = ir::kNone;  ///< position in Launch::buffers; kNone: an absent argument
  DType dtype = DType::F32;
  ir::Dims sizes, strides;
  ir::SymExpr offset = 0;  ///< elements from the buffer's begin
};

struct CustomCall {
  const ir::CustomOp* op = nullptr;
  std::string node;  ///< for messages: "%route at model.cpp:12"
  ir::Attrs attrs;
  std::vector<CustomTensor> arguments;
  std::vector<CustomTensor> results;
  std::vector<std::uint32_t> starts;
  std::uint32_t buffers = 0;  ///< of the launch
};

/// (argument, address, bytes) → an address of the host.
using OnHost = std::function<void*(std::size_t, void*, std::int64_t)>;

/// Asks the op for the sizes of its results, which depend on the elements of its arguments.
/// `buffers`: as in Launch::buffers; those of the results are not looked at. `on_host`: where the host finds an
/// argument's bytes, from the first element to the last.
/// @throws what the op's function throws.
std::vector<ir::Sizes> ask_sizes(const CustomCall& call, const base::SymbolValues& sizes,
                                 int workers, void* const* buffers, const OnHost& on_host);

/// A call with sizes put in. Any number of threads may run it at once.
class BoundCustomCall {
 public:
  /// @throws what the op's workspace and extent functions throw.
  BoundCustomCall(const CustomCall& call, const base::SymbolValues& sizes, int workers);

  friend std::vector<ir::Sizes> ask_sizes(const CustomCall& call, const base::SymbolValues& sizes,
                                          int workers, void* const* buffers, const OnHost& on_host);

  /// Iterations [begin, end) of extent(). `scratch`: 64-aligned, this worker's own.
  /// @throws what the kernel throws.
  void run(void* const* buffers, std::int64_t begin, std::int64_t end, int worker,
           void* scratch) const;
  /// Queues all iterations on a CUDA stream.
  /// @param buffers  addresses on the device; after those of the launch the workspace, if there is one
  /// @param table    room for the call's tensors; grows to what is needed
  /// @param device   KernelCall::device
  void queue(void* const* buffers, std::vector<KernelTensor>& table, void* device,
             void* stream) const;
  std::int64_t extent() const { return extent_; }
  std::int64_t scratch_bytes() const;
  std::int64_t workspace_bytes() const { return workspace_bytes_; }
  const CustomCall& call() const { return call_; }

 private:
  /// Without results, whose sizes are not known.
  struct ArgumentsOnly {};
  BoundCustomCall(ArgumentsOnly, const CustomCall& call, const base::SymbolValues& sizes,
                  int workers);
  void add(const CustomTensor& tensor, const base::SymbolValues& sizes,
           std::vector<KernelTensor>& list);
  KernelCall prototype() const;
  KernelCall with_addresses(void* const* buffers, KernelTensor* table) const;

  const CustomCall& call_;
  KernelAttrs attrs_;
  std::vector<std::unique_ptr<std::int64_t[]>> numbers_;  ///< sizes and strides
  std::vector<KernelTensor> arguments_, results_;         ///< without addresses
  std::vector<std::int64_t> offsets_;                     ///< bytes, of arguments
  std::int64_t workspace_bytes_ = 0;
  std::int64_t extent_ = 1;
  int workers_ = 1;
};

}  // namespace heddle::jit
