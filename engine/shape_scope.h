// Who decides comparisons of sizes that belong to no trace: those of shape functions.
#pragma once

#include "ir/graph.h"

namespace heddle::engine {

/// While alive, sizes without a trace are compared on this thread through `env`.
class ShapeScope {
 public:
  explicit ShapeScope(ir::ShapeEnv& env);
  ~ShapeScope();
  ShapeScope(const ShapeScope&) = delete;
  ShapeScope& operator=(const ShapeScope&) = delete;

 private:
  ir::ShapeEnv* outer_;
};

/// The innermost scope's; null outside.
ir::ShapeEnv* current_shape_env();

}  // namespace heddle::engine
