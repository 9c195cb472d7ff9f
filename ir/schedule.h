// The schedule record: buffers and steps of a lowered graph. jit makes it, scheduler orders it,
// memory gives it offsets, engine runs it, checkers and `heddle plan` read it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/meta.h"

namespace heddle::ir {

using BufferId = std::uint32_t;
using StepId = std::uint32_t;
inline constexpr std::uint32_t kNone = 0xffffffffu;

/// Bytes that steps read and write.
struct PlanBuffer {
  enum class Role : std::uint8_t { Input, Parameter, Constant, Output, Intermediate, Workspace };
  std::string value;  ///< name of the graph value
  DType dtype = DType::F32;
  Dims sizes;     ///< row-major unless it is an Input with strides
  SymExpr bytes;  ///< of the allocation
  Role role = Role::Intermediate;
  std::uint32_t position = kNone;  ///< which input, parameter, constant or output
  BufferId alias_of = kNone;  ///< shares the other's bytes entirely (a view, or an in-place result)
  bool donated = false;       ///< an Input whose bytes nobody reads after its last step
};

struct PlanKernel {
  enum class Kind : std::uint8_t { Jit, Library, Custom, Copy, Nested };
  std::string name;
  std::string region;              ///< region id, empty outside regions
  std::vector<std::string> nodes;  ///< names of the graph nodes it computes
  Kind kind = Kind::Jit;
};

struct PlanEdge {
  StepId from = 0;
  bool weak = false;
};

struct PlanStep {
  std::uint32_t kernel = 0;
  std::vector<BufferId> reads;
  std::vector<BufferId> writes;
  /// (read, write) pairs, as positions in `reads` and `writes`: the write may take the bytes of the read
  /// if nothing else needs them afterwards.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> may_reuse;
  std::vector<PlanEdge> edges;  ///< steps that must have run before this one
  std::uint32_t stream = 0;
  SymExpr work;  ///< estimated scalar operations, for ordering and threading
  bool by_entry =
      false;  ///< treats the entries of ScheduleRecord::batch apart (ir/analysis/by_entry.h)
};

/// An argument in whose memory the caller may want an output.
struct SharedPlace {
  std::uint32_t argument = 0;  ///< PlanBuffer::position
  std::uint32_t output = 0;
  friend bool operator==(const SharedPlace&, const SharedPlace&) = default;
};

/// Steps are in an order in which every edge points backwards.
struct ScheduleRecord {
  std::vector<PlanBuffer> buffers;
  std::vector<PlanKernel> kernels;
  std::vector<PlanStep> steps;
  std::optional<base::Symbol>
      batch{};  ///< the size of a batch; nothing: no step treats its entries apart
};

/// The buffer whose bytes `buffer` uses: itself, or the end of its chain of aliases.
BufferId alias_root(const ScheduleRecord& record, BufferId buffer);
/// The same for every buffer.
std::vector<BufferId> alias_roots(const ScheduleRecord& record);

}  // namespace heddle::ir
