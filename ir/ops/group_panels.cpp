// Right matrices in panels of columns, some elements of the depth side by side: what packed_int8_matmul, packed_int8_conv
// and packed_bf16_matmul read.
#include "ir/ops/common.h"
#include "ir/ops/dense.h"
#include "ir/ops/matmul_ops.h"

namespace heddle::ir::ops {
namespace {

template <typename T>
std::vector<T> unpacked(const Literal& panels, std::int64_t depth, std::int64_t columns) {
  const std::vector<T> packed = dense<T>(panels);
  const std::int64_t groups = panels.sizes()[1];
  const std::int64_t width = panels.sizes()[2];
  const std::int64_t each = panels.sizes()[3];
  std::vector<T> matrix;
  for (std::int64_t k = 0; k < depth; ++k)
    for (std::int64_t j = 0; j < columns; ++j) {
      const std::int64_t group = j / width * groups + k / each;
      const std::int64_t place = (group * width + j % width) * each + k % each;
      matrix.push_back(packed[static_cast<std::size_t>(place)]);
    }
  return matrix;
}

}  // namespace

std::vector<TensorMeta> panel_product(const InferContext& ctx, std::int64_t group, DType result) {
  const TensorMeta& a = ctx.meta(0);
  const TensorMeta& given = ctx.meta(1);
  constexpr std::string_view kC2 =
      "C2 a has at least two dimensions, panels have four, or four behind all but two of a";
  const bool is_batch = given.rank() != 4;
  if (a.rank() < 2 || (is_batch && given.rank() != a.rank() + 2)) {
    ctx.fail_shape(kC2, "sizes [..., m, k] and [p, q, w, " + std::to_string(group) + "]",
                   text_of(a.sizes) + " and " + text_of(given.sizes));
  }
  for (std::size_t d = 0; is_batch && d + 2 < a.sizes.size(); ++d)
    ctx.require_equal(a.sizes[d], given.sizes[d], kC2);
  const Dims panels(given.sizes.end() - 4, given.sizes.end());
  const std::string number = std::to_string(group);
  ctx.require_equal(group, panels[3], "C3 the last dimension of panels is " + number);
  ctx.require_equal(ceildiv(a.sizes.back(), group), panels[1],
                    "C4 q groups of " + number + " hold k rows, and q - 1 do not");
  const SymExpr columns = ctx.integer("columns");
  constexpr std::string_view kC5 = "C5 p panels of w columns hold n columns, and p - 1 do not";
  require_le(ctx, 1, panels[2], kC5, "at least 1 column a panel", panels[2].to_string());
  ctx.require_equal(ceildiv(columns, panels[2]), panels[0], kC5);
  Dims sizes(a.sizes.begin(), a.sizes.end() - 1);
  sizes.push_back(columns);
  return one(fresh(ctx, result, std::move(sizes)));
}

void require_pairs_fit(const InferContext& ctx, std::size_t k, std::string_view constraint) {
  if (!ctx.has(k)) return;
  const TensorMeta& flag = ctx.meta(k);
  if (flag.dtype != DType::Bool)
    ctx.fail_dtype(constraint, "bool", std::string(name_of(flag.dtype)));
  if (flag.rank() != 0) ctx.fail_shape(constraint, "sizes []", text_of(flag.sizes));
}

Literal matrix_of_panels(const Literal& panels, DType dtype, std::int64_t depth,
                         std::int64_t columns) {
  return with_number(dtype, [&]<typename T>() {
    return literal_of(dtype, {depth, columns}, unpacked<T>(panels, depth, columns));
  });
}

Literal panel_product(const Literal& a, const Literal& panels, DType result, const Sizes& sizes) {
  const std::int64_t depth = a.sizes().back(), columns = sizes.back();
  if (panels.sizes().size() == 4)
    return matrix_product(converted(a, result), matrix_of_panels(panels, result, depth, columns),
                          sizes);
  // Those of each matrix.
  const Sizes one(panels.sizes().end() - 4, panels.sizes().end());
  Sizes right(panels.sizes().begin(), panels.sizes().end() - 4);
  const std::int64_t matrices = element_count(right), each = element_count(one);
  right.insert(right.end(), {depth, columns});
  return with_number(result, [&]<typename T>() {
    const std::vector<T> all = dense<T>(converted(panels, result));
    std::vector<T> joined;
    for (std::int64_t m = 0; m < matrices; ++m) {
      const std::vector<T> part(all.begin() + m * each, all.begin() + (m + 1) * each);
      const std::vector<T> matrix = unpacked<T>(literal_of(result, one, part), depth, columns);
      joined.insert(joined.end(), matrix.begin(), matrix.end());
    }
    return matrix_product(converted(a, result), literal_of(result, right, joined), sizes);
  });
}

}  // namespace heddle::ir::ops
