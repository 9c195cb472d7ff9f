// Sequences of tensors, which are lists while tracing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/onnx/onnx.pb.h"
#include "heddle/error.h"
#include "tests/onnx/model_builder.h"

namespace heddle::onnx_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Sequence, IsSplitChangedAndJoined) {
  ModelBuilder model;
  model.input("x", {"7", "n"}).output("y").output("count", TensorProto::INT64);
  model.initializer("three", {}, TensorProto::INT64).add_int64_data(3);
  model.initializer("second", {}, TensorProto::INT64).add_int64_data(1);
  model.initializer("last", {}, TensorProto::INT64).add_int64_data(-1);
  model.node("SplitToSequence", {"x", "three"}, {"parts"});  // rows 0 to 2, 3 to 5, and 6
  model.node("SequenceAt", {"parts", "last"}, {"tail"});
  model.node("Identity", {"parts"}, {"same"});
  model.node("SequenceErase", {"same"}, {"two"});
  model.node("SequenceInsert", {"two", "tail", "second"}, {"turned"});
  model.node("SequenceInsert", {"turned", "tail"}, {"four"});
  model.node("SequenceLength", {"four"}, {"count"});
  ModelBuilder::set_int(model.node("ConcatFromSequence", {"four"}, {"y"}), "axis", 0);
  Engine engine = model.load();
  const auto got = engine.run({Tensor::of<float>({0, 1, 2, 3, 4, 5, 6}, {7, 1})});
  EXPECT_THAT(got[0].to_doubles(), ElementsAre(0, 1, 2, 6, 3, 4, 5, 6));
  EXPECT_THAT(got[1].to_doubles(), ElementsAre(4));
  EXPECT_THAT(engine.run({ones({7, 2})})[0].sizes(), ElementsAre(8, 2));
}

TEST(Sequence, SlicesOfOneAreStackedAgain) {
  ModelBuilder model;
  model.input("x", {"2", "3"}).output("y");
  NodeProto& split = model.node("SplitToSequence", {"x"}, {"columns"});
  ModelBuilder::set_int(split, "axis", 1);
  ModelBuilder::set_int(split, "keepdims", 0);
  NodeProto& join = model.node("ConcatFromSequence", {"columns"}, {"y"});
  ModelBuilder::set_int(join, "axis", 0);
  ModelBuilder::set_int(join, "new_axis", 1);
  const auto got = model.load().run({Tensor::of<float>({1, 2, 3, 4, 5, 6}, {2, 3})});
  EXPECT_THAT(got[0].sizes(), ElementsAre(3, 2));
  EXPECT_THAT(got[0].to_doubles(), ElementsAre(1, 4, 2, 5, 3, 6));
}

TEST(Sequence, OfTensorsAndPartsOfGivenSizes) {
  ModelBuilder model;
  model.input("x", {"n"}).output("y").output("z").ints("sizes", {1, 3});
  model.initializer("first", {}, TensorProto::INT64).add_int64_data(0);
  model.node("SplitToSequence", {"x", "sizes"}, {"parts"});
  model.node("SequenceAt", {"parts", "first"}, {"y"});
  model.node("SequenceEmpty", {}, {"none"});
  model.node("SequenceInsert", {"none", "x"}, {"one"});
  model.node("SequenceConstruct", {"x", "y"}, {"two"});
  model.node("SequenceAt", {"two", "first"}, {"same"});
  ModelBuilder::set_int(model.node("ConcatFromSequence", {"one"}, {"joined"}), "axis", 0);
  model.node("Add", {"joined", "same"}, {"z"});
  const auto got = model.load().run({Tensor::of<float>({1, 2, 3, 4}, {4})});
  EXPECT_THAT(got[0].to_doubles(), ElementsAre(1));
  EXPECT_THAT(got[1].to_doubles(), ElementsAre(2, 4, 6, 8));
}

std::string refusal_of(const std::string& op, std::int64_t position) {
  ModelBuilder model;
  model.input("x", {"2"}).output("y");
  model.initializer("at", {}, TensorProto::INT64).add_int64_data(position);
  model.node("SequenceConstruct", {"x", "x"}, {"both"});
  if (op == "SequenceAt")
    model.node(op, {"both", "at"}, {"y"});
  else if (op == "SequenceLength")
    model.node(op, {"x"}, {"y"});
  else if (op == "SequenceInsert")
    model.node(op, {"both", "both"}, {"y"});
  else
    model.node(op, {"both"}, {"y"});
  try {
    model.load().run({ones({2})});
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(Sequence, WhereATensorIsWantedOrNoElementIsIsAnError) {
  EXPECT_THAT(refusal_of("SequenceAt", 2), HasSubstr("one of a sequence of 2, got 2"));
  EXPECT_THAT(refusal_of("SequenceAt", -3), HasSubstr("one of a sequence of 2, got -3"));
  EXPECT_THAT(refusal_of("SequenceInsert", 0), HasSubstr("expected a tensor, got a sequence"));
  EXPECT_THAT(refusal_of("Relu", 0), HasSubstr("model: value both"));
  EXPECT_THAT(refusal_of("Identity", 0), HasSubstr("model: value y"));
  EXPECT_THAT(refusal_of("SequenceLength", 0), HasSubstr("expected a sequence"));
}

}  // namespace
}  // namespace heddle::onnx_test
