// What a tensor handle points to.
#pragma once

#include <functional>
#include <memory>
#include <source_location>

#include "base/location.h"
#include "heddle/tensor.h"
#include "ir/graph.h"
#include "ir/literal.h"

namespace heddle {

namespace engine {
class Trace;
}

/// Concrete: sizes, strides, data and who owns it. Symbolic: a value of a trace in progress.
struct Tensor::Impl {
  DType dtype = DType::F32;
  Device device;
  bool row_major = true;
  std::int64_t count = 1;
  Sizes sizes;
  Sizes strides;
  void* data = nullptr;
  std::shared_ptr<const void> owner;

  std::shared_ptr<engine::Trace> trace;  ///< not null: symbolic
  ir::Value value;

  ~Impl();
  /// Bytes of the engine's own allocator, released with this object.
  void* allocation = nullptr;
  std::function<void(void*)> deleter;
  void* wrapped = nullptr;
};

struct SymInt::Impl {
  base::SymExpr expr;
  std::shared_ptr<engine::Trace> trace;
};

namespace engine {

base::Location location_of(const std::source_location& where);

/// A row-major tensor from the host allocator, uninitialised.
Tensor make_tensor(DType dtype, const Sizes& sizes);
/// The tensor as a host literal that shares its bytes.
ir::Literal to_literal(const Tensor& tensor);
Tensor from_literal(const ir::Literal& literal);
base::SymExpr to_expr(const SymInt& size);

}  // namespace engine
}  // namespace heddle
