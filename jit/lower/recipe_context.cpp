// Nest groups: a recipe builds the loops; producers are inlined where it reads, the epilogue where it gives
// its results.
#include "base/check.h"
#include "ir/op.h"
#include "jit/lower/affine.h"
#include "jit/lower/kernel.h"
#include "jit/lower/nest_context.h"
#include "jit/lower/region.h"

namespace heddle::jit {
namespace {

class RecipeContext final : public NestContext {
 public:
  explicit RecipeContext(Kernel& kernel) : kernel_(kernel), node_(*kernel.group.root) {
    kernel_.emitter.override_value = [this](Value value, const Index& index) {
      return given(value, index);
    };
  }

  const ir::Node& node() const override { return node_; }
  const LowerOptions& options() const override { return kernel_.state.options(); }
  NestBuilder& builder() override { return kernel_.builder; }

  // The nest is built in the graph's symbols, which are numbered when it is finished.
  std::vector<SymExpr> operand_sizes(std::size_t k) override { return node_.input(k).meta().sizes; }
  std::vector<SymExpr> output_sizes(std::size_t k) override { return node_.output(k).sizes; }
  SymExpr translate(const SymExpr& graph_expr) override { return graph_expr; }

  Scalar operand(std::size_t k, std::span<const SymExpr> index, ScalarId mask) override {
    Scope scope(kernel_.emitter);
    return kernel_.emitter.request_masked(node_.input(k), Index(index.begin(), index.end()), mask);
  }

  std::optional<AffineOperand> affine(std::size_t k) override {
    const LiveGraph& graph = kernel_.state.graph();
    const Value operand = node_.input(k);
    const auto view = affine_view(graph, operand);
    if (view && kernel_.memory.is_loaded(view->base))
      return AffineOperand{kernel_.memory.buffer(view->base), view->offset, view->strides};
    const Value storage = graph.storage(operand);
    if (!kernel_.memory.is_loaded(storage)) return std::nullopt;
    return AffineOperand{kernel_.memory.buffer(storage), 0, ir::row_major(operand.meta().sizes)};
  }

  void result(std::size_t k, std::span<const SymExpr> index, Scalar value) override {
    give(k, index, {&value, 1});
  }
  void results(std::span<const SymExpr> index, std::span<const Scalar> values) override {
    give(0, index, values);
  }

  NestBufferId output_memory(std::size_t k) override {
    const Value value = node_.value(static_cast<std::uint32_t>(k));
    HD_CHECK(kernel_.memory.is_stored(value), "a recipe's output in memory is a value of its own");
    return kernel_.memory.buffer(value);
  }

  std::int32_t check(std::string_view what) override {
    return kernel_.state.shared.checks.code(std::string(what), node_.location().to_string());
  }

 private:
  /// The recipe opens and closes blocks as it likes, so nothing is remembered from call to call.
  class Scope {
   public:
    explicit Scope(ElementEmitter& emitter) : emitter_(emitter) { emitter_.open_scope(); }
    ~Scope() { emitter_.close_scope(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    ElementEmitter& emitter_;
  };

  /// Elements of outputs from `first` on, and what is computed of them: of output 0 and those given with it, the epilogue.
  void give(std::size_t first, std::span<const SymExpr> index, std::span<const Scalar> values) {
    Scope scope(kernel_.emitter);
    first_given_ = first;
    given_index_.assign(index.begin(), index.end());
    for (const Scalar& value : values)
      given_.push_back(kernel_.builder.convert(value, node_.output(first + given_.size()).dtype));
    std::vector<std::pair<Value, Scalar>> elements;
    for (const Value& stored : kernel_.stored) {
      if (stored.node == &node_ ? !is_given(stored) : first != 0) continue;
      elements.emplace_back(stored, kernel_.emitter.request(stored, index_of(stored)));
    }
    for (const auto& [stored, scalar] : elements) kernel_.store(stored, index_of(stored), scalar);
    given_.clear();
  }
  bool is_given(Value value) const {
    return value.node == &node_ && value.index >= first_given_ &&
           value.index < first_given_ + given_.size();
  }

  Index index_of(Value stored) const {
    const NodeReads& reads = kernel_.state.reads.of(stored.node);
    const Read* read = permuting_read(kernel_.group, kernel_.state.graph(), reads, stored.node);
    if (read == nullptr) return point_in(stored);
    return permuted_index(reads, *read, point_in(read->value), kernel_.builder.facts(), options())
        .value_or(point_in(stored));
  }
  Index point_in(Value value) const {
    return index_in(value.meta().sizes, node_.output(first_given_).sizes, given_index_,
                    kernel_.builder.facts());
  }

  /// The recipe's own result where its epilogue reads it.
  std::optional<Scalar> given(Value value, const Index&) const {
    if (!is_given(value)) return std::nullopt;
    return given_[value.index - first_given_];
  }

  Kernel& kernel_;
  const Node& node_;
  std::size_t first_given_ = 0;  ///< output
  std::vector<Scalar> given_;    ///< elements of outputs from there on
  Index given_index_;
};

}  // namespace

BuiltKernel build_recipe(const LoweringState& state, std::uint32_t group) {
  Kernel kernel(state, group);
  if (kernel.is_empty()) return kernel.finish_empty();
  RecipeContext context(kernel);
  find_recipe(kernel.group.root->op().lowering.nest)->build(context);
  return kernel.finish(/*loops_run=*/false);
}

}  // namespace heddle::jit
