// Every scalar instruction on every dtype, in vector and in serial loops, against its definition on the
// host.
#include <array>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <vector>

#include "base/half.h"
#include "ir/ops/host_scalar.h"
#include "jit/nest_builder.h"
#include "tests/jit/nest_runner.h"

namespace heddle::jit {
namespace {

using ir::ScalarOp;
using ir::ops::HostScalar;
using tests::CompiledNest;
using Bytes = std::vector<std::uint8_t>;

template <typename T>
void append(Bytes& bytes, T value) {
  const auto* p = reinterpret_cast<const std::uint8_t*>(&value);
  bytes.insert(bytes.end(), p, p + sizeof value);
}

void append(Bytes& bytes, const HostScalar& value) {
  ir::dispatch(value.dtype, [&]<typename T>() {
    if constexpr (std::is_class_v<T>)
      append(bytes, T(static_cast<float>(value.real)).bits);
    else if constexpr (std::is_floating_point_v<T>)
      append(bytes, static_cast<T>(value.real));
    else
      append(bytes, static_cast<T>(value.integer));
  });
}

template <typename T>
T read(const Bytes& bytes, std::size_t k) {
  T value;
  std::memcpy(&value, bytes.data() + k * sizeof(T), sizeof(T));
  return value;
}

HostScalar element(DType dtype, const Bytes& bytes, std::size_t k) {
  return ir::dispatch(dtype, [&]<typename T>() {
    if constexpr (std::is_class_v<T>)
      return HostScalar::of_real(dtype, static_cast<float>(read<T>(bytes, k)));
    else if constexpr (std::is_floating_point_v<T>)
      return HostScalar::of_real(dtype, read<T>(bytes, k));
    else
      return HostScalar::of_integer(dtype, static_cast<std::int64_t>(read<T>(bytes, k)));
  });
}

/// Bits of the significand, the leading one included.
int precision_of(DType dtype) {
  if (dtype == DType::F64) return 53;
  if (dtype == DType::F32) return 24;
  return dtype == DType::F16 ? 11 : 8;
}

int least_exponent(DType dtype) {
  if (dtype == DType::F64) return -1022;
  return dtype == DType::F16 ? -14 : -126;
}

bool close(const HostScalar& got, const HostScalar& want, double ulps) {
  if (!is_floating(want.dtype)) return got.integer == want.integer;
  if (std::isnan(want.real)) return std::isnan(got.real);
  if (got.real == want.real) return true;
  if (ulps == 0 || !std::isfinite(want.real)) return false;
  const int exponent = std::max(std::ilogb(want.real), least_exponent(want.dtype));
  const double unit = std::ldexp(1.0, exponent - precision_of(want.dtype) + 1);
  return std::abs(got.real - want.real) <= ulps * unit;
}

/// Units in the last place that a result may be off: none for what IEEE 754 defines exactly.
double tolerance(ScalarOp op) {
  if (op >= ScalarOp::Rsqrt && op <= ScalarOp::Sigmoid) return 4;
  // Mod's last addition is rounded twice by the definition.
  return op == ScalarOp::Pow || op == ScalarOp::Atan2 || op == ScalarOp::Mod ? 4 : 0;
}

std::vector<HostScalar> samples(DType dtype) {
  std::vector<HostScalar> values;
  std::mt19937_64 random(7);
  if (is_floating(dtype)) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    for (double v : {0.0,
                     0.5,
                     1.0,
                     1.5,
                     2.0,
                     2.5,
                     3.0,
                     7.25,
                     0.1,
                     30.5,
                     127.0,
                     1000.0,
                     60000.0,
                     1e-6,
                     1e-40,
                     3e9,
                     1e19,
                     3e38,
                     2147483647.5,
                     0x1p31,
                     4294967295.75,
                     0x1p32,
                     1234567890123.9,
                     0x1p51,
                     0x1p52 + 1,
                     9.2e18,
                     kInfinity})
      for (double sign : {1.0, -1.0}) values.push_back(HostScalar::of_real(dtype, sign * v));
    values.push_back(HostScalar::of_real(dtype, std::nan("")));
    std::normal_distribution<double> normal(0, 3);
    for (int k = 0; k < 60; ++k) values.push_back(HostScalar::of_real(dtype, normal(random)));
    return values;
  }
  if (dtype == DType::Bool) return {HostScalar::of_bool(false), HostScalar::of_bool(true)};
  const int bits = static_cast<int>(8 * size_of(dtype));
  for (std::int64_t v : {0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 63, 64, 100})
    for (std::int64_t sign : {1, -1}) values.push_back(HostScalar::of_integer(dtype, sign * v));
  const std::int64_t top = std::int64_t{1} << (bits - 2);
  for (std::int64_t v : {top, top - 1 + top, -top - top, -top - top + 1})
    values.push_back(HostScalar::of_integer(dtype, v));
  for (int k = 0; k < 20; ++k)
    values.push_back(HostScalar::of_integer(dtype, static_cast<std::int64_t>(random())));
  return values;
}

/// Operands for every combination of samples, as one array for each operand place.
struct Inputs {
  std::vector<std::vector<HostScalar>> values;
  std::vector<Bytes> bytes;
};

Inputs combinations(const std::vector<DType>& dtypes) {
  Inputs inputs;
  std::vector<std::vector<HostScalar>> choices;
  std::size_t count = 1;
  for (DType dtype : dtypes) {
    choices.push_back(samples(dtype));
    // Three operands: fewer of each, so that the product stays small.
    if (dtypes.size() == 3 && choices.back().size() > 24) choices.back().resize(24);
    count *= choices.back().size();
  }
  inputs.values.resize(dtypes.size());
  inputs.bytes.resize(dtypes.size());
  for (std::size_t k = 0; k < count; ++k) {
    std::size_t rest = k;
    for (std::size_t place = 0; place < dtypes.size(); ++place) {
      const HostScalar& value = choices[place][rest % choices[place].size()];
      rest /= choices[place].size();
      inputs.values[place].push_back(value);
      append(inputs.bytes[place], value);
    }
  }
  return inputs;
}

/// out[i] = op(in0[i], in1[i], …), or a conversion of in0 when there is no op.
CompiledNest compile_op(std::optional<ScalarOp> op, const std::vector<DType>& operands,
                        DType result, ForStmt::Kind kind, std::int64_t vector_bytes) {
  NestBuilder b("op");
  b.nest().size_count = 1;
  const SymExpr n = SymExpr::size(0);
  std::vector<NestBufferId> in;
  for (DType dtype : operands) in.push_back(b.add_global(dtype, n));
  const auto out = b.add_global(result, n);
  b.set_parallel(b.new_axis(1), 1);
  const Symbol i = b.new_axis(n);
  b.begin_for(i, n, kind);
  std::vector<Scalar> values;
  for (NestBufferId id : in) values.push_back(b.load(id, i));
  b.store(out, i, op ? b.apply(*op, values) : b.convert(values[0], result));
  b.end_for();
  return CompiledNest(b.finish(), vector_bytes);
}

std::string describe(const HostScalar& value) {
  return is_floating(value.dtype) ? std::to_string(value.real) : std::to_string(value.integer);
}

void expect_op(std::optional<ScalarOp> op, const std::vector<DType>& operands, DType result,
               double ulps) {
  Inputs inputs = combinations(operands);
  const std::size_t count = inputs.values[0].size();
  const std::pair<ForStmt::Kind, std::int64_t> ways[] = {
      {ForStmt::Kind::Vector, 64}, {ForStmt::Kind::Vector, 32}, {ForStmt::Kind::Serial, 64}};
  for (const auto& [kind, vector_bytes] : ways) {
    const CompiledNest code = compile_op(op, operands, result, kind, vector_bytes);
    Bytes out(count * size_of(result));
    std::vector<void*> buffers;
    for (Bytes& bytes : inputs.bytes) buffers.push_back(bytes.data());
    buffers.push_back(out.data());
    code.run(buffers, {static_cast<std::int64_t>(count)});
    for (std::size_t k = 0; k < count; ++k) {
      std::vector<HostScalar> arguments;
      std::string text;
      for (const auto& values : inputs.values) {
        arguments.push_back(values[k]);
        text += " " + describe(values[k]);
      }
      const HostScalar want =
          op ? ir::ops::apply(*op, arguments) : ir::ops::convert(arguments[0], result);
      const HostScalar got = element(result, out, k);
      ASSERT_TRUE(close(got, want, ulps))
          << (op ? ir::name_of(*op) : "convert") << " of " << name_of(operands.back()) << text
          << (kind == ForStmt::Kind::Vector ? " (vector)" : " (serial)") << " of " << vector_bytes
          << " bytes gives " << describe(got) << ", not " << describe(want);
    }
  }
}

class LlvmScalar : public ::testing::TestWithParam<ScalarOp> {};

TEST_P(LlvmScalar, AgreesWithItsDefinitionOnEveryDtype) {
  const ScalarOp op = GetParam();
  for (DType dtype : kAllDTypes) {
    if (!ir::defined_on(op, dtype)) continue;
    std::vector<DType> operands(static_cast<std::size_t>(ir::arity_of(op)), dtype);
    if (op == ScalarOp::Select) operands[0] = DType::Bool;
    expect_op(op, operands, ir::result_of(op, dtype), tolerance(op));
  }
}

std::vector<ScalarOp> all_ops() {
  std::vector<ScalarOp> ops;
  for (int k = 0; k <= static_cast<int>(ScalarOp::Fma); ++k)
    ops.push_back(static_cast<ScalarOp>(k));
  return ops;
}

INSTANTIATE_TEST_SUITE_P(Ops, LlvmScalar, ::testing::ValuesIn(all_ops()),
                         [](const auto& info) { return std::string(ir::name_of(info.param)); });

class LlvmConvert : public ::testing::TestWithParam<DType> {};

TEST_P(LlvmConvert, AgreesWithItsDefinitionToEveryDtype) {
  for (DType to : kAllDTypes)
    if (to != GetParam()) expect_op(std::nullopt, {GetParam()}, to, 0);
}

INSTANTIATE_TEST_SUITE_P(DTypes, LlvmConvert, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace heddle::jit
