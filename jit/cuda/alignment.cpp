#include "jit/cuda/alignment.h"

#include <algorithm>
#include <vector>

#include "jit/cuda/scalar_text.h"
#include "jit/cuda/statement_emitter.h"

namespace heddle::jit::cuda {
namespace {

/// Whether the expression is one whatever its symbols stand for.
bool is_multiple(const SymExpr& expr, std::int64_t width) {
  switch (expr.kind()) {
    case SymExpr::Kind::Constant:
      return expr.constant() % width == 0;
    case SymExpr::Kind::Sum:
      return std::ranges::all_of(expr.operands(),
                                 [width](const SymExpr& term) { return is_multiple(term, width); });
    case SymExpr::Kind::Product:
      return std::ranges::any_of(
          expr.operands(), [width](const SymExpr& factor) { return is_multiple(factor, width); });
    default:
      return false;
  }
}

}  // namespace

void add_address_bits(std::set<std::string>& bits, const Nest& nest, NestBufferId buffer,
                      const SymExpr& first, std::int64_t width) {
  constexpr const char* kNumber = "(unsigned long long)";
  bits.insert(kNumber + buffer_name(nest, buffer));
  const auto terms =
      first.kind() == SymExpr::Kind::Sum ? first.operands() : std::vector<SymExpr>{first};
  for (const SymExpr& term : terms) {
    if (is_multiple(term, width)) continue;
    std::vector<Symbol> symbols;
    term.collect_symbols(symbols);
    base::SymbolExprs ones;
    for (const Symbol symbol : symbols)
      if (symbol.kind != Symbol::Kind::Size) ones.emplace(symbol, 1);
    bits.insert(kNumber + ("(" + index_text(term.substitute(ones), nest.facts)) + ") * " +
                std::to_string(size_of(nest.buffers[buffer].dtype)));
  }
}

std::string aligned_text(const std::set<std::string>& bits, std::int64_t bytes) {
  std::string all;
  for (const std::string& one : bits) all += (all.empty() ? "" : " | ") + one;
  return "hd_is_aligned<" + std::to_string(bytes) + ">(" + all + ")";
}

}  // namespace heddle::jit::cuda
