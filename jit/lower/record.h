// The program while it is being put together: buffers, steps, edges.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "jit/lower/kernel.h"
#include "jit/program.h"

namespace heddle::jit {

/// Position of `id` in `list`, appended if need be.
std::uint32_t place_in(std::vector<ir::BufferId>& list, ir::BufferId id);

class Recorder {
 public:
  Recorder(const LoweringState& state, Program& program);

  /// The step of group `group`, computed by `kernel`.
  void add_kernel(std::uint32_t group, BuiltKernel kernel);
  void add_library(std::uint32_t group);
  /// The step of a custom op, after copies of what it writes and may not overwrite.
  void add_custom(std::uint32_t group);
  /// The step that runs the nested graphs of a node.
  void add_region(std::uint32_t group);
  /// Copies for outputs that no kernel writes directly, then the write-backs. Call after all groups.
  void add_copies();

 private:
  ir::BufferId buffer_of(Value storage);
  ir::BufferId row_major_buffer(Value value);
  ir::BufferId add_buffer(Value value, ir::PlanBuffer::Role role, std::uint32_t position);
  void add_inputs();
  void choose_output_buffers();
  ir::StepId add_step(ir::PlanKernel kernel, ProgramKernel code, ir::PlanStep step, Launch launch);
  void add_edge(ir::PlanStep& step, ir::StepId from, bool weak);
  void add_data_edges(ir::PlanStep& step);
  bool is_read_once(ir::BufferId buffer, const Launch& launch) const;
  void note_late_sizes(const Node& node, std::uint32_t results, Launch& launch);
  void add_size_edges(ir::PlanStep& step, const ProgramKernel& code, const Launch& launch);
  /// Lets results lie in the operands that their nodes overwrite; the step reads these. Counts those that are copied.
  void place_overwriting(const Node& node, ir::PlanStep& step);
  ir::BufferId root_of(ir::BufferId buffer) const {
    return ir::alias_root(program_.record, buffer);
  }
  void add_write_backs();
  /// What a custom op writes for a base.
  struct WrittenBase {
    ir::BufferId buffer;
    ir::TensorMeta meta;
    bool copied;  ///< from where the operand was
  };
  WrittenBase written_base(const Node& node, std::uint32_t group, std::size_t operand,
                           std::uint32_t output);
  void count_copied(const Node& node, const std::vector<WrittenBase>& bases);
  bool may_overwrite(const Node& node, std::uint32_t group, std::size_t operand, Value result);
  void find_last_readers();
  void add_order_edges(std::uint32_t group, ir::PlanStep& step);
  ir::TensorMeta memory_meta(Value value) const;
  void add_copy(ir::BufferId source, const ir::TensorMeta& source_meta, ir::BufferId target,
                const ir::TensorMeta& target_meta);
  std::shared_ptr<const Nest> shared(std::shared_ptr<const Nest> nest);

  const LoweringState& state_;
  Program& program_;
  std::map<Value, ir::BufferId> buffers_;
  std::map<Value, std::uint32_t> output_positions_;  ///< storages written straight into an output
  std::vector<std::vector<ir::StepId>> writers_, readers_;  ///< by root buffer
  std::vector<std::vector<ir::StepId>> steps_of_group_;
  std::map<Symbol, ir::StepId> makers_;          ///< of sizes known only at run time
  std::map<Value, std::uint32_t> last_readers_;  ///< by storage: group
  std::set<Value> overwritten_;  ///< storages that ops other than custom ones overwrite
  /// Outputs that lie in an input that they are written back to: copied out at the end.
  std::vector<std::pair<Value, ir::BufferId>> late_outputs_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<std::shared_ptr<const Nest>>>
      nests_;
  /// What shared() said of a nest.
  std::map<std::shared_ptr<const Nest>, std::shared_ptr<const Nest>> twins_;
};

}  // namespace heddle::jit
