// Elementwise ops, comparisons, select and casts.
#include <algorithm>
#include <cmath>

#include "tests/fuzz/grower.h"

namespace heddle::fuzz {

namespace {

/// A differentiable op: where it may be used and how steep it is there.
struct Smooth {
  const char* op;
  Domain domain;
  double steepness;  ///< largest derivative on the domain
  double bound;      ///< largest magnitude there; 0: that of the operand
};

constexpr Smooth kSmooth[] = {
    {"exp", Domain::Small, 21, 21},
    {"exp2", Domain::Small, 6, 9},
    {"expm1", Domain::Small, 21, 21},
    {"log", Domain::Positive, 2, 12},
    {"log2", Domain::Positive, 3, 17},
    {"log1p", Domain::Positive, 1, 12},
    {"sqrt", Domain::Positive, 0.8, 0},
    {"rsqrt", Domain::Positive, 1.5, 1.5},
    {"reciprocal", Domain::Positive, 4, 2},
    {"sin", Domain::Small, 1, 1},
    {"cos", Domain::Small, 1, 1},
    {"tan", Domain::Unit, 1.4, 0.6},
    {"asin", Domain::Unit, 1.2, 0.6},
    {"acos", Domain::Unit, 1.2, 3.2},
    {"atan", Domain::Any, 1, 1.6},
    {"sinh", Domain::Small, 11, 11},
    {"cosh", Domain::Small, 11, 11},
    {"asinh", Domain::Any, 1, 0},
    {"acosh", Domain::AboveOne, 1, 13},
    {"atanh", Domain::Unit, 1.4, 0.6},
    {"tanh", Domain::Any, 1, 1},
    {"erf", Domain::Any, 1.2, 1},
    {"sigmoid", Domain::Any, 0.25, 1},
    {"gelu", Domain::Any, 1.2, 0},
    {"silu", Domain::Any, 1.2, 0},
    {"softplus", Domain::Any, 1, 0},
    {"relu", Domain::Any, 1, 0},
};

}  // namespace

Item Grower::into_domain(Item item, Domain domain) {
  const DType dtype = item.dtype();
  const auto take = [&](std::optional<Item> made) { item = made ? *made : item; };
  switch (domain) {
    case Domain::Any:
      break;
    case Domain::Small:
      if (item.quality.bound > 3 || item.quality.special) {
        Quality quality = item.quality;
        quality.bound = std::min(quality.bound, 3.0);
        take(emit("clamp", {item, scalar(dtype, -3), scalar(dtype, 3)}, {}, quality));
      }
      break;
    case Domain::Unit: {
      Quality quality = rounded({1, item.quality.error, false, item.quality.special}, dtype);
      take(emit("tanh", {item}, {}, quality));
      quality.bound = 0.5;
      take(emit("mul", {item, scalar(dtype, 0.5)}, {}, quality));
      break;
    }
    case Domain::Positive:
    case Domain::AboveOne: {
      take(emit("abs", {item}, {}, item.quality));
      const double shift = domain == Domain::Positive ? 0.5 : 1.5;
      Quality quality = item.quality;
      quality.bound += shift;
      quality.integral = false;
      take(emit("add", {item, scalar(dtype, shift)}, {}, rounded(quality, dtype)));
      break;
    }
  }
  return item;
}

void Grower::unary() {
  const Item item = chance(60) ? exact() : any();
  const DType dtype = item.dtype();
  if (dtype == boolean) {
    emit("not", {item}, {}, item.quality);
    return;
  }
  const bool discontinuous = item.quality.error == 0;
  static const char* const kContinuous[] = {"neg", "abs", "relu"};
  static const char* const kSteps[] = {"sign", "floor", "ceil", "round", "trunc"};
  if (is_integer(dtype)) {
    static const char* const kInteger[] = {"neg", "abs", "sign", "not", "relu"};
    Quality quality = item.quality;
    quality.bound += 1;
    emit(one_of(kInteger), {item}, {}, quality);
  } else if (discontinuous && chance(50)) {
    Quality quality = item.quality;
    quality.bound += 1;
    quality.integral = true;
    emit(one_of(kSteps), {item}, {}, quality);
  } else if (discontinuous && chance(30)) {
    emit(chance(50) ? "is_nan" : "is_inf", {item}, {}, {1, 0, true, false});
  } else {
    emit(one_of(kContinuous), {item}, {}, item.quality);
  }
}

void Grower::smooth_unary() {
  const Smooth smooth = one_of(kSmooth);
  const Item item = into_domain(floating(), smooth.domain);
  Quality quality{smooth.bound > 0 ? smooth.bound : item.quality.bound + 1,
                  item.quality.error * smooth.steepness, false, item.quality.special};
  ir::Attrs attrs;
  if (std::string_view(smooth.op) == "gelu" && chance(50))
    attrs["approximate"] = std::string("tanh");
  emit(smooth.op, {item}, attrs, rounded(quality, item.dtype()));
}

void Grower::binary() {
  const Item left = any();
  Item right = like(left);
  const bool swap = chance(50);
  const Item& a = swap ? right : left;
  const Item& b = swap ? left : right;
  const DType dtype = promote(a.dtype(), b.dtype());
  if (dtype == boolean) {
    static const char* const kOps[] = {"and", "or", "xor"};
    emit(one_of(kOps), {a, b}, {}, {1, 0, true, false});
    return;
  }
  const Quality p = converted(a.quality, a.dtype(), dtype);
  const Quality q = converted(b.quality, b.dtype(), dtype);
  Quality sum{p.bound + q.bound, p.error + q.error, p.integral && q.integral,
              p.special || q.special};
  switch (pick(8)) {
    case 0:
    case 1:
      emit("add", {a, b}, {}, rounded(sum, dtype));
      return;
    case 2:
      emit("sub", {a, b}, {}, rounded(sum, dtype));
      return;
    case 3:
    case 4:
      emit("mul", {a, b}, {}, dot(p, q, 1, dtype));
      return;
    case 5:
      sum.bound = std::max(p.bound, q.bound);
      emit(chance(50) ? "max" : "min", {a, b}, {}, sum);
      return;
    case 6:
      if (is_floating(dtype)) {
        const Item divisor = into_domain(as(b, dtype), Domain::Positive);
        Quality quotient{p.bound * 2, 2 * p.error + 4 * p.bound * divisor.quality.error, false,
                         p.special || q.special};
        emit("div", {a, divisor}, {}, rounded(quotient, dtype));
      } else {
        emit("div", {a, b}, {}, p);
      }
      return;
    default:
      break;
  }
  if (!is_floating(dtype)) {
    static const char* const kOps[] = {"mod", "rem", "div"};
    emit(one_of(kOps), {a, b}, {}, sum);
  } else if (p.error == 0 && q.error == 0 && p.integral && q.integral && chance(50)) {
    emit(chance(50) ? "mod" : "rem", {a, b}, {}, {sum.bound, 0, true, true});
  } else if (chance(50)) {
    const Item base = into_domain(as(a, dtype), Domain::Positive);
    static const double kPowers[] = {0.5, 1, 2, 1.5};
    const double bound = base.quality.bound * base.quality.bound + 1;
    const Quality power{bound, 2 * base.quality.bound * base.quality.error, false,
                        base.quality.special};
    emit("pow", {base, scalar(dtype, one_of(kPowers))}, {}, rounded(power, dtype));
  } else {
    const Item x = into_domain(as(b, dtype), Domain::Positive);
    emit("atan2", {a, x}, {},
         rounded({1.6, 2 * (p.error + x.quality.error), false, sum.special}, dtype));
  }
}

void Grower::integer_binary() {
  const auto is_whole = [](const Item& item) { return is_integer(item.dtype()); };
  const auto make = [&] {
    return input(is_integer(main_dtype_) ? main_dtype_ : i32, random_sizes(3));
  };
  const Item a = any_such(is_whole, make);
  static const char* const kOps[] = {"and", "or", "xor", "shl", "shr", "pow"};
  const std::string_view op = one_of(kOps);
  if (op == "shl" || op == "shr" || op == "pow") {
    const Item count = input(a.dtype(), a.sizes(), Fill{Fill::Kind::Whole, 0, 9, 1});
    emit(op, {a, count}, {}, {1e19, 0, true, false});
    return;
  }
  Item b = like(a);
  if (!is_whole(b)) b = input(a.dtype(), a.sizes());
  emit(op, {a, b}, {}, {1e19, 0, true, false});
}

void Grower::compare() {
  static const char* const kOps[] = {"eq", "ne", "lt", "le", "gt", "ge"};
  const Item a = exact();
  Item b = like(a);
  if (b.quality.error != 0) b = input(a.dtype(), a.sizes());
  emit(one_of(kOps), {a, b}, {}, {1, 0, true, false});
}

void Grower::select() {
  const Item condition = boolean_item();
  const Item a = like(condition);
  const Item b = like(a);
  const DType dtype = promote(a.dtype(), b.dtype());
  if (chance(25) && dtype != boolean) {
    const Quality p = converted(a.quality, a.dtype(), dtype);
    emit("clamp", {a, scalar(dtype, 0), scalar(dtype, 2)}, {}, p);
    return;
  }
  const Quality p = converted(a.quality, a.dtype(), dtype);
  const Quality q = converted(b.quality, b.dtype(), dtype);
  emit("where", {condition, a, b}, {},
       {std::max(p.bound, q.bound), std::max(p.error, q.error), p.integral && q.integral,
        p.special || q.special});
}

/// Small whole numbers to 8-bit floats and back, which changes none of them.
void Grower::pass_through_float8() {
  static const DType kDTypes[] = {f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz};
  const Item item = exact();
  if (!item.quality.integral || item.quality.special || item.quality.bound > 8 ||
      item.dtype() == boolean)
    return;
  const ir::Node* narrow = call("convert", {item.value}, {{"dtype", one_of(kDTypes)}});
  if (narrow == nullptr) return;
  emit("convert", {Item{narrow->value(), item.quality}}, {{"dtype", item.dtype()}}, item.quality);
}

void Grower::convert() {
  if (chance(15)) return pass_through_float8();
  const DType to = one_of(kArithmeticDTypes);
  const Item item = is_floating(to) ? any() : exact();
  Quality quality = converted(item.quality, item.dtype(), to);
  if (to == f16 && item.quality.bound > 2000) return;
  if (is_integer(to) && item.quality.special) quality.bound = 1e19;
  emit("convert", {item}, {{"dtype", to}}, quality);
}

}  // namespace heddle::fuzz
