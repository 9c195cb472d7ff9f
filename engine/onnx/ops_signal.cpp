// Fourier transforms and what goes with them, as products with matrices made when the model is read.

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "engine/onnx/converters.h"

namespace heddle::onnx {

namespace {

/// Transforms up to this long are one product with a matrix.
constexpr std::int64_t kDirect = 512;
/// As are those whose length is a prime up to this.
constexpr std::int64_t kLongestPrime = 2048;

Tensor tensor_of(const std::vector<double>& numbers, Sizes sizes, DType dtype) {
  if (dtype == f64) return Tensor::of(std::span<const double>(numbers), std::move(sizes));
  const std::vector<float> rounded(numbers.begin(), numbers.end());
  return Tensor::of(std::span<const float>(rounded), std::move(sizes));
}

/// The cosine of `quarters` / (4 n) turns, from a table.
class Cosines {
 public:
  explicit Cosines(std::int64_t n) : period_(4 * n) {
    for (std::int64_t k = 0; k < period_; ++k)
      table_.push_back(
          std::cos(2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(period_)));
  }

  double at(std::int64_t quarters) const {
    const std::int64_t k = quarters % period_;
    return table_[static_cast<std::size_t>(k < 0 ? k + period_ : k)];
  }

 private:
  std::int64_t period_;
  std::vector<double> table_;
};

/// What a matrix of a transform of length `n` takes and gives: numbers that are real, or pairs.
struct Basis {
  std::int64_t n = 1;
  std::int64_t rows = 1;      ///< elements taken, of `parts_in` numbers
  std::int64_t columns = 1;   ///< elements given, of `parts_out` numbers
  std::int64_t parts_in = 2;  ///< 1: real
  std::int64_t parts_out = 2;
  bool inverse = false;
  bool halves = false;  ///< elements taken stand for those mirrored too
  double scale = 1;
};

/// [rows * parts_in, columns * parts_out]: each number given by each number taken. A pair turned by an angle is its
/// cosine, and from one part to the other the cosine a quarter of a turn on.
Tensor matrix_of(const Basis& basis, DType dtype) {
  const Cosines cosines(basis.n);
  std::vector<double> numbers;
  for (std::int64_t j = 0; j < basis.rows; ++j) {
    const bool is_alone = !basis.halves || j == 0 || 2 * j == basis.n;
    const double weight = is_alone ? basis.scale : 2 * basis.scale;
    for (std::int64_t from = 0; from < basis.parts_in; ++from) {
      for (std::int64_t k = 0; k < basis.columns; ++k) {
        const std::int64_t turn = j * k % basis.n * (basis.inverse ? -4 : 4);
        for (std::int64_t to = 0; to < basis.parts_out; ++to)
          numbers.push_back(weight * cosines.at(turn + (to - from) * basis.n));
      }
    }
  }
  return tensor_of(numbers, {basis.rows * basis.parts_in, basis.columns * basis.parts_out}, dtype);
}

/// x [B, rows, parts_in] -> [B, columns, parts_out].
Tensor transformed(const Tensor& x, const Basis& basis) {
  const Tensor flat = reshape(x, {x.size(0), basis.rows * basis.parts_in});
  return reshape(matmul(flat, matrix_of(basis, x.dtype())),
                 {x.size(0), basis.columns, basis.parts_out});
}

std::int64_t largest_divisor_up_to_root(std::int64_t n) {
  for (auto d = static_cast<std::int64_t>(std::sqrt(static_cast<double>(n))); d > 1; --d)
    if (n % d == 0) return d;
  return 1;
}

/// x [B, m, k, 2], its pair (m, k) turned by m * k / n of a turn.
Tensor turned(const Tensor& x, std::int64_t n, bool inverse) {
  const std::int64_t rows = x.size(1).value();
  const std::int64_t columns = x.size(2).value();
  const Cosines cosines(n);
  std::vector<double> real;
  std::vector<double> imaginary;
  for (std::int64_t m = 0; m < rows; ++m) {
    for (std::int64_t k = 0; k < columns; ++k) {
      const std::int64_t turn = m * k % n * (inverse ? -4 : 4);
      real.push_back(cosines.at(turn));
      imaginary.push_back(cosines.at(turn + n));
    }
  }
  const Tensor c = tensor_of(real, {rows, columns, 1}, x.dtype());
  const Tensor s = tensor_of(imaginary, {rows, columns, 1}, x.dtype());
  const Tensor re = slice(x, 3, 0, 1);
  const Tensor im = slice(x, 3, 1, 2);
  return concat({re * c - im * s, re * s + im * c}, 3);
}

/// All elements of the transform of x [B, n, 1 or 2], not scaled: [B, n, 2]. One whose length is a product is made of
/// transforms of its factors (Cooley and Tukey, "An algorithm for the machine calculation of complex Fourier series", 1965).
Tensor whole_transform(const Node& node, const Tensor& x, std::int64_t n, bool inverse) {
  const std::int64_t parts = x.size(2).value();
  const std::int64_t first = n <= kDirect ? 1 : largest_divisor_up_to_root(n);
  if (first == 1) {
    if (n > std::max(kDirect, kLongestPrime))
      node.unsupported("a length with the prime factor " + std::to_string(n));
    return transformed(x, {.n = n, .rows = n, .columns = n, .parts_in = parts, .inverse = inverse});
  }
  const SymInt batch = x.size(0);
  const std::int64_t second = n / first;
  const Tensor columns = permute(reshape(x, {batch, first, second, parts}), {0, 2, 1, 3});
  Tensor inner =
      whole_transform(node, reshape(columns, {batch * second, first, parts}), first, inverse);
  inner = turned(reshape(inner, {batch, second, first, 2}), n, inverse);
  const Tensor rows = reshape(permute(inner, {0, 2, 1, 3}), {batch * first, second, 2});
  const Tensor outer = whole_transform(node, rows, second, inverse);
  return reshape(permute(reshape(outer, {batch, first, second, 2}), {0, 2, 1, 3}), {batch, n, 2});
}

/// The transform of x [B, n, 1 or 2]: [B, n, 2], or the first half and the middle.
Tensor forward(const Node& node, const Tensor& x, std::int64_t n, bool onesided) {
  const std::int64_t kept = onesided ? n / 2 + 1 : n;
  if (n <= kDirect)
    return transformed(x, {.n = n, .rows = n, .columns = kept, .parts_in = x.size(2).value()});
  return slice(whole_transform(node, x, n, false), 1, 0, kept);
}

/// The inverse of x [B, n, 1 or 2]: [B, n, 2].
Tensor backward(const Node& node, const Tensor& x, std::int64_t n) {
  const double scale = 1.0 / static_cast<double>(n);
  if (n > kDirect) return whole_transform(node, x, n, true) * scale;
  return transformed(x, {.n = n,
                         .rows = n,
                         .columns = n,
                         .parts_in = x.size(2).value(),
                         .inverse = true,
                         .scale = scale});
}

/// The inverse of x [B, n / 2 + 1, 1 or 2], which the other half mirrors: real numbers [B, n, 1].
Tensor backward_of_half(const Node& node, const Tensor& x, std::int64_t n) {
  const std::int64_t parts = x.size(2).value();
  const std::int64_t given = n / 2 + 1;
  if (n <= kDirect)
    return transformed(x, {.n = n,
                           .rows = given,
                           .columns = n,
                           .parts_in = parts,
                           .parts_out = 1,
                           .inverse = true,
                           .halves = true,
                           .scale = 1.0 / static_cast<double>(n)});
  Tensor mirrored = one("reverse", {slice(x, 1, 1, n - given + 1)}, {{"axes", Ints{1}}});
  if (parts == 2) mirrored = concat({slice(mirrored, 2, 0, 1), -slice(mirrored, 2, 1, 2)}, 2);
  return slice(backward(node, concat({x, mirrored}, 1), n), 2, 0, 1);
}

/// x with `length` elements along dimension 1: cut, or zeros behind.
Tensor fitted(const Tensor& x, std::int64_t length) {
  const SymInt size = x.size(1);
  if (size == length) return x;
  if (size > length) return slice(x, 1, 0, length);
  return pad(x, {0, 0, 0}, {0, length - size, 0});
}

void check_parts(const Node& node, const Tensor& x, std::string_view name) {
  const SymInt parts = x.size(-1);
  if (parts != 1 && parts != 2)
    node.malformed(std::string(name), "a last dimension of 1 or 2", listed(x.shape()));
}

constexpr std::int64_t kLongest = 1 << 20;

std::int64_t checked_length(const Node& node, std::string_view name, std::int64_t length) {
  if (length < 1 || length > kLongest)
    node.malformed(std::string(name), "1 to 2^20", std::to_string(length));
  return length;
}

/// In f32 at least: sums of many products.
Tensor widened(const Node& node, const Tensor& x) {
  if (!is_floating(x.dtype()))
    node.malformed("input", "real numbers", std::string(name_of(x.dtype())));
  return x.dtype() == f64 ? x : cast(x, f32);
}

/// The length is part of what is compiled; other sizes may be symbols.
Outputs dft(const Node& node) {
  const Tensor x = node.tensor(0);
  if (x.rank() < 2) node.malformed("input", "two dimensions or more", std::to_string(x.rank()));
  check_parts(node, x, "input");
  std::int64_t axis = node.opset() < 20 ? node.integer("axis", 1) : -2;
  if (node.has(2)) axis = node.known_number(2, "axis");
  axis = node.axis(axis, x.rank());
  if (axis == x.rank() - 1)
    node.malformed("axis", "another than the last one", std::to_string(axis));
  const bool inverse = node.integer("inverse", 0) != 0;
  const bool onesided = node.integer("onesided", 0) != 0;
  const bool from_half = inverse && onesided;
  std::int64_t length = 0;
  if (node.has(1))
    length = node.known_number(1, "dft_length");
  else
    length = from_half ? 2 * (x.size(axis).value() - 1) : x.size(axis).value();
  checked_length(node, "dft_length", length);
  // The axis before the last one, and all others together.
  Ints order = range_of(0, x.rank());
  std::swap(order[static_cast<std::size_t>(axis)], order[order.size() - 2]);
  const Tensor last = permute(widened(node, x), order);
  SymInts sizes = last.shape();
  const SymInt batch = product(std::span(sizes).first(sizes.size() - 2));
  const Tensor rows = fitted(reshape(last, {batch, x.size(axis), x.size(-1).value()}),
                             from_half ? length / 2 + 1 : length);
  const Tensor result = from_half ? backward_of_half(node, rows, length)
                        : inverse ? backward(node, rows, length)
                                  : forward(node, rows, length, onesided);
  sizes[sizes.size() - 2] = result.size(1);
  sizes.back() = result.size(2);
  return {cast(permute(reshape(result, sizes), order), x.dtype())};
}

/// Inputs: signal, frame_step, window, frame_length.
Outputs stft(const Node& node) {
  // ONNX Runtime takes a real signal without its last dimension of 1.
  const Tensor given = node.tensor(0);
  const Tensor signal = given.rank() == 2 ? unsqueeze(given, 2) : given;
  if (signal.rank() != 3)
    node.malformed("signal", "two or three dimensions", std::to_string(signal.rank()));
  check_parts(node, signal, "signal");
  const std::int64_t step = checked_length(node, "frame_step", node.known_number(1, "frame_step"));
  std::int64_t length = 0;
  if (node.has(3))
    length = node.known_number(3, "frame_length");
  else
    length = node.has(2) ? node.value(2).shape().at(0).value() : signal.size(1).value();
  checked_length(node, "frame_length", length);
  const SymInt room = signal.size(1) - length;
  if (room < 0) node.malformed("frame_length", "at most the signal's", std::to_string(length));
  const SymInt frames = room / step + 1;
  // [batch, frames, parts, length] with the parts behind the elements
  const Tensor windows = unfold(widened(node, signal), 1, length, step);
  Tensor x = permute(windows, {0, 1, 3, 2});
  if (node.has(2)) {
    const Tensor window = node.tensor(2);
    if (window.rank() != 1 || window.size(0) != length)
      node.malformed("window", std::to_string(length) + " numbers", listed(window.shape()));
    x = x * reshape(cast(window, x.dtype()), {length, 1});
  }
  const SymInt batch = signal.size(0);
  const Tensor rows = reshape(x, {batch * frames, length, signal.size(2).value()});
  const Tensor result = forward(node, rows, length, node.integer("onesided", 1) != 0);
  return {cast(reshape(result, {batch, frames, result.size(1), 2}), signal.dtype())};
}

/// The first and last frequencies of a bank of filters, in Hz.
struct Edges {
  double low = 0;
  double high = 0;
};

/// Where filters begin, peak and end: elements of a spectrum, evenly on the mel scale. As in ONNX's evaluator, steps are
/// one for each edge, so that the last filter ends before the last frequency.
Ints mel_bins(std::int64_t filters, std::int64_t length, std::int64_t rate, const Edges& edges) {
  const auto to_mel = [](double hertz) { return 2595 * std::log1p(hertz / 700) / std::log(10); };
  const double low = to_mel(edges.low);
  const double step = (to_mel(edges.high) - low) / static_cast<double>(filters + 2);
  Ints bins;
  for (std::int64_t k = 0; k < filters + 2; ++k) {
    const double mel = static_cast<double>(k) * step + low;
    const double hertz = 700 * std::expm1(mel / 2595 * std::log(10));
    bins.push_back(static_cast<std::int64_t>(
        std::floor(static_cast<double>(length + 1) * hertz / static_cast<double>(rate))));
  }
  return bins;
}

/// Inputs: num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz.
Outputs mel_weight_matrix(const Node& node) {
  constexpr std::int64_t kMostFilters = 1 << 16;
  constexpr std::int64_t kMostWeights = 1 << 26;
  const std::int64_t filters = node.known_number(0, "num_mel_bins");
  if (filters < 0 || filters > kMostFilters)
    node.malformed("num_mel_bins", "0 to 2^16", std::to_string(filters));
  const std::int64_t length =
      checked_length(node, "dft_length", node.known_number(1, "dft_length"));
  const std::int64_t rate = node.known_number(2, "sample_rate");
  const Edges edges{node.known_real(3, "lower_edge_hertz"), node.known_real(4, "upper_edge_hertz")};
  const double half = static_cast<double>(rate) / 2;
  if (rate < 1 || !(0 <= edges.low && edges.low <= edges.high && edges.high <= half))
    node.malformed("edges", "0 <= lower <= upper <= half of a rate above 0",
                   std::to_string(edges.low) + " and " + std::to_string(edges.high));
  const std::int64_t rows = length / 2 + 1;
  if (rows * filters > kMostWeights) node.unsupported("more than 2^26 weights");
  std::vector<double> weights(static_cast<std::size_t>(rows * filters));
  const Ints bins = mel_bins(filters, length, rate, edges);
  const auto set = [&](std::int64_t row, std::int64_t filter, std::int64_t part, std::int64_t of) {
    if (row >= rows) return;
    weights[static_cast<std::size_t>(row * filters + filter)] =
        of == 0 ? 1.0 : static_cast<double>(part) / static_cast<double>(of);
  };
  for (std::int64_t k = 0; k < filters; ++k) {
    const auto first = bins.begin() + k;
    for (std::int64_t row = first[0]; row <= first[1]; ++row)
      set(row, k, row - first[0], first[1] - first[0]);
    for (std::int64_t row = first[1]; row < first[2]; ++row)
      set(row, k, first[2] - row, first[2] - first[1]);
  }
  const DType dtype = node.dtype("output_datatype", f32);
  return {cast(tensor_of(weights, {rows, filters}, f64), dtype)};
}

}  // namespace

std::span<const Converter> signal_converters() {
  static constexpr Converter kConverters[] = {
      {"DFT", dft},
      {"MelWeightMatrix", mel_weight_matrix},
      {"STFT", stft},
  };
  return kConverters;
}

}  // namespace heddle::onnx
