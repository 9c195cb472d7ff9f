#include "ir/passes/visible.h"

namespace heddle::ir {

std::set<StorageId> visible_storages(const Graph& graph) {
  std::set<StorageId> storages;
  for (const Value& output : graph.outputs()) storages.insert(output.meta().storage);
  for (const Graph::WriteBack& write : graph.write_backs())
    storages.insert(write.source.meta().storage);
  return storages;
}

}  // namespace heddle::ir
