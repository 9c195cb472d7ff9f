// Matrix products, windows, attention, and ops that index.
#include <algorithm>
#include <array>
#include <cmath>

#include "tests/fuzz/grower.h"

namespace heddle::fuzz {

using ir::Dims;
using ir::SymExpr;
using Ints = std::vector<std::int64_t>;

/// Rows in groups, some of which may be empty or go back, and rows of none.
void Grower::grouped_matmul() {
  const auto fits = [&](const Item& item) { return item.rank() == 2 && item.dtype() != boolean; };
  const Item x = any_such(fits, [&] {
    return input(main_dtype_ == boolean ? f32 : main_dtype_, {SymExpr::size(0), random_size()});
  });
  DType dtype = chance(85) ? x.dtype() : any_dtype();
  if (dtype == boolean) dtype = f32;
  const SymExpr groups = chance(70) ? SymExpr(1 + pick(4)) : random_size();
  const Dims sizes = {groups, x.sizes()[1], random_size()};
  if (most_elements(sizes) > 4000) return;
  const Item w = chance(70) ? weight(dtype, sizes) : input(dtype, sizes);
  const Item ends = input(chance(80) ? i64 : i32, {groups},
                          Fill{Fill::Kind::Index, chance(50) ? -1.0 : 0.0, 0, x.sizes()[0] + 2});
  const DType result = promote(x.dtype(), w.dtype());
  const Quality p = converted(x.quality, x.dtype(), result);
  const Quality q = converted(w.quality, w.dtype(), result);
  const auto depth = static_cast<double>(std::max<std::int64_t>(most(x.sizes()[1]), 1));
  emit("grouped_matmul", {x, w, ends}, {}, dot(p, q, depth, result));
}

/// A product by bytes less zero points, if there are any, times scales.
void Grower::dequantised_matmul() {
  static const DType kReals[] = {f32, f16, bf16};
  const auto fits = [](const Item& item) {
    return item.rank() > 1 && std::ranges::find(kReals, item.dtype()) != std::end(kReals);
  };
  const Item a =
      any_such(fits, [&] { return input(one_of(kReals), {SymExpr::size(0), random_size()}); });
  const DType dtype = a.dtype();
  const bool turned = chance(40);
  const SymExpr inner = a.sizes().back();
  const SymExpr columns = random_size();
  const DType stored = chance(50) ? i8 : u8;
  const Dims sizes = turned ? Dims{columns, inner} : Dims{inner, columns};
  const Dims beside = chance(30) ? Dims{} : turned ? Dims{columns, 1} : Dims{columns};
  std::optional<Item> made = as(chance(60) ? weight(stored, sizes) : input(stored, sizes), i32);
  if (chance(60)) {
    const Item zero = as(weight(stored, beside), i32);
    const Quality& p = made->quality;
    made = emit("sub", {*made, zero}, {}, {p.bound + zero.quality.bound, 0, true, false});
    if (!made) return;
  }
  const Item real = as(*made, dtype);
  const Item scale = weight(dtype, beside);
  made = emit("mul", {real, scale}, {}, dot(real.quality, scale.quality, 1, dtype));
  if (made && turned) made = emit("permute", {*made}, {{"perm", Ints{1, 0}}}, made->quality);
  if (!made) return;
  const auto depth = static_cast<double>(std::max<std::int64_t>(most(inner), 1));
  emit("matmul", {a, *made}, {}, dot(a.quality, made->quality, depth, dtype));
}

void Grower::matmul() {
  if (chance(20)) return grouped_matmul();
  if (chance(12)) return dequantised_matmul();
  const auto is_number = [](const Item& item) {
    return item.rank() > 0 && item.dtype() != boolean;
  };
  const Item a = any_such(is_number, [&] {
    return input(main_dtype_ == boolean ? f32 : main_dtype_, {SymExpr::size(0), random_size()});
  });
  const SymExpr inner = a.sizes().back();
  DType dtype = chance(85) ? a.dtype() : any_dtype();
  if (dtype == boolean) dtype = f32;
  Dims sizes = {inner, random_size()};
  if (chance(15)) sizes = {inner};
  for (std::int64_t d = a.rank() - 3; d >= 0 && chance(40) && sizes.size() >= 2; --d)
    sizes.insert(sizes.begin(), chance(70) ? a.sizes()[static_cast<std::size_t>(d)] : SymExpr(1));
  Item b{};
  if (sizes.size() >= 2 && chance(30)) {
    std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
    b = chance(50) ? weight(dtype, sizes) : input(dtype, sizes);
    Ints perm;
    for (std::size_t d = 0; d < sizes.size(); ++d) perm.push_back(static_cast<std::int64_t>(d));
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    const auto turned = emit("permute", {b}, {{"perm", perm}}, b.quality);
    if (!turned) return;
    b = *turned;
  } else {
    b = chance(50) ? weight(dtype, sizes) : input(dtype, sizes);
  }
  const DType result = promote(a.dtype(), b.dtype());
  const Quality p = converted(a.quality, a.dtype(), result);
  const Quality q = converted(b.quality, b.dtype(), result);
  emit("matmul", {a, b}, {},
       dot(p, q, static_cast<double>(std::max<std::int64_t>(most(inner), 1)), result));
}

void Grower::convolution() {
  const int spatial = 1 + pick(3);
  const bool transposed = chance(35);
  const std::int64_t groups = chance(70) ? 1 : 2;
  const std::int64_t channels = groups * (1 + pick(3));
  const std::int64_t results = groups * (1 + pick(3));
  DType dtype = main_dtype_ == boolean ? f32 : main_dtype_;
  Dims x = {chance(40) ? SymExpr::size(0) : SymExpr(1 + pick(2)), channels};
  Dims w = transposed ? Dims{channels, results / groups} : Dims{results, channels / groups};
  Ints strides, low, high, dilations;
  double taps = static_cast<double>(channels);
  for (int d = 0; d < spatial; ++d) {
    const std::int64_t kernel = 1 + pick(3);
    x.push_back(chance(30) ? SymExpr::size(1) + 4 : SymExpr(4 + pick(spatial == 3 ? 2 : 6)));
    w.push_back(kernel);
    taps *= static_cast<double>(kernel);
    strides.push_back(1 + pick(2));
    low.push_back(pick(2));
    high.push_back(pick(2));
    dilations.push_back(1 + (kernel > 1 && spatial < 3 && chance(30)));
  }
  const auto fits = [&](const Item& item) { return item.dtype() == dtype && item.sizes() == x; };
  if (most_elements(x) > 4000) return;
  const Item data = any_such(fits, [&] { return input(dtype, x); });
  // Phases with fewer taps than others multiply an infinity by the 0 in a tap's place.
  bool even = true;
  for (std::size_t d = 0; d < strides.size(); ++d)
    even = even && w[d + 2].constant() % strides[d] == 0;
  if (transposed && dtype != f64 && data.quality.special && !even) return;
  const Item kernel = weight(dtype, w);
  const Item bias = chance(50) ? weight(dtype, {results}) : Item{};
  Quality quality = dot(data.quality, kernel.quality, taps, dtype);
  if (bias.value) {
    quality.bound += bias.quality.bound;
    quality.integral = quality.integral && bias.quality.integral;
    quality.special |= bias.quality.special;
    quality = rounded(quality, dtype);
  }
  ir::Attrs attrs = {{"strides", strides},
                     {"pads_low", low},
                     {"pads_high", high},
                     {"dilations", dilations},
                     {"groups", groups}};
  if (transposed) attrs["output_padding"] = Ints(static_cast<std::size_t>(spatial), 0);
  emit(transposed ? "conv_transpose" : "conv", {data, kernel, bias}, attrs, quality);
}

void Grower::pool() {
  const int spatial = 1 + pick(2);
  const auto fits = [&](const Item& item) {
    return item.dtype() != boolean && item.rank() == spatial + 2 &&
           least(item.sizes().back()) > 2 && least(item.sizes()[item.sizes().size() - 2]) > 2;
  };
  const Item item = any_such(fits, [&] {
    Dims x = {SymExpr::size(0), 1 + pick(3)};
    for (int d = 0; d < spatial; ++d) x.push_back(chance(40) ? SymExpr::size(1) + 3 : SymExpr(5));
    return input(main_dtype_ == boolean ? f32 : main_dtype_, x);
  });
  Ints kernel, strides, low, high, dilations;
  for (int d = 0; d < spatial; ++d) {
    kernel.push_back(2 + pick(2));
    strides.push_back(1 + pick(2));
    low.push_back(pick(2));
    high.push_back(pick(2));
    dilations.push_back(1);
  }
  ir::Attrs attrs = {{"kernel", kernel},  {"strides", strides},     {"pads_low", low},
                     {"pads_high", high}, {"dilations", dilations}, {"ceil_mode", chance(30)}};
  Quality quality = item.quality;
  if (is_floating(item.dtype()) && chance(40)) {
    attrs["count_include_pad"] = chance(50);
    quality.integral = false;
    quality.special = true;
    emit("avg_pool", {item}, attrs, rounded(quality, item.dtype()));
  } else if (quality.error == 0 && chance(40)) {
    attrs["column_major"] = chance(40);
    emit("max_pool_indices", {item}, attrs, {1e5, 0, true, false});
  } else {
    emit("max_pool", {item}, attrs, quality);
  }
}

void Grower::attention() {
  const DType dtype = is_floating(main_dtype_) ? main_dtype_ : f32;
  const std::int64_t shared = 1 + pick(2);
  const std::int64_t heads = 1 + pick(2);
  const SymExpr batch = chance(50) ? SymExpr::size(0) : SymExpr(1);
  const SymExpr queries = chance(50) ? SymExpr::size(1) : SymExpr(1 + pick(5));
  const SymExpr keys = chance(50) ? queries : random_size();
  const SymExpr width = one_of({4, 8, 3});
  const Fill fill{chance(50) ? Fill::Kind::Noise : Fill::Kind::Whole, -2, 2, 1};
  const auto part = [&](Dims sizes) {
    const auto fits = [&](const Item& item) {
      return item.dtype() == dtype && item.sizes() == sizes && !item.quality.special &&
             item.quality.bound < 4;
    };
    return any_such(fits, [&] { return input(dtype, sizes, fill); });
  };
  const Item q = part({batch, heads * shared, queries, width});
  const Item k = part({batch, heads, keys, width});
  const Item v = part({batch, heads, keys, chance(70) ? width : SymExpr(5)});
  if (most_elements(q.sizes()) * most(keys) > 200000) return;
  Item mask{};
  if (chance(50)) {
    mask = chance(50) ? input(boolean, {queries, keys})
                      : input(dtype, {batch, 1, queries, keys}, Fill{Fill::Kind::Noise, -1, 1, 1});
  }
  // Scores may be off by their own error, weights by as much relative to 1.
  const double score = static_cast<double>(most(width)) * q.quality.bound * k.quality.bound;
  const double off = 2 * static_cast<double>(most(width)) *
                     (q.quality.error * k.quality.bound + k.quality.error * q.quality.bound);
  Quality quality{v.quality.bound, v.quality.error + v.quality.bound * off, false, false};
  quality.error +=
      rounded({score, 0, false, false}, dtype == f64 ? f64 : f32).error * quality.bound;
  if (shared == 1 && (dtype == f32 || dtype == f64) && chance(50))
    return written_attention({q, k, v, mask}, {score, off, false, false}, rounded(quality, dtype));
  const ir::Attrs attrs{{"causal", chance(40)},
                        {"scale", chance(50) ? 0.0 : 0.5},
                        {"softcap", chance(70) ? 0.0 : 0.75}};
  emit("attention", {q, k, v, mask}, attrs, rounded(quality, dtype));
}

/// As models write it, which the pass form-attention makes one op of, unless a later node reads what lies between.
void Grower::written_attention(const std::array<Item, 4>& parts, const Quality& score,
                               const Quality& result) {
  const auto& [q, k, v, mask] = parts;
  const auto number = [&](double value) {
    const ir::Literal literal = ir::Literal::scalar(parts[0].dtype(), value);
    return Item{builder_.constant(literal), {std::abs(value), 0, false, false}};
  };
  const auto turned = emit("permute", {k}, {{"perm", Ints{0, 1, 3, 2}}}, k.quality);
  if (!turned) return;
  const Quality rough = rounded(score, q.dtype());
  std::optional<Item> scores = emit("matmul", {q, *turned}, {}, rough);
  if (scores && chance(60))
    scores = emit(chance(50) ? "mul" : "div", {*scores, number(2)}, {},
                  {2 * rough.bound, 2 * rough.error, false, false});
  if (scores && mask.value) {
    const double bound = std::max(2 * rough.bound + 2, mask.dtype() == boolean ? 1e4 : 0.0);
    const Quality masked{bound, 2 * rough.error + 1e-6 * rough.bound, false, false};
    scores = mask.dtype() == boolean ? emit("where", {mask, *scores, number(-1e4)}, {}, masked)
                                     : emit("add", {*scores, mask}, {}, masked);
  }
  if (!scores) return;
  const auto weights = emit("softmax", {*scores}, {{"axis", std::int64_t{3}}},
                            {1, 2 * scores->quality.error, false, false});
  if (!weights) return;
  emit("matmul", {*weights, v}, {},
       {result.bound, result.error + 4 * rough.error * result.bound, false, false});
}

void Grower::resize() {
  const Item item = floating();
  if (item.rank() == 0 || least_axis(item) < 1) return;
  static const char* const kModes[] = {"nearest", "linear", "cubic"};
  static const char* const kCoordinates[] = {"half_pixel", "asymmetric", "align_corners",
                                             "pytorch_half_pixel", "half_pixel_symmetric"};
  const std::string mode = one_of(kModes);
  Dims sizes = item.sizes();
  for (std::size_t d = item.rank() > 2 ? sizes.size() - 2 : 0; d < sizes.size(); ++d)
    if (chance(70)) sizes[d] = chance(50) ? sizes[d] * 2 : SymExpr(1 + pick(7));
  Quality quality = item.quality;
  if (mode != "nearest") {
    quality.bound *= mode == "cubic" ? 3 : 1;
    quality.error *= mode == "cubic" ? 3 : 1;
    quality.integral = false;
    quality = rounded(quality, item.dtype());
  }
  emit("resize", {item},
       {{"sizes", sizes}, {"mode", mode}, {"coordinate_mode", std::string(one_of(kCoordinates))}},
       quality);
}

std::int64_t Grower::least_axis(const Item& item) const {
  std::int64_t result = INT64_MAX;
  for (const SymExpr& size : item.sizes()) result = std::min(result, least(size));
  return result;
}

void Grower::gather() {
  const Item item = any();
  if (item.rank() == 0) return;
  const std::int64_t axis = any_axis(item);
  const SymExpr limit = item.sizes()[static_cast<std::size_t>(axis)];
  if (least(limit) < 1) return;
  const int kind = pick(3);
  if (kind == 0) {
    emit("gather", {item, indices(random_sizes(2), limit)}, {{"axis", axis}}, item.quality);
  } else if (kind == 1) {
    Dims sizes = item.sizes();
    sizes[static_cast<std::size_t>(axis)] = random_size();
    if (most_elements(sizes) > 4000) return;
    emit("gather_elements", {item, indices(sizes, limit)}, {{"axis", axis}}, item.quality);
  } else {
    // One limit for all coordinates: that of the smallest dimension.
    if (least(item.sizes()[0]) < 1) return;
    emit("gather_nd", {item, indices({random_size(), 1}, item.sizes()[0])}, {}, item.quality);
  }
}

void Grower::scatter() {
  const Item item = any();
  if (item.rank() == 0) return;
  const std::int64_t axis = any_axis(item);
  const auto at = static_cast<std::size_t>(axis);
  const SymExpr limit = item.sizes()[at];
  if (least(limit) < 1) return;
  static const char* const kJoins[] = {"none", "none", "add", "mul", "max", "min"};
  const std::string join = item.dtype() == boolean ? "none" : one_of(kJoins);
  const int kind = pick(3);
  Dims places = item.sizes();
  if (kind == 0) {
    places[at] = chance(50) ? limit : SymExpr(1 + pick(3));
  } else {
    if (least(item.sizes()[0]) < 1) return;
    places = Dims{random_size()};
    places.insert(places.end(), item.sizes().begin() + 1, item.sizes().end());
  }
  if (most_elements(places) > 4000) return;
  const auto fits = [&](const Item& other) {
    return other.dtype() == item.dtype() && other.sizes() == places;
  };
  const Item updates = any_such(fits, [&] { return input(item.dtype(), places); });
  const auto times = static_cast<double>(most(places[kind == 0 ? at : 0]));
  const double most_joins = kind == 0 ? times : times;
  const Quality& p = item.quality;
  const Quality& q = updates.quality;
  Quality quality{std::max(p.bound, q.bound), std::max(p.error, q.error), p.integral && q.integral,
                  p.special || q.special};
  if (join == "add" || (kind == 2 && join != "none")) {
    quality.bound = p.bound + most_joins * q.bound;
    quality.error = p.error + most_joins * q.error;
    quality = rounded(quality, item.dtype());
    if (is_floating(item.dtype()) && quality.error > 0) quality.error *= 1 + most_joins;
  } else if (join == "mul") {
    quality.bound = p.bound * std::pow(std::max(q.bound, 1.0), most_joins);
    if (is_floating(item.dtype()) && quality.bound > 1000) return;
    quality.error = (p.error + most_joins * q.error) * quality.bound;
    quality = rounded(quality, item.dtype());
    if (is_floating(item.dtype()) && quality.error > 0) quality.error *= 1 + most_joins;
  }
  if (kind == 0) {
    emit("scatter_elements", {item, indices(places, limit), updates},
         {{"axis", axis}, {"reduction", join}}, quality);
  } else if (kind == 1) {
    emit("scatter_nd", {item, indices({places[0], 1}, item.sizes()[0]), updates},
         {{"reduction", join}}, quality);
  } else {
    emit("index_put", {item, updates, indices({places[0]}, item.sizes()[0])},
         {{"accumulate", join != "none"}}, quality);
  }
}

void Grower::random() {
  static const DType kTypes[] = {f32, f32, f64, f16, bf16};
  const DType dtype = is_floating(main_dtype_) ? main_dtype_ : one_of(kTypes);
  const Item key = input(i64, {2}, Fill{Fill::Kind::Whole, 0, 1000, 1});
  const Dims sizes = random_sizes(3);
  const bool uniform = chance(60);
  emit(uniform ? "random_uniform" : "random_normal", {key}, {{"sizes", sizes}, {"dtype", dtype}},
       uniform ? Quality{1, 0, false, false} : rounded({7, 0, false, false}, dtype));
}

}  // namespace heddle::fuzz
