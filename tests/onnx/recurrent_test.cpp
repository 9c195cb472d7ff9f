// Recurrent layers over sequences of any length, against the equations of the ONNX LSTM written out.

#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "engine/onnx/onnx.pb.h"
#include "tests/onnx/model_builder.h"

namespace heddle::onnx_test {
namespace {

constexpr int kHidden = 2;
constexpr int kGates = 4 * kHidden;
using Row = std::array<double, kHidden>;

/// Numbers in [-0.5, 0.5] that repeat after a while.
float number(std::int64_t k, int salt) {
  return static_cast<float>((k * 37 + salt * 11) % 101) / 100.0f - 0.5f;
}

void fill(TensorProto& tensor, std::int64_t count, int salt) {
  for (std::int64_t k = 0; k < count; ++k) tensor.add_float_data(number(k, salt));
}

enum Salt : int { kX = 1, kW = 2, kR = 3, kB = 4 };

/// An LSTM of two inputs and two hidden units over `n` steps.
Engine lstm(const std::string& direction) {
  ModelBuilder model;
  model.input("x", {"n", "1", "2"}).output("y").output("h").output("c");
  fill(model.initializer("w", {1, kGates, 2}, TensorProto::FLOAT), kGates * 2, kW);
  fill(model.initializer("r", {1, kGates, kHidden}, TensorProto::FLOAT), kGates * kHidden, kR);
  fill(model.initializer("b", {1, 2 * kGates}, TensorProto::FLOAT), 2 * kGates, kB);
  NodeProto& node = model.node("LSTM", {"x", "w", "r", "b"}, {"y", "h", "c"});
  ModelBuilder::set_int(node, "hidden_size", kHidden);
  AttributeProto& attribute = *node.add_attribute();
  attribute.set_name("direction");
  attribute.set_type(AttributeProto::STRING);
  attribute.set_s(direction);
  return model.load();
}

Tensor input(std::int64_t steps) {
  Tensor x = Tensor::empty(f32, {steps, 1, 2});
  for (std::int64_t k = 0; k < x.count(); ++k) x.data_as<float>()[k] = number(k, kX);
  return x;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct State {
  Row hidden{};
  Row cell{};
};

/// Gates lie in the order input, output, forget, cell.
State step(const State& before, std::int64_t at) {
  std::array<double, kGates> z{};
  for (int g = 0; g < kGates; ++g) {
    z[g] = number(g, kB) + number(kGates + g, kB);
    for (int k = 0; k < 2; ++k) z[g] += number(2 * g + k, kW) * number(2 * at + k, kX);
    for (int k = 0; k < kHidden; ++k) z[g] += number(kHidden * g + k, kR) * before.hidden[k];
  }
  State after;
  for (int k = 0; k < kHidden; ++k) {
    after.cell[k] = sigmoid(z[2 * kHidden + k]) * before.cell[k] +
                    sigmoid(z[k]) * std::tanh(z[3 * kHidden + k]);
    after.hidden[k] = sigmoid(z[kHidden + k]) * std::tanh(after.cell[k]);
  }
  return after;
}

void expect_lstm(Engine& engine, std::int64_t steps, bool reverse) {
  SCOPED_TRACE(std::to_string(steps) + " steps");
  const std::vector<Tensor> got = engine.run({input(steps)});
  ASSERT_EQ(std::vector<std::int64_t>(got[0].sizes().begin(), got[0].sizes().end()),
            (std::vector<std::int64_t>{steps, 1, 1, kHidden}));
  const std::vector<double> y = got[0].to_doubles();
  State state;
  for (std::int64_t k = 0; k < steps; ++k) {
    const std::int64_t at = reverse ? steps - 1 - k : k;
    state = step(state, at);
    for (std::int64_t u = 0; u < kHidden; ++u)
      EXPECT_NEAR(y[static_cast<std::size_t>(kHidden * at + u)],
                  state.hidden[static_cast<std::size_t>(u)], 1e-6);
  }
  for (std::size_t u = 0; u < kHidden; ++u) {
    EXPECT_NEAR(got[1].to_doubles()[u], state.hidden[u], 1e-6);
    EXPECT_NEAR(got[2].to_doubles()[u], state.cell[u], 1e-6);
  }
}

TEST(Recurrent, OneCompileServesSequencesOfAnyLength) {
  Engine engine = lstm("forward");
  for (const std::int64_t steps : {3, 2, 700, 1}) expect_lstm(engine, steps, false);
  EXPECT_EQ(engine.stats().compiles, 1u);
  EXPECT_EQ(engine.stats().evaluator_steps, 0u);
}

TEST(Recurrent, ReverseStartsAtTheEnd) {
  Engine engine = lstm("reverse");
  for (const std::int64_t steps : {4, 5}) expect_lstm(engine, steps, true);
}

/// A GRU in both directions over two sequences, of one number a step.
Engine gru_with_lengths(const std::string& steps) {
  ModelBuilder model;
  model.input("x", {steps, "2", "1"}).input("lengths", {"2"}, TensorProto::INT32);
  model.output("y").output("h");
  fill(model.initializer("w", {2, 3, 1}, TensorProto::FLOAT), 6, kW);
  fill(model.initializer("r", {2, 3, 1}, TensorProto::FLOAT), 6, kR);
  NodeProto& node = model.node("GRU", {"x", "w", "r", "", "lengths"}, {"y", "h"});
  ModelBuilder::set_int(node, "hidden_size", 1);
  AttributeProto& attribute = *node.add_attribute();
  attribute.set_name("direction");
  attribute.set_type(AttributeProto::STRING);
  attribute.set_s("bidirectional");
  return model.load();
}

/// Steps behind a sequence's end are infinite: nothing comes from them.
std::vector<Tensor> with_lengths(std::int64_t steps, const std::vector<std::int32_t>& lengths) {
  Tensor x = Tensor::empty(f32, {steps, 2, 1});
  for (std::int64_t k = 0; k < x.count(); ++k)
    x.data_as<float>()[k] =
        k / 2 < lengths[static_cast<std::size_t>(k % 2)] ? number(k, kX) : INFINITY;
  return {x, Tensor::of<std::int32_t>(lengths, {2})};
}

/// 48 steps are multiplied with the weights in three parts, 50 in three and a rest.
TEST(Recurrent, StepsBeyondTheLongestSequenceAreNotRun) {
  constexpr int kFirst = 20;
  constexpr int kSecond = 9;
  for (const auto& [dim, steps] : {std::pair("48", 48), {"n", 50}, {"n", 48}, {"n", 20}}) {
    SCOPED_TRACE(std::string(dim) + " " + std::to_string(steps));
    Engine engine = gru_with_lengths(dim);
    const std::vector<Tensor> both = engine.run(with_lengths(steps, {kFirst, kSecond}));
    const Tensor first = engine.run(with_lengths(steps, {kFirst, 0}))[0];
    const Tensor second = engine.run(with_lengths(steps, {0, kSecond}))[0];
    const std::vector<double> y = both[0].to_doubles();  // [step, direction, row]
    for (std::size_t k = 0; k < y.size(); ++k) {
      const bool of_first = k % 2 == 0;
      EXPECT_EQ(y[k], (of_first ? first : second).to_doubles()[k]) << k;
      EXPECT_EQ(y[k] != 0, static_cast<int>(k) / 4 < (of_first ? kFirst : kSecond)) << k;
    }
    const std::vector<double> last = both[1].to_doubles();  // [direction, row]
    EXPECT_EQ(last, (std::vector<double>{y[4 * kFirst - 4], y[4 * kSecond - 3], y[2], y[3]}));
    const std::string text = engine.graph_text(with_lengths(steps, {kFirst, kSecond}), false);
    EXPECT_NE(text.find("counted = true"), std::string::npos) << text;
    EXPECT_EQ(engine.stats().compiles, 1u);
  }
}

constexpr int kWide = 72;  // its weights are packed

/// A GRU of one input over five steps; its weights are small, so that no gate saturates.
Engine gru(bool linear_before_reset) {
  ModelBuilder model;
  model.input("x", {"5", "1", "1"}).output("y");
  fill(model.initializer("w", {1, 3 * kWide, 1}, TensorProto::FLOAT), 3 * kWide, kW);
  fill(model.initializer("r", {1, 3 * kWide, kWide}, TensorProto::FLOAT), 3 * kWide * kWide, kR);
  fill(model.initializer("b", {1, 6 * kWide}, TensorProto::FLOAT), 6 * kWide, kB);
  NodeProto& node = model.node("GRU", {"x", "w", "r", "b"}, {"y"});
  ModelBuilder::set_int(node, "hidden_size", kWide);
  ModelBuilder::set_int(node, "linear_before_reset", linear_before_reset ? 1 : 0);
  return model.load();
}

/// One step of the ONNX equations; gates lie in the order update, reset, candidate.
std::vector<double> gru_step(const std::vector<double>& hidden, double x, bool linear_first) {
  const auto input = [&](int g) { return number(g, kW) * x + number(g, kB); };
  const auto recurrent = [&](int g, const std::vector<double>& state) {
    double sum = number(3 * kWide + g, kB);
    for (int k = 0; k < kWide; ++k)
      sum += number(kWide * g + k, kR) * state[static_cast<std::size_t>(k)];
    return sum;
  };
  std::vector<double> reset;
  std::vector<double> reset_hidden;
  for (int u = 0; u < kWide; ++u) {
    reset.push_back(sigmoid(input(kWide + u) + recurrent(kWide + u, hidden)));
    reset_hidden.push_back(reset.back() * hidden[static_cast<std::size_t>(u)]);
  }
  std::vector<double> next;
  for (int u = 0; u < kWide; ++u) {
    const auto k = static_cast<std::size_t>(u);
    const double update = sigmoid(input(u) + recurrent(u, hidden));
    const int g = 2 * kWide + u;
    const double through =
        linear_first ? reset[k] * recurrent(g, hidden) : recurrent(g, reset_hidden);
    next.push_back((1 - update) * std::tanh(input(g) + through) + update * hidden[k]);
  }
  return next;
}

TEST(Recurrent, GruResetsBeforeOrAfterTheProduct) {
  for (const bool linear_first : {false, true}) {
    SCOPED_TRACE(linear_first);
    Engine engine = gru(linear_first);
    Tensor x = Tensor::empty(f32, {5, 1, 1});
    for (std::int64_t k = 0; k < 5; ++k) x.data_as<float>()[k] = number(k, kX);
    const std::vector<double> y = engine.run({x})[0].to_doubles();
    ASSERT_EQ(y.size(), 5u * kWide);
    std::vector<double> hidden(kWide);
    for (std::size_t step = 0; step < 5; ++step) {
      hidden = gru_step(hidden, number(static_cast<std::int64_t>(step), kX), linear_first);
      for (std::size_t u = 0; u < kWide; ++u) EXPECT_NEAR(y[step * kWide + u], hidden[u], 1e-5);
    }
  }
}

}  // namespace
}  // namespace heddle::onnx_test
