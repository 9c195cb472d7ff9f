// Products of bytes that are other ones in each run, as those of attention.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/jit/nests_support.h"
#include "tests/jit/quantised_values.h"

namespace heddle::test {
namespace {

using ir::GraphBuilder;
using ir::Value;
using testing::any_bytes;
using ::testing::HasSubstr;
using ::testing::Not;

struct Given {
  Ints left{2, 3, 21, 32}, right{2, 3, 32, 70};
  DType left_dtype = u8, right_dtype = u8;
  std::int64_t left_zero = 119, right_zero = 112;
  bool is_turned = false;  ///< the right operand, whose depth lies side by side
};

ir::Dims dims_of(const Ints& sizes) { return {sizes.begin(), sizes.end()}; }

ir::Graph graph_of(const Given& given) {
  GraphBuilder b("main");
  const Value x = b.input(ir::TensorMeta::of(given.left_dtype, dims_of(given.left)), "x");
  Ints sizes = given.right;
  if (given.is_turned) std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
  Value w = b.input(ir::TensorMeta::of(given.right_dtype, dims_of(sizes)), "w");
  if (given.is_turned) {
    Ints perm;
    for (std::int64_t d = 0; d < std::ssize(sizes); ++d) perm.push_back(d);
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    w = b.emit("permute", {w}, {{"perm", perm}});
  }
  b.output(b.emit("matmul", {dequantised(b, x, given.left_zero, 0.25),
                             dequantised(b, w, given.right_zero, 0.5)}));
  return b.finish();
}

/// Scales are powers of two: products and sums of few are exact.
void expect_exact(const Given& given) {
  const ir::Graph graph = graph_of(given);
  Ints sizes = given.right;
  if (given.is_turned) std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
  const std::vector<ir::Literal> arguments{any_bytes(given.left_dtype, given.left, 3),
                                           any_bytes(given.right_dtype, sizes, 5)};
  EXPECT_THAT(nests_of(lowered(graph)), HasSubstr("group 4"));
  expect_program_right(graph, lowered(graph), arguments, {}, 0);
  expect_program_right(graph, lowered(graph), arguments, as_code(), 0);
}

TEST(GivenByteProducts, OfEveryOrder) {
  for (const bool is_turned : {false, true}) {
    expect_exact({.is_turned = is_turned});
    expect_exact({.left = {1, 40, 37}, .right = {1, 37, 64}, .is_turned = is_turned});
    expect_exact({.left = {3, 33, 18}, .right = {3, 18, 130}, .is_turned = is_turned});
    expect_exact({.left = {16, 16}, .right = {16, 16}, .is_turned = is_turned});
    expect_exact({.left = {70, 401}, .right = {401, 65}, .is_turned = is_turned});
  }
}

TEST(GivenByteProducts, OfEveryKindOfBytes) {
  for (const DType left : {u8, i8})
    for (const DType right : {u8, i8})
      for (const std::int64_t zero : {0, -7}) {
        const std::int64_t of_left = left == u8 ? zero + 128 : zero;
        const std::int64_t of_right = right == u8 ? zero + 128 : zero;
        expect_exact({.left_dtype = left,
                      .right_dtype = right,
                      .left_zero = of_left,
                      .right_zero = of_right});
        expect_exact({.left_dtype = left,
                      .right_dtype = right,
                      .left_zero = 0,
                      .right_zero = of_right,
                      .is_turned = true});
      }
}

/// Few rows or columns, and sizes that are not known, are left to f32.
TEST(GivenByteProducts, LeaveOthers) {
  for (const Given& given : {Given{.left = {2, 8, 32}, .right = {2, 32, 70}},
                             Given{.left = {2, 21, 32}, .right = {2, 32, 8}},
                             Given{.left = {2, 21, 8}, .right = {2, 8, 70}}})
    EXPECT_THAT(nests_of(lowered(graph_of(given))), Not(HasSubstr("group 4")));
}

}  // namespace
}  // namespace heddle::test
