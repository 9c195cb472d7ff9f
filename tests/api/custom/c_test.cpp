// Custom ops registered through the C entry point.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "heddle/custom_op_c.h"
#include "heddle/heddle.h"

namespace hd = heddle;

namespace {

/// Result: the rows of the argument, each `times` times.
const char* repeat_shape(heddle_shape_call* call, void*) {
  if (heddle_shape_rank(call, 0) != 2) return "x must have rank 2";
  const heddle_size times = heddle_shape_number(call, heddle_shape_int(call, "times"));
  const heddle_size sizes[] = {heddle_size_mul(call, heddle_shape_size(call, 0, 0), times),
                               heddle_shape_size(call, 0, 1)};
  heddle_shape_result(call, heddle_shape_dtype(call, 0), 2, sizes);
  return nullptr;
}

const char* repeat_cpu(const heddle_kernel_call* call, void* user) {
  ++*static_cast<int*>(user);
  const heddle_kernel_tensor& x = call->tensors[0];
  const heddle_kernel_tensor& y = call->results[0];
  const std::int64_t times = heddle_attribute_int(call->attributes, "times");
  if (times > 100) return "too often";
  const auto* from = static_cast<const float*>(x.data);
  auto* to = static_cast<float*>(y.data);
  for (std::int64_t r = 0; r < y.sizes[0]; ++r)
    for (std::int64_t c = 0; c < y.sizes[1]; ++c)
      to[r * y.sizes[1] + c] = from[r / times * x.strides[0] + c * x.strides[1]];
  return nullptr;
}

int kernel_calls = 0;

heddle_custom_op repeat_op(const char* schema) {
  heddle_custom_op op{};
  op.schema = schema;
  op.shape = repeat_shape;
  op.cpu = repeat_cpu;
  op.user = &kernel_calls;
  op.pure = 1;
  op.capturable = 1;
  return op;
}

hd::Tensor call_repeat(const hd::Tensor& x, int times) {
  static const bool registered = [] {
    const heddle_custom_op op = repeat_op("tc::repeat(Tensor x, int times) -> Tensor");
    EXPECT_EQ(heddle_register_op(&op), HEDDLE_OK) << heddle_last_error();
    return true;
  }();
  EXPECT_TRUE(registered);
  return hd::call("tc::repeat", {x, times})[0];
}

}  // namespace

TEST(CustomOpC, RegisteredAndCalled) {
  hd::Engine engine([](const hd::Tensor& x) { return call_repeat(x, 2) * 10.0f; });
  const int before = kernel_calls;
  const hd::Tensor y = engine.run({hd::Tensor::of<float>({1, 2, 3, 4}, {2, 2})})[0];
  EXPECT_THAT(y.sizes(), testing::ElementsAre(4, 2));
  EXPECT_THAT(y.to_doubles(), testing::ElementsAre(10, 20, 10, 20, 30, 40, 30, 40));
  EXPECT_EQ(kernel_calls, before + 1);
}

TEST(CustomOpC, ErrorsOfFunctionsNameTheOp) {
  hd::Engine flat([](const hd::Tensor& x) { return call_repeat(x, 2); });
  try {
    flat.run({hd::Tensor::of<float>({1, 2}, {2})});
    FAIL();
  } catch (const hd::ShapeError& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("tc::repeat: shape function"));
    EXPECT_THAT(error.what(), testing::HasSubstr("x must have rank 2"));
  }
  hd::Engine often([](const hd::Tensor& x) { return call_repeat(x, 101); });
  try {
    often.run({hd::Tensor::of<float>({1, 2}, {1, 2})});
    FAIL();
  } catch (const hd::CustomOpError& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("tc::repeat: the kernel failed at %"));
    EXPECT_THAT(error.what(), testing::EndsWith("too often"));
  }
}

/// The elements above 0 of a vector, behind their number.
const char* above_shape(heddle_shape_call* call, void*) {
  const heddle_size count = heddle_shape_unbacked(call);
  const heddle_size one = heddle_shape_number(call, 1);
  const heddle_size sizes[] = {heddle_size_add(call, count, one)};
  heddle_shape_result(call, heddle_shape_dtype(call, 0), 1, sizes);
  return nullptr;
}

const char* above_sizes(const heddle_kernel_call* call, heddle_told_sizes* told, void*) {
  const heddle_kernel_tensor& x = call->tensors[0];
  if (x.sizes[0] == 0) return "nothing to look at";
  std::int64_t count = 1;
  for (std::int64_t k = 0; k < x.sizes[0]; ++k)
    count += static_cast<const float*>(x.data)[k] > 0 ? 1 : 0;
  heddle_tell_sizes(told, 1, &count);
  return nullptr;
}

const char* above_cpu(const heddle_kernel_call* call, void*) {
  const heddle_kernel_tensor& x = call->tensors[0];
  auto* to = static_cast<float*>(call->results[0].data);
  *to++ = static_cast<float>(call->results[0].sizes[0] - 1);
  for (std::int64_t k = 0; k < x.sizes[0]; ++k)
    if (static_cast<const float*>(x.data)[k] > 0) *to++ = static_cast<const float*>(x.data)[k];
  return nullptr;
}

TEST(CustomOpC, SizesThatDependOnElements) {
  heddle_custom_op op = repeat_op("tc::above(Tensor x) -> Tensor");
  op.shape = above_shape;
  op.sizes = above_sizes;
  op.cpu = above_cpu;
  ASSERT_EQ(heddle_register_op(&op), HEDDLE_OK) << heddle_last_error();
  hd::Engine engine([](const hd::Tensor& x) { return hd::call("tc::above", {x})[0] * 2.0f; });
  const auto y = engine.run({hd::Tensor::of<float>({1, -1, 3}, {3})})[0];
  EXPECT_THAT(y.to_doubles(), testing::ElementsAre(4, 2, 6));
  try {
    engine.run({hd::Tensor::zeros(hd::f32, {0})});
    FAIL();
  } catch (const hd::CustomOpError& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("tc::above: the function `sizes` failed at %"));
    EXPECT_THAT(error.what(), testing::EndsWith("nothing to look at"));
  }
}

TEST(CustomOpC, StatusCodes) {
  EXPECT_EQ(heddle_register_op(nullptr), HEDDLE_ERROR_ARGUMENT);
  const heddle_custom_op bad = repeat_op("tc::broken(Tensor x -> Tensor");
  EXPECT_EQ(heddle_register_op(&bad), HEDDLE_ERROR_PARSE);
  EXPECT_STREQ(heddle_last_error(), "op schema at column 21: expected ')', got '-'");
  heddle_custom_op empty = repeat_op("tc::empty(Tensor x, int times) -> Tensor");
  empty.cpu = nullptr;
  EXPECT_EQ(heddle_register_op(&empty), HEDDLE_ERROR_ARGUMENT);
  EXPECT_STREQ(heddle_last_error(), "tc::empty: registration: expected a CPU kernel");
}
