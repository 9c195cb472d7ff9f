#include "jit/cuda/emit.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "jit/cuda/alignment.h"
#include "jit/cuda/attention_text.h"
#include "jit/cuda/barriers.h"
#include "jit/cuda/library_product.h"
#include "jit/cuda/prelude.h"
#include "jit/cuda/product_text.h"
#include "jit/cuda/row_lanes.h"
#include "jit/cuda/scalar_text.h"
#include "jit/cuda/statement_emitter.h"

namespace heddle::jit::cuda {
namespace {

constexpr std::int64_t kStaticSharedBytes = 48 * 1024;
/// Local buffers that one thread may have for itself.
constexpr std::int64_t kThreadBytes = 1024;

std::int64_t bound_bytes(const NestBuffer& buffer) {
  const auto bytes = buffer.max_count * static_cast<std::int64_t>(size_of(buffer.dtype));
  return (bytes + 15) / 16 * 16;
}

std::vector<NestBufferId> locals_of(const Nest& nest) {
  std::vector<NestBufferId> ids;
  for (NestBufferId id = nest.global_count(); id < nest.buffers.size(); ++id) ids.push_back(id);
  return ids;
}

Mapping mapping_of(const Nest& nest) {
  if (uses_block(nest.body)) return Mapping::Block;
  std::int64_t bytes = 0;
  for (const NestBufferId id : locals_of(nest)) {
    if (nest.buffers[id].max_count == 0) return Mapping::Block;
    bytes += bound_bytes(nest.buffers[id]);
  }
  return bytes <= kThreadBytes ? Mapping::Flat : Mapping::Block;
}

/// The most iterations that a vector loop has, 0 if some loop has no constant bound.
std::int64_t widest_loop(const Nest& nest, const Block& block) {
  std::int64_t widest = 1;
  const auto take = [&](std::int64_t count) {
    widest = widest == 0 || count == 0 ? 0 : std::max(widest, count);
  };
  for (const Stmt& statement : block) {
    if (const auto* contract = std::get_if<ContractStmt>(&statement.node))
      take(contract->tile_rows * contract->tile_columns);
    if (const auto* branch = std::get_if<IfStmt>(&statement.node))
      take(widest_loop(nest, *branch->body));
    if (const auto* loop = std::get_if<ForStmt>(&statement.node))
      take(loop->kind == ForStmt::Kind::Vector ? loop->extent.as_constant().value_or(0)
                                               : widest_loop(nest, *loop->body));
  }
  return widest;
}

/// Whether a vector loop stands in a loop and has one in itself, as a sort's, whose threads look for the place of an element.
bool searches(const Block& block, bool in_loop = false, bool in_vector = false) {
  return std::ranges::any_of(block, [&](const Stmt& statement) {
    if (const auto* branch = std::get_if<IfStmt>(&statement.node))
      return searches(*branch->body, in_loop, in_vector);
    const auto* loop = std::get_if<ForStmt>(&statement.node);
    if (loop == nullptr) return false;
    if (in_vector) return true;
    return searches(*loop->body, true, in_loop && loop->kind == ForStmt::Kind::Vector);
  });
}

/// kernel_head()'s. Of threads that search the assembler takes it that a multiprocessor is to be full of them, and spills; three
/// quarters need not.
int least_threads(const Nest& nest, Mapping mapping) {
  return mapping == Mapping::Block && searches(nest.body) ? 1536 : 0;
}

std::uint32_t threads_for(const Nest& nest, Mapping mapping, const CudaOptions& options) {
  if (mapping == Mapping::Flat) return std::min(options.block_threads, 128u);
  const std::int64_t widest = widest_loop(nest, nest.body);
  if (widest == 0 || widest >= options.block_threads) return options.block_threads;
  return static_cast<std::uint32_t>((widest + 31) / 32 * 32);
}

/// Decides where local buffers lie and declares them.
class Storage {
 public:
  /// @param reductions  that have scratch of their own
  /// @param in_memory   whether local buffers are
  Storage(const Nest& nest, Mapping mapping, const CudaOptions& options, std::size_t reductions,
          bool in_memory)
      : nest_(nest), reduce_bytes_(static_cast<std::int64_t>(reductions) * kReduceScratchBytes) {
    std::int64_t total = reduce_bytes_;
    for (const NestBufferId id : in_memory ? locals_of(nest) : std::vector<NestBufferId>()) {
      const NestBuffer& buffer = nest.buffers[id];
      if (mapping == Mapping::Flat) {
        line(storage_type(buffer.dtype) + " " + array(id) + ";");
      } else if (buffer.max_count != 0 && total + bound_bytes(buffer) <= options.max_shared_bytes) {
        total += bound_bytes(buffer);
        shared_.push_back(id);
      } else {
        in_scratch(id);
      }
    }
    shared_bytes_ = total;
    if (total > kStaticSharedBytes) {
      declare_dynamic();
    } else {
      declare_static();
    }
  }

  std::string text() const { return text_; }
  std::int64_t dynamic_bytes() const { return dynamic_bytes_; }
  std::int64_t shared_bytes() const { return shared_bytes_; }
  const SymExpr& scratch_bytes() const { return scratch_bytes_; }

 private:
  void line(const std::string& text) { text_ += "  " + text + "\n"; }
  std::string array(NestBufferId id) const {
    return buffer_name(nest_, id) + "[" + std::to_string(nest_.buffers[id].max_count) + "]";
  }
  std::string pointer(NestBufferId id, const std::string& address) const {
    const std::string type = storage_type(nest_.buffers[id].dtype);
    return type + "* const " + buffer_name(nest_, id) + " = (" + type + "*)(" + address + ");";
  }

  void in_scratch(NestBufferId id) {
    const NestBuffer& buffer = nest_.buffers[id];
    scratch_.emplace_back(id, scratch_bytes_);
    const auto size = static_cast<std::int64_t>(size_of(buffer.dtype));
    // One of no elements takes some too: where there is scratch there is a parameter for it.
    scratch_bytes_ +=
        buffer.count.is_constant(0) ? SymExpr(256) : ceildiv(buffer.count * size, 256) * 256;
  }
  void declare_static() {
    if (reduce_bytes_ != 0)
      line("__shared__ __align__(16) unsigned char reduce_scratch[" +
           std::to_string(reduce_bytes_) + "];");
    for (const NestBufferId id : shared_)
      line("__shared__ __align__(16) " + storage_type(nest_.buffers[id].dtype) + " " + array(id) +
           ";");
    declare_scratch();
  }
  void declare_dynamic() {
    line("unsigned char* const dynamic_shared = hd_dynamic_shared();");
    if (reduce_bytes_ != 0) {
      line("unsigned char* const reduce_scratch = dynamic_shared;");
      dynamic_bytes_ = reduce_bytes_;
    }
    for (const NestBufferId id : shared_) {
      line(pointer(id, "dynamic_shared + " + std::to_string(dynamic_bytes_)));
      dynamic_bytes_ += bound_bytes(nest_.buffers[id]);
    }
    declare_scratch();
  }
  void declare_scratch() {
    if (scratch_.empty()) return;
    const base::Facts& facts = nest_.facts;
    // Of all blocks it may be more than 32 bits count, and a number of bytes is written as an int.
    line("unsigned char* const mine = scratch + (long long)blockIdx.x * (" +
         index_text(scratch_bytes_, facts) + ");");
    for (const auto& [id, offset] : scratch_)
      line(pointer(id, "mine + " + index_text(offset, facts)));
  }

  const Nest& nest_;
  std::int64_t reduce_bytes_;
  std::string text_;
  std::vector<NestBufferId> shared_;
  std::vector<std::pair<NestBufferId, SymExpr>> scratch_;
  std::int64_t dynamic_bytes_ = 0;
  std::int64_t shared_bytes_ = 0;
  SymExpr scratch_bytes_ = 0;
};

/// Threads of a block whose groups have parallel iterations of their own: as many blocks of these fit as a device has room
/// for threads.
constexpr std::uint32_t kRowThreads = 128;

/// Each group of threads has an iteration. Where lanes exchange values, groups without one go through it, too, as the last one
/// with a lane that is beyond all loops.
std::string loop_over_rows(const Nest& nest, const RowLanes& rows) {
  const std::string axis = nest.parallel_axis.to_string();
  const std::string extent = index_text(nest.parallel_extent, nest.facts);
  const std::string lane = "threadIdx.x % " + std::to_string(rows.lanes);
  const std::string own = "threadIdx.x / " + std::to_string(rows.lanes);
  const std::string count = std::to_string(kRowThreads / rows.lanes);
  const std::string first = "(long long)blockIdx.x * " + count;
  const std::string step = "(long long)gridDim.x * " + count;
  if (!rows.reduces)
    return "const unsigned int row_lane = " + lane + ";\n  for (long long " + axis + " = " + first +
           " + " + own + "; " + axis + " < " + extent + "; " + axis + " += " + step + ") {\n";
  return "for (long long first_row = " + first + "; first_row < " + extent +
         "; first_row += " + step + ") {\n    const bool row_exists = first_row + " + own + " < " +
         extent + ";\n    const long long " + axis + " = row_exists ? first_row + " + own + " : " +
         extent + " - 1;\n    const long long row_lane = row_exists ? " + lane + " : 1 << 20;\n";
}

std::string parallel_loop(const Nest& nest, Mapping mapping) {
  const std::string axis = nest.parallel_axis.to_string();
  const std::string extent = index_text(nest.parallel_extent, nest.facts);
  const bool flat = mapping == Mapping::Flat;
  const std::string from = flat ? "(long long)blockIdx.x * blockDim.x + threadIdx.x" : "blockIdx.x";
  const std::string step = flat ? "(long long)gridDim.x * blockDim.x" : "gridDim.x";
  return "for (long long " + axis + " = " + from + "; " + axis + " < " + extent + "; " + axis +
         " += " + step + ") {\n";
}

}  // namespace

std::string entry_name(const std::string& name) {
  std::string result = "heddle_";
  for (const char c : name) {
    const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    result += word ? c : '_';
  }
  return result;
}

std::string parameters_text(const Nest& nest, bool scratch, bool counters) {
  std::string text;
  for (NestBufferId id = 0; id < nest.global_count(); ++id) {
    const NestBuffer& buffer = nest.buffers[id];
    text += (buffer.written ? "" : "const ") + storage_type(buffer.dtype) + "* " +
            buffer_name(nest, id) + ", ";
  }
  for (std::uint32_t k = 0; k < nest.size_count; ++k)
    text += "long long s" + std::to_string(k) + ", ";
  if (scratch) text += "unsigned char* scratch, ";
  if (counters) text += "unsigned int* counters, ";
  return text + "int* status";
}

std::string kernel_head(const CudaSource& source, const std::string& parameters,
                        int least_threads) {
  const int least_blocks = least_threads / static_cast<int>(source.block_threads);
  return "extern \"C\" __global__ void __launch_bounds__(" + std::to_string(source.block_threads) +
         (least_blocks == 0 ? "" : ", " + std::to_string(least_blocks)) + ")\n" + source.entry +
         "(" + parameters + ") {\n";
}

namespace {

/// A kernel whose rows stay in registers, twice in one: for chunks that are moved at once and for those that lie anywhere.
std::string either_way(const Nest& nest, const RowRegisters& kept, const CudaSource& source,
                       const std::string& head, const std::string& parameters,
                       const std::string& storage, const std::string& loop) {
  std::set<std::string> bits;
  for (const auto& [buffer, first] : kept.moved)
    add_address_bits(bits, nest, buffer, first, kept.width);
  const bool reduces = kept.reductions != 0;
  std::string arguments;
  for (NestBufferId id = 0; id < nest.global_count(); ++id)
    arguments += buffer_name(nest, id) + ", ";
  for (std::uint32_t k = 0; k < nest.size_count; ++k) arguments += "s" + std::to_string(k) + ", ";
  arguments += std::string("status") + (reduces ? ", reduce_scratch" : "");
  const std::string rows = source.entry + "_rows";
  return "template <bool is_aligned>\nstatic __device__ __forceinline__ void " + rows + "(" +
         parameters + (reduces ? ", unsigned char* reduce_scratch" : "") + ") {\n  " + loop +
         "}\n" + head + storage + "  if (" + aligned_text(bits, kept.bytes) + ")\n    " + rows +
         "<true>(" + arguments + ");\n  else\n    " + rows + "<false>(" + arguments + ");\n}\n";
}

}  // namespace

CudaSource emit_cuda(const Nest& nest, const CudaOptions& options) {
  HD_CHECK(options.block_threads % 32 == 0 && options.block_threads > 0, "full warps");
  Mapping mapping = mapping_of(nest);
  std::optional<RowLanes> rows;
  if (mapping == Mapping::Block) rows = row_lanes(nest, kRowThreads);
  if (rows) mapping = Mapping::Rows;
  std::optional<RowRegisters> kept;
  if (mapping == Mapping::Block) kept = row_registers(nest);
  std::set<const Stmt*> barriers;
  if (mapping == Mapping::Block && !kept) barriers = barriers_of(nest);
  const ForStmt* scan = find_scan(nest.body);
  const std::uint32_t threads = rows   ? kRowThreads
                                : scan ? scan_loop(nest, *scan).threads
                                : kept ? kept->threads
                                       : threads_for(nest, mapping, options);
  const std::uint32_t of_iteration = rows ? rows->lanes : mapping == Mapping::Block ? threads : 0;
  StatementEmitter statements(nest, mapping, std::move(barriers), of_iteration);
  if (rows && rows->reduces) statements.only_where("row_exists");
  if (kept) statements.keep_rows(*kept);
  const std::string body = statements.emit(nest.body, 2);
  const std::size_t totals = !statements.uses_reduce_scratch() ? 0 : kept ? kept->reductions : 1;
  const Storage storage(nest, mapping, options, totals, !kept);

  CudaSource source;
  source.entry = entry_name(nest.name);
  source.block_threads = threads;
  source.dynamic_shared_bytes = storage.dynamic_bytes();
  source.shared_bytes = storage.shared_bytes();
  source.scratch_bytes = storage.scratch_bytes();
  const bool scratch = !source.scratch_bytes.is_constant(0);
  const std::int64_t of_block = mapping == Mapping::Flat ? std::int64_t{threads}
                                : rows                   ? threads / rows->lanes
                                                         : 1;
  const SymExpr blocks = ceildiv(nest.parallel_extent, of_block);
  source.blocks = min(blocks, scratch ? options.max_scratch_blocks : options.max_blocks);

  const std::string loop =
      (rows ? loop_over_rows(nest, *rows) : parallel_loop(nest, mapping)) + body + "  }\n";
  const std::string parameters = parameters_text(nest, scratch);
  const std::string head = kernel_head(source, parameters, least_threads(nest, mapping));
  source.kernel = kept ? either_way(nest, *kept, source, head, parameters, storage.text(), loop)
                       : head + storage.text() + "  " + loop + "}\n";
  source.text = prelude_for(source.kernel) + source.kernel;
  return source;
}

namespace {

std::vector<CudaBuffer> buffers_of(const Nest& nest) {
  std::vector<CudaBuffer> buffers;
  for (NestBufferId id = 0; id < nest.global_count(); ++id)
    buffers.push_back({nest.buffers[id].dtype, nest.buffers[id].count});
  return buffers;
}

/// No variants where the device has none for it.
CudaCode attention_code(const AttentionParts& parts, const CudaOptions& options) {
  CudaCode code;
  code.buffers = buffers_of(*parts.nest);
  code.device = {options.multiprocessors, options.max_shared_bytes, options.tensor_cores,
                 options.warpgroups};
  const AttentionForm& form = *parts.nest->attention;
  const auto tiles = attention_tiles(parts.dtype(), parts.depth(), parts.value_columns(),
                                     form.masked, code.device);
  for (const AttentionTile& tile : tiles)
    code.variants.push_back(emit_attention(parts, tile, options));
  code.attention = {.tiles = tiles,
                    .heads = form.batches * form.heads,
                    .queries = form.queries,
                    .keys = form.keys,
                    .causal = form.causal,
                    .key_heads = form.batches * form.key_heads,
                    .group = parts.group};
  return code;
}

}  // namespace

CudaCode emit_code(const Nest& nest, const CudaOptions& options) {
  if (const auto attention = attention_parts(nest)) {
    CudaCode code = attention_code(*attention, options);
    if (!code.variants.empty()) return code;
  }
  CudaCode code;
  code.buffers = buffers_of(nest);
  code.device = {options.multiprocessors, options.max_shared_bytes, options.tensor_cores,
                 options.warpgroups};
  const auto parts = product_parts(nest);
  if (!parts) {
    code.variants.push_back(emit_cuda(nest, options));
    return code;
  }
  code.dtype = parts->left_dtype();
  code.batches = nest.product->batches;
  code.rows = nest.product->rows;
  code.columns = nest.product->columns;
  code.depth = parts->contract->depth;
  if (const auto& groups = nest.product->groups) {
    code.is_grouped = true;
    code.batches = groups->count;
    code.depth = groups->depth;
  }
  code.window_overlap = parts->window_overlap();
  code.in_pieces = parts->right() == Along::Channels;
  const bool dequantised = parts->contract->b.dequantised.has_value();
  code.stored_bits = parts->stored_bits();
  for (const ProductTile& tile : product_tiles(code.dtype, parts->left(), parts->right(),
                                               code.device, parts->contract->tf32, dequantised)) {
    code.variants.push_back(emit_product(*parts, tile, options));
    code.tiles.push_back(tile);
  }
  if (parts->contract->b.windows ? options.cudnn : options.cublaslt)
    code.library = library_form(*parts);
  if (code.library) code.variants.push_back(emit_after_library(*parts, *code.library, options));
  return code;
}

ProductShape CudaCode::shape(std::span<const std::int64_t> sizes) const {
  ProductShape shape{.batches = batches.evaluate_sizes(sizes),
                     .rows = rows.evaluate_sizes(sizes),
                     .columns = columns.evaluate_sizes(sizes),
                     .depth = depth.evaluate_sizes(sizes),
                     .element_bytes = static_cast<std::int64_t>(size_of(dtype)),
                     .window_overlap = window_overlap,
                     .is_grouped = is_grouped,
                     .stored_bits = stored_bits,
                     .in_pieces = in_pieces};
  if (is_grouped) {
    // Of few rows most groups have none.
    shape.batches = std::max<std::int64_t>(1, std::min(shape.batches, shape.rows));
    shape.rows = (shape.rows + shape.batches - 1) / shape.batches;
  }
  return shape;
}

AttentionShape AttentionCode::shape(std::span<const std::int64_t> sizes) const {
  return {heads.evaluate_sizes(sizes),     queries.evaluate_sizes(sizes),
          keys.evaluate_sizes(sizes),      causal,
          key_heads.evaluate_sizes(sizes), group};
}

void CudaCode::set_registers(std::uint32_t variant, int registers) {
  if (registers == 0) return;
  variants[variant].registers = registers;
  if (attention && variant < attention->tiles.size())
    attention->tiles[variant].registers = registers;
  if (variant < tiles.size()) tiles[variant].registers = registers;
}

CudaChoice CudaCode::choose(std::span<const std::int64_t> sizes) const {
  if (attention)
    return choice_of(cheapest_tile(attention->tiles, attention->shape(sizes), device), sizes);
  if (tiles.empty()) return choice_of({}, sizes);
  return choice_of(cheapest_tile(tiles, shape(sizes), device), sizes);
}

CudaChoice CudaCode::choice_of(std::uint32_t variant, std::span<const std::int64_t> sizes) const {
  if (attention) {
    const AttentionTile& tile = attention->tiles[variant];
    return choice_of({variant, cheapest_parts(tile, attention->shape(sizes), device)}, sizes);
  }
  if (tiles.empty()) return choice_of(TileChoice{variant, 1}, sizes);
  return choice_of({variant, cheapest_parts(tiles[variant], shape(sizes), device)}, sizes);
}

std::int64_t CudaCode::most_blocks(const CudaSource& source) const {
  constexpr std::int64_t kWaves = 16;
  if (source.registers == 0 || !tiles.empty() || attention)
    return std::numeric_limits<std::int64_t>::max();
  const std::int64_t at_once =
      device.multiprocessors * resident_blocks(static_cast<int>(source.block_threads),
                                               source.registers, source.shared_bytes, device);
  return source.scratch_bytes.is_constant(0) ? kWaves * at_once : at_once;
}

CudaChoice CudaCode::choice_of(const TileChoice& way, std::span<const std::int64_t> sizes) const {
  const CudaSource& source = variants[way.tile];
  CudaChoice choice;
  choice.variant = static_cast<std::uint32_t>(way.tile);
  choice.parts = static_cast<std::uint32_t>(way.parts);
  const std::int64_t blocks = std::min(source.blocks.evaluate_sizes(sizes), most_blocks(source));
  choice.blocks = choice.parts * static_cast<std::uint32_t>(std::max<std::int64_t>(0, blocks));
  if (choice.parts != 1)
    choice.scratch_bytes = choice.blocks * source.part_bytes;
  else if (!source.scratch_bytes.is_constant(0))
    choice.scratch_bytes = choice.blocks * source.scratch_bytes.evaluate_sizes(sizes);
  return choice;
}

std::vector<std::uint32_t> CudaCode::plausible(std::span<const std::int64_t> sizes,
                                               double factor) const {
  if (tiles.empty() && !attention) return {0};
  std::vector<double> cycles;
  if (attention) {
    const AttentionShape shape = attention->shape(sizes);
    for (const AttentionTile& tile : attention->tiles)
      cycles.push_back(attention_cycles(tile, shape, device, cheapest_parts(tile, shape, device)));
  } else {
    const ProductShape product = shape(sizes);
    for (const ProductTile& tile : tiles)
      cycles.push_back(
          product_cycles(tile, product, device, cheapest_parts(tile, product, device)));
  }
  if (is_grouped) factor = 1;
  const double least = *std::ranges::min_element(cycles);
  std::vector<std::uint32_t> found;
  for (std::uint32_t k = 0; k < cycles.size(); ++k)
    if (cycles[k] <= factor * least) found.push_back(k);
  return found;
}

}  // namespace heddle::jit::cuda
