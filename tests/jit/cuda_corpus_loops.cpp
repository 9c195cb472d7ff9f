// The part of the corpus about loops: reductions, carried values, local buffers, contractions, indices.
#include "jit/nest_builder.h"
#include "tests/jit/cuda_corpus.h"

namespace heddle::tests {
namespace {

using base::Symbol;
using base::SymExpr;
using ir::ReduceOp;
using ir::ScalarOp;
using jit::ForStmt;
using jit::NestBufferId;
using jit::NestBuilder;
using jit::Scalar;
using Kind = ForStmt::Kind;

/// A builder with its data.
struct Case {
  explicit Case(const std::string& name, std::vector<std::int64_t> sizes = {}) : b(name) {
    b.nest().size_count = static_cast<std::uint32_t>(sizes.size());
    result.sizes = std::move(sizes);
  }
  NestBufferId global(DType dtype, const SymExpr& count, std::uint64_t seed, bool special = false) {
    result.buffers.push_back(make_buffer(dtype, count.evaluate_sizes(result.sizes), seed, special));
    return b.add_global(dtype, count);
  }
  Symbol parallel(const SymExpr& extent) {
    const Symbol axis = b.new_axis(extent);
    b.set_parallel(axis, extent);
    return axis;
  }
  Symbol open(const SymExpr& extent, Kind kind) {
    const Symbol axis = b.new_axis(extent);
    b.begin_for(axis, extent, kind);
    return axis;
  }
  CorpusCase finish(double tolerance = 2e-6) {
    result.nest = b.finish();
    result.tolerance = tolerance;
    return std::move(result);
  }

  NestBuilder b;
  CorpusCase result;
};

std::vector<ReduceOp> reductions_of(DType dtype) {
  using enum ReduceOp;
  if (dtype == DType::Bool) return {And, Or, Max, Min, ArgMax};
  std::vector<ReduceOp> ops = {Sum, Prod, Max, Min, ArgMax, ArgMin};
  if (is_floating(dtype)) ops.push_back(Welford);
  return ops;
}

/// Each reduction of rows of x with and without a mask; `kind` Vector or Serial.
CorpusCase reductions(DType dtype, Kind kind, bool special, std::int64_t length) {
  const bool vector = kind == Kind::Vector;
  Case c("reduce_" + std::string(vector ? "vector_" : "serial_") + dtype_name(dtype) +
             (special ? "_special" : ""),
         {5, length});
  const SymExpr rows = SymExpr::size(0);
  const SymExpr columns = SymExpr::size(1);
  const NestBufferId x = c.global(dtype, rows * columns, special ? 21 : 3, special);
  const bool half = dtype == DType::F16 || dtype == DType::BF16;
  const DType accumulator = half ? DType::F32 : dtype;
  const std::vector<ReduceOp> ops = reductions_of(dtype);
  std::vector<NestBufferId> outputs;
  std::vector<Scalar> results;
  for (const ReduceOp op : ops)
    for (int k = 0; k < 2 * ir::width_of(op); ++k)
      outputs.push_back(
          c.global(k % ir::width_of(op) == 1 && op != ReduceOp::Welford ? DType::I64 : accumulator,
                   rows, 77));
  const Symbol row = c.parallel(rows);
  const Symbol column = c.open(columns, kind);
  const Scalar value = c.b.convert(c.b.load(x, SymExpr(row) * columns + column), accumulator);
  const Scalar index = c.b.from_index(column);
  const Scalar three = c.b.constant_int(DType::I64, 3);
  const Scalar zero = c.b.constant_int(DType::I64, 0);
  const Scalar mask = c.b.apply(ScalarOp::Ne, {c.b.apply(ScalarOp::Rem, {index, three}), zero});
  for (const ReduceOp op : ops) {
    std::vector<Scalar> given = {value};
    if (ir::width_of(op) == 2) given.push_back(index);
    for (const auto m : {jit::kNoScalar, mask.id})
      for (const Scalar& s : c.b.reduce(op, accumulator, given, m)) results.push_back(s);
  }
  c.b.end_for();
  for (std::size_t k = 0; k < results.size(); ++k) c.b.store(outputs[k], row, results[k]);
  return c.finish(dtype == DType::F64 ? 1e-12 : 2e-5);
}

/// Each row's running sum, and the two last Fibonacci-like numbers by exchange of carried values.
CorpusCase scan() {
  Case c("scan", {6, 37});
  const SymExpr columns = SymExpr::size(1);
  const SymExpr count = SymExpr::size(0) * columns;
  const NestBufferId x = c.global(DType::F32, count, 1);
  const NestBufferId sums = c.global(DType::F32, count, 2);
  const NestBufferId last = c.global(DType::I32, SymExpr::size(0), 3);
  const Symbol row = c.parallel(SymExpr::size(0));
  const Scalar zero = c.b.constant(DType::F32, 0);
  const Scalar first = c.b.constant_int(DType::I32, 0);
  const Scalar second = c.b.constant_int(DType::I32, 1);
  const Symbol column = c.open(columns, Kind::Serial);
  const Scalar sum = c.b.carry(zero);
  const Scalar older = c.b.carry(first);
  const Scalar newer = c.b.carry(second);
  const SymExpr at = SymExpr(row) * columns + column;
  const Scalar next = c.b.apply(ScalarOp::Add, {sum, c.b.load(x, at)});
  c.b.store(sums, at, next);
  c.b.set_next(sum, next);
  const Scalar result = c.b.set_next(older, newer);
  c.b.set_next(newer, c.b.apply(ScalarOp::Add, {older, newer}));
  c.b.end_for();
  c.b.store(last, row, result);
  return c.finish();
}

/// Rows of a table picked by indices, some of them out of range and reported where not masked.
CorpusCase gather(bool report) {
  Case c(report ? "gather_checked" : "gather_masked", {9, 20, 7});
  const SymExpr picks = SymExpr::size(0);
  const SymExpr width = SymExpr::size(1);
  const SymExpr height = SymExpr::size(2);
  const NestBufferId table = c.global(DType::F16, height * width, 4);
  const NestBufferId indices = c.global(DType::I64, picks, 5);
  const NestBufferId out = c.global(DType::F16, picks * width, 6);
  for (std::int64_t k = 0; k < 9; ++k) c.result.buffers[1].set(k, static_cast<double>(k) - 1);
  const Symbol pick = c.parallel(picks);
  const Scalar index = c.b.load(indices, pick);
  const Scalar low = c.b.constant_int(DType::I64, 0);
  const Scalar high = c.b.from_index(height);
  const Scalar in_range = c.b.apply(ScalarOp::And, {c.b.apply(ScalarOp::Ge, {index, low}),
                                                    c.b.apply(ScalarOp::Lt, {index, high})});
  const SymExpr at = c.b.bind(index, 0, height - 1, 42, report ? jit::kNoScalar : in_range.id);
  const Symbol column = c.open(width, Kind::Vector);
  c.b.store(out, SymExpr(pick) * width + column, c.b.load(table, at * width + column, in_range.id));
  c.b.end_for();
  return c.finish();
}

/// out[i mod 3] combined with x[i]: atomics among the threads of one block.
CorpusCase scatter(DType dtype, ReduceOp op) {
  Case c("scatter_" + dtype_name(dtype) + "_" + std::string(name_of(op)), {40});
  const NestBufferId x = c.global(dtype, SymExpr::size(0), 8);
  const NestBufferId out = c.global(dtype, 3, 9);
  if (op == ReduceOp::Prod)
    for (std::int64_t k = 0; k < 40; ++k) c.result.buffers[0].set(k, k % 3 == 0 ? 2 : 1);
  const auto one = c.parallel(1);
  const Symbol i = c.open(SymExpr::size(0), Kind::Vector);
  const Scalar value = c.b.load(x, i);
  c.b.store(out, mod(i, 3) + SymExpr(one), value);
  c.b.last_store().combine = op;
  c.b.end_for();
  return c.finish(dtype == DType::F16 || dtype == DType::BF16 ? 5e-2 : 1e-5);
}

/// Softmax in phases through a local buffer.
CorpusCase softmax(std::int64_t bound) {
  Case c("softmax_local_" + std::to_string(bound), {4, 150});
  const SymExpr columns = SymExpr::size(1);
  const SymExpr count = SymExpr::size(0) * columns;
  const NestBufferId x = c.global(DType::F32, count, 10);
  const NestBufferId y = c.global(DType::F32, count, 11);
  const NestBufferId row_copy = c.b.add_local(DType::F32, columns, bound);
  const Symbol row = c.parallel(SymExpr::size(0));
  const Symbol j = c.open(columns, Kind::Vector);
  const Scalar value = c.b.load(x, SymExpr(row) * columns + j);
  c.b.store(row_copy, j, value);
  const Scalar largest = c.b.reduce(ReduceOp::Max, DType::F32, std::span(&value, 1))[0];
  c.b.end_for();
  const Symbol k = c.open(columns, Kind::Vector);
  const Scalar e =
      c.b.apply(ScalarOp::Exp, {c.b.apply(ScalarOp::Sub, {c.b.load(row_copy, k), largest})});
  c.b.store(row_copy, k, e);
  const Scalar total = c.b.reduce(ReduceOp::Sum, DType::F32, std::span(&e, 1))[0];
  c.b.end_for();
  const Symbol m = c.open(columns, Kind::Vector);
  c.b.store(y, SymExpr(row) * columns + m,
            c.b.apply(ScalarOp::Div, {c.b.load(row_copy, m), total}));
  c.b.end_for();
  return c.finish(5e-6);
}

/// Turns a local row round several times: each step reads what other threads wrote in the one before,
/// and a uniform statement writes an element that all read.
CorpusCase rotations() {
  Case c("rotations", {3});
  constexpr std::int64_t kLength = 70;
  const SymExpr rows = SymExpr::size(0);
  const NestBufferId x = c.global(DType::I32, rows * kLength, 12);
  const NestBufferId y = c.global(DType::I32, rows * kLength, 13);
  const NestBufferId front = c.b.add_local(DType::I32, kLength, kLength);
  const NestBufferId back = c.b.add_local(DType::I32, kLength, kLength);
  const Symbol row = c.parallel(rows);
  const Symbol i = c.open(kLength, Kind::Vector);
  c.b.store(front, i, c.b.load(x, SymExpr(row) * kLength + i));
  c.b.end_for();
  const Symbol step = c.open(5, Kind::Serial);
  const Scalar head = c.b.load(front, step);
  const Symbol j = c.open(kLength, Kind::Vector);
  c.b.store(back, j, c.b.load(front, mod(SymExpr(j) + 33, kLength)));
  c.b.end_for();
  const Symbol k = c.open(kLength, Kind::Vector);
  c.b.store(front, k, c.b.apply(ScalarOp::Add, {c.b.load(back, kLength - 1 - SymExpr(k)), head}));
  c.b.end_for();
  c.b.store(front, 69 - SymExpr(step), head);
  const Scalar odd =
      c.b.apply(ScalarOp::Ne, {c.b.apply(ScalarOp::And, {head, c.b.constant_int(DType::I32, 1)}),
                               c.b.constant_int(DType::I32, 0)});
  c.b.begin_if(odd);
  c.b.store(front, 7, head);
  c.b.end_if();
  c.b.end_for();
  const Symbol n = c.open(kLength, Kind::Vector);
  c.b.store(y, SymExpr(row) * kLength + n, c.b.load(front, n));
  c.b.end_for();
  return c.finish();
}

/// y = f(a x b) by tiles with ragged edges, the depth in two halves.
CorpusCase contraction(DType operand, DType accumulator) {
  Case c("contract_" + dtype_name(operand) + "_" + dtype_name(accumulator), {21, 19, 26});
  const SymExpr m = SymExpr::size(0);
  const SymExpr n = SymExpr::size(1);
  const SymExpr k = SymExpr::size(2);
  constexpr std::int64_t kRows = 8;
  constexpr std::int64_t kColumns = 16;
  const NestBufferId a = c.global(operand, m * k, 14);
  const NestBufferId b = c.global(operand, n * k, 15);
  const NestBufferId y = c.global(accumulator, m * n, 16);
  const NestBufferId acc = c.b.add_local(accumulator, kRows * kColumns, kRows * kColumns);
  const SymExpr across = ceildiv(n, kColumns);
  const Symbol tile = c.parallel(ceildiv(m, kRows) * across);
  const SymExpr row = floordiv(tile, across) * kRows;
  const SymExpr column = mod(tile, across) * kColumns;
  jit::ContractStmt stmt{
      .acc = acc, .dtype = accumulator, .tile_rows = kRows, .tile_columns = kColumns};
  stmt.rows = min(m - row, kRows);
  stmt.columns = min(n - column, kColumns);
  stmt.depth = floordiv(k, 2);
  stmt.a = {a, row * k, k, 1};
  stmt.b = {b, column * k, 1, k};  // b is stored as columns
  c.b.contract(stmt);
  stmt.accumulate = true;
  stmt.a.base = row * k + floordiv(k, 2);
  stmt.b.base = column * k + floordiv(k, 2);
  stmt.depth = k - floordiv(k, 2);
  c.b.contract(stmt);
  const Symbol e = c.open(kRows * kColumns, Kind::Vector);
  const SymExpr i = row + floordiv(e, kColumns);
  const SymExpr j = column + mod(e, kColumns);
  const Scalar inside =
      c.b.apply(ScalarOp::And, {c.b.apply(ScalarOp::Lt, {c.b.from_index(i), c.b.from_index(m)}),
                                c.b.apply(ScalarOp::Lt, {c.b.from_index(j), c.b.from_index(n)})});
  const Scalar sum = c.b.load(acc, e, inside.id);
  c.b.store(y, i * n + j, c.b.apply(ScalarOp::Max, {sum, c.b.constant(accumulator, -3)}),
            inside.id);
  c.b.end_for();
  return c.finish(1e-5);
}

/// Attention with the softmax carried along blocks of keys: tiles of scores, a running maximum and sum
/// in local memory, the output rescaled as the maximum grows. q, k, v are [s0, s1 or s2, 8].
class OnlineAttention {
 public:
  CorpusCase build() {
    q_ = c_.global(DType::F32, heads_ * queries_ * kDepth, 30);
    k_ = c_.global(DType::F32, heads_ * keys_ * kDepth, 31);
    v_ = c_.global(DType::F32, heads_ * keys_ * kDepth, 32);
    out_ = c_.global(DType::F32, heads_ * queries_ * kDepth, 33);
    scores_ = b_.add_local(DType::F32, kRows * kColumns, kRows * kColumns);
    acc_ = b_.add_local(DType::F32, kRows * kDepth, kRows * kDepth);
    largest_ = b_.add_local(DType::F32, kRows, kRows);
    total_ = b_.add_local(DType::F32, kRows, kRows);
    const SymExpr tiles = ceildiv(queries_, kRows);
    const Symbol p = c_.parallel(heads_ * tiles);
    head_ = floordiv(p, tiles);
    first_row_ = mod(p, tiles) * kRows;
    rows_ = min(queries_ - first_row_, kRows);
    begin();
    const Symbol block = c_.open(ceildiv(keys_, kColumns), Kind::Serial);
    first_key_ = SymExpr(block) * kColumns;
    columns_ = min(keys_ - first_key_, kColumns);
    take_block();
    b_.end_for();
    finish();
    return c_.finish(1e-5);
  }

 private:
  static constexpr std::int64_t kDepth = 8;
  static constexpr std::int64_t kRows = 4;
  static constexpr std::int64_t kColumns = 16;

  void begin() {
    const Symbol e = c_.open(kRows * kDepth, Kind::Vector);
    b_.store(acc_, e, b_.constant(DType::F32, 0));
    b_.end_for();
    const Symbol r = c_.open(kRows, Kind::Vector);
    b_.store(largest_, r, b_.constant(DType::F32, -1e30));
    b_.store(total_, r, b_.constant(DType::F32, 0));
    b_.end_for();
  }

  void take_block() {
    const SymExpr keys_at = (head_ * keys_ + first_key_) * kDepth;
    jit::ContractStmt scores{
        .acc = scores_, .dtype = DType::F32, .tile_rows = kRows, .tile_columns = kColumns};
    scores.rows = rows_;
    scores.columns = columns_;
    scores.depth = kDepth;
    scores.a = {q_, (head_ * queries_ + first_row_) * kDepth, kDepth, 1};
    scores.b = {k_, keys_at, 1, kDepth};
    b_.contract(scores);
    const Symbol row = c_.open(rows_, Kind::Serial);
    rescale(row);
    b_.end_for();
    jit::ContractStmt values{
        .acc = acc_, .dtype = DType::F32, .tile_rows = kRows, .tile_columns = kDepth};
    values.rows = rows_;
    values.columns = kDepth;
    values.depth = columns_;
    values.a = {scores_, 0, kColumns, 1};
    values.b = {v_, keys_at, kDepth, 1};
    values.accumulate = true;
    b_.contract(values);
  }

  Scalar inside(Symbol column) {
    return b_.apply(ScalarOp::Lt, {b_.from_index(column), b_.from_index(columns_)});
  }

  void rescale(Symbol row) {
    const Symbol i = c_.open(kColumns, Kind::Vector);
    const Scalar score = b_.load(scores_, SymExpr(row) * kColumns + i, inside(i).id);
    const Scalar best = b_.reduce(ReduceOp::Max, DType::F32, std::span(&score, 1), inside(i).id)[0];
    b_.end_for();
    const Scalar before = b_.load(largest_, row);
    const Scalar now = b_.apply(ScalarOp::Max, {before, best});
    const Scalar factor = b_.apply(ScalarOp::Exp, {b_.apply(ScalarOp::Sub, {before, now})});
    b_.store(largest_, row, now);
    const Symbol j = c_.open(kColumns, Kind::Vector);
    const SymExpr at = SymExpr(row) * kColumns + j;
    const Scalar e =
        b_.apply(ScalarOp::Exp, {b_.apply(ScalarOp::Sub, {b_.load(scores_, at), now})});
    b_.store(scores_, at, e, inside(j).id);
    const Scalar sum = b_.reduce(ReduceOp::Sum, DType::F32, std::span(&e, 1), inside(j).id)[0];
    b_.end_for();
    b_.store(total_, row, b_.apply(ScalarOp::Fma, {b_.load(total_, row), factor, sum}));
    const Symbol d = c_.open(kDepth, Kind::Vector);
    const SymExpr place = SymExpr(row) * kDepth + d;
    b_.store(acc_, place, b_.apply(ScalarOp::Mul, {b_.load(acc_, place), factor}));
    b_.end_for();
  }

  void finish() {
    const Symbol row = c_.open(rows_, Kind::Serial);
    const Scalar total = b_.load(total_, row);
    const Symbol d = c_.open(kDepth, Kind::Vector);
    const Scalar value = b_.load(acc_, SymExpr(row) * kDepth + d);
    b_.store(out_, (head_ * queries_ + first_row_ + row) * kDepth + d,
             b_.apply(ScalarOp::Div, {value, total}));
    b_.end_for();
    b_.end_for();
  }

  Case c_{"online_attention", {2, 7, 37}};
  NestBuilder& b_ = c_.b;
  SymExpr heads_ = SymExpr::size(0);
  SymExpr queries_ = SymExpr::size(1);
  SymExpr keys_ = SymExpr::size(2);
  SymExpr head_, first_row_, rows_, first_key_, columns_;
  NestBufferId q_ = 0, k_ = 0, v_ = 0, out_ = 0, scores_ = 0, acc_ = 0, largest_ = 0, total_ = 0;
};

/// Index arithmetic with every kind of node, on negative numbers too.
CorpusCase indices() {
  Case c("indices", {50, 4});
  const SymExpr count = SymExpr::size(0);
  const SymExpr s = SymExpr::size(1);
  const NestBufferId y = c.global(DType::I64, count * 6, 17);
  const Symbol i = c.parallel(count);
  const SymExpr shifted = SymExpr(i) - 25;
  const SymExpr values[] = {floordiv(shifted, s),
                            mod(shifted, s),
                            min(shifted, mod(i, s)) * 3 - floordiv(i, 7) * s,
                            max(-shifted, s) + floordiv(floordiv(i, 3), s + 1),
                            shifted * shifted * s - 1000000007 * SymExpr(i),
                            floordiv(shifted, 3) * mod(shifted * 5, 7) - mod(i, 6)};
  for (int k = 0; k < 6; ++k) c.b.store(y, SymExpr(i) * 6 + k, c.b.from_index(values[k]));
  return c.finish();
}

/// A local buffer beyond the static shared memory, and uniform work around it.
CorpusCase big_local() {
  Case c("big_local", {2});
  constexpr std::int64_t kLength = 15000;
  const NestBufferId y = c.global(DType::F32, SymExpr::size(0), 18);
  const NestBufferId big = c.b.add_local(DType::F32, kLength, kLength);
  const Symbol row = c.parallel(SymExpr::size(0));
  const Symbol i = c.open(kLength, Kind::Vector);
  c.b.store(big, kLength - 1 - SymExpr(i),
            c.b.convert(c.b.from_index(SymExpr(i) + row), DType::F32));
  c.b.end_for();
  const Symbol j = c.open(kLength, Kind::Vector);
  const Scalar value = c.b.load(big, j);
  const Symbol unrolled = c.open(3, Kind::Unroll);
  const Scalar scaled =
      c.b.apply(ScalarOp::Mul, {value, c.b.convert(c.b.from_index(unrolled), DType::F32)});
  const Scalar inner = c.b.reduce(ReduceOp::Sum, DType::F32, std::span(&scaled, 1))[0];
  c.b.end_for();
  const Scalar total = c.b.reduce(ReduceOp::Max, DType::F32, std::span(&inner, 1))[0];
  c.b.end_for();
  c.b.store(y, row, total);
  return c.finish();
}

/// Loops of no iterations keep identities and initial values.
CorpusCase empty_loops() {
  Case c("empty_loops", {3, 0});
  const NestBufferId y = c.global(DType::F32, SymExpr::size(0), 19);
  const NestBufferId z = c.global(DType::F32, SymExpr::size(0), 20);
  const Symbol row = c.parallel(SymExpr::size(0));
  const Scalar seven = c.b.constant(DType::F32, 7);
  c.open(SymExpr::size(1), Kind::Vector);
  const Scalar one = c.b.constant(DType::F32, 1);
  const Scalar sum = c.b.reduce(ReduceOp::Sum, DType::F32, std::span(&one, 1))[0];
  c.b.end_for();
  c.open(SymExpr::size(1), Kind::Serial);
  const Scalar current = c.b.carry(seven);
  const Scalar result = c.b.set_next(current, c.b.apply(ScalarOp::Neg, {current}));
  c.b.end_for();
  c.b.store(y, row, sum);
  c.b.store(z, row, result);
  return c.finish();
}

}  // namespace

std::vector<CorpusCase> loop_corpus() {
  std::vector<CorpusCase> cases;
  for (const DType dtype : kArithmeticDTypes) {
    for (const Kind kind : {Kind::Vector, Kind::Serial}) {
      cases.push_back(reductions(dtype, kind, false, 300));
      if (is_floating(dtype)) cases.push_back(reductions(dtype, kind, true, 45));
    }
    const bool truth = dtype == DType::Bool;
    for (const ReduceOp op :
         truth ? std::vector{ReduceOp::And, ReduceOp::Or}
               : std::vector{ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min})
      cases.push_back(scatter(dtype, op));
  }
  cases.push_back(scan());
  cases.push_back(gather(true));
  cases.push_back(gather(false));
  cases.push_back(softmax(256));
  cases.push_back(softmax(0));
  cases.push_back(rotations());
  cases.push_back(contraction(DType::F32, DType::F32));
  cases.push_back(contraction(DType::F16, DType::F32));
  cases.push_back(contraction(DType::BF16, DType::F32));
  cases.push_back(contraction(DType::F64, DType::F64));
  cases.push_back(contraction(DType::I8, DType::I32));
  cases.push_back(contraction(DType::U8, DType::I64));
  cases.push_back(OnlineAttention().build());
  cases.push_back(indices());
  cases.push_back(big_local());
  cases.push_back(empty_loops());
  return cases;
}

}  // namespace heddle::tests
