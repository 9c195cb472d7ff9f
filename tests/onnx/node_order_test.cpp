// Nodes that come before what they read, and sizes that a model does not name.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/onnx/onnx.pb.h"
#include "heddle/error.h"
#include "tests/onnx/model_builder.h"

namespace heddle::onnx_test {
namespace {

TEST(NodeOrder, IsMadeWhereAFileHasAnother) {
  ModelBuilder model;
  model.input("x", {"n"}).output("y");
  model.node("Add", {"square", "x"}, {"sum"});
  model.node("Neg", {"sum"}, {"y"});
  model.node("Mul", {"negative", "negative"}, {"square"});
  model.node("Neg", {"x"}, {"negative"});
  EXPECT_THAT(model.load().run({Tensor::full(f32, {2}, 3)})[0].to_doubles(),
              testing::ElementsAre(-12, -12));
}

/// A branch reads a value that a later node of the graph around it makes, and its own nodes are in another order too.
TEST(NodeOrder, OfBranchesAndOfWhatTheyReadFromAround) {
  ModelBuilder model;
  model.input("c", {}, TensorProto::BOOL).input("x", {"n"}).output("y");
  NodeProto& chosen = model.node("If", {"c"}, {"y"});
  for (const char* name : {"then_branch", "else_branch"}) {
    AttributeProto& attribute = *chosen.add_attribute();
    attribute.set_name(name);
    attribute.set_type(AttributeProto::GRAPH);
    GraphProto& branch = *attribute.mutable_g();
    branch.set_name(name);
    branch.add_output()->set_name(std::string(name) + ".result");
    ModelBuilder::fill(*branch.add_node(), name[0] == 't' ? "Neg" : "Abs", {"inner"},
                       {std::string(name) + ".result"});
    ModelBuilder::fill(*branch.add_node(), "Add", {"twice", "x"}, {"inner"});
  }
  model.node("Add", {"x", "x"}, {"twice"});
  Engine engine = model.load();
  const Tensor x = Tensor::full(f32, {1}, -2);
  EXPECT_EQ(engine.run({Tensor::full(boolean, {}, 1), x})[0].to_doubles()[0], 6);
  EXPECT_EQ(engine.run({Tensor::full(boolean, {}, 0), x})[0].to_doubles()[0], 6);
}

/// A branch has a value of its own by the name of one that a later node makes of the branch's result: nothing is moved.
TEST(NodeOrder, NamesOfABranchHideThoseAroundIt) {
  ModelBuilder model;
  model.input("c", {}, TensorProto::BOOL).input("x", {"n"}).output("y");
  NodeProto& chosen = model.node("If", {"c"}, {"picked"});
  for (const char* name : {"then_branch", "else_branch"}) {
    AttributeProto& attribute = *chosen.add_attribute();
    attribute.set_name(name);
    attribute.set_type(AttributeProto::GRAPH);
    GraphProto& branch = *attribute.mutable_g();
    branch.set_name(name);
    branch.add_output()->set_name(std::string(name) + ".result");
    ModelBuilder::fill(*branch.add_node(), "Neg", {"x"}, {"part"});
    ModelBuilder::fill(*branch.add_node(), "Abs", {"part"}, {std::string(name) + ".result"});
  }
  model.node("Add", {"picked", "x"}, {"part"});
  model.node("Neg", {"part"}, {"y"});
  EXPECT_EQ(model.load()
                .run({Tensor::full(boolean, {}, 1), Tensor::full(f32, {1}, 3)})[0]
                .to_doubles()[0],
            -6);
}

TEST(SizeNames, AQuestionMarkIsAnySize) {
  ModelBuilder model;
  model.input("x", {"?", "?"}).output("y");
  model.node("Relu", {"x"}, {"y"});
  EXPECT_THAT(model.load().run({ones({2, 3})})[0].sizes(), testing::ElementsAre(2, 3));
  ModelBuilder named;
  named.input("x", {"n", "n"}).output("y");
  named.node("Relu", {"x"}, {"y"});
  EXPECT_THROW(named.load().run({ones({2, 3})}), Error);
}

}  // namespace
}  // namespace heddle::onnx_test
