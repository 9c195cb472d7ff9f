// Ensembles of trees (ai.onnx.ml): what ONNX Runtime's cases (classical_cases.zip) leave out, and malformed ones.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "engine/onnx/onnx.pb.h"
#include "heddle/error.h"
#include "tests/onnx/model_builder.h"

namespace heddle::onnx_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// y = TreeEnsembleRegressor(x), x f32[n, 2], of one tree.
class TreeModel : public ModelBuilder {
 public:
  explicit TreeModel(const std::string& features = "2") { input("x", {"n", features}).output("y"); }

  TreeModel& split(const std::string& mode, std::int64_t feature, float threshold, std::int64_t yes,
                   std::int64_t no) {
    modes_.push_back(mode);
    features_.push_back(feature);
    thresholds_.push_back(threshold);
    yes_.push_back(yes);
    no_.push_back(no);
    return *this;
  }
  TreeModel& leaf(float weight) {
    leaves_.push_back(static_cast<std::int64_t>(modes_.size()));
    weights_.push_back(weight);
    return split("LEAF", 0, 0, 0, 0);
  }

  NodeProto& finish(const std::string& op = "TreeEnsembleRegressor",
                    const std::vector<std::string>& outputs = {"y"}) {
    NodeProto& made = node(op, {"x"}, outputs, "ai.onnx.ml");
    auto* import = proto().add_opset_import();
    import->set_domain("ai.onnx.ml");
    import->set_version(3);
    const std::string kind = op == "TreeEnsembleRegressor" ? "target" : "class";
    const auto count = modes_.size();
    std::vector<std::int64_t> ids;
    for (std::size_t k = 0; k < count; ++k) ids.push_back(static_cast<std::int64_t>(k));
    set_ints(made, "nodes_treeids", std::vector<std::int64_t>(count, 0));
    set_ints(made, "nodes_nodeids", ids);
    set_ints(made, "nodes_featureids", features_);
    set_ints(made, "nodes_truenodeids", yes_);
    set_ints(made, "nodes_falsenodeids", no_);
    set_floats(made, "nodes_values", thresholds_);
    set_strings(made, "nodes_modes", modes_);
    set_ints(made, kind + "_treeids", std::vector<std::int64_t>(leaves_.size(), 0));
    set_ints(made, kind + "_nodeids", leaves_);
    set_ints(made, kind + "_ids", std::vector<std::int64_t>(leaves_.size(), 0));
    set_floats(made, kind + "_weights", weights_);
    return made;
  }

  static void set_floats(NodeProto& node, const std::string& name,
                         const std::vector<float>& values) {
    AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(AttributeProto::FLOATS);
    for (const float value : values) attribute.add_floats(value);
  }
  static void set_strings(NodeProto& node, const std::string& name,
                          const std::vector<std::string>& values) {
    AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(AttributeProto::STRINGS);
    for (const std::string& value : values) attribute.add_strings(value);
  }

  std::string error() {
    finish();
    try {
      Engine engine = load();
      engine.run({ones({1, 2})});
    } catch (const Error& caught) {
      return caught.what();
    }
    return "none";
  }

 private:
  std::vector<std::string> modes_;
  std::vector<std::int64_t> features_, yes_, no_, leaves_;
  std::vector<float> thresholds_, weights_;
};

Tensor column(const std::vector<double>& numbers) {
  Tensor tensor = Tensor::empty(f32, {static_cast<std::int64_t>(numbers.size()), 2});
  for (std::size_t k = 0; k < numbers.size(); ++k) {
    tensor.data_as<float>()[2 * k] = 0;
    tensor.data_as<float>()[2 * k + 1] = static_cast<float>(numbers[k]);
  }
  return tensor;
}

std::vector<double> results(const TreeModel& model, const std::vector<double>& numbers) {
  Engine engine = model.load();
  return engine.run({column(numbers)})[0].to_doubles();
}

TEST(Trees, InfinitiesAndNaNGoWhereComparingThemLeads) {
  const std::vector<double> numbers{-kInfinity, 1, 2, kInfinity, std::nan("")};
  const auto of = [&](const std::string& mode, float threshold) {
    TreeModel model;
    model.split(mode, 1, threshold, 1, 2).leaf(10).leaf(20);
    model.finish();
    return results(model, numbers);
  };
  EXPECT_THAT(of("BRANCH_LEQ", 1), ElementsAre(10, 10, 20, 20, 20));
  EXPECT_THAT(of("BRANCH_LT", 1), ElementsAre(10, 20, 20, 20, 20));
  EXPECT_THAT(of("BRANCH_GT", 1), ElementsAre(20, 20, 10, 10, 20));
  EXPECT_THAT(of("BRANCH_GTE", 1), ElementsAre(20, 10, 10, 10, 20));
  EXPECT_THAT(of("BRANCH_EQ", 1), ElementsAre(20, 10, 20, 20, 20));
  EXPECT_THAT(of("BRANCH_NEQ", 1), ElementsAre(10, 20, 10, 10, 10));
  const auto infinite = static_cast<float>(kInfinity);
  EXPECT_THAT(of("BRANCH_LEQ", infinite), ElementsAre(10, 10, 10, 10, 20));
  EXPECT_THAT(of("BRANCH_LT", infinite), ElementsAre(10, 10, 10, 20, 20));
  EXPECT_THAT(of("BRANCH_EQ", -infinite), ElementsAre(10, 20, 20, 20, 20));
  EXPECT_THAT(of("BRANCH_NEQ", -infinite), ElementsAre(20, 10, 10, 10, 10));
  EXPECT_THAT(of("BRANCH_LT", -infinite), ElementsAre(20, 20, 20, 20, 20));
  EXPECT_THAT(of("BRANCH_GTE", -infinite), ElementsAre(10, 10, 10, 10, 20));
}

TEST(Trees, OfManyLevels) {
  constexpr int kLevels = 70;
  TreeModel model;
  for (std::int64_t k = 0; k < kLevels; ++k)
    model.split("BRANCH_LEQ", 1, static_cast<float>(k), kLevels + k,
                k + 1 == kLevels ? 2 * kLevels : k + 1);
  for (int k = 0; k <= kLevels; ++k) model.leaf(static_cast<float>(k));
  model.finish();
  EXPECT_THAT(results(model, {-1, 0.5, 30, 68.5, 69.5}), ElementsAre(0, 1, 30, 69, 70));
}

TEST(Trees, OfALeafAlone) {
  TreeModel model;
  model.leaf(2.5f);
  model.finish();
  EXPECT_THAT(results(model, {1, 2}), ElementsAre(2.5, 2.5));
}

TEST(Trees, AsManyFeaturesAsTheRunTells) {
  TreeModel model("f");
  model.split("BRANCH_LEQ", 2, 0, 1, 2).leaf(1).leaf(2);
  model.finish();
  Engine engine = model.load();
  EXPECT_THAT(engine.run({ones({2, 3})})[0].to_doubles(), ElementsAre(2, 2));
  EXPECT_THROW(engine.run({ones({2, 2})}), IndexError);
  EXPECT_THAT(engine.run({ones({1, 4})})[0].to_doubles(), ElementsAre(2));
}

TEST(Trees, LabelsMayBeStrings) {
  TreeModel model;
  model.split("BRANCH_LEQ", 1, 1, 1, 2).leaf(0.25f).leaf(0.75f);
  TreeModel::set_strings(model.finish("TreeEnsembleClassifier", {"label", "y"}),
                         "classlabels_strings", {"no", "yes"});
  EXPECT_THAT(results(model, {0, 2}), ElementsAre(0.75, 0.25, 0.25, 0.75));
  model.output("label", TensorProto::STRING);
  Engine engine = model.load();
  const Signature signature = engine.signature();
  ASSERT_EQ(signature.outputs.size(), 2u);
  EXPECT_FALSE(signature.outputs[0].is_text);
  EXPECT_TRUE(signature.outputs[1].is_text);
  Tensor x = Tensor::zeros(f32, {2, 2});
  x.data_as<float>()[1] = x.data_as<float>()[3] = 2;
  const std::vector<Tensor> results = engine.run({x});
  EXPECT_THAT(onnx::StringCodes(signature).decode(results[1]), ElementsAre("yes", "yes"));
}

TEST(Trees, MalformedOnesSayWhatIsWrong) {
  const auto error = [](auto&& build) {
    TreeModel model;
    build(model);
    return model.error();
  };
  EXPECT_THAT(error([](TreeModel& m) { m.split("BRANCH_LEQ", 0, 1, 1, 7).leaf(1); }),
              HasSubstr("nodes_falsenodeids"));
  EXPECT_THAT(error([](TreeModel& m) { m.split("BRANCH_UP", 0, 1, 1, 2).leaf(1).leaf(2); }),
              HasSubstr("expected BRANCH_LEQ, …, or LEAF, got BRANCH_UP"));
  EXPECT_THAT(error([](TreeModel& m) { m.split("BRANCH_LEQ", 2, 1, 1, 2).leaf(1).leaf(2); }),
              HasSubstr("nodes_featureids"));
  EXPECT_THAT(error([](TreeModel& m) { m.split("BRANCH_LEQ", -1, 1, 1, 2).leaf(1).leaf(2); }),
              HasSubstr("nodes_featureids"));
  TreeModel of_any("f");
  of_any.split("BRANCH_LEQ", std::int64_t{1} << 32, 1, 1, 2).leaf(1).leaf(2);
  EXPECT_THAT(of_any.error(), HasSubstr("below 2^31, got 4294967296"));
  // 0 leads to 1, and 1 to itself.
  EXPECT_THAT(error([](TreeModel& m) {
                m.split("BRANCH_LEQ", 0, 1, 1, 2).split("BRANCH_LEQ", 0, 1, 1, 2).leaf(1);
              }),
              HasSubstr("expected trees, got a node below itself"));
  // Each below the other: no node is a root.
  EXPECT_THAT(error([](TreeModel& m) {
                m.split("BRANCH_LEQ", 0, 1, 1, 2).split("BRANCH_LEQ", 0, 1, 0, 2).leaf(1);
              }),
              HasSubstr("one without a root"));
}

}  // namespace
}  // namespace heddle::onnx_test
