#include "jit/lower/late_sizes.h"

#include <algorithm>
#include <set>

#include "jit/custom/custom_call.h"

namespace heddle::jit {
namespace {

class Sizes {
 public:
  std::vector<Symbol> take() { return {symbols_.begin(), symbols_.end()}; }

  void add(const SymExpr& size) {
    std::vector<Symbol> symbols;
    size.collect_symbols(symbols);
    for (const Symbol& symbol : symbols)
      if (symbol.kind == Symbol::Kind::Unbacked) symbols_.insert(symbol);
  }
  void add(const ir::Dims& sizes) {
    for (const SymExpr& size : sizes) add(size);
  }

  void add_step(const ir::ScheduleRecord& record, const ir::PlanStep& step,
                const ProgramKernel& code, const Launch& launch) {
    for (const auto* buffers : {&step.reads, &step.writes})
      for (const ir::BufferId buffer : *buffers) add(record.buffers[buffer].bytes);
    for (const SymExpr& size : launch.sizes) add(size);
    if (code.library != nullptr) add_library(*code.library);
    if (code.custom != nullptr) add_custom(*code.custom);
    if (code.nested != nullptr) add_nested(*code.nested);
  }

 private:
  void add_attrs(const ir::Attrs& attrs) {
    for (const auto& [name, attr] : attrs) {
      if (const auto* size = std::get_if<SymExpr>(&attr)) add(*size);
      if (const auto* sizes = std::get_if<ir::Dims>(&attr)) add(*sizes);
    }
  }

  void add_library(const LibraryCall& call) {
    add_attrs(call.attrs);
    for (const ir::TensorMeta& meta : call.inputs) add(meta.sizes);
    for (const ir::TensorMeta& meta : call.outputs) add(meta.sizes);
  }

  void add_custom(const CustomCall& call) {
    add_attrs(call.attrs);
    for (const auto* tensors : {&call.arguments, &call.results}) {
      for (const CustomTensor& tensor : *tensors) {
        add(tensor.sizes);
        add(tensor.strides);
        add(tensor.offset);
      }
    }
  }

  void add_nested(const NestedCall& call) {
    add(call.length);
    for (const NestedCall::Region& region : call.regions) {
      for (const auto& [symbol, size] : region.sizes) add(size);
      const Program& program = *region.program;
      Sizes inside;
      for (std::size_t k = 0; k < program.record.steps.size(); ++k) {
        const ir::PlanStep& step = program.record.steps[k];
        inside.add_step(program.record, step, program.kernels[step.kernel], program.launches[k]);
      }
      for (const Launch& launch : program.launches)
        for (const Symbol& symbol : launch.late_sizes) inside.symbols_.erase(symbol);
      for (const auto& [symbol, size] : region.sizes) inside.symbols_.erase(symbol);
      symbols_.insert(inside.symbols_.begin(), inside.symbols_.end());
    }
  }

  std::set<Symbol> symbols_;
};

}  // namespace

std::vector<Symbol> sizes_of_step(const ir::ScheduleRecord& record, const ir::PlanStep& step,
                                  const ProgramKernel& code, const Launch& launch) {
  Sizes sizes;
  sizes.add_step(record, step, code, launch);
  return sizes.take();
}

}  // namespace heddle::jit
