// Loops that carry a sum, which the threads of a block share: StatementEmitter's part of them.
#include <utility>

#include "jit/cuda/loop_body.h"
#include "jit/cuda/scalar_text.h"
#include "jit/cuda/statement_emitter.h"

namespace heddle::jit::cuda {

/// A tile at a time: each thread adds up its elements, all learn what comes before them, and each goes over them again from there.
void StatementEmitter::scan(const ForStmt& s) {
  uses_reduce_scratch_ = true;
  const ScanLoop scan = scan_loop(nest_, s);
  const LoopCarried& carried = s.carried[0];
  const std::string axis = s.axis.to_string(), tile = "tile_" + axis, sums = "sums_" + axis;
  const std::string type = compute_type(carried.dtype);
  const std::string sum = "sum_" + axis;
  line(type + " " + sum + " = " + name(carried.initial) + ";");
  open("for (long long " + tile + " = 0; " + tile + " < " + index(s.extent) + "; " + tile +
       " += " + number(scan.tile()) + ")");
  std::size_t count = 0;
  for (const LoadStmt* load : scan.loads) {
    const std::string row = "x" + number(static_cast<std::int64_t>(count++)) + "_" + axis;
    line("hd_lanes<" + storage_type(nest_.buffers[load->buffer].dtype) + ", " + number(scan.width) +
         "> " + row + "[" + number(scan.chunks) + "];");
    line("hd_load_tile<" + number(scan.threads) + ", " + (scan.exact ? "true" : "false") + ">(" +
         row + ", " + buffer(load->buffer) + " + (" + index(*first_neighbour(s, load->index)) +
         ") + " + tile + ", " + index(s.extent) + " - " + tile + ");");
    lanes_[load] = row + "[chunk].at[lane]";
  }
  line(type + " " + sums + "[" + number(scan.chunks) + "];");
  without_stores_ = true;
  scan_chunk(s, scan, constant_text(carried.dtype, 0, 0), false);
  without_stores_ = false;
  line("const " + type + " all_" + axis + " = hd_block_before<" + number(scan.threads / 32) + ">(" +
       sums + ", reduce_scratch);");
  scan_chunk(s, scan, "hd_add(" + sum + ", " + sums + "[chunk])", true);
  line(sum + " = hd_add(" + sum + ", all_" + axis + ");");
  close();
  lanes_.clear();
  define(carried.result, carried.dtype, sum);
}

void StatementEmitter::scan_chunk(const ForStmt& s, const ScanLoop& scan, const std::string& start,
                                  bool stores) {
  const LoopCarried& carried = s.carried[0];
  const std::string axis = s.axis.to_string(), first = "first_" + axis;
  line("#pragma unroll");
  open("for (int chunk = 0; chunk < " + number(scan.chunks) + "; ++chunk)");
  line("const long long " + first + " = tile_" + axis + " + (chunk * " + number(scan.threads) +
       " + (int)threadIdx.x) * " + number(scan.width) + ";");
  std::vector<std::string> moved;
  for (std::size_t k = 0; stores && k < scan.stores.size(); ++k) {
    const StoreStmt& store = *scan.stores[k];
    const std::string lanes = "y" + number(static_cast<std::int64_t>(k)) + "_" + axis;
    line("hd_lanes<" + storage_type(nest_.buffers[store.buffer].dtype) + ", " + number(scan.width) +
         "> " + lanes + ";");
    lanes_[&store] = lanes + ".at[lane]";
    moved.push_back("hd_store_part<" + std::string(scan.exact ? "true" : "false") + ">(" +
                    buffer(store.buffer) + " + (" + index(*first_neighbour(s, store.index)) +
                    ") + " + first + ", " + lanes + ", " + index(s.extent) + " - " + first + ");");
  }
  line(compute_type(carried.dtype) + " running = " + start + ";");
  line("#pragma unroll");
  open("for (int lane = 0; lane < " + number(scan.width) + "; ++lane)");
  line("const long long " + axis + " = " + first + " + lane;");
  if (!scan.exact) open("if (" + axis + " < " + index(s.extent) + ")");
  define(carried.current, carried.dtype, "running");
  const bool outer = std::exchange(in_vector_, true);
  statements(*s.body);
  in_vector_ = outer;
  line("running = " + name(carried.next) + ";");
  if (!scan.exact) close();
  close();
  for (const std::string& line_of : moved) line(line_of);
  if (!stores) line("sums_" + axis + "[chunk] = running;");
  close();
}

}  // namespace heddle::jit::cuda
