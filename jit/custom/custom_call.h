// A step that calls the kernel of a custom op.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
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

// The sizes of results that depend on the elements of the arguments. `buffers`: as in Launch::buffers; those of
// the results are not looked at.

/// By argument: where its first element lies, and the bytes from there to the end of the last; null for an absent
/// one.
std::vector<std::pair<const void*, std::int64_t>> argument_bytes(const CustomCall& call,
                                                                 const base::SymbolValues& sizes,
                                                                 void* const* buffers);
/// What the op's function `sizes` says. `arguments`: where the host finds their first elements.
/// @throws what the function throws.
std::vector<ir::Sizes> ask_sizes(const CustomCall& call, const base::SymbolValues& sizes,
                                 int workers, std::span<const void* const> arguments);
/// Queues the op's function `cuda_sizes`, which writes to `told`, on a CUDA stream.
/// @param device  KernelCall::device
/// @throws what the function throws.
void queue_sizes(const CustomCall& call, const base::SymbolValues& sizes, void* const* buffers,
                 std::int64_t* told, void* device, void* stream);

/// A call with sizes put in. Any number of threads may run it at once.
class BoundCustomCall {
 public:
  /// @throws what the op's workspace and extent functions throw.
  BoundCustomCall(const CustomCall& call, const base::SymbolValues& sizes, int workers);

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
  std::uint64_t id() const { return id_; }  ///< unique in the process

  /// Without results, whose sizes are not known.
  struct ArgumentsOnly {};
  BoundCustomCall(ArgumentsOnly, const CustomCall& call, const base::SymbolValues& sizes,
                  int workers);
  /// By argument: bytes from its buffer's begin to its first element, and from there to the end of the last.
  std::vector<std::pair<std::int64_t, std::int64_t>> argument_ranges() const;
  /// The call, with `table` for its tensors, which has room for them.
  KernelCall with_addresses(void* const* buffers, KernelTensor* table) const;
  KernelCall prototype() const;

 private:
  void add(const CustomTensor& tensor, const base::SymbolValues& sizes,
           std::vector<KernelTensor>& list);

  const CustomCall& call_;
  KernelAttrs attrs_;
  std::vector<std::unique_ptr<std::int64_t[]>> numbers_;  ///< sizes and strides
  std::vector<KernelTensor> arguments_, results_;         ///< without addresses
  std::vector<std::int64_t> offsets_;                     ///< bytes, of arguments
  std::int64_t workspace_bytes_ = 0;
  std::int64_t extent_ = 1;
  int workers_ = 1;
  const std::uint64_t id_;
};

}  // namespace heddle::jit
