#include "tests/jit/run_program.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "heddle/error.h"
#include "ir/evaluate.h"

namespace heddle::test {
namespace {

using ir::BufferId;
using ir::Literal;
using ir::PlanBuffer;

class Runner {
 public:
  Runner(const ir::Graph& graph, const jit::Program& program, std::span<const Literal> arguments,
         const RunOptions& options)
      : graph_(graph),
        program_(program),
        options_(options),
        sizes_(ir::bind_sizes(graph, arguments)),
        memory_(program.record.buffers.size()) {
    for (BufferId k = 0; k < memory_.size(); ++k) make(k, arguments);
    for (BufferId k = 0; k < memory_.size(); ++k)
      memory_[k] = memory_[ir::alias_root(program.record, k)];
  }

  std::vector<Literal> run() {
    for (std::size_t k = 0; k < program_.record.steps.size(); ++k) run_step(k);
    std::vector<Literal> results;
    for (const BufferId buffer : program_.outputs) results.push_back(memory_[buffer]);
    for (const auto& [target, source] : program_.write_backs) results.push_back(memory_[target]);
    return results;
  }

 private:
  ir::Sizes concrete(const ir::Dims& dims) const {
    ir::Sizes sizes;
    for (const auto& dim : dims) sizes.push_back(dim.evaluate(sizes_));
    return sizes;
  }

  void make(BufferId id, std::span<const Literal> arguments) {
    const PlanBuffer& buffer = program_.record.buffers[id];
    switch (buffer.role) {
      case PlanBuffer::Role::Input:
        // A copy with the same strides, so that write-backs do not reach the caller.
        memory_[id] = strided_copy(arguments[buffer.position]);
        break;
      case PlanBuffer::Role::Parameter:
        memory_[id] = parameter(buffer.position);
        break;
      case PlanBuffer::Role::Constant:
        memory_[id] = program_.constants[buffer.position]->contiguous();
        break;
      default:
        memory_[id] = Literal(buffer.dtype, concrete(buffer.sizes));
        if (memory_[id].bytes() != 0) std::memset(memory_[id].data(), 0x7e, memory_[id].bytes());
    }
  }

  static std::int64_t span_of(const Literal& literal) {
    std::int64_t last = literal.count() == 0 ? -1 : 0;
    for (std::size_t d = 0; literal.count() != 0 && d < literal.sizes().size(); ++d)
      last += (literal.sizes()[d] - 1) * literal.strides()[d];
    return last + 1;
  }

  static Literal strided_copy(const Literal& literal) {
    if (literal.is_row_major()) return literal.clone();
    auto bytes = std::make_shared<std::vector<std::byte>>(
        static_cast<std::size_t>(span_of(literal)) * size_of(literal.dtype()));
    std::memcpy(bytes->data(), literal.data(), bytes->size());
    return Literal(literal.dtype(), literal.sizes(), literal.strides(), bytes->data(), bytes);
  }

  Literal parameter(std::uint32_t position) const {
    std::uint32_t k = 0;
    for (const ir::Value& input : graph_.inputs()) {
      if (input.node->op_name() != "param" || k++ != position) continue;
      return graph_.parameter(input.node)->contiguous();
    }
    base::check_failed(__FILE__, __LINE__, "a parameter at this position");
  }

  void run_step(std::size_t k) {
    const ir::PlanStep& step = program_.record.steps[k];
    const jit::Launch& launch = program_.launches[k];
    for (const ir::PlanEdge& edge : step.edges) HD_CHECK(edge.from < k, "an edge points backwards");
    if (options_.in_place) share(k);
    const jit::Nest& nest = *program_.kernels[step.kernel].nest;
    std::vector<InterpreterBuffer> buffers;
    for (const BufferId id : launch.buffers)
      buffers.push_back({memory_[id].data(), span_of(memory_[id])});
    std::vector<std::int64_t> sizes;
    for (const auto& size : launch.sizes) sizes.push_back(size.evaluate(sizes_));
    const std::int32_t status = options_.runner ? options_.runner(nest, buffers, sizes)
                                                : interpret(nest, buffers, sizes, k % 2 == 1);
    if (status == 0) return;
    const jit::RuntimeCheck& check = program_.checks.at(static_cast<std::size_t>(status) - 1);
    throw IndexError({.what = check.what, .where = check.where});
  }

  /// Takes up what the step allows, for intermediates that nothing reads later.
  void share(std::size_t k) {
    const ir::PlanStep& step = program_.record.steps[k];
    std::vector<bool> taken(step.reads.size(), false);
    std::vector<bool> given(step.writes.size(), false);
    for (const auto& [read, write] : step.may_reuse) {
      const BufferId from = step.reads[read];
      const BufferId to = step.writes[write];
      if (taken[read] || given[write] || !dies_at(from, k)) continue;
      if (program_.record.buffers[to].role != PlanBuffer::Role::Intermediate) continue;
      taken[read] = given[write] = true;
      const PlanBuffer& target = program_.record.buffers[to];
      const ir::Sizes target_sizes = concrete(target.sizes);
      auto owner = std::make_shared<Literal>(memory_[from]);
      memory_[to] = Literal(target.dtype, target_sizes, ir::row_major_strides(target_sizes),
                            owner->data(), owner);
    }
  }

  bool dies_at(BufferId id, std::size_t k) const {
    if (program_.record.buffers[id].role != PlanBuffer::Role::Intermediate) return false;
    const auto aliases = ir::alias_roots(program_.record);
    if (std::count(aliases.begin(), aliases.end(), aliases[id]) != 1) return false;
    for (std::size_t later = k + 1; later < program_.record.steps.size(); ++later) {
      const auto& reads = program_.record.steps[later].reads;
      if (std::find(reads.begin(), reads.end(), id) != reads.end()) return false;
    }
    return true;
  }

  const ir::Graph& graph_;
  const jit::Program& program_;
  const RunOptions& options_;
  base::SymbolValues sizes_;
  std::vector<Literal> memory_;
};

}  // namespace

std::vector<Literal> run_program(const ir::Graph& graph, const jit::Program& program,
                                 std::span<const Literal> arguments, const RunOptions& options) {
  return Runner(graph, program, arguments, options).run();
}

}  // namespace heddle::test
