#include "engine/fold.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/file_place.h"
#include "base/lasting.h"
#include "heddle/error.h"
#include "jit/index_report.h"

namespace heddle::engine {

using ir::BufferId;
using ir::PlanBuffer;

namespace {

ir::Sizes sizes_of(const PlanBuffer& buffer) {
  ir::Sizes sizes;
  for (const ir::SymExpr& size : buffer.sizes) sizes.push_back(size.constant());
  return sizes;
}

std::size_t bytes_of(const PlanBuffer& buffer) {
  return static_cast<std::size_t>(ir::element_count(sizes_of(buffer))) * size_of(buffer.dtype);
}

/// The elements of a buffer that lie at `memory`.
ir::Literal literal_at(const PlanBuffer& buffer, std::shared_ptr<const void> memory) {
  ir::Sizes sizes = sizes_of(buffer);
  ir::Sizes strides = ir::row_major_strides(sizes);
  void* data = const_cast<void*>(memory.get());
  return {buffer.dtype, std::move(sizes), std::move(strides), data, std::move(memory)};
}

/// Zeroed. Packed weights are most of what is folded: those that are not small share huge pages.
ir::Literal allocate(const PlanBuffer& buffer) {
  constexpr std::size_t kSmallBytes = std::size_t{16} << 10;
  if (bytes_of(buffer) < kSmallBytes) return {buffer.dtype, sizes_of(buffer)};
  return literal_at(buffer, base::lasting_memory(bytes_of(buffer)));
}

bool all_constant(std::span<const ir::SymExpr> exprs) {
  return std::all_of(exprs.begin(), exprs.end(), [](const auto& e) { return e.is_constant(); });
}

/// What is computed of nothing, positions and what follows from them, is no more than numbers in its kernel: it is kept up to this.
constexpr std::size_t kMostBytesOfNothing = std::size_t{64} << 10;

}  // namespace

class FixedSteps::Impl {
 public:
  Impl(jit::Program& program, std::vector<ir::Literal>& fixed, FoldingKernels& kernels,
       jit::ConstantCache* constants)
      : program_(program), fixed_(fixed), kernels_(kernels) {
    refused_.resize(program.record.buffers.size());
    do mark();
    while (refuse());
    std::vector<bool> is_known(refused_.size());
    for (std::size_t k = 0; k < folded_.size(); ++k) {
      if (!folded_[k]) continue;
      for (const BufferId id : steps()[k].writes) {
        if (is_known[root(id)]) continue;
        is_known[root(id)] = true;
        results_.buffers.push_back(root(id));
        results_.bytes.push_back(bytes_of(buffer(root(id))));
      }
    }
    find_last_readers();
    if (!expects_results(constants)) submit_kernels();
  }

  std::size_t run() {
    FoldedResults& made = results_;
    if (!made.key.empty()) found_ = constants_->find(made.key, made.bytes);
    if (found_.empty()) submit_kernels();
    for (std::size_t k = 0; k < made.buffers.size() && !found_.empty(); ++k)
      fixed_[made.buffers[k]] = literal_at(buffer(made.buffers[k]), found_[k]);
    for (std::size_t k = 0; k < folded_.size() && found_.empty(); ++k) {
      if (!folded_[k]) continue;
      execute(k);
      give_back_operands(k);
    }
    for (const BufferId result : made.buffers) make_constant(result);
    if (constants_ != nullptr && found_.empty()) store_results();
    const auto count = static_cast<std::size_t>(std::ranges::count(folded_, true));
    if (count != 0) remove(folded_);
    return count;
  }

  const std::vector<bool>& folded() const { return folded_; }
  FoldedResults take_results() { return std::move(results_); }

 private:
  std::vector<ir::PlanStep>& steps() { return program_.record.steps; }
  PlanBuffer& buffer(BufferId id) { return program_.record.buffers[id]; }
  BufferId root(BufferId id) { return ir::alias_root(program_.record, id); }

  /// Which steps are folded, but for those that write what is refused.
  void mark() {
    is_fixed_.assign(refused_.size(), false);
    for (BufferId id = 0; id < is_fixed_.size(); ++id) {
      const PlanBuffer::Role role = buffer(root(id)).role;
      is_fixed_[id] = role == PlanBuffer::Role::Parameter || role == PlanBuffer::Role::Constant;
    }
    folded_.assign(steps().size(), false);
    for (std::size_t k = 0; k < steps().size(); ++k) {
      folded_[k] = foldable(k);
      if (!folded_[k]) continue;
      for (const BufferId id : steps()[k].writes) is_fixed_[root(id)] = true;
    }
  }

  /// Refuses buffers that a step writes, or reads before the last one writes it, which is not folded: what folded steps made
  /// would not be what it finds. @return whether there were any.
  bool refuse() {
    // By a folded step after the one that is looked at.
    std::vector<bool> is_written(refused_.size());
    bool any = false;
    for (std::size_t k = folded_.size(); k-- > 0;) {
      for (const BufferId id : steps()[k].writes) {
        if (folded_[k])
          is_written[root(id)] = true;
        else if (!refused_[root(id)] && is_fixed_[root(id)])
          any = refused_[root(id)] = true;
      }
      if (folded_[k]) continue;
      for (const BufferId id : program_.launches[k].buffers)
        if (is_written[root(id)] && !refused_[root(id)]) any = refused_[root(id)] = true;
    }
    return any;
  }

  bool foldable(std::size_t k) {
    const ir::PlanStep& step = steps()[k];
    const jit::ProgramKernel& kernel = program_.kernels[step.kernel];
    if (kernel.nest == nullptr || !all_constant(program_.launches[k].sizes)) return false;
    // What the kernel is given, not what the record says it reads: nothing else is there yet.
    for (const BufferId id : program_.launches[k].buffers) {
      const bool is_result = std::ranges::any_of(
          step.writes, [&](BufferId written) { return root(written) == root(id); });
      if (!is_result && !is_fixed_[root(id)]) return false;
    }
    for (const BufferId id : step.reads) {
      if (!is_fixed_[root(id)]) return false;
    }
    return std::all_of(step.writes.begin(), step.writes.end(), [&](BufferId id) {
      const PlanBuffer& target = buffer(root(id));
      return target.role == PlanBuffer::Role::Intermediate && all_constant(target.sizes) &&
             !refused_[root(id)] &&
             (!step.reads.empty() || bytes_of(target) <= kMostBytesOfNothing);
    });
  }

  void execute(std::size_t k) {
    const ir::PlanStep& step = steps()[k];
    for (const BufferId id : step.writes) {
      const BufferId owner = root(id);
      if (fixed_[owner].identity() == nullptr) fixed_[owner] = allocate(buffer(owner));
    }
    std::vector<std::int64_t> sizes;
    for (const ir::SymExpr& size : program_.launches[k].sizes) sizes.push_back(size.constant());
    std::vector<const ir::Literal*> buffers;
    for (const BufferId id : program_.launches[k].buffers) buffers.push_back(&fixed_[root(id)]);
    if (const std::int32_t status = kernels_.run(step.kernel, buffers, sizes); status != 0)
      throw jit::index_error(program_, status, kernels_.report());
  }

  void find_last_readers() {
    last_reader_.assign(program_.record.buffers.size(), 0);
    for (std::size_t k = 0; k < folded_.size(); ++k)
      for (const BufferId id : program_.launches[k].buffers) last_reader_[root(id)] = k;
    for (std::size_t k = 0; k < folded_.size(); ++k)
      for (const BufferId id : program_.launches[k].buffers)
        if (!folded_[k]) last_reader_[root(id)] = folded_.size();
  }

  /// Weights in a file that no step after this one reads leave memory: their packed form takes their place.
  void give_back_operands(std::size_t k) {
    for (const BufferId id : program_.launches[k].buffers) {
      const ir::Literal& literal = fixed_[root(id)];
      if (last_reader_[root(id)] == k) base::give_back_pages(literal.identity(), literal.bytes());
    }
  }

  void make_constant(BufferId id) {
    PlanBuffer& target = buffer(id);
    target.role = PlanBuffer::Role::Constant;
    target.position = static_cast<std::uint32_t>(program_.constants.size());
    program_.constants.push_back(std::make_shared<const ir::Literal>(fixed_[id]));
  }

  /// Whether all results seem to be on disk, where they are large enough for that to be worth it: they are read while other
  /// kernels are compiled.
  bool expects_results(jit::ConstantCache* constants) {
    const std::size_t bytes = std::reduce(results_.bytes.begin(), results_.bytes.end());
    if (constants == nullptr || bytes < jit::ConstantCache::kLeastBytes) return false;
    constants_ = constants;
    results_.key = results_key();
    for (std::size_t k = 0; k < folded_.size(); ++k)
      if (folded_[k]) give_back_operands(k);  // the key may have come of their bytes
    return constants->has(results_.key);
  }

  /// Has the kernels of the steps compiled, unless they are already.
  void submit_kernels() {
    if (std::exchange(is_submitted_, true)) return;
    std::vector<std::shared_ptr<const jit::Nest>> nests(program_.kernels.size());
    for (std::size_t k = 0; k < folded_.size(); ++k) {
      const std::uint32_t kernel = steps()[k].kernel;
      if (folded_[k]) nests[kernel] = program_.kernels[kernel].nest;
    }
    if (!results_.buffers.empty()) kernels_.submit(std::move(nests));
  }

  void store_results() {
    std::vector<jit::ConstantCache::Piece> pieces;
    for (const BufferId result : results_.buffers) {
      const auto kept = std::make_shared<const ir::Literal>(fixed_[result]);
      pieces.emplace_back(kept, kept->unaligned_data());
    }
    constants_->store(results_.key, std::move(pieces), results_.bytes);
  }

  /// All that the results depend on: the code of each step, its sizes, and what it reads, by content or, where an earlier
  /// step wrote it, by number.
  std::string results_key() {
    std::string key = "folded steps\n" + kernels_.code_key();
    std::map<std::uint32_t, std::size_t> kernel_number;
    std::map<BufferId, std::string> names;
    for (std::size_t k = 0; k < results_.buffers.size(); ++k)
      names[results_.buffers[k]] = fmt::format("r{}", k);
    for (std::size_t k = 0; k < folded_.size(); ++k) {
      if (!folded_[k]) continue;
      const std::uint32_t kernel = steps()[k].kernel;
      const auto [number, is_new] = kernel_number.try_emplace(kernel, kernel_number.size());
      if (is_new) key += jit::structural_text(*program_.kernels[kernel].nest);
      key += fmt::format("step of kernel {} sizes", number->second);
      for (const ir::SymExpr& size : program_.launches[k].sizes)
        key += fmt::format(" {}", size.constant());
      for (const BufferId id : program_.launches[k].buffers) {
        const ir::Literal& literal = fixed_[root(id)];
        std::string& name = names[root(id)];
        if (name.empty()) name = jit::source_key(literal.identity(), literal.bytes());
        key += " [" + name + "]";
      }
      key += "\n";
    }
    return key;
  }

  /// The steps that must have run before each one where folded ones are gone: who came after one of these comes after all that it
  /// came after.
  std::vector<std::vector<ir::PlanEdge>> edges_without(const std::vector<bool>& folded) {
    std::vector<std::vector<ir::PlanEdge>> edges(folded.size());
    for (std::size_t k = 0; k < folded.size(); ++k) {
      const auto add = [&](ir::StepId from, bool weak) {
        const auto known = std::ranges::find(edges[k], from, &ir::PlanEdge::from);
        if (known == edges[k].end())
          edges[k].push_back({from, weak});
        else
          known->weak = known->weak && weak;
      };
      for (const ir::PlanEdge& edge : steps()[k].edges) {
        HD_CHECK(edge.from < k);
        if (!folded[edge.from])
          add(edge.from, edge.weak);
        else
          for (const ir::PlanEdge& before : edges[edge.from]) add(before.from, true);
      }
    }
    return edges;
  }

  void remove(const std::vector<bool>& folded) {
    std::vector<std::vector<ir::PlanEdge>> edges = edges_without(folded);
    std::vector<ir::StepId> renumbered(folded.size(), ir::kNone);
    std::vector<ir::PlanStep> kept;
    std::vector<jit::Launch> launches;
    for (std::size_t k = 0; k < folded.size(); ++k) {
      if (folded[k]) continue;
      renumbered[k] = static_cast<ir::StepId>(kept.size());
      steps()[k].edges = std::move(edges[k]);
      kept.push_back(std::move(steps()[k]));
      launches.push_back(std::move(program_.launches[k]));
    }
    for (ir::PlanStep& step : kept)
      for (ir::PlanEdge& edge : step.edges) edge.from = renumbered[edge.from];
    steps() = std::move(kept);
    program_.launches = std::move(launches);
  }

  jit::Program& program_;
  std::vector<ir::Literal>& fixed_;
  FoldingKernels& kernels_;
  bool is_submitted_ = false;
  std::vector<bool> refused_;   ///< roots whose writers are not folded, though they might be
  std::vector<bool> is_fixed_;  ///< what is in each buffer, once the steps before have run
  std::vector<bool> folded_;    ///< of the program's steps
  std::vector<std::size_t> last_reader_;     ///< of each root; the number of steps: one that stays
  FoldedResults results_;                    ///< each once
  jit::ConstantCache* constants_ = nullptr;  ///< where results are kept; null: nowhere
  std::vector<jit::ConstantCache::Piece> found_;  ///< the results; empty: they are to be made
};

FixedSteps::FixedSteps(jit::Program& program, std::vector<ir::Literal>& fixed,
                       FoldingKernels& kernels, jit::ConstantCache* constants)
    : impl_(std::make_unique<Impl>(program, fixed, kernels, constants)) {}
FixedSteps::~FixedSteps() = default;
const std::vector<bool>& FixedSteps::folded() const { return impl_->folded(); }
std::size_t FixedSteps::run() { return impl_->run(); }
FoldedResults FixedSteps::take_results() { return impl_->take_results(); }

std::vector<const ir::Literal*> literals_of(const ir::Graph& graph) {
  std::vector<const ir::Literal*> literals;
  for (const ir::NodePtr& node : graph.nodes()) {
    if (node->op_name() == "const") literals.push_back(&node->literal("value"));
    if (const ir::Literal* value = graph.parameter(node.get())) literals.push_back(value);
  }
  return literals;
}

std::vector<ir::Literal> fixed_buffers(const jit::Program& program, const ir::Graph& graph) {
  std::vector<ir::Literal> fixed(program.record.buffers.size());
  std::vector<const ir::Node*> parameters;
  for (const ir::Value input : graph.inputs()) {
    if (input.node->op_name() == "param") parameters.push_back(input.node);
  }
  for (std::size_t b = 0; b < fixed.size(); ++b) {
    const PlanBuffer& buffer = program.record.buffers[b];
    if (buffer.role == PlanBuffer::Role::Constant)
      fixed[b] = program.constants[buffer.position]->contiguous();
    if (buffer.role != PlanBuffer::Role::Parameter) continue;
    HD_CHECK(buffer.position < parameters.size());
    const ir::Literal* value = graph.parameter(parameters[buffer.position]);
    if (value == nullptr)
      throw ArgumentError({.what = "parameter without a value",
                           .where = {},
                           .expected = "bytes for every parameter",
                           .got = parameters[buffer.position]->name()});
    fixed[b] = value->contiguous();
  }
  return fixed;
}

}  // namespace heddle::engine
