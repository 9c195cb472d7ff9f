#include "ir/ops/common.h"

#include <algorithm>

#include "base/check.h"

namespace heddle::ir::ops {
namespace {

template <typename Range, typename ToText>
std::string bracketed(const Range& range, ToText to_text) {
  std::string text = "[";
  for (const auto& item : range) {
    if (text.size() > 1) text += ", ";
    text += to_text(item);
  }
  return text + "]";
}

}  // namespace

std::string text_of(DType dtype) { return std::string(name_of(dtype)); }

std::string text_of(std::span<const SymExpr> dims) {
  return bracketed(dims, [](const SymExpr& dim) { return dim.to_string(); });
}

std::string text_of(std::span<const std::int64_t> ints) {
  return bracketed(ints, [](std::int64_t value) { return std::to_string(value); });
}

TensorMeta fresh(const InferContext& ctx, DType dtype, Dims sizes) {
  DeviceTag device;
  for (std::size_t k = 0; k < ctx.inputs.size(); ++k) {
    if (!ctx.has(k)) continue;
    device = ctx.meta(k).device;
    break;
  }
  return TensorMeta::of(dtype, std::move(sizes), device);
}

std::vector<std::int64_t> sorted_axes(std::span<const std::int64_t> axes, std::int64_t rank) {
  std::vector<std::int64_t> sorted;
  for (const std::int64_t axis : axes) sorted.push_back(from_front(axis, rank));
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

std::vector<std::int64_t> check_axes(const InferContext& ctx, std::int64_t rank,
                                     std::string_view range_label, std::string_view repeat_label) {
  const auto& axes = ctx.ints("axes");
  for (const std::int64_t axis : axes) ctx.axis(axis, rank, range_label);
  std::vector<std::int64_t> sorted = sorted_axes(axes, rank);
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    ctx.fail_shape(repeat_label, "axes without repeats", text_of(axes));
  }
  return sorted;
}

void require_le(const InferContext& ctx, const SymExpr& left, const SymExpr& right,
                std::string_view label, const std::string& expected, const std::string& got) {
  const base::Predicate predicate{base::Predicate::Op::Le, left, right};
  const std::string reason = std::string(ctx.op.name) + ": " + std::string(label);
  if (!ctx.env.require(predicate, reason, ctx.location)) ctx.fail_shape(label, expected, got);
}

Alias view_of_first(const Node&, std::uint32_t) {
  return {.kind = Alias::Kind::View, .operand = 0};
}

Alias reuse_if_same_layout(const Node& node, std::uint32_t output) {
  const TensorMeta& result = node.output(output);
  for (std::size_t k = 0; k < node.inputs().size(); ++k) {
    if (!node.input(k)) continue;
    const TensorMeta& operand = node.input(k).meta();
    if (size_of(operand.dtype) == size_of(result.dtype) && operand.sizes == result.sizes &&
        operand.strides == result.strides && operand.device == result.device) {
      return {.kind = Alias::Kind::MayReuse, .operand = k};
    }
  }
  return {};
}

std::vector<SymExpr> broadcast_index(std::span<const SymExpr> operand,
                                     std::span<const SymExpr> result,
                                     std::span<const SymExpr> index) {
  const std::size_t skipped = result.size() - operand.size();
  std::vector<SymExpr> mapped;
  mapped.reserve(operand.size());
  for (std::size_t d = 0; d < operand.size(); ++d) {
    const SymExpr& at = index[skipped + d];
    if (operand[d] == result[skipped + d]) {
      mapped.push_back(at);
    } else if (operand[d].is_constant()) {
      mapped.push_back(operand[d].is_constant(1) ? SymExpr(0) : at);
    } else {
      // Sizes that inference assumed equal, or one that it assumed to be 1: right for both.
      mapped.push_back(min(at, operand[d] - 1));
    }
  }
  return mapped;
}

Sizes broadcast_sizes(std::span<const Sizes> shapes) {
  std::size_t rank = 0;
  for (const Sizes& shape : shapes) rank = std::max(rank, shape.size());
  Sizes result(rank, 1);
  for (const Sizes& shape : shapes) {
    for (std::size_t d = 0; d < shape.size(); ++d) {
      std::int64_t& size = result[rank - shape.size() + d];
      HD_CHECK(size == 1 || shape[d] == 1 || size == shape[d], "sizes do not broadcast");
      if (size == 1) size = shape[d];
    }
  }
  return result;
}

Literal broadcast_to(const Literal& tensor, const Sizes& sizes) {
  const std::size_t skipped = sizes.size() - tensor.sizes().size();
  Sizes strides(sizes.size(), 0);
  for (std::size_t d = 0; d < tensor.sizes().size(); ++d) {
    if (tensor.sizes()[d] == sizes[skipped + d]) strides[skipped + d] = tensor.strides()[d];
  }
  return tensor.view(sizes, strides, 0);
}

Sizes index_at(std::int64_t position, std::span<const std::int64_t> sizes) {
  Sizes index(sizes.size(), 0);
  for (std::size_t d = sizes.size(); d-- > 0;) {
    index[d] = position % sizes[d];
    position /= sizes[d];
  }
  return index;
}

std::int64_t position_of(std::span<const std::int64_t> index, std::span<const std::int64_t> sizes) {
  std::int64_t position = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) position = position * sizes[d] + index[d];
  return position;
}

}  // namespace heddle::ir::ops
