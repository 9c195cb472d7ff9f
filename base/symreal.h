// Real arithmetic inside of size expressions: sizes that a model computes in floating point.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/symexpr.h"

namespace heddle::base {

// A real is an expression too, whose value are the bits of a double: constants are numbers, and what is known of expressions (order,
// substitution, evaluation) holds of them. As integers these bits mean nothing; whole() brings a real back among the integers.

/// The kinds that real arithmetic has, whole() among them.
constexpr bool is_real(SymExpr::Kind kind) { return kind >= SymExpr::Kind::Whole; }

std::int64_t bits_of(double number);
double number_of(std::int64_t bits);

/// An integer as a real: rounded to a double.
SymExpr real(const SymExpr& integer);
SymExpr real(double number);
/// A real cut to an integer; 0 of one that is none or 2^62 and more.
SymExpr whole(const SymExpr& real);
/// One of the kinds from RealAdd on, as doubles do it; RealRound to the nearest, of two the even one; RealSingle to a float. `right` is 0
/// where the kind has one argument.
SymExpr make_real(SymExpr::Kind kind, const SymExpr& left, const SymExpr& right = 0);

/// What one of these kinds makes of two values.
std::int64_t apply_real(SymExpr::Kind kind, std::int64_t left, std::int64_t right);
bool has_two_arguments(SymExpr::Kind kind);
/// The name in the text form: "radd".
std::string_view name_of_real(SymExpr::Kind kind);

/// Whether an expression is one of few operations, which whoever evaluates or prints it walks through.
bool is_short(const SymExpr& expr);

/// Whether a real is at least 0, or NaN, wherever the facts hold; false when unknown.
bool provably_nonnegative_real(const SymExpr& real, const Facts& facts);

}  // namespace heddle::base
