#include "tests/jit/cuda_corpus.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "jit/nest_builder.h"
#include "tests/support/float8_values.h"

namespace heddle::tests {
namespace {

using base::SymExpr;
using ir::ReduceOp;
using ir::ScalarOp;
using jit::ForStmt;
using jit::NestBufferId;
using jit::NestBuilder;
using jit::Scalar;

template <typename T>
T get(const unsigned char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <typename T>
void put(unsigned char* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

/// A nest over [rows, columns] = [s0, s1]: the parallel axis takes rows, a vector loop columns.
class GridCase {
 public:
  GridCase(const std::string& name, std::int64_t rows, std::int64_t columns)
      : builder_(name), rows_(rows), columns_(columns) {
    builder_.nest().size_count = 2;
  }

  NestBufferId input(DType dtype, bool special, std::uint64_t seed) {
    result_.buffers.push_back(make_buffer(dtype, rows_ * columns_, seed, special));
    return builder_.add_global(dtype, kCount);
  }
  NestBufferId output(DType dtype) {
    result_.buffers.push_back(make_buffer(dtype, rows_ * columns_, 99, false));
    return builder_.add_global(dtype, kCount);
  }
  void open() {
    const auto row = builder_.new_axis(kRows);
    builder_.set_parallel(row, kRows);
    const auto column = builder_.new_axis(kColumns);
    builder_.begin_for(column, kColumns, ForStmt::Kind::Vector);
    at_ = SymExpr(row) * kColumns + column;
  }
  NestBuilder& builder() { return builder_; }
  const SymExpr& at() const { return at_; }
  CorpusCase finish(double tolerance) {
    builder_.end_for();
    result_.nest = builder_.finish();
    result_.sizes = {rows_, columns_};
    result_.tolerance = tolerance;
    return std::move(result_);
  }

 private:
  const SymExpr kRows = SymExpr::size(0);
  const SymExpr kColumns = SymExpr::size(1);
  const SymExpr kCount = kRows * kColumns;
  NestBuilder builder_;
  std::int64_t rows_;
  std::int64_t columns_;
  SymExpr at_;
  CorpusCase result_;
};

double corpus_tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::F16:
      return 2e-3;
    case DType::BF16:
      return 1.6e-2;
    case DType::F64:
      return 1e-13;
    default:
      return 4e-6;
  }
}

/// Every operation of `arity` defined on `dtype`, each with an output of its own.
CorpusCase operations(DType dtype, int arity) {
  GridCase grid("ops" + std::to_string(arity) + "_" + dtype_name(dtype), 3, 41);
  NestBuilder& b = grid.builder();
  std::vector<ScalarOp> ops;
  for (int k = 0; k <= static_cast<int>(ScalarOp::Fma); ++k) {
    const auto op = static_cast<ScalarOp>(k);
    if (ir::arity_of(op) == arity && op != ScalarOp::Select && ir::defined_on(op, dtype))
      ops.push_back(op);
  }
  std::vector<NestBufferId> inputs;
  for (int k = 0; k < arity; ++k)
    inputs.push_back(grid.input(dtype, true, static_cast<std::uint64_t>(7 * k + 1)));
  std::vector<NestBufferId> outputs;
  for (const ScalarOp op : ops) outputs.push_back(grid.output(ir::result_of(op, dtype)));
  grid.open();
  std::vector<Scalar> operands;
  for (const NestBufferId input : inputs) operands.push_back(b.load(input, grid.at()));
  for (std::size_t k = 0; k < ops.size(); ++k)
    b.store(outputs[k], grid.at(), b.apply(ops[k], operands));
  return grid.finish(corpus_tolerance_of(dtype));
}

CorpusCase conversions(DType from) {
  GridCase grid("convert_" + dtype_name(from), 2, 50);
  NestBuilder& b = grid.builder();
  const NestBufferId input = grid.input(from, true, 5);
  std::vector<NestBufferId> outputs;
  for (const DType to : kAllDTypes) outputs.push_back(grid.output(to));
  grid.open();
  const Scalar value = b.load(input, grid.at());
  for (std::size_t k = 0; k < outputs.size(); ++k)
    b.store(outputs[k], grid.at(), b.convert(value, kAllDTypes[k]));
  return grid.finish(0);
}

/// From f32, at all numbers where the result changes; and from every code.
CorpusCase float8_conversions(DType dtype) {
  const std::vector<float> numbers = numbers_around(dtype);
  GridCase grid("round_" + dtype_name(dtype), 1, static_cast<std::int64_t>(numbers.size()));
  NestBuilder& b = grid.builder();
  const NestBufferId real = grid.input(f32, false, 3);
  const NestBufferId coded = grid.input(dtype, false, 3);
  const NestBufferId rounded = grid.output(dtype);
  const NestBufferId narrow = grid.output(dtype);
  const NestBufferId wide = grid.output(f32);
  grid.open();
  const Scalar code = b.convert(b.load(real, grid.at()), dtype);
  b.store(rounded, grid.at(), code);
  b.store(narrow, grid.at(), b.load(coded, grid.at()));
  b.store(wide, grid.at(), b.convert(b.load(coded, grid.at()), f32));
  CorpusCase result = grid.finish(0);
  for (std::size_t k = 0; k < numbers.size(); ++k) {
    result.buffers[0].set(static_cast<std::int64_t>(k), numbers[k]);
    result.buffers[1].bytes[k] = static_cast<unsigned char>(k);
  }
  return result;
}

/// select(a < c, a, c) with a constant of the dtype, and a masked load and store.
CorpusCase selections(DType dtype) {
  GridCase grid("select_" + dtype_name(dtype), 2, 33);
  NestBuilder& b = grid.builder();
  const NestBufferId input = grid.input(dtype, true, 11);
  const NestBufferId selected = grid.output(dtype);
  const NestBufferId masked = grid.output(dtype);
  grid.open();
  const Scalar c = b.constant(dtype, 1);
  const Scalar a = b.load(input, grid.at());
  const Scalar less = b.apply(ScalarOp::Lt, {a, c});
  b.store(selected, grid.at(), b.apply(ScalarOp::Select, {less, a, c}));
  const Scalar again = b.load(input, grid.at(), less.id);
  const Scalar equal = b.apply(ScalarOp::Eq, {again, a});
  b.store(masked, grid.at(), again, equal.id);
  return grid.finish(0);
}

}  // namespace

std::int64_t CorpusBuffer::count() const {
  return static_cast<std::int64_t>(bytes.size() / size_of(dtype));
}

double CorpusBuffer::number(std::int64_t k) const {
  const unsigned char* at = bytes.data() + static_cast<std::size_t>(k) * size_of(dtype);
  if (dtype == DType::Bool) return *at;
  return ir::dispatch(dtype, [&]<typename T>() {
    if constexpr (std::is_class_v<T>)
      return static_cast<double>(static_cast<float>(get<T>(at)));
    else
      return static_cast<double>(get<T>(at));
  });
}

void CorpusBuffer::set(std::int64_t k, double value) {
  unsigned char* at = bytes.data() + static_cast<std::size_t>(k) * size_of(dtype);
  ir::dispatch(dtype, [&]<typename T>() {
    if constexpr (std::is_class_v<T>)
      put(at, T(static_cast<float>(value)));
    else if constexpr (std::is_same_v<T, bool>)
      *at = value != 0;
    else
      put(at, static_cast<T>(value));
  });
}

CorpusBuffer make_buffer(DType dtype, std::int64_t count, std::uint64_t seed, bool special) {
  CorpusBuffer buffer{dtype,
                      std::vector<unsigned char>(static_cast<std::size_t>(count) * size_of(dtype))};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double floats[] = {0.0,        -0.0,         1.0,      -1.0, 0.5,  2.0,  kInfinity,
                           -kInfinity, std::nan(""), 1e-5,     3.5,  2.5,  -2.5, 200.0,
                           -129.0,     40000.0,      -40000.0, 3e9,  1e19, -1e19};
  const int bits = static_cast<int>(8 * size_of(dtype));
  const double top = std::ldexp(1.0, is_signed(dtype) ? bits - 1 : bits);
  // The largest i64 is no double.
  const double integers[] = {0,
                             1,
                             2,
                             3,
                             is_signed(dtype) ? -1.0 : 5.0,
                             is_signed(dtype) ? -top : 0,
                             bits == 64 ? 4611686018427387904.0 : top - 1,
                             8,
                             31,
                             7};
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (std::int64_t k = 0; k < count; ++k) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto draw = static_cast<double>(state >> 40) / static_cast<double>(1 << 24);
    const auto pick = static_cast<std::size_t>(state >> 33);
    double value = draw * 8 - 4;
    if (!is_floating(dtype)) value = std::floor(is_signed(dtype) ? draw * 200 - 100 : draw * 100);
    if (dtype == DType::Bool) value = draw < 0.5;
    if (special && dtype != DType::Bool && pick % 3 == 0)
      value = is_floating(dtype) ? floats[pick / 3 % std::size(floats)]
                                 : integers[pick / 3 % std::size(integers)];
    buffer.set(k, value);
  }
  return buffer;
}

std::vector<CorpusCase> scalar_corpus() {
  std::vector<CorpusCase> cases;
  for (const DType dtype : kAllDTypes) {
    cases.push_back(conversions(dtype));
    if (is_float8(dtype)) {
      cases.push_back(float8_conversions(dtype));
      continue;
    }
    for (const int arity : {1, 2}) cases.push_back(operations(dtype, arity));
    if (dtype != DType::Bool) cases.push_back(operations(dtype, 3));
    cases.push_back(selections(dtype));
  }
  return cases;
}

std::vector<CorpusCase> corpus() {
  std::vector<CorpusCase> cases = scalar_corpus();
  for (CorpusCase& one : loop_corpus()) cases.push_back(std::move(one));
  return cases;
}

}  // namespace heddle::tests
