#include "heddle/tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "engine/cuda_runtime.h"
#include "engine/room.h"
#include "engine/tensor_impl.h"
#include "engine/trace.h"
#include "heddle/error.h"
#include "memory/allocator.h"

namespace heddle {

namespace engine {

bool holds(DType dtype, double number) {
  if (!is_integer(dtype)) return true;
  const auto bits = static_cast<int>(8 * size_of(dtype));
  const double limit = std::ldexp(1.0, is_signed(dtype) ? bits - 1 : bits);
  const double whole = std::trunc(number);
  return whole >= (is_signed(dtype) ? -limit : 0) && whole < limit;
}

bool holds(DType dtype, std::int64_t number) {
  return dtype == i64 || holds(dtype, static_cast<double>(number));
}

void require_writable(const Tensor& tensor, std::string what, const std::source_location& where) {
  if (!tensor.impl()->read_only) return;
  throw ArgumentError({.what = std::move(what),
                       .where = where.line() == 0 ? std::string() : location_of(where).to_string(),
                       .expected = "memory that may be written",
                       .got = "a tensor that is to be read only"});
}

std::size_t fill_metadata(Tensor::Impl& impl, DType dtype, const Sizes& sizes) {
  impl.dtype = dtype;
  impl.count = ir::element_count(sizes);
  impl.strides = ir::row_major_strides(sizes);
  impl.sizes = sizes;
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(impl.count, static_cast<std::int64_t>(size_of(dtype)), &bytes))
    throw ShapeError({.what = "tensor: size overflows 64 bits",
                      .where = {},
                      .expected = {},
                      .got = fmt::format("[{}]", fmt::join(sizes, ", "))});
  return static_cast<std::size_t>(bytes);
}

Tensor make_tensor(DType dtype, const Sizes& sizes) {
  auto impl = std::make_shared<Tensor::Impl>();
  const std::size_t bytes = fill_metadata(*impl, dtype, sizes);
  impl->allocation = memory::CachingAllocator::host().allocate(bytes);
  impl->address = impl->allocation;
  return Tensor(std::move(impl));
}

ir::Literal to_literal(const Tensor& tensor) {
  if (tensor.impl()->device.is_cuda()) return to_literal(copy_from_device(tensor));
  const auto& impl = tensor.impl();
  if (impl->literal != nullptr) return *impl->literal;
  return {impl->dtype, impl->sizes, impl->strides, impl->data(), impl};
}

Tensor from_literal(const ir::Literal& literal) {
  auto kept = std::make_shared<ir::Literal>(literal);
  auto impl = std::make_shared<Tensor::Impl>();
  impl->dtype = literal.dtype();
  impl->sizes = literal.sizes();
  impl->strides = literal.strides();
  impl->count = literal.count();
  impl->row_major = literal.is_row_major();
  impl->literal = std::move(kept);
  return Tensor(std::move(impl));
}

}  // namespace engine

Tensor::Impl::~Impl() {
  if (allocation != nullptr) memory::CachingAllocator::host().release(allocation);
  if (deleter) deleter(wrapped);
}

namespace {

const Tensor::Impl& checked(const std::shared_ptr<Tensor::Impl>& impl, const char* what,
                            const std::source_location& where) {
  if (impl == nullptr)
    throw ArgumentError({.what = fmt::format("Tensor::{}", what),
                         .where = engine::location_of(where).to_string(),
                         .expected = "a tensor",
                         .got = "an empty handle"});
  return *impl;
}

const Tensor::Impl& concrete(const std::shared_ptr<Tensor::Impl>& impl, const char* what,
                             const std::source_location& where) {
  const Tensor::Impl& tensor = checked(impl, what, where);
  if (tensor.trace != nullptr && tensor.trace->ended())
    throw TraceError(
        {.what = fmt::format("Tensor::{}: a symbolic tensor is used after its trace ended", what),
         .where = engine::location_of(where).to_string(),
         .expected = "a tensor with data",
         .got = tensor.meta.to_string()});
  if (tensor.trace != nullptr)
    throw TraceError(
        {.what = fmt::format("Tensor::{}: data cannot be read while tracing", what),
         .where = engine::location_of(where).to_string(),
         .expected = "an operation on the tensor, or a branch on a size",
         .got = fmt::format("a read of {} {}", tensor.value.name(), tensor.meta.to_string())});
  return tensor;
}

void check_not_negative(const Sizes& sizes, const char* what) {
  if (std::ranges::any_of(sizes, [](std::int64_t size) { return size < 0; }))
    throw ShapeError({.what = what,
                      .where = {},
                      .expected = ">= 0",
                      .got = fmt::format("[{}]", fmt::join(sizes, ", "))});
}

}  // namespace

Tensor Tensor::empty(DType dtype, Sizes sizes, Device device) {
  if (device.kind() == Device::Kind::Reference)
    throw DeviceError({.what = "Tensor::empty",
                       .where = {},
                       .expected = "a device that has memory",
                       .got = device.to_string()});
  check_not_negative(sizes, "Tensor::empty: sizes are not negative");
  if (device.is_cuda())
    return engine::make_device_tensor(*engine::CudaRuntime::get(device), dtype, sizes);
  return engine::make_tensor(dtype, sizes);
}

Tensor Tensor::zeros(DType dtype, Sizes sizes) {
  Tensor result = empty(dtype, std::move(sizes));
  const std::size_t bytes = static_cast<std::size_t>(result.impl_->count) * size_of(dtype);
  if (bytes != 0) std::memset(result.impl_->data(), 0, bytes);
  return result;
}

namespace {

template <typename T>
void check_holds(const char* what, DType dtype, T value) {
  if (engine::holds(dtype, value)) return;
  throw ArgumentError({.what = what,
                       .where = {},
                       .expected = fmt::format("a number that {} holds", name_of(dtype)),
                       .got = fmt::format("{}", value)});
}

}  // namespace

Tensor Tensor::full(DType dtype, Sizes sizes, double value) {
  check_holds("Tensor::full: value", dtype, value);
  Tensor result = empty(dtype, std::move(sizes));
  ir::Literal literal = engine::to_literal(result);
  for (std::int64_t k = 0; k < literal.count(); ++k) literal.set(k, value);
  return result;
}

Tensor Tensor::copy_of(const void* data, DType dtype, Sizes sizes, std::size_t elements) {
  Tensor result = empty(dtype, std::move(sizes));
  if (static_cast<std::size_t>(result.impl_->count) != elements)
    throw ShapeError({.what = "Tensor::of: number of values",
                      .where = {},
                      .expected = fmt::format("{} for sizes [{}]", result.impl_->count,
                                              fmt::join(result.impl_->sizes, ", ")),
                      .got = std::to_string(elements)});
  if (elements != 0) std::memcpy(result.impl_->data(), data, elements * size_of(dtype));
  return result;
}

Tensor Tensor::scalar(DType dtype, double value) { return full(dtype, {}, value); }

Tensor Tensor::scalar_int(DType dtype, std::int64_t value) {
  check_holds("Tensor::scalar_int: value", dtype, value);
  Tensor result = empty(dtype, {});
  engine::to_literal(result).set_int(0, value);
  return result;
}

Tensor Tensor::wrap(void* data, DType dtype, Sizes sizes, std::function<void(void*)> deleter) {
  Sizes strides = ir::row_major_strides(sizes);
  return wrap_strided(data, dtype, std::move(sizes), std::move(strides), std::move(deleter));
}

Tensor Tensor::wrap_bytes(const void* data, DType dtype, Sizes sizes,
                          std::function<void(void*)> deleter) {
  check_not_negative(sizes, "Tensor::wrap_bytes: sizes");
  void* const bytes = const_cast<void*>(data);
  Tensor tensor;
  if (reinterpret_cast<std::uintptr_t>(data) % size_of(dtype) == 0) {
    tensor = wrap(bytes, dtype, std::move(sizes), std::move(deleter));
    tensor.impl_->read_only = true;
    return tensor;
  }
  ir::element_count(sizes);  // throws while the bytes are still the caller's
  if (!deleter) deleter = [](void*) {};
  std::shared_ptr<void> owner(bytes, std::move(deleter));
  tensor = engine::from_literal(
      ir::Literal::at_any_address(dtype, std::move(sizes), data, std::move(owner)));
  tensor.impl_->read_only = true;
  return tensor;
}

Tensor Tensor::wrap_strided(void* data, DType dtype, Sizes sizes, Sizes strides,
                            std::function<void(void*)> deleter) {
  const auto negative = [](std::int64_t n) { return n < 0; };
  if (std::any_of(sizes.begin(), sizes.end(), negative) || sizes.size() != strides.size() ||
      std::any_of(strides.begin(), strides.end(), negative))
    throw ShapeError({.what = "Tensor::wrap_strided: sizes and strides",
                      .where = {},
                      .expected = "as many strides as sizes, none negative",
                      .got = fmt::format("sizes [{}], strides [{}]", fmt::join(sizes, ", "),
                                         fmt::join(strides, ", "))});
  auto impl = std::make_shared<Impl>();
  impl->dtype = dtype;
  impl->count = ir::element_count(sizes);
  if (data == nullptr && impl->count != 0)
    throw ArgumentError(
        {.what = "Tensor::wrap: data", .where = {}, .expected = "an address", .got = "null"});
  if (const auto past = reinterpret_cast<std::uintptr_t>(data) % size_of(dtype); past != 0)
    throw ArgumentError({.what = "Tensor::wrap: data",
                         .where = {},
                         .expected = fmt::format("an address that is a multiple of {} bytes for {}",
                                                 size_of(dtype), name_of(dtype)),
                         .got = fmt::format("one {} past it", past)});
  impl->address = data;
  impl->wrapped = data;
  impl->deleter = std::move(deleter);
  impl->row_major = ir::Literal(dtype, sizes, strides, data, nullptr).is_row_major();
  impl->sizes = std::move(sizes);
  impl->strides = std::move(strides);
  return Tensor(std::move(impl));
}

bool Tensor::is_symbolic() const { return impl_ != nullptr && impl_->trace != nullptr; }

DType Tensor::dtype() const { return checked(impl_, "dtype", std::source_location()).dtype; }

std::int64_t Tensor::rank() const {
  const Impl& impl = checked(impl_, "rank", std::source_location());
  return impl.trace ? impl.meta.rank() : static_cast<std::int64_t>(impl.sizes.size());
}

Device Tensor::device() const { return checked(impl_, "device", std::source_location()).device; }

SymInt Tensor::size(std::int64_t axis, std::source_location where) const {
  checked(impl_, "size", where);
  const std::int64_t n = rank();
  const std::int64_t k = axis < 0 ? axis + n : axis;
  if (k < 0 || k >= n)
    throw ShapeError({.what = "Tensor::size: axis",
                      .where = engine::location_of(where).to_string(),
                      .expected = fmt::format("an axis of a tensor of rank {}", n),
                      .got = std::to_string(axis)});
  return shape()[static_cast<std::size_t>(k)];
}

std::vector<SymInt> Tensor::shape() const {
  const Impl& impl = checked(impl_, "shape", std::source_location());
  std::vector<SymInt> result;
  if (impl.trace == nullptr) {
    result.assign(impl.sizes.begin(), impl.sizes.end());
    return result;
  }
  for (const base::SymExpr& size : impl.meta.sizes)
    result.push_back(engine::from_expr(size, impl.trace));
  return result;
}

std::span<const std::int64_t> Tensor::sizes(std::source_location where) const {
  return concrete(impl_, "sizes", where).sizes;
}
std::span<const std::int64_t> Tensor::strides() const {
  return concrete(impl_, "strides", std::source_location()).strides;
}
std::int64_t Tensor::count() const {
  return concrete(impl_, "count", std::source_location()).count;
}
bool Tensor::is_row_major() const {
  return concrete(impl_, "is_row_major", std::source_location()).row_major;
}

void* Tensor::data(std::source_location where) {
  const Impl& impl = concrete(impl_, "data", where);
  engine::require_writable(*this, "Tensor::data: a pointer to write through", where);
  return impl.data();
}
const void* Tensor::data(std::source_location where) const {
  return concrete(impl_, "data", where).data();
}

void Tensor::check_dtype(DType wanted, std::source_location where) const {
  const DType is = checked(impl_, "data_as", where).dtype;
  if (is != wanted)
    throw DTypeError({.what = "Tensor::data_as",
                      .where = engine::location_of(where).to_string(),
                      .expected = std::string(name_of(is)),
                      .got = std::string(name_of(wanted))});
}

double Tensor::item(std::source_location where) const {
  const Impl& impl = concrete(impl_, "item", where);
  if (impl.count != 1)
    throw ShapeError({.what = "Tensor::item",
                      .where = engine::location_of(where).to_string(),
                      .expected = "one element",
                      .got = fmt::format("sizes [{}]", fmt::join(impl.sizes, ", "))});
  return engine::to_literal(*this).at(0);
}

std::vector<double> Tensor::to_doubles() const {
  concrete(impl_, "to_doubles", std::source_location());
  const ir::Literal literal = engine::to_literal(*this);
  std::vector<double> values(static_cast<std::size_t>(literal.count()));
  for (std::size_t k = 0; k < values.size(); ++k)
    values[k] = literal.at(static_cast<std::int64_t>(k));
  return values;
}

Tensor Tensor::narrow(std::int64_t axis, std::int64_t start, std::int64_t length,
                      std::source_location where) const {
  if (impl_ != nullptr && impl_->trace != nullptr)
    return heddle::slice(*this, axis, start, start + length, 1, where);
  const Impl& impl = concrete(impl_, "narrow", where);
  const auto rank = static_cast<std::int64_t>(impl.sizes.size());
  const std::int64_t at = axis < 0 ? axis + rank : axis;
  const auto d = static_cast<std::size_t>(at);
  if (at < 0 || at >= rank || start < 0 || length < 0 || start > impl.sizes[d] - length)
    throw ShapeError({.what = "Tensor::narrow",
                      .where = engine::location_of(where).to_string(),
                      .expected = "an axis and a part of its elements",
                      .got = fmt::format("{} from {} on along {} of sizes [{}]", length, start,
                                         axis, fmt::join(impl.sizes, ", "))});
  if (impl.share != nullptr && d == impl.share->room()->axis() && start == 0)
    return engine::tensor_of(engine::RoomShare::part(*impl.share, length));
  auto part = std::make_shared<Impl>();
  Sizes sizes = impl.sizes;
  sizes[d] = length;
  engine::fill_metadata(*part, impl.dtype, sizes);
  part->strides = impl.strides;
  const auto bytes = static_cast<std::size_t>(start * impl.strides[d]) * size_of(impl.dtype);
  part->address = static_cast<char*>(impl.data()) + bytes;
  part->row_major =
      ir::Literal(impl.dtype, sizes, impl.strides, part->address, nullptr).is_row_major();
  part->device = impl.device;
  part->read_only = impl.read_only;
  part->device_bytes = impl.device_bytes;
  part->owner = impl_;
  part->share = impl.share;
  return Tensor(std::move(part));
}

Tensor Tensor::clone() const {
  if (impl_ != nullptr && impl_->trace != nullptr)
    return heddle::apply("clone", std::span(this, 1))[0];
  const Impl& impl = concrete(impl_, "clone", std::source_location());
  if (impl.device.is_cuda())
    return engine::copy_to_device(engine::copy_from_device(*this), *impl.device_bytes->runtime);
  return engine::from_literal(engine::to_literal(*this).clone());
}

Tensor Tensor::to(Device device) const {
  const Impl& impl = concrete(impl_, "to", std::source_location());
  if (impl.device == device) return *this;
  const Tensor host = impl.device.is_cuda() ? engine::copy_from_device(*this) : *this;
  if (device.is_cuda()) return engine::copy_to_device(host, *engine::CudaRuntime::get(device));
  if (device.kind() == Device::Kind::Cpu) return host;
  throw DeviceError({.what = "Tensor::to",
                     .where = {},
                     .expected = "a device that has memory",
                     .got = device.to_string()});
}

void Tensor::wait() const {
  const Impl& impl = concrete(impl_, "wait", std::source_location());
  if (impl.device_bytes != nullptr) impl.device_bytes->uses.wait();
}

}  // namespace heddle
