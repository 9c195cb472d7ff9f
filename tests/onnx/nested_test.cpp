// Nested graphs as exporters write them: loops that their own condition ends, what a body only hands on, placeholders,
// branches that differ in rank, and positions that the run computes.

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "engine/onnx/onnx.pb.h"
#include "heddle/error.h"
#include "heddle/ops.h"
#include "tests/onnx/nested_builder.h"

namespace heddle::onnx_test {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

/// Running sums of the rows of x [rows, 2], each times w, as TensorFlow's exporter writes a loop over a sequence: no trip
/// count, a condition on a counter compared in f32 or another type, the number of rows and w handed on. `compare`: what ends it.
ModelBuilder running_sums(const BodyNode& compare, int compared_as = TensorProto::FLOAT) {
  ModelBuilder model;
  model.input("x", {"rows", "2"}).output("last").output("sums");
  add_number(model, "zero", 0);
  add_number(model, "one", 1);
  add_float(model, "none", 0);
  model.ints("axis", {0});
  auto& start = model.initializer("start", {2}, TensorProto::FLOAT);
  auto& w = model.initializer("w", {2}, TensorProto::FLOAT);
  for (const float number : {1.0f, 10.0f}) {
    start.add_float_data(0);
    w.add_float_data(number);
  }
  model.node("Shape", {"x"}, {"shape"});
  model.node("Gather", {"shape", "zero"}, {"rows"});
  ModelBuilder::set_int(model.node("Cast", {"rows"}, {"rows_f"}), "to", TensorProto::FLOAT);
  model.node("Less", {"none", "rows_f"}, {"go"});
  NodeProto& loop = model.node("Loop", {"", "go", "zero", "rows", "w", "start"},
                               {"count", "rows_last", "w_last", "last", "sums"});
  add_graph(loop, "body", {"k", "go_in", "i", "limit", "weights", "sum"},
            {{"Add", {"i", "one"}, "next"},
             {"Cast", {"next"}, "next_f", compared_as},
             {"Cast", {"limit"}, "limit_f", compared_as},
             compare,
             {"Gather", {"x", "i"}, "row"},
             {"Mul", {"row", "weights"}, "scaled"},
             {"Add", {"sum", "scaled"}, "total"},
             {"Identity", {"weights"}, "weights_out"},
             {"Identity", {"total"}, "shown"}},
            {"go_out", "next", "limit", "weights_out", "total", "shown"});
  return model;
}

Tensor rows_of(std::int64_t rows) {
  std::vector<float> values;
  for (std::int64_t k = 0; k < 2 * rows; ++k) values.push_back(static_cast<float>(k + 1));
  return Tensor::of(std::span<const float>(values), {rows, 2});
}

void expect_sums(Engine& engine, std::int64_t rows) {
  const std::vector<Tensor> got = engine.run({rows_of(rows)});
  std::vector<double> wanted;
  double sums[2] = {0, 0};
  for (std::int64_t k = 0; k < rows; ++k) {
    sums[0] += static_cast<double>(2 * k + 1);
    sums[1] += static_cast<double>(10 * (2 * k + 2));
    wanted.insert(wanted.end(), {sums[0], sums[1]});
  }
  EXPECT_THAT(got[0].to_doubles(), ElementsAre(sums[0], sums[1])) << rows;
  EXPECT_THAT(got[1].sizes(), ElementsAre(rows, 2));
  EXPECT_THAT(got[1].to_doubles(), ElementsAreArray(wanted)) << rows;
}

TEST(NestedLoop, ACountingConditionIsATripCount) {
  for (const BodyNode& compare : {BodyNode{"Less", {"next_f", "limit_f"}, "go_out"},
                                  BodyNode{"Greater", {"limit_f", "next_f"}, "go_out"},
                                  BodyNode{"Less", {"next", "limit"}, "go_out"}}) {
    Engine engine = running_sums(compare).load();
    for (const std::int64_t rows : {5, 9, 2}) expect_sums(engine, rows);
    EXPECT_EQ(engine.stats().compiles, 1u) << "as many iterations as rows, whatever their number";
    for (const std::int64_t rows : {1, 0}) expect_sums(engine, rows);
  }
}

/// 200 as i8 is -56, which 1 is not below.
TEST(NestedLoop, ACountThatACastCutsIsNone) {
  Engine engine = running_sums({"Less", {"next_f", "limit_f"}, "go_out"}, TensorProto::INT8).load();
  EXPECT_THAT(engine.run({rows_of(200)})[1].sizes(), ElementsAre(1, 2));
  expect_sums(engine, 7);
}

/// x doubles while it is below a limit: what the loop computes tells how often it runs.
ModelBuilder doubling(bool stacks) {
  ModelBuilder model;
  model.input("x", {}).input("limit", {}).output("last");
  if (stacks) model.output("all");
  add_float(model, "two", 2);
  model.node("Less", {"x", "limit"}, {"go"});
  NodeProto& loop =
      model.node("Loop", {"", "go", "x"}, stacks ? Names{"last", "all"} : Names{"last"});
  add_graph(loop, "body", {"k", "go_in", "now"},
            {{"Mul", {"now", "two"}, "next"}, {"Less", {"next", "limit"}, "go_out"}},
            stacks ? Names{"go_out", "next", "next"} : Names{"go_out", "next"});
  return model;
}

TEST(NestedLoop, StackedResultsOfALoopThatEndsItself) {
  for (const bool stacks : {true, false}) {
    Engine engine = doubling(stacks).load();
    for (const float limit : {20.0f, 5.0f, 1.0f, 100.0f}) {
      std::vector<double> wanted;
      double x = 1.5;
      while (x < limit) wanted.push_back(x *= 2);
      const std::vector<Tensor> got =
          engine.run({Tensor::scalar(f32, 1.5), Tensor::scalar(f32, limit)});
      EXPECT_EQ(got[0].item(), x) << limit;
      if (stacks) {
        EXPECT_THAT(got[1].to_doubles(), ElementsAreArray(wanted)) << limit;
      }
    }
    EXPECT_EQ(engine.stats().compiles, 1u);
  }
}

/// A loop of five iterations whose second carried value is a scalar until the first one has made it a vector of x's size.
ModelBuilder placeholder(bool known) {
  ModelBuilder model;
  model.input("x", {"n"}).output("y");
  if (known)
    add_truth(model, "go", true);
  else
    model.input("go", {}, TensorProto::BOOL);
  add_number(model, "five", 5);
  add_number(model, "one", 1);
  add_number(model, "zero", 0);
  add_float(model, "nothing", 0);
  add_float(model, "two", 2);
  NodeProto& loop = model.node("Loop", {"", "go", "zero", "nothing", "x"}, {"count", "y", "last"});
  add_graph(loop, "body", {"k", "go_in", "i", "held", "now"},
            {{"Add", {"i", "one"}, "next"},
             {"Less", {"next", "five"}, "less"},
             {"And", {"less", "go_in"}, "go_out"},
             {"Add", {"now", "held"}, "sum"},
             {"Mul", {"now", "two"}, "doubled"}},
            {"go_out", "next", "sum", "doubled"});
  return model;
}

TEST(NestedLoop, APlaceholderTakesItsTypeInTheFirstIteration) {
  Engine engine = placeholder(true).load();
  for (const auto& x : {std::vector<float>{1, 3}, {2, 5, -1}}) {
    std::vector<double> wanted;
    for (const float value : x) wanted.push_back(31.0 * value);
    const Tensor input =
        Tensor::of(std::span<const float>(x), {static_cast<std::int64_t>(x.size())});
    EXPECT_THAT(engine.run({input})[0].to_doubles(), ElementsAreArray(wanted));
  }
  Engine unknown = placeholder(false).load();
  try {
    unknown.run({ones({2}), Tensor::scalar_int(boolean, 1)});
    FAIL() << "no error";
  } catch (const UnsupportedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("Loop: carried values that change their type"));
  }
}

/// Tokens as a decoder makes them in a loop: each is the number of those before times 3, plus the last one, modulo 17. Without a trip
/// count, `trips`, the loop ends behind `limit` of them or where one is 5.
ModelBuilder growing(const std::string& trips) {
  ModelBuilder model;
  model.input("tokens", {"n"}, TensorProto::INT64).input("limit", {}, TensorProto::INT64);
  model.output("all", TensorProto::INT64).output("steps", TensorProto::INT64);
  add_truth(model, "go", true);
  add_number(model, "zero", 0);
  add_number(model, "one", 1);
  add_number(model, "three", 3);
  add_number(model, "five", 5);
  add_number(model, "seventeen", 17);
  add_number(model, "twenty", 20);
  model.ints("first", {0}).ints("last", {-1});
  NodeProto& loop = model.node("Loop", {trips, "go", "tokens", "zero"}, {"all", "steps"});
  const bool asks = trips.empty();
  add_graph(loop, "body", {"k", "go_in", "some", "step"},
            {{"Shape", {"some"}, "length"},
             {"Mul", {"length", "three"}, "tripled"},
             {"Gather", {"some", "last"}, "newest"},
             {"Add", {"tripled", "newest"}, "sum"},
             {"Mod", {"sum", "seventeen"}, "token"},
             {"Concat", {"some", "token"}, "more"},
             {"Add", {"step", "one"}, "next"},
             {"ReduceSum", {"token", "first"}, "single"},
             {"Equal", {"single", "five"}, "is_end"},
             {"Not", {"is_end"}, "goes_on"},
             {"Less", {"next", "limit"}, "is_below"},
             {"And", {"goes_on", "is_below"}, "stop"},
             {"Identity", {"go_in"}, "kept"}},
            {asks ? "stop" : "kept", "more", "next"});
  GraphProto& body = *loop.mutable_attribute(0)->mutable_g();
  for (NodeProto& node : *body.mutable_node()) {
    if (node.op_type() == "Concat") ModelBuilder::set_int(node, "axis", 0);
    if (node.op_type() == "ReduceSum") ModelBuilder::set_int(node, "keepdims", 0);
  }
  return model;
}

std::vector<double> grown(std::vector<double> tokens, std::int64_t limit, bool ends) {
  for (std::int64_t step = 0; step < limit; ++step) {
    tokens.push_back(std::fmod(3.0 * static_cast<double>(tokens.size()) + tokens.back(), 17));
    if (ends && tokens.back() == 5) break;
  }
  return tokens;
}

TEST(NestedLoop, CarriesWhatGrows) {
  const auto call = [](Engine& engine, const std::vector<std::int64_t>& tokens,
                       std::int64_t limit) {
    return engine.run({Tensor::of(std::span<const std::int64_t>(tokens),
                                  {static_cast<std::int64_t>(tokens.size())}),
                       Tensor::scalar_int(i64, limit)});
  };
  struct Case {
    std::string trips;
    bool ends;
    std::int64_t known;  ///< trips; 0: the limit says
  };
  for (const Case& c :
       {Case{"", true, 0}, {"limit", false, 0}, {"twenty", false, 20}, {"five", false, 5}}) {
    SCOPED_TRACE(c.trips);
    Engine engine = growing(c.trips).load();
    for (const std::vector<std::int64_t>& tokens : {std::vector<std::int64_t>{2}, {9, 1, 4}}) {
      for (const std::int64_t limit : {12, 1, 30}) {
        const auto wanted =
            grown({tokens.begin(), tokens.end()}, c.known != 0 ? c.known : limit, c.ends);
        const std::vector<Tensor> got = call(engine, tokens, limit);
        EXPECT_THAT(got[0].to_doubles(), ElementsAreArray(wanted)) << limit;
        EXPECT_EQ(got[1].item(), static_cast<double>(wanted.size() - tokens.size())) << limit;
      }
    }
    EXPECT_EQ(engine.stats().compiles, 1u);
  }
}

/// What a body calls its own, an input here, hides what has the name around it.
TEST(NestedLoop, NamesOfABodyHideThoseAroundIt) {
  ModelBuilder model;
  model.input("x", {"n"}).output("y");
  add_number(model, "three", 3);
  add_truth(model, "go", true);
  model.node("Abs", {"x"}, {"w"});
  NodeProto& loop = model.node("Loop", {"three", "go", "x"}, {"last"});
  add_graph(loop, "body", {"k", "go_in", "w"}, {{"Add", {"w", "w"}, "next"}}, {"go_in", "next"});
  model.node("Add", {"last", "w"}, {"y"});
  Engine engine = model.load();
  EXPECT_THAT(engine.run({Tensor::of<float>({1, -2}, {2})})[0].to_doubles(), ElementsAre(9, -14));
}

TEST(NestedBranch, OneElementAsAScalarAndAsAVector) {
  ModelBuilder model;
  model.input("flag", {}, TensorProto::BOOL).input("x", {"1"}).output("y").output("scalar");
  add_float(model, "two", 2);
  model.ints("first", {0});
  NodeProto& branch = model.node("If", {"flag"}, {"chosen", "scalar"});
  add_graph(branch, "then_branch", {}, {{"Squeeze", {"x", "first"}, "a"}}, {"a", "a"});
  add_graph(branch, "else_branch", {},
            {{"Mul", {"x", "two"}, "b"}, {"Squeeze", {"x", "first"}, "c"}}, {"b", "c"});
  model.node("Add", {"chosen", "x"}, {"y"});
  Engine engine = model.load();
  const Tensor x = Tensor::of<float>({3}, {1});
  EXPECT_THAT(engine.run({Tensor::scalar_int(boolean, 1), x})[0].to_doubles(), ElementsAre(6));
  EXPECT_THAT(engine.run({Tensor::scalar_int(boolean, 0), x})[0].to_doubles(), ElementsAre(9));
  EXPECT_EQ(engine.run({Tensor::scalar_int(boolean, 0), x})[1].rank(), 0)
      << "both branches give a scalar";
}

/// As many of start : end : step as a dimension of `size` has.
std::vector<double> window_of_size(std::int64_t size, std::int64_t start, std::int64_t end,
                                   std::int64_t step) {
  const std::int64_t low = step > 0 ? 0 : -1;
  const std::int64_t high = step > 0 ? size : size - 1;
  const auto bound = [&](std::int64_t at) {
    return std::clamp(at < 0 ? at + size : at, low, high);
  };
  std::vector<double> numbers;
  for (std::int64_t k = bound(start); step > 0 ? k < bound(end) : k > bound(end); k += step)
    numbers.push_back(static_cast<double>(k));
  return numbers;
}

/// y = x[start + 0: end + 0: step], positions that the run computes.
ModelBuilder late_slice(std::int64_t step) {
  ModelBuilder model;
  model.input("x", {"n"}).input("start", {"1"}, TensorProto::INT64);
  model.input("end", {"1"}, TensorProto::INT64).output("y");
  model.ints("zero", {0}).ints("axes", {0}).ints("steps", {step});
  model.node("Add", {"start", "zero"}, {"from"});
  model.node("Add", {"end", "zero"}, {"to"});
  model.node("Slice", {"x", "from", "to", "axes", "steps"}, {"y"});
  return model;
}

TEST(LateSlice, PositionsOfTheRun) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kSize = 7;
  std::vector<float> numbers;
  for (int k = 0; k < kSize; ++k) numbers.push_back(static_cast<float>(k));
  const Tensor x = Tensor::of(std::span<const float>(numbers), {kSize});
  for (const std::int64_t step : {1, 3, -1, -2}) {
    Engine engine = late_slice(step).load();
    for (const std::int64_t start :
         {std::int64_t{0}, std::int64_t{2}, std::int64_t{-3}, kMost, -kMost})
      for (const std::int64_t end :
           {std::int64_t{0}, std::int64_t{5}, std::int64_t{-1}, kMost, -kMost}) {
        const auto number = [](std::int64_t value) {
          return Tensor::of<std::int64_t>({value}, {1});
        };
        EXPECT_THAT(engine.run({x, number(start), number(end)})[0].to_doubles(),
                    ElementsAreArray(window_of_size(kSize, start, end, step)))
            << start << ":" << end << ":" << step;
      }
    EXPECT_EQ(engine.stats().compiles, 1u);
  }
}

TEST(LateSlice, NumbersOfADimensionThatTheRunTells) {
  for (const std::int64_t step : {1, 2, -1, -3})
    for (const std::int64_t start : {0, 2, -2, 1'000'000'000})
      for (const std::int64_t end : {0, 3, -1, 1'000'000'000, -1'000'000'000}) {
        SCOPED_TRACE(::testing::Message() << start << ":" << end << ":" << step);
        ModelBuilder model;
        model.input("x", {"n"}).output("y", TensorProto::INT64).ints("flat", {-1});
        model.ints("start", {start}).ints("end", {end}).ints("axes", {0}).ints("steps", {step});
        model.node("NonZero", {"x"}, {"places"});
        model.node("Reshape", {"places", "flat"}, {"list"});
        model.node("Slice", {"list", "start", "end", "axes", "steps"}, {"y"});
        Engine engine = model.load();
        for (const std::int64_t size : {5, 1, 0})
          EXPECT_THAT(engine.run({ones({size})})[0].to_doubles(),
                      ElementsAreArray(window_of_size(size, start, end, step)))
              << size;
      }
}

/// The end counts from either side, as the run tells.
TEST(LateSlice, EndsThatFollowFromADimensionThatTheRunTells) {
  ModelBuilder model;
  model.input("x", {"n"}).output("y", TensorProto::INT64).ints("flat", {-1});
  model.ints("start", {0}).ints("three", {3});
  model.node("NonZero", {"x"}, {"places"});
  model.node("Reshape", {"places", "flat"}, {"list"});
  model.node("Shape", {"list"}, {"size"});
  model.node("Sub", {"size", "three"}, {"end"});
  model.node("Slice", {"list", "start", "end"}, {"y"});
  Engine engine = model.load();
  for (const std::int64_t size : {5, 3, 2, 1, 0})
    EXPECT_THAT(engine.run({ones({size})})[0].to_doubles(),
                ElementsAreArray(window_of_size(size, 0, size - 3, 1)))
        << size;
}

/// y = x with the first elements of `values` that are not 0 put to where `places` is not 0.
TEST(LateScatter, AsManyUpdatesAsIndices) {
  ModelBuilder model;
  model.input("x", {"n"}).input("places", {"n"}).input("values", {"m"}).output("y");
  model.ints("flat", {-1});
  for (const std::string name : {"places", "values"}) {
    model.node("NonZero", {name}, {name + "_at"});
    model.node("Reshape", {name + "_at", "flat"}, {name + "_list"});
  }
  model.node("Gather", {"values", "values_list"}, {"updates"});
  ModelBuilder::set_int(model.node("ScatterElements", {"x", "places_list", "updates"}, {"y"}),
                        "axis", 0);
  Engine engine = model.load();
  const Tensor x = ones({4});
  const Tensor two = Tensor::of<float>({0, 1, 0, 1}, {4});
  EXPECT_THAT(engine.run({x, two, Tensor::of<float>({7, 0, 8}, {3})})[0].to_doubles(),
              ElementsAre(1, 7, 1, 8));
  EXPECT_THROW(engine.run({x, two, Tensor::of<float>({7, 0, 0}, {3})}), ShapeError);
  EXPECT_THROW(engine.run({x, two, Tensor::of<float>({7, 8, 9}, {3})}), ShapeError);
  EXPECT_THAT(engine.run({x, ones({4}), Tensor::of<float>({6, 7, 8, 9}, {4})})[0].to_doubles(),
              ElementsAre(6, 7, 8, 9));
}

/// As Paddle's exporter says it.
TEST(AnySize, MinusOneIsAnySize) {
  ModelBuilder model = relu_model();
  const auto set_size = [&](std::int64_t size) {
    auto* type = model.graph().mutable_input(0)->mutable_type()->mutable_tensor_type();
    type->mutable_shape()->mutable_dim(0)->set_dim_value(size);
  };
  set_size(-1);
  Engine engine = model.load();
  for (const std::int64_t size : {4, 9})
    EXPECT_THAT(engine.run({ones({size})})[0].sizes(), ElementsAre(size));
  EXPECT_EQ(engine.stats().compiles, 1u);
  set_size(-2);
  try {
    model.load();
    FAIL() << "no error";
  } catch (const ModelError& error) {
    EXPECT_THAT(error.what(), HasSubstr("size of x: expected 0 or more, or -1 for any, got -2"));
  }
}

/// Queries [1, 2, 1, 3] of one head of keys and values [1, 1, 2, 3]; scores are added what lies around the graph that changes
/// them, weights are doubled.
ModelBuilder flex_attention(const Names& scores = {"scores"}) {
  ModelBuilder model;
  model.input("q", {"1", "2", "1", "3"}).input("k", {"1", "1", "2", "3"});
  model.input("v", {"1", "1", "2", "3"}).input("bias", {"2"}).output("y");
  add_float(model, "two", 2);
  NodeProto& node = model.node("FlexAttention", {"q", "k", "v"}, {"y"}, "ai.onnx.preview");
  add_graph(node, "score_mod", scores, {{"Add", {"scores", "bias"}, "moved"}}, {"moved"});
  add_graph(node, "prob_mod", {"weights"}, {{"Mul", {"weights", "two"}, "more"}}, {"more"});
  auto& import = *model.proto().add_opset_import();
  import.set_domain("ai.onnx.preview");
  import.set_version(1);
  return model;
}

TEST(Nested, GraphsChangeScoresAndWeightsOfAttention) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor keys = Tensor::of<float>({1, 2, 3, 4, 5, 6}, {1, 1, 2, 3});
  const std::vector<Tensor> y = flex_attention().load().run(
      {ones({1, 2, 1, 3}), keys, keys, Tensor::of<float>({0, -infinity}, {2})});
  EXPECT_THAT(y[0].to_doubles(), ElementsAre(2, 4, 6, 2, 4, 6));
}

TEST(Nested, GraphsOfAttentionTakeOneTensor) {
  const std::vector<Tensor> inputs{ones({1, 2, 1, 3}), ones({1, 1, 2, 3}), ones({1, 1, 2, 3}),
                                   ones({2})};
  try {
    flex_attention({"scores", "other"}).load().run(inputs);
    FAIL() << "two inputs are taken";
  } catch (const ModelError& error) {
    EXPECT_THAT(error.what(), HasSubstr("score_mod"));
  }
}

}  // namespace
}  // namespace heddle::onnx_test
