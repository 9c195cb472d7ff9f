// Copies of statements with names of their own.
#pragma once

#include <map>

#include "jit/nest_builder.h"

namespace heddle::jit {

/// What a copy calls the scalars and symbols of its original.
struct CopyNames {
  std::map<ScalarId, ScalarId> scalars;
  base::SymbolExprs symbols;
};

/// A copy of a statement other than a loop or a branch. What it defines gets a new name, which goes into `names`; what it uses is
/// called as those say, or as in the original.
Stmt copy_of(NestBuilder& builder, const Stmt& statement, CopyNames& names);

/// A copy of statements other than loops and branches.
Block copy_of(NestBuilder& builder, const Block& block, CopyNames names);

}  // namespace heddle::jit
