// Views, and ops that put elements elsewhere.
#include <algorithm>
#include <numeric>

#include "tests/fuzz/grower.h"

namespace heddle::fuzz {

using ir::Dims;
using ir::SymExpr;
using Ints = std::vector<std::int64_t>;

void Grower::view() {
  const Item item = any();
  switch (pick(4)) {
    case 0:
    case 1: {
      Ints perm(static_cast<std::size_t>(item.rank()));
      std::iota(perm.begin(), perm.end(), 0);
      std::shuffle(perm.begin(), perm.end(), random_);
      emit("permute", {item}, {{"perm", perm}}, item.quality);
      return;
    }
    case 2: {
      Ints axes = some_axes(item);
      emit("reverse", {item}, {{"axes", axes}}, item.quality);
      return;
    }
    default:
      emit(chance(50) ? "alias" : "clone", {item}, {}, item.quality);
  }
}

void Grower::slice() {
  const Item item = any();
  Dims start, limit, stride;
  for (const SymExpr& size : item.sizes()) {
    const std::int64_t room = least(size);
    const std::int64_t first =
        chance(50) ? 0 : pick(static_cast<int>(std::min<std::int64_t>(room, 3)) + 1);
    start.push_back(chance(10) ? size - (room - first) : SymExpr(first));
    const std::int64_t cut = room - first > 1 && chance(40) ? 1 : 0;
    limit.push_back(size - cut);
    stride.push_back(chance(70) ? 1 : 1 + pick(3));
  }
  emit("slice", {item}, {{"start", start}, {"limit", limit}, {"stride", stride}}, item.quality);
}

void Grower::reshape() {
  const Item item = any();
  Dims sizes = item.sizes();
  if (chance(40) && sizes.size() >= 2) {
    const auto d = static_cast<std::size_t>(pick(static_cast<int>(sizes.size()) - 1));
    sizes[d] = sizes[d] * sizes[d + 1];
    sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(d) + 1);
  } else if (chance(40)) {
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      if (!sizes[d].is_constant() || sizes[d].constant() < 4 || sizes[d].constant() % 2 != 0)
        continue;
      const std::int64_t rest = sizes[d].constant() / 2;
      sizes[d] = 2;
      sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(d) + 1, SymExpr(rest));
      break;
    }
  } else if (chance(50)) {
    sizes.insert(sizes.begin() + pick(static_cast<int>(sizes.size()) + 1), SymExpr(1));
  } else if (chance(50)) {
    std::shuffle(sizes.begin(), sizes.end(), random_);
  } else {
    sizes = {item.value.meta().count()};
  }
  emit("reshape", {item}, {{"sizes", sizes}}, item.quality);
}

void Grower::expand() {
  const Item item = any();
  Dims sizes = item.sizes();
  for (SymExpr& size : sizes)
    if (size.is_constant(1)) size = random_size();
  if (chance(50)) sizes.insert(sizes.begin(), random_size());
  emit("expand", {item}, {{"sizes", sizes}}, item.quality);
}

void Grower::pad() {
  static const char* const kModes[] = {"constant", "constant", "edge", "reflect", "wrap"};
  const Item item = any();
  const std::string mode = one_of(kModes);
  Dims low, high;
  for (const SymExpr& size : item.sizes()) {
    const auto room = static_cast<int>(std::min<std::int64_t>(mode == "reflect"    ? least(size) - 1
                                                              : mode == "constant" ? 3
                                                              : least(size) > 0    ? 2
                                                                                   : 0,
                                                              3));
    const bool cuts = mode == "constant" && least(size) > 2 && chance(15);
    low.push_back(cuts ? -1 : room > 0 && chance(50) ? pick(room + 1) : 0);
    high.push_back(room > 0 && chance(50) ? pick(room + 1) : 0);
  }
  const bool filled = mode == "constant" && item.dtype() != boolean && chance(50);
  const Item value = filled ? scalar(item.dtype(), 2) : Item{};
  Quality quality = item.quality;
  quality.bound = std::max(quality.bound, 2.0);
  emit("pad", {item, value}, {{"low", low}, {"high", high}, {"mode", mode}}, quality);
}

void Grower::concat() {
  const Item first = any();
  if (first.rank() == 0) return;
  const std::int64_t axis = any_axis(first);
  std::vector<Item> parts = {first};
  for (int k = 1 + pick(3); k > 0; --k) {
    const auto fits = [&](const Item& other) {
      if (other.rank() != first.rank()) return false;
      for (std::int64_t d = 0; d < first.rank(); ++d) {
        const auto at = static_cast<std::size_t>(d);
        if (d != axis && !(other.sizes()[at] == first.sizes()[at])) return false;
      }
      return true;
    };
    parts.push_back(any_such(fits, [&] {
      Dims sizes = first.sizes();
      sizes[static_cast<std::size_t>(axis)] = random_size();
      return input(first.dtype(), sizes);
    }));
  }
  DType dtype = first.dtype();
  for (const Item& part : parts) dtype = promote(dtype, part.dtype());
  Quality quality{0, 0, true, false};
  std::vector<ir::Value> values;
  for (const Item& part : parts) {
    const Quality next = converted(part.quality, part.dtype(), dtype);
    quality = {std::max(quality.bound, next.bound), std::max(quality.error, next.error),
               quality.integral && next.integral, quality.special || next.special};
    values.push_back(part.value);
  }
  if (dtype == f16 && quality.bound > 2000) return;
  const ir::Node* node = call("concat", values, {{"axis", axis}});
  if (node != nullptr) keep(node->value(), quality);
}

void Grower::split() {
  const Item item = any();
  if (item.rank() == 0) return;
  const std::int64_t axis = any_axis(item);
  SymExpr left = item.sizes()[static_cast<std::size_t>(axis)];
  Dims sizes;
  for (int k = pick(3); k > 0 && least(left) > 1; --k) {
    sizes.push_back(1 + pick(static_cast<int>(std::min<std::int64_t>(least(left) - 1, 3))));
    left = left - sizes.back();
  }
  sizes.push_back(left);
  emit("split", {item}, {{"axis", axis}, {"sizes", sizes}}, item.quality);
}

void Grower::iota() {
  Dims sizes = random_sizes(3);
  if (sizes.empty()) sizes.push_back(SymExpr::size(0));
  const std::int64_t axis = pick(static_cast<int>(sizes.size()));
  DType dtype = any_dtype();
  if (dtype == boolean) dtype = i64;
  const auto bound = static_cast<double>(most(sizes[static_cast<std::size_t>(axis)]));
  emit("iota", {}, {{"sizes", sizes}, {"axis", axis}, {"dtype", dtype}}, {bound, 0, true, false});
}

}  // namespace heddle::fuzz
