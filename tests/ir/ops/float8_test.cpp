// Ops with arithmetic take no 8-bit floats, and say what to do.

#include <gtest/gtest.h>

#include "ir/op.h"
#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

TEST(Float8Operands, AreRefusedWhereThereIsArithmetic) {
  const ir::TensorMeta x = meta(f8e5m2, {2, 2});
  const std::string rest =
      ": expected a dtype with arithmetic (8-bit floats are converted before), got f8e5m2";
  EXPECT_EQ(error_of("neg", {x}), "neg: x" + rest);
  EXPECT_EQ(error_of("add", {x, x}), "add: a" + rest);
  EXPECT_EQ(error_of("lt", {x, x}), "lt: a" + rest);
  EXPECT_EQ(error_of("matmul", {meta(f32, {2, 2}), x}), "matmul: b" + rest);
  EXPECT_EQ(error_of("softmax", {x}, {{"axis", std::int64_t{1}}}), "softmax: x" + rest);
  EXPECT_EQ(error_of("sort", {x}, {{"axis", std::int64_t{1}}}), "sort: x" + rest);
}

TEST(Float8Operands, AreMovedAndSelected) {
  for (const DType dtype : kFloat8DTypes) {
    for (const char* name : {"permute", "reshape", "where", "concat", "gather", "pad", "clone"})
      EXPECT_TRUE(ir::find_op(name)->takes_float8) << name;
    const ir::Literal x = ints(dtype, {2, 2}, {1, 2, 4, 8});
    expect_same(value_of({"where", {ints(boolean, {2}, {1, 0}), x, ints(dtype, {}, {1})}}),
                ints(dtype, {2, 2}, {1, 1, 4, 1}));
    EXPECT_EQ(error_of("where", {meta(boolean, {2}), meta(dtype, {2}), meta(f32, {2})}),
              "where: b: expected " + std::string(name_of(dtype)) +
                  " (8-bit floats are not converted by themselves), got f32");
  }
}

}  // namespace
}  // namespace heddle::testing
