#include "jit/cuda/column_lanes.h"

#include <algorithm>
#include <set>
#include <string>

#include "jit/cuda/alignment.h"
#include "jit/cuda/loop_body.h"
#include "jit/cuda/scalar_text.h"
#include "jit/cuda/statement_emitter.h"
#include "jit/lower/domain.h"

namespace heddle::jit::cuda {
namespace {

/// Whether a statement computes the same in all iterations.
bool is_common(const Stmt& statement, Symbol axis) {
  if (const auto* load = std::get_if<LoadStmt>(&statement.node)) return !load->index.mentions(axis);
  if (const auto* index = std::get_if<IndexStmt>(&statement.node))
    return !index->index.mentions(axis);
  return std::holds_alternative<ConstStmt>(statement.node) ||
         std::holds_alternative<ApplyStmt>(statement.node) ||
         std::holds_alternative<ConvertStmt>(statement.node);
}

bool reduces_plainly(const ForStmt& loop) {
  return loop.kind == ForStmt::Kind::Serial && loop.carried.empty() && !loop.reductions.empty() &&
         std::ranges::all_of(loop.reductions, [](const LoopReduction& r) {
           return r.results.size() == 1 && r.mask == kNoScalar;
         });
}

}  // namespace

std::optional<ColumnLanes> column_lanes(const Nest& nest, const ForStmt& loop,
                                        std::uint32_t threads,
                                        const std::function<bool(const SymExpr&)>& is_there) {
  if (loop.kind != ForStmt::Kind::Vector || !loop.carried.empty() || !loop.reductions.empty())
    return std::nullopt;
  ColumnLanes lanes;
  for (const Stmt& statement : *loop.body) {
    if (const auto* inner = std::get_if<ForStmt>(&statement.node)) {
      if (lanes.inner != nullptr || !reduces_plainly(*inner)) return std::nullopt;
      lanes.inner = inner;
    } else if (!is_scalar(statement) || std::holds_alternative<BindStmt>(statement.node) ||
               (lanes.inner == nullptr && !is_common(statement, loop.axis))) {
      return std::nullopt;
    }
  }
  if (lanes.inner == nullptr) return std::nullopt;
  std::int64_t most = 0;
  for (const Stmt& statement : *lanes.inner->body) {
    const auto* load = std::get_if<LoadStmt>(&statement.node);
    if (load == nullptr || is_common(statement, loop.axis)) {
      if (!is_scalar(statement) || std::holds_alternative<BindStmt>(statement.node) ||
          std::holds_alternative<StoreStmt>(statement.node))
        return std::nullopt;
      continue;
    }
    if (load->mask != kNoScalar || !is_there(load->index) ||
        nest.buffers[load->buffer].scope != NestBuffer::Scope::Global ||
        nest.buffers[load->buffer].written || !first_neighbour(loop, load->index))
      return std::nullopt;
    most = std::max(most, static_cast<std::int64_t>(size_of(nest.buffers[load->buffer].dtype)));
    lanes.loads.push_back(load);
  }
  if (most == 0 || most >= kCudaWordBytes) return std::nullopt;
  lanes.width = kCudaWordBytes / most;
  const std::optional<std::int64_t> extent = loop.extent.as_constant();
  if (!extent || *extent % lanes.width != 0 || *extent < lanes.width * threads) return std::nullopt;
  for (const LoadStmt* load : lanes.loads)
    if (is_misaligned(*first_neighbour(loop, load->index), lanes.width)) return std::nullopt;
  return lanes;
}

/// The iterations of a loop over columns, several at once where memory is aligned. @return whether that is so, as text.
std::string StatementEmitter::columns(const ForStmt& s, const ColumnLanes& lanes) {
  std::set<std::string> bits;
  for (const LoadStmt* load : lanes.loads)
    add_address_bits(bits, nest_, load->buffer, *first_neighbour(s, load->index), lanes.width);
  const std::string axis = s.axis.to_string(), first = "first_" + axis;
  const std::string aligned = "columns_" + axis;
  const std::string width = number(lanes.width);
  const auto each_lane = [&] {
    line("#pragma unroll");
    open("for (int lane = 0; lane < " + width + "; ++lane)");
    line("const long long " + axis + " = " + first + " + lane;");
    for (const LoopReduction& r : lanes.inner->reductions)
      line(compute_type(r.dtype) + "& " + partial(r) + " = all_" + partial(r) + "[lane];");
  };
  line("const bool " + aligned + " = " + aligned_text(bits, kCudaWordBytes) + ";");
  open("for (long long " + first + " = " + width + " * " + thread() + "; " + aligned + " && " +
       first + " < " + index(s.extent) + "; " + first + " += " + width + " * " + threads() + ")");
  const bool outer = std::exchange(in_vector_, true);
  for (const LoopReduction& r : lanes.inner->reductions) {
    dtypes_[r.results[0]] = r.dtype;
    const std::string identity = identity_text(r.op, r.dtype);
    std::string all;
    for (std::int64_t lane = 0; lane < lanes.width; ++lane) all += (lane ? ", " : "") + identity;
    line(compute_type(r.dtype) + " all_" + partial(r) + "[" + width + "] = {" + all + "};");
  }
  auto statement = s.body->begin();
  for (; !std::holds_alternative<ForStmt>(statement->node); ++statement) one(*statement);
  unroll_reads(*lanes.inner);
  const std::string inner = lanes.inner->axis.to_string();
  open("for (long long " + inner + " = 0; " + inner + " < " + index(lanes.inner->extent) + "; ++" +
       inner + ")");
  for (std::size_t k = 0; k < lanes.loads.size(); ++k) {
    const LoadStmt& load = *lanes.loads[k];
    const std::string type =
        "hd_lanes<" + storage_type(nest_.buffers[load.buffer].dtype) + ", " + width + ">";
    const std::string name = "x" + std::to_string(k) + "_" + axis;
    // Of smaller elements than the largest a thread takes as many, and less than a word.
    line("const " + type + " " + name + " = *(const " + type + "*)(" + buffer(load.buffer) +
         " + (" + index(*first_neighbour(s, load.index)) + ") + " + first + ");");
    lanes_[&load] = name + ".at[lane]";
  }
  each_lane();
  statements(*lanes.inner->body);
  for (const LoopReduction& r : lanes.inner->reductions) accumulate(r);
  close();
  close();
  lanes_.clear();
  each_lane();
  for (++statement; statement != s.body->end(); ++statement) one(*statement);
  close();
  in_vector_ = outer;
  close();
  return aligned;
}

}  // namespace heddle::jit::cuda
