#include "ir/environment.h"

namespace heddle::ir {

std::shared_ptr<ShapeEnv> environment_of(const Graph& graph) {
  auto env = std::make_shared<ShapeEnv>();
  env->assumptions.assign(graph.assumptions().begin(), graph.assumptions().end());
  env->next_unbacked_ = graph.next_unbacked_symbol();
  return env;
}

}  // namespace heddle::ir
