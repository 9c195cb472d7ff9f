// Random graphs of pointwise ops, views, reductions, norms and order edges.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace heddle::test {

/// Inputs over sizes s0 and s1; values stay of order one.
class RandomGraph {
 public:
  explicit RandomGraph(std::uint32_t seed) : random_(seed), builder_("main") {
    const auto s0 = base::SymExpr::size(0);
    const auto s1 = base::SymExpr::size(1);
    for (const ir::Dims& sizes : {ir::Dims{s0, s1, 6}, {s1, 6}, {s0, 1, 6}, {6}})
      values_.push_back(builder_.input(ir::TensorMeta::of(f32, sizes)));
  }

  ir::Graph make() {
    const int steps = 3 + pick(12);
    for (int k = 0; k < steps; ++k) grow();
    const int outputs = 1 + pick(3);
    builder_.output(values_.back());
    for (int k = 1; k < outputs; ++k) builder_.output(any());
    return builder_.finish();
  }

 private:
  int pick(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  ir::Value any() {
    // Later values more often: chains, not stars.
    const int count = static_cast<int>(values_.size());
    return values_[static_cast<std::size_t>(std::max(pick(count), pick(count)))];
  }
  void keep(ir::Value value) { values_.push_back(value); }

  void grow() {
    switch (pick(13)) {
      case 0:
      case 1:
        return unary();
      case 2:
      case 3:
      case 4:
        return binary();
      case 5:
        return permute();
      case 6:
        return slice();
      case 7:
        return flatten();
      case 8:
        return reduce();
      case 9:
        return softmax();
      case 10:
        return concat();
      case 11:
        return pad();
      default:
        return ordered();
    }
  }

  void unary() {
    static const char* const kOps[] = {"neg", "tanh", "sigmoid", "abs", "relu", "exp"};
    const ir::Value x = any();
    // Bounded, so that chains stay finite.
    keep(builder_.emit(kOps[pick(6)], {builder_.emit("clamp", {x, builder_.scalar(f32, -3),
                                                               builder_.scalar(f32, 3)})}));
  }

  void binary() {
    static const char* const kOps[] = {"add", "sub", "mul", "max", "min"};
    const ir::Value a = any();
    for (int k = 0; k < 8; ++k) {
      const ir::Value b = any();
      if (!broadcasts(a, b)) continue;
      keep(builder_.emit(kOps[pick(5)], {a, b}));
      return;
    }
    keep(builder_.emit("add", {a, builder_.scalar(f32, 0.5)}));
  }

  static bool broadcasts(ir::Value a, ir::Value b) {
    const ir::Dims& x = a.meta().sizes;
    const ir::Dims& y = b.meta().sizes;
    for (std::size_t k = 1; k <= std::min(x.size(), y.size()); ++k) {
      const base::SymExpr& p = x[x.size() - k];
      const base::SymExpr& q = y[y.size() - k];
      if (!(p == q) && !p.is_constant(1) && !q.is_constant(1)) return false;
    }
    return true;
  }

  void permute() {
    const ir::Value x = any();
    std::vector<std::int64_t> perm;
    for (std::int64_t d = 0; d < x.meta().rank(); ++d) perm.push_back(d);
    std::shuffle(perm.begin(), perm.end(), random_);
    keep(builder_.emit("permute", {x}, {{"perm", perm}}));
  }

  void slice() {
    const ir::Value x = any();
    if (x.meta().rank() == 0) return;
    ir::Dims start(x.meta().sizes.size(), 0);
    ir::Dims limit = x.meta().sizes;
    const ir::Dims stride(limit.size(), base::SymExpr(1 + pick(2)));
    const auto d = static_cast<std::size_t>(pick(static_cast<int>(limit.size())));
    if (limit[d].is_constant() && limit[d].constant() > 2) start[d] = 1;
    keep(builder_.emit("slice", {x}, {{"start", start}, {"limit", limit}, {"stride", stride}}));
  }

  void flatten() {
    const ir::Value x = any();
    if (x.meta().rank() < 2) return;
    const auto d = static_cast<std::size_t>(pick(static_cast<int>(x.meta().rank()) - 1));
    ir::Dims sizes = x.meta().sizes;
    sizes[d] = sizes[d] * sizes[d + 1];
    sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(d) + 1);
    keep(builder_.emit("reshape", {x}, {{"sizes", sizes}}));
  }

  void reduce() {
    static const char* const kOps[] = {"reduce_sum", "reduce_max", "reduce_mean", "variance"};
    const ir::Value x = any();
    if (x.meta().rank() == 0) return;
    std::vector<std::int64_t> axes;
    for (std::int64_t d = 0; d < x.meta().rank(); ++d)
      if (pick(2) == 0) axes.push_back(d);
    if (axes.empty()) axes.push_back(x.meta().rank() - 1);
    keep(builder_.emit(kOps[pick(4)], {x}, {{"axes", axes}, {"keepdims", pick(3) != 0}}));
  }

  void softmax() {
    const ir::Value x = any();
    if (x.meta().rank() == 0) return;
    const std::int64_t axis = pick(static_cast<int>(x.meta().rank()));
    if (pick(2) == 0) {
      keep(builder_.emit("softmax", {x}, {{"axis", axis}}));
    } else {
      keep(builder_.emit("layer_norm", {x}, {{"axis", axis}, {"epsilon", 0.1}}));
    }
  }

  void concat() {
    const ir::Value x = any();
    if (x.meta().rank() == 0) return;
    const ir::Value parts[] = {x, builder_.emit("neg", {x}), x};
    const std::int64_t axis = pick(static_cast<int>(x.meta().rank()));
    keep(builder_.call("concat", std::span<const ir::Value>(parts, 2 + pick(2)), {{"axis", axis}})
             ->value());
  }

  void pad() {
    const ir::Value x = any();
    ir::Dims low(x.meta().sizes.size(), 0);
    ir::Dims high = low;
    for (std::size_t d = 0; d < low.size(); ++d) {
      low[d] = pick(3);
      high[d] = pick(2);
    }
    keep(builder_.emit("pad", {x}, {{"low", low}, {"high", high}}));
  }

  void ordered() {
    builder_.context.after = {any()};
    unary();
    builder_.context.after.clear();
  }

  std::mt19937 random_;
  ir::GraphBuilder builder_;
  std::vector<ir::Value> values_;
};

}  // namespace heddle::test
