// Custom ops that the tests register, once a process.
#pragma once

#include <cstring>
#include <initializer_list>
#include <string>

#include "heddle/heddle.h"

namespace heddle::test {

inline Tensor numbers(std::initializer_list<float> values) {
  return Tensor::of<float>(values, {static_cast<std::int64_t>(values.size())});
}

/// `count` numbers of a row-major or strided f32 tensor, through its strides.
inline float& element(const KernelTensor& tensor, std::int64_t position) {
  std::int64_t offset = 0;
  for (std::int32_t d = tensor.rank; d-- > 0;) {
    offset += position % tensor.sizes()[d] * tensor.strides()[d];
    position /= tensor.sizes()[d];
  }
  return tensor.as<float>()[offset];
}

inline TensorType like_first(const ShapeCall& call) { return call.tensor(0); }

/// Each of the ops below is registered at its first use.
///
/// tt::scale(Tensor x, float by=2.0) -> Tensor           x * by
inline const RegisteredOp& scale() {
  static const RegisteredOp op =
      register_op({.schema = "tt::scale(Tensor x, float by=2.0) -> Tensor",
                   .shape = [](const ShapeCall& call) { return std::vector{call.tensor(0)}; },
                   .cpu =
                       [](const KernelCall& call) {
                         for (std::int64_t k = 0; k < call.tensor(0).count(); ++k)
                           element(call.results[0], k) =
                               element(call.tensor(0), k) * static_cast<float>(call.number("by"));
                       }});
  return op;
}

/// tt::accumulate(Tensor x, Tensor(a!) total) -> Tensor   total += x; gives the old total
inline const RegisteredOp& accumulate() {
  static const RegisteredOp op =
      register_op({.schema = "tt::accumulate(Tensor x, Tensor(a!) total) -> Tensor",
                   .shape = [](const ShapeCall& call) { return std::vector{call.tensor(1)}; },
                   .cpu =
                       [](const KernelCall& call) {
                         for (std::int64_t k = 0; k < call.tensor(1).count(); ++k) {
                           element(call.results[0], k) = element(call.tensor(1), k);
                           element(call.tensor(1), k) += element(call.tensor(0), k);
                         }
                       }});
  return op;
}

/// tt::halves(Tensor x) -> (Tensor, Tensor)               x / 2 and x * 2
inline const RegisteredOp& halves() {
  static const RegisteredOp op = register_op(
      {.schema = "tt::halves(Tensor x) -> (Tensor, Tensor)",
       .shape = [](const ShapeCall& call) { return std::vector{call.tensor(0), call.tensor(0)}; },
       .cpu =
           [](const KernelCall& call) {
             for (std::int64_t k = 0; k < call.tensor(0).count(); ++k) {
               element(call.results[0], k) = element(call.tensor(0), k) / 2;
               element(call.results[1], k) = element(call.tensor(0), k) * 2;
             }
           }});
  return op;
}

/// tt::increment_(Tensor(a!) x) -> Tensor(a!)             x += 1
inline const RegisteredOp& increment() {
  static const RegisteredOp op =
      register_op({.schema = "tt::increment_(Tensor(a!) x) -> Tensor(a!)",
                   .shape = {},
                   .cpu = [](const KernelCall& call) {
                     for (std::int64_t k = 0; k < call.tensor(0).count(); ++k)
                       element(call.tensor(0), k) += 1;
                   }});
  return op;
}

/// tt::swap(Tensor(a!) x, Tensor(b!) y) -> ()             exchanges the elements of both
inline const RegisteredOp& swap() {
  static const RegisteredOp op =
      register_op({.schema = "tt::swap(Tensor(a!) x, Tensor(b!) y) -> ()",
                   .shape = {},
                   .cpu = [](const KernelCall& call) {
                     for (std::int64_t k = 0; k < call.tensor(0).count(); ++k)
                       std::swap(element(call.tensor(0), k), element(call.tensor(1), k));
                   }});
  return op;
}

/// tt::fail(Tensor x) -> Tensor                           throws when x[0] < 0
inline const RegisteredOp& fail() {
  static const RegisteredOp op = register_op(
      {.schema = "tt::fail(Tensor x) -> Tensor",
       .shape = [](const ShapeCall& call) { return std::vector{call.tensor(0)}; },
       .cpu =
           [](const KernelCall& call) {
             if (element(call.tensor(0), 0) < 0) throw std::runtime_error("negative start");
             std::memcpy(call.results[0].data, call.tensor(0).data,
                         static_cast<std::size_t>(call.tensor(0).count()) * sizeof(float));
           }});
  return op;
}

}  // namespace heddle::test
