// The order of a row by the digits of its keys, on the CPU: for one thread, in time that grows as the row does.
//
// A key is an integer whose bits, unsigned, come in the order wanted. All digits are counted in one pass; then, from the last
// digit to the first, elements move to where those with smaller digits end. A digit that all elements share moves none.
//
//   for i (vector): keys[i] = key of element i; order[i] = i
//   for i (serial): for each digit: counts[digit, its value] += 1
//   for digit (serial), if elements differ in it:
//     for value (serial): counts[digit, value] becomes the number of elements of smaller values
//     for i (serial): place = counts[digit, value of i]++; keys'[place] = keys[i]; order'[place] = order[i]
//     keys and keys', order and order' change places
//
// Of a row's first elements: those whose first digit is small enough are collected, and only they are ordered.
#pragma once

#include <functional>

#include "jit/nest_builder.h"

namespace heddle::jit {

/// An integer of 32 bits, or of 64 for a dtype of as many, whose bits, unsigned, come in the order of sort.
Scalar sort_key(NestBuilder& b, Scalar x, bool descending);

class RadixSort {
 public:
  using Element = std::function<Scalar(const SymExpr& position)>;

  RadixSort(NestBuilder& builder, const SymExpr& length, DType dtype, bool descending);

  /// Orders all elements. Of equal ones the earlier comes first; NaN come last.
  void order_all(const Element& element);
  /// Orders the first `wanted` elements: at least those are in place.
  void order_first(const SymExpr& wanted, const Element& element);
  /// The position of the element that comes to place `place`, as i64.
  Scalar position(const SymExpr& place);

 private:
  void add_buffers();
  Scalar digit(Scalar key, Scalar shift);
  /// The place in counts_ of what an element has in digit number `d`.
  SymExpr count_of(Scalar digit, const SymExpr& d);
  SymExpr collect(const SymExpr& wanted, const Element& element);
  void order(const SymExpr& count);
  void count_digits(const SymExpr& count);
  void move(const SymExpr& d, const SymExpr& from, const SymExpr& to, const SymExpr& count);
  /// counts_[place] becomes one more. @return what it was
  Scalar count_up(const SymExpr& place);

  NestBuilder& b_;
  const SymExpr length_;
  const DType dtype_;
  const bool descending_;
  const DType key_;    ///< of keys
  const DType place_;  ///< of positions and counts
  std::int64_t digit_bits_ = 8;
  std::int64_t digits_ = 1;
  NestBufferId keys_ = 0, order_ = 0, counts_ = 0, side_ = 0;
};

}  // namespace heddle::jit
