#include <algorithm>

#include "ir/ops/view_ops.h"

namespace heddle::ir::ops {
namespace {

using Positions = std::vector<std::size_t>;

Positions without_ones(std::span<const SymExpr> sizes) {
  Positions kept;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (!sizes[d].is_constant(1)) kept.push_back(d);
  }
  return kept;
}

/// Two lists of dimensions, consumed from one end in runs of equal products.
class Matcher {
 public:
  Matcher(std::span<const SymExpr> from, std::span<const SymExpr> to)
      : from_sizes_(from), to_sizes_(to), from_(without_ones(from)), to_(without_ones(to)) {}

  std::vector<DimGroup> run() {
    std::vector<DimGroup> front;
    while (auto group = take(/*back=*/false)) front.push_back(std::move(*group));
    std::vector<DimGroup> back;
    while (auto group = take(/*back=*/true)) back.push_back(std::move(*group));
    // Sizes whose products are equal by assumption only: one run.
    if (!from_.empty() || !to_.empty()) front.push_back({from_, to_});
    front.insert(front.end(), back.rbegin(), back.rend());
    return front;
  }

 private:
  /// The products of the first (last) 1, 2, … of `dims`.
  static std::vector<SymExpr> running(std::span<const SymExpr> sizes, const Positions& dims,
                                      bool back) {
    std::vector<SymExpr> products;
    SymExpr so_far = 1;
    for (std::size_t k = 0; k < dims.size(); ++k) {
      so_far *= sizes[back ? dims[dims.size() - 1 - k] : dims[k]];
      products.push_back(so_far);
    }
    return products;
  }

  std::optional<DimGroup> take(bool back) {
    const auto from = running(from_sizes_, from_, back);
    const auto to = running(to_sizes_, to_, back);
    for (std::size_t total = 2; total <= from.size() + to.size(); ++total) {
      for (std::size_t a = 1; a < total && a <= from.size(); ++a) {
        const std::size_t b = total - a;
        if (b > to.size() || !(from[a - 1] == to[b - 1])) continue;
        return DimGroup{.from = cut(from_, a, back), .to = cut(to_, b, back)};
      }
    }
    return std::nullopt;
  }

  static Positions cut(Positions& dims, std::size_t count, bool back) {
    const auto middle = back ? dims.end() - static_cast<std::ptrdiff_t>(count)
                             : dims.begin() + static_cast<std::ptrdiff_t>(count);
    Positions taken(back ? middle : dims.begin(), back ? dims.end() : middle);
    dims.erase(back ? middle : dims.begin(), back ? dims.end() : middle);
    return taken;
  }

  std::span<const SymExpr> from_sizes_;
  std::span<const SymExpr> to_sizes_;
  Positions from_;
  Positions to_;
};

/// Whether the dimensions `dims` can be walked with one stride: each steps over the whole of the
/// next.
bool contiguous_run(const Positions& dims, std::span<const SymExpr> sizes,
                    std::span<const SymExpr> strides) {
  for (std::size_t k = 0; k + 1 < dims.size(); ++k) {
    if (!(strides[dims[k]] == strides[dims[k + 1]] * sizes[dims[k + 1]])) return false;
  }
  return true;
}

bool has_constant_zero(std::span<const SymExpr> sizes) {
  return std::any_of(sizes.begin(), sizes.end(), [](const SymExpr& s) { return s.is_constant(0); });
}

/// A dimension of size 1 gets the stride that row-major order would give it.
void fill_ones(std::span<const SymExpr> sizes, Dims& strides) {
  SymExpr next = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d].is_constant(1)) strides[d] = next;
    next = strides[d] * sizes[d];
  }
}

}  // namespace

std::vector<DimGroup> group_dims(std::span<const SymExpr> from, std::span<const SymExpr> to) {
  return Matcher(from, to).run();
}

std::optional<Dims> reshape_strides(std::span<const SymExpr> from, std::span<const SymExpr> strides,
                                    std::span<const SymExpr> to) {
  if (has_constant_zero(from) || has_constant_zero(to)) return row_major(to);
  if (row_major(from) == Dims(strides.begin(), strides.end())) return row_major(to);
  Dims result(to.size(), 0);
  for (const DimGroup& group : group_dims(from, to)) {
    if (!contiguous_run(group.from, from, strides)) return std::nullopt;
    SymExpr stride = group.from.empty() ? SymExpr(1) : strides[group.from.back()];
    for (std::size_t k = group.to.size(); k-- > 0;) {
      result[group.to[k]] = stride;
      stride *= to[group.to[k]];
    }
  }
  fill_ones(to, result);
  return result;
}

}  // namespace heddle::ir::ops
