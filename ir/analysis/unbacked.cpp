#include "ir/analysis/unbacked.h"

#include <algorithm>

namespace heddle::ir {

std::vector<base::Symbol> unbacked_defined(const Node& node) {
  std::vector<base::Symbol> symbols;
  for (const TensorMeta& meta : node.outputs())
    for (const SymExpr& size : meta.sizes) size.collect_symbols(symbols);
  std::erase_if(symbols,
                [](const base::Symbol& s) { return s.kind != base::Symbol::Kind::Unbacked; });
  if (symbols.empty()) return symbols;
  std::vector<base::Symbol> known;
  for (const Value& input : node.inputs())
    if (input)
      for (const SymExpr& size : input.meta().sizes) size.collect_symbols(known);
  for (const auto& [name, attr] : node.attrs()) {
    if (const auto* size = std::get_if<SymExpr>(&attr)) size->collect_symbols(known);
    if (const auto* sizes = std::get_if<Dims>(&attr))
      for (const SymExpr& size : *sizes) size.collect_symbols(known);
  }
  std::erase_if(symbols,
                [&](const base::Symbol& s) { return std::ranges::binary_search(known, s); });
  return symbols;
}

}  // namespace heddle::ir
