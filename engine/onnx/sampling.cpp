#include "engine/onnx/sampling.h"

#include <utility>

namespace heddle::onnx {

namespace {

/// Sums over the taps of dimension `d` and all later ones. `row`: the elements' positions so far, i64[N, 1, points].
class WeightedSum {
 public:
  WeightedSum(const Tensor& x, std::vector<std::vector<Tap>> taps)
      : taps_(std::move(taps)), sizes_(x.shape()) {
    x_ = reshape(x, {sizes_[0], sizes_[1], product(std::span(sizes_).subspan(2))});
  }

  Tensor all() const { return from(0, {}, {}); }

 private:
  Tensor from(std::size_t d, const Tensor& row, const Tensor& inside) const {
    if (d == taps_.size()) return read(row, inside);
    Tensor sum;
    for (const Tap& tap : taps_[d]) {
      const Tensor next = row.defined() ? row * size_tensor(sizes_[d + 2]) + tap.index : tap.index;
      const Tensor both = inside.defined() ? logical_and(inside, tap.inside) : tap.inside;
      Tensor value = from(d + 1, next, both);
      if (tap.weight.defined()) value = value * cast(tap.weight, value.dtype());
      sum = sum.defined() ? sum + value : value;
    }
    return sum;
  }

  Tensor read(const Tensor& row, const Tensor& inside) const {
    const SymInts all{x_.size(0), x_.size(1), row.size(2)};
    const Tensor value =
        one("gather_elements", {x_, expand(row, all)}, {{"axis", std::int64_t{2}}});
    return inside.defined() ? where(inside, value, Tensor::scalar_int(x_.dtype(), 0)) : value;
  }

  Tensor x_;  ///< [N, C, elements]
  std::vector<std::vector<Tap>> taps_;
  SymInts sizes_;
};

}  // namespace

std::vector<Tap> linear_taps(const Tensor& at, const SymInt& length) {
  const Tensor end = cast(size_tensor(length), at.dtype());
  const Tensor base = floor(at);
  const Tensor fraction = at - base;
  const auto tap = [&](const Tensor& whole, const Tensor& weight) {
    return Tap{.index = cast(minimum(maximum(whole, 0.0), end - 1.0), i64),
               .inside = logical_and(greater_equal(whole, 0.0), less(whole, end)),
               .weight = weight};
  };
  return {tap(base, 1.0 - fraction), tap(base + 1.0, fraction)};
}

Tensor weighted_sum(const Tensor& x, std::vector<std::vector<Tap>> taps) {
  return WeightedSum(x, std::move(taps)).all();
}

}  // namespace heddle::onnx
