#include "ir/custom_evaluate.h"

#include <deque>

#include "heddle/error.h"
#include "ir/custom_op.h"

namespace heddle::ir {
namespace {

KernelTensor tensor_of(Literal& literal) {
  return {.data = literal.data(),
          .dtype = literal.dtype(),
          .present = true,
          .rank = static_cast<std::int32_t>(literal.rank()),
          .size_data = literal.sizes().data(),
          .stride_data = literal.strides().data()};
}

/// One call, with the tensors that its KernelCall points to.
class Evaluation {
 public:
  explicit Evaluation(const EvalContext& context)
      : context_(context),
        op_(*context.node.op().custom),
        layout_(layout_of(context.node)),
        attrs_(kernel_attrs(op_, context.node.attrs(), context.sizes)) {}

  std::vector<Literal> run() {
    for (const std::size_t operand : layout_.bases)
      bases_.push_back(context_.inputs[operand].contiguous().clone());
    for (std::size_t k = 0; k < context_.inputs.size(); ++k) add_argument(k);
    call_.op = op_.schema.name;
    call_.starts = layout_.starts;
    call_.attrs = &attrs_;
    call_.tensors = arguments_;
    make_results();
    std::vector<std::int64_t> scratch;
    if (op_.workspace_bytes && !op_.reference) {
      call_.workspace_bytes = op_.workspace_bytes(call_);
      scratch.resize(static_cast<std::size_t>(call_.workspace_bytes) / sizeof(std::int64_t) + 16);
      auto address = reinterpret_cast<std::uintptr_t>(scratch.data());
      call_.workspace = reinterpret_cast<void*>((address + 63) / 64 * 64);
    }
    if (op_.extent) call_.end = op_.extent(call_);
    (op_.reference ? op_.reference : op_.cpu)(call_);
    results_.insert(results_.end(), bases_.begin(), bases_.end());
    return std::move(results_);
  }

 private:
  void add_argument(std::size_t k) {
    if (!context_.has(k)) {
      arguments_.push_back({});
      return;
    }
    const WrittenOperand* written = layout_.written_at(k);
    if (written == nullptr) {
      held_.push_back(context_.inputs[k]);
    } else if (written->view.whole) {
      held_.push_back(bases_[written->base]);
    } else {
      held_.push_back(bases_[written->base].view(context_.concrete(written->view.sizes),
                                                 context_.concrete(written->view.strides),
                                                 written->view.offset.evaluate(context_.sizes)));
    }
    arguments_.push_back(tensor_of(held_.back()));
  }

  void make_results() {
    const std::size_t count = result_count(context_.node);
    const std::vector<Sizes> sizes = op_.sizes ? op_.sizes(call_) : std::vector<Sizes>();
    results_.resize(count);
    for (std::uint32_t k = 0; k < count; ++k) {
      Literal& result = results_[k];
      if (const auto operand = viewed_operand(context_.node, k)) {
        const Sizes wanted = context_.output_sizes(k);
        result = context_.inputs[*operand].contiguous().view(wanted, row_major_strides(wanted), 0);
        continue;
      }
      result =
          k < sizes.size() ? Literal(context_.node.output(k).dtype, sizes[k]) : context_.make(k);
      call_results_.push_back(tensor_of(result));
    }
    call_.results = call_results_;
  }

  const EvalContext& context_;
  const CustomOp& op_;
  const CustomLayout layout_;
  const KernelAttrs attrs_;
  KernelCall call_;
  std::vector<Literal> bases_, results_;
  std::deque<Literal> held_;
  std::vector<KernelTensor> arguments_, call_results_;
};

}  // namespace

std::vector<Literal> evaluate_custom(const EvalContext& context) {
  return Evaluation(context).run();
}

}  // namespace heddle::ir
