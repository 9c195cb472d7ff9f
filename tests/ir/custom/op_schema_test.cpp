// Schema strings of custom ops: what is read, and the exact message where they do not parse.
#include "ir/op_schema.h"

#include <gtest/gtest.h>

#include "heddle/error.h"

namespace heddle::ir {
namespace {

std::string error_of(std::string_view text) {
  try {
    parse_op_schema(text);
  } catch (const ParseError& error) {
    return error.what();
  }
  return "no error";
}

TEST(OpSchema, ReadsEveryPart) {
  const OpSchema schema = parse_op_schema(
      "moe::route(Tensor x, Tensor(a!) counts, Tensor? bias, Tensor(b!)[] caches, int k, "
      "float[] w=[0.5, 1], SymInt n=3, bool on=true, str how='fast', dtype to=bf16, int[] axes=[]) "
      "-> (Tensor, Tensor)");
  EXPECT_EQ(schema.name, "moe::route");
  ASSERT_EQ(schema.arguments.size(), 11u);
  EXPECT_EQ(schema.tensor_arguments(), (std::vector<std::size_t>{0, 1, 2, 3}));
  EXPECT_TRUE(schema.arguments[1].type.written);
  EXPECT_EQ(schema.arguments[1].type.alias, "a");
  EXPECT_TRUE(schema.arguments[2].type.optional);
  EXPECT_TRUE(schema.arguments[3].type.list);
  EXPECT_FALSE(schema.arguments[4].default_value);
  EXPECT_EQ(std::get<std::vector<double>>(*schema.arguments[5].default_value),
            (std::vector<double>{0.5, 1}));
  EXPECT_EQ(std::get<SymExpr>(*schema.arguments[6].default_value), SymExpr(3));
  EXPECT_EQ(std::get<bool>(*schema.arguments[7].default_value), true);
  EXPECT_EQ(std::get<std::string>(*schema.arguments[8].default_value), "fast");
  EXPECT_EQ(std::get<DType>(*schema.arguments[9].default_value), bf16);
  EXPECT_EQ(schema.returns.size(), 2u);
  EXPECT_TRUE(schema.is_mutable());
}

TEST(OpSchema, ErrorsNameTheColumn) {
  EXPECT_EQ(error_of("route(Tensor x) -> Tensor"), "op schema at column 6: expected '::', got '('");
  EXPECT_EQ(
      error_of("a::b(Tenser x) -> Tensor"),
      "op schema at column 6: expected a type: Tensor, int, float, bool, str, dtype or SymInt, "
      "got 'Tenser'");
  EXPECT_EQ(error_of("a::b(Tensor x"), "op schema at column 14: expected ')', got the end");
  EXPECT_EQ(error_of("a::b(Tensor x) Tensor"),
            "op schema at column 16: expected '->', got 'Tensor'");
  EXPECT_EQ(error_of("a::b(Tensor x, int x) -> Tensor"),
            "op schema at column 20: expected a name that no other argument has, got 'x'");
  EXPECT_EQ(error_of("a::b(int? k) -> Tensor"),
            "op schema at column 9: expected no '?': only a single Tensor may be absent, got '?'");
  EXPECT_EQ(error_of("a::b(int k=two) -> Tensor"),
            "op schema at column 12: expected an integer, got 'two'");
  EXPECT_EQ(error_of("a::b(Tensor x) -> Tensor(a)"),
            "op schema at column 19: expected an argument in alias set 'a', got 'Tensor'");
  EXPECT_EQ(error_of("a::b(Tensor(a!) x) -> Tensor(a)"),
            "op schema at column 23: expected (a!) as in argument x, got 'Tensor'");
  EXPECT_EQ(error_of("a::b(Tensor x) -> int"),
            "op schema at column 19: expected Tensor: ops return nothing else, got 'int'");
  EXPECT_EQ(error_of("a::b() -> () x"),
            "op schema at column 14: expected the end of the schema, got 'x'");
  EXPECT_EQ(error_of("a::b(Tensor _x) -> Tensor"),
            "op schema at column 13: expected the argument's name, got '_x'");
}

// A2-21: which mutable ops can be put into value semantics.
TEST(OpSchema, Eligibility) {
  const auto why = [](std::string_view text) { return parse_op_schema(text).why_not_functional(); };
  EXPECT_EQ(why("a::b(Tensor(a!) x, Tensor(b!)? y) -> Tensor"), "");
  EXPECT_EQ(why("a::b(Tensor(a!)[] x) -> ()"), "");
  EXPECT_EQ(why("a::b(Tensor(a!) x) -> Tensor(a!)"), "");
  EXPECT_EQ(why("a::b(Tensor x) -> Tensor[]"), "");
  EXPECT_EQ(why("a::b(Tensor(a!) x) -> Tensor[]"), "result 0 is a list of tensors");
  EXPECT_EQ(why("a::b(int(a!) k) -> Tensor"), "argument k is written and is no tensor");
  EXPECT_EQ(why("a::b(Tensor y, Tensor(a!) x) -> Tensor(a!)"),
            "result 0 shares bytes with a written argument");
  EXPECT_EQ(why("a::b(Tensor(a!) x, Tensor(b) y) -> Tensor(b)"),
            "result 0 shares bytes with an argument");
}

}  // namespace
}  // namespace heddle::ir
