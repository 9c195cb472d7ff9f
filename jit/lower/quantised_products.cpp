#include "jit/lower/quantised_products.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "jit/lower/byte_products.h"
#include "jit/lower/conv_windows.h"
#include "jit/lower/decompose.h"
#include "jit/lower/fixed_values.h"
#include "jit/lower/pack_weights.h"

namespace heddle::jit {
namespace {

using ir::Dims;
using ir::GraphBuilder;
using ir::Node;
using ir::Value;
using Ints = std::vector<std::int64_t>;

/// Bytes less their zero points lie in [-255, 255]: sums of so many products fit into i32.
constexpr std::int64_t kMaxDepth = std::numeric_limits<std::int32_t>::max() / (255 * 255);
/// Channels from which on windows are worth being put behind each other, and the most elements of a kernel, also where the CPU has an
/// instruction for groups of bytes: 7 x 7 of 160 channels take a sixth of the time of f32 there, and 1.1 to 1.4 times as long without.
constexpr std::int64_t kLeastChannels = 16;
constexpr std::int64_t kMaxTaps = 25;
constexpr std::int64_t kMaxDotTaps = 81;
/// Rows, columns and depth of a product of bytes that are other ones in each run, at least.
constexpr std::int64_t kLeastGiven = 16;
/// Channels of a first layer's result that fill half a vector.
constexpr std::int64_t kLeastFirst = 8;
/// Groups that are multiplied as one, at most: of more, most of what is multiplied is 0.
constexpr std::int64_t kMostJoined = 4;

bool is_single(Value value) { return value.meta().count().is_constant(1); }
bool converts(Value value, DType dtype) {
  return value.node->op_name() == "convert" && value.meta().dtype == dtype;
}

/// Bytes less zero points, times scales, and the views through which that is read.
struct Quantised {
  Value bytes, zero, scale;        ///< i32 and f32; none: 0 and 1
  std::vector<const Node*> views;  ///< the outermost first
  std::size_t zero_views = 0;      ///< of these, those outside of the subtraction
  std::size_t scale_views = 0;     ///< and of the multiplication
};

/// Takes apart what is read.
class Reader {
 public:
  /// An f32 tensor that was dequantised.
  static std::optional<Quantised> dequantised(Value value) {
    Reader reader;
    value = reader.behind_views(value);
    if (value.node->op_name() != "mul" || value.meta().dtype != DType::F32) return {};
    reader.made_.scale_views = reader.made_.views.size();
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
      Reader inner = reader;
      inner.made_.scale = value.node->input(1 - k);
      if (inner.take_wide(value.node->input(k), value)) return inner.made_;
    }
    return {};
  }

  /// Bytes widened to i32.
  static std::optional<Quantised> widened(Value value) {
    Reader reader;
    value = reader.behind_views(value);
    return reader.take_centred(value) ? std::optional(reader.made_) : std::nullopt;
  }

 private:
  Value behind_views(Value value) {
    while (value.node->op_name() == "permute" || value.node->op_name() == "reshape") {
      made_.views.push_back(value.node);
      value = value.node->input(0);
    }
    return value;
  }

  /// What `product` multiplies: integers as f32.
  bool take_wide(Value value, Value product) {
    if (value.meta().sizes != product.meta().sizes) return false;
    value = behind_views(value);
    if (!converts(value, DType::F32)) return false;
    if (!is_byte(value.node->input(0).meta().dtype))
      return take_centred(behind_views(value.node->input(0)));
    made_.bytes = value.node->input(0);
    return true;
  }

  bool take_centred(Value value) {
    if (value.meta().dtype != DType::I32) return false;
    if (value.node->op_name() == "sub") {
      made_.zero = value.node->input(1);
      made_.zero_views = made_.views.size();
      const Value wide = value.node->input(0);
      if (wide.meta().sizes != value.meta().sizes || !is_of_bytes(made_.zero)) return false;
      value = behind_views(wide);
    }
    if (!converts(value, DType::I32) || !is_byte(value.node->input(0).meta().dtype)) return false;
    made_.bytes = value.node->input(0);
    return true;
  }

  /// Whether zero points are bytes too.
  static bool is_of_bytes(Value zero) {
    while (zero.node->op_name() == "permute" || zero.node->op_name() == "reshape")
      zero = zero.node->input(0);
    if (converts(zero, DType::I32)) return is_byte(zero.node->input(0).meta().dtype);
    if (zero.node->op_name() != "const" || zero.meta().dtype != DType::I32) return false;
    const ir::Literal& literal = zero.node->literal("value");
    for (std::int64_t k = 0; k < literal.count(); ++k)
      if (literal.at_int(k) < -128 || literal.at_int(k) > 255) return false;
    return true;
  }

  Quantised made_;
};

/// The parts of a Quantised in the new graph, with its views done on each of them.
struct Parts {
  Value bytes, zero, scale;
};

class QuantisedConverter {
 public:
  explicit QuantisedConverter(const LowerOptions& options) : options_(options), fixed_(options) {}

  std::optional<std::vector<Value>> visit(ir::Rewriter& rewriter, const Node& node) {
    const bool is_matmul = node.op_name() == "matmul";
    if (!is_matmul && node.op_name() != "conv") return {};
    if (!unit_of(node, options_).fuse || ir::wants_fallback(node)) return {};
    const DType dtype = node.output().dtype;
    const bool integers = !is_matmul && dtype == DType::I32;
    if (!integers && dtype != DType::F32) return {};
    const auto read = integers ? Reader::widened : Reader::dequantised;
    const auto left = read(node.input(0));
    const auto right = left ? read(node.input(1)) : std::nullopt;
    if (!right) return {};
    if (is_matmul && is_given_product(node, *left, *right))
      return std::vector<Value>{Builder(rewriter, node, options_).given_product(*left, *right)};
    if (!fixed_.contains(node.input(1).node)) return {};
    if (!(is_matmul ? is_product(node, *left, *right) : is_window(node, *left, *right))) return {};
    const Builder make(rewriter, node, options_);
    if (is_matmul) return std::vector<Value>{make.product(*left, *right)};
    if (options_.target == LowerOptions::Target::Cpu)
      return std::vector<Value>{make.conv(*left, *right)};
    const Value made = make.plain_conv(*left, *right);
    return made ? std::optional(std::vector<Value>{made}) : std::nullopt;
  }

 private:
  /// Whether what `part` holds stays as it is along dimension `d` of what is read through its views.
  static bool is_even(const Quantised& q, Value part, std::size_t views, Value read,
                      std::size_t d) {
    if (!part || is_single(part)) return true;
    const std::optional<Dims> sizes = sizes_seen(q, part, views, read);
    return sizes && (*sizes)[d].is_constant(1);
  }

  /// Sizes of `part` as it is broadcast to what is read; nothing where views are no permutes.
  static std::optional<Dims> sizes_seen(const Quantised& q, Value part, std::size_t views,
                                        Value read) {
    const auto rank = static_cast<std::size_t>(read.meta().rank());
    Dims sizes = part.meta().sizes;
    if (sizes.size() > rank) return {};
    sizes.insert(sizes.begin(), rank - sizes.size(), SymExpr(1));
    for (std::size_t k = views; k-- > 0;) {
      if (q.views[k]->op_name() != "permute") return {};
      Dims turned;
      for (const std::int64_t axis : q.views[k]->ints("perm"))
        turned.push_back(sizes[static_cast<std::size_t>(axis)]);
      sizes = std::move(turned);
    }
    return sizes;
  }

  static bool is_even(const Quantised& q, Value read, std::size_t d) {
    return is_even(q, q.zero, q.zero_views, read, d) && is_even(q, q.scale, q.scale_views, read, d);
  }

  bool is_deep_enough(const SymExpr& depth, const SymExpr& columns) const {
    const bool is_cpu = options_.target == LowerOptions::Target::Cpu;
    return depth.is_constant() && columns.is_constant() && depth.constant() <= kMaxDepth &&
           depth.constant() * columns.constant() >=
               (is_cpu ? kLeastPackedBytes : kLeastPackedCount);
  }

  /// Of two operands that are other ones in each run, as those of attention: a product of bytes where what it makes of them first is
  /// little beside what it multiplies.
  bool is_given_product(const Node& node, const Quantised& left, const Quantised& right) {
    const Dims& x = node.input(0).meta().sizes;
    const Dims& w = node.input(1).meta().sizes;
    if (!multiplies_groups(options_) || fixed_.contains(node.input(1).node) || x.size() < 2 ||
        x.size() != w.size() || !std::equal(x.begin(), x.end() - 2, w.begin()) ||
        classify(node, options_) != NodeClass::Nest)
      return false;
    const auto is_one = [](Value value) { return !value || is_single(value); };
    const auto is_least = [](const SymExpr& size) {
      return size.is_constant() && size.constant() >= kLeastGiven;
    };
    const SymExpr& depth = x.back();
    return is_one(left.zero) && is_one(left.scale) && is_one(right.zero) && is_one(right.scale) &&
           is_least(x[x.size() - 2]) && is_least(depth) && is_least(w.back()) &&
           depth.constant() <= kMaxDepth;
  }

  bool is_product(const Node& node, const Quantised& left, const Quantised& right) const {
    const Value x = node.input(0);
    const Value w = node.input(1);
    if (x.meta().rank() < 2 || w.meta().rank() != 2 || classify(node, options_) != NodeClass::Nest)
      return false;
    const auto last = static_cast<std::size_t>(x.meta().rank()) - 1;
    return is_even(left, x, last) && is_even(right, w, 0) &&
           is_deep_enough(w.meta().sizes[0], w.meta().sizes[1]);
  }

  bool is_window(const Node& node, const Quantised& left, const Quantised& right) const {
    const Value w = node.input(1);
    const Dims& sizes = w.meta().sizes;
    if ((left.zero && !is_single(left.zero)) || (left.scale && !is_single(left.scale)))
      return false;
    for (std::size_t d = 1; d < sizes.size(); ++d)
      if (!sizes[d].is_constant() || !is_even(right, w, d)) return false;
    const SymExpr taps = base::product(std::span(sizes).subspan(2));
    const bool is_cpu = options_.target == LowerOptions::Target::Cpu;
    if (node.integer("groups") != 1) return is_cpu && are_groups_wide(node, right);
    const bool is_first = is_cpu && sizes[1].constant() < kLeastChannels &&
                          sizes[1].constant() * taps.constant() >= kLeastChannels;
    if (is_first && multiplies_groups(options_))
      return sizes[0].is_constant() && sizes[0].constant() >= kLeastFirst &&
             sizes[1].constant() * taps.constant() <= kMaxDepth;
    return (is_first ||
            (sizes[1].constant() >= kLeastChannels && taps.constant() <= most_taps())) &&
           is_deep_enough(sizes[1] * taps, sizes[0]);
  }

  std::int64_t most_taps() const {
    return options_.amx || options_.byte_dot ? kMaxDotTaps : kMaxTaps;
  }

  /// Of groups of several channels.
  bool are_groups_wide(const Node& node, const Quantised& right) const {
    const Dims& sizes = node.input(1).meta().sizes;
    const std::int64_t joined = joined_groups(node);
    const std::int64_t channels = sizes[1].constant() * joined;
    const std::int64_t taps = base::product(std::span(sizes).subspan(2)).constant();
    return joined <= kMostJoined && channels >= kLeastChannels && channels % 4 == 0 &&
           sizes[0].is_constant() && has_middle_zero({right.bytes, right.zero}) &&
           taps <= most_taps() && channels * taps <= kMaxDepth;
  }

  class Builder {
   public:
    Builder(ir::Rewriter& rewriter, const Node& node, const LowerOptions& options)
        : rewriter_(rewriter), b_(rewriter.builder()), node_(node), options_(options) {}

    Value product(const Quantised& left, const Quantised& right) const {
      const Parts x = parts(left, node_.input(0));
      const Parts w = parts(right, node_.input(1));
      return scaled(multiplied(x, w), x.scale, w.scale);
    }

    Value given_product(const Quantised& left, const Quantised& right) const {
      const Parts x = parts(left, node_.input(0));
      const Parts w = parts(right, node_.input(1));
      return scaled(emit_given_byte_product(b_, {{x.bytes, x.zero}, {w.bytes, w.zero}}, options_),
                    x.scale, w.scale);
    }

    Value conv(const Quantised& left, const Quantised& right) const {
      Parts x = parts(left, node_.input(0));
      Parts w = parts(right, node_.input(1));
      const auto rank = static_cast<std::int64_t>(w.bytes.meta().rank());
      const bool last = node_.flag("channels_last");
      if (!last) x.bytes = emit("permute", {x.bytes}, {{"perm", channels_to_the_end(rank)}});
      w.bytes = filters_of(b_, w.bytes);
      const Dims channels{node_.input(1).meta().sizes[0]};
      for (Value* part : {&w.zero, &w.scale})
        if (*part && !is_single(*part)) *part = emit("reshape", {*part}, {{"sizes", channels}});
      Value made = scaled(windows_multiplied(x, w), x.scale, w.scale);
      if (node_.inputs().size() > 2 && node_.input(2))
        made = emit("add", {made, rewriter_.map(node_.input(2))});
      return last ? made : emit("permute", {made}, {{"perm", channels_from_the_end(rank)}});
    }

    /// The same on CUDA, whose kernel takes channels where they are; nothing where it takes none.
    Value plain_conv(const Quantised& left, const Quantised& right) const {
      const Parts x = parts(left, node_.input(0));
      const Parts w = parts(right, node_.input(1));
      const Value sums = emit_plain_byte_conv(b_, {{x.bytes, x.zero}, {w.bytes, w.zero}}, node_);
      if (!sums) return {};
      Value made = scaled(sums, x.scale, by_channel(w.scale));
      if (node_.inputs().size() > 2 && node_.input(2))
        made = emit("add", {made, by_channel(rewriter_.map(node_.input(2)))});
      return made;
    }

   private:
    /// One number for each channel of the result, or one for all, beside it.
    Value by_channel(Value value) const {
      if (!value || is_single(value)) return value;
      const bool last = node_.flag("channels_last");
      Dims sizes(last ? 1 : static_cast<std::size_t>(node_.output().rank()) - 1, SymExpr(1));
      sizes[0] = node_.input(1).meta().sizes[0];
      return emit("reshape", {value}, {{"sizes", sizes}});
    }
    Value emit(std::string_view op, std::initializer_list<Value> operands,
               ir::Attrs attrs = {}) const {
      return b_.emit(op, operands, std::move(attrs));
    }
    Value converted(Value value, DType dtype) const {
      return emit("convert", {value}, {{"dtype", dtype}});
    }

    Parts parts(const Quantised& q, Value read) const {
      return {
          viewed(q, q.bytes, q.views.size(), q.bytes.meta().rank()),
          q.zero ? viewed(q, q.zero, q.zero_views, rank_inside(q, q.zero_views, read)) : Value(),
          q.scale ? viewed(q, q.scale, q.scale_views, rank_inside(q, q.scale_views, read))
                  : Value()};
    }

    /// Dimensions of what the innermost of the first `views` reads.
    static std::int64_t rank_inside(const Quantised& q, std::size_t views, Value read) {
      return views == 0 ? read.meta().rank() : q.views[views - 1]->input(0).meta().rank();
    }

    /// `part` through the first `views` views: of one element none is needed.
    Value viewed(const Quantised& q, Value part, std::size_t views, std::int64_t rank) const {
      Value value = rewriter_.map(part);
      if (is_single(part) && part != q.bytes) return emit("reshape", {value}, {{"sizes", Dims{}}});
      if (views == 0) return value;
      Dims sizes = part.meta().sizes;
      const auto missing = static_cast<std::size_t>(rank) - sizes.size();
      if (missing != 0) {
        sizes.insert(sizes.begin(), missing, SymExpr(1));
        value = emit("reshape", {value}, {{"sizes", sizes}});
      }
      for (std::size_t k = views; k-- > 0;)
        value = b_.call(q.views[k]->op(), std::array{value}, q.views[k]->attrs())->value();
      return value;
    }

    static Value centred(GraphBuilder& b, const Parts& part) {
      const Value wide = b.emit("convert", {part.bytes}, {{"dtype", DType::I32}});
      return part.zero ? b.emit("sub", {wide, part.zero}) : wide;
    }
    Value multiplied(const Parts& x, const Parts& w) const {
      return emit("matmul", {centred(b_, x), centred(b_, w)});
    }

    /// Windows are put behind each other in the kernel that multiplies them, where they are more than x and nothing else
    /// reads them.
    Value windows_multiplied(Parts x, const Parts& w) const {
      const Dims& kernel = node_.input(1).meta().sizes;
      const auto is_one = [](const SymExpr& size) { return size.is_constant(1); };
      const bool moves = !std::all_of(kernel.begin() + 2, kernel.end(), is_one) ||
                         std::ranges::any_of(node_.ints("strides"),
                                             [](std::int64_t stride) { return stride != 1; }) ||
                         has_padding(node_);
      if (moves || node_.integer("groups") != 1)
        return emit_byte_conv(b_, {{x.bytes, x.zero}, {w.bytes, w.zero}}, node_, options_);
      x.bytes = windows_of(b_, node_, x.bytes, zero_of(x));
      return multiplied(x, w);
    }

    Value scaled(Value sums, Value left, Value right) const {
      if (!left || !right) return sums;
      const Value real = converted(sums, DType::F32);
      if (left.meta().rank() == 0) return emit("mul", {real, emit("mul", {left, right})});
      return emit("mul", {emit("mul", {real, left}), right});
    }

    static Ints channels_to_the_end(std::int64_t rank) {
      Ints perm(static_cast<std::size_t>(rank));
      std::iota(perm.begin(), perm.end(), 0);
      std::rotate(perm.begin() + 1, perm.begin() + 2, perm.end());
      return perm;
    }
    static Ints channels_from_the_end(std::int64_t rank) {
      Ints perm(static_cast<std::size_t>(rank));
      std::iota(perm.begin(), perm.end(), 0);
      std::rotate(perm.begin() + 1, perm.end() - 1, perm.end());
      return perm;
    }

    /// What padding holds; none where there is none.
    Value zero_of(const Parts& x) const {
      if (!has_padding(node_)) return {};
      const DType dtype = x.bytes.meta().dtype;
      return x.zero ? converted(x.zero, dtype) : b_.constant(ir::Literal::scalar_int(dtype, 0));
    }

    ir::Rewriter& rewriter_;
    GraphBuilder& b_;
    const Node& node_;
    const LowerOptions& options_;
  };

  const LowerOptions& options_;
  FixedValues fixed_;
};

}  // namespace

ir::Graph quantised_products(const ir::Graph& graph, const LowerOptions& options) {
  QuantisedConverter converter(options);
  return ir::rewrite(graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) {
    return converter.visit(rewriter, *node);
  });
}

}  // namespace heddle::jit
