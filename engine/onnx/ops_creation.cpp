// Tensors made from sizes and numbers.

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/onnx/converters.h"
#include "engine/onnx/integers.h"
#include "heddle/frontend.h"

namespace heddle::onnx {

namespace {

template <typename T, typename Numbers>
Tensor vector_of(const Numbers& numbers) {
  const std::vector<T> values(numbers.begin(), numbers.end());
  return Tensor::of(std::span<const T>(values), {static_cast<std::int64_t>(values.size())});
}

Outputs constant(const Node& node) {
  if (const Value value = node.constant_attr("value"); value.defined()) return {value};
  if (node.has_attr("value_float")) return {Tensor::scalar(f32, node.number("value_float", 0))};
  if (node.has_attr("value_floats")) return {vector_of<float>(node.numbers("value_floats"))};
  if (node.has_attr("value_int")) return {Tensor::scalar_int(i64, node.integer("value_int", 0))};
  if (node.has_attr("value_strings"))
    return {Value(node.codes_of(node.strings("value_strings"))).as_text()};
  if (node.has_attr("value_string")) {
    const std::string text = node.string("value_string", {});
    return {Value(reshape(node.codes_of({&text, 1}), {})).as_text()};
  }
  if (node.has_attr("value_ints")) return {vector_of<std::int64_t>(node.integers("value_ints"))};
  node.unsupported("a sparse constant, or one without a value");
}

Outputs constant_of_shape(const Node& node) {
  SymInts sizes = node.known_or_late(0, "input");
  const Tensor value = node.tensor_attr("value").value_or(Tensor::scalar(f32, 0));
  if (value.count() != 1) node.malformed("value", "one element", std::to_string(value.count()));
  for (const SymInt& size : sizes)
    if (!size.is_symbolic() && size.value() < 0)
      node.malformed("input", "sizes of at least 0", listed(sizes));
  constexpr std::int64_t kMaxInts = 32;
  const bool shape_like = sizes.size() == 1 && !sizes[0].is_symbolic() &&
                          sizes[0].value() <= kMaxInts && Value(value).is_shape_like();
  if (shape_like) {
    const SymInt number = Value(value).ints()->at(0);
    return {Value::of_ints(SymInts(static_cast<std::size_t>(sizes[0].value()), number), false,
                           value.dtype())};
  }
  Tensor scalar = Tensor::empty(value.dtype(), {});
  std::copy_n(static_cast<const char*>(value.data()), heddle::size_of(value.dtype()),
              static_cast<char*>(scalar.data()));
  return {expand(scalar, std::move(sizes))};
}

/// ceil((limit - start) / step), at least 0.
SymInt range_count(const Node& node, const SymInt& start, const SymInt& limit, std::int64_t step) {
  if (step == 0) node.malformed("delta", "a step other than 0", "0");
  const SymInt span = step > 0 ? limit - start : start - limit;
  const SymInt stride = step > 0 ? SymInt(step) : SymInt(0) - step;
  const auto has_some = detail::less_before_run(0, span);
  if (has_some == false) return 0;
  const SymInt count = (span + (stride - 1)) / stride;
  return has_some ? count : max(count, 0);
}

/// Whether only the run tells input k, which is no input of the graph either.
bool is_late(const Node& node, std::size_t k) {
  const Value& value = node.value(k);
  if (value.has_reals()) return false;
  const bool known =
      is_floating(value.dtype()) ? value.concrete().has_value() : value.ints().has_value();
  return !known && value.input_name().empty();
}

/// As many numbers as the run tells.
Tensor late_range(const Node& node, DType dtype) {
  const auto scalar = [&](std::size_t k) { return reshape(node.tensor(k), {}); };
  const Tensor start = scalar(0);
  const Tensor step = scalar(2);
  const Tensor span = scalar(1) - start;
  const Tensor steps = is_floating(dtype) ? ceil(cast(span, f64) / cast(step, f64))
                                          : (span + step - sign(step)) / step;
  const Tensor counted = iota({as_size(maximum(cast(steps, i64), 0))}, 0, dtype);
  return counted * step + start;
}

/// Few numbers from a known one on, as axes are counted.
std::optional<SymInts> known_range(const SymInt& start, const SymInt& count, std::int64_t step) {
  constexpr std::int64_t kMost = 32;
  if (start.is_symbolic() || count.is_symbolic() || count.value() > kMost) return {};
  SymInts ints;
  for (std::int64_t k = 0; k < count.value(); ++k)
    ints.push_back(wrapping_add(start, wrapping_multiply(k, step)));
  return ints;
}

/// How many numbers a range of reals has, where its ends follow from sizes.
std::optional<SymInt> count_of_reals(const Node& node) {
  if (!node.has_reals()) return {};
  std::vector<Real> ends;
  for (const std::size_t k : {0, 1, 2}) {
    const auto reals = node.value(k).reals();
    if (!reals || reals->size() != 1) return {};
    ends.push_back(reals->front());
  }
  return Real::count(ends[0], ends[1], ends[2]);
}

/// So many numbers from the first input on.
Tensor steps_from(const Node& node, const SymInt& count, DType dtype) {
  const auto number = [&](std::size_t k) {
    const Value& value = node.value(k);
    return value.concrete() ? Tensor::scalar(dtype, value.concrete()->to_doubles()[0])
                            : reshape(value.tensor(), {});
  };
  return iota({count}, 0, dtype) * number(2) + number(0);
}

Outputs range(const Node& node) {
  const DType dtype = node.value(0).dtype();
  if (const auto count = count_of_reals(node)) return {steps_from(node, *count, dtype)};
  if (is_late(node, 0) || is_late(node, 1) || is_late(node, 2)) return {late_range(node, dtype)};
  if (!is_floating(dtype)) {
    const SymInt start = node.known_size(0, "start");
    const SymInt limit = node.known_size(1, "limit");
    const std::int64_t step = node.known_number(2, "delta");
    const SymInt count = range_count(node, start, limit, step);
    if (const auto ints = known_range(start, count, step))
      return {Value::of_ints(*ints, false, dtype)};
    const Tensor counted = iota({count}, 0, i64);
    return {cast(counted * step + size_tensor(start), dtype)};
  }
  const double start = node.known_real(0, "start");
  const double step = node.known_real(2, "delta");
  const double limit = node.known_real(1, "limit");
  const double count = std::ceil((limit - start) / step);
  if (!(count < 1e12))
    node.malformed("delta", "a step that reaches the limit", std::to_string(step));
  const Tensor counted = iota({static_cast<std::int64_t>(std::max(count, 0.0))}, 0, dtype);
  return {counted * step + start};
}

Outputs eye_like(const Node& node) {
  const SymInts sizes = node.value(0).shape();
  if (sizes.size() != 2) node.malformed("input", "two dimensions", std::to_string(sizes.size()));
  const Tensor row = iota(sizes, 0) + node.integer("k", 0);
  return {cast(equal(row, iota(sizes, 1)), node.dtype("dtype", node.value(0).dtype()))};
}

Outputs trilu(const Node& node) {
  const Tensor x = node.tensor(0);
  if (x.rank() < 2) node.malformed("input", "two dimensions or more", std::to_string(x.rank()));
  const SymInts plane{x.size(-2), x.size(-1)};
  Tensor row = iota(plane, 0);
  if (node.has(1)) row = row + reshape(node.tensor(1), {});
  const Tensor column = iota(plane, 1);
  const bool upper = node.integer("upper", 1) != 0;
  const Tensor keep = upper ? greater_equal(column, row) : less_equal(column, row);
  return {where(keep, x, Tensor::scalar_int(x.dtype(), 0))};
}

/// a - b cos(2 pi n / N) + c cos(4 pi n / N).
Outputs cosine_window(const Node& node, double a, double b, double c) {
  const SymInt size = node.known_size(0, "size");
  const bool periodic = node.integer("periodic", 1) != 0;
  const Tensor length = cast(size_tensor(periodic ? size : size - 1), f64);
  const Tensor angle = iota({size}, 0, f64) * (2 * std::numbers::pi) / length;
  const Tensor window = (cos(angle) * -b + a) + cos(angle * 2.0) * c;
  return {cast(window, node.dtype("output_datatype", f32))};
}

Outputs hann_window(const Node& node) { return cosine_window(node, 0.5, 0.5, 0); }
Outputs hamming_window(const Node& node) {
  return cosine_window(node, 25.0 / 46.0, 21.0 / 46.0, 0);
}
Outputs blackman_window(const Node& node) { return cosine_window(node, 0.42, 0.5, 0.08); }

}  // namespace

std::span<const Converter> creation_converters() {
  static constexpr Converter kConverters[] = {
      {"BlackmanWindow", blackman_window},
      {"Constant", constant},
      {"ConstantOfShape", constant_of_shape},
      {"EyeLike", eye_like},
      {"HammingWindow", hamming_window},
      {"HannWindow", hann_window},
      {"Range", range},
      {"Trilu", trilu},
  };
  return kConverters;
}

}  // namespace heddle::onnx
