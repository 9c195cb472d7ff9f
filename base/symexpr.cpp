// Canonical form: construction, order, addition and multiplication.
#include "base/symexpr.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/hash.h"
#include "base/symexpr_node.h"

namespace heddle::base {
namespace {

/// Products of sums with more terms than this stay undistributed.
constexpr std::size_t kMaxDistributedTerms = 256;

SymNode symbol_node(Symbol symbol) {
  SymNode node;
  node.kind = SymExpr::Kind::Symbol;
  node.symbol = symbol;
  node.hash = combine(static_cast<std::uint64_t>(symbol.kind), symbol.id);
  node.symbols = symbol_bit(symbol);
  node.symbol_kinds = kind_bit(symbol.kind);
  node.own_bits = symbol.id < kOwnBits;
  return node;
}

constexpr std::uint32_t kCachedIds = 64;
constexpr std::uint32_t kSymbolKinds = 4;

/// Nodes of the common symbols, which live as long as the process.
const SymNode& cached_symbol(Symbol symbol) {
  static const auto* const kNodes = [] {
    auto* nodes = new std::array<SymNode, kCachedIds * kSymbolKinds>;
    for (std::uint32_t i = 0; i < nodes->size(); ++i) {
      (*nodes)[i] = symbol_node({static_cast<Symbol::Kind>(i / kCachedIds), i % kCachedIds});
    }
    return nodes;
  }();
  return (*kNodes)[static_cast<std::size_t>(symbol.kind) * kCachedIds + symbol.id];
}

SymNodePtr find_symbol(Symbol symbol) {
  // Without an owner: copies of the pointer count no references.
  if (symbol.id < kCachedIds) return {std::shared_ptr<const SymNode>(), &cached_symbol(symbol)};
  return std::make_shared<const SymNode>(symbol_node(symbol));
}

std::uint64_t start_hash(SymExpr::Kind kind, std::int64_t constant) {
  return combine(static_cast<std::uint64_t>(kind) + 100, static_cast<std::uint64_t>(constant));
}

SymExpr from_sorted_terms(std::int64_t constant, std::vector<SymTerm> terms) {
  if (terms.empty()) return constant;
  const bool is_term = constant == 0 && terms.size() == 1;
  if (is_term && terms[0].coefficient == 1) return SymExprAccess::make(terms[0].monomial);
  auto node = std::make_shared<SymNode>();
  node->kind = is_term ? SymExpr::Kind::Product : SymExpr::Kind::Sum;
  node->constant = constant;
  node->hash = start_hash(node->kind, constant);
  for (const SymTerm& term : terms) {
    node->hash = combine(combine(node->hash, static_cast<std::uint64_t>(term.coefficient)),
                         term.monomial->hash);
    node->symbols |= term.monomial->symbols;
    node->symbol_kinds |= term.monomial->symbol_kinds;
    node->own_bits = node->own_bits && term.monomial->own_bits;
    node->depth = std::max(node->depth, term.monomial->depth);
    node->weight = std::min(node->weight + term.monomial->weight, kMostWeight);
  }
  node->terms = std::move(terms);
  return SymExprAccess::make(std::move(node));
}

/// a + scale * b in one merge.
SymExpr add_scaled(const SymExpr& a, const SymExpr& b, std::int64_t scale) {
  const Polynomial left(a);
  const Polynomial right(b);
  std::vector<SymTerm> terms;
  terms.reserve(left.terms().size() + right.terms().size());
  auto l = left.terms().begin();
  auto r = right.terms().begin();
  while (l != left.terms().end() || r != right.terms().end()) {
    int order = 0;
    if (l == left.terms().end()) {
      order = 1;
    } else if (r == right.terms().end()) {
      order = -1;
    } else {
      order = compare_monomials(*l->monomial, *r->monomial);
    }
    const std::int64_t from_left = order <= 0 ? l->coefficient : 0;
    const std::int64_t from_right = order >= 0 ? checked_multiply(r->coefficient, scale) : 0;
    const std::int64_t coefficient = checked_add(from_left, from_right);
    if (coefficient != 0) terms.push_back({coefficient, order <= 0 ? l->monomial : r->monomial});
    if (order <= 0) ++l;
    if (order >= 0) ++r;
  }
  const std::int64_t constant =
      checked_add(left.constant(), checked_multiply(right.constant(), scale));
  return from_sorted_terms(constant, std::move(terms));
}

SymExpr scale_by(const SymExpr& expr, std::int64_t scale) {
  if (scale == 1) return expr;
  if (scale == 0) return 0;
  const Polynomial polynomial(expr);
  std::vector<SymTerm> terms(polynomial.terms().begin(), polynomial.terms().end());
  for (SymTerm& term : terms) term.coefficient = checked_multiply(term.coefficient, scale);
  return from_sorted_terms(checked_multiply(polynomial.constant(), scale), std::move(terms));
}

void multiply_into(SumBuilder& sum, const Polynomial& a, const Polynomial& b) {
  for (const SymTerm& l : a.terms()) {
    for (const SymTerm& r : b.terms()) {
      sum.add(checked_multiply(l.coefficient, r.coefficient),
              multiply_monomials(l.monomial, r.monomial));
    }
    if (b.constant() != 0) sum.add(checked_multiply(l.coefficient, b.constant()), l.monomial);
  }
  if (a.constant() == 0) return;
  for (const SymTerm& r : b.terms()) {
    sum.add(checked_multiply(a.constant(), r.coefficient), r.monomial);
  }
  sum.add(checked_multiply(a.constant(), b.constant()));
}

}  // namespace

Polynomial::Polynomial(const SymExpr& expr) : constant_(SymExprAccess::constant(expr)) {
  const SymNodePtr& node = SymExprAccess::node(expr);
  if (node == nullptr) return;
  constant_ = node->constant;
  terms_ = node->terms;
  if (!terms_.empty()) return;
  single_ = {1, node};
  terms_ = std::span<const SymTerm>(&single_, 1);
}

void SumBuilder::add(std::int64_t coefficient, SymNodePtr monomial) {
  terms_.push_back({coefficient, std::move(monomial)});
}

void SumBuilder::add(const SymExpr& expr, std::int64_t scale) {
  const Polynomial polynomial(expr);
  add(checked_multiply(polynomial.constant(), scale));
  for (const SymTerm& term : polynomial.terms()) {
    add(checked_multiply(term.coefficient, scale), term.monomial);
  }
}

SymExpr SumBuilder::finish() {
  const auto before = [](const SymTerm& a, const SymTerm& b) {
    return compare_monomials(*a.monomial, *b.monomial) < 0;
  };
  if (!std::is_sorted(terms_.begin(), terms_.end(), before)) {
    std::sort(terms_.begin(), terms_.end(), before);
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < terms_.size();) {
    SymTerm term = std::move(terms_[i++]);
    while (i < terms_.size() && compare_monomials(*term.monomial, *terms_[i].monomial) == 0) {
      term.coefficient = checked_add(term.coefficient, terms_[i++].coefficient);
    }
    if (term.coefficient != 0) terms_[kept++] = std::move(term);
  }
  terms_.resize(kept);
  return from_sorted_terms(constant_, std::move(terms_));
}

std::span<const SymNodePtr> factors_of(const SymNodePtr& monomial) {
  if (monomial->kind == SymExpr::Kind::Product) return monomial->factors;
  return {&monomial, 1};
}

SymNodePtr make_monomial(std::vector<SymNodePtr> factors) {
  if (factors.size() == 1) return std::move(factors.front());
  auto node = std::make_shared<SymNode>();
  node->kind = SymExpr::Kind::Product;
  node->hash = start_hash(node->kind, 1);
  for (const SymNodePtr& factor : factors) {
    node->hash = combine(node->hash, factor->hash);
    node->symbols |= factor->symbols;
    node->symbol_kinds |= factor->symbol_kinds;
    node->own_bits = node->own_bits && factor->own_bits;
    node->depth = std::max(node->depth, factor->depth);
    node->weight = std::min(node->weight + factor->weight, kMostWeight);
  }
  node->factors = std::move(factors);
  return node;
}

SymNodePtr multiply_monomials(const SymNodePtr& a, const SymNodePtr& b) {
  const auto left = factors_of(a);
  const auto right = factors_of(b);
  std::vector<SymNodePtr> factors(left.size() + right.size());
  std::merge(left.begin(), left.end(), right.begin(), right.end(), factors.begin(),
             [](const SymNodePtr& x, const SymNodePtr& y) { return compare_atoms(*x, *y) < 0; });
  return make_monomial(std::move(factors));
}

SymExpr make_term(std::int64_t coefficient, const SymNodePtr& monomial) {
  if (coefficient == 0) return 0;
  return from_sorted_terms(0, {{coefficient, monomial}});
}

SymExpr make_atom(SymExpr::Kind kind, SymExpr left, SymExpr right) {
  auto node = std::make_shared<SymNode>();
  node->kind = kind;
  node->hash = combine(start_hash(kind, 0), combine(left.hash(), right.hash()));
  for (const SymExpr* side : {&left, &right}) {
    node->symbols |= symbol_bits(*side);
    node->symbol_kinds |= symbol_kinds(*side);
    if (!side->is_constant()) {
      const SymNode& inside = *SymExprAccess::node(*side);
      node->depth = std::max(node->depth, inside.depth);
      node->weight = std::min(node->weight + inside.weight, kMostWeight);
      node->own_bits = node->own_bits && inside.own_bits;
    }
  }
  ++node->depth;
  node->left = std::move(left);
  node->right = std::move(right);
  return SymExprAccess::make(std::move(node));
}

int compare_atoms(const SymNode& a, const SymNode& b) {
  if (&a == &b) return 0;
  if (a.kind != b.kind) return a.kind < b.kind ? -1 : 1;
  if (a.kind == SymExpr::Kind::Symbol) {
    return a.symbol == b.symbol ? 0 : (a.symbol < b.symbol ? -1 : 1);
  }
  if (a.kind == SymExpr::Kind::Sum) {
    // A factor that was too large to distribute.
    const SymNodePtr left(SymNodePtr(), &a);
    const SymNodePtr right(SymNodePtr(), &b);
    return SymExpr::compare(SymExprAccess::make(left), SymExprAccess::make(right));
  }
  if (const int order = SymExpr::compare(a.left, b.left); order != 0) return order;
  return SymExpr::compare(a.right, b.right);
}

int compare_monomials(const SymNode& a, const SymNode& b) {
  if (&a == &b) return 0;
  const bool a_product = a.kind == SymExpr::Kind::Product;
  const bool b_product = b.kind == SymExpr::Kind::Product;
  if (!a_product && !b_product) return compare_atoms(a, b);
  const std::size_t a_degree = a_product ? a.factors.size() : 1;
  const std::size_t b_degree = b_product ? b.factors.size() : 1;
  if (a_degree != b_degree) return a_degree > b_degree ? -1 : 1;
  for (std::size_t i = 0; i < a_degree; ++i) {
    if (const int order = compare_atoms(*a.factors[i], *b.factors[i]); order != 0) return order;
  }
  return 0;
}

SymExpr::SymExpr(Symbol symbol) : node_(find_symbol(symbol)) {}
SymExpr::SymExpr(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
SymExpr SymExpr::size(std::uint32_t id) { return Symbol{Symbol::Kind::Size, id}; }
SymExpr SymExpr::unbacked(std::uint32_t id) { return Symbol{Symbol::Kind::Unbacked, id}; }
SymExpr SymExpr::axis(std::uint32_t id) { return Symbol{Symbol::Kind::Axis, id}; }
SymExpr SymExpr::temp(std::uint32_t id) { return Symbol{Symbol::Kind::Temp, id}; }

SymExpr::Kind SymExpr::kind() const { return node_ == nullptr ? Kind::Constant : node_->kind; }
bool SymExpr::is_symbol() const { return kind() == Kind::Symbol; }

std::int64_t SymExpr::constant() const {
  HD_CHECK(is_constant(), to_string());
  return constant_;
}

std::optional<std::int64_t> SymExpr::as_constant() const {
  if (!is_constant()) return std::nullopt;
  return constant_;
}

Symbol SymExpr::symbol() const {
  HD_CHECK(is_symbol(), to_string());
  return node_->symbol;
}

std::uint64_t SymExpr::hash() const {
  return node_ == nullptr ? start_hash(Kind::Constant, constant_) : node_->hash;
}

bool operator==(const SymExpr& a, const SymExpr& b) {
  if (a.node_ == b.node_) return a.node_ != nullptr || a.constant_ == b.constant_;
  if (a.node_ == nullptr || b.node_ == nullptr || a.node_->hash != b.node_->hash) return false;
  return SymExpr::compare(a, b) == 0;
}

int SymExpr::compare(const SymExpr& a, const SymExpr& b) {
  if (a.node_ == b.node_ && a.node_ != nullptr) return 0;
  const Polynomial left(a);
  const Polynomial right(b);
  const std::size_t common = std::min(left.terms().size(), right.terms().size());
  for (std::size_t i = 0; i < common; ++i) {
    const SymTerm& l = left.terms()[i];
    const SymTerm& r = right.terms()[i];
    if (const int order = compare_monomials(*l.monomial, *r.monomial); order != 0) return order;
    if (l.coefficient != r.coefficient) return l.coefficient < r.coefficient ? -1 : 1;
  }
  if (left.terms().size() != right.terms().size()) return left.terms().size() > common ? -1 : 1;
  if (left.constant() == right.constant()) return 0;
  return left.constant() < right.constant() ? -1 : 1;
}

SymExpr operator+(const SymExpr& a, const SymExpr& b) {
  if (a.is_constant() && b.is_constant()) return checked_add(a.constant_, b.constant_);
  if (b.is_constant(0)) return a;
  if (a.is_constant(0)) return b;
  return add_scaled(a, b, 1);
}

SymExpr operator-(const SymExpr& a, const SymExpr& b) {
  if (b.is_constant(0)) return a;
  if (a.is_constant() && b.is_constant()) {
    std::int64_t difference = 0;
    if (__builtin_sub_overflow(a.constant_, b.constant_, &difference)) throw_size_overflow();
    return difference;
  }
  return add_scaled(a, b, -1);
}

SymExpr operator-(const SymExpr& a) { return scale_by(a, -1); }

SymExpr operator*(const SymExpr& a, const SymExpr& b) {
  if (a.is_constant() && b.is_constant()) return checked_multiply(a.constant_, b.constant_);
  if (a.is_constant()) return scale_by(b, a.constant_);
  if (b.is_constant()) return scale_by(a, b.constant_);
  const bool both_sums = a.kind() == SymExpr::Kind::Sum && b.kind() == SymExpr::Kind::Sum;
  if (both_sums && a.node_->terms.size() * b.node_->terms.size() > kMaxDistributedTerms) {
    return make_term(1, multiply_monomials(a.node_, b.node_));
  }
  const Polynomial left(a);
  const Polynomial right(b);
  SumBuilder sum;
  sum.reserve((left.terms().size() + 1) * (right.terms().size() + 1));
  multiply_into(sum, left, right);
  return sum.finish();
}

}  // namespace heddle::base
