// Canonical numbers for everything a nest names.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/check.h"
#include "base/size_names.h"
#include "jit/lower/nest_rewrite.h"
#include "jit/lower/nest_scalars.h"

namespace heddle::jit {
namespace {

class Renumberer {
 public:
  explicit Renumberer(Nest& nest) : nest_(nest) {}

  Renumbering run(const std::vector<SymExpr>& sizes_first) {
    number_buffers();
    name_sizes();
    for (const SymExpr& size : sizes_first) note_if_used(size);
    note(nest_.parallel_extent);
    symbols_.emplace(nest_.parallel_axis, SymExpr::axis(axes_++));
    for (const NestBuffer& buffer : nest_.buffers) note(buffer.count);
    number(nest_.body);
    note(nest_.work);
    number_forms();
    apply();
    return std::move(result_);
  }

 private:
  // Buffers.
  void number_buffers() {
    collect_accesses(nest_.body);
    std::vector<NestBuffer> kept;
    for (const auto scope : {NestBuffer::Scope::Global, NestBuffer::Scope::Local}) {
      std::uint32_t count = 0;
      for (const NestBufferId old : accessed_) {
        if (nest_.buffers[old].scope != scope) continue;
        buffers_[old] = static_cast<NestBufferId>(kept.size());
        if (scope == NestBuffer::Scope::Global) result_.globals.push_back(old);
        kept.push_back(std::move(nest_.buffers[old]));
        kept.back().name =
            (scope == NestBuffer::Scope::Global ? "b" : "l") + std::to_string(count++);
        kept.back().read = reads_.count(old) != 0;
        kept.back().written = writes_.count(old) != 0;
      }
    }
    nest_.buffers = std::move(kept);
  }
  void access(NestBufferId id, bool read, bool write) {
    if (read) reads_.insert(id);
    if (write) writes_.insert(id);
    if (std::find(accessed_.begin(), accessed_.end(), id) == accessed_.end())
      accessed_.push_back(id);
  }
  void collect(const LoadStmt& s) { access(s.buffer, true, false); }
  void collect(const StoreStmt& s) { access(s.buffer, s.combine.has_value(), true); }
  void collect(const ContractStmt& s) {
    access(s.a.buffer, true, false);
    access(s.b.buffer, true, false);
    if (s.b.windows && s.b.windows->outside) access(s.b.windows->outside->buffer, true, false);
    if (s.b.dequantised)
      for_each_part(*s.b.dequantised,
                    [&](const Dequantised::Part& part) { access(part.buffer, true, false); });
    access(s.acc, s.accumulate, true);
  }
  void collect(const IfStmt& s) { collect_accesses(*s.body); }
  void collect(const ForStmt& s) { collect_accesses(*s.body); }
  void collect(const auto&) {}
  void collect_accesses(const Block& block) {
    for (const Stmt& statement : block)
      std::visit([&](const auto& node) { collect(node); }, statement.node);
  }
  void rename(LoadStmt& s) { s.buffer = buffers_.at(s.buffer); }
  void rename(StoreStmt& s) { s.buffer = buffers_.at(s.buffer); }
  void rename(ContractStmt& s) {
    for (NestBufferId* id : {&s.acc, &s.a.buffer, &s.b.buffer}) *id = buffers_.at(*id);
    if (s.b.windows && s.b.windows->outside)
      s.b.windows->outside->buffer = buffers_.at(s.b.windows->outside->buffer);
    if (s.b.dequantised)
      for_each_part(*s.b.dequantised,
                    [&](Dequantised::Part& part) { part.buffer = buffers_.at(part.buffer); });
  }
  void rename(auto&) {}

  // What the nest sees of sizes becomes its parameters.
  void name_sizes() {
    collect_defined(nest_.body);
    defined_.insert(nest_.parallel_axis);
    std::vector<SymExpr> all;
    for_each_mention([&](const SymExpr& expr) {
      if (!expr.is_constant()) all.push_back(expr);
    });
    for (const auto& [symbol, range] : nest_.facts.ranges()) {
      if (!defined_.contains(symbol)) continue;
      for (const auto* end : {&range.low, &range.high})
        if (*end) all.push_back(**end);
    }
    const SymExpr least = nest_.facts.sizes_positive ? 1 : 0;
    names_.emplace(all, [&](const SymExpr& size) {
      return base::provably_nonnegative(size - least, nest_.facts);
    });
    if (!names_->empty()) for_each_mention([&](SymExpr& expr) { expr = names_->renamed(expr); });
  }
  /// All expressions but those of facts.
  template <typename F>
  void for_each_mention(F&& visit) {
    for_each_expr(nest_.body, visit);
    visit(nest_.parallel_extent);
    visit(nest_.work);
    for (NestBuffer& buffer : nest_.buffers) visit(buffer.count);
    if (nest_.product)
      for (SymExpr* size : sizes_of(*nest_.product)) visit(*size);
    if (nest_.attention)
      for (SymExpr* size : sizes_of(*nest_.attention)) visit(*size);
  }
  void collect_defined(const Block& block) {
    for (const Stmt& statement : block) {
      std::visit(
          [&](const auto& node) {
            if constexpr (requires { node.axis; }) defined_.insert(node.axis);
            if constexpr (requires { node.symbol; }) defined_.insert(node.symbol);
            if constexpr (requires { node.body; }) collect_defined(*node.body);
          },
          statement.node);
    }
  }

  // Symbols and scalars, in order of appearance.
  void note_if_used(const SymExpr& expr) {
    if (used_sizes_.empty()) collect_used_sizes();
    std::vector<Symbol> found;
    names_->renamed(expr).collect_symbols(found);
    for (const Symbol& symbol : found)
      if (used_sizes_.count(symbol) != 0) note(SymExpr(symbol));
  }
  void collect_used_sizes() {
    std::vector<SymExpr> all = expressions_of(nest_.body);
    all.push_back(nest_.parallel_extent);
    for (const NestBuffer& buffer : nest_.buffers) all.push_back(buffer.count);
    for (const SymExpr& expr : all) {
      std::vector<Symbol> found;
      expr.collect_symbols(found);
      used_sizes_.insert(found.begin(), found.end());
    }
  }
  void note(const SymExpr& expr) {
    std::vector<Symbol> found;
    expr.collect_symbols(found);
    for (const Symbol& symbol : found) {
      if (symbol.kind != Symbol::Kind::Size && symbol.kind != Symbol::Kind::Unbacked) continue;
      const auto next = static_cast<std::uint32_t>(result_.sizes.size());
      if (symbols_.emplace(symbol, SymExpr::size(next)).second)
        result_.sizes.push_back(names_->meaning(symbol));
    }
  }
  void define(ScalarId id) { scalars_.emplace(id, next_scalar_++); }

  void number(IfStmt& s) { number(*s.body); }
  void number(ForStmt& s) {
    symbols_.emplace(s.axis, SymExpr::axis(axes_++));
    note(s.extent);
    for (const LoopCarried& carried : s.carried) define(carried.current);
    number(*s.body);
    visit_definitions(s, [&](ScalarId id) { define(id); });
  }
  void number(BindStmt& s) {
    note(s.low);
    note(s.high);
    symbols_.emplace(s.symbol, SymExpr::temp(temps_++));
  }
  void number(auto& node) {
    visit_exprs(node, [&](SymExpr& expr) { note(expr); });
    visit_definitions(node, [&](ScalarId id) { define(id); });
  }
  void number(Block& block) {
    for (Stmt& statement : block) std::visit([&](auto& node) { number(node); }, statement.node);
  }

  static std::vector<SymExpr*> sizes_of(ProductForm& form) {
    std::vector<SymExpr*> sizes = {&form.batches, &form.rows, &form.columns};
    if (auto& groups = form.groups)
      sizes.insert(sizes.end(), {&groups->offset, &groups->stride, &groups->count, &groups->depth});
    return sizes;
  }
  static std::vector<SymExpr*> sizes_of(AttentionForm& form) {
    return {&form.batches, &form.heads, &form.key_heads, &form.queries, &form.keys};
  }
  static std::vector<Symbol*> places_of(ProductForm& form) {
    std::vector<Symbol*> places = {&form.batch, &form.row_begin, &form.column_begin};
    if (form.groups) places.insert(places.end(), {&form.groups->row_end, &form.groups->products});
    return places;
  }
  static std::vector<Symbol*> places_of(AttentionForm& form) {
    return {&form.batch, &form.head, &form.row_begin};
  }
  void number_forms() {
    if (nest_.product) number_form(*nest_.product);
    if (nest_.attention) number_form(*nest_.attention);
  }
  void number_form(auto& form) {
    for (const SymExpr* expr : sizes_of(form)) note(*expr);
    for (const Symbol* symbol : places_of(form))
      if (symbols_.emplace(*symbol, SymExpr::temp(temps_)).second) ++temps_;  // nothing asks for it
  }

  // Applying the numbers.
  void apply() {
    apply(nest_.body);
    for_each_expr(nest_.body, [&](SymExpr& expr) { expr = expr.substitute(symbols_); });
    nest_.parallel_extent = nest_.parallel_extent.substitute(symbols_);
    nest_.work = nest_.work.substitute(symbols_);
    for (NestBuffer& buffer : nest_.buffers) buffer.count = buffer.count.substitute(symbols_);
    nest_.parallel_axis = symbols_.at(nest_.parallel_axis).symbol();
    if (nest_.product) apply_to_form(*nest_.product);
    if (nest_.product && nest_.product->groups)
      nest_.product->groups->ends = buffers_.at(nest_.product->groups->ends);
    if (nest_.attention) {
      apply_to_form(*nest_.attention);
      nest_.attention->totals = buffers_.at(nest_.attention->totals);
    }
    nest_.size_count = static_cast<std::uint32_t>(result_.sizes.size());
    renumber_facts();
  }
  void apply_to_form(auto& form) const {
    for (SymExpr* expr : sizes_of(form)) *expr = expr->substitute(symbols_);
    for (Symbol* symbol : places_of(form)) *symbol = symbols_.at(*symbol).symbol();
  }
  void renumber_facts() {
    base::Facts facts;
    facts.sizes_positive = nest_.facts.sizes_positive;
    for (const auto& [symbol, range] : nest_.facts.ranges()) {
      // What was assumed of sizes has done its work; emitters read the ranges of axes.
      if (symbol.kind != Symbol::Kind::Axis && symbol.kind != Symbol::Kind::Temp) continue;
      const auto found = symbols_.find(symbol);
      if (found == symbols_.end()) continue;
      base::Facts::Range renamed;
      if (range.low) renamed.low = names_->renamed(*range.low).substitute(symbols_);
      if (range.high) renamed.high = names_->renamed(*range.high).substitute(symbols_);
      facts.set_range(found->second.symbol(), std::move(renamed));
    }
    nest_.facts = std::move(facts);
  }
  void apply(Block& block) {
    for (Stmt& statement : block) std::visit([&](auto& node) { apply_to(node); }, statement.node);
  }
  void apply_to(auto& node) {
    const auto translate = [&](ScalarId& id) { id = scalars_.at(id); };
    visit_uses(node, translate);
    visit_definitions(node, translate);
    rename(node);
    if constexpr (requires { node.symbol; }) node.symbol = symbols_.at(node.symbol).symbol();
    if constexpr (requires { node.carried; }) {
      visit_loop_exits(node, translate);
      for (LoopCarried& carried : node.carried) translate(carried.current);
      node.axis = symbols_.at(node.axis).symbol();
    }
    if constexpr (requires { node.body; }) apply(*node.body);
  }

  Nest& nest_;
  Renumbering result_;
  std::vector<NestBufferId> accessed_;
  std::set<NestBufferId> reads_, writes_;
  std::map<NestBufferId, NestBufferId> buffers_;
  std::set<Symbol> defined_;  ///< axes and temporaries
  std::optional<base::SizeNames> names_;
  std::set<Symbol> used_sizes_;
  base::SymbolExprs symbols_;
  std::map<ScalarId, ScalarId> scalars_;
  std::uint32_t axes_ = 0, temps_ = 0, next_scalar_ = 0;
};

}  // namespace

Renumbering renumber(Nest& nest, const std::vector<SymExpr>& sizes_first) {
  return Renumberer(nest).run(sizes_first);
}

}  // namespace heddle::jit
