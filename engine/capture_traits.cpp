#include "engine/capture_traits.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "ir/analysis/unbacked.h"
#include "ir/custom_op.h"
#include "ir/op.h"

namespace heddle::engine {

namespace {

void add_node(const ir::Node& node, ir::DeviceTag device, scheduler::StepTraits& step) {
  step.ops.emplace_back(node.op_name());
  for (const ir::TensorMeta& meta : node.outputs()) {
    step.on_device = step.on_device && meta.device == device;
    for (const ir::Value& input : node.inputs())
      step.crosses_devices = step.crosses_devices || (input && input.meta().rank() > 0 &&
                                                      input.meta().device != meta.device);
  }
  const auto region = node.op().lowering.region;
  step.conditional = step.conditional || region == ir::RegionKind::Cond ||
                     region == ir::RegionKind::While ||
                     (node.has("counted") && node.flag("counted"));
  step.makes_sizes = step.makes_sizes || !ir::unbacked_defined(node).empty();
  const auto& custom = node.op().custom;
  step.capture_unsafe =
      step.capture_unsafe || (custom != nullptr && !(custom->capturable && custom->pure));
}

void add_sizes(const jit::Program& program, std::size_t k, scheduler::StepTraits& step) {
  for (const ir::SymExpr& size : program.launches[k].sizes) size.collect_symbols(step.symbols);
  for (const ir::BufferId number : program.launches[k].buffers) {
    const ir::PlanBuffer& buffer = program.record.buffers[number];
    if (buffer.role == ir::PlanBuffer::Role::Workspace)
      continue;  // its size follows from the others
    for (const ir::SymExpr& size : buffer.sizes) size.collect_symbols(step.symbols);
  }
  std::ranges::sort(step.symbols);
  step.symbols.erase(std::unique(step.symbols.begin(), step.symbols.end()), step.symbols.end());
}

}  // namespace

std::vector<scheduler::StepTraits> capture_traits(const jit::Program& program,
                                                  ir::DeviceTag device) {
  std::unordered_map<std::string_view, const ir::Node*> nodes;
  for (const ir::NodePtr& node : program.graph.nodes()) nodes.emplace(node->name(), node.get());
  std::vector<scheduler::StepTraits> traits(program.record.steps.size());
  for (std::size_t k = 0; k < traits.size(); ++k) {
    const ir::PlanKernel& kernel = program.record.kernels[program.record.steps[k].kernel];
    for (const std::string& name : kernel.nodes)
      if (const auto node = nodes.find(name); node != nodes.end())
        add_node(*node->second, device, traits[k]);
    add_sizes(program, k, traits[k]);
  }
  return traits;
}

}  // namespace heddle::engine
