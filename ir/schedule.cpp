#include "ir/schedule.h"

namespace heddle::ir {

BufferId alias_root(const ScheduleRecord& record, BufferId buffer) {
  while (record.buffers[buffer].alias_of != kNone) buffer = record.buffers[buffer].alias_of;
  return buffer;
}

std::vector<BufferId> alias_roots(const ScheduleRecord& record) {
  std::vector<BufferId> roots(record.buffers.size());
  for (BufferId b = 0; b < roots.size(); ++b) roots[b] = alias_root(record, b);
  return roots;
}

}  // namespace heddle::ir
