#include "base/archive.h"

#include <algorithm>

#include "base/symexpr_node.h"

namespace heddle::base {

namespace {

/// What an expression begins with; the kinds of nodes follow.
constexpr std::uint64_t kKnown = 0, kConstant = 1, kFirstKind = 2;
constexpr std::uint64_t kLastKind =
    kFirstKind + static_cast<std::uint64_t>(SymExpr::Kind::RealSingle);
static_assert(static_cast<int>(SymExpr::Kind::Constant) == 0);

bool has_terms(const SymNode& node) {
  return node.kind == SymExpr::Kind::Sum ||
         (node.kind == SymExpr::Kind::Product && node.factors.empty());
}

}  // namespace

void ArchiveWriter::put(const SymExpr& expr) {
  if (expr.is_constant()) {
    number(kConstant);
    return put(expr.constant());
  }
  if (const auto known = exprs_.find(expr); known != exprs_.end()) {
    number(kKnown);
    return number(known->second);
  }
  const SymNode& node = *SymExprAccess::node(expr);
  number(kFirstKind + static_cast<std::uint64_t>(node.kind));
  if (node.kind == SymExpr::Kind::Symbol) {
    put(node.symbol);
  } else if (has_terms(node)) {
    put(true);
    put(node.constant);
    number(node.terms.size());
    for (const SymTerm& term : node.terms) {
      put(term.coefficient);
      put(SymExprAccess::make(term.monomial));
    }
  } else if (node.kind == SymExpr::Kind::Product) {
    put(false);
    number(node.factors.size());
    for (const SymNodePtr& factor : node.factors) put(SymExprAccess::make(factor));
  } else {
    (*this)(node.left, node.right);
  }
  exprs_.emplace(expr, exprs_.size());
}

void ArchiveReader::get(SymExpr& expr) {
  const std::uint64_t tag = number();
  if (tag == kConstant) {
    std::int64_t value = 0;
    get(value);
    expr = value;
    return;
  }
  if (tag == kKnown) {
    const std::uint64_t known = number();
    if (known >= exprs_.size()) fail();
    expr = exprs_[known];
    return;
  }
  if (tag <= kFirstKind || tag > kLastKind) fail();
  const auto kind = static_cast<SymExpr::Kind>(tag - kFirstKind);
  // A monomial, or one of its factors.
  const auto node = [this](bool is_factor) {
    SymExpr read;
    get(read);
    if (read.is_constant() || has_terms(*SymExprAccess::node(read))) fail();
    if (is_factor && read.kind() == SymExpr::Kind::Product) fail();
    return SymExprAccess::node(read);
  };
  bool terms = false;
  if (kind == SymExpr::Kind::Sum || kind == SymExpr::Kind::Product) get(terms);
  if (kind == SymExpr::Kind::Symbol) {
    Symbol symbol;
    get(symbol);
    if (symbol.kind > Symbol::Kind::Temp) fail();
    expr = symbol;
  } else if (terms) {
    std::int64_t constant = 0;
    get(constant);
    SumBuilder sum;
    sum.add(constant);
    for (std::size_t left = count(); left != 0; --left) {
      std::int64_t coefficient = 0;
      get(coefficient);
      sum.add(coefficient, node(false));
    }
    expr = sum.finish();
  } else if (kind == SymExpr::Kind::Product) {
    std::vector<SymNodePtr> factors(count());
    if (factors.size() < 2) fail();
    for (SymNodePtr& factor : factors) factor = node(true);
    expr = SymExprAccess::make(make_monomial(std::move(factors)));
  } else {
    SymExpr left, right;
    (*this)(left, right);
    expr = make_atom(kind, std::move(left), std::move(right));
  }
  exprs_.push_back(expr);
}

void fields(ArchiveWriter& archive, const Facts& facts) {
  archive(facts.sizes_positive, facts.ranges());
}

void fields(ArchiveReader& archive, Facts& facts) {
  std::map<Symbol, Facts::Range> ranges;
  archive(facts.sizes_positive, ranges);
  for (auto& [symbol, range] : ranges) facts.set_range(symbol, std::move(range));
}

}  // namespace heddle::base
