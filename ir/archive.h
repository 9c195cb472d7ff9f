// Parts of the IR as bytes and back (base/archive.h).
#pragma once

#include <functional>
#include <string>

#include "base/archive.h"
#include "ir/analysis/unbacked.h"
#include "ir/attr.h"
#include "ir/graph.h"
#include "ir/literal.h"
#include "ir/schedule.h"

namespace heddle::ir {

using base::Like;

void fields(auto& archive, Like<DeviceTag> auto& device) {
  auto& [kind, index] = device;
  archive(kind, index);
}
/// But for the storage, whose numbers are this process's own.
void fields(auto& archive, Like<TensorMeta> auto& meta) {
  auto& [dtype, sizes, strides, device, storage] = meta;
  archive(dtype, sizes, strides, device);
}

/// Elements row-major, whatever the strides.
void fields(base::ArchiveWriter& archive, const Literal& literal);
void fields(base::ArchiveReader& archive, Literal& literal);

/// Nested graphs are not written: HD_CHECK.
void fields(base::ArchiveWriter& archive, const GraphRef& ref);
void fields(base::ArchiveReader& archive, GraphRef& ref);

void fields(auto& archive, Like<LateCheck> auto& check) {
  auto& [holds, what, where] = check;
  archive(holds, what, where);
}
void fields(auto& archive, Like<PlanBuffer> auto& buffer) {
  auto& [value, dtype, sizes, bytes, role, position, alias_of, donated] = buffer;
  archive(value, dtype, sizes, bytes, role, position, alias_of, donated);
}
void fields(auto& archive, Like<PlanKernel> auto& kernel) {
  auto& [name, region, nodes, kind] = kernel;
  archive(name, region, nodes, kind);
}
void fields(auto& archive, Like<PlanEdge> auto& edge) {
  auto& [from, weak] = edge;
  archive(from, weak);
}
void fields(auto& archive, Like<PlanStep> auto& step) {
  auto& [kernel, reads, writes, may_reuse, edges, stream, work, by_entry] = step;
  archive(kernel, reads, writes, may_reuse, edges, stream, work, by_entry);
}
void fields(auto& archive, Like<ScheduleRecord> auto& record) {
  auto& [buffers, kernels, steps, batch] = record;
  archive(buffers, kernels, steps, batch);
}

/// All that a graph tells, names and locations too, for keys.
/// @param literal_key  tells the elements of a literal from those of others; small ones are written instead
void write_graph(base::ArchiveWriter& archive, const Graph& graph,
                 const std::function<std::string(const Literal&)>& literal_key);

}  // namespace heddle::ir
