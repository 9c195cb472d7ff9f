#include "jit/lower/byte_products.h"

#include <algorithm>
#include <numeric>

#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "jit/lower/conv_windows.h"
#include "jit/lower/decompose.h"
#include "jit/lower/group_panels.h"
#include "jit/nests/conv_product.h"
#include "jit/nests/panel_conv.h"

namespace heddle::jit {
namespace {

using ir::Dims;
using ir::GraphBuilder;
using ir::Node;
using ir::Value;
using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kGroup = 4;  ///< bytes that one instruction multiplies
/// Bytes with a sign and without one differ by it.
constexpr std::int64_t kMiddle = 128;

/// The bytes that `value` widens to i32.
Value bytes_behind(Value value) {
  const bool widens = value.node->op_name() == "convert" && value.meta().dtype == DType::I32 &&
                      is_byte(value.node->input(0).meta().dtype);
  return widens ? value.node->input(0) : Value();
}

std::optional<ByteOperand> operand_of(Value value) {
  if (const Value bytes = bytes_behind(value)) return ByteOperand{bytes, {}};
  if (value.node->op_name() != "sub" || value.meta().dtype != DType::I32) return std::nullopt;
  const Value bytes = bytes_behind(value.node->input(0));
  const Value zero = value.node->input(1);
  if (!bytes || zero.meta().dtype != DType::I32 || bytes.meta().sizes != value.meta().sizes)
    return std::nullopt;
  return ByteOperand{bytes, zero};
}

bool is_one_a_row(Value zero) {
  return !zero || zero.meta().rank() == 0 || zero.meta().sizes.back().is_constant(1);
}
bool is_one_a_column(Value zero) {
  if (!zero || zero.meta().rank() < 2) return true;
  return zero.meta().rank() == 2 && zero.meta().sizes[0].is_constant(1);
}

/// What a zero point was made of by widening it.
Value behind_widening(Value zero) {
  while (zero.node->op_name() == "convert" || zero.node->op_name() == "reshape")
    zero = zero.node->input(0);
  return zero;
}

/// What all zero points are known to be.
std::optional<std::int64_t> one_number(Value zero) {
  const Value from = behind_widening(zero);
  if (from.node->op_name() != "const") return std::nullopt;
  const ir::Literal& zeros = from.node->literal("value");
  for (std::int64_t k = 1; k < zeros.count(); ++k)
    if (zeros.at_int(k) != zeros.at_int(0)) return std::nullopt;
  return zeros.count() == 0 ? std::nullopt : std::optional(zeros.at_int(0));
}

/// Whether it is known to be 0 everywhere.
bool is_zero(Value value) {
  if (!value) return true;
  value = behind_widening(value);
  if (value.node->op_name() != "const") return false;
  const ir::Literal bytes = value.node->literal("value").contiguous();
  const auto* first = static_cast<const char*>(bytes.data());
  return !is_floating(bytes.dtype()) &&
         std::all_of(first, first + bytes.bytes(), [](char byte) { return byte == 0; });
}

/// Whether it is known to be an element of `dtype`, bytes.
bool is_of(Value zero, DType dtype) {
  const Value from = behind_widening(zero);
  if (from.node->op_name() != "const") return from.meta().dtype == dtype;
  const std::int64_t least = dtype == DType::I8 ? -kMiddle : 0;
  const std::int64_t number = from.node->literal("value").at_int(0);
  return number >= least && number <= least + 255;
}

/// Columns that fill a vector.
constexpr std::int64_t kLanes = 16;

class Emitter {
 public:
  Emitter(GraphBuilder& builder, const LowerOptions& options) : b_(builder), options_(options) {}

  Value packed(const ByteProduct& given) {
    const ByteOperand left = without_sign(given.left);
    const ByteOperand right = with_sign(given.right);
    const std::int64_t columns = right.bytes.meta().sizes[1].constant();
    const Value panels = emit_group_panels(b_, right.bytes, kGroup);
    if (const std::int64_t most = groups_of_rest(right.bytes, panels); most > 0)
      return corrected(left, right, split_product(left.bytes, panels, most, columns));
    return corrected(left, right, product_of(left.bytes, panels, pairs_fit(panels), columns));
  }

  /// Of matrices that are other ones in each run.
  Value made_panels(const ByteProduct& given) {
    const ByteOperand left = without_sign(given.left);
    const bool is_moved = given.right.bytes.meta().dtype == DType::U8;
    const Value zero = is_moved ? moved(given.right.zero, -kMiddle) : given.right.zero;
    const Dims& sizes = given.right.bytes.meta().sizes;
    const Value panels = b_.emit("byte_panels", {given.right.bytes}, {{"width", kPanelColumns}});
    const Value made =
        b_.emit("packed_int8_matmul", {left.bytes, panels}, {{"columns", sizes.back().constant()}});
    Value columns;
    if (!is_zero(left.zero)) {
      columns = sum(given.right.bytes, -2, true);
      const SymExpr& depth = sizes[sizes.size() - 2];
      if (!is_zero(given.right.zero))
        columns = b_.emit(
            "sub",
            {columns, b_.emit("mul", {given.right.zero, number(DType::I32, depth.constant())})});
    }
    return less_zero_points(left, columns, sums_of_rows(left, zero), zero, made);
  }

  BytePanels panels(const ByteOperand& given) {
    const ByteOperand right = with_sign(given);
    const Value panels = emit_group_panels(b_, right.bytes, kGroup);
    return {.panels = panels,
            .sums = sums_of_columns(right),
            .zero = is_zero(right.zero) ? Value() : right.zero,
            .pairs_fit = pairs_fit(panels),
            .columns = right.bytes.meta().sizes[1].constant()};
  }
  Value product(const ByteOperand& given, const BytePanels& right) {
    const ByteOperand left = without_sign(given);
    const Value made = product_of(left.bytes, right.panels, right.pairs_fit, right.columns);
    return less_zero_points(left, right.sums, sums_of_rows(left, right.zero), right.zero, made);
  }

  /// `given` with the windows of `x` on the left; the left operand's zero point is one for all.
  Value windows(const ByteProduct& given, const Node& conv) {
    const ByteOperand left = without_sign(given.left);
    const ByteOperand right = with_sign(given.right);
    const Value zero = left.zero ? converted(left.zero, DType::U8) : number(DType::U8, 0);
    const std::int64_t groups = conv.integer("groups"), joined = joined_groups(conv);
    Value x = left.bytes, matrix = right.bytes;
    ir::Attrs attrs = panel_conv_attrs(conv);
    attrs["groups"] = groups / joined;
    if (joined > 1) matrix = with_joined_groups(matrix, conv, joined);
    const std::int64_t align = options_.amx ? patch_alignment(conv, joined, DType::U8) : 1;
    const std::int64_t each = matrix.meta().sizes[1].constant() / (groups / joined);
    std::int64_t width = align != 1 ? patch_panel_columns(each) : kPanelColumns;
    if (groups > joined) {
      width = std::min(width, (each + kLanes - 1) / kLanes * kLanes);
      matrix = in_whole_panels(matrix, groups / joined, width);
    }
    if (align != 1)
      matrix = with_aligned_runs(matrix, attrs, align);
    else if (has_short_pieces(conv))
      in_whole_pieces(x, matrix, attrs);
    const Value panels = emit_group_panels(b_, matrix, kGroup, width);
    const Value fit = pairs_fit(panels);
    const Value made = fit ? b_.emit("packed_int8_conv", {x, panels, zero, fit}, std::move(attrs))
                           : b_.emit("packed_int8_conv", {x, panels, zero}, std::move(attrs));
    const Value columns = is_zero(left.zero) ? Value() : sums_of_columns(right);
    const Value windows = is_zero(right.zero) ? Value() : sums_of_windows(left, conv);
    return less_zero_points(left, columns, windows, right.zero, made);
  }
  /// `given` with x on the left and filters on the right.
  Value plain_windows(const ByteProduct& given, const Node& conv) {
    const DType dtype = given.left.bytes.meta().dtype;
    const bool last = conv.flag("channels_last");
    const Value zero = given.left.zero ? as_byte(given.left.zero, dtype) : number(dtype, 0);
    const Value filters = given.right.bytes;
    const Value sums = b_.emit("int8_conv", {given.left.bytes, filters, zero},
                               {{"strides", conv.ints("strides")},
                                {"pads_low", conv.ints("pads_low")},
                                {"pads_high", conv.ints("pads_high")},
                                {"dilations", conv.ints("dilations")},
                                {"channels_last", last}});
    if (is_zero(given.left.zero)) return sums;
    Ints axes(static_cast<std::size_t>(filters.meta().rank()) - 1);
    std::iota(axes.begin(), axes.end(), 1);
    const Value of_filters =
        b_.emit("reduce_sum", {converted(filters, DType::I32)}, {{"axes", std::move(axes)}});
    const Value extra = b_.emit("mul", {given.left.zero, of_filters});
    return b_.emit("sub", {sums, last ? extra : beside_windows(extra, sums)});
  }

  Value plain(const ByteProduct& given) {
    return corrected(given.left, given.right,
                     b_.emit("int8_matmul", {given.left.bytes, given.right.bytes}));
  }

 private:
  Value product_of(Value left, Value panels, Value pairs_fit, std::int64_t columns) {
    ir::Attrs attrs{{"columns", columns}};
    return pairs_fit ? b_.emit("packed_int8_matmul", {left, panels, pairs_fit}, std::move(attrs))
                     : b_.emit("packed_int8_matmul", {left, panels}, std::move(attrs));
  }

  /// The matrix [taps * c, m] with zeros behind the taps along the last dimension, so that the next ones begin at a multiple of `align`.
  Value with_aligned_runs(Value matrix, ir::Attrs& attrs, std::int64_t align) {
    attrs["align"] = align;
    const Dims& sizes = matrix.meta().sizes;
    const Ints& kernel = std::get<Ints>(attrs["kernel"]);
    std::int64_t runs = 1;
    for (std::size_t d = 0; d + 1 < kernel.size(); ++d) runs *= kernel[d];
    const std::int64_t run = sizes[0].constant() / runs, whole = (run + align - 1) / align * align;
    return run == whole ? matrix : with_rows(matrix, runs, whole);
  }
  /// The matrix of so many parts with zeros behind the rows of each, up to `rows`.
  Value with_rows(Value matrix, std::int64_t parts, std::int64_t rows) {
    const Dims& sizes = matrix.meta().sizes;
    const SymExpr had = floordiv(sizes[0], parts), columns = sizes[1];
    const Value split =
        b_.emit("reshape", {matrix}, {{"sizes", Dims{SymExpr(parts), had, columns}}});
    const Value padded = b_.emit("pad", {split, number(DType::I8, 0)},
                                 {{"low", Dims{0, 0, 0}}, {"high", Dims{0, rows - had, 0}}});
    return b_.emit("reshape", {padded}, {{"sizes", Dims{SymExpr(parts * rows), columns}}});
  }

  /// Whether the taps along a row are no whole groups, of few channels, and kernels read them as they lie.
  bool has_short_pieces(const Node& conv) const {
    constexpr std::int64_t kMostChannels = 16;
    const Dims& filters = conv.input(1).meta().sizes;
    const std::int64_t channels = filters[1].constant(), taps = filters.back().constant();
    return channels < kMostChannels && taps > 1 && channels * taps % kGroup != 0 &&
           conv.integer("groups") == 1 && conv.ints("dilations").back() == 1 &&
           multiplies_groups(options_);
  }

  /// A convolution whose last dimension and channels are one: of bytes that a window takes behind each other, with as many more as
  /// whole groups need, whose weights are 0.
  ///
  ///   x [n, h, w, 3] by 7 x 7 in steps of 2 with padding of 3  ==>  x [n, h, 3 w, 1] by 7 x 24 in steps of 6 with padding of 9 and 12
  void in_whole_pieces(Value& x, Value& matrix, ir::Attrs& attrs) {
    const Dims& sizes = x.meta().sizes;
    const std::int64_t channels = sizes.back().constant();
    const auto ints = [&](const char* name) -> Ints& { return std::get<Ints>(attrs[name]); };
    const std::int64_t piece = ints("kernel").back() * channels;
    const std::int64_t whole = (piece + kGroup - 1) / kGroup * kGroup;
    matrix = with_rows(matrix, matrix.meta().sizes[0].constant() / piece, whole);
    Dims joined(sizes.begin(), sizes.end() - 1);
    joined.back() *= channels;
    joined.push_back(1);
    x = b_.emit("reshape", {x}, {{"sizes", joined}});
    ints("kernel").back() = whole;
    for (const char* name : {"strides", "pads_low", "pads_high"}) ints(name).back() *= channels;
    ints("pads_high").back() += whole - piece;
  }

  /// The matrix [taps * c, m] of filters of c channels each as one of filters of all channels of `joined` groups, 0 where they are
  /// those of others.
  Value with_joined_groups(Value matrix, const Node& conv, std::int64_t joined) {
    const Dims& filters = conv.input(1).meta().sizes;
    const SymExpr groups = conv.integer("groups");
    const SymExpr taps = base::product(std::span(filters).subspan(2));
    const SymExpr columns = floordiv(filters[0], groups);
    ir::Literal own(DType::I8, {joined, 1, 1, joined, 1});
    for (std::int64_t k = 0; k < joined; ++k) own.set_int(k * joined + k, 1);
    const Dims apart{taps, 1, filters[1], floordiv(groups, joined), joined, columns};
    const Value parts = b_.emit("reshape", {matrix}, {{"sizes", apart}});
    return b_.emit("reshape", {b_.emit("mul", {parts, b_.constant(std::move(own))})},
                   {{"sizes", Dims{taps * filters[1] * joined, filters[0]}}});
  }

  /// The columns of each of so many groups, and what is missing to whole panels of `width`.
  Value in_whole_panels(Value matrix, std::int64_t groups, std::int64_t width) {
    const Dims& sizes = matrix.meta().sizes;
    const SymExpr columns = floordiv(sizes[1], groups);
    const SymExpr whole = ceildiv(columns, width) * width;
    const Value parts =
        b_.emit("reshape", {matrix}, {{"sizes", Dims{sizes[0], SymExpr(groups), columns}}});
    const Value padded = b_.emit("pad", {parts, number(DType::I8, 0)},
                                 {{"low", Dims{0, 0, 0}}, {"high", Dims{0, 0, whole - columns}}});
    return b_.emit("reshape", {padded}, {{"sizes", Dims{sizes[0], whole * groups}}});
  }

  /// Groups of each panel that may have pairs that do not fit: an eighth, since pairs of 16 bits take three eighths longer, and no
  /// more than whose counterparts have room on the stack. 0 where kernels do not ask, of depths that are no whole groups, and
  /// of few.
  std::int64_t groups_of_rest(Value right, Value panels) const {
    constexpr std::int64_t kLeastGroups = 16;
    constexpr std::int64_t kMostGroups = 128;
    const SymExpr& depth = right.meta().sizes[0];
    const SymExpr& groups = panels.meta().sizes[1];
    if (!multiplies_pairs(options_) || !groups.is_constant() || groups.constant() < kLeastGroups ||
        depth.constant() % kGroup != 0)
      return 0;
    return std::min(groups.constant() / 8, kMostGroups);
  }

  Value split_product(Value left, Value panels, std::int64_t most, std::int64_t columns) {
    const Node* split = b_.call("split_byte_pairs", {panels}, {{"most", most}});
    return b_.emit(
        "packed_int8_matmul",
        {left, split->value(0), Value(), split->value(1), split->value(2), split->value(3)},
        {{"columns", columns}});
  }

  /// Whether any u8 times each two neighbours of a group add up to an i16; nothing where kernels do not ask.
  Value pairs_fit(Value panels) {
    if (!multiplies_pairs(options_)) return {};
    constexpr std::int64_t kMost = 128;
    const Dims& sizes = panels.meta().sizes;
    const Dims pairs{sizes[0] * sizes[1] * sizes[2] * 2, 2};
    const Value wide = converted(b_.emit("reshape", {panels}, {{"sizes", pairs}}), DType::I32);
    const auto largest = [&](Value value) {
      const Value parts = b_.emit("max", {value, number(DType::I32, 0)});
      const Value sums = b_.emit("reduce_sum", {parts}, {{"axes", Ints{1}}});
      return b_.emit("reduce_max", {sums}, {{"axes", Ints{0}}});
    };
    const Value most = b_.emit("max", {largest(wide), largest(b_.emit("neg", {wide}))});
    return b_.emit("le", {most, number(DType::I32, kMost)});
  }

  /// `result` with the terms of the zero points.
  Value corrected(const ByteOperand& left, const ByteOperand& right, Value result) {
    Value sums;
    if (!is_zero(left.zero)) sums = sums_of_columns(right);
    return less_zero_points(left, sums, sums_of_rows(left, right.zero), right.zero, result);
  }

  /// `columns` and `rows`: what zero points of the left and of the right are multiplied by.
  Value less_zero_points(const ByteOperand& left, Value columns, Value rows, Value right_zero,
                         Value result) {
    if (!is_zero(left.zero))
      result = b_.emit("sub", {result, b_.emit("mul", {left.zero, columns})});
    if (!is_zero(right_zero)) result = b_.emit("sub", {result, b_.emit("mul", {rows, right_zero})});
    return result;
  }

  /// Of the bytes on the left; nothing where the right's zero point is known to be 0.
  Value sums_of_rows(const ByteOperand& left, Value right_zero) {
    return is_zero(right_zero) ? Value() : sum(left.bytes, -1, true);
  }
  /// The same of windows that move over them.
  Value sums_of_windows(const ByteOperand& left, const Node& conv) {
    const std::int64_t channels = left.bytes.meta().sizes.back().constant();
    const Value outside = left.zero ? b_.emit("mul", {left.zero, number(DType::I32, channels)})
                                    : number(DType::I32, 0);
    return window_sums(b_, conv, sum(left.bytes, -1, true), outside);
  }

  /// Of the bytes less their zero points.
  Value sums_of_columns(const ByteOperand& right) {
    const Value sums = sum(right.bytes, 0, false);
    if (is_zero(right.zero)) return sums;
    const std::int64_t depth = right.bytes.meta().sizes[0].constant();
    return b_.emit("sub", {sums, b_.emit("mul", {right.zero, number(DType::I32, depth)})});
  }

  /// A zero point that is_of() `dtype` as one.
  Value as_byte(Value zero, DType dtype) {
    const Value from = behind_widening(zero);
    if (from.node->op_name() == "const")
      return number(dtype, from.node->literal("value").at_int(0));
    return from.meta().dtype == dtype && from.meta().rank() == 0 ? from : converted(zero, dtype);
  }
  /// [m] as [m, 1, ...], what a result with its channels second adds to each of its images.
  Value beside_windows(Value by_channel, Value result) {
    Dims sizes(static_cast<std::size_t>(result.meta().rank()) - 1, SymExpr(1));
    sizes[0] = by_channel.meta().sizes[0];
    return b_.emit("reshape", {by_channel}, {{"sizes", sizes}});
  }

  Value number(DType dtype, std::int64_t value) {
    return b_.constant(ir::Literal::scalar_int(dtype, value));
  }
  Value converted(Value value, DType dtype) {
    return b_.emit("convert", {value}, {{"dtype", dtype}});
  }
  Value sum(Value bytes, std::int64_t axis, bool keepdims) {
    return b_.emit("reduce_sum", {converted(bytes, DType::I32)},
                   {{"axes", Ints{axis}}, {"keepdims", keepdims}});
  }
  /// Zero points that move with their bytes.
  Value moved(Value zero, std::int64_t by) {
    if (const auto known = zero ? one_number(zero) : std::nullopt)
      return number(DType::I32, *known + by);
    const Value distance = number(DType::I32, by);
    return zero ? b_.emit("add", {zero, distance}) : distance;
  }

  ByteOperand without_sign(const ByteOperand& operand) {
    if (operand.bytes.meta().dtype == DType::U8) return operand;
    const Value wrapped = b_.emit("add", {operand.bytes, number(DType::I8, -kMiddle)});
    return {converted(wrapped, DType::U8), moved(operand.zero, kMiddle)};
  }
  ByteOperand with_sign(const ByteOperand& operand) {
    if (operand.bytes.meta().dtype == DType::I8) return operand;
    const Value wrapped = b_.emit("add", {operand.bytes, number(DType::U8, kMiddle)});
    return {converted(wrapped, DType::I8), moved(operand.zero, -kMiddle)};
  }

  GraphBuilder& b_;
  const LowerOptions& options_;
};

}  // namespace

std::optional<ByteProduct> byte_product_of(const Node& matmul) {
  if (matmul.output().dtype != DType::I32) return std::nullopt;
  const auto left = operand_of(matmul.input(0));
  const auto right = operand_of(matmul.input(1));
  if (!left || !right) return std::nullopt;
  if (right->bytes.meta().rank() != 2 && (left->zero || right->zero)) return std::nullopt;
  if (!is_one_a_row(left->zero) || !is_one_a_column(right->zero)) return std::nullopt;
  return ByteProduct{*left, *right};
}

Value emit_byte_product(GraphBuilder& builder, const ByteProduct& product,
                        const LowerOptions& options) {
  return Emitter(builder, options).packed(product);
}

Value emit_given_byte_product(GraphBuilder& builder, const ByteProduct& product,
                              const LowerOptions& options) {
  return Emitter(builder, options).made_panels(product);
}

BytePanels emit_byte_panels(GraphBuilder& builder, const ByteOperand& right,
                            const LowerOptions& options) {
  return Emitter(builder, options).panels(right);
}

Value emit_byte_product(GraphBuilder& builder, const ByteOperand& left, const BytePanels& right,
                        const LowerOptions& options) {
  return Emitter(builder, options).product(left, right);
}

std::int64_t joined_groups(const Node& conv) {
  const std::int64_t groups = conv.integer("groups");
  const SymExpr& filters = conv.input(1).meta().sizes[0];
  const std::int64_t columns = filters.is_constant() ? filters.constant() / groups : kLanes;
  if (groups == 1 || columns >= kLanes || columns == 0 || kLanes % columns != 0) return 1;
  return std::gcd(groups, kLanes / columns);
}

bool has_middle_zero(const ByteOperand& operand) {
  if (operand.bytes.meta().dtype == DType::I8) return is_zero(operand.zero);
  if (!operand.zero) return false;
  return one_number(operand.zero) == kMiddle;
}

Value emit_byte_conv(GraphBuilder& builder, const ByteProduct& product, const Node& conv,
                     const LowerOptions& options) {
  ByteProduct dense = product;
  Value& bytes = dense.left.bytes;
  if (bytes.node->op_name() == "permute") bytes = builder.emit("clone", {bytes});
  return Emitter(builder, options).windows(dense, conv);
}

namespace {

bool lies_in_one_piece(Value value) {
  while (value.node->op_name() == "reshape") value = value.node->input(0);
  const std::string_view name = value.node->op_name();
  return (name == "param" || name == "const") && value.meta().is_row_major();
}

}  // namespace

Value emit_plain_byte_conv(GraphBuilder& builder, const ByteProduct& product, const Node& conv) {
  const ByteOperand& left = product.left;
  if (!is_zero(product.right.zero) || !may_be_conv_product(product.right.bytes.meta().sizes))
    return {};
  if (left.zero && !is_of(left.zero, left.bytes.meta().dtype)) return {};
  ByteProduct dense = product;
  Value& filters = dense.right.bytes;
  if (!lies_in_one_piece(filters)) filters = builder.emit("clone", {filters});
  const LowerOptions options{.target = LowerOptions::Target::Cuda};
  return Emitter(builder, options).plain_windows(dense, conv);
}

namespace {

/// What byte_products() takes a node for.
std::optional<ByteProduct> plain_product_of(const Node& node, const LowerOptions& options) {
  if (node.op_name() != "matmul" || classify(node, options) != NodeClass::Nest) return std::nullopt;
  if (!unit_of(node, options).fuse || ir::wants_fallback(node)) return std::nullopt;
  if (is_byte(node.output().dtype)) return ByteProduct{{node.input(0), {}}, {node.input(1), {}}};
  const auto found = byte_product_of(node);
  const bool both = found && !is_zero(found->left.zero) && !is_zero(found->right.zero);
  if (both && !found->right.bytes.meta().sizes[0].is_constant()) return std::nullopt;
  return found;
}

}  // namespace

ir::Graph byte_products(const ir::Graph& graph, const LowerOptions& options) {
  if (options.target != LowerOptions::Target::Cuda) return graph;
  using Values = std::vector<Value>;
  return ir::rewrite(
      graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) -> std::optional<Values> {
        std::optional<ByteProduct> product = plain_product_of(*node, options);
        if (!product) return std::nullopt;
        for (ByteOperand* operand : {&product->left, &product->right}) {
          operand->bytes = rewriter.map(operand->bytes);
          if (operand->zero) operand->zero = rewriter.map(operand->zero);
        }
        const Value result = Emitter(rewriter.builder(), options).plain(*product);
        const DType dtype = node->output().dtype;
        if (dtype == DType::I32) return Values{result};
        return Values{rewriter.builder().emit("convert", {result}, {{"dtype", dtype}})};
      });
}

}  // namespace heddle::jit
