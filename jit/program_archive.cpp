#include "jit/program_archive.h"

#include <algorithm>
#include <set>
#include <span>

#include "base/check.h"
#include "ir/archive.h"
#include "ir/custom_op.h"
#include "jit/custom/custom_call.h"

namespace heddle::jit {

using base::Like;

void fields(auto& archive, Like<NestBuffer> auto& buffer) {
  auto& [name, dtype, scope, read, written, count, max_count] = buffer;
  archive(name, dtype, scope, read, written, count, max_count);
}

void fields(auto& archive, Like<ConstStmt> auto& stmt) {
  auto& [result, dtype, number, integer] = stmt;
  archive(result, dtype, number, integer);
}
void fields(auto& archive, Like<GivenStmt> auto& stmt) {
  auto& [result, dtype, parameter, range] = stmt;
  archive(result, dtype, parameter, range);
}
void fields(auto& archive, Like<ApplyStmt> auto& stmt) {
  auto& [result, op, dtype, operands, up_to_zero] = stmt;
  archive(result, op, dtype, operands, up_to_zero);
}
void fields(auto& archive, Like<ConvertStmt> auto& stmt) {
  auto& [result, dtype, operand] = stmt;
  archive(result, dtype, operand);
}
void fields(auto& archive, Like<BitsStmt> auto& stmt) {
  auto& [result, dtype, operand] = stmt;
  archive(result, dtype, operand);
}
void fields(auto& archive, Like<IndexStmt> auto& stmt) {
  auto& [result, index] = stmt;
  archive(result, index);
}
void fields(auto& archive, Like<BindStmt> auto& stmt) {
  auto& [symbol, operand, low, high, check, mask] = stmt;
  archive(symbol, operand, low, high, check, mask);
}
void fields(auto& archive, Like<LoadStmt> auto& stmt) {
  auto& [result, dtype, buffer, index, mask] = stmt;
  archive(result, dtype, buffer, index, mask);
}
void fields(auto& archive, Like<StoreStmt> auto& stmt) {
  auto& [buffer, index, operand, mask, combine, streaming] = stmt;
  archive(buffer, index, operand, mask, combine, streaming);
}
void fields(auto& archive, Like<LoopReduction> auto& reduction) {
  auto& [op, dtype, contributions, results, mask] = reduction;
  archive(op, dtype, contributions, results, mask);
}
void fields(auto& archive, Like<LoopCarried> auto& carried) {
  auto& [dtype, initial, current, next, result] = carried;
  archive(dtype, initial, current, next, result);
}
void fields(auto& archive, Like<ForStmt> auto& stmt) {
  auto& [axis, extent, kind, reductions, carried, body] = stmt;
  archive(axis, extent, kind, reductions, carried, body);
}
void fields(auto& archive, Like<IfStmt> auto& stmt) {
  auto& [condition, body] = stmt;
  archive(condition, body);
}

void fields(auto& archive, Like<WindowAxis> auto& axis) {
  auto& [taps, stride, pad, dilation, windows, size, memory_stride] = axis;
  archive(taps, stride, pad, dilation, windows, size, memory_stride);
}
void fields(auto& archive, Like<Windows::Element> auto& element) {
  auto& [buffer, index] = element;
  archive(buffer, index);
}
void fields(auto& archive, Like<Windows> auto& windows) {
  auto& [first, axes, channels, outside] = windows;
  archive(first, axes, channels, outside);
}
void fields(auto& archive, Like<Dequantised::Part> auto& part) {
  auto& [buffer, base, row_stride, column_stride] = part;
  archive(buffer, base, row_stride, column_stride);
}
void fields(auto& archive, Like<Dequantised::FixedRows> auto& rows) {
  auto& [digits, block, digit_stride, scale, sums, sum_stride] = rows;
  archive(digits, block, digit_stride, scale, sums, sum_stride);
}
void fields(auto& archive, Like<Dequantised> auto& dequantised) {
  auto& [dtype, scale, zero, group, bits, fixed] = dequantised;
  archive(dtype, scale, zero, group, bits, fixed);
}
void fields(auto& archive, Like<TileOperand> auto& operand) {
  auto& [buffer, base, row_stride, column_stride, windows, dequantised] = operand;
  archive(buffer, base, row_stride, column_stride, windows, dequantised);
}
void fields(auto& archive, Like<ContractStmt::Run> auto& run) {
  auto& [count, a_stride, b_stride] = run;
  archive(count, a_stride, b_stride);
}
void fields(auto& archive, Like<ContractStmt> auto& stmt) {
  auto& [acc, dtype, tile_rows, tile_columns, rows, columns, depth, a, b, accumulate, group,
         pairs_fit, tf32, gathers, runs, panel_columns, panel_stride, ahead, ahead_count] = stmt;
  archive(acc, dtype, tile_rows, tile_columns, rows, columns, depth, a, b, accumulate, group,
          pairs_fit, tf32, gathers, runs, panel_columns, panel_stride, ahead, ahead_count);
}
void fields(auto& archive, Like<Stmt> auto& stmt) {
  auto& [node] = stmt;
  archive(node);
}

void fields(auto& archive, Like<ProductGroups> auto& groups) {
  auto& [ends, offset, stride, count, depth, row_end, products] = groups;
  archive(ends, offset, stride, count, depth, row_end, products);
}
void fields(auto& archive, Like<ProductForm> auto& form) {
  auto& [batch, row_begin, column_begin, batches, rows, columns, groups] = form;
  archive(batch, row_begin, column_begin, batches, rows, columns, groups);
}
void fields(auto& archive, Like<AttentionForm> auto& form) {
  auto& [batch, head, row_begin, batches, heads, key_heads, queries, keys, totals, scale, causal,
         masked] = form;
  archive(batch, head, row_begin, batches, heads, key_heads, queries, keys, totals, scale, causal,
          masked);
}
void fields(auto& archive, Like<Nest> auto& nest) {
  auto& [name, buffers, size_count, parallel_axis, parallel_extent, body, work, facts, product,
         attention] = nest;
  archive(name, buffers, size_count, parallel_axis, parallel_extent, body, work, facts, product,
          attention);
}

void fields(auto& archive, Like<EpilogueOp> auto& op) {
  auto& [kind, operand, a, b, low, high] = op;
  archive(kind, operand, a, b, low, high);
}
void fields(auto& archive, Like<LibraryCall> auto& call) {
  auto& [name, attrs, inputs, outputs, node_inputs, epilogue, winograd] = call;
  archive(name, attrs, inputs, outputs, node_inputs, epilogue, winograd);
}
void fields(auto& archive, Like<Launch> auto& launch) {
  auto& [buffers, sizes, late_sizes, late_results] = launch;
  archive(buffers, sizes, late_sizes, late_results);
}
void fields(auto& archive, Like<RuntimeCheck> auto& check) {
  auto& [what, where] = check;
  archive(what, where);
}

void fields(auto& archive, Like<NestedCall::ChangingSize> auto& size) {
  auto& [carried, dimension, symbols] = size;
  archive(carried, dimension, symbols);
}
void fields(auto& archive, Like<NestedCall::Appended> auto& appended) {
  auto& [carried, dimension, room, next] = appended;
  archive(carried, dimension, room, next);
}

void fields(auto& archive, Like<NestedCall::Region> auto& region) {
  auto& [name, graph, inputs, program, sizes] = region;
  archive(name, inputs, program, sizes);
}
void fields(auto& archive, Like<NestedCall> auto& call) {
  auto& [kind, regions, operands, carried, scanned, results, length, reverse, counted, changing,
         outputs, appended, workspace] = call;
  archive(kind, regions, operands, carried, scanned, results, length, reverse, counted, changing,
          outputs, appended, workspace);
}
void fields(auto& archive, Like<CustomTensor> auto& tensor) {
  auto& [buffer, dtype, sizes, strides, offset] = tensor;
  archive(buffer, dtype, sizes, strides, offset);
}
/// The op by its name.
template <typename Archive>
void fields(Archive& archive, Like<CustomCall> auto& call) {
  auto& [op, node, attrs, arguments, results, starts, buffers] = call;
  std::string name = Archive::kReads ? "" : op->schema.name;
  archive(name, node, attrs, arguments, results, starts, buffers);
  if constexpr (Archive::kReads) {
    op = ir::find_custom_op(name);
    if (op == nullptr) Archive::fail();
  }
}
void fields(auto& archive, Like<ProgramKernel> auto& kernel) {
  auto& [nest, library, custom, nested] = kernel;
  archive(nest, library, custom, nested);
}

namespace {

void program_fields(auto& archive, auto& program) {
  auto& [graph, record, kernels, launches, constants, checks, late_checks, outputs, write_backs,
         in_place, copied_arguments] = program;
  archive(record, kernels, launches, constants, checks, late_checks, outputs, write_backs, in_place,
          copied_arguments);
}

bool has_graphs(const ir::Attrs& attrs) {
  return std::ranges::any_of(
      attrs, [](const auto& attr) { return std::holds_alternative<ir::GraphRef>(attr.second); });
}

/// The programs nested in `program`, and in those, each once.
void collect_nested(const Program& program, std::set<const Program*>& nested) {
  for (const ProgramKernel& kernel : program.kernels)
    for (const NestedCall::Region& region :
         kernel.nested ? std::span(kernel.nested->regions) : std::span<const NestedCall::Region>())
      if (nested.insert(region.program.get()).second) collect_nested(*region.program, nested);
}

bool is_told(const Program& program) {
  return std::ranges::none_of(program.kernels, [](const ProgramKernel& kernel) {
    return (kernel.custom != nullptr && kernel.custom->op->is_given) ||
           (kernel.library != nullptr && has_graphs(kernel.library->attrs));
  });
}

}  // namespace

bool can_archive(const Program& program) {
  std::set<const Program*> nested;
  collect_nested(program, nested);
  return is_told(program) &&
         std::ranges::all_of(nested, [](const Program* inside) { return is_told(*inside); });
}

std::size_t nested_constant_bytes(const Program& program) {
  std::set<const Program*> nested;
  collect_nested(program, nested);
  std::size_t bytes = 0;
  for (const Program* inside : nested)
    for (const ir::LiteralPtr& constant : inside->constants) bytes += constant->bytes();
  return bytes;
}

void fields(base::ArchiveWriter& archive, const Program& program) {
  HD_CHECK(can_archive(program));
  program_fields(archive, program);
}

void fields(base::ArchiveReader& archive, Program& program) { program_fields(archive, program); }

}  // namespace heddle::jit
