#include "jit/cuda/row_registers.h"

#include <algorithm>

#include "jit/cuda/loop_body.h"

namespace heddle::jit::cuda {
namespace {

/// Words of a thread that rows may take: with fewer than 64 registers it leaves a multiprocessor as many threads as keep memory busy.
constexpr std::int64_t kFewRowWords = 32;
constexpr std::int64_t kMostRowWords = 64;
constexpr std::int64_t kFewRowThreads = 256;
constexpr std::int64_t kMostRowThreads = 1024;
constexpr std::int64_t kRowWarp = 32;
/// Shorter rows are reduced by a warp or less (row_lanes.h).
constexpr std::int64_t kShortestRow = 256;
/// Bytes that are moved at once.
constexpr std::int64_t kRowAccessBytes = 16;
constexpr std::int64_t kMostRowWidth = 8;

std::int64_t row_bytes_of(const Nest& nest, NestBufferId buffer) {
  return static_cast<std::int64_t>(size_of(nest.buffers[buffer].dtype));
}

class RowFinder {
 public:
  explicit RowFinder(const Nest& nest) : nest_(nest) {}

  std::optional<RowRegisters> run() {
    if (!find_loops()) return std::nullopt;
    for (std::size_t k = 0; k < found_.loops.size(); ++k)
      if (!take(k)) return std::nullopt;
    if (!keep_shared() || !choose_width() || !choose_threads()) return std::nullopt;
    return std::move(found_);
  }

 private:
  bool find_loops() {
    for (const NestBuffer& buffer : nest_.buffers)
      if (buffer.scope == NestBuffer::Scope::Global && buffer.read && buffer.written) return false;
    for (const Stmt& statement : nest_.body) {
      if (is_scalar(statement)) continue;
      const auto* loop = std::get_if<ForStmt>(&statement.node);
      if (loop == nullptr || loop->kind != ForStmt::Kind::Vector || !loop->carried.empty() ||
          !std::ranges::all_of(*loop->body, is_scalar))
        return false;
      const auto extent = loop->extent.as_constant();
      if (!extent || *extent < kShortestRow || (found_.extent != 0 && *extent != found_.extent))
        return false;
      found_.extent = *extent;
      found_.loops.push_back(loop);
      found_.reductions += loop->reductions.size();
    }
    return found_.loops.size() >= 2;
  }

  /// Rows of a loop.
  bool take(std::size_t number) {
    const ForStmt& loop = *found_.loops[number];
    for (const Stmt& statement : *loop.body) {
      if (std::holds_alternative<BindStmt>(statement.node)) return false;
      if (const auto* load = std::get_if<LoadStmt>(&statement.node)) {
        const bool local = nest_.buffers[load->buffer].scope == NestBuffer::Scope::Local;
        if (load->mask != kNoScalar) return false;
        if (!local && !load->index.mentions(loop.axis)) continue;
        if (!touch(load, load->buffer, load->index, number, false)) return false;
      }
      if (const auto* store = std::get_if<StoreStmt>(&statement.node)) {
        if (store->mask != kNoScalar || store->combine ||
            !touch(store, store->buffer, store->index, number, true))
          return false;
      }
    }
    return true;
  }

  bool touch(const void* statement, NestBufferId buffer, const SymExpr& index, std::size_t loop,
             bool is_store) {
    const auto first = first_neighbour(*found_.loops[loop], index);
    if (!first) return false;
    auto& rows = found_.rows;
    const bool local = nest_.buffers[buffer].scope == NestBuffer::Scope::Local;
    auto row = std::ranges::find_if(
        rows, [&](const auto& one) { return one.buffer == buffer && one.first == *first; });
    if (row == rows.end()) {
      // A local buffer is one row, and written before it is read.
      if (local && (!is_store || std::ranges::any_of(
                                     rows, [&](const auto& one) { return one.buffer == buffer; })))
        return false;
      rows.push_back({buffer, *first, local, loop});
      loops_of_.push_back({});
      row = rows.end() - 1;
    }
    const auto number = static_cast<std::size_t>(row - rows.begin());
    loops_of_[number].push_back(loop);
    found_.row_of[statement] = number;
    stored_.resize(rows.size());
    if (!local) stored_[number] = stored_[number] || is_store;
    return true;
  }

  /// Leaves rows of registers only to what more than one loop touches; others are moved in the one loop.
  bool keep_shared() {
    std::vector<RowRegisters::Row> kept;
    std::map<std::size_t, std::size_t> numbers;
    for (std::size_t k = 0; k < found_.rows.size(); ++k) {
      const auto& loops = loops_of_[k];
      const bool shared = loops.front() != loops.back();
      most_ = found_.rows[k].local ? most_
                                   : std::max(most_, row_bytes_of(nest_, found_.rows[k].buffer));
      if (!found_.rows[k].local)
        found_.moved.emplace_back(found_.rows[k].buffer, found_.rows[k].first);
      if (stored_[k] && shared) return false;
      if (!found_.rows[k].local && !shared) continue;
      numbers[k] = kept.size();
      kept.push_back(found_.rows[k]);
    }
    std::erase_if(found_.row_of, [&](const auto& one) { return numbers.count(one.second) == 0; });
    for (auto& [statement, row] : found_.row_of) row = numbers.at(row);
    found_.rows = std::move(kept);
    return !found_.rows.empty() && most_ != 0;
  }

  bool choose_width() {
    std::int64_t width = std::min(kMostRowWidth, kRowAccessBytes / most_);
    const auto fits = [&] {
      return found_.extent % width == 0 && std::ranges::none_of(found_.moved, [&](const auto& one) {
               return is_misaligned(one.second, width);
             });
    };
    while (width > 1 && !fits()) width /= 2;
    found_.width = static_cast<int>(width);
    found_.bytes = width * most_;
    return true;
  }

  bool choose_threads() {
    const std::int64_t lanes = found_.extent / found_.width;
    std::int64_t words = 0;  // of a chunk
    for (const RowRegisters::Row& row : found_.rows)
      words += std::max<std::int64_t>(1, found_.width * row_bytes_of(nest_, row.buffer) / 4);
    for (const std::int64_t most : {kFewRowWords, kMostRowWords})
      for (std::int64_t threads = kFewRowThreads; threads <= kMostRowThreads; threads *= 2) {
        const std::int64_t chunks = (lanes + threads - 1) / threads;
        if (chunks * words > most) continue;
        // No more than have work each time.
        const std::int64_t needed = (lanes + chunks - 1) / chunks;
        found_.threads = static_cast<std::uint32_t>((needed + kRowWarp - 1) / kRowWarp * kRowWarp);
        found_.chunks = static_cast<int>(chunks);
        return true;
      }
    return false;
  }

  const Nest& nest_;
  RowRegisters found_;
  std::vector<std::vector<std::size_t>> loops_of_;  ///< by row: numbers of the loops that touch it
  std::vector<bool> stored_;                        ///< by row of global memory
  std::int64_t most_ = 0;                           ///< bytes of the largest element in memory
};

}  // namespace

std::optional<RowRegisters> row_registers(const Nest& nest) { return RowFinder(nest).run(); }

}  // namespace heddle::jit::cuda
