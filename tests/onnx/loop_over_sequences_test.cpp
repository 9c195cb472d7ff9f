// Loops that carry sequences: slices of one tensor in any number, or a list of few.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/onnx/onnx.pb.h"
#include "heddle/error.h"
#include "tests/onnx/nested_builder.h"

namespace heddle::onnx_test {
namespace {

using testing::ElementsAre;

/// What is around loops over sequences: x [rows, 2], the number of its rows, and constants.
ModelBuilder with_rows() {
  ModelBuilder model;
  model.input("x", {"rows", "2"});
  add_number(model, "zero", 0);
  add_number(model, "one", 1);
  add_number(model, "last", -1);
  add_number(model, "hundred", 100);
  add_truth(model, "go", true);
  add_float(model, "nothing", 0);
  model.node("Shape", {"x"}, {"shape"});
  model.node("Gather", {"shape", "zero"}, {"rows"});
  model.node("SequenceEmpty", {}, {"none"});
  return model;
}

void join(ModelBuilder& model, const std::string& sequence, const std::string& name,
          std::int64_t axis = 0, std::int64_t new_axis = 1) {
  NodeProto& node = model.node("ConcatFromSequence", {sequence}, {name});
  ModelBuilder::set_int(node, "axis", axis);
  ModelBuilder::set_int(node, "new_axis", new_axis);
}

/// The rows of x, each doubled, put into a sequence by a loop and stacked; `limit`: how many iterations, a value's name.
ModelBuilder doubled_rows(const std::string& limit) {
  ModelBuilder model = with_rows();
  model.output("y").output("sums");
  NodeProto& loop = model.node("Loop", {limit, "go", "none", "nothing"}, {"all", "total", "sums"});
  add_graph(loop, "body", {"k", "go_in", "some", "sum"},
            {{"Gather", {"x", "k"}, "row"},
             {"Add", {"row", "row"}, "twice"},
             {"ReduceSum", {"twice"}, "of_row"},
             {"SequenceInsert", {"some", "twice"}, "more"},
             {"Add", {"sum", "of_row"}, "next"},
             {"Identity", {"go_in"}, "go_on"}},
            {"go_on", "more", "next", "next"});
  ModelBuilder::set_int(*loop.mutable_attribute(0)->mutable_g()->mutable_node(2), "keepdims", 0);
  join(model, "all", "y");
  return model;
}

TEST(LoopOverSequences, ThatOnlyAppendsStacks) {
  Engine engine = doubled_rows("rows").load();
  for (const std::int64_t rows : {3, 5, 70, 1}) {
    const Tensor x = waves({rows, 2}, 0.3);
    const auto got = engine.run({x});
    EXPECT_THAT(got[0].sizes(), ElementsAre(rows, 2));
    double sum = 0;
    for (std::int64_t k = 0; k < rows; ++k) {
      for (const std::int64_t c : {2 * k, 2 * k + 1}) {
        const double twice = 2 * x.to_doubles()[static_cast<std::size_t>(c)];
        EXPECT_FLOAT_EQ(got[0].to_doubles()[static_cast<std::size_t>(c)], twice);
        sum += twice;
      }
      EXPECT_NEAR(got[1].to_doubles()[static_cast<std::size_t>(k)], sum, 1e-4);
    }
  }
  EXPECT_LE(engine.stats().compiles, 2u) << "one row may be compiled by itself";
  Engine many = doubled_rows("hundred").load();
  EXPECT_THAT(many.run({ones({100, 2})})[0].to_doubles(), testing::Each(2));
  EXPECT_THROW(many.run({ones({99, 2})}), IndexError);
}

/// A sequence that the body reads too: sums of the newest and the one before it, put at the end and, as `front` says, at the front,
/// where the last one is taken away.
ModelBuilder sums_of_two(const std::string& limit, bool front) {
  ModelBuilder model = with_rows();
  model.output("y").output("side_by_side").output("count", TensorProto::INT64);
  model.node("Gather", {"x", "zero"}, {"first"});
  model.node("SequenceConstruct", {"first", "first"}, {"two"});
  NodeProto& loop = model.node("Loop", {limit, "go", "two"}, {"all"});
  std::vector<BodyNode> steps{
      {"SequenceAt", {"some", "last"}, "newest"},  {"SequenceLength", {"some"}, "length"},
      {"Sub", {"length", "one"}, "end"},           {"Sub", {"end", "one"}, "at"},
      {"SequenceAt", {"some", "at"}, "before"},    {"Add", {"newest", "before"}, "sum"},
      {"SequenceInsert", {"some", "sum"}, "more"}, {"Identity", {"go_in"}, "go_on"}};
  if (front) {
    steps.push_back({"SequenceInsert", {"more", "newest", "zero"}, "both"});
    steps.push_back({"SequenceErase", {"both"}, "less"});
  }
  add_graph(loop, "body", {"k", "go_in", "some"}, steps, {"go_on", front ? "less" : "more"});
  join(model, "all", "y");
  join(model, "all", "side_by_side", 0, 0);
  model.node("SequenceLength", {"all"}, {"count"});
  return model;
}

TEST(LoopOverSequences, ReadsWhatItGrows) {
  for (const char* limit : {"rows", "hundred"}) {
    Engine engine = sums_of_two(limit, false).load();
    for (const std::int64_t rows : {4, 2}) {
      const auto got = engine.run({ones({rows, 2})});
      const std::int64_t count = 2 + (limit == std::string("rows") ? rows : 100);
      EXPECT_EQ(got[2].item(), static_cast<double>(count));
      ASSERT_THAT(got[0].sizes(), ElementsAre(count, 2));
      EXPECT_THAT(got[1].sizes(), ElementsAre(2 * count));
      EXPECT_EQ(got[0].to_doubles(), got[1].to_doubles());
      float a = 1, b = 1;
      for (std::int64_t k = 0; k < count; ++k, std::swap(a, b), b += a)
        EXPECT_FLOAT_EQ(static_cast<float>(got[0].to_doubles()[static_cast<std::size_t>(2 * k)]),
                        a);
    }
  }
}

TEST(LoopOverSequences, PutsAtTheFrontAndTakesFromTheEnd) {
  Engine engine = sums_of_two("rows", true).load();
  // 1 1 -> 1 1 1 (2) -> 1 1 1 1 (2), and so on: the front gets the newest, the sum goes again.
  const auto got = engine.run({ones({3, 2})});
  EXPECT_EQ(got[2].item(), 5);
  EXPECT_THAT(got[0].to_doubles(), testing::Each(1));
}

/// Rows of x whose first element is positive: appended in a branch that the run takes.
TEST(LoopOverSequences, GrowsInABranch) {
  ModelBuilder model = with_rows();
  model.output("y");
  NodeProto& loop = model.node("Loop", {"rows", "go", "none"}, {"all"});
  add_graph(loop, "body", {"k", "go_in", "some"},
            {{"Gather", {"x", "k"}, "row"},
             {"Gather", {"row", "zero"}, "front"},
             {"Greater", {"front", "nothing"}, "is_positive"},
             {"Identity", {"go_in"}, "go_on"}},
            {"go_on", "kept"});
  GraphProto& body = *loop.mutable_attribute(0)->mutable_g();
  NodeProto& branch = *body.add_node();
  ModelBuilder::fill(branch, "If", {"is_positive"}, {"kept"});
  add_graph(branch, "then_branch", {}, {{"SequenceInsert", {"some", "row"}, "more"}}, {"more"});
  add_graph(branch, "else_branch", {}, {{"Identity", {"some"}, "same"}}, {"same"});
  join(model, "all", "y");
  Engine engine = model.load();
  EXPECT_THAT(engine.run({Tensor::of<float>({1, 2, -3, 4, 5, 6, -1, 0}, {4, 2})})[0].to_doubles(),
              ElementsAre(1, 2, 5, 6));
  EXPECT_THAT(engine.run({Tensor::of<float>({-1, 2, -3, 4}, {2, 2})})[0].sizes(),
              ElementsAre(0, 2));
  EXPECT_THAT(engine.run({ones({5, 2})})[0].sizes(), ElementsAre(5, 2));
}

/// Elements of several sizes are a list: of few iterations, whose number tracing knows.
TEST(LoopOverSequences, OfElementsOfSeveralSizes) {
  const auto growing_elements = [](const std::string& limit) {
    ModelBuilder model = with_rows();
    add_number(model, "three", 3);
    model.output("y");
    model.node("Gather", {"x", "zero"}, {"first"});
    NodeProto& loop = model.node("Loop", {limit, "go", "none", "first"}, {"all", "longest"});
    add_graph(loop, "body", {"k", "go_in", "some", "now"},
              {{"SequenceInsert", {"some", "now"}, "more"},
               {"Concat", {"now", "now"}, "longer"},
               {"Identity", {"go_in"}, "go_on"}},
              {"go_on", "more", "longer"});
    ModelBuilder::set_int(*loop.mutable_attribute(0)->mutable_g()->mutable_node(1), "axis", 0);
    join(model, "all", "y", 0, 0);
    return model.load();
  };
  Engine three = growing_elements("three");
  EXPECT_THAT(three.run({ones({1, 2})})[0].sizes(), ElementsAre(2 + 4 + 8));
  Engine hundred = growing_elements("hundred");
  EXPECT_THROW(hundred.run({ones({1, 2})}), UnsupportedError);
}

TEST(LoopOverSequences, SplitsAnyNumberOfSlices) {
  ModelBuilder model = with_rows();
  model.output("y").output("z").output("last_row").output("count", TensorProto::INT64);
  NodeProto& split = model.node("SplitToSequence", {"x"}, {"slices"});
  ModelBuilder::set_int(split, "keepdims", 0);
  NodeProto& kept = model.node("SplitToSequence", {"x"}, {"pieces"});
  ModelBuilder::set_int(kept, "axis", 0);
  model.node("SequenceAt", {"slices", "last"}, {"last_row"});
  model.node("SequenceLength", {"slices"}, {"count"});
  join(model, "slices", "y", 1, 1);
  join(model, "pieces", "z", 0, 0);
  Engine engine = model.load();
  for (const std::int64_t rows : {3, 5, 100}) {
    const Tensor x = waves({rows, 2}, 0.7);
    const auto got = engine.run({x});
    EXPECT_THAT(got[0].sizes(), ElementsAre(2, rows));
    EXPECT_EQ(got[1].to_doubles(), x.to_doubles());
    EXPECT_EQ(got[2].to_doubles()[1], x.to_doubles().back());
    EXPECT_EQ(got[3].item(), static_cast<double>(rows));
  }
  EXPECT_EQ(engine.stats().compiles, 1u);
}

}  // namespace
}  // namespace heddle::onnx_test
