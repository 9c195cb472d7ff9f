#include "tests/support/random_ir.h"

#include <algorithm>
#include <random>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Dims;
using ir::SymExpr;
using ir::Value;

class Grower {
 public:
  explicit Grower(std::uint32_t seed) : random_(seed), builder_("main") {
    const SymExpr s0 = SymExpr::size(0);
    values_.push_back(builder_.input(meta(f32, {s0, 4}), "x"));
    values_.push_back(builder_.input(meta(f32, {4}), "y"));
    values_.push_back(builder_.input(meta(i32, {s0, 4}), "i"));
    values_.push_back(builder_.input(meta(f16, {3, 0, 4}), "e"));
  }

  ir::Graph make() {
    const int steps = 4 + pick(16);
    for (int k = 0; k < steps; ++k) grow();
    builder_.output(values_.back(), "last");
    for (int k = pick(4); k > 0; --k) builder_.output(any());
    if (pick(4) == 0) write_back();
    return builder_.finish();
  }

 private:
  int pick(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  Value any() {
    const int count = static_cast<int>(values_.size());
    return values_[static_cast<std::size_t>(std::max(pick(count), pick(count)))];
  }
  Value keep(Value value) {
    values_.push_back(value);
    return value;
  }
  Value emit(std::string_view op, std::initializer_list<Value> inputs, ir::Attrs attrs = {}) {
    if (pick(6) == 0) builder_.context.annotations["stage"] = {std::int64_t{pick(2)}};
    if (pick(6) == 0) builder_.context.annotations["compile"] = {std::to_string(pick(2))};
    if (pick(6) == 0) builder_.context.after = {any()};
    const Value value = keep(builder_.emit(op, inputs, std::move(attrs)));
    builder_.context = {};
    return value;
  }

  void grow() {
    const Value x = any();
    switch (pick(12)) {
      case 11:
        return there_and_back(x);
      case 0:
        return unary(x);
      case 10:
        return scatter(x);
      case 1:
        return twice(x);
      case 2:
        return scalar(x);
      case 3:
        return view(x);
      case 4:
        return view_of_view(x);
      case 5:
        return noop(x);
      case 6:
        return constants(x);
      case 7:
        return composite(x);
      case 8:
        return pair(x);
      default:
        emit("concat", {x, x}, {{"axis", std::int64_t{-1}}});
    }
  }

  void unary(Value x) { emit(pick(2) ? "neg" : "abs", {x}); }

  /// The same computation in two places.
  void twice(Value x) {
    const std::string_view op = pick(2) ? "neg" : "sign";
    const Value a = emit(op, {x});
    const Value b = emit(op, {x});
    emit("sub", {a, b});
  }

  void scalar(Value x) {
    static const char* const kOps[] = {"add", "sub", "mul", "max", "div"};
    const DType dtype = pick(4) == 0 ? f64 : x.meta().dtype;
    const Value c = builder_.scalar(dtype, pick(3));
    const std::string_view op = kOps[pick(5)];
    if (pick(2))
      emit(op, {x, c});
    else
      emit(op == "div" ? "sub" : op, {c, x});
  }

  void pair(Value x) {
    const Value y = any();
    if (x.meta().sizes == y.meta().sizes)
      emit("add", {x, y});
    else
      emit("add", {x, builder_.scalar(x.meta().dtype, 0)});
  }

  void view(Value x) {
    switch (pick(4)) {
      case 0:
        return slice(x);
      case 1:
        return permute(x);
      case 2:
        return flatten(x);
      default:
        emit("reverse", {x}, {{"axes", std::vector<std::int64_t>(pick(2), x.meta().rank() - 1)}});
    }
  }

  void view_of_view(Value x) {
    if (pick(2) == 0) {
      split_and_join(x);
    } else if (pick(2)) {
      slice(x);
      slice(values_.back());
    } else {
      permute(x);
      permute(values_.back());
    }
    unary(values_.back());
  }

  void slice(Value x) {
    Dims start, limit, stride;
    for (const SymExpr& size : x.meta().sizes) {
      const bool cut = size.is_constant() && pick(2);
      const std::int64_t count = size.is_constant() ? size.constant() : 0;
      const std::int64_t first = cut ? pick(static_cast<int>(count) + 1) : 0;
      start.push_back(first);
      limit.push_back(cut ? SymExpr(first + pick(static_cast<int>(count - first) + 1)) : size);
      stride.push_back(1 + pick(3));
    }
    emit("slice", {x}, {{"start", start}, {"limit", limit}, {"stride", stride}});
  }

  void permute(Value x) {
    std::vector<std::int64_t> perm;
    for (std::int64_t d = 0; d < x.meta().rank(); ++d) perm.push_back(d);
    std::shuffle(perm.begin(), perm.end(), random_);
    emit("permute", {x}, {{"perm", perm}});
  }

  /// Permutes before dimensions are taken apart and after they are joined again.
  void split_and_join(Value x) {
    permute(x);
    if (pick(2)) unary(values_.back());
    const Dims whole = values_.back().meta().sizes;
    Dims parts;
    for (const SymExpr& size : whole) {
      if (size.is_constant(4)) parts.push_back(2);
      parts.push_back(size.is_constant(4) ? SymExpr(2) : size);
    }
    emit("reshape", {values_.back()}, {{"sizes", parts}});
    unary(values_.back());
    emit("reshape", {values_.back()}, {{"sizes", whole}});
    permute(values_.back());
  }

  /// Something between a permute and the one that undoes it.
  void there_and_back(Value x) {
    permute(x);
    const auto there = values_.back().node->ints("perm");
    std::vector<std::int64_t> back(there.size());
    for (std::size_t d = 0; d < there.size(); ++d)
      back[static_cast<std::size_t>(there[d])] = static_cast<std::int64_t>(d);
    unary(values_.back());
    if (pick(2)) scalar(values_.back());
    emit("permute", {values_.back()}, {{"perm", back}});
    unary(values_.back());
  }

  void flatten(Value x) {
    emit("reshape", {x}, {{"sizes", Dims{x.meta().count()}}});
    if (pick(2)) emit("reshape", {values_.back()}, {{"sizes", x.meta().sizes}});
  }

  void noop(Value x) {
    const Dims zero(x.meta().sizes.size(), 0);
    const Dims one(x.meta().sizes.size(), 1);
    switch (pick(6)) {
      case 0:
        emit("clone", {x});
        return;
      case 1:
        emit("alias", {x});
        return;
      case 2:
        emit("convert", {x}, {{"dtype", x.meta().dtype}});
        return;
      case 3:
        emit("slice", {x}, {{"start", zero}, {"limit", x.meta().sizes}, {"stride", one}});
        return;
      case 4:
        emit("pad", {x}, {{"low", zero}, {"high", zero}});
        return;
      default:
        emit("concat", {x}, {{"axis", std::int64_t{0}}});
    }
  }

  void constants(Value x) {
    const Value a = builder_.constant(noise(x.meta().dtype, {4}, random_()));
    const Value b = builder_.emit("mul", {a, builder_.scalar(x.meta().dtype, 2)});
    keep(b);
    if (x.meta().rank() > 0 && x.meta().sizes.back().is_constant(4)) emit("add", {x, b});
  }

  void composite(Value x) {
    if (x.meta().rank() == 0 || !is_floating(x.meta().dtype) || x.meta().count().is_constant(0))
      return unary(x);
    if (pick(2))
      emit("softmax", {x}, {{"axis", std::int64_t{-1}}});
    else
      emit("reduce_sum", {x},
           {{"axes", std::vector<std::int64_t>(pick(2), x.meta().rank() - 1)}, {"keepdims", true}});
  }

  /// Something in the third column, or the third element.
  void scatter(Value x) {
    const ir::Dims& sizes = x.meta().sizes;
    if (sizes.empty() || sizes.size() > 2 || !sizes.back().is_constant(4)) return unary(x);
    const std::int64_t two[] = {2};
    const Value third = builder_.constant(ir::Literal::of_ints(i64, {1}, two));
    const Value number = pick(2) ? builder_.scalar(x.meta().dtype, 7) : Value();
    if (sizes.size() == 1) {
      const Value one = builder_.scalar(x.meta().dtype, 1);
      emit("index_put", {x, number ? number : one, third}, {{"accumulate", pick(2) == 0}});
      return;
    }
    const Dims column{sizes[0], 1};
    const Value at = builder_.emit("expand", {third}, {{"sizes", column}});
    Value updates = number;
    if (!number)
      updates = builder_.emit(
          "slice", {any_like(x)},
          {{"start", Dims{0, 1}}, {"limit", Dims{sizes[0], 2}}, {"stride", Dims{1, 1}}});
    else
      updates = builder_.emit("expand", {number}, {{"sizes", column}});
    emit("scatter_elements", {x, at, updates}, {{"axis", std::int64_t{1}}});
  }
  Value any_like(Value x) {
    const Value other = any();
    const bool fits = other.meta().sizes == x.meta().sizes && other.meta().dtype == x.meta().dtype;
    return fits ? other : x;
  }

  void write_back() {
    for (const Value& value : values_) {
      const bool fits = value.meta().dtype == f32 && value != values_[0] &&
                        value.meta().sizes == values_[0].meta().sizes;
      if (!fits) continue;
      return builder_.write_back(values_[0], value);
    }
  }

  std::mt19937 random_;
  ir::GraphBuilder builder_;
  std::vector<Value> values_;
};

}  // namespace

ir::Graph random_ir(std::uint32_t seed) { return Grower(seed).make(); }

std::vector<ir::Literal> random_ir_arguments(std::int64_t size, std::uint32_t seed) {
  return {noise(f32, {size, 4}, seed), noise(f32, {4}, seed + 1), noise(i32, {size, 4}, seed + 2),
          noise(f16, {3, 0, 4}, seed + 3)};
}

}  // namespace heddle::testing
