#include "engine/onnx/value.h"

#include <algorithm>
#include <cstring>

#include "engine/onnx/integers.h"
#include "heddle/error.h"
#include "heddle/frontend.h"
#include "heddle/ops.h"

namespace heddle::onnx {

namespace {

/// Longer vectors are data, not shapes.
constexpr std::int64_t kMaxInts = 128;
/// Longer tensors of numbers of less than a byte stay packed.
constexpr std::int64_t kMaxUnpacked = 64;

/// Those of u64 have no place among sizes.
bool holds_ints(const Tensor& tensor) {
  return !tensor.is_symbolic() && !is_floating(tensor.dtype()) && tensor.dtype() != u64 &&
         tensor.rank() <= 1 && tensor.count() <= kMaxInts;
}

template <typename T>
SymInts read_as(const Tensor& tensor) {
  const T* data = static_cast<const T*>(tensor.data());
  return {data, data + tensor.count()};
}

/// A file may hold any byte for true.
SymInts read_truths(const Tensor& tensor) {
  SymInts truths = read_as<std::uint8_t>(tensor);
  for (SymInt& truth : truths) truth = wrapped(truth, boolean);
  return truths;
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
    case DType::U32:
      return read_as<std::uint32_t>(tensor);
    case DType::U16:
      return read_as<std::uint16_t>(tensor);
    case DType::Bool:
      return read_truths(tensor);
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
    case DType::U16:
      return write_as<std::uint16_t>(ints, std::move(sizes));
    case DType::U32:
      return write_as<std::uint32_t>(ints, std::move(sizes));
    case DType::Bool:
      return write_as<bool>(ints, std::move(sizes));
    default:
      return write_as<std::int64_t>(ints, std::move(sizes));
  }
}

/// Sizes as a tensor computed in the graph.
Tensor size_tensors(const KnownInts& known) {
  if (known.sizes.empty()) return size_tensor(known.ints[0]);
  std::vector<Tensor> parts;
  for (const SymInt& number : known.ints) parts.push_back(reshape(size_tensor(number), {1}));
  const Tensor vector = parts.size() == 1 ? parts[0] : concat(parts, 0);
  if (known.sizes.size() == 1) return vector;
  return reshape(vector, SymInts(known.sizes.begin(), known.sizes.end()));
}

/// Of f8e4m3fn, which has all numbers of FLOAT4E2M1.
std::uint8_t code_of_e2m1(unsigned code) {
  // 0, 0.5, 1, 1.5, 2, 3, 4 and 6.
  constexpr std::uint8_t kCodes[] = {0, 0x30, 0x38, 0x3c, 0x40, 0x44, 0x48, 0x4c};
  return static_cast<std::uint8_t>(kCodes[code & 7] | (code & 8) << 4);
}

}  // namespace

Tensor unpacked(const Tensor& bytes, const Packing& packing) {
  const DType dtype = packing.is_real ? f8e4m3fn : packing.is_signed ? i8 : u8;
  Tensor numbers = Tensor::empty(dtype, packing.sizes);
  const auto* from = static_cast<const std::uint8_t*>(bytes.data());
  auto* to = static_cast<std::uint8_t*>(numbers.data());
  const auto each = 8 / packing.bits;
  const unsigned half = 1u << (packing.bits - 1);
  for (std::int64_t k = 0; k < numbers.count(); ++k) {
    const unsigned number = (from[k / each] >> (k % each * packing.bits)) & (2 * half - 1);
    to[k] = packing.is_real
                ? code_of_e2m1(number)
                : static_cast<std::uint8_t>(packing.is_signed ? (number ^ half) - half : number);
  }
  return numbers;
}

bool is_late(const KnownParts& parts) {
  const auto is_known = [](const std::optional<SymInt>& part) { return part.has_value(); };
  return std::ranges::any_of(parts, is_known) && !std::ranges::all_of(parts, is_known);
}

struct Value::State {
  Tensor tensor;  ///< of a packed value: its bytes, in one dimension
  std::optional<Packing> packing;
  std::int64_t bits = 0;
  bool is_number = false;  ///< `tensor` holds one float or byte, which the graph shall know
  Tensor in_graph;         ///< of a number or a packed value: what stands for it
  std::optional<KnownInts> known;
  std::optional<Reals> reals;  ///< of `tensor`
  std::optional<KnownParts> parts;
  DType dtype = f32;
  std::string input;
  std::string source;
  std::optional<std::vector<Value>> elements;
  bool is_rows = false;  ///< a sequence: the slices of `tensor`
  bool is_maps = false;
  bool is_text = false;
};

Value::Value(Tensor tensor) {
  if (!tensor.defined()) return;
  state_ = std::make_shared<State>();
  state_->dtype = tensor.dtype();
  state_->tensor = std::move(tensor);
}

Value Value::of_ints(SymInts ints, bool scalar, DType dtype) {
  Ints sizes;
  if (!scalar) sizes.push_back(static_cast<std::int64_t>(ints.size()));
  return of_known({std::move(ints), std::move(sizes)}, dtype);
}

Value Value::of_known(KnownInts known, DType dtype) {
  Value value;
  for (SymInt& number : known.ints) number = wrapped(number, dtype);
  value.state_ = std::make_shared<State>();
  value.state_->known = std::move(known);
  value.state_->dtype = dtype;
  return value;
}

Value Value::of_constant(Tensor tensor) {
  Value value(std::move(tensor));
  if (!value.defined()) return value;
  const Tensor& given = value.state_->tensor;
  value.state_->is_number = (is_floating(given.dtype()) || is_byte(given.dtype())) &&
                            given.rank() != 0 && given.count() == 1;
  return value;
}

Value Value::of_reals(Tensor tensor, Reals reals) {
  Value value(std::move(tensor));
  value.state_->reals = std::move(reals);
  return value;
}

Value Value::of_parts(Tensor tensor, KnownParts parts) {
  Value value(std::move(tensor));
  value.state_->parts = std::move(parts);
  return value;
}

Value Value::of_packed(Tensor bytes, Packing packing) {
  std::int64_t count = 1;
  for (const std::int64_t size : packing.sizes) count *= size;
  if (count <= kMaxUnpacked || packing.is_real)
    return of_constant(unpacked(bytes, packing)).with_bits(packing.bits);
  Value value(std::move(bytes));
  value.state_->dtype = packing.is_signed ? i8 : u8;
  value.state_->bits = packing.bits;
  value.state_->packing = std::move(packing);
  return value;
}

Value Value::of_sequence(std::vector<Value> elements) {
  Value value;
  value.state_ = std::make_shared<State>();
  value.state_->elements = std::move(elements);
  return value;
}

Value Value::of_rows(Tensor rows) {
  Value value(std::move(rows));
  value.state_->is_rows = true;
  return value;
}

bool Value::is_sequence() const { return defined() && (is_listed() || state_->is_rows); }
bool Value::is_listed() const { return state_->elements.has_value(); }

Tensor Value::rows() const {
  if (!is_listed()) return state_->tensor;
  const auto refuse = [](std::string got) {
    throw UnsupportedError({.what = "a sequence whose length the run tells",
                            .where = {},
                            .expected = "elements of one type",
                            .got = std::move(got)});
  };
  std::vector<Tensor> slices;
  for (const Value& element : elements()) {
    if (element.is_sequence() || element.is_text()) refuse("one of sequences or strings");
    slices.push_back(unsqueeze(element.tensor(), 0));
    if (slices.back().dtype() != slices[0].dtype() || slices.back().rank() != slices[0].rank())
      refuse("several dtypes or ranks");
  }
  if (slices.empty()) refuse("none");
  return slices.size() == 1 ? slices[0] : concat(slices, 0);
}

const std::vector<Value>& Value::elements() const { return *state_->elements; }

Value Value::of_maps(Tensor tensor) {
  Value value(std::move(tensor));
  value.state_->is_maps = true;
  return value;
}

bool Value::is_maps() const { return defined() && state_->is_maps; }
bool Value::is_text() const { return defined() && state_->is_text; }

Value Value::as_text() const {
  Value value;
  value.state_ = std::make_shared<State>(*state_);
  value.state_->is_text = true;
  return value;
}

Value Value::of_input(Tensor tensor, std::string name) {
  Value value(std::move(tensor));
  value.state_->input = name;
  value.state_->source = std::move(name);
  return value;
}

DType Value::dtype() const { return state_->dtype; }
std::int64_t Value::bits() const { return state_->bits; }

Value Value::with_bits(std::int64_t bits) const {
  Value value;
  value.state_ = std::make_shared<State>(*state_);
  value.state_->bits = bits;
  return value;
}

std::int64_t Value::rank() const {
  if (state_->packing) return static_cast<std::int64_t>(state_->packing->sizes.size());
  if (state_->tensor.defined()) return state_->tensor.rank();
  return static_cast<std::int64_t>(state_->known->sizes.size());
}

SymInts Value::shape() const {
  if (state_->packing) return {state_->packing->sizes.begin(), state_->packing->sizes.end()};
  if (state_->tensor.defined()) return state_->tensor.shape();
  return {state_->known->sizes.begin(), state_->known->sizes.end()};
}

Tensor Value::tensor() const {
  State& state = *state_;
  if (is_sequence())
    throw UnsupportedError(
        {.what = "a value", .where = {}, .expected = "a tensor", .got = "a sequence"});
  if (state.packing) return unpacked_tensor();
  if (state.is_number) return number_tensor();
  if (state.tensor.defined()) return state.tensor;
  bool symbolic = false;
  for (const SymInt& number : state.known->ints) symbolic = symbolic || number.is_symbolic();
  if (symbolic) {
    Tensor tensor = size_tensors(*state.known);
    if (state.dtype != i64) tensor = cast(tensor, state.dtype);
    if (detail::in_region()) return tensor;
    state.tensor = std::move(tensor);
  } else {
    state.tensor = write_ints(state.known->ints, state.dtype, state.known->sizes);
  }
  return state.tensor;
}

Tensor Value::unpacked_tensor() const {
  State& state = *state_;
  if (state.in_graph.defined()) return state.in_graph;
  const Packing& packing = *state.packing;
  std::int64_t count = 1;
  for (const std::int64_t size : packing.sizes) count *= size;
  const Tensor operands[] = {state.tensor};
  const Tensor numbers =
      apply("unpack_bits", operands,
            {{"bits", packing.bits}, {"count", count}, {"signed", packing.is_signed}})[0];
  Tensor shown = reshape(numbers, shape());
  if (!detail::in_region()) state.in_graph = shown;
  return shown;
}

Tensor Value::number_tensor() const {
  State& state = *state_;
  if (state.in_graph.defined()) return state.in_graph;
  const Tensor& given = state.tensor;
  Tensor scalar = Tensor::empty(given.dtype(), {});
  std::memcpy(scalar.data(), given.data(), heddle::size_of(given.dtype()));
  Tensor shown = reshape(scalar, shape());
  if (!detail::in_region()) state.in_graph = shown;
  return shown;
}

std::optional<Tensor> Value::concrete() const {
  if (state_->packing) return {};
  if (state_->is_number) return state_->tensor;
  if (state_->tensor.defined() && state_->tensor.is_symbolic()) return {};
  if (state_->known) {
    for (const SymInt& number : state_->known->ints)
      if (number.is_symbolic()) return {};
  }
  return tensor();
}

bool Value::has_reals() const { return state_->reals.has_value(); }

std::optional<Reals> Value::reals() const {
  if (state_->reals) return state_->reals;
  if ((state_->dtype != f32 && state_->dtype != f64) || rank() > 1) return {};
  const auto data = concrete();
  if (!data || data->count() > kMaxInts) return {};
  Reals reals;
  for (const double number : data->to_doubles()) reals.emplace_back(number, state_->dtype);
  return reals;
}

std::optional<SymInts> Value::ints() const {
  if (state_->known && state_->known->sizes.size() <= 1) return state_->known->ints;
  if (!state_->known && !state_->packing && holds_ints(state_->tensor))
    return read_ints(state_->tensor);
  return {};
}

std::optional<KnownParts> Value::parts() const {
  if (is_sequence() || has_reals() || is_floating(dtype()) || rank() != 1) return {};
  if (const auto known = ints()) return KnownParts(known->begin(), known->end());
  if (state_->parts) return state_->parts;
  const SymInt length = shape()[0];
  if (length.is_symbolic() || length.value() > kMaxInts) return {};
  return KnownParts(static_cast<std::size_t>(length.value()));
}

std::optional<KnownInts> Value::known_ints() const {
  if (state_->known) return state_->known;
  if (!is_shape_like()) return {};
  return KnownInts{read_ints(state_->tensor),
                   {state_->tensor.sizes().begin(), state_->tensor.sizes().end()}};
}

bool Value::is_shape_like() const {
  if (state_->known) return state_->known->sizes.size() <= 1;
  return (state_->dtype == i64 || state_->dtype == i32 || state_->dtype == boolean) &&
         holds_ints(state_->tensor);
}

const std::string& Value::input_name() const { return state_->input; }
const std::string& Value::source() const { return state_->source; }

void Value::note_source(std::span<const Value> operands) {
  if (!defined() || !state_->source.empty() || !is_computed()) return;
  for (const Value& operand : operands) {
    if (!operand.defined() || !operand.is_computed() || operand.is_shape_like()) continue;
    const bool other = !state_->source.empty() && operand.source() != state_->source;
    if (operand.source().empty() || other) {
      state_->source.clear();
      return;
    }
    state_->source = operand.source();
  }
}

bool Value::is_computed() const { return state_->tensor.defined() && state_->tensor.is_symbolic(); }

}  // namespace heddle::onnx
