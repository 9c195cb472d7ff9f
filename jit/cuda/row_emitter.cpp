// Loops over rows that stay in registers: StatementEmitter's part of them.
#include <algorithm>
#include <utility>

#include "jit/cuda/loop_body.h"
#include "jit/cuda/scalar_text.h"
#include "jit/cuda/statement_emitter.h"

namespace heddle::jit::cuda {

std::string StatementEmitter::chunk_type(NestBufferId id) const {
  return "hd_lanes<" + storage_type(nest_.buffers[id].dtype) + ", " + number(kept_->width) + ">";
}

/// Declares the registers of the rows that the loop is the first to touch, and reads those that lie in memory.
void StatementEmitter::fetch_rows(std::size_t loop) {
  for (std::size_t k = 0; k < kept_->rows.size(); ++k) {
    const RowRegisters::Row& row = kept_->rows[k];
    if (row.loop != loop) continue;
    const std::string name = "row" + number(static_cast<std::int64_t>(k));
    line(chunk_type(row.buffer) + " " + name + "[" + number(kept_->chunks) + "];");
    if (!row.local)
      line("hd_load_row<" + number(kept_->threads) + ", " + number(kept_->extent) +
           ", is_aligned>(" + name + ", " + buffer(row.buffer) + " + (" + index(row.first) + "));");
  }
}

/// A vector loop over a row whose elements all belong to a thread each, in chunks.
void StatementEmitter::row_loop(const ForStmt& s) {
  const auto number_of_loop =
      static_cast<std::size_t>(std::ranges::find(kept_->loops, &s) - kept_->loops.begin());
  fetch_rows(number_of_loop);
  line("#pragma unroll");
  open("for (int chunk = 0; chunk < " + number(kept_->chunks) + "; ++chunk)");
  const std::string first = "first_" + s.axis.to_string();
  line("const int " + first + " = (chunk * " + number(kept_->threads) + " + (int)threadIdx.x) * " +
       number(kept_->width) + ";");
  if (!kept_->is_exact()) open("if (" + first + " < " + number(kept_->extent) + ")");
  row_chunk(s);
  if (!kept_->is_exact()) close();
  close();
  lanes_.clear();
  end_reductions(s);
}

void StatementEmitter::row_chunk(const ForStmt& s) {
  const std::string first = "first_" + s.axis.to_string();
  std::vector<std::string> stores;
  std::size_t count = 0;
  const auto place = [&](NestBufferId id, const SymExpr& at) {
    return buffer(id) + " + (" + index(*first_neighbour(s, at)) + ") + " + first;
  };
  const auto find_row = [&](const void* statement) {
    const auto found = kept_->row_of.find(statement);
    if (found == kept_->row_of.end()) return false;
    lanes_[statement] =
        "row" + number(static_cast<std::int64_t>(found->second)) + "[chunk].at[lane]";
    return true;
  };
  for (const Stmt& statement : *s.body) {
    if (const auto* load = std::get_if<LoadStmt>(&statement.node)) {
      if (find_row(load) || !load->index.mentions(s.axis)) continue;
      const std::string name =
          "x" + number(static_cast<std::int64_t>(count++)) + "_" + s.axis.to_string();
      line("const " + chunk_type(load->buffer) + " " + name + " = hd_load_lanes<" +
           storage_type(nest_.buffers[load->buffer].dtype) + ", " + number(kept_->width) +
           ", is_aligned>(" + place(load->buffer, load->index) + ");");
      lanes_[load] = name + ".at[lane]";
    } else if (const auto* store = std::get_if<StoreStmt>(&statement.node)) {
      if (find_row(store)) continue;
      const std::string name =
          "x" + number(static_cast<std::int64_t>(count++)) + "_" + s.axis.to_string();
      line(chunk_type(store->buffer) + " " + name + ";");
      lanes_[store] = name + ".at[lane]";
      stores.push_back("hd_store_lanes<is_aligned>(" + place(store->buffer, store->index) + ", " +
                       name + ");");
    }
  }
  line("#pragma unroll");
  open("for (int lane = 0; lane < " + number(kept_->width) + "; ++lane)");
  line("const long long " + s.axis.to_string() + " = " + first + " + lane;");
  const bool outer = std::exchange(in_vector_, true);
  statements(*s.body);
  for (const LoopReduction& r : s.reductions) accumulate(r);
  in_vector_ = outer;
  close();
  for (const std::string& store : stores) line(store);
}

}  // namespace heddle::jit::cuda
