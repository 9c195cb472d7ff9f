#include "jit/lower/copies.h"

#include <utility>

#include "jit/lower/nest_rewrite.h"
#include "jit/lower/nest_scalars.h"

namespace heddle::jit {

Stmt copy_of(NestBuilder& builder, const Stmt& statement, CopyNames& names) {
  Block one{statement};
  substitute(one, names.symbols, builder.facts());
  Stmt made = std::move(one[0]);
  std::visit(
      [&](auto& node) {
        visit_uses(node, [&](ScalarId& id) {
          if (const auto found = names.scalars.find(id); found != names.scalars.end())
            id = found->second;
        });
        if constexpr (requires { node.result; })
          node.result = names.scalars[node.result] = builder.fresh_scalar();
      },
      made.node);
  if (auto* bind = std::get_if<BindStmt>(&made.node)) {
    const SymExpr place =
        builder.bind({bind->operand, DType::I64}, bind->low, bind->high, bind->check, bind->mask);
    names.symbols[std::exchange(bind->symbol, place.symbol())] = place;
    builder.nest().body.pop_back();
  }
  return made;
}

Block copy_of(NestBuilder& builder, const Block& block, CopyNames names) {
  Block made;
  for (const Stmt& statement : block) made.push_back(copy_of(builder, statement, names));
  return made;
}

}  // namespace heddle::jit
