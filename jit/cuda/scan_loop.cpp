#include "jit/cuda/scan_loop.h"

#include <algorithm>

#include "jit/cuda/loop_body.h"

namespace heddle::jit::cuda {
namespace {

constexpr std::int64_t kScanThreads = 256;
constexpr std::int64_t kScanWarp = 32;
/// Chunks of a thread times warps: lanes of a warp, which adds their sums up.
constexpr std::int64_t kMostChunks = 4;
constexpr std::int64_t kScanBytes = 16;
constexpr std::int64_t kMostScanWidth = 8;
/// Of rows that begin anywhere elements are moved one by one, by threads a few elements apart.
constexpr std::int64_t kLeastScanWidth = 4;

}  // namespace

const ForStmt* find_scan(const Block& block) {
  for (const Stmt& statement : block) {
    const auto* loop = std::get_if<ForStmt>(&statement.node);
    if (loop == nullptr) continue;
    if (loop->kind == ForStmt::Kind::Scan) return loop;
    if (const ForStmt* inner = find_scan(*loop->body)) return inner;
  }
  return nullptr;
}

ScanLoop scan_loop(const Nest& nest, const ForStmt& loop) {
  ScanLoop found;
  auto uses = uses_of(*loop.body);
  std::int64_t most = 1;
  std::vector<SymExpr> firsts;
  const auto take = [&](NestBufferId buffer, const SymExpr& index, ScalarId mask) {
    const auto first = first_neighbour(loop, index);
    if (!first || mask != kNoScalar || nest.buffers[buffer].scope == NestBuffer::Scope::Local)
      return false;
    most = std::max(most, static_cast<std::int64_t>(size_of(nest.buffers[buffer].dtype)));
    firsts.push_back(*first);
    return true;
  };
  for (const Stmt& statement : *loop.body) {
    if (const auto* load = std::get_if<LoadStmt>(&statement.node))
      if (uses[load->buffer].stores == 0 && take(load->buffer, load->index, load->mask))
        found.loads.push_back(load);
    if (const auto* store = std::get_if<StoreStmt>(&statement.node))
      if (uses[store->buffer].loads == 0 && uses[store->buffer].stores == 1 && !store->combine &&
          take(store->buffer, store->index, store->mask))
        found.stores.push_back(store);
  }
  std::int64_t width = std::min(kMostScanWidth, kScanBytes / most);
  while (width > kLeastScanWidth && std::ranges::any_of(firsts, [&](const SymExpr& first) {
           return is_misaligned(first, width);
         }))
    width /= 2;
  std::int64_t threads = kScanThreads, chunks = 2;
  if (const auto extent = loop.extent.as_constant()) {
    const std::int64_t lanes = std::max<std::int64_t>(1, (*extent + width - 1) / width);
    threads = std::min(threads, (lanes + kScanWarp - 1) / kScanWarp * kScanWarp);
    chunks = std::min(kMostChunks, (lanes + threads - 1) / threads);
    found.exact = *extent % (threads * chunks * width) == 0;
  }
  found.threads = static_cast<std::uint32_t>(threads);
  found.width = static_cast<int>(width);
  found.chunks = static_cast<int>(chunks);
  return found;
}

}  // namespace heddle::jit::cuda
