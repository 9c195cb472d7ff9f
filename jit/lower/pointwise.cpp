// Pointwise groups: every member at each point of one domain, stored where others need it.
#include "jit/lower/domain.h"
#include "jit/lower/kernel.h"

namespace heddle::jit {

BuiltKernel build_pointwise(const LoweringState& state, std::uint32_t group) {
  Kernel kernel(state, group);
  kernel.builder.facts().sizes_positive = true;
  Index point;
  const std::vector<AxisRun> axes = make_axes(kernel.builder, kernel.group.domain, point);

  std::vector<std::pair<Index, Scalar>> elements;
  for (const Value& value : kernel.stored) {
    Index index = index_in(value.meta().sizes, kernel.group.domain, point, kernel.builder.facts());
    const Scalar element = kernel.emitter.request(value, index);
    elements.emplace_back(std::move(index), element);
  }
  // Stores come last, so that a result may overwrite an operand.
  for (std::size_t k = 0; k < kernel.stored.size(); ++k)
    kernel.store(kernel.stored[k], elements[k].first, elements[k].second);

  Block body = kernel.take_body();
  std::vector<AxisRun> runs = collapse(kernel.builder, body, axes);
  wrap_points(kernel.builder, std::move(body), std::move(runs), state.options());
  return kernel.finish(/*loops_run=*/true);
}

FinishedNest build_copy(const ir::TensorMeta& source, const ir::TensorMeta& target,
                        const LowerOptions& options) {
  NestBuilder builder("copy");
  builder.facts().sizes_positive = true;
  const NestBufferId from = builder.add_global(source.dtype, source.count());
  const NestBufferId to = builder.add_global(target.dtype, target.count());
  Index point;
  const std::vector<AxisRun> axes = make_axes(builder, source.sizes, point);
  const Scalar element = builder.load(from, strided_index(point, source.strides));
  builder.store(to, strided_index(point, target.strides), builder.convert(element, target.dtype));

  Block body = std::exchange(builder.nest().body, Block{});
  std::vector<AxisRun> runs = collapse(builder, body, axes);
  wrap_points(builder, std::move(body), std::move(runs), options);
  return finish_nest(builder, source.sizes, /*loops_run=*/true);
}

}  // namespace heddle::jit
