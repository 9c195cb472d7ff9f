// Products of matrices.

#include <algorithm>
#include <cctype>

#include "engine/onnx/converters.h"
#include "heddle/control_flow.h"

namespace heddle::onnx {

namespace {

Outputs convert_matmul(const Node& node) { return {matmul(node.tensor(0), node.tensor(1))}; }

/// What is added repeats over the product, and the product does not repeat over it.
void check_added(const Node& node, const Tensor& product, const Tensor& added) {
  const SymInts whole = product.shape();
  const SymInts sizes = added.shape();
  bool fits = sizes.size() <= whole.size();
  for (std::size_t back = 1; fits && back <= sizes.size(); ++back) {
    const SymInt& size = sizes[sizes.size() - back];
    const SymInt& of = whole[whole.size() - back];
    fits =
        size.is_symbolic() || size.value() == 1 || of.is_symbolic() || size.value() == of.value();
  }
  if (!fits) node.malformed("C", "sizes that repeat to " + listed(whole), listed(sizes));
}

}  // namespace

Outputs convert_gemm(const Node& node) {
  Tensor a = node.tensor(0);
  Tensor b = node.tensor(1);
  if (a.rank() != 2 || b.rank() != 2)
    node.malformed("A and B", "two dimensions each",
                   std::to_string(a.rank()) + " and " + std::to_string(b.rank()));
  if (node.integer("transA", 0) != 0) a = transpose(a, 0, 1);
  if (node.integer("transB", 0) != 0) b = transpose(b, 0, 1);
  Tensor result = matmul(a, b);
  const double alpha = node.number("alpha", 1.0);
  const double beta = node.number("beta", 1.0);
  const auto scaled = [](const Tensor& x, double factor) {
    if (factor == 1.0) return x;
    return is_floating(x.dtype()) ? x * factor : cast(x * factor, x.dtype());
  };
  result = scaled(result, alpha);
  // As in BLAS, nothing of C counts when it is taken 0 times, NaN neither.
  if (!node.has(2) || beta == 0) return {result};
  check_added(node, result, node.tensor(2));
  return {result + scaled(node.tensor(2), beta)};
}

namespace {

/// Labels of one operand or of the result, one a dimension. Dimensions under "..." take labels that
/// no letter has: 0x01 for the last one, 0x02 before it, and so on.
using Labels = std::string;

Labels parse_labels(const Node& node, std::string_view text, std::size_t ellipsis_rank) {
  Labels labels;
  for (std::size_t k = 0; k < text.size(); ++k) {
    if (std::isalpha(static_cast<unsigned char>(text[k])) != 0) {
      labels += text[k];
    } else if (text.substr(k, 3) == "...") {
      for (std::size_t d = ellipsis_rank; d > 0; --d) labels += static_cast<char>(d);
      k += 2;
    } else {
      node.malformed("equation", "letters, commas and ...", std::string(text));
    }
  }
  return labels;
}

std::size_t letters_in(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](unsigned char c) { return std::isalpha(c) != 0; }));
}

/// Takes what lies on the diagonal of repeated labels: "ii" becomes "i". Of two dimensions of n elements that are one of n * n,
/// every (n + 1)th.
void take_diagonals(Tensor& x, Labels& labels) {
  for (std::size_t k = 0; k < labels.size(); ++k) {
    const std::size_t again = labels.find(labels[k], k + 1);
    if (again == Labels::npos) continue;
    Ints order;
    for (std::size_t d = 0; d < labels.size(); ++d)
      if (d != k && d != again) order.push_back(static_cast<std::int64_t>(d));
    const auto last = static_cast<std::int64_t>(order.size());
    order.push_back(static_cast<std::int64_t>(k));
    order.push_back(static_cast<std::int64_t>(again));
    x = permute(x, order);
    const SymInt n = x.size(last);
    SymInts sizes = x.shape();
    sizes.pop_back();
    sizes.back() = n * n;
    x = slice(reshape(x, sizes), last, 0, n * n, n + 1);
    // Back to where the first of the two was.
    Ints back;
    for (std::int64_t d = 0; d < last; ++d) back.push_back(d);
    back.insert(back.begin() + static_cast<std::ptrdiff_t>(k), last);
    x = permute(x, back);
    labels.erase(again, 1);
    --k;
  }
}

/// `x` with its dimensions in the order of `wanted`; labels that it lacks become sizes of 1.
Tensor arranged(const Tensor& x, const Labels& labels, const Labels& wanted) {
  Ints order;
  Ints missing;
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    const std::size_t at = labels.find(wanted[k]);
    if (at == Labels::npos)
      missing.push_back(static_cast<std::int64_t>(k));
    else
      order.push_back(static_cast<std::int64_t>(at));
  }
  return unsqueeze_all(permute(x, order), missing);
}

/// Sums over the labels of `x` that neither the result nor a later operand has.
void sum_unused(Tensor& x, Labels& labels, const Labels& needed) {
  Ints axes;
  Labels left;
  for (std::size_t k = 0; k < labels.size(); ++k) {
    if (needed.find(labels[k]) == Labels::npos)
      axes.push_back(static_cast<std::int64_t>(k));
    else
      left += labels[k];
  }
  if (axes.empty()) return;
  x = sum(x, axes);
  labels = left;
}

bool is_one(const Tensor& x, std::size_t axis) {
  const SymInt size = x.size(static_cast<std::int64_t>(axis));
  return !size.is_symbolic() && size.value() == 1;
}

/// Takes dimensions of 1 out where another operand has more elements under the same label: they repeat.
void drop_repeated(std::vector<Tensor>& tensors, std::vector<Labels>& labels) {
  const auto is_longer = [&](std::size_t operand, char label) {
    const std::size_t at = labels[operand].find(label);
    return at != Labels::npos && !is_one(tensors[operand], at);
  };
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    Ints ones;
    Labels left;
    for (std::size_t d = 0; d < labels[k].size(); ++d) {
      bool repeats = false;
      for (std::size_t other = 0; is_one(tensors[k], d) && other < tensors.size(); ++other)
        repeats = repeats || is_longer(other, labels[k][d]);
      if (repeats)
        ones.push_back(static_cast<std::int64_t>(d));
      else
        left += labels[k][d];
    }
    for (auto axis = ones.rbegin(); axis != ones.rend(); ++axis)
      tensors[k] = squeeze(tensors[k], *axis);
    labels[k] = left;
  }
}

Labels unique_labels(const Labels& a, const Labels& b, auto keep) {
  Labels result;
  for (const char label : a + b) {
    if (result.find(label) == Labels::npos && keep(label)) result += label;
  }
  return result;
}

/// Two operands as one matrix product: shared labels that stay are batches, shared ones that go are summed.
Tensor contract(const Tensor& a, const Labels& in_a, const Tensor& b, const Labels& in_b,
                const Labels& needed, Labels& out) {
  const auto has = [](const Labels& labels, char c) { return labels.find(c) != Labels::npos; };
  const Labels batch = unique_labels(
      in_a, in_b, [&](char c) { return has(in_a, c) && has(in_b, c) && has(needed, c); });
  const Labels summed = unique_labels(
      in_a, in_b, [&](char c) { return has(in_a, c) && has(in_b, c) && !has(needed, c); });
  const Labels rows = unique_labels(in_a, {}, [&](char c) { return !has(in_b, c); });
  const Labels columns = unique_labels(in_b, {}, [&](char c) { return !has(in_a, c); });
  out = batch + rows + columns;
  if (summed.empty()) return arranged(a, in_a, out) * arranged(b, in_b, out);
  const Tensor left = arranged(a, in_a, batch + rows + summed);
  const Tensor right = arranged(b, in_b, batch + summed + columns);
  const SymInts left_sizes = left.shape();
  const SymInts right_sizes = right.shape();
  const auto part = [](const SymInts& sizes, std::size_t first, std::size_t count) {
    return std::span<const SymInt>(sizes).subspan(first, count);
  };
  SymInts left_matrix(left_sizes.begin(),
                      left_sizes.begin() + static_cast<std::ptrdiff_t>(batch.size()));
  SymInts right_matrix(right_sizes.begin(),
                       right_sizes.begin() + static_cast<std::ptrdiff_t>(batch.size()));
  left_matrix.push_back(product(part(left_sizes, batch.size(), rows.size())));
  left_matrix.push_back(product(part(left_sizes, batch.size() + rows.size(), summed.size())));
  right_matrix.push_back(product(part(right_sizes, batch.size(), summed.size())));
  right_matrix.push_back(product(part(right_sizes, batch.size() + summed.size(), columns.size())));
  const Tensor result = matmul(reshape(left, left_matrix), reshape(right, right_matrix));
  SymInts sizes;
  for (std::size_t k = 0; k < batch.size(); ++k)
    sizes.push_back(result.size(static_cast<std::int64_t>(k)));
  for (const SymInt& size : part(left_sizes, batch.size(), rows.size())) sizes.push_back(size);
  for (const SymInt& size : part(right_sizes, batch.size() + summed.size(), columns.size()))
    sizes.push_back(size);
  return reshape(result, sizes);
}

/// Without "->" the result has the labels that occur once, in alphabetical order, after the ellipsis.
Labels implied_result(const std::vector<Labels>& operands) {
  Labels all;
  for (const Labels& labels : operands) all += labels;
  Labels result;
  Labels sorted = all;
  std::sort(sorted.begin(), sorted.end());
  for (char c = 16; c > 0; --c) {
    if (all.find(c) != Labels::npos) result += c;
  }
  for (const char c : sorted) {
    if (c > 16 && std::count(all.begin(), all.end(), c) == 1) result += c;
  }
  return result;
}

Outputs einsum(const Node& node) {
  std::string equation = node.string("equation", "");
  std::erase_if(equation, [](unsigned char c) { return std::isspace(c) != 0; });
  const std::size_t arrow = equation.find("->");
  const std::string left = equation.substr(0, arrow);
  std::vector<Tensor> tensors = node.tensors();
  std::vector<Labels> labels;
  std::size_t begin = 0;
  std::size_t ellipsis_rank = 0;
  for (const Tensor& x : tensors) {
    if (begin > left.size()) node.malformed("equation", "one term an operand", equation);
    const std::string term = left.substr(begin, left.find(',', begin) - begin);
    begin += term.size() + 1;
    const std::size_t rank = static_cast<std::size_t>(x.rank());
    const std::size_t letters = letters_in(term);
    const bool dots = term.find("...") != std::string::npos;
    if (rank < letters || (!dots && rank != letters) || rank - letters > 16)
      node.malformed("equation", "a label for each dimension", term);
    if (dots) ellipsis_rank = std::max(ellipsis_rank, rank - letters);
    labels.push_back(parse_labels(node, term, dots ? rank - letters : 0));
  }
  const Labels result = arrow == std::string::npos
                            ? implied_result(labels)
                            : parse_labels(node, equation.substr(arrow + 2), ellipsis_rank);
  for (std::size_t k = 0; k < tensors.size(); ++k) take_diagonals(tensors[k], labels[k]);
  drop_repeated(tensors, labels);
  Tensor total = tensors.at(0);
  Labels have = labels[0];
  for (std::size_t k = 1; k <= tensors.size(); ++k) {
    Labels needed = result;
    for (std::size_t later = k; later < tensors.size(); ++later) needed += labels[later];
    sum_unused(total, have, needed);
    if (k == tensors.size()) break;
    Labels after = result;
    for (std::size_t later = k + 1; later < tensors.size(); ++later) after += labels[later];
    sum_unused(tensors[k], labels[k], after + have);
    Labels out;
    total = contract(total, have, tensors[k], labels[k], after, out);
    have = out;
  }
  for (const char label : result) {
    if (have.find(label) == Labels::npos)
      node.malformed("equation", "result labels that an operand has", equation);
  }
  return {arranged(total, have, result)};
}

/// i64[B, rows, 1] or [B, 1, 1]: the first row from `k` on whose number in `column` [B, rows, 1] is the largest.
Tensor pivot_of(const Tensor& column, const Tensor& row, const Tensor& k) {
  const Tensor left = where(greater_equal(row, k), abs(column), -1.0);
  return argmax(left, 1, true);
}

/// Square matrices in one batch, in f32 or f64.
struct Squares {
  explicit Squares(const Node& node) {
    const Tensor x = node.tensor(0);
    if (x.rank() < 2 || x.size(-1) != x.size(-2))
      node.malformed("X", "square matrices", listed(x.shape()));
    if (!is_floating(x.dtype()))
      node.malformed("X", "real numbers", std::string(name_of(x.dtype())));
    size = x.size(-1);
    outer = x.shape();
    outer.resize(outer.size() - 2);
    batch = product(outer);
    dtype = x.dtype() == f64 ? f64 : f32;
    matrices = reshape(cast(x, dtype), {batch, size, size});
  }

  SymInt size, batch;
  SymInts outer;
  DType dtype = f32;
  Tensor matrices;
};

Tensor column_of(const Tensor& matrix, const Tensor& k) {
  return gather(matrix, reshape(k, {1}), 2);
}

/// `matrix` with row k exchanged for row `pivot`.
Tensor with_pivot(const Tensor& matrix, const Tensor& row, const Tensor& pivot, const Tensor& k) {
  const Tensor from = where(equal(row, k), pivot, where(equal(row, pivot), k, row));
  return one("gather_elements", {matrix, expand(from, matrix.shape())},
             {{"axis", std::int64_t{1}}});
}

/// The product of what Gaussian elimination with partial pivoting leaves on the diagonal; each exchange of rows turns its
/// sign.
Outputs det(const Node& node) {
  const Squares squares(node);
  const DType dtype = squares.dtype;
  using State = std::pair<Tensor, Tensor>;
  const auto eliminate = [&](const State& state, const Tensor& k) {
    const Tensor row = iota({1, squares.size, 1}, 1);
    const Tensor pivot = pivot_of(column_of(state.first, k), row, k);
    const Tensor matrix = with_pivot(state.first, row, pivot, k);
    const Tensor top = gather(matrix, reshape(k, {1}), 1);
    const Tensor diagonal = column_of(top, k);
    const Tensor divisor = where(equal(diagonal, 0.0), 1.0, diagonal);
    const Tensor factor = where(greater(row, k), column_of(matrix, k) / divisor, 0.0);
    const Tensor sign = where(equal(pivot, k), 1.0, Tensor::scalar(dtype, -1));
    const Tensor total = state.second * reshape(diagonal * sign, {squares.batch});
    return std::pair(State(matrix - factor * top, total), std::tuple<>());
  };
  const State start(squares.matrices, expand(Tensor::scalar(dtype, 1), {squares.batch}));
  const Tensor total = scan(start, iota({squares.size}), eliminate).first.second;
  return {cast(reshape(total, squares.outer), node.value(0).dtype())};
}

}  // namespace

/// What elimination in all rows with partial pivoting makes of the unit matrices beside the others.
Outputs convert_inverse(const Node& node) {
  const Squares squares(node);
  const Tensor row = iota({1, squares.size, 1}, 1);
  const Tensor unit = cast(equal(row, iota({1, 1, squares.size}, 2)), squares.dtype);
  const Tensor beside = expand(unit, {squares.batch, squares.size, squares.size});
  const auto eliminate = [&](const Tensor& state, const Tensor& k) {
    const Tensor at = iota({1, squares.size, 1}, 1);
    const Tensor matrix = with_pivot(state, at, pivot_of(column_of(state, k), at, k), k);
    const Tensor top = gather(matrix, reshape(k, {1}), 1);
    const Tensor whole = top / column_of(top, k);
    const Tensor factor = column_of(matrix, k);
    return std::pair(where(equal(at, k), whole, matrix - factor * whole), std::tuple<>());
  };
  const Tensor start = concat({squares.matrices, beside}, 2);
  const Tensor done = scan(start, iota({squares.size}), eliminate).first;
  const Tensor inverse = slice(done, 2, squares.size, squares.size * 2);
  return {cast(reshape(inverse, node.value(0).shape()), node.value(0).dtype())};
}

std::span<const Converter> matrix_converters() {
  static constexpr Converter kConverters[] = {
      {"Det", det},
      {"Einsum", einsum},
      {"Gemm", convert_gemm},
      {"MatMul", convert_matmul},
  };
  return kConverters;
}

}  // namespace heddle::onnx
