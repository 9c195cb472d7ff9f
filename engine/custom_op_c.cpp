#include "heddle/custom_op_c.h"

#include <exception>
#include <string>

#include "engine/c_status.h"
#include "heddle/custom_op.h"

using heddle::ShapeCall;
using heddle::SymInt;

struct heddle_attributes {
  const heddle::KernelCall& call;
};

struct heddle_shape_call {
  const ShapeCall& call;
  std::vector<SymInt> sizes;  ///< by handle
  std::vector<heddle::TensorType> results;
  std::exception_ptr error;

  heddle_size handle(SymInt size) {
    sizes.push_back(std::move(size));
    return static_cast<heddle_size>(sizes.size() - 1);
  }
};

struct heddle_told_sizes {
  std::vector<heddle::Sizes> sizes;
};

namespace {

/// What an accessor of the kernel call that this thread is in found wrong.
thread_local std::exception_ptr attribute_error;

template <typename F>
auto guarded(std::exception_ptr& error, F&& action) -> decltype(action()) {
  try {
    return action();
  } catch (...) {
    if (error == nullptr) error = std::current_exception();
  }
  return {};
}

heddle_kernel_tensor to_c(const heddle::KernelTensor& tensor) {
  return {tensor.data, static_cast<int32_t>(tensor.dtype), tensor.rank, tensor.size_data,
          tensor.stride_data};
}

/// Calls `function` with the call as C sees it.
template <typename F>
auto with_c_call(const heddle::KernelCall& call, F&& function) {
  std::vector<heddle_kernel_tensor> tensors;
  for (const auto& tensor : call.tensors) tensors.push_back(to_c(tensor));
  std::vector<heddle_kernel_tensor> results;
  for (const auto& result : call.results) results.push_back(to_c(result));
  const heddle_attributes attributes{call};
  const heddle_kernel_call seen{static_cast<int32_t>(tensors.size()),
                                tensors.data(),
                                static_cast<int32_t>(results.size()),
                                results.data(),
                                call.workspace,
                                call.workspace_bytes,
                                call.begin,
                                call.end,
                                call.worker,
                                call.workers,
                                &attributes};
  attribute_error = nullptr;
  const auto answer = function(&seen);
  if (attribute_error != nullptr) std::rethrow_exception(std::exchange(attribute_error, nullptr));
  return answer;
}

std::vector<heddle::TensorType> shapes_of(const heddle_custom_op& op, const ShapeCall& call) {
  heddle_shape_call seen{call, {}, {}, nullptr};
  const char* message = op.shape(&seen, op.user);
  if (seen.error != nullptr) std::rethrow_exception(seen.error);
  if (message != nullptr) call.fail("shape function", {}, message);
  return std::move(seen.results);
}

heddle::CustomOp to_cpp(const heddle_custom_op& op) {
  heddle::CustomOp made;
  made.schema = op.schema == nullptr ? "" : op.schema;
  if (op.shape != nullptr) made.shape = [op](const ShapeCall& call) { return shapes_of(op, call); };
  if (op.cpu != nullptr)
    made.cpu = [op](const heddle::KernelCall& call) {
      const char* message =
          with_c_call(call, [&](const heddle_kernel_call* seen) { return op.cpu(seen, op.user); });
      if (message != nullptr) throw std::runtime_error(message);
    };
  if (op.cuda != nullptr)
    made.cuda = [op](const heddle::KernelCall& call, void* stream) {
      const char* message = with_c_call(
          call, [&](const heddle_kernel_call* seen) { return op.cuda(seen, stream, op.user); });
      if (message != nullptr) throw std::runtime_error(message);
    };
  if (op.workspace_bytes != nullptr)
    made.workspace_bytes = [op](const heddle::KernelCall& call) {
      return with_c_call(
          call, [&](const heddle_kernel_call* seen) { return op.workspace_bytes(seen, op.user); });
    };
  if (op.extent != nullptr)
    made.extent = [op](const heddle::KernelCall& call) {
      return with_c_call(call,
                         [&](const heddle_kernel_call* seen) { return op.extent(seen, op.user); });
    };
  if (op.sizes != nullptr)
    made.sizes = [op](const heddle::KernelCall& call) {
      heddle_told_sizes told;
      const char* message = with_c_call(
          call, [&](const heddle_kernel_call* seen) { return op.sizes(seen, &told, op.user); });
      if (message != nullptr) throw std::runtime_error(message);
      return std::move(told.sizes);
    };
  if (op.cuda_sizes != nullptr)
    made.cuda_sizes = [op](const heddle::KernelCall& call, std::int64_t* told, void* stream) {
      const char* message = with_c_call(call, [&](const heddle_kernel_call* seen) {
        return op.cuda_sizes(seen, told, stream, op.user);
      });
      if (message != nullptr) throw std::runtime_error(message);
    };
  made.pure = op.pure != 0;
  made.capturable = op.capturable != 0;
  made.collective = op.collective != 0;
  return made;
}

}  // namespace

int64_t heddle_attribute_int(const heddle_attributes* attributes, const char* name) {
  return guarded(attribute_error, [&] { return attributes->call.integer(name); });
}
double heddle_attribute_float(const heddle_attributes* attributes, const char* name) {
  return guarded(attribute_error, [&] { return attributes->call.number(name); });
}
int heddle_attribute_bool(const heddle_attributes* attributes, const char* name) {
  return guarded(attribute_error, [&] { return attributes->call.flag(name) ? 1 : 0; });
}

int32_t heddle_shape_rank(heddle_shape_call* call, int32_t argument) {
  return guarded(call->error, [&]() -> int32_t {
    const auto position = static_cast<std::size_t>(argument);
    if (!call->call.has(position)) return -1;
    return static_cast<int32_t>(call->call.tensor(position).sizes.size());
  });
}
int32_t heddle_shape_dtype(heddle_shape_call* call, int32_t argument) {
  return guarded(call->error, [&] {
    return static_cast<int32_t>(call->call.tensor(static_cast<std::size_t>(argument)).dtype);
  });
}
heddle_size heddle_shape_size(heddle_shape_call* call, int32_t argument, int32_t dimension) {
  return guarded(call->error, [&] {
    return call->handle(call->call.tensor(static_cast<std::size_t>(argument))
                            .sizes.at(static_cast<std::size_t>(dimension)));
  });
}
heddle_size heddle_shape_number(heddle_shape_call* call, int64_t value) {
  return call->handle(SymInt(value));
}
int64_t heddle_shape_int(heddle_shape_call* call, const char* attribute) {
  return guarded(call->error, [&] { return call->call.integer(attribute); });
}
heddle_size heddle_size_add(heddle_shape_call* call, heddle_size a, heddle_size b) {
  return guarded(call->error, [&] {
    return call->handle(call->sizes.at(static_cast<std::size_t>(a)) +
                        call->sizes.at(static_cast<std::size_t>(b)));
  });
}
heddle_size heddle_size_mul(heddle_shape_call* call, heddle_size a, heddle_size b) {
  return guarded(call->error, [&] {
    return call->handle(call->sizes.at(static_cast<std::size_t>(a)) *
                        call->sizes.at(static_cast<std::size_t>(b)));
  });
}
heddle_size heddle_shape_unbacked(heddle_shape_call* call) {
  return guarded(call->error, [&] { return call->handle(call->call.unbacked()); });
}
void heddle_tell_sizes(heddle_told_sizes* told, int32_t rank, const int64_t* sizes) {
  told->sizes.emplace_back(sizes, sizes + rank);
}
void heddle_shape_result(heddle_shape_call* call, int32_t dtype, int32_t rank,
                         const heddle_size* sizes) {
  guarded(call->error, [&] {
    heddle::TensorType type{static_cast<heddle::DType>(dtype), {}};
    for (int32_t d = 0; d < rank; ++d)
      type.sizes.push_back(call->sizes.at(static_cast<std::size_t>(sizes[d])));
    call->results.push_back(std::move(type));
    return true;
  });
}

heddle_status heddle_register_op(const heddle_custom_op* op) {
  return heddle::engine::status_of([&] {
    heddle::engine::check_not_null("heddle_register_op", op);
    heddle::register_op(to_cpp(*op));
  });
}
