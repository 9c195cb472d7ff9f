// A callable traced outside an engine, for benchmarks of what happens to its graph.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/guards.h"
#include "engine/trace.h"

namespace heddle::bench {

struct Traced {
  ir::Graph graph;
  engine::Guards guards;
};

/// The graph of `callable`, which takes and returns one tensor, for inputs such as `input`.
template <typename Callable>
Traced trace(const Callable& callable, const Tensor& input) {
  Traced traced{{}, engine::guards_for(std::span(&input, 1), {})};
  const engine::InputGuard& guard = traced.guards.inputs[0];
  auto env = std::make_shared<ir::ShapeEnv>();
  for (std::size_t d = 0; d < guard.sizes.size(); ++d)
    if (guard.sizes[d].is_symbol()) env->hints[guard.sizes[d].symbol()] = input.sizes()[d];
  const auto tracing = std::make_shared<engine::Trace>("main", env);
  {
    const engine::TraceScope scope(tracing);
    ir::TensorMeta meta = ir::TensorMeta::of(guard.dtype, guard.sizes);
    const Tensor result =
        callable(tracing->handle(tracing->builder().input(std::move(meta), {}, {})));
    tracing->builder().output(tracing->value_of(result, {}), {});
  }
  traced.guards.assumptions = env->assumptions;
  traced.graph = tracing->builder().finish();
  return traced;
}

}  // namespace heddle::bench
