#include "tests/fuzz/grower.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "heddle/error.h"
#include "ir/op.h"

namespace heddle::fuzz {

using ir::Dims;
using ir::SymExpr;

namespace {

/// Two right computations of one element of magnitude 1 differ by less.
double unit(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return 1e-14;
    case DType::F16:
      return 1.0 / 1024;
    case DType::BF16:
      return 1.0 / 128;
    default:
      return 1e-6;
  }
}

/// Largest magnitude of a value of `dtype` whose unwrapped magnitude is `bound`.
double wrapped(double bound, DType dtype) {
  switch (dtype) {
    case DType::Bool:
      return 1;
    case DType::U8:
      return 255;
    case DType::I8:
      return std::min(bound, 128.0);
    case DType::I16:
      return bound > 32767 ? 32768.0 : bound;
    case DType::I32:
      return bound > 2147483647.0 ? 2147483648.0 : bound;
    case DType::U16:
      return 65535;
    case DType::U32:
      return 4294967295.0;
    case DType::U64:
      return 1.85e19;
    default:
      return std::min(bound, 9.3e18);
  }
}

/// Largest magnitude that values may grow to.
double bound_limit(DType dtype) {
  if (dtype == DType::F16) return 2000;
  return is_floating(dtype) ? 1e5 : 1e19;
}

}  // namespace

double exact_limit(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return 9007199254740992.0;
    case DType::F16:
      return 2048;
    case DType::BF16:
      return 256;
    case DType::F32:
      return 16777216;
    default:
      return 1e19;
  }
}

Grower::Grower(std::uint32_t seed) : random_(seed * 2654435761u + 17u), builder_("main") {
  case_.seed = seed;
  specials_ = chance(15);
  strided_ = chance(35);
  parameters_ = chance(20);
  static const DType kMain[] = {f32, f32, f32, f64, f16, bf16, i32,    i64,
                                i8,  u8,  i16, u16, u32, u64,  boolean};
  main_dtype_ = one_of(kMain);
  const int calls = 1 + pick(3);
  static const std::int64_t kFirst[] = {0, 1, 2, 3, 5, 8, 17};
  static const std::int64_t kSecond[] = {1, 2, 3, 4, 7, 16, 33};
  const bool large = chance(6);
  if (large) max_elements_ = 80000;
  for (int k = 0; k < calls; ++k) {
    Call call;
    call.sizes[base::Symbol{base::Symbol::Kind::Size, 0}] = large ? 40 + pick(90) : one_of(kFirst);
    call.sizes[base::Symbol{base::Symbol::Kind::Size, 1}] = chance(5) ? 0
                                                            : large   ? 64 + pick(200)
                                                                      : one_of(kSecond);
    call.into = chance(40);
    call.other_layout = chance(10);
    case_.calls.push_back(call);
  }
}

Case Grower::make() {
  const int inputs = 1 + pick(3);
  for (int k = 0; k < inputs; ++k) input(k == 0 ? main_dtype_ : any_dtype(), random_sizes(4));
  const int steps = 3 + pick(14);
  for (int k = 0; k < steps; ++k) grow();
  bind_sizes();
  finish_outputs();
  return std::move(case_);
}

void Grower::grow() {
  switch (pick(46)) {
    case 0:
    case 1:
    case 2:
      return unary();
    case 3:
    case 4:
    case 5:
    case 6:
      return smooth_unary();
    case 7:
    case 8:
    case 9:
    case 10:
    case 11:
      return binary();
    case 12:
      return integer_binary();
    case 13:
    case 14:
      return compare();
    case 15:
      return select();
    case 16:
    case 17:
      return convert();
    case 18:
    case 19:
      return view();
    case 20:
    case 21:
      return slice();
    case 22:
      return reshape();
    case 23:
      return expand();
    case 24:
      return pad();
    case 25:
      return concat();
    case 26:
      return split();
    case 27:
      return iota();
    case 28:
    case 29:
      return reduce();
    case 30:
      return statistics();
    case 31:
      return argreduce();
    case 32:
      return softmax();
    case 33:
      return norm();
    case 34:
      return channel_norm();
    case 35:
      return cumsum();
    case 36:
      return order();
    case 37:
    case 38:
      return matmul();
    case 39:
      return chance(60) ? convolution() : pool();
    case 40:
      return chance(50) ? attention() : resize();
    case 41:
      return gather();
    case 42:
      return scatter();
    case 43:
      return twins();
    case 44:
      return chain();
    default:
      return chance(40) ? random() : pool();
  }
}

DType Grower::any_dtype() { return chance(50) ? main_dtype_ : one_of(kArithmeticDTypes); }

SymExpr Grower::random_size() {
  static const std::int64_t kFixed[] = {1, 2, 3, 4, 6, 8};
  if (chance(20)) return SymExpr::size(0);
  if (chance(25)) return SymExpr::size(1);
  if (chance(3)) return 0;
  if (chance(3)) return 20 + pick(20);
  return one_of(kFixed);
}

Dims Grower::random_sizes(int max_rank) {
  Dims sizes;
  for (int rank = pick(10) == 0 ? 0 : 1 + pick(max_rank); rank > 0; --rank)
    sizes.push_back(random_size());
  while (most_elements(sizes) > max_elements_ / 4 && most_elements(sizes) != most(SymExpr::size(1)))
    sizes.erase(sizes.begin());
  return sizes;
}

std::int64_t Grower::most(const SymExpr& size) const {
  std::int64_t result = 0;
  for (const Call& call : case_.calls) result = std::max(result, size.evaluate(call.sizes));
  return result;
}

std::int64_t Grower::least(const SymExpr& size) const {
  std::int64_t result = INT64_MAX;
  for (const Call& call : case_.calls) result = std::min(result, size.evaluate(call.sizes));
  return result;
}

std::vector<std::int64_t> Grower::some_axes(const Item& item) {
  std::vector<std::int64_t> axes;
  for (std::int64_t d = 0; d < item.rank(); ++d)
    if (chance(50)) axes.push_back(chance(20) ? d - item.rank() : d);
  if (axes.empty() && item.rank() > 0 && chance(90)) axes.push_back(item.rank() - 1);
  return axes;
}

SymExpr Grower::count_over(const Item& item, const std::vector<std::int64_t>& axes) const {
  SymExpr count = 1;
  for (const std::int64_t axis : axes)
    count = count * item.sizes()[static_cast<std::size_t>(axis < 0 ? axis + item.rank() : axis)];
  return count;
}

bool Grower::usable(const Item& item) {
  return item.quality.error <= 0.02 * std::max(item.quality.bound, 0.1);
}

Item Grower::any() {
  const int count = static_cast<int>(items_.size());
  for (int turn = 0; turn < 20; ++turn) {
    const Item item = items_[static_cast<std::size_t>(std::max(pick(count), pick(count)))];
    if (usable(item)) return item;
  }
  return items_[0];
}

Item Grower::floating() {
  const auto is_float = [](const Item& item) { return is_floating(item.dtype()); };
  return any_such(is_float, [&] {
    return input(is_floating(main_dtype_) ? main_dtype_ : f32, random_sizes(4));
  });
}

Item Grower::exact() {
  const auto is_exact = [](const Item& item) { return item.quality.error == 0; };
  return any_such(is_exact, [&] { return input(any_dtype(), random_sizes(4)); });
}

Item Grower::boolean_item() {
  const auto is_bool = [](const Item& item) { return item.dtype() == boolean; };
  return any_such(is_bool, [&] { return input(boolean, random_sizes(3)); });
}

Item Grower::like(const Item& item) {
  const auto broadcasts = [&](const Item& other) {
    if (other.value == item.value && chance(80)) return false;
    const Dims& a = item.sizes();
    const Dims& b = other.sizes();
    for (std::size_t k = 1; k <= std::min(a.size(), b.size()); ++k) {
      const SymExpr& p = a[a.size() - k];
      const SymExpr& q = b[b.size() - k];
      if (!(p == q) && !p.is_constant(1) && !q.is_constant(1)) return false;
    }
    return most_elements(a) * most_elements(b) < max_elements_ * 10 || a == b;
  };
  return any_such(broadcasts, [&] {
    if (chance(30)) return scalar(item.dtype(), 1 + pick(3));
    Dims sizes(item.sizes().begin() + pick(static_cast<int>(item.rank()) + 1), item.sizes().end());
    for (SymExpr& size : sizes)
      if (chance(25)) size = 1;
    return chance(30) ? weight(item.dtype(), sizes) : input(item.dtype(), sizes);
  });
}

Item Grower::scalar(DType dtype, double value) {
  const bool whole = value == std::floor(value);
  return {builder_.scalar(dtype, value), {std::abs(value), 0, whole, false}};
}

Item Grower::as(const Item& item, DType dtype) {
  if (item.dtype() == dtype) return item;
  const auto made =
      emit("convert", {item}, {{"dtype", dtype}}, converted(item.quality, item.dtype(), dtype));
  return made ? *made : input(dtype, item.sizes());
}

Quality Grower::rounded(Quality quality, DType dtype) {
  if (!is_floating(dtype)) return {quality.bound, 0, true, false};
  if (quality.error == 0 && quality.integral && quality.bound <= exact_limit(dtype)) return quality;
  quality.integral = false;
  quality.error += unit(dtype) * std::max(quality.bound, 1e-4);
  return quality;
}

Quality Grower::dot(const Quality& a, const Quality& b, double count, DType dtype) {
  Quality result;
  result.bound = a.bound * b.bound * count;
  result.error = count * (a.bound * b.error + b.bound * a.error + a.error * b.error);
  result.integral = a.integral && b.integral;
  result.special = a.special || b.special;
  // An infinite factor shows whether a rounded one is exactly 0, and its sign: no bound holds.
  if ((a.error > 0 && b.special) || (b.error > 0 && a.special)) result.bound = HUGE_VAL;
  return rounded(result, dtype);
}

Quality Grower::converted(const Quality& quality, DType from, DType to) {
  if (!is_floating(to)) return {to == boolean ? 1.0 : quality.bound, 0, true, false};
  Quality result = quality;
  if (!is_floating(from)) result = {quality.bound, 0, true, false};
  if (result.error == 0 && (!result.integral || result.bound <= exact_limit(to))) return result;
  if (result.error != 0) return rounded(result, to);
  result.bound *= 1.01;  // whole still, and every right conversion rounds alike
  return result;
}

const ir::Node* Grower::call(std::string_view op, const std::vector<ir::Value>& operands,
                             ir::Attrs attrs) {
  if (chance(8)) builder_.context.after = {any().value};
  if (chance(4)) builder_.context.annotations["stage"] = {std::int64_t{pick(2)}};
  const ir::Node* node = nullptr;
  try {
    node = builder_.call(op, operands, std::move(attrs));
  } catch (const Error&) {
    // The op refuses these operands: another one will do.
  }
  builder_.context = {};
  return node;
}

void Grower::keep(ir::Value value, Quality quality) {
  const DType dtype = value.meta().dtype;
  if (!is_floating(dtype)) quality = {wrapped(quality.bound, dtype), 0, true, false};
  items_.push_back({value, quality});
}

std::optional<Item> Grower::emit(std::string_view op, std::initializer_list<Item> operands,
                                 ir::Attrs attrs, Quality quality) {
  std::vector<ir::Value> values;
  DType dtype = f64;
  for (const Item& operand : operands) {
    values.push_back(operand.value);
    if (operand.value && is_floating(operand.dtype())) dtype = operand.dtype();
  }
  if (quality.bound > bound_limit(dtype)) return std::nullopt;
  const ir::Node* node = call(op, values, std::move(attrs));
  if (node == nullptr) return std::nullopt;
  for (std::uint32_t k = 0; k < node->outputs().size(); ++k) {
    if (most(node->output(k).count()) <= max_elements_ * 8) keep(node->value(k), quality);
  }
  return Item{node->value(), items_.back().quality};
}

void Grower::keep_size(std::uint32_t symbol) {
  builder_.input(ir::TensorMeta::of(boolean, {SymExpr::size(symbol)}));
  case_.fills.emplace_back();
}

/// Every size symbol that the graph may mention is a size of an input.
void Grower::bind_sizes() {
  bool bound[2] = {false, false};
  for (const Item& item : items_) {
    if (item.value.node->op_name() != "input") continue;
    for (const SymExpr& size : item.sizes())
      if (size.is_symbol()) bound[size.symbol().id] = true;
  }
  for (std::uint32_t k = 0; k < 2; ++k)
    if (!bound[k]) keep_size(k);
}

void Grower::finish_outputs() {
  const auto output = [&](const Item& item) {
    builder_.output(item.value);
    case_.qualities.push_back(item.quality);
  };
  output(items_.back());
  std::set<const ir::Node*> read;
  for (const Item& item : items_)
    for (const ir::Value& operand : item.value.node->inputs()) read.insert(operand.node);
  for (std::size_t k = 0; k + 1 < items_.size(); ++k) {
    const bool leaf = !read.contains(items_[k].value.node);
    const bool is_input = items_[k].value.node->inputs().empty();
    if (chance(is_input ? 2 : leaf ? 70 : 8)) output(items_[k]);
  }
  if (chance(5)) output(items_.back());
  if (chance(8)) {
    for (const Item& item : items_) {
      const Item& target = items_[0];
      if (item.value == target.value || item.dtype() != target.dtype() ||
          item.sizes() != target.sizes() || item.value.node->op_name() == "input")
        continue;
      if (case_.fills[0].layout == Layout::Expanded) continue;
      builder_.write_back(target.value, item.value);
      case_.qualities.push_back(item.quality);
      break;
    }
  }
  case_.graph = builder_.finish();
  // What the ops assume of the sizes on the way need not hold for every call drawn before.
  std::erase_if(case_.calls, [&](const Call& call) {
    for (const ir::Assumption& assumption : case_.graph.assumptions())
      if (!assumption.predicate.evaluate(call.sizes)) return true;
    return false;
  });
}

Case random_case(std::uint32_t seed) {
  Case made = Grower(seed).make();
  // The assumptions may leave no call, or even contradict each other: such a graph tells nothing.
  for (std::uint32_t again = 1; made.calls.empty(); ++again)
    made = Grower(seed + again * 1000003u).make();
  return made;
}

}  // namespace heddle::fuzz
