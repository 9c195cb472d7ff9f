#include "jit/lower/dequantised_products.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "jit/lower/bits_products.h"
#include "jit/lower/byte_products.h"
#include "jit/lower/decompose.h"
#include "jit/lower/fixed_values.h"
#include "jit/lower/live_graph.h"
#include "jit/lower/pack_weights.h"

namespace heddle::jit {
namespace {

using ir::Dims;
using ir::GraphBuilder;
using ir::Node;
using ir::Value;

/// Rows of a group are a multiple of these, so that what a thread reads at once is of one group.
constexpr std::int64_t kGroupRows = 8;
constexpr std::int64_t kByteBits = 8;

bool is_real(DType dtype) {
  return dtype == DType::F16 || dtype == DType::BF16 || dtype == DType::F32;
}
bool is_op(Value value, std::string_view name) { return value.node->op_name() == name; }
bool is_view(Value value) { return is_op(value, "permute") || is_op(value, "reshape"); }

/// Bytes less zero points, times scales, and the views through which that is read.
struct DequantisedOperand {
  Value bytes, zero, scale;        ///< no zero: 0
  bool byte_zero = true;           ///< zero points are bytes; else any reals
  std::vector<const Node*> views;  ///< the outermost first
  std::size_t zero_views = 0;      ///< of these, those outside of the subtraction
  std::size_t scale_views = 0;     ///< and of the multiplication
  std::vector<const Node*> nodes;  ///< whose values the product then makes itself
};

/// Takes apart what a product reads.
class Reader {
 public:
  explicit Reader(Value value) {
    value = behind_views(value);
    if (is_op(value, "convert") && value.node->input(0).meta().dtype == DType::F32)
      value = behind_views(operand_of(value));
    if (!is_op(value, "mul")) return;
    made_.nodes.push_back(value.node);
    made_.scale_views = made_.views.size();
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
      const DequantisedOperand before = made_;
      made_.scale = value.node->input(1 - k);
      const Value real = value.node->input(k);
      found_ = is_real(made_.scale.meta().dtype) && take_real(real, value);
      if (found_) return;
      made_ = before;
    }
  }

  std::optional<DequantisedOperand> found() const {
    return found_ ? std::optional(made_) : std::nullopt;
  }

 private:
  Value behind_views(Value value) {
    for (; is_view(value); value = value.node->input(0)) made_.views.push_back(value.node);
    return value;
  }

  /// Of a conversion.
  Value operand_of(Value value) {
    made_.nodes.push_back(value.node);
    return value.node->input(0);
  }

  /// Bytes in the dtype that `product` multiplies in, less zero points.
  bool take_real(Value value, Value product) {
    const DType dtype = product.meta().dtype;
    if (value.meta().sizes != product.meta().sizes) return false;
    value = behind_views(value);
    if (is_op(value, "sub")) {
      value = take_zero(value);
      return value && take_bytes(value, dtype);
    }
    if (!is_op(value, "convert") || value.meta().dtype != dtype) return false;
    if (is_byte(value.node->input(0).meta().dtype)) return take_bytes(value, dtype);
    value = behind_views(operand_of(value));
    if (value.meta().dtype != DType::I32) return false;
    if (is_op(value, "sub")) value = take_zero(value);
    return value && take_bytes(value, DType::I32);
  }

  /// What zero points are taken from; nothing where that is broadcast.
  Value take_zero(Value difference) {
    const Value from = difference.node->input(0);
    if (from.meta().sizes != difference.meta().sizes) return {};
    made_.nodes.push_back(difference.node);
    made_.zero = difference.node->input(1);
    made_.zero_views = made_.views.size();
    return behind_views(from);
  }

  bool take_bytes(Value value, DType dtype) {
    if (!is_op(value, "convert") || value.meta().dtype != dtype) return false;
    made_.bytes = operand_of(value);
    const DType bytes = made_.bytes.meta().dtype;
    if (!is_byte(bytes)) return false;
    made_.byte_zero = !made_.zero || is_in_range(made_.zero, bytes);
    return made_.byte_zero || is_real(made_.zero.meta().dtype);
  }

  /// Whether zero points are bytes too: differences are exact in each dtype.
  static bool is_in_range(Value zero, DType bytes) {
    while (is_view(zero) || (is_op(zero, "convert") && zero.meta().dtype != bytes))
      zero = zero.node->input(0);
    if (zero.meta().dtype == bytes) return true;
    if (!is_op(zero, "const")) return false;
    const ir::Literal& literal = zero.node->literal("value");
    const double least = bytes == DType::I8 ? -128 : 0;
    for (std::int64_t k = 0; k < literal.count(); ++k) {
      const double number = literal.at(k);
      if (!(number >= least && number <= least + 255 && number == std::floor(number))) return false;
    }
    return true;
  }

  DequantisedOperand made_;
  bool found_ = false;
};

/// What lies beside bytes, scales or zero points, as views of these leave it.
struct Beside {
  Dims sizes;  ///< each the bytes' size, or 1, or one for each `repeats` of theirs
  std::vector<std::int64_t> repeats;                            ///< 1: none
  std::vector<std::pair<std::string_view, ir::Attrs>> calls{};  ///< that make it so

  void reshape(Dims to, std::vector<std::int64_t> repeat) {
    sizes = std::move(to);
    repeats = std::move(repeat);
    calls.push_back({"reshape", {{"sizes", sizes}}});
  }
};

void permute(Beside& made, const Node& view) {
  const auto& perm = view.ints("perm");
  Beside turned{.sizes = {}, .repeats = {}, .calls = std::move(made.calls)};
  for (const std::int64_t axis : perm) {
    turned.sizes.push_back(made.sizes[static_cast<std::size_t>(axis)]);
    turned.repeats.push_back(made.repeats[static_cast<std::size_t>(axis)]);
  }
  turned.calls.push_back({"permute", {{"perm", perm}}});
  made = std::move(turned);
}

/// Does to what lies beside bytes what a reshape does to these, run by run of dimensions that have as many elements before
/// as after.
class Reshaper {
 public:
  Reshaper(Beside& made, const Node& view)
      : made_(made), from_(view.input(0).meta().sizes), to_(view.output().sizes) {}

  /// False where that has no sizes of its own.
  bool run() {
    std::size_t i = 0;
    std::size_t j = 0;
    while (i < from_.size() || j < to_.size()) {
      const std::size_t first = i;
      const std::size_t begin = j;
      SymExpr before = next(from_, i);
      SymExpr after = next(to_, j);
      while (!(before == after)) {
        const bool known = before.is_constant() && after.is_constant();
        const bool takes = known ? before.constant() < after.constant() : before.is_constant(1);
        if (!known && !takes && !after.is_constant(1)) return false;
        if (takes ? i == from_.size() : j == to_.size()) return false;
        (takes ? before : after) = takes ? before * next(from_, i) : after * next(to_, j);
      }
      if (!part(first, i, std::span(to_).subspan(begin, j - begin))) return false;
    }
    made_.reshape(std::move(sizes_), std::move(repeats_));
    return true;
  }

 private:
  static SymExpr next(const Dims& sizes, std::size_t& at) {
    return at < sizes.size() ? sizes[at++] : SymExpr(1);
  }

  /// Dimensions [first, last), which become those of `to`.
  bool part(std::size_t first, std::size_t last, std::span<const SymExpr> to) {
    SymExpr elements = 1;  // of leading dimensions, which have one for each of the bytes'
    std::int64_t shared =
        1;  // bytes of the others, which share one; 0: of so many that is not known
    bool ended = false;
    for (std::size_t d = first; d < last; ++d) {
      if (from_[d].is_constant(1)) continue;
      const bool is_one = made_.sizes[d].is_constant(1);
      if (!is_one && ended) return false;
      if (!is_one) elements = elements * made_.sizes[d];
      if (!is_one && made_.repeats[d] == 1) continue;
      ended = true;
      shared *= !is_one ? made_.repeats[d] : from_[d].is_constant() ? from_[d].constant() : 0;
    }
    const bool same_for_all = elements.is_constant(1);
    const auto wide = std::ranges::count_if(to, [](const auto& d) { return !d.is_constant(1); });
    if (!same_for_all && ended && (wide > 1 || shared == 0)) return false;
    for (const SymExpr& size : to) {
      const bool is_one = same_for_all || size.is_constant(1);
      sizes_.push_back(is_one ? SymExpr(1) : ended ? elements : size);
      repeats_.push_back(is_one || !ended ? 1 : shared);
    }
    return true;
  }

  Beside& made_;
  const Dims& from_;
  const Dims& to_;
  Dims sizes_;
  std::vector<std::int64_t> repeats_;
};

/// `part` through `views`, the innermost of which, or the product where there is none, reads what it is broadcast to.
std::optional<Beside> follow(Value part, std::span<const Node* const> views, const Dims& whole) {
  const std::size_t rank =
      views.empty() ? whole.size() : static_cast<std::size_t>(views.back()->input(0).meta().rank());
  Dims sizes = part.meta().sizes;
  if (sizes.size() > rank) return {};
  Beside made{.sizes = sizes, .repeats = std::vector<std::int64_t>(rank, 1)};
  if (sizes.size() < rank) {
    sizes.insert(sizes.begin(), rank - sizes.size(), SymExpr(1));
    made.reshape(sizes, made.repeats);
  }
  for (std::size_t k = views.size(); k-- > 0;) {
    if (is_op(views[k]->value(), "permute"))
      permute(made, *views[k]);
    else if (!Reshaper(made, *views[k]).run())
      return {};
  }
  return made;
}

class DequantisedConverter {
 public:
  explicit DequantisedConverter(const LowerOptions& options)
      : options_(options), on_cpu_(options.target == LowerOptions::Target::Cpu), fixed_(options) {}

  std::optional<std::vector<Value>> visit(ir::Rewriter& rewriter, const Node& node) {
    if (node.op_name() != "matmul" || classify(node, options_) != NodeClass::Nest) return {};
    if (!unit_of(node, options_).fuse || ir::wants_fallback(node)) return {};
    if (!is_real(node.output().dtype) || node.input(1).meta().rank() < 2) return {};
    const auto found = Reader(node.input(1)).found();
    if (!found || !std::ranges::all_of(found->nodes, [&](const Node* each) {
          return each->after().empty() && same_unit(*each, node, options_) &&
                 !ir::wants_fallback(*each);
        }))
      return {};
    if (stays_packed(node, *found))
      if (auto made = bits_product(rewriter, node, *found)) return made;
    if (on_cpu_ || !found->byte_zero) return {};
    return bytes_product(rewriter, node, *found);
  }

 private:
  /// Whether all that stands for the matrix is the same in each run, and worth it, and its product not one of bytes.
  bool stays_packed(const Node& node, const DequantisedOperand& found) {
    for (const Value part : {found.bytes, found.scale, found.zero})
      if (part && !fixed_.contains(part.node)) return false;
    return on_cpu_ ? takes_bits_product(found.bytes, node.input(1)) && !byte_product_of(node)
                   : node.input(1).meta().rank() == 2 && bits_of(found.bytes) != kByteBits;
  }

  /// What lies beside the matrix, and rows that share a row of it.
  struct Parts {
    Value scale, zero;
    std::optional<Beside> scales, zeros;
    std::int64_t group = 0;
  };
  /// @param middle  whether zero points are left out that panels of words take off anyway
  std::optional<Parts> parts(const Node& node, const DequantisedOperand& found, bool middle) const {
    const Dims& whole = node.input(1).meta().sizes;
    const std::span<const Node* const> views = found.views;
    Parts made{.scale = as_it_lies(found.scale, is_real), .zero = {}, .scales = {}, .zeros = {}};
    if (found.zero && !(middle && is_middle(found))) made.zero = as_it_lies(found.zero, is_byte);
    made.scales = follow(made.scale, views.first(found.scale_views), whole);
    if (!made.scales || !shares_rows(*made.scales, whole, made.group)) return {};
    if (!made.zero) return made;
    made.zeros = follow(made.zero, views.first(found.zero_views), whole);
    if (!made.zeros || !shares_rows(*made.zeros, whole, made.group)) return {};
    return made;
  }

  /// The matrix as it lies, through the views.
  static Value numbers(ir::Rewriter& rewriter, const DequantisedOperand& found) {
    Value bytes = rewriter.map(found.bytes);
    for (std::size_t k = found.views.size(); k-- > 0;)
      bytes = rewriter.builder()
                  .call(found.views[k]->op(), std::array{bytes}, found.views[k]->attrs())
                  ->value();
    return bytes;
  }

  std::optional<std::vector<Value>> bits_product(ir::Rewriter& rewriter, const Node& node,
                                                 const DequantisedOperand& found) {
    const auto beside = parts(node, found, true);
    if (!beside) return {};
    GraphBuilder& b = rewriter.builder();
    const BitsProduct product{
        .left = rewriter.map(node.input(0)),
        .numbers = numbers(rewriter, found),
        .scale = made(b, rewriter.map(beside->scale), *beside->scales),
        .zero = beside->zero ? made(b, rewriter.map(beside->zero), *beside->zeros) : Value(),
        .bits = bits_of(found.bytes),
        .group = beside->group,
        .tf32 = !on_cpu_ && node.flag("tf32")};
    if (!fits_words(product)) return {};
    if (!on_cpu_)
      return std::vector<Value>{emit_bits_product(b, product, whole_width(product.numbers))};
    return std::vector<Value>{
        emit_bits_product(b, product, kPanelColumns, fixed_rows(b, node, product))};
  }

  std::optional<std::vector<Value>> bytes_product(ir::Rewriter& rewriter, const Node& node,
                                                  const DequantisedOperand& found) const {
    const auto beside = parts(node, found, false);
    if (!beside) return {};
    GraphBuilder& b = rewriter.builder();
    const Value bytes = numbers(rewriter, found);
    std::vector<Value> operands = {rewriter.map(node.input(0)), bytes,
                                   made(b, rewriter.map(beside->scale), *beside->scales)};
    if (beside->zero)
      operands.push_back(
          as_integers(b, made(b, rewriter.map(beside->zero), *beside->zeros), bytes.meta().dtype));
    ir::Attrs attrs{{"group", beside->group}, {"tf32", node.flag("tf32")}};
    return std::vector<Value>{b.call("dequantised_matmul", operands, std::move(attrs))->value()};
  }

  /// The rows on the left of `node` in fixed point, made once for all products that read them; null where that does not pay.
  const FixedRows* fixed_rows(ir::GraphBuilder& b, const Node& node, const BitsProduct& parts) {
    const std::int64_t block = block_of(parts);
    if (!options_.byte_dot || block == 0) return nullptr;
    const bool is_f32 = node.output().dtype == DType::F32;
    const std::int64_t digits = node.flag("int8") ? 1 : is_f32 && !node.flag("bf16") ? 3 : 2;
    const auto [found, is_new] = rows_.try_emplace({node.input(0), region_of(node), digits, block});
    if (is_new) found->second = emit_fixed_rows(b, parts.left, digits, block);
    return &found->second;
  }

  /// Whether the zero points are those that panels of words take off anyway.
  static bool is_middle(const DequantisedOperand& found) {
    Value zero = found.zero;
    while (is_view(zero) || is_op(zero, "convert")) zero = zero.node->input(0);
    const auto splat = splat_of(*zero.node);
    if (!splat) return false;
    const double number =
        is_floating(zero.meta().dtype) ? splat->number : static_cast<double>(splat->integer);
    return number == static_cast<double>(middle_of(found.bytes));
  }

  /// What `part` widens, if that is such a dtype: exactly.
  static Value as_it_lies(Value part, bool (*fits)(DType)) {
    const bool widens = is_op(part, "convert") && fits(part.node->input(0).meta().dtype) &&
                        (part.meta().dtype == DType::F32 || fits == is_byte);
    return widens ? part.node->input(0) : part;
  }

  static Value made(GraphBuilder& b, Value value, const Beside& beside) {
    for (const auto& [op, attrs] : beside.calls) value = b.emit(op, {value}, attrs);
    return value;
  }

  static Value as_integers(GraphBuilder& b, Value zero, DType bytes) {
    if (zero.meta().dtype == bytes || zero.meta().dtype == DType::I32) return zero;
    return b.emit("convert", {zero}, {{"dtype", DType::I32}});
  }

  /// Whether what lies beside the matrix differs along its depth in groups that a kernel can take, of `group` rows if there
  /// are any, and along other dimensions element by element.
  static bool shares_rows(const Beside& made, const Dims& whole, std::int64_t& group) {
    const std::size_t depth = whole.size() - 2;
    for (std::size_t d = 0; d < whole.size(); ++d)
      if (d != depth && made.repeats[d] != 1) return false;
    if (made.sizes[depth].is_constant(1)) return true;
    const std::int64_t rows = made.repeats[depth];
    if (!whole[depth].is_constant() || rows % kGroupRows != 0 || (group != 0 && group != rows))
      return false;
    group = rows;
    return true;
  }

  const LowerOptions& options_;
  bool on_cpu_;
  FixedValues fixed_;
  std::map<std::tuple<Value, std::string, std::int64_t, std::int64_t>, FixedRows> rows_;
};

ir::Graph convert(const ir::Graph& graph, const LowerOptions& options) {
  DequantisedConverter converter(options);
  return ir::rewrite(graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) {
    return converter.visit(rewriter, *node);
  });
}

}  // namespace

ir::Graph dequantised_products(const ir::Graph& graph, const LowerOptions& options) {
  return options.target == LowerOptions::Target::Cuda ? convert(graph, options) : graph;
}

ir::Graph bits_products(const ir::Graph& graph, const LowerOptions& options) {
  return options.target == LowerOptions::Target::Cpu ? convert(graph, options) : graph;
}

}  // namespace heddle::jit
