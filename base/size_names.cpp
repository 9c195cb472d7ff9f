#include "base/size_names.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "base/symexpr_node.h"

namespace heddle::base {
namespace {

using Kind = SymExpr::Kind;

/// More parts than this are not compared with each other.
constexpr std::size_t kMostParts = 256;

constexpr std::uint8_t kOfSizes = kind_bit(Symbol::Kind::Size) | kind_bit(Symbol::Kind::Unbacked);

bool is_of_sizes(const SymNode& node) { return (node.symbol_kinds & ~kOfSizes) == 0; }

/// The factors of a monomial that are sizes, as one monomial; null: none is.
SymNodePtr part_of_sizes(const SymNodePtr& monomial) {
  if (is_of_sizes(*monomial)) return monomial;
  std::vector<SymNodePtr> factors;
  for (const SymNodePtr& factor : factors_of(monomial))
    if (is_of_sizes(*factor)) factors.push_back(factor);
  return factors.empty() ? nullptr : make_monomial(std::move(factors));
}

/// Whether the host may compute it whatever the sizes are: a kernel that has no iterations divides by nothing.
bool divides_by_constants(const SymNode& node) {
  const auto holds = [](const SymNodePtr& inside) { return divides_by_constants(*inside); };
  if (!std::ranges::all_of(node.factors, holds)) return false;
  for (const SymTerm& term : node.terms)
    if (!divides_by_constants(*term.monomial)) return false;
  const bool is_division = node.kind == Kind::FloorDiv || node.kind == Kind::Mod;
  if (is_division && (!node.right.is_constant() || node.right.is_constant(0))) return false;
  for (const SymExpr* side : {&node.left, &node.right})
    if (!side->is_constant() && !divides_by_constants(*SymExprAccess::node(*side))) return false;
  return true;
}

}  // namespace

/// The parts of expressions that are sizes, monomials and atoms, and which holds which.
class SizeNames::Finder {
 public:
  void add(const SymExpr& expr) { visit(expr, kRoot); }

  /// Parts all of whose symbols are seen inside of them alone, none inside of another.
  std::vector<SymNodePtr> seen_as_one(const std::function<bool(const SymExpr&)>& may_name) const {
    std::vector<SymNodePtr> found;
    if (parts_.size() > kMostParts) return found;
    std::uint64_t inside_of_found = 0;
    // What holds a part was met before it.
    for (std::size_t k = 0; k < parts_.size(); ++k) {
      const SymNodePtr& node = parts_[k].node;
      if (node->kind == Kind::Symbol || !node->own_bits) continue;
      if ((node->symbols & (inside_of_found | symbols_without(k))) != 0) continue;
      if (!divides_by_constants(*node) || !may_name(SymExprAccess::make(node))) continue;
      inside_of_found |= node->symbols;
      found.push_back(node);
    }
    return found;
  }

 private:
  static constexpr std::size_t kRoot = ~std::size_t{0};
  struct Part {
    SymNodePtr node;
    std::vector<std::size_t> inside;
  };

  void visit(const SymExpr& expr, std::size_t from) {
    const Polynomial polynomial(expr);
    for (const SymTerm& term : polynomial.terms()) visit_monomial(term.monomial, from);
  }

  void visit_monomial(const SymNodePtr& monomial, std::size_t from) {
    if (const SymNodePtr part = part_of_sizes(monomial)) use(part, from);
    if (is_of_sizes(*monomial)) return;
    for (const SymNodePtr& factor : factors_of(monomial))
      if (!is_of_sizes(*factor)) visit_inside(*factor, from);
  }

  void visit_inside(const SymNode& atom, std::size_t from) {
    const SymNodePtr borrowed(SymNodePtr(), &atom);
    if (atom.kind == Kind::Sum) visit(SymExprAccess::make(borrowed), from);
    if (atom.kind == Kind::Symbol || atom.kind == Kind::Sum) return;
    visit(atom.left, from);
    visit(atom.right, from);
  }

  void use(const SymNodePtr& node, std::size_t from) {
    std::vector<std::size_t>& twins = by_hash_[node->hash];
    std::size_t place = kRoot;
    for (const std::size_t twin : twins)
      if (compare_monomials(*parts_[twin].node, *node) == 0) place = twin;
    if (place == kRoot) {
      place = parts_.size();
      parts_.push_back({node, {}});
      twins.push_back(place);
      if (node->kind == Kind::Product)
        for (const SymNodePtr& factor : node->factors) use(factor, place);
      else
        visit_inside(*node, place);
    }
    std::vector<std::size_t>& users = from == kRoot ? roots_ : parts_[from].inside;
    if (std::ranges::find(users, place) == users.end()) users.push_back(place);
  }

  /// Bits of the symbols that are seen without looking into part `k`.
  std::uint64_t symbols_without(std::size_t k) const {
    std::vector<bool> reached(parts_.size(), false);
    std::uint64_t symbols = 0;
    std::vector<std::size_t> pending = roots_;
    while (!pending.empty()) {
      const std::size_t part = pending.back();
      pending.pop_back();
      if (part == k || reached[part]) continue;
      reached[part] = true;
      if (parts_[part].node->kind == Kind::Symbol) symbols |= parts_[part].node->symbols;
      pending.insert(pending.end(), parts_[part].inside.begin(), parts_[part].inside.end());
    }
    return symbols;
  }

  std::vector<Part> parts_;
  std::vector<std::size_t> roots_;
  std::unordered_map<std::uint64_t, std::vector<std::size_t>> by_hash_;
};

class SizeNames::Renamer {
 public:
  explicit Renamer(std::span<const SymNodePtr> named) : named_(named.begin(), named.end()) {
    for (const SymNodePtr& node : named_) symbols_ |= node->symbols;
  }

  SymExpr run(const SymExpr& expr) {
    return with_monomials(expr, symbols_,
                          [this](const SymNodePtr& node) { return monomial(node); });
  }

 private:
  SymExpr monomial(const SymNodePtr& node) {
    const SymNodePtr part = part_of_sizes(node);
    if (part == nullptr || part->kind == Kind::Symbol) return by_factors(node);
    const auto name = name_of(*part);
    if (!name) return by_factors(node);
    SymExpr result = *name;
    if (part != node)
      for (const SymNodePtr& factor : factors_of(node))
        if (!is_of_sizes(*factor)) result *= atom(factor);
    return result;
  }

  SymExpr by_factors(const SymNodePtr& node) {
    SymExpr result = 1;
    for (const SymNodePtr& factor : factors_of(node)) result *= atom(factor);
    return result;
  }

  SymExpr atom(const SymNodePtr& node) {
    if (node->kind == Kind::Symbol || (node->symbols & symbols_) == 0)
      return SymExprAccess::make(node);
    if (node->kind == Kind::Sum) return run(SymExprAccess::make(node));
    if (const auto found = memo_.find(node.get()); found != memo_.end())
      return found->second.second;
    const auto name = is_of_sizes(*node) ? name_of(*node) : std::nullopt;
    SymExpr result =
        name ? *name : make_division(node->kind, run(node->left), run(node->right), nullptr);
    memo_.emplace(node.get(), std::pair(node, result));
    return result;
  }

  std::optional<SymExpr> name_of(const SymNode& node) const {
    for (std::size_t k = 0; k < named_.size(); ++k)
      if (named_[k]->hash == node.hash && compare_monomials(*named_[k], node) == 0)
        return SymExpr::size(kFirst + static_cast<std::uint32_t>(k));
    return std::nullopt;
  }

  std::vector<SymNodePtr> named_;
  std::uint64_t symbols_ = 0;
  /// With its key, which must live as long.
  std::unordered_map<const SymNode*, std::pair<SymNodePtr, SymExpr>> memo_;
};

SizeNames::SizeNames(std::span<const SymExpr> exprs,
                     const std::function<bool(const SymExpr&)>& may_name) {
  Finder finder;
  for (const SymExpr& expr : exprs) finder.add(expr);
  const std::vector<SymNodePtr> named = finder.seen_as_one(may_name);
  for (const SymNodePtr& node : named) meanings_.push_back(SymExprAccess::make(node));
  renamer_ = std::make_unique<Renamer>(named);
}

SizeNames::~SizeNames() = default;

SymExpr SizeNames::renamed(const SymExpr& expr) {
  return meanings_.empty() ? expr : renamer_->run(expr);
}

SymExpr SizeNames::meaning(Symbol symbol) const {
  if (symbol.kind != Symbol::Kind::Size || symbol.id < kFirst) return symbol;
  return meanings_.at(symbol.id - kFirst);
}

}  // namespace heddle::base
