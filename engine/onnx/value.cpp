#include "engine/onnx/value.h"

#include "heddle/frontend.h"
#include "heddle/ops.h"

namespace heddle::onnx {

namespace {

/// Longer vectors are data, not shapes.
constexpr std::int64_t kMaxInts = 128;

bool holds_ints(const Tensor& tensor) {
  return !tensor.is_symbolic() && !is_floating(tensor.dtype()) && tensor.rank() <= 1 &&
         tensor.count() <= kMaxInts;
}

template <typename T>
SymInts read_as(const Tensor& tensor) {
  const T* data = static_cast<const T*>(tensor.data());
  return {data, data + tensor.count()};
}

SymInts read_ints(const Tensor& any) {
  const Tensor tensor = any.is_row_major() ? any : any.clone();
  switch (tensor.dtype()) {
    case DType::I64:
      return read_as<std::int64_t>(tensor);
    case DType::I32:
      return read_as<std::int32_t>(tensor);
    case DType::I16:
      return read_as<std::int16_t>(tensor);
    case DType::I8:
      return read_as<std::int8_t>(tensor);
    default:
      return read_as<std::uint8_t>(tensor);
  }
}

template <typename T>
Tensor write_as(const SymInts& ints, Sizes sizes) {
  std::vector<std::int64_t> wide;
  for (const SymInt& number : ints) wide.push_back(number.value());
  Tensor tensor = Tensor::empty(dtype_of<T>(), std::move(sizes));
  for (std::size_t k = 0; k < wide.size(); ++k)
    static_cast<T*>(tensor.data())[k] = static_cast<T>(wide[k]);
  return tensor;
}

Tensor write_ints(const SymInts& ints, DType dtype, Sizes sizes) {
  switch (dtype) {
    case DType::I32:
      return write_as<std::int32_t>(ints, std::move(sizes));
    case DType::I16:
      return write_as<std::int16_t>(ints, std::move(sizes));
    case DType::I8:
      return write_as<std::int8_t>(ints, std::move(sizes));
    case DType::U8:
      return write_as<std::uint8_t>(ints, std::move(sizes));
    case DType::Bool:
      return write_as<bool>(ints, std::move(sizes));
    default:
      return write_as<std::int64_t>(ints, std::move(sizes));
  }
}

/// Sizes as a tensor computed in the graph.
Tensor size_vector(const SymInts& ints, bool scalar) {
  if (scalar) return size_tensor(ints[0]);
  std::vector<Tensor> parts;
  for (const SymInt& number : ints) parts.push_back(reshape(size_tensor(number), {1}));
  return parts.size() == 1 ? parts[0] : concat(parts, 0);
}

}  // namespace

struct Value::State {
  Tensor tensor;
  std::optional<SymInts> ints;
  bool scalar = false;
  DType dtype = f32;
  std::string input;
};

Value::Value(Tensor tensor) {
  if (!tensor.defined()) return;
  state_ = std::make_shared<State>();
  state_->dtype = tensor.dtype();
  state_->tensor = std::move(tensor);
}

Value Value::of_ints(SymInts ints, bool scalar, DType dtype) {
  Value value;
  value.state_ = std::make_shared<State>();
  value.state_->ints = std::move(ints);
  value.state_->scalar = scalar;
  value.state_->dtype = dtype;
  return value;
}

Value Value::of_input(Tensor tensor, std::string name) {
  Value value(std::move(tensor));
  value.state_->input = std::move(name);
  return value;
}

DType Value::dtype() const { return state_->dtype; }

std::int64_t Value::rank() const {
  if (state_->tensor.defined()) return state_->tensor.rank();
  return state_->scalar ? 0 : 1;
}

SymInts Value::shape() const {
  if (state_->tensor.defined()) return state_->tensor.shape();
  if (state_->scalar) return {};
  return {static_cast<std::int64_t>(state_->ints->size())};
}

Tensor Value::tensor() const {
  State& state = *state_;
  if (state.tensor.defined()) return state.tensor;
  bool symbolic = false;
  for (const SymInt& number : *state.ints) symbolic = symbolic || number.is_symbolic();
  if (symbolic) {
    Tensor tensor = size_vector(*state.ints, state.scalar);
    if (state.dtype != i64) tensor = cast(tensor, state.dtype);
    if (detail::in_region()) return tensor;
    state.tensor = std::move(tensor);
  } else {
    Sizes sizes;
    if (!state.scalar) sizes.push_back(static_cast<std::int64_t>(state.ints->size()));
    state.tensor = write_ints(*state.ints, state.dtype, std::move(sizes));
  }
  return state.tensor;
}

std::optional<Tensor> Value::concrete() const {
  if (state_->tensor.defined() && state_->tensor.is_symbolic()) return {};
  if (state_->ints) {
    for (const SymInt& number : *state_->ints)
      if (number.is_symbolic()) return {};
  }
  return tensor();
}

std::optional<SymInts> Value::ints() const {
  if (state_->ints) return state_->ints;
  if (holds_ints(state_->tensor)) return read_ints(state_->tensor);
  return {};
}

bool Value::is_shape_like() const {
  if (state_->ints) return true;
  return (state_->dtype == i64 || state_->dtype == i32 || state_->dtype == boolean) &&
         holds_ints(state_->tensor);
}

const std::string& Value::input_name() const { return state_->input; }

}  // namespace heddle::onnx
