#include "jit/lower/narrowing.h"

#include <algorithm>
#include <set>

#include "jit/lower/nest_scalars.h"

namespace heddle::jit {
namespace {

std::vector<ScalarId> uses_of(Stmt& statement) {
  std::vector<ScalarId> uses;
  std::visit([&](auto& node) { visit_uses(node, [&](ScalarId id) { uses.push_back(id); }); },
             statement.node);
  return uses;
}

/// The result of what computes one value of others.
std::optional<ScalarId> made_by(const Stmt& statement) {
  if (const auto* apply = std::get_if<ApplyStmt>(&statement.node)) return apply->result;
  if (const auto* convert = std::get_if<ConvertStmt>(&statement.node)) return convert->result;
  return std::nullopt;
}

bool has_blocks(const Stmt& statement) {
  return std::holds_alternative<ForStmt>(statement.node) ||
         std::holds_alternative<IfStmt>(statement.node);
}

DType dtype_of(const Block& body, ScalarId load) {
  for (const Stmt& statement : body)
    if (const auto* found = std::get_if<LoadStmt>(&statement.node);
        found != nullptr && found->result == load)
      return found->dtype;
  return DType::Bool;
}

/// The narrowest value that `body` makes of that of `load` and of constants by converting.
std::optional<std::size_t> narrowest(Block& body, ScalarId load) {
  std::set<ScalarId> constants;
  std::set<ScalarId> values{load};
  std::optional<std::size_t> found;
  std::size_t least = size_of(dtype_of(body, load));
  for (std::size_t k = 0; k < body.size(); ++k) {
    if (const auto* number = std::get_if<ConstStmt>(&body[k].node))
      constants.insert(number->result);
    const std::optional<ScalarId> made = made_by(body[k]);
    if (!made) continue;
    const std::vector<ScalarId> uses = uses_of(body[k]);
    const auto is_value = [&](ScalarId id) { return values.contains(id); };
    const bool is_of_load =
        std::ranges::any_of(uses, is_value) && std::ranges::all_of(uses, [&](ScalarId id) {
          return is_value(id) || constants.contains(id);
        });
    if (!is_of_load) continue;
    values.insert(*made);
    const auto* convert = std::get_if<ConvertStmt>(&body[k].node);
    if (convert == nullptr || convert->dtype == DType::Bool || size_of(convert->dtype) >= least)
      continue;
    least = size_of(convert->dtype);
    found = k;
  }
  return found;
}

}  // namespace

std::optional<Narrowing> take_narrowing(Block& body, ScalarId load) {
  if (std::ranges::any_of(body, has_blocks)) return std::nullopt;
  const std::optional<std::size_t> last = narrowest(body, load);
  if (!last) return std::nullopt;
  // What it is made of, from the last statement to the first.
  std::set<ScalarId> needed{*made_by(body[*last])};
  std::vector<bool> is_taken(body.size(), false);
  for (std::size_t k = *last + 1; k-- > 0;) {
    const std::optional<ScalarId> made = made_by(body[k]);
    if (!made || !needed.contains(*made)) continue;
    is_taken[k] = true;
    for (const ScalarId id : uses_of(body[k])) needed.insert(id);
  }
  const ScalarId result = *made_by(body[*last]);
  std::set<ScalarId> inner{load};
  for (std::size_t k = 0; k < *last; ++k)
    if (is_taken[k]) inner.insert(*made_by(body[k]));
  for (std::size_t k = 0; k < body.size(); ++k)
    for (const ScalarId id : uses_of(body[k]))
      if (!is_taken[k] && inner.contains(id)) return std::nullopt;
  Narrowing taken{{}, result, std::get<ConvertStmt>(body[*last].node).dtype};
  Block rest;
  for (std::size_t k = 0; k < body.size(); ++k)
    (is_taken[k] ? taken.statements : rest).push_back(std::move(body[k]));
  body = std::move(rest);
  return taken;
}

Block take_constants(Block& body) {
  const auto is_constant = [](const Stmt& statement) {
    return std::holds_alternative<ConstStmt>(statement.node);
  };
  Block constants;
  std::ranges::copy_if(body, std::back_inserter(constants), is_constant);
  std::erase_if(body, is_constant);
  return constants;
}

}  // namespace heddle::jit
