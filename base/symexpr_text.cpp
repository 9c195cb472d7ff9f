// The text form of expressions: printing and parsing.
//
//   sum      = ["-"] term {("+" | "-") term}
//   term     = factor {"*" factor}
//   factor   = number | symbol | "(" sum ")" | call
//   call     = "floor(" term "/" factor ")" | ("mod" | "min" | "max") "(" sum "," sum ")" | "whole(" real ")"
//   real     = decimal | "real(" sum ")" | function "(" real ["," real] ")"     functions: name_of_real()
//   symbol   = ("s" | "u" | "i" | "t") digits
#include <charconv>
#include <fmt/format.h>

#include "base/check.h"
#include "base/symexpr.h"
#include "base/symexpr_node.h"
#include "base/symreal.h"
#include "heddle/error.h"

namespace heddle::base {
namespace {

using Kind = SymExpr::Kind;

constexpr std::string_view kSymbolLetters = "suit";  // in the order of Symbol::Kind
/// Deeper nesting is refused, so that hostile text cannot exhaust the stack.
constexpr int kMaxDepth = 100;

void print(const SymExpr& expr, std::string& out);

void print_in_parentheses_if(bool needed, const SymExpr& expr, std::string& out) {
  if (needed) out += '(';
  print(expr, out);
  if (needed) out += ')';
}

void print_call(std::string_view name, char separator, const SymNode& node, std::string& out) {
  const bool divides = separator == '/';
  const Kind divisor = node.right.kind();
  out += name;
  out += '(';
  print_in_parentheses_if(divides && node.left.kind() == Kind::Sum, node.left, out);
  out += separator;
  print_in_parentheses_if(divides && (divisor == Kind::Sum || divisor == Kind::Product), node.right,
                          out);
  out += ')';
}

void print_real(const SymExpr& real, std::string& out) {
  if (real.is_constant()) {
    out += fmt::format("{}", number_of(real.constant()));
    return;
  }
  const SymNode& node = *SymExprAccess::node(real);
  HD_CHECK(is_real(node.kind), "an integer among reals");
  out += name_of_real(node.kind);
  out += '(';
  if (node.kind == Kind::Real)
    print(node.left, out);
  else
    print_real(node.left, out);
  if (has_two_arguments(node.kind)) {
    out += ',';
    print_real(node.right, out);
  }
  out += ')';
}

void print_atom(const SymNodePtr& atom, std::string& out) {
  if (is_real(atom->kind)) return print_real(SymExprAccess::make(atom), out);
  switch (atom->kind) {
    case Kind::Symbol:
      out += atom->symbol.to_string();
      return;
    case Kind::FloorDiv:
      return print_call("floor", '/', *atom, out);
    case Kind::Mod:
      return print_call("mod", ',', *atom, out);
    case Kind::Min:
      return print_call("min", ',', *atom, out);
    case Kind::Max:
      return print_call("max", ',', *atom, out);
    default:
      return print_in_parentheses_if(true, SymExprAccess::make(atom), out);
  }
}

void print_monomial(const SymNodePtr& monomial, std::string& out) {
  bool first = true;
  for (const SymNodePtr& factor : factors_of(monomial)) {
    if (!first) out += '*';
    first = false;
    print_atom(factor, out);
  }
}

/// Coefficients print with their sign; a 1 stays away.
void print_term(const SymTerm& term, bool first, std::string& out) {
  if (term.coefficient > 0 && !first) out += '+';
  if (term.coefficient == -1) {
    out += '-';
  } else if (term.coefficient != 1) {
    out += std::to_string(term.coefficient);
    out += '*';
  }
  print_monomial(term.monomial, out);
}

void print(const SymExpr& expr, std::string& out) {
  if (expr.is_constant()) {
    out += std::to_string(expr.constant());
    return;
  }
  const Polynomial polynomial(expr);
  bool first = true;
  for (const SymTerm& term : polynomial.terms()) {
    print_term(term, first, out);
    first = false;
  }
  if (polynomial.constant() > 0) out += '+';
  if (polynomial.constant() != 0) out += std::to_string(polynomial.constant());
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  SymExpr parse() {
    SymExpr result = sum();
    if (position_ != text_.size()) fail("an operator or the end");
    return result;
  }

 private:
  SymExpr sum() {
    if (++depth_ > kMaxDepth) fail("at most " + std::to_string(kMaxDepth) + " levels of nesting");
    SymExpr result = term(accept('-'));
    while (true) {
      if (accept('+')) {
        result += term(false);
      } else if (accept('-')) {
        result += term(true);
      } else {
        break;
      }
    }
    --depth_;
    return result;
  }

  SymExpr term(bool negative) {
    // A number takes the sign along: the least one has no positive counterpart.
    SymExpr result;
    if (is_digit(peek())) {
      result = number(negative);
    } else {
      result = negative ? -factor() : factor();
    }
    while (accept('*')) result *= factor();
    return result;
  }

  SymExpr factor() {
    if (is_digit(peek())) return number(false);
    if (accept('(')) {
      SymExpr result = sum();
      expect(')');
      return result;
    }
    const std::size_t start = position_;
    const std::string_view word = letters();
    if (word.size() == 1 && kSymbolLetters.find(word[0]) != std::string_view::npos) {
      return symbol(word[0]);
    }
    if (word == "floor") return floor();
    if (word == "mod" || word == "min" || word == "max") return call(word);
    if (word == name_of_real(Kind::Whole)) return call_of_reals(Kind::Whole);
    position_ = start;
    fail("a number, a symbol, floor, mod, min, max, whole or (");
  }

  SymExpr call_of_reals(Kind kind) {
    if (++depth_ > kMaxDepth) fail("at most " + std::to_string(kMaxDepth) + " levels of nesting");
    expect('(');
    const SymExpr left = kind == Kind::Real ? sum() : real();
    SymExpr right;
    if (has_two_arguments(kind)) {
      expect(',');
      right = real();
    }
    expect(')');
    --depth_;
    return make_real(kind, left, right);
  }

  SymExpr real() {
    const char first = peek();
    if (is_digit(first) || first == '-') return decimal();
    const std::size_t start = position_;
    const std::string_view word = letters();
    if (word == "inf" || word == "nan") {
      position_ = start;
      return decimal();
    }
    for (int kind = static_cast<int>(Kind::Real); kind <= static_cast<int>(Kind::RealSingle);
         ++kind)
      if (word == name_of_real(static_cast<Kind>(kind)))
        return call_of_reals(static_cast<Kind>(kind));
    position_ = start;
    fail("a real number, or real, radd or another function of reals");
  }

  SymExpr decimal() {
    double number = 0;
    const char* first = text_.data() + position_;
    const auto [end, error] = std::from_chars(first, text_.data() + text_.size(), number);
    if (error != std::errc()) fail("a number that a double holds");
    position_ += static_cast<std::size_t>(end - first);
    return base::real(number);
  }

  SymExpr number(bool negative) {
    const std::size_t start = position_;
    while (position_ < text_.size() && is_digit(text_[position_])) ++position_;
    const std::string digits =
        (negative ? "-" : "") + std::string(text_.substr(start, position_ - start));
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error == std::errc()) return value;
    position_ = start;
    fail("a number of 64 bits");
  }

  SymExpr symbol(char letter) {
    const std::size_t start = position_;
    while (position_ < text_.size() && is_digit(text_[position_])) ++position_;
    std::uint32_t id = 0;
    const char* last = text_.data() + position_;
    const auto [end, error] = std::from_chars(text_.data() + start, last, id);
    if (error == std::errc()) {
      return Symbol{static_cast<Symbol::Kind>(kSymbolLetters.find(letter)), id};
    }
    position_ = start;
    fail("the number of a symbol");
  }

  SymExpr floor() {
    if (++depth_ > kMaxDepth) fail("at most " + std::to_string(kMaxDepth) + " levels of nesting");
    expect('(');
    const SymExpr left = term(accept('-'));
    expect('/');
    const SymExpr right = factor();
    expect(')');
    --depth_;
    return floordiv(left, right);
  }

  SymExpr call(std::string_view name) {
    expect('(');
    const SymExpr left = sum();
    expect(',');
    const SymExpr right = sum();
    expect(')');
    if (name == "mod") return mod(left, right);
    return name == "min" ? min(left, right) : max(left, right);
  }

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  char peek() {
    while (position_ < text_.size() && text_[position_] == ' ') ++position_;
    return position_ < text_.size() ? text_[position_] : '\0';
  }

  bool accept(char c) {
    if (peek() != c || position_ == text_.size()) return false;
    ++position_;
    peek();
    return true;
  }

  void expect(char c) {
    if (!accept(c)) fail(std::string(1, c));
  }

  std::string_view letters() {
    peek();
    const std::size_t start = position_;
    while (position_ < text_.size() && text_[position_] >= 'a' && text_[position_] <= 'z') {
      ++position_;
    }
    return text_.substr(start, position_ - start);
  }

  [[noreturn]] void fail(const std::string& expected) const {
    const bool at_end = position_ >= text_.size();
    throw ParseError(
        {.what = "size expression \"" + std::string(text_) + "\"",
         .where = "column " + std::to_string(position_ + 1),
         .expected = expected,
         .got = at_end ? "the end" : "\"" + std::string(text_.substr(position_)) + "\""});
  }

  std::string_view text_;
  std::size_t position_ = 0;
  int depth_ = 0;
};

}  // namespace

std::string Symbol::to_string() const {
  return kSymbolLetters[static_cast<std::size_t>(kind)] + std::to_string(id);
}

std::string SymExpr::to_string() const {
  std::string text;
  print(*this, text);
  return text;
}

SymExpr parse_symexpr(std::string_view text) { return Parser(text).parse(); }

}  // namespace heddle::base
