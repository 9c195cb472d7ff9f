#include "jit/lower/kernel_memory.h"

namespace heddle::jit {

NestBufferId KernelMemory::buffer(Value storage) {
  const auto found = buffers_.find(storage);
  if (found != buffers_.end()) return found->second;
  const ir::TensorMeta& meta = storage.meta();
  const NestBufferId id = builder_.add_global(meta.dtype, meta.count());
  buffers_.emplace(storage, id);
  values_.push_back(storage);
  return id;
}

void KernelMemory::add_loads(Value value) {
  std::vector<Value> pending{value};
  while (!pending.empty()) {
    const Value next = pending.back();
    pending.pop_back();
    if (!visited_.emplace(next, true).second) continue;
    const Value storage = graph_.storage(next);
    if (is_loaded(storage)) {
      if (!splat_of(*storage.node)) buffer(storage);
      continue;
    }
    for (const Value& input : next.node->inputs())
      if (input) pending.push_back(input);
  }
}

}  // namespace heddle::jit
