// Attributes of recurrent layers, against the ONNX equations written out.

#include <algorithm>
#include <cmath>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "engine/onnx/onnx.pb.h"
#include "heddle/error.h"
#include "tests/onnx/model_builder.h"

namespace heddle::onnx_test {
namespace {

using testing::HasSubstr;
using Function = std::function<double(double)>;
using Doubles = std::vector<double>;

void add_floats(TensorProto& tensor, const Doubles& numbers) {
  for (const double number : numbers) tensor.add_float_data(static_cast<float>(number));
}

struct Attributes {
  std::vector<std::string> activations;
  Doubles alpha;
  Doubles beta;
  std::string direction = "forward";
  double clip = 0;
  bool batch_first = false;
};

void set_attributes(NodeProto& node, const Attributes& given) {
  const auto next = [&](const std::string& name, AttributeProto::AttributeType type) {
    AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(type);
    return &attribute;
  };
  AttributeProto& names = *next("activations", AttributeProto::STRINGS);
  for (const std::string& name : given.activations) names.add_strings(name);
  next("direction", AttributeProto::STRING)->set_s(given.direction);
  for (const auto& [name, numbers] :
       {std::pair{"activation_alpha", given.alpha}, {"activation_beta", given.beta}}) {
    if (numbers.empty()) continue;
    AttributeProto& attribute = *next(name, AttributeProto::FLOATS);
    for (const double number : numbers) attribute.add_floats(static_cast<float>(number));
  }
  if (given.clip > 0) next("clip", AttributeProto::FLOAT)->set_f(static_cast<float>(given.clip));
  ModelBuilder::set_int(node, "layout", given.batch_first ? 1 : 0);
}

constexpr double kRecurrent = 0.25;

/// h = f(x + h / 4), of one number a step, from 0 on.
Engine rnn(const Attributes& attributes) {
  const bool both = attributes.direction == "bidirectional";
  const std::int64_t directions = both ? 2 : 1;
  ModelBuilder model;
  model.input("x", {"n", "1", "1"}).output("y");
  const Doubles ones(both ? 2 : 1, 1);
  add_floats(model.initializer("w", {directions, 1, 1}, TensorProto::FLOAT), ones);
  add_floats(model.initializer("r", {directions, 1, 1}, TensorProto::FLOAT),
             Doubles(ones.size(), kRecurrent));
  NodeProto& node = model.node("RNN", {"x", "w", "r"}, {"y"});
  ModelBuilder::set_int(node, "hidden_size", 1);
  set_attributes(node, attributes);
  return model.load();
}

const std::vector<float> kSteps{-3, -0.75f, 0.5f, 0, 1.5f, -1, 4};

/// y of the steps from the first to the last, or back.
Doubles expected(const Function& f, bool reverse) {
  Doubles y(kSteps.size());
  double hidden = 0;
  for (std::size_t k = 0; k < y.size(); ++k) {
    const std::size_t at = reverse ? y.size() - 1 - k : k;
    hidden = f(kSteps[at] + kRecurrent * hidden);
    y[at] = hidden;
  }
  return y;
}

void expect_near(const Doubles& got, const Doubles& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t k = 0; k < got.size(); ++k) EXPECT_NEAR(got[k], wanted[k], 1e-5) << k;
}

Doubles run_steps(Engine& engine) {
  const auto steps = static_cast<std::int64_t>(kSteps.size());
  const Doubles y = engine.run({Tensor::of<float>(kSteps, {steps, 1, 1})})[0].to_doubles();
  EXPECT_EQ(engine.stats().evaluator_steps, 0u);
  return y;
}

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

TEST(RecurrentActivations, EachWithItsDefaultsAndWithParameters) {
  struct Case {
    std::string name;
    Doubles alpha, beta;
    Function f;
  };
  const auto line = [](double a, double b) { return [=](double x) { return a * x + b; }; };
  const auto leaky = [](double a) { return [=](double x) { return x < 0 ? a * x : x; }; };
  const auto above = [](double a) { return [=](double x) { return x > a ? x : 0; }; };
  const auto elu = [](double a) { return [=](double x) { return x < 0 ? a * std::expm1(x) : x; }; };
  const auto hard = [](double a, double b) {
    return [=](double x) { return std::clamp(a * x + b, 0.0, 1.0); };
  };
  const Case cases[] = {
      {"Relu", {}, {}, [](double x) { return std::max(x, 0.0); }},
      {"Tanh", {}, {}, [](double x) { return std::tanh(x); }},
      {"Sigmoid", {}, {}, logistic},
      {"Affine", {}, {}, line(1, 0)},
      {"Affine", {0.5}, {0.25}, line(0.5, 0.25)},
      {"LeakyRelu", {}, {}, leaky(0.01)},
      {"LeakyRelu", {0.5}, {}, leaky(0.5)},
      {"ThresholdedRelu", {}, {}, above(1)},
      {"ThresholdedRelu", {0.25}, {}, above(0.25)},
      {"ScaledTanh", {2}, {0.5}, [](double x) { return 2 * std::tanh(0.5 * x); }},
      {"HardSigmoid", {}, {}, hard(0.2, 0.5)},
      {"HardSigmoid", {0.5}, {0.25}, hard(0.5, 0.25)},
      {"Elu", {}, {}, elu(1)},
      {"Elu", {0.5}, {}, elu(0.5)},
      {"Softsign", {}, {}, [](double x) { return x / (1 + std::abs(x)); }},
      {"softplus", {}, {}, [](double x) { return std::log1p(std::exp(x)); }},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.name + (each.alpha.empty() ? "" : " with parameters"));
    Engine engine = rnn({.activations = {each.name}, .alpha = each.alpha, .beta = each.beta});
    expect_near(run_steps(engine), expected(each.f, false));
  }
}

TEST(RecurrentActivations, DirectionsTakeNumbersInTurn) {
  Engine engine = rnn({.activations = {"LeakyRelu", "Affine"},
                       .alpha = {0.5, 0.75},
                       .beta = {-0.25},
                       .direction = "bidirectional"});
  const Doubles y = run_steps(engine);
  const Doubles forward = expected([](double x) { return x < 0 ? 0.5 * x : x; }, false);
  const Doubles backward = expected([](double x) { return 0.75 * x - 0.25; }, true);
  Doubles both;
  for (std::size_t k = 0; k < forward.size(); ++k) {
    both.push_back(forward[k]);
    both.push_back(backward[k]);
  }
  expect_near(y, both);
}

TEST(RecurrentActivations, ClipBoundsWhatTheyAreGiven) {
  Engine engine = rnn({.activations = {"Affine"}, .alpha = {2}, .beta = {0.5}, .clip = 0.75});
  expect_near(run_steps(engine),
              expected([](double x) { return 2 * std::clamp(x, -0.75, 0.75) + 0.5; }, false));
}

TEST(RecurrentActivations, UnknownOnesAndMissingNumbersAreErrors) {
  const auto message = [](const Attributes& attributes) -> std::string {
    try {
      Engine engine = rnn(attributes);
      run_steps(engine);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_THAT(message({.activations = {"Swoosh"}}), HasSubstr("activation Swoosh"));
  EXPECT_THAT(message({.activations = {"ScaledTanh"}, .alpha = {1}}), HasSubstr("activation_beta"));
}

/// One step of an LSTM of one unit, whose gates all see x + h / 4; f is a hard sigmoid.
struct Unit {
  double hidden, cell;
  Unit step(double x) const {
    const double all = x + kRecurrent * hidden;
    const double gate = std::clamp(0.2 * all + 0.5, 0.0, 1.0);
    const double next = gate * cell + gate * (all / (1 + std::abs(all)));
    return {gate * std::max(next, 0.0), next};
  }
};

TEST(RecurrentActivations, BatchFirstWithStates) {
  constexpr std::int64_t kBatch = 3;
  constexpr std::int64_t kLength = 4;
  ModelBuilder model;
  model.input("x", {"3", "4", "1"}).input("h", {"3", "2", "1"}).input("c", {"3", "2", "1"});
  model.output("y").output("last").output("cell");
  add_floats(model.initializer("w", {2, 4, 1}, TensorProto::FLOAT), Doubles(8, 1));
  add_floats(model.initializer("r", {2, 4, 1}, TensorProto::FLOAT), Doubles(8, kRecurrent));
  NodeProto& node = model.node("LSTM", {"x", "w", "r", "", "", "h", "c"}, {"y", "last", "cell"});
  ModelBuilder::set_int(node, "hidden_size", 1);
  const std::vector<std::string> names{"HardSigmoid", "Softsign", "Relu"};
  Attributes attributes{.activations = names, .direction = "bidirectional", .batch_first = true};
  attributes.activations.insert(attributes.activations.end(), names.begin(), names.end());
  set_attributes(node, attributes);
  std::vector<float> x(kBatch * kLength);
  for (std::size_t k = 0; k < x.size(); ++k) x[k] = std::sin(static_cast<float>(k + 1));
  const std::vector<float> h{0.5f, -0.5f, 0.25f, 1, -1, 0.125f};
  const std::vector<float> c{1, 0.5f, -0.25f, 2, 0.75f, -0.5f};
  Engine engine = model.load();
  const auto got =
      engine.run({Tensor::of<float>(x, {kBatch, kLength, 1}), Tensor::of<float>(h, {kBatch, 2, 1}),
                  Tensor::of<float>(c, {kBatch, 2, 1})});
  Doubles y(kBatch * kLength * 2);
  Doubles last;
  Doubles cell;
  for (std::size_t row = 0; row < kBatch; ++row) {
    for (std::size_t direction = 0; direction < 2; ++direction) {
      Unit unit{h[2 * row + direction], c[2 * row + direction]};
      for (std::size_t k = 0; k < kLength; ++k) {
        const std::size_t at = row * kLength + (direction == 1 ? kLength - 1 - k : k);
        unit = unit.step(x[at]);
        y[2 * at + direction] = unit.hidden;
      }
      last.push_back(unit.hidden);
      cell.push_back(unit.cell);
    }
  }
  EXPECT_THAT(got[0].sizes(), testing::ElementsAre(kBatch, kLength, 2, 1));
  EXPECT_THAT(got[1].sizes(), testing::ElementsAre(kBatch, 2, 1));
  expect_near(got[0].to_doubles(), y);
  expect_near(got[1].to_doubles(), last);
  expect_near(got[2].to_doubles(), cell);
}

}  // namespace
}  // namespace heddle::onnx_test
