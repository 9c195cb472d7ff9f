// Pointwise groups: every member at each point of one domain, stored where others need it.
#include <algorithm>
#include <optional>

#include "jit/lower/domain.h"
#include "jit/lower/kernel.h"
#include "jit/lower/nest_rewrite.h"
#include "jit/lower/pieces.h"

namespace heddle::jit {

namespace {

/// Pieces of a domain that is cut along two axes.
constexpr std::size_t kMostPieces = 6;
/// Statements of a body that computes all elements of a short row.
constexpr std::size_t kMostColumnStatements = 160;

class PointwiseBuilder {
 public:
  PointwiseBuilder(const LoweringState& state, std::uint32_t group)
      : kernel_(state, group), domain_(kernel_.group.domain) {
    assume_elements(domain_, kernel_.builder.facts());
  }

  BuiltKernel run() {
    if (kernel_.is_empty()) return kernel_.finish_empty();
    std::vector<AxisRun> axes = make_axes(kernel_.builder, domain_, point_);
    Block body = emit();
    if (split_last(body, axes)) body = emit();
    if (const auto cut = find_cut(body, axes, kernel_.builder.facts(), kMostPieces)) {
      emit_pieces(axes, *cut);
    } else {
      wrap(std::move(body), axes);
    }
    return kernel_.finish(/*loops_run=*/true);
  }

 private:
  /// On the CPU, makes two axes of the last one where reads take it apart, as those of pixels that are put side by side do: whole
  /// short rows, which wrap_columns() takes, and how many.
  ///
  ///   i1 < 112: load x[128*floor(i1/2) + 32*mod(i1,2)]   ==>   i1 < 56, i2 < 2: load x[128*i1 + 32*i2]
  ///
  /// @return whether it did.
  bool split_last(const Block& body, std::vector<AxisRun>& axes) {
    if (axes.empty() || kernel_.state.options().target != LowerOptions::Target::Cpu) return false;
    const AxisRun last = axes.back();
    std::optional<std::int64_t> columns;
    for (const Stmt& statement : body) {
      const auto* load = std::get_if<LoadStmt>(&statement.node);
      if (load != nullptr && !columns) columns = remainders_of(load->index, last.axis);
    }
    if (!columns || !last.extent.is_constant() || last.extent.constant() % *columns != 0 ||
        !takes_columns(body, *columns))
      return false;
    NestBuilder& builder = kernel_.builder;
    const SymExpr rows = last.extent.constant() / *columns;
    std::vector<AxisRun> made(axes.begin(), axes.end() - 1);
    made.push_back({builder.new_axis(rows), rows});
    made.push_back({builder.new_axis(*columns), *columns});
    if (!has_columns(made)) return false;
    const SymExpr whole = SymExpr(made[made.size() - 2].axis) * *columns + made.back().axis;
    for (SymExpr& expr : point_) expr = expr.substitute({{last.axis, whole}});
    axes = std::move(made);
    return true;
  }

  /// By which constant an index divides `axis` and takes the remainder.
  static std::optional<std::int64_t> remainders_of(const SymExpr& index, Symbol axis) {
    if (index.is_constant() || index.is_symbol()) return std::nullopt;
    const std::vector<SymExpr> operands = index.operands();
    if (index.kind() == SymExpr::Kind::Mod && operands[0].is_symbol() &&
        operands[0].symbol() == axis && operands[1].is_constant())
      return operands[1].constant();
    for (const SymExpr& operand : operands)
      if (const auto found = remainders_of(operand, axis)) return found;
    return std::nullopt;
  }

  /// The statements for one point. Stores come last, so that a result may overwrite an operand.
  Block emit() {
    kernel_.emitter.open_scope();
    std::vector<std::pair<Index, Scalar>> elements;
    for (const Value& value : kernel_.stored) {
      Index index = index_in(value.meta().sizes, domain_, point_, kernel_.builder.facts());
      const Scalar element = kernel_.emitter.request(value, index);
      elements.emplace_back(std::move(index), element);
    }
    for (std::size_t k = 0; k < kernel_.stored.size(); ++k)
      kernel_.store(kernel_.stored[k], elements[k].first, elements[k].second);
    kernel_.emitter.close_scope();
    return kernel_.take_body();
  }

  void wrap(Block body, const std::vector<AxisRun>& axes) {
    std::vector<AxisRun> runs = collapse(kernel_.builder, body, axes);
    const LowerOptions& options = kernel_.state.options();
    if (options.target == LowerOptions::Target::Cpu && has_columns(runs) &&
        runs.back().axis == axes.back().axis && runs.back().extent == axes.back().extent &&
        takes_columns(body, runs.back().extent.constant()))
      return wrap_columns(axes, runs.back().extent.constant());
    wrap_points(kernel_.builder, std::move(body), std::move(runs), options);
  }

  /// Whether all columns of a row are written out, with the body of each.
  static bool takes_columns(const Block& body, std::int64_t columns) {
    const bool is_flat = std::ranges::none_of(body, [](const Stmt& statement) {
      return std::holds_alternative<ForStmt>(statement.node) ||
             std::holds_alternative<IfStmt>(statement.node);
    });
    return is_flat && body.size() * static_cast<std::size_t>(columns) <= kMostColumnStatements;
  }

  /// All elements of the last axis at each point of the others: what they have in common is computed once, and comparisons of
  /// columns are known.
  void wrap_columns(std::vector<AxisRun> axes, std::int64_t columns) {
    const Symbol column = axes.back().axis;
    axes.pop_back();
    const Index whole = point_;
    kernel_.emitter.open_scope();
    std::vector<Index> places;
    std::vector<Scalar> elements;
    for (const Value& value : kernel_.stored) {
      for (std::int64_t k = 0; k < columns; ++k) {
        point_ = whole;
        for (SymExpr& expr : point_) expr = expr.substitute({{column, SymExpr(k)}});
        places.push_back(index_in(value.meta().sizes, domain_, point_, kernel_.builder.facts()));
        elements.push_back(kernel_.emitter.request(value, places.back()));
      }
    }
    for (std::size_t k = 0; k < elements.size(); ++k)
      kernel_.store(kernel_.stored[k / static_cast<std::size_t>(columns)], places[k], elements[k]);
    kernel_.emitter.close_scope();
    point_ = whole;
    Block body = kernel_.take_body();
    drop_unused(body);
    std::vector<AxisRun> runs = collapse(kernel_.builder, body, axes);
    wrap_points(kernel_.builder, std::move(body), std::move(runs), kernel_.state.options(),
                columns);
  }

  /// Emits again for each piece, where what the bounds decide is known; a few pieces are cut along another axis again, as those of
  /// halves that are turned on their way behind a cache.
  void emit_pieces(const std::vector<AxisRun>& axes, const Cut& cut) {
    const bool is_cuda = kernel_.state.options().target == LowerOptions::Target::Cuda;
    // Pieces along an inner axis are parts of the same rows.
    const bool are_parts_of_rows =
        std::any_of(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(cut.axis),
                    [](const AxisRun& outer) { return !outer.extent.is_constant(1); });
    PieceJoiner joiner(kernel_.builder, is_cuda, !is_cuda && are_parts_of_rows);
    emit_pieces(axes, cut, kMostPieces, joiner);
    joiner.join();
  }

  void emit_pieces(const std::vector<AxisRun>& axes, const Cut& cut, std::size_t most,
                   PieceJoiner& joiner) {
    std::vector<SymExpr> ends = cut.bounds;
    ends.push_back(axes[cut.axis].extent);
    const std::size_t left = most / ends.size();
    const Index whole = point_;
    SymExpr begin = 0;
    for (const SymExpr& end : ends) {
      std::vector<AxisRun> own;
      base::SymbolExprs places;
      for (std::size_t k = 0; k < axes.size(); ++k) {
        const SymExpr extent = k == cut.axis ? end - begin : axes[k].extent;
        own.push_back({kernel_.builder.new_axis(extent), extent});
        places.emplace(axes[k].axis, k == cut.axis ? begin + own[k].axis : SymExpr(own[k].axis));
      }
      point_ = whole;
      for (SymExpr& expr : point_) expr = expr.substitute(places);
      Block body = emit();
      drop_unused(body);  // Comparisons of what this piece has none of would cut it.
      const auto again =
          left > 1 ? find_cut(body, own, kernel_.builder.facts(), left) : std::nullopt;
      if (again && again->bounds.size() < left) {
        emit_pieces(own, *again, left, joiner);
      } else {
        wrap(std::move(body), own);
        joiner.take();
      }
      begin = end;
    }
    point_ = whole;
  }

  Kernel kernel_;
  const ir::Dims& domain_;
  Index point_;
};

}  // namespace

BuiltKernel build_pointwise(const LoweringState& state, std::uint32_t group) {
  return PointwiseBuilder(state, group).run();
}

FinishedNest build_copy(const ir::TensorMeta& source, const ir::TensorMeta& target,
                        const LowerOptions& options) {
  NestBuilder builder("copy");
  assume_elements(source.sizes, builder.facts());
  const NestBufferId from = builder.add_global(source.dtype, source.count());
  const NestBufferId to = builder.add_global(target.dtype, target.count());
  Index point;
  const std::vector<AxisRun> axes = make_axes(builder, source.sizes, point);
  const Scalar element = builder.load(from, strided_index(point, source.strides));
  builder.store(to, strided_index(point, target.strides), builder.convert(element, target.dtype));

  Block body = std::exchange(builder.nest().body, Block{});
  std::vector<AxisRun> runs = collapse(builder, body, axes);
  wrap_points(builder, std::move(body), std::move(runs), options);
  return finish_nest(builder, source.sizes, /*loops_run=*/true, options);
}

}  // namespace heddle::jit
