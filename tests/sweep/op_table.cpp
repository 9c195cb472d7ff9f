#include "tests/sweep/op_table.h"

#include <algorithm>

#include "ir/op.h"

namespace heddle::testing {

using ir::Dims;
using ir::Literal;
using Ints = std::vector<std::int64_t>;

std::vector<DType> all_dtypes() { return {std::begin(kAllDTypes), std::end(kAllDTypes)}; }
std::vector<DType> floats() { return {std::begin(kFloats), std::end(kFloats)}; }
std::vector<DType> integers() { return {i8, u8, i16, u16, i32, u32, i64, u64}; }
std::vector<DType> numbers() { return {std::begin(kNumbers), std::end(kNumbers)}; }
std::vector<DType> bools() { return {boolean}; }

/// Positions below are numbers of any dtype.
constexpr std::int64_t kLeastRange = 128;

Literal positions(DType dtype, std::int64_t count, std::int64_t limit) {
  Literal result(dtype, {limit == 0 ? 0 : count});
  for (std::int64_t k = 0; k < result.count(); ++k) {
    const std::int64_t at = (3 * k + 1) % limit % kLeastRange;
    const bool from_end = k % 2 == 1 && is_signed(dtype) && at - limit >= -kLeastRange;
    result.set_int(k, from_end ? at - limit : at);
  }
  return result;
}

namespace {

std::vector<DType> dtypes_of(const ir::OpDef& op) {
  std::vector<DType> result;
  for (const DType dtype : kAllDTypes) {
    if (ir::defined_on(*op.scalar, dtype)) result.push_back(dtype);
  }
  return result;
}

/// Shift counts stay below the width of every dtype.
Literal right_operand(const ir::OpDef& op, DType dtype, const ir::Sizes& sizes) {
  Literal result = noise(dtype, sizes, 2);
  const bool shifts = op.scalar == ir::ScalarOp::Shl || op.scalar == ir::ScalarOp::Shr;
  for (std::int64_t k = 0; shifts && k < result.count(); ++k)
    result.set_int(k, (result.at_int(k) + 4) % 8);
  return result;
}

void add_scalar_rows(std::vector<OpRow>& rows) {
  for (const ir::OpDef* op : ir::all_ops()) {
    if (!op->scalar) continue;
    const std::string_view name = op->name;
    if (ir::arity_of(*op->scalar) == 1)
      rows.push_back({name, "", dtypes_of(*op), [name](DType t, Extent e) {
                        return OneOp{name, {noise(t, {e.first(3), e.last(37)})}};
                      }});
    if (ir::arity_of(*op->scalar) == 2)
      rows.push_back({name, "", dtypes_of(*op), [op](DType t, Extent e) {
                        return OneOp{op->name,
                                     {noise(t, {e.first(3), e.last(37)}),
                                      right_operand(*op, t, {e.last(37)})}};
                      }});
  }
}

}  // namespace

void add_pointwise_rows(std::vector<OpRow>& rows) {
  add_scalar_rows(rows);
  rows.push_back({"where", "", all_dtypes(), [](DType t, Extent e) {
                    const ir::Sizes sizes{e.first(3), e.last(37)};
                    return OneOp{"where",
                                 {noise(boolean, sizes, 3), noise(t, sizes), noise(t, {1}, 2)}};
                  }});
  for (const DType to : kAllDTypes)
    rows.push_back({"convert", std::string(name_of(to)), all_dtypes(), [to](DType t, Extent e) {
                      return OneOp{
                          "convert", {noise(t, {e.first(3), e.last(37)})}, {{"dtype", to}}};
                    }});
  for (const std::int64_t bits : {2, 4})
    rows.push_back({"unpack_bits", std::to_string(bits), {u8}, [bits](DType t, Extent e) {
                      const std::int64_t bytes = e.last(37);
                      return OneOp{
                          "unpack_bits",
                          {any_bytes(t, {e.first(3), bytes})},
                          {{"bits", bits}, {"count", bytes * (8 / bits)}, {"signed", bits == 2}}};
                    }});
  for (const std::int64_t bits : {2, 4, 8})
    rows.push_back({"bit_panels", std::to_string(bits), {u8, i8}, [bits](DType t, Extent e) {
                      return OneOp{"bit_panels",
                                   {any_bytes(t, {e.first(37), e.last(70)})},
                                   {{"bits", bits}, {"width", std::int64_t{64}}}};
                    }});
  rows.push_back(
      {"byte_digits", "", {i32}, [](DType t, Extent e) {
         return OneOp{
             "byte_digits",
             {value_of(
                 {"mul", {noise(t, {e.first(3), e.last(37)}), Literal::scalar_int(t, 2785237)}})},
             {{"count", std::int64_t{3}}}};
       }});
  for (const std::string_view op : {"gelu", "silu", "softplus"})
    rows.push_back({op, "", floats(), [op](DType t, Extent e) {
                      return OneOp{op, {noise(t, {e.first(3), e.last(37)})}};
                    }});
  rows.push_back({"gelu", "tanh", floats(), [](DType t, Extent e) {
                    return OneOp{"gelu",
                                 {noise(t, {e.first(3), e.last(37)})},
                                 {{"approximate", std::string("tanh")}}};
                  }});
  rows.push_back({"relu", "", numbers(), [](DType t, Extent e) {
                    return OneOp{"relu", {noise(t, {e.first(3), e.last(37)})}};
                  }});
  rows.push_back({"clamp", "", numbers(), [](DType t, Extent e) {
                    return OneOp{
                        "clamp",
                        {noise(t, {e.first(3), e.last(37)}), ints(t, {}, {0}), ints(t, {1}, {2})}};
                  }});
}

const std::vector<OpRow>& op_table() {
  static const std::vector<OpRow> table = [] {
    std::vector<OpRow> rows;
    add_pointwise_rows(rows);
    add_shape_rows(rows);
    add_reduction_rows(rows);
    add_window_rows(rows);
    add_dense_rows(rows);
    add_index_rows(rows);
    return rows;
  }();
  return table;
}

}  // namespace heddle::testing
