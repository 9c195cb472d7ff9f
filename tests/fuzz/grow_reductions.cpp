// Reductions, norms, running sums and sorting.
#include <algorithm>
#include <cmath>

#include "tests/fuzz/grower.h"

namespace heddle::fuzz {

using ir::Dims;
using ir::SymExpr;
using Ints = std::vector<std::int64_t>;

void Grower::reduce() {
  const Item item = any();
  const Ints axes = some_axes(item);
  const SymExpr over = count_over(item, axes);
  const auto count = static_cast<double>(most(over));
  ir::Attrs attrs = {{"axes", axes}, {"keepdims", chance(50)}};
  Quality quality = item.quality;
  if (item.dtype() == boolean) {
    emit(chance(50) ? "reduce_and" : "reduce_or", {item}, attrs, quality);
    return;
  }
  const bool empty = least(over) == 0;
  switch (pick(5)) {
    case 0:
    case 1: {
      quality.bound *= std::max(count, 1.0);
      quality.error *= std::max(count, 1.0);
      emit("reduce_sum", {item}, attrs, rounded(quality, item.dtype()));
      return;
    }
    case 2: {
      const double bound = std::pow(std::max(quality.bound, 1.0), count);
      // The order of factors decides whether an infinite one meets a product that has become 0.
      if (is_floating(item.dtype()) && (bound > 1e4 || quality.special)) break;
      quality.error *= count * bound;
      quality.bound = std::min(bound, 1e19);
      emit("reduce_prod", {item}, attrs, rounded(quality, item.dtype()));
      return;
    }
    default:
      break;
  }
  quality.special |= empty;
  if (empty) quality.bound = std::max(quality.bound, is_floating(item.dtype()) ? 0 : 1e19);
  emit(chance(50) ? "reduce_max" : "reduce_min", {item}, attrs, quality);
}

void Grower::statistics() {
  const Item item = floating();
  const Ints axes = some_axes(item);
  Quality quality = item.quality;
  quality.integral = false;
  quality.special |= least(count_over(item, axes)) <= 1;
  ir::Attrs attrs = {{"axes", axes}, {"keepdims", chance(50)}};
  if (chance(50)) {
    emit("reduce_mean", {item}, attrs, rounded(quality, item.dtype()));
    return;
  }
  attrs["correction"] = std::int64_t{pick(2)};
  quality.error *= 8 * quality.bound;
  quality.bound *= 2 * quality.bound;
  emit("variance", {item}, attrs, rounded(quality, item.dtype()));
}

void Grower::argreduce() {
  const Item item = exact();
  if (item.rank() == 0 || item.dtype() == boolean) return;
  const std::int64_t axis = any_axis(item);
  const SymExpr& size = item.sizes()[static_cast<std::size_t>(axis)];
  if (least(size) < 1) return;
  emit(chance(50) ? "argmax" : "argmin", {item},
       {{"axis", axis}, {"keepdims", chance(50)}, {"last", chance(30)}},
       {static_cast<double>(most(size)), 0, true, false});
}

void Grower::softmax() {
  Item item = floating();
  if (item.rank() == 0) return;
  if (item.quality.bound > 20) item = into_domain(item, Domain::Small);
  const std::int64_t axis = chance(60) ? -1 : any_axis(item);
  const bool log = chance(30);
  const Quality quality{log ? 2 * item.quality.bound + 9 : 1, 2 * item.quality.error, false, true};
  emit(log ? "log_softmax" : "softmax", {item}, {{"axis", axis}}, rounded(quality, item.dtype()));
}

void Grower::norm() {
  const Item item = floating();
  if (item.rank() == 0) return;
  const std::int64_t axis = chance(60) ? -1 : any_axis(item);
  const auto first = static_cast<std::size_t>(axis < 0 ? axis + item.rank() : axis);
  const Dims inner(item.sizes().begin() + static_cast<std::ptrdiff_t>(first), item.sizes().end());
  const bool rms = chance(40);
  const Item none{};
  const Item scale = chance(70) ? weight(item.dtype(), inner) : none;
  const Item bias = !rms && scale.value && chance(70) ? weight(item.dtype(), inner) : none;
  const double count = static_cast<double>(most(base::product(inner)));
  // Divided by at least sqrt(0.1); deviations are at most sqrt(count) standard deviations.
  const double largest = std::min(3.2 * 2 * item.quality.bound, std::sqrt(count) + 1);
  // What is scaled is rounded: whether an element beside the mean is 0 or next to it, an infinity tells.
  if (scale.value && scale.quality.special) return;
  const double factor = scale.value ? scale.quality.bound : 1;
  Quality quality{largest * factor + (bias.value ? bias.quality.bound : 0),
                  item.quality.error * 7 * (1 + largest) * factor, false,
                  item.quality.special || count == 0};
  quality.special |= bias.value && bias.quality.special;
  if (rms)
    emit("rms_norm", {item, scale}, {{"axis", axis}, {"epsilon", 0.1}},
         rounded(quality, item.dtype()));
  else
    emit("layer_norm", {item, scale, bias}, {{"axis", axis}, {"epsilon", 0.1}},
         rounded(quality, item.dtype()));
}

void Grower::channel_norm() {
  const auto has_channels = [](const Item& item) {
    return is_floating(item.dtype()) && item.rank() >= 2 && item.sizes()[1].is_constant() &&
           item.sizes()[1].constant() > 0;
  };
  const DType dtype = is_floating(main_dtype_) ? main_dtype_ : f32;
  const Item item = any_such(has_channels, [&] {
    return input(dtype, {SymExpr::size(0), one_of({2, 4}), SymExpr::size(1)});
  });
  const Dims channels = {item.sizes()[1]};
  const Item scale = weight(item.dtype(), channels);
  const Item bias = weight(item.dtype(), channels);
  if (scale.quality.special) return;
  const bool special = item.quality.special || bias.quality.special;
  if (chance(50)) {
    const Item mean = weight(item.dtype(), channels);
    const Item raw = input(item.dtype(), channels, Fill{Fill::Kind::Noise, 0.5, 2, 1});
    const double factor = 1.5 * scale.quality.bound;
    Quality quality{(item.quality.bound + mean.quality.bound) * factor + bias.quality.bound,
                    item.quality.error * factor, false, special || mean.quality.special};
    quality.error += quality.bound * (item.dtype() == bf16 ? 0.02 : item.dtype() == f16 ? 3e-3 : 0);
    emit("batch_norm", {item, scale, bias, mean, raw}, {}, rounded(quality, item.dtype()));
    return;
  }
  const double largest = 3.2 * 2 * item.quality.bound;
  const Quality quality{largest * scale.quality.bound + bias.quality.bound,
                        item.quality.error * 7 * (1 + largest) * scale.quality.bound, false, true};
  const std::int64_t count = channels[0].constant();
  emit("group_norm", {item, scale, bias},
       {{"groups", chance(50) || count % 2 != 0 ? std::int64_t{1} : std::int64_t{2}},
        {"epsilon", 0.1}},
       rounded(quality, item.dtype()));
}

void Grower::cumsum() {
  const Item item = any();
  if (item.rank() == 0 || item.dtype() == boolean) return;
  const std::int64_t axis = any_axis(item);
  const auto count = static_cast<double>(
      std::max<std::int64_t>(most(item.sizes()[static_cast<std::size_t>(axis)]), 1));
  Quality quality = item.quality;
  quality.bound *= count;
  quality.error *= count;
  emit("cumsum", {item}, {{"axis", axis}, {"exclusive", chance(30)}, {"reverse", chance(30)}},
       rounded(quality, item.dtype()));
}

/// One op twice on one operand, with other attributes.
void Grower::twins() {
  const Item item = exact();
  if (item.rank() == 0 || item.dtype() == boolean) return;
  const std::int64_t axis = any_axis(item);
  switch (pick(3)) {
    case 0:
      for (const bool exclusive : {false, true}) {
        Quality quality = item.quality;
        quality.bound *= static_cast<double>(most_elements(item.sizes()) + 1);
        emit("cumsum", {item}, {{"axis", axis}, {"exclusive", exclusive}},
             rounded(quality, item.dtype()));
      }
      return;
    case 1:
      for (const std::int64_t other : {std::int64_t{0}, item.rank() - 1})
        emit("reverse", {item}, {{"axes", Ints{other}}}, item.quality);
      return;
    default:
      if (least(item.sizes()[static_cast<std::size_t>(axis)]) < 1) return;
      for (const bool last : {false, true})
        emit("argmax", {item}, {{"axis", axis}, {"last", last}}, {1e4, 0, true, false});
  }
}

/// Kernels that nothing fuses with, one after another: each may overwrite what the one before it made.
void Grower::chain() {
  const Item item = exact();
  if (item.rank() == 0 || item.dtype() == boolean) return;
  ir::Value value = item.value;
  for (int k = 0; k < 3; ++k) {
    const ir::Node* node = call("sort", {value}, {{"axis", any_axis(item)}});
    value = call("neg", {node->value()}, {})->value();
  }
  keep(value, item.quality);
}

void Grower::order() {
  const Item item = exact();
  if (item.rank() == 0 || item.dtype() == boolean) return;
  const std::int64_t axis = any_axis(item);
  const SymExpr& size = item.sizes()[static_cast<std::size_t>(axis)];
  if (chance(40)) {
    emit("sort", {item}, {{"axis", axis}, {"descending", chance(50)}},
         {std::max(item.quality.bound, static_cast<double>(most(size))), 0, item.quality.integral,
          item.quality.special});
    return;
  }
  const SymExpr k =
      chance(20) ? size
                 : SymExpr(pick(static_cast<int>(std::min<std::int64_t>(least(size), 5)) + 1));
  emit("topk", {item}, {{"k", k}, {"axis", axis}, {"largest", chance(50)}},
       {std::max(item.quality.bound, static_cast<double>(most(size))), 0, item.quality.integral,
        item.quality.special});
}

}  // namespace heddle::fuzz
