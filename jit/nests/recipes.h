// The list of nest recipes: what each file of this folder offers. find_recipe() reads it.
#pragma once

#include <span>

#include "jit/lower/nest_context.h"

namespace heddle::jit {

/// Every recipe, in no particular order.
std::span<const NestRecipe> all_recipes();

}  // namespace heddle::jit
