#include "jit/nests/radix_sort.h"

#include <limits>

#include "jit/nests/support.h"

namespace heddle::jit {
namespace {

using ir::ScalarOp;

/// Longer rows are worth the more values of wider digits.
constexpr std::int64_t kWideDigits = 4096;
constexpr std::int64_t kBitsOfWide = 11;
/// Longer buffers do not lie on the stack.
constexpr std::int64_t kOnStack = 4096;

DType key_type(DType dtype) { return size_of(dtype) == 8 ? DType::I64 : DType::I32; }

/// Numbers of few bits are counted from their smallest, so that their keys have no more bits.
std::int64_t bits_of(DType dtype) {
  if (dtype == DType::Bool) return 1;
  if (is_floating(dtype)) return dtype == DType::F64 ? 64 : 32;
  return static_cast<std::int64_t>(8 * size_of(dtype));
}

DType position_type(const SymExpr& length) {
  const bool few =
      length.is_constant() && length.constant() < std::numeric_limits<std::int32_t>::max() / 2;
  return few ? DType::I32 : DType::I64;
}

}  // namespace

Scalar sort_key(NestBuilder& b, Scalar x, bool descending) {
  const DType dtype = x.dtype;
  const DType type = key_type(dtype);
  const std::int64_t bits = bits_of(dtype);
  const std::int64_t half =
      bits == 64 ? std::numeric_limits<std::int64_t>::min() : std::int64_t{1} << (bits - 1);
  const Scalar all = b.constant_int(type, -1);
  if (!is_floating(dtype)) {
    Scalar key = b.convert(x, type);
    if (is_signed(dtype)) key = b.apply(ScalarOp::Add, key, b.constant_int(type, half));
    if (!descending) return key;
    const std::int64_t most = bits < 32 ? (std::int64_t{1} << bits) - 1 : -1;
    return b.apply(ScalarOp::Xor, key, b.constant_int(type, most));
  }
  const Scalar number = b.convert(x, dtype == DType::F64 ? dtype : DType::F32);
  const Scalar none = zero(b, number.dtype);
  const Scalar is_zero = b.apply(ScalarOp::Eq, number, none);  // -0 too
  const Scalar raw = b.bits(b.apply(ScalarOp::Select, {is_zero, none, number}));
  const Scalar sign = b.apply(ScalarOp::Shr, raw, b.constant_int(type, bits - 1));
  const Scalar flipped = b.apply(ScalarOp::Or, sign, b.constant_int(type, half));
  Scalar key = b.apply(ScalarOp::Xor, raw, flipped);
  if (descending) key = b.apply(ScalarOp::Xor, key, all);
  return b.apply(ScalarOp::Select, {b.apply(ScalarOp::IsNan, {number}), all, key});
}

RadixSort::RadixSort(NestBuilder& builder, const SymExpr& length, DType dtype, bool descending)
    : b_(builder),
      length_(length),
      dtype_(dtype),
      descending_(descending),
      key_(key_type(dtype)),
      place_(position_type(length)) {
  if (!length.is_constant() || length.constant() >= kWideDigits) digit_bits_ = kBitsOfWide;
  digits_ = (bits_of(dtype) + digit_bits_ - 1) / digit_bits_;
  add_buffers();
}

void RadixSort::add_buffers() {
  const auto add = [&](DType dtype, const SymExpr& count) {
    const std::int64_t most = count.as_constant().value_or(0);
    return b_.add_local(dtype, count, most <= kOnStack ? most : 0);
  };
  keys_ = add(key_, 2 * length_);
  order_ = add(place_, 2 * length_);
  counts_ = add(place_, digits_ << digit_bits_);
  side_ = add(DType::I64, 1);
}

Scalar RadixSort::digit(Scalar key, Scalar shift) {
  const Scalar mask = b_.constant_int(key_, (std::int64_t{1} << digit_bits_) - 1);
  const Scalar bits = b_.apply(ScalarOp::And, b_.apply(ScalarOp::Shr, key, shift), mask);
  return b_.convert(bits, DType::I64);
}

SymExpr RadixSort::count_of(Scalar digit, const SymExpr& d) {
  const std::int64_t values = std::int64_t{1} << digit_bits_;
  return d * values + b_.bind(digit, 0, values - 1, 0);
}

Scalar RadixSort::count_up(const SymExpr& place) {
  const Scalar before = b_.load(counts_, place);
  b_.store(counts_, place, b_.apply(ScalarOp::Add, before, b_.constant_int(place_, 1)));
  return b_.convert(before, DType::I64);
}

void RadixSort::order_all(const Element& element) {
  const SymExpr i = b_.begin_for(length_, ForStmt::Kind::Vector);
  b_.store(keys_, i, sort_key(b_, element(i), descending_));
  b_.store(order_, i, b_.convert(b_.from_index(i), place_));
  b_.end_for();
  order(length_);
}

void RadixSort::order_first(const SymExpr& wanted, const Element& element) {
  order(collect(wanted, element));
}

/// Keys and positions of elements among which the first `wanted` are. @return how many there are
SymExpr RadixSort::collect(const SymExpr& wanted, const Element& element) {
  const SymExpr keys = length_;  // where they wait
  const std::int64_t values = std::int64_t{1} << digit_bits_;
  const SymExpr value = b_.begin_for(values, ForStmt::Kind::Vector);
  b_.store(counts_, value, zero(b_, place_));
  b_.end_for();
  const SymExpr i = b_.begin_for(length_, ForStmt::Kind::Vector);
  b_.store(keys_, keys + i, sort_key(b_, element(i), descending_));
  b_.end_for();
  const Scalar shift = b_.constant_int(key_, (digits_ - 1) * digit_bits_);
  const SymExpr k = b_.begin_for(length_, ForStmt::Kind::Serial);
  count_up(count_of(digit(b_.load(keys_, keys + k), shift), 0));
  b_.end_for();
  // The smallest value that `wanted` elements do not exceed.
  const Scalar none = b_.i64(0);
  const SymExpr bound = b_.begin_for(values, ForStmt::Kind::Serial);
  const Scalar seen = b_.carry(none);
  const Scalar largest = b_.carry(none);
  const Scalar count = b_.convert(b_.load(counts_, bound), DType::I64);
  const Scalar now = b_.apply(ScalarOp::Add, seen, count);
  b_.set_next(seen, now);
  const Scalar too_few = b_.apply(ScalarOp::Lt, now, b_.from_index(wanted));
  const Scalar limit =
      b_.set_next(largest, b_.apply(ScalarOp::Add, largest, b_.convert(too_few, DType::I64)));
  b_.end_for();
  const SymExpr e = b_.begin_for(length_, ForStmt::Kind::Serial);
  const Scalar taken = b_.carry(none);
  const Scalar key = b_.load(keys_, keys + e);
  const SymExpr to = b_.bind(taken, 0, length_ - 1, 0);
  b_.store(keys_, to, key);
  b_.store(order_, to, b_.convert(b_.from_index(e), place_));
  const Scalar stays = b_.apply(ScalarOp::Le, digit(key, shift), limit);
  const Scalar result =
      b_.set_next(taken, b_.apply(ScalarOp::Add, taken, b_.convert(stays, DType::I64)));
  b_.end_for();
  return b_.bind(result, 0, length_, 0);
}

void RadixSort::order(const SymExpr& count) {
  count_digits(count);
  b_.store(side_, 0, b_.i64(0));
  const SymExpr d = b_.begin_for(digits_, ForStmt::Kind::Serial);
  const SymExpr side = b_.bind(b_.load(side_, 0), 0, 1, 0);
  const SymExpr from = side * length_;
  const SymExpr to = length_ - from;
  b_.begin_if(compare(b_, ScalarOp::Lt, 0, count));
  const Scalar shift = b_.convert(b_.from_index(d * digit_bits_), key_);
  const Scalar same = b_.load(counts_, count_of(digit(b_.load(keys_, from), shift), d));
  const Scalar all = b_.convert(b_.from_index(count), place_);
  b_.begin_if(b_.apply(ScalarOp::Ne, same, all));
  move(d, from, to, count);
  b_.store(side_, 0, b_.from_index(1 - side));
  b_.end_if();
  b_.end_if();
  b_.end_for();
}

void RadixSort::count_digits(const SymExpr& count) {
  const SymExpr value = b_.begin_for(digits_ << digit_bits_, ForStmt::Kind::Vector);
  b_.store(counts_, value, zero(b_, place_));
  b_.end_for();
  const SymExpr i = b_.begin_for(count, ForStmt::Kind::Serial);
  const Scalar key = b_.load(keys_, i);
  for (std::int64_t d = 0; d < digits_; ++d)
    count_up(count_of(digit(key, b_.constant_int(key_, d * digit_bits_)), d));
  b_.end_for();
}

void RadixSort::move(const SymExpr& d, const SymExpr& from, const SymExpr& to,
                     const SymExpr& count) {
  const Scalar none = zero(b_, place_);
  const SymExpr value = b_.begin_for(std::int64_t{1} << digit_bits_, ForStmt::Kind::Serial);
  const Scalar smaller = b_.carry(none);
  const SymExpr place = d * (std::int64_t{1} << digit_bits_) + value;
  const Scalar here = b_.load(counts_, place);
  b_.store(counts_, place, smaller);
  b_.set_next(smaller, b_.apply(ScalarOp::Add, smaller, here));
  b_.end_for();
  const Scalar shift = b_.convert(b_.from_index(d * digit_bits_), key_);
  const SymExpr i = b_.begin_for(count, ForStmt::Kind::Serial);
  const Scalar key = b_.load(keys_, from + i);
  const Scalar position = b_.load(order_, from + i);
  const Scalar before = count_up(count_of(digit(key, shift), d));
  const SymExpr target = to + b_.bind(before, 0, length_ - 1, 0);
  b_.store(keys_, target, key);
  b_.store(order_, target, position);
  b_.end_for();
}

Scalar RadixSort::position(const SymExpr& place) {
  const SymExpr from = b_.bind(b_.load(side_, 0), 0, 1, 0) * length_;
  return b_.convert(b_.load(order_, from + place), DType::I64);
}

}  // namespace heddle::jit
