// Random expressions, each with a plain tree that says what its value must be.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/symexpr.h"
#include "base/symreal.h"

namespace heddle::base::testing {

/// What was built, evaluated without any of the code under test.
struct Tree {
  char op =
      'c';  ///< c constant, v symbol, + - * / % m(in) M(ax), r: a part of the left one as a float
  std::int64_t constant = 0;
  Symbol symbol;
  std::unique_ptr<Tree> left;
  std::unique_ptr<Tree> right;

  /// Nothing where it divides by zero.
  std::optional<std::int64_t> value(const SymbolValues& values) const {
    if (op == 'c') return constant;
    if (op == 'v') return values.at(symbol);
    const auto l = left->value(values);
    const auto r = right->value(values);
    if (!l || !r || ((op == '/' || op == '%') && *r == 0)) return std::nullopt;
    const std::int64_t down = op == '/' || op == '%' ? divide_down(*l, *r) : 0;
    switch (op) {
      case '+':
        return *l + *r;
      case '-':
        return *l - *r;
      case '*':
        return *l * *r;
      case '/':
        return down;
      case '%':
        return *l - down * *r;
      case 'm':
        return *l < *r ? *l : *r;
      case 'r':
        return part_of(*l);
      default:
        return *l > *r ? *l : *r;
    }
  }

  static constexpr float kPart = 0.37f;

 private:
  static std::int64_t part_of(std::int64_t number) {
    const float part = std::floor(static_cast<float>(static_cast<double>(number)) * kPart);
    return std::abs(part) < 0x1p62f ? static_cast<std::int64_t>(part) : 0;
  }

  static std::int64_t divide_down(std::int64_t a, std::int64_t b) {
    std::int64_t quotient = a / b;
    while (quotient * b > a && b > 0) --quotient;
    while (quotient * b < a && b < 0) --quotient;
    return quotient;
  }
};

struct RandomExpr {
  SymExpr expr;
  std::unique_ptr<Tree> tree;
};

class RandomExprs {
 public:
  RandomExprs(std::uint32_t seed, std::vector<Symbol> symbols)
      : random_(seed), symbols_(std::move(symbols)) {}

  std::int64_t between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }

  /// Divisors are positive constants, or products of such and symbols.
  RandomExpr make(int depth) {
    if (depth == 0 || between(0, 5) == 0) return leaf();
    static constexpr char kOps[] = "++++--***//%%mMr";
    const char op = kOps[between(0, sizeof(kOps) - 2)];
    RandomExpr left = make(depth - 1);
    RandomExpr right = op == '/' || op == '%' ? divisor() : make(depth - 1);
    return join(op, std::move(left), std::move(right));
  }

  RandomExpr constant(std::int64_t value) {
    RandomExpr result{value, std::make_unique<Tree>()};
    result.tree->constant = value;
    return result;
  }

 private:
  RandomExpr leaf() {
    if (between(0, 2) == 0) return constant(between(-5, 9));
    RandomExpr result{0, std::make_unique<Tree>()};
    result.tree->op = 'v';
    result.tree->symbol = symbols_[static_cast<std::size_t>(
        between(0, static_cast<std::int64_t>(symbols_.size()) - 1))];
    result.expr = result.tree->symbol;
    return result;
  }

  RandomExpr divisor() {
    RandomExpr number = constant(between(1, 6));
    if (between(0, 2) != 0) return number;
    return join('*', std::move(number), leaf_symbol());
  }

  RandomExpr leaf_symbol() {
    RandomExpr result = leaf();
    while (result.tree->op != 'v') result = leaf();
    return result;
  }

  static RandomExpr join(char op, RandomExpr left, RandomExpr right) {
    if ((op == '/' || op == '%') && right.expr.is_constant(0)) op = '+';
    RandomExpr result{apply(op, left.expr, right.expr), std::make_unique<Tree>()};
    result.tree->op = op;
    result.tree->left = std::move(left.tree);
    result.tree->right = std::move(right.tree);
    return result;
  }

  static SymExpr part_of(const SymExpr& a) {
    using Kind = SymExpr::Kind;
    const SymExpr single = make_real(Kind::RealSingle, real(a));
    const SymExpr scaled = make_real(Kind::RealMul, single, real(double{Tree::kPart}));
    return whole(make_real(Kind::RealFloor, make_real(Kind::RealSingle, scaled)));
  }

  static SymExpr apply(char op, const SymExpr& a, const SymExpr& b) {
    switch (op) {
      case '+':
        return a + b;
      case '-':
        return a - b;
      case '*':
        return a * b;
      case '/':
        return floordiv(a, b);
      case '%':
        return mod(a, b);
      case 'm':
        return min(a, b);
      case 'r':
        return part_of(a);
      default:
        return max(a, b);
    }
  }

  std::mt19937 random_;
  std::vector<Symbol> symbols_;
};

}  // namespace heddle::base::testing
