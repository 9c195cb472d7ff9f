// The recipes of ops that are loop nests of their own.
#pragma once

#include "jit/lower/nest_context.h"

namespace heddle::jit {

extern const NestRecipe kMatmulRecipe;

}  // namespace heddle::jit
