// Integers known while tracing give what tensors of their dtype give.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "engine/onnx/onnx.pb.h"
#include "tests/onnx/model_builder.h"

namespace heddle::onnx_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kHighest = std::numeric_limits<std::int64_t>::max();
constexpr std::int32_t kHighest32 = std::numeric_limits<std::int32_t>::max();

template <typename T>
std::vector<T> values_of(const Tensor& tensor) {
  return {tensor.data_as<T>(), tensor.data_as<T>() + tensor.count()};
}

std::vector<std::int64_t> run_i64(const ModelBuilder& model, std::vector<Tensor> inputs = {}) {
  const Tensor result = model.load().run(inputs)[0];
  EXPECT_EQ(result.dtype(), i64);
  return result.dtype() == i64 ? values_of<std::int64_t>(result) : std::vector<std::int64_t>{};
}

/// y = op(a, b) of constants; of a alone where b is empty.
ModelBuilder constants(const std::string& op, const std::vector<std::int64_t>& a,
                       const std::vector<std::int64_t>& b) {
  ModelBuilder model;
  model.output("y", TensorProto::INT64).ints("a", a);
  if (!b.empty()) model.ints("b", b);
  model.node(op, b.empty() ? std::vector<std::string>{"a"} : std::vector<std::string>{"a", "b"},
             {"y"});
  return model;
}

void add_i32(ModelBuilder& model, const std::string& name,
             const std::vector<std::int32_t>& values) {
  auto& tensor =
      model.initializer(name, {static_cast<std::int64_t>(values.size())}, TensorProto::INT32);
  for (const std::int32_t value : values) tensor.add_int32_data(value);
}

void add_cast(ModelBuilder& model, const std::string& from, const std::string& to, int dtype) {
  ModelBuilder::set_int(model.node("Cast", {from}, {to}), "to", dtype);
}

TEST(KnownIntegers, SixtyFourBitsWrap) {
  EXPECT_THAT(run_i64(constants("Add", {kHighest, 1}, {1, 2})), ElementsAre(kLowest, 3));
  EXPECT_THAT(run_i64(constants("Sub", {kLowest}, {1})), ElementsAre(kHighest));
  EXPECT_THAT(run_i64(constants("Mul", {std::int64_t{1} << 62, 3}, {4, 5})), ElementsAre(0, 15));
  EXPECT_THAT(run_i64(constants("Neg", {kLowest, 7}, {})), ElementsAre(kLowest, -7));
  EXPECT_THAT(run_i64(constants("Sum", {kHighest}, {kHighest})), ElementsAre(-2));
  EXPECT_THAT(run_i64(constants("ReduceProd", {kHighest, kHighest, 5}, {})), ElementsAre(5));
  ModelBuilder sum;
  sum.output("y", TensorProto::INT64).ints("a", {kHighest, kHighest, 5});
  sum.node("ReduceSum", {"a"}, {"y"});
  EXPECT_THAT(run_i64(sum), ElementsAre(3));
}

// The one quotient that 64 bits do not hold stops a process where the machine divides.
TEST(KnownIntegers, TheLowestNumberByMinusOneIsItself) {
  EXPECT_THAT(run_i64(constants("Div", {kLowest, 7}, {-1, -1})), ElementsAre(kLowest, -7));
}

TEST(KnownIntegers, ThirtyTwoBitsWrapBeforeTheyAreWidened) {
  const auto widened = [](const std::string& op, const std::vector<std::int32_t>& a,
                          const std::vector<std::int32_t>& b) {
    ModelBuilder model;
    model.output("y", TensorProto::INT64);
    add_i32(model, "a", a);
    if (!b.empty()) add_i32(model, "b", b);
    model.node(op, b.empty() ? std::vector<std::string>{"a"} : std::vector<std::string>{"a", "b"},
               {"narrow"});
    add_cast(model, "narrow", "y", TensorProto::INT64);
    return run_i64(model);
  };
  EXPECT_THAT(widened("Add", {kHighest32}, {1}), ElementsAre(std::int64_t{kHighest32} * -1 - 1));
  EXPECT_THAT(widened("Mul", {1 << 30, 3}, {8, 5}), ElementsAre(0, 15));
  EXPECT_THAT(widened("ReduceSum", {kHighest32, kHighest32}, {}), ElementsAre(-2));
}

TEST(KnownIntegers, ACastKeepsTheLowBits) {
  ModelBuilder model;
  model.output("y", TensorProto::INT64).ints("a", {(std::int64_t{1} << 32) + 5, -1});
  add_cast(model, "a", "narrow", TensorProto::INT32);
  add_cast(model, "narrow", "y", TensorProto::INT64);
  EXPECT_THAT(run_i64(model), ElementsAre(5, -1));
}

TEST(KnownIntegers, BitwiseOpsWorkOnBits) {
  EXPECT_THAT(run_i64(constants("BitwiseAnd", {6, 5}, {3})), ElementsAre(2, 1));
  EXPECT_THAT(run_i64(constants("BitwiseOr", {6, 0}, {1, 0})), ElementsAre(7, 0));
  EXPECT_THAT(run_i64(constants("BitwiseXor", {6, 5}, {3, 5})), ElementsAre(5, 0));
  for (const bool fixed : {true, false}) {
    ModelBuilder model;
    model.input("x",
                fixed ? std::vector<std::string>{"6", "5"} : std::vector<std::string>{"n", "m"});
    model.output("y", TensorProto::INT64).ints("b", {3});
    model.node("Shape", {"x"}, {"shape"});
    model.node("BitwiseAnd", {"shape", "b"}, {"y"});
    EXPECT_THAT(run_i64(model, {ones({6, 5})}), ElementsAre(2, 1));
  }
}

/// A size rounded down to a multiple of four is a size still.
TEST(KnownIntegers, BitsOfAKnownSizeAreKnown) {
  ModelBuilder model;
  model.input("x", {"6"}).output("y").ints("mask", {~std::int64_t{3}}).ints("zero", {0});
  model.node("Shape", {"x"}, {"shape"});
  model.node("BitwiseAnd", {"shape", "mask"}, {"end"});
  model.node("Slice", {"x", "zero", "end"}, {"y"});
  EXPECT_THAT(model.load().run({ones({6})})[0].sizes(), ElementsAre(4));
}

/// A file may say true with any byte.
TEST(KnownIntegers, TruthIsNotItsBits) {
  ModelBuilder model;
  model.output("y", TensorProto::BOOL);
  model.initializer("a", {3}, TensorProto::BOOL).set_raw_data(std::string("\2\1\0", 3));
  model.initializer("b", {3}, TensorProto::BOOL).set_raw_data(std::string("\1\4\1", 3));
  model.node("And", {"a", "b"}, {"y"});
  const Tensor result = model.load().run(std::vector<Tensor>{})[0];
  EXPECT_EQ(result.dtype(), boolean);
  EXPECT_THAT(result.to_doubles(), ElementsAre(1, 1, 0));
}

TEST(KnownIntegers, SizesAreDividedTowardsZero) {
  const auto quotient = [](std::int64_t less, std::int64_t divisor) {
    ModelBuilder model;
    model.input("x", {"n"})
        .output("y", TensorProto::INT64)
        .ints("less", {less})
        .ints("divisor", {divisor});
    model.node("Shape", {"x"}, {"shape"});
    model.node("Sub", {"shape", "less"}, {"difference"});
    model.node("Div", {"difference", "divisor"}, {"y"});
    return run_i64(model, {ones({5})});
  };
  EXPECT_THAT(quotient(0, 2), ElementsAre(2));
  EXPECT_THAT(quotient(0, -2), ElementsAre(-2));
  EXPECT_THAT(quotient(8, 2), ElementsAre(-1));
  EXPECT_THAT(quotient(8, -2), ElementsAre(1));
  EXPECT_THAT(quotient(0, -1), ElementsAre(-5));
  EXPECT_THAT(quotient(0, 0), ElementsAre(0)) << "as tensors divide";
}

/// An empty vector with one element gives an empty one.
TEST(KnownIntegers, SelectionFromNothingIsNothing) {
  ModelBuilder model;
  model.output("y", TensorProto::INT64).ints("none", {}).ints("one", {4});
  model.initializer("condition", {1}, TensorProto::BOOL).add_int32_data(1);
  model.node("Where", {"condition", "none", "one"}, {"y"});
  EXPECT_THAT(run_i64(model), IsEmpty());
}

TEST(KnownIntegers, ASliceMayStepFurtherThanItsEnd) {
  const auto sliced = [](std::int64_t start, std::int64_t end, std::int64_t step) {
    ModelBuilder model;
    model.output("y", TensorProto::INT64)
        .ints("a", {1, 2, 3, 4})
        .ints("start", {start})
        .ints("end", {end});
    model.ints("axis", {0}).ints("step", {step});
    model.node("Slice", {"a", "start", "end", "axis", "step"}, {"y"});
    return run_i64(model);
  };
  EXPECT_THAT(sliced(1, 9, kHighest), ElementsAre(2));
  EXPECT_THAT(sliced(3, -9, kLowest), ElementsAre(4));
  EXPECT_THAT(sliced(0, 9, 2), ElementsAre(1, 3));
  EXPECT_THAT(sliced(3, -9, -2), ElementsAre(4, 2));
  EXPECT_THAT(sliced(2, 1, 1), IsEmpty());
}

/// Rows without elements are counted, not walked: 2^40 of them would take minutes.
TEST(KnownIntegers, SizesThatAreSplitAreSizes) {
  ModelBuilder model;
  model.input("x", {"n", "m"}).output("y");
  model.node("Shape", {"x"}, {"sizes"});
  model.node("Split", {"sizes"}, {"rows", "columns"});
  model.node("Concat", {"columns", "rows"}, {"turned"});
  ModelBuilder::set_int(*model.graph().mutable_node(2), "axis", 0);
  model.node("Reshape", {"x", "turned"}, {"y"});
  Engine engine = model.load();
  EXPECT_THAT(engine.run({ones({2, 3})})[0].sizes(), ElementsAre(3, 2));
  EXPECT_THAT(engine.run({ones({4, 5})})[0].sizes(), ElementsAre(5, 4));
  EXPECT_EQ(engine.stats().compiles, 1u);
}

TEST(KnownIntegers, EmptyRowsCostNothing) {
  ModelBuilder model;
  model.output("y", TensorProto::INT64).ints("none", {}).ints("shape", {0, std::int64_t{1} << 40});
  model.ints("start", {1}).ints("end", {kHighest});
  ModelBuilder::set_int(model.node("Reshape", {"none", "shape"}, {"wide"}), "allowzero", 1);
  model.node("Transpose", {"wide"}, {"tall"});
  model.node("Slice", {"tall", "start", "end"}, {"y"});
  const Tensor result = model.load().run(std::vector<Tensor>{})[0];
  EXPECT_THAT(result.sizes(), ElementsAre((std::int64_t{1} << 40) - 1, 0));
}

TEST(Integers, ShrinkKeepsTheirDtype) {
  ModelBuilder model;
  model.input("x", {"n"}, TensorProto::INT32).output("y", TensorProto::INT32);
  auto& node = model.node("Shrink", {"x"}, {"y"});
  for (const auto& [name, value] : {std::pair{"bias", 1.5f}, {"lambd", 1.0f}}) {
    auto& attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(AttributeProto::FLOAT);
    attribute.set_f(value);
  }
  const Tensor x = Tensor::of<std::int32_t>({-5, -1, 0, 1, 16777219}, {5});
  const Tensor result = model.load().run({x})[0];
  ASSERT_EQ(result.dtype(), i32);
  EXPECT_THAT(values_of<std::int32_t>(result), ElementsAre(-3, 0, 0, 0, 16777217));
}

}  // namespace
}  // namespace heddle::onnx_test
