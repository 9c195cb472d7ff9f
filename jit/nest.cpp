#include "jit/nest.h"

namespace heddle::jit {
namespace {

bool in_scratch(const NestBuffer& buffer) {
  return buffer.scope == NestBuffer::Scope::Local && buffer.max_count == 0;
}

SymExpr aligned_bytes(const NestBuffer& buffer) {
  const SymExpr bytes = buffer.count * static_cast<std::int64_t>(size_of(buffer.dtype));
  return ceildiv(bytes, 64) * 64;
}

}  // namespace

std::uint32_t Nest::global_count() const {
  std::uint32_t count = 0;
  for (const NestBuffer& buffer : buffers) count += buffer.scope == NestBuffer::Scope::Global;
  return count;
}

SymExpr ProductGroups::slots(const SymExpr& rows, const SymExpr& groups, std::int64_t tile_rows) {
  return min(rows, floordiv(rows, tile_rows) + groups + 1);
}

SymExpr ProductForm::row_tiles(std::int64_t tile_rows) const {
  return groups ? ProductGroups::slots(rows, groups->count, tile_rows) : ceildiv(rows, tile_rows);
}

SymExpr scratch_bytes(const Nest& nest) {
  SymExpr total = 0;
  for (const NestBuffer& buffer : nest.buffers)
    if (in_scratch(buffer)) total += aligned_bytes(buffer);
  return total;
}

std::vector<SymExpr> scratch_offsets(const Nest& nest) {
  std::vector<SymExpr> offsets;
  SymExpr total = 0;
  for (const NestBuffer& buffer : nest.buffers) {
    if (!in_scratch(buffer)) continue;
    offsets.push_back(total);
    total += aligned_bytes(buffer);
  }
  return offsets;
}

}  // namespace heddle::jit
