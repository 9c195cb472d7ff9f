#include "jit/nest_builder.h"

#include <utility>

#include "base/check.h"

namespace heddle::jit {
namespace {

template <typename Node>
void append(Block& block, Node node) {
  block.push_back(Stmt{std::move(node)});
}

std::vector<ScalarId> ids_of(std::span<const Scalar> scalars) {
  std::vector<ScalarId> ids;
  ids.reserve(scalars.size());
  for (const Scalar& scalar : scalars) ids.push_back(scalar.id);
  return ids;
}

std::size_t contributions_of(ir::ReduceOp op) {
  return op == ir::ReduceOp::Welford ? 1 : static_cast<std::size_t>(ir::width_of(op));
}

/// dtype of component `k` of what `op` carries: the index of ArgMax and ArgMin is an i64.
DType component_dtype(ir::ReduceOp op, std::size_t k, DType accumulator) {
  const bool arg = op == ir::ReduceOp::ArgMax || op == ir::ReduceOp::ArgMin;
  return arg && k == 1 ? DType::I64 : accumulator;
}

}  // namespace

NestBuilder::NestBuilder(std::string name) {
  nest_.name = std::move(name);
  open_.push_back(&nest_.body);
}

Scalar NestBuilder::fresh(DType dtype) { return Scalar{next_scalar_++, dtype}; }

NestBufferId NestBuilder::add_global(DType dtype, SymExpr count) {
  const auto id = static_cast<NestBufferId>(nest_.buffers.size());
  HD_CHECK(id == nest_.global_count(), "global buffers come before local ones");
  NestBuffer buffer;
  buffer.name = "b" + std::to_string(id);
  buffer.dtype = dtype;
  buffer.count = std::move(count);
  nest_.buffers.push_back(std::move(buffer));
  return id;
}

namespace {

/// Bytes of one buffer: threads that run kernels may have small stacks.
constexpr std::int64_t kMostOnStack = 256 * 1024;

}  // namespace

NestBufferId NestBuilder::add_local(DType dtype, SymExpr count, std::int64_t max_count) {
  const auto id = static_cast<NestBufferId>(nest_.buffers.size());
  NestBuffer buffer;
  buffer.name = "l" + std::to_string(id - nest_.global_count());
  buffer.dtype = dtype;
  buffer.scope = NestBuffer::Scope::Local;
  const auto most = kMostOnStack / static_cast<std::int64_t>(size_of(dtype));
  const bool fits = max_count == 0 && count.is_constant() && count.constant() <= most;
  buffer.max_count = fits ? count.constant() : max_count;
  buffer.count = std::move(count);
  nest_.buffers.push_back(std::move(buffer));
  return id;
}

Symbol NestBuilder::new_axis(const SymExpr& extent) {
  const Symbol axis{Symbol::Kind::Axis, next_axis_++};
  nest_.facts.set_range(axis, 0, extent - 1);
  return axis;
}

void NestBuilder::set_parallel(Symbol axis, SymExpr extent) {
  nest_.parallel_axis = axis;
  nest_.parallel_extent = std::move(extent);
}

Scalar NestBuilder::constant(DType dtype, double value) {
  const Scalar result = fresh(dtype);
  ConstStmt stmt{result.id, dtype, 0, 0};
  if (is_floating(dtype)) {
    stmt.number = value;
  } else {
    stmt.integer = dtype == DType::Bool ? value != 0 : static_cast<std::int64_t>(value);
  }
  append(block(), stmt);
  return result;
}

Scalar NestBuilder::constant_int(DType dtype, std::int64_t value) {
  const Scalar result = fresh(dtype);
  ConstStmt stmt{result.id, dtype, 0, 0};
  if (is_floating(dtype)) {
    stmt.number = static_cast<double>(value);
  } else {
    stmt.integer = dtype == DType::Bool ? value != 0 : value;
  }
  append(block(), stmt);
  return result;
}

Scalar NestBuilder::apply(ir::ScalarOp op, std::span<const Scalar> operands) {
  HD_CHECK(operands.size() == static_cast<std::size_t>(ir::arity_of(op)),
           std::string(ir::name_of(op)));
  const DType operand = operands[op == ir::ScalarOp::Select ? 1 : 0].dtype;
  const Scalar result = fresh(ir::result_of(op, operand));
  append(block(), ApplyStmt{result.id, op, result.dtype, ids_of(operands)});
  return result;
}

Scalar NestBuilder::apply(ir::ScalarOp op, std::initializer_list<Scalar> operands) {
  return apply(op, std::span<const Scalar>(operands.begin(), operands.size()));
}

Scalar NestBuilder::exp_up_to_zero(Scalar value) {
  const Scalar result = fresh(value.dtype);
  append(block(), ApplyStmt{.result = result.id,
                            .op = ir::ScalarOp::Exp,
                            .dtype = result.dtype,
                            .operands = {value.id},
                            .up_to_zero = true});
  return result;
}

Scalar NestBuilder::convert(Scalar value, DType dtype) {
  if (value.dtype == dtype) return value;
  const Scalar result = fresh(dtype);
  append(block(), ConvertStmt{result.id, dtype, value.id});
  return result;
}

Scalar NestBuilder::bits(Scalar value) {
  const Scalar result = fresh(value.dtype == DType::F64 ? DType::I64 : DType::I32);
  append(block(), BitsStmt{result.id, result.dtype, value.id});
  return result;
}

Scalar NestBuilder::from_index(const SymExpr& index) {
  const Scalar result = fresh(DType::I64);
  append(block(), IndexStmt{result.id, simplify(index)});
  return result;
}

SymExpr NestBuilder::bind(Scalar value, const SymExpr& low, const SymExpr& high, std::int32_t check,
                          ScalarId mask) {
  HD_CHECK(value.dtype == DType::I64 || value.dtype == DType::I32,
           "an index is bound from an i64 or i32");
  const Symbol symbol{Symbol::Kind::Temp, next_temp_++};
  append(block(), BindStmt{symbol, value.id, simplify(low), simplify(high), check, mask});
  nest_.facts.set_range(symbol, low, high);
  return symbol;
}

Scalar NestBuilder::load(NestBufferId buffer, const SymExpr& index, ScalarId mask) {
  NestBuffer& source = nest_.buffers.at(buffer);
  source.read = true;
  const Scalar result = fresh(source.dtype);
  append(block(), LoadStmt{result.id, source.dtype, buffer, simplify(index), mask});
  return result;
}

void NestBuilder::store(NestBufferId buffer, const SymExpr& index, Scalar value, ScalarId mask) {
  NestBuffer& target = nest_.buffers.at(buffer);
  target.written = true;
  HD_CHECK(value.dtype == target.dtype, "a store converts nothing");
  append(block(), StoreStmt{buffer, simplify(index), value.id, mask, std::nullopt, false});
}

StoreStmt& NestBuilder::last_store() {
  HD_CHECK(!block().empty());
  return std::get<StoreStmt>(block().back().node);
}

void NestBuilder::begin_for(Symbol axis, const SymExpr& extent, ForStmt::Kind kind) {
  ForStmt loop;
  loop.axis = axis;
  loop.extent = simplify(extent);
  loop.kind = kind;
  loop.body = std::make_shared<Block>();
  Block* body = loop.body.get();
  append(block(), std::move(loop));
  // Nothing is appended to the enclosing block while the loop is open, so the address holds.
  loops_.push_back(&std::get<ForStmt>(block().back().node));
  open_.push_back(body);
}

Symbol NestBuilder::begin_for(const SymExpr& extent, ForStmt::Kind kind) {
  const Symbol axis = new_axis(extent);
  begin_for(axis, extent, kind);
  return axis;
}

std::vector<Scalar> NestBuilder::reduce(ir::ReduceOp op, DType accumulator,
                                        std::span<const Scalar> contributions, ScalarId mask) {
  HD_CHECK(!loops_.empty() && loops_.back() != nullptr, "a reduction belongs to a loop");
  HD_CHECK(contributions.size() == contributions_of(op), std::string(ir::name_of(op)));
  LoopReduction reduction{op, accumulator, ids_of(contributions), {}, mask};
  std::vector<Scalar> results;
  for (std::size_t k = 0; k < static_cast<std::size_t>(ir::width_of(op)); ++k) {
    results.push_back(fresh(component_dtype(op, k, accumulator)));
    reduction.results.push_back(results.back().id);
  }
  loops_.back()->reductions.push_back(std::move(reduction));
  return results;
}

Scalar NestBuilder::carry(Scalar initial) {
  HD_CHECK(!loops_.empty() && loops_.back() != nullptr, "a carried value belongs to a loop");
  const Scalar current = fresh(initial.dtype);
  loops_.back()->carried.push_back(
      LoopCarried{initial.dtype, initial.id, current.id, kNoScalar, kNoScalar});
  return current;
}

Scalar NestBuilder::set_next(Scalar current, Scalar next) {
  HD_CHECK(!loops_.empty() && loops_.back() != nullptr, "a carried value belongs to a loop");
  for (LoopCarried& carried : loops_.back()->carried) {
    if (carried.current != current.id) continue;
    HD_CHECK(next.dtype == carried.dtype, "a carried value keeps its dtype");
    const Scalar result = fresh(carried.dtype);
    carried.next = next.id;
    carried.result = result.id;
    return result;
  }
  HD_CHECK(false, "the scalar is not carried by the innermost loop");
  return {};
}

void NestBuilder::end_for() {
  HD_CHECK(!loops_.empty() && loops_.back() != nullptr, "end_for() closes a loop");
  for (const LoopCarried& carried : loops_.back()->carried)
    HD_CHECK(carried.next != kNoScalar, "a carried value needs set_next()");
  loops_.pop_back();
  open_.pop_back();
}

void NestBuilder::begin_if(Scalar condition) {
  auto body = std::make_shared<Block>();
  append(block(), IfStmt{condition.id, body});
  loops_.push_back(nullptr);
  open_.push_back(body.get());
}

void NestBuilder::end_if() {
  HD_CHECK(!loops_.empty() && loops_.back() == nullptr, "end_if() closes an if");
  loops_.pop_back();
  open_.pop_back();
}

void NestBuilder::read_parts(Dequantised& dequantised) {
  for_each_part(dequantised, [&](Dequantised::Part& part) {
    nest_.buffers.at(part.buffer).read = true;
    for (SymExpr* expr : {&part.base, &part.row_stride, &part.column_stride})
      *expr = simplify(*expr);
  });
  if (!dequantised.fixed) return;
  for (SymExpr* expr : {&dequantised.fixed->digit_stride, &dequantised.fixed->sum_stride})
    *expr = simplify(*expr);
}

void NestBuilder::contract(ContractStmt stmt) {
  nest_.buffers.at(stmt.a.buffer).read = true;
  nest_.buffers.at(stmt.b.buffer).read = true;
  nest_.buffers.at(stmt.acc).written = true;
  if (stmt.accumulate) nest_.buffers.at(stmt.acc).read = true;
  if (stmt.b.dequantised) read_parts(*stmt.b.dequantised);
  if (stmt.b.windows && stmt.b.windows->outside)
    nest_.buffers.at(stmt.b.windows->outside->buffer).read = true;
  for (SymExpr* expr : {&stmt.rows, &stmt.columns, &stmt.depth, &stmt.a.base, &stmt.a.row_stride,
                        &stmt.a.column_stride, &stmt.b.base, &stmt.b.row_stride,
                        &stmt.b.column_stride, &stmt.panel_stride, &stmt.ahead})
    *expr = simplify(*expr);
  for (ContractStmt::Run& run : stmt.runs)
    for (SymExpr* expr : {&run.count, &run.a_stride, &run.b_stride}) *expr = simplify(*expr);
  append(block(), std::move(stmt));
}

Nest NestBuilder::finish() {
  HD_CHECK(loops_.empty(), "a loop or an if is still open");
  check(nest_);
  return std::move(nest_);
}

}  // namespace heddle::jit
