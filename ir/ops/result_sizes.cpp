#include "ir/ops/result_sizes.h"

#include "ir/analysis/unbacked.h"
#include "ir/ops/common.h"

namespace heddle::ir::ops {

void require_sizes(const InferContext& ctx, const Dims& sizes, std::string_view label) {
  for (const SymExpr& size : sizes)
    if (!size.is_symbol() && !is_unbacked(size))
      require_le(ctx, 0, size, label, "sizes of at least 0", text_of(seen(ctx.env, sizes)));
}

}  // namespace heddle::ir::ops
