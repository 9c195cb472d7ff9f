// What the annotation "name" says.
#pragma once

#include <string>

#include "ir/graph.h"

namespace heddle::ir {

/// The text of the annotation "name", which names of nodes begin with; empty without one.
std::string scope_name(const Annotations& annotations);

/// The op of `node` in errors: "gather", and in a scope with a name "lookup: gather".
std::string spoken_op(const Node& node);

}  // namespace heddle::ir
