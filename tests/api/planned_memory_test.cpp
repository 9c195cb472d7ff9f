// Memory plans of what models are made of: the arena is within 2 % of the least that the chosen order needs, which is no more than
// the order of the callable needs. `bench/peers` tells the same of whole models.
#include <array>
#include <functional>
#include <gtest/gtest.h>

#include "examples/transformer/encoder.h"

#include "tests/api/order_support.h"

namespace hd = heddle;

namespace {

using hd::Tensor;
using hd::test::Json;
using Callable = std::function<Tensor(const Tensor&)>;

struct Model {
  std::string name;
  Callable run;
  Tensor input;
};

Tensor weights(hd::Sizes sizes) {
  static example::WeightSource source;
  return source.next(std::move(sizes), 0.1);
}

/// A convolution of 3 x 3 or 1 x 1 that keeps rows and columns, or halves them.
Callable conv(std::int64_t from, std::int64_t to, std::int64_t window, std::int64_t stride = 1) {
  const Tensor w = weights({to, from, window, window});
  const std::int64_t pad = window / 2;
  return [=](const Tensor& x) {
    return hd::relu(hd::conv(x, w, {}, {stride, stride}, {pad, pad}, {pad, pad}));
  };
}

/// Bottlenecks with residuals, the first of each stage with a convolution of its own beside.
Callable residual_stages() {
  std::vector<std::array<Callable, 4>> blocks;
  std::int64_t channels = 16;
  for (int stage = 0; stage < 3; ++stage)
    for (int block = 0; block < 2; ++block) {
      const std::int64_t stride = block == 0 && stage > 0 ? 2 : 1;
      const std::int64_t wide = std::int64_t{32} << stage;
      blocks.push_back({conv(channels, wide / 4, 1), conv(wide / 4, wide / 4, 3, stride),
                        conv(wide / 4, wide, 1),
                        channels == wide ? Callable() : conv(channels, wide, 1, stride)});
      channels = wide;
    }
  return [=](Tensor x) {
    for (const auto& [narrow, middle, wide, beside] : blocks)
      x = hd::relu(wide(middle(narrow(x))) + (beside ? beside(x) : x));
    return x;
  };
}

/// Down and up again, where each level also reads what the one of its size on the way down gave.
Callable u_net() {
  std::vector<Callable> down;
  std::vector<Callable> up;
  for (std::int64_t level = 0; level < 3; ++level) {
    const std::int64_t c = std::int64_t{8} << level;
    down.push_back(conv(level == 0 ? 16 : c, 2 * c, 3, level == 0 ? 1 : 2));
    up.push_back(conv(level == 2 ? 2 * c : 6 * c, level == 0 ? 16 : c, 3));
  }
  return [=](Tensor x) {
    std::vector<Tensor> skips;
    for (const Callable& level : down) skips.push_back(x = level(x));
    for (std::size_t level = up.size(); level-- > 0;) {
      if (level + 1 < up.size()) {
        const std::int64_t side = 16 >> level;
        const std::int64_t c = std::int64_t{8} << level;
        const Tensor wide =
            hd::reshape(hd::expand(hd::reshape(x, {1, 2 * c, side / 2, 1, side / 2, 1}),
                                   {1, 2 * c, side / 2, 2, side / 2, 2}),
                        {1, 2 * c, side, side});
        x = hd::concat({wide, wide, skips[level]}, 1);
      }
      x = up[level](x);
    }
    return x;
  };
}

/// Branches of different widths side by side, joined; the wide one first in the callable.
Callable branches() {
  std::vector<std::array<Callable, 5>> blocks;
  for (int k = 0; k < 3; ++k)
    blocks.push_back(
        {conv(16, 64, 1), conv(64, 8, 3), conv(16, 4, 1), conv(16, 8, 1), conv(8, 4, 3)});
  return [=](Tensor x) {
    for (const auto& [wide, narrow, one, two, three] : blocks) {
      const Tensor spread = wide(x);
      const Tensor first = one(x);
      const Tensor second = two(x);
      x = hd::concat({first, three(second), narrow(spread)}, 1);
    }
    return x;
  };
}

/// Many values that are made early and read late.
Callable fan() {
  std::vector<Tensor> w;
  for (int k = 0; k < 9; ++k) w.push_back(weights({64, 64}));
  return [=](const Tensor& x) {
    std::vector<Tensor> parts;
    for (const Tensor& matrix : w) parts.push_back(hd::tanh(hd::matmul(x, matrix)));
    Tensor sum = hd::matmul(parts[0], w[0]);
    for (std::size_t k = 1; k < parts.size(); ++k) sum = hd::matmul(sum + parts[k], w[k]);
    return hd::softmax(sum);
  };
}

std::vector<Model> models() {
  const Tensor ids = Tensor::zeros(hd::i64, {2, 33});
  const example::Encoder encoder{example::EncoderConfig{}};
  return {{"encoder", [=](const Tensor& x) { return encoder(x); }, ids},
          {"residual_stages", residual_stages(), Tensor::zeros(hd::f32, {1, 16, 28, 28})},
          {"u_net", u_net(), Tensor::zeros(hd::f32, {1, 16, 16, 16})},
          {"branches", branches(), Tensor::zeros(hd::f32, {1, 16, 14, 14})},
          {"fan", fan(), Tensor::zeros(hd::f32, {40, 64})}};
}

Json plan_of(const Model& model, hd::StepOrder order) {
  hd::EngineOptions options;
  options.threads = 1;
  options.order = order;
  hd::Engine engine(model.run, options);
  return Json::parse(engine.plan_json(std::vector{model.input}));
}

class PlannedMemory : public testing::TestWithParam<Model> {};

TEST_P(PlannedMemory, IsWithinTwoPercentOfTheLeast) {
  const Json plan = plan_of(GetParam(), hd::StepOrder::Smallest);
  const Json given = plan_of(GetParam(), hd::StepOrder::Given);
  const auto peak = plan["peak_bytes"].get<double>();
  const auto least = plan["lower_bound_bytes"].get<double>();
  EXPECT_GT(least, 0);
  EXPECT_LE(peak, 1.02 * least);
  EXPECT_LE(least, given["lower_bound_bytes"].get<double>());
}

INSTANTIATE_TEST_SUITE_P(Models, PlannedMemory, testing::ValuesIn(models()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
