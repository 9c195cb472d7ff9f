#include "jit/custom/custom_call.h"

#include <algorithm>
#include <atomic>
#include <fmt/format.h>

#include "heddle/error.h"

namespace heddle::jit {

namespace {

constexpr std::int64_t kAlignment = 64;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::atomic<std::uint64_t> next_id{1};

std::int64_t table_bytes(std::size_t tensors) {
  return aligned(static_cast<std::int64_t>(tensors * sizeof(KernelTensor)));
}

}  // namespace

BoundCustomCall::BoundCustomCall(ArgumentsOnly, const CustomCall& call,
                                 const base::SymbolValues& sizes, int workers)
    : call_(call),
      attrs_(ir::kernel_attrs(*call.op, call.attrs, sizes)),
      workers_(std::max(1, workers)),
      id_(next_id.fetch_add(1, std::memory_order_relaxed)) {
  for (const CustomTensor& tensor : call.arguments) add(tensor, sizes, arguments_);
}

BoundCustomCall::BoundCustomCall(const CustomCall& call, const base::SymbolValues& sizes,
                                 int workers)
    : BoundCustomCall(ArgumentsOnly(), call, sizes, workers) {
  for (const CustomTensor& tensor : call.results) add(tensor, sizes, results_);
  const KernelCall asked = prototype();
  if (call.op->workspace_bytes) {
    workspace_bytes_ = call.op->workspace_bytes(asked);
    if (workspace_bytes_ < 0)
      throw ArgumentError({.what = call.op->schema.name + ": workspace",
                           .where = call.node,
                           .expected = "bytes >= 0",
                           .got = std::to_string(workspace_bytes_)});
  }
  if (call.op->extent) extent_ = std::max<std::int64_t>(0, call.op->extent(asked));
}

void BoundCustomCall::add(const CustomTensor& tensor, const base::SymbolValues& sizes,
                          std::vector<KernelTensor>& list) {
  const std::size_t rank = tensor.sizes.size();
  auto numbers = std::make_unique<std::int64_t[]>(2 * rank + 1);
  for (std::size_t d = 0; d < rank; ++d) {
    numbers[d] = tensor.sizes[d].evaluate(sizes);
    numbers[rank + d] = tensor.strides[d].evaluate(sizes);
  }
  list.push_back({.data = nullptr,
                  .dtype = tensor.dtype,
                  .present = tensor.buffer != ir::kNone,
                  .rank = static_cast<std::int32_t>(rank),
                  .size_data = numbers.get(),
                  .stride_data = numbers.get() + rank});
  offsets_.push_back(tensor.offset.evaluate(sizes) *
                     static_cast<std::int64_t>(size_of(tensor.dtype)));
  numbers_.push_back(std::move(numbers));
}

KernelCall BoundCustomCall::prototype() const {
  KernelCall call;
  call.op = call_.op->schema.name;
  call.tensors = arguments_;
  call.results = results_;
  call.starts = call_.starts;
  call.attrs = &attrs_;
  call.workspace_bytes = workspace_bytes_;
  call.workers = workers_;
  return call;
}

std::int64_t BoundCustomCall::scratch_bytes() const {
  return table_bytes(arguments_.size() + results_.size()) + aligned(workspace_bytes_);
}

/// Puts the tensors with their addresses into `table`, which has room for them.
KernelCall BoundCustomCall::with_addresses(void* const* buffers, KernelTensor* table) const {
  KernelTensor* next = table;
  const auto place = [&](const CustomTensor& tensor, const KernelTensor& like,
                         std::int64_t offset) {
    *next = like;
    if (tensor.buffer != ir::kNone)
      next->data = static_cast<char*>(buffers[tensor.buffer]) + offset;
    ++next;
  };
  for (std::size_t k = 0; k < arguments_.size(); ++k)
    place(call_.arguments[k], arguments_[k], offsets_[k]);
  for (std::size_t k = 0; k < results_.size(); ++k) place(call_.results[k], results_[k], 0);
  KernelCall call = prototype();
  call.tensors = {table, arguments_.size()};
  call.results = {table + arguments_.size(), results_.size()};
  return call;
}

void BoundCustomCall::run(void* const* buffers, std::int64_t begin, std::int64_t end, int worker,
                          void* scratch) const {
  KernelCall call = with_addresses(buffers, static_cast<KernelTensor*>(scratch));
  call.workspace = static_cast<char*>(scratch) + table_bytes(arguments_.size() + results_.size());
  call.begin = begin;
  call.end = end;
  call.worker = worker;
  call_.op->cpu(call);
}

void BoundCustomCall::queue(void* const* buffers, std::vector<KernelTensor>& table, void* device,
                            void* stream) const {
  table.resize(std::max(table.size(), arguments_.size() + results_.size()));
  KernelCall call = with_addresses(buffers, table.data());
  if (workspace_bytes_ > 0) call.workspace = buffers[call_.buffers];
  call.begin = 0;
  call.end = extent_;
  call.device = device;
  call_.op->cuda(call, stream);
}

namespace {

/// Bytes from the first element to the last.
std::int64_t extent_bytes(const KernelTensor& tensor) {
  std::int64_t last = 0;
  for (std::int32_t d = 0; d < tensor.rank; ++d) {
    if (tensor.size_data[d] == 0) return 0;
    last += (tensor.size_data[d] - 1) * tensor.stride_data[d];
  }
  return (last + 1) * static_cast<std::int64_t>(size_of(tensor.dtype));
}

}  // namespace

std::vector<std::pair<std::int64_t, std::int64_t>> BoundCustomCall::argument_ranges() const {
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  for (std::size_t k = 0; k < arguments_.size(); ++k)
    ranges.emplace_back(offsets_[k], extent_bytes(arguments_[k]));
  return ranges;
}

std::vector<std::pair<const void*, std::int64_t>> argument_bytes(const CustomCall& call,
                                                                 const base::SymbolValues& sizes,
                                                                 void* const* buffers) {
  const BoundCustomCall bound(BoundCustomCall::ArgumentsOnly(), call, sizes, 1);
  std::vector<std::pair<const void*, std::int64_t>> result;
  std::size_t k = 0;
  for (const auto& [offset, bytes] : bound.argument_ranges()) {
    const std::uint32_t buffer = call.arguments[k++].buffer;
    const bool present = buffer != ir::kNone;
    result.emplace_back(present ? static_cast<const char*>(buffers[buffer]) + offset : nullptr,
                        present ? bytes : 0);
  }
  return result;
}

std::vector<ir::Sizes> ask_sizes(const CustomCall& call, const base::SymbolValues& sizes,
                                 int workers, std::span<const void* const> arguments) {
  const BoundCustomCall bound(BoundCustomCall::ArgumentsOnly(), call, sizes, workers);
  KernelCall asked = bound.prototype();
  std::vector<KernelTensor> tensors(asked.tensors.begin(), asked.tensors.end());
  for (std::size_t k = 0; k < tensors.size(); ++k)
    tensors[k].data = const_cast<void*>(arguments[k]);
  asked.tensors = tensors;
  return call.op->sizes(asked);
}

void queue_sizes(const CustomCall& call, const base::SymbolValues& sizes, void* const* buffers,
                 std::int64_t* told, void* device, void* stream) {
  const BoundCustomCall bound(BoundCustomCall::ArgumentsOnly(), call, sizes, 1);
  std::vector<KernelTensor> table(call.arguments.size());
  KernelCall asked = bound.with_addresses(buffers, table.data());
  asked.device = device;
  call.op->cuda_sizes(asked, told, stream);
}

}  // namespace heddle::jit
