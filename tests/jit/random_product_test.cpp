// Products of random shapes and views, by whichever nest takes them, against the evaluator.
#include <algorithm>
#include <string>

#include "tests/jit/nests_support.h"
#include "tests/support/draw.h"
#include "tests/support/nightly.h"

namespace heddle::test {
namespace {

/// A value of these sizes, which lies in memory in some order, with some step, or once for all of a dimension.
ir::Value shown(ir::GraphBuilder& b, Draw& draw, const Ints& sizes, bool fixed) {
  const auto rank = sizes.size();
  Ints order(rank);
  for (std::size_t d = 0; d < rank; ++d) order[d] = static_cast<std::int64_t>(d);
  if (draw.one_in(3)) std::swap(order[rank - 1], order[rank - 2]);
  if (rank > 2 && draw.one_in(4)) std::swap(order[0], order[rank - 2]);
  Ints step(rank, 1), before(rank, 0), all(rank);
  const bool sliced = draw.one_in(4);
  for (std::size_t d = 0; d < rank; ++d) {
    if (sliced) step[d] = draw(1, 2);
    if (sliced) before[d] = draw(0, 2);
    all[d] = sizes[d] * step[d] + before[d];
  }
  const std::size_t once =
      draw.one_in(8) ? static_cast<std::size_t>(draw(0, static_cast<std::int64_t>(rank) - 1))
                     : rank;
  if (once != rank) all[once] = 1;
  Ints stored(rank);
  for (std::size_t d = 0; d < rank; ++d) stored[static_cast<std::size_t>(order[d])] = all[d];
  ir::Value x = fixed ? b.constant(random_literal(f32, stored, 5))
                      : b.input(ir::TensorMeta::of(f32, {stored.begin(), stored.end()}));
  x = b.emit("permute", {x}, {{"perm", order}});
  ir::Dims start, limit, stride;
  for (std::size_t d = 0; d < rank; ++d) {
    start.emplace_back(d == once ? 0 : before[d]);
    limit.emplace_back(all[d]);
    stride.emplace_back(d == once ? 1 : step[d]);
  }
  x = b.emit("slice", {x}, {{"start", start}, {"limit", limit}, {"stride", stride}});
  if (once != rank) x = b.emit("expand", {x}, {{"sizes", ir::Dims(sizes.begin(), sizes.end())}});
  return x;
}

TEST(RandomProduct, IsAsTheEvaluatorSays) {
  // An interpreter runs nests where there is no compiler.
  const std::uint32_t count = HEDDLE_WITH_LLVM == 0 ? 10 : is_nightly() ? 3000 : 60;
  for (std::uint32_t seed = 0; seed < count; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Draw draw(seed);
    ir::GraphBuilder b("main");
    const std::int64_t depth = draw.one_in(3) ? draw(1, 12) : draw(13, 300);
    const std::int64_t columns = draw.one_in(2) ? draw(1, 15) : draw(16, 150);
    Ints left{draw.one_in(3) ? 1 : draw(1, 70), depth}, right{depth, columns};
    if (draw.one_in(3)) left.insert(left.begin(), draw(1, 4));
    if (left.size() == 3 && draw.one_in(2))
      right.insert(right.begin(), draw.one_in(2) ? left[0] : 1);
    const ir::Value x = shown(b, draw, left, false);
    const ir::Value w = shown(b, draw, right, !draw.one_in(4));
    ir::Value y = b.emit("matmul", {x, w});
    if (draw.one_in(2)) y = b.emit("add", {y, b.constant(random_literal(f32, {columns}, 6))});
    if (draw.one_in(2)) y = b.emit("relu", {y});
    b.output(y);
    const ir::Graph graph = b.finish();
    const jit::LowerOptions options{.vector_bytes = draw.one_in(2) ? 64 : 32};
    expect_program_right(graph, jit::lower(graph, options), random_arguments(graph, {}),
                         as_code_of(options.vector_bytes), 1e-5);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace heddle::test
