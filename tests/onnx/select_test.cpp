// ONNX ops that keep as many elements as the data say, or read between elements, against their definitions.

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <random>

#include "engine/onnx/onnx.pb.h"
#include "heddle/custom_op.h"
#include "heddle/error.h"
#include "heddle/ops.h"
#include "tests/onnx/model_builder.h"

namespace heddle::onnx_test {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

void set_text(NodeProto& node, const std::string& name, const std::string& value) {
  AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(AttributeProto::STRING);
  attribute.set_s(value);
}

Tensor random_floats(std::mt19937& random, Sizes sizes, float low, float high) {
  Tensor tensor = Tensor::empty(f32, std::move(sizes));
  for (std::int64_t k = 0; k < tensor.count(); ++k)
    tensor.data_as<float>()[k] = std::uniform_real_distribution(low, high)(random);
  return tensor;
}

TEST(Select, WhatIsNotZeroOfInputsAndOfConstants) {
  ModelBuilder model;
  model.input("x", {"n", "m"}).output("y", TensorProto::INT64).output("z", TensorProto::INT64);
  model.output("one", TensorProto::INT64);
  model.ints("known", {0, 4, 0, -1});
  model.initializer("scalar", {}, TensorProto::BOOL).add_int32_data(1);
  model.node("NonZero", {"x"}, {"y"});
  model.node("NonZero", {"known"}, {"z"});
  model.node("NonZero", {"scalar"}, {"one"});
  Engine engine = model.load();
  const auto got = engine.run({Tensor::of<float>({1, 0, 0, 2, 3, 0}, {2, 3})});
  EXPECT_THAT(got[0].to_doubles(), ElementsAre(0, 1, 1, 0, 0, 1));
  EXPECT_THAT(got[1].to_doubles(), ElementsAre(1, 3));
  EXPECT_THAT(got[2].sizes(), ElementsAre(1, 1)) << "a scalar counts as a vector";
  EXPECT_THAT(engine.run({Tensor::zeros(f32, {2, 3})})[0].sizes(), ElementsAre(2, 0));
  EXPECT_EQ(engine.stats().compiles, 1u);
}

TEST(Select, CompressByAConditionThatTheRunComputes) {
  ModelBuilder model;
  model.input("x", {"n", "m"}).output("rows").output("all");
  model.initializer("half", {}, TensorProto::FLOAT).add_float_data(0.5f);
  model.ints("last", {1});
  model.node("ReduceMax", {"x"}, {"largest"});
  ModelBuilder::set_ints(*model.graph().mutable_node(0), "axes", {1});
  ModelBuilder::set_int(*model.graph().mutable_node(0), "keepdims", 0);
  model.node("Greater", {"largest", "half"}, {"large"});
  ModelBuilder::set_int(model.node("Compress", {"x", "large"}, {"rows"}), "axis", -2);
  model.node("Compress", {"x", "large"}, {"all"});
  Engine engine = model.load();
  const auto got = engine.run({Tensor::of<float>({1, 2, 0, 0, 3, 4}, {3, 2})});
  EXPECT_THAT(got[0].to_doubles(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(got[1].to_doubles(), ElementsAre(1, 0)) << "a condition shorter than the elements";
}

/// The boxes kept, by the definition: greedily, one class of one batch after the other.
std::vector<double> kept_boxes(const Tensor& boxes, const Tensor& scores, std::int64_t most,
                               double overlap, double least) {
  const auto sizes = scores.sizes();
  const auto corner = [&](std::int64_t b, std::int64_t n, int k) {
    const float* box = boxes.data_as<const float>() + (b * sizes[2] + n) * 4;
    const int d = k % 2;
    return k < 2 ? std::min(box[d], box[d + 2]) : std::max(box[d], box[d + 2]);
  };
  const auto common = [&](std::int64_t b, std::int64_t i, std::int64_t j) {
    double area = 1;
    for (int d = 0; d < 2; ++d)
      area *= std::max(0.0f, std::min(corner(b, i, d + 2), corner(b, j, d + 2)) -
                                 std::max(corner(b, i, d), corner(b, j, d)));
    return area;
  };
  std::vector<double> rows;
  for (std::int64_t b = 0; b < sizes[0]; ++b) {
    for (std::int64_t c = 0; c < sizes[1]; ++c) {
      const float* score = scores.data_as<const float>() + (b * sizes[1] + c) * sizes[2];
      std::vector<std::int64_t> kept;
      std::vector<bool> seen(static_cast<std::size_t>(sizes[2]), false);
      while (static_cast<std::int64_t>(kept.size()) < most) {
        std::int64_t best = -1;
        for (std::int64_t n = 0; n < sizes[2]; ++n)
          if (!seen[static_cast<std::size_t>(n)] && score[n] > least &&
              (best < 0 || score[n] > score[best]))
            best = n;
        if (best < 0) break;
        seen[static_cast<std::size_t>(best)] = true;
        const bool overlaps = std::ranges::any_of(kept, [&](std::int64_t k) {
          const double both = common(b, k, best);
          return both / (common(b, k, k) + common(b, best, best) - both) > overlap;
        });
        if (overlaps) continue;
        kept.push_back(best);
        for (const std::int64_t number : {b, c, best}) rows.push_back(static_cast<double>(number));
      }
    }
  }
  return rows;
}

ModelBuilder suppression_model() {
  ModelBuilder model;
  model.input("boxes", {"b", "n", "k"}).input("scores", {"d", "c", "m"});
  model.input("most", {"1"}, TensorProto::INT64).input("iou", {"1"}).input("least", {"1"});
  model.output("y", TensorProto::INT64);
  model.node("NonMaxSuppression", {"boxes", "scores", "most", "iou", "least"}, {"y"});
  return model;
}

TEST(Select, BoxesThatOverlapABetterOneGo) {
  std::mt19937 random(1);
  Engine engine = suppression_model().load();
  for (const auto& [batches, classes, boxes] :
       {std::tuple(1, 1, 1), {2, 3, 30}, {1, 2, 100}, {3, 1, 6}, {1, 1, 0}, {0, 1, 4}}) {
    for (const std::int64_t most : {0, 1, 5, 1000}) {
      const Tensor corners = random_floats(random, {batches, boxes, 4}, 0, 3);
      const Tensor scores = random_floats(random, {batches, classes, boxes}, 0, 1);
      const float overlap = most % 2 == 0 ? 0.5f : 0.1f;
      const Tensor got =
          engine.run({corners, scores, Tensor::of<std::int64_t>({most}, {1}),
                      Tensor::of<float>({overlap}, {1}), Tensor::of<float>({0.25f}, {1})})[0];
      EXPECT_THAT(got.to_doubles(),
                  ElementsAreArray(kept_boxes(corners, scores, most, overlap, 0.25)));
      EXPECT_EQ(got.sizes()[1], 3);
    }
  }
  EXPECT_EQ(engine.stats().evaluator_steps, 0u);
}

/// By falling score, whatever its sign; zeros are equal.
TEST(Select, BoxesGoByTheirScoresThenByTheirNumbers) {
  std::vector<float> corners;
  for (int k = 0; k < 7; ++k) {
    const auto at = static_cast<float>(2 * k);
    corners.insert(corners.end(), {at, at, at + 1, at + 1});
  }
  const Tensor boxes = Tensor::of(std::span<const float>(corners), {1, 7, 4});
  const Tensor scores =
      Tensor::of<float>({-0.0F, 0, -HUGE_VALF, HUGE_VALF, -1, -0.5F, 0}, {1, 1, 7});
  const Tensor got = suppression_model().load().run(
      {boxes, scores, Tensor::of<std::int64_t>({7}, {1}), Tensor::of<float>({0.5F}, {1}),
       Tensor::of<float>({-HUGE_VALF}, {1})})[0];
  EXPECT_THAT(got.to_doubles(), ElementsAre(0, 0, 3, 0, 0, 0, 0, 0, 1, 0, 0, 6, 0, 0, 5, 0, 0, 4));
}

TEST(Select, BoxesAreTheEvaluatorsToo) {
  std::mt19937 random(2);
  const auto f = [](const Tensor& boxes, const Tensor& scores) {
    const CallArg arguments[] = {boxes,
                                 scores,
                                 Tensor::scalar_int(i64, 7),
                                 Tensor::scalar(f32, 0.3),
                                 nullptr,
                                 min(scores.size(2), 7),
                                 true};
    const auto kept = call("heddle::non_max_suppression", arguments);
    return std::pair(gather(kept[0], iota({as_size(kept[1])}), 0), kept[1]);
  };
  Engine reference(f, {.device = Device::reference()});
  Engine compiled(f);
  for (const std::int64_t boxes : {1, 40, 0}) {
    const std::vector<Tensor> inputs{random_floats(random, {2, boxes, 4}, 0.5f, 2),
                                     random_floats(random, {2, 3, boxes}, 0, 1)};
    EXPECT_EQ(compiled.run(inputs)[0].to_doubles(), reference.run(inputs)[0].to_doubles());
  }
}

/// More boxes are kept than are compared at once; scores are equal or no number, boxes are without area, infinite or no number.
TEST(Select, OddBoxesAreTheEvaluatorsToo) {
  std::mt19937 random(3);
  const auto f = [](const Tensor& boxes, const Tensor& scores) {
    const CallArg arguments[] = {boxes,
                                 scores,
                                 Tensor::scalar_int(i64, 70),
                                 Tensor::scalar(f32, 0.2),
                                 Tensor::scalar(f32, 0.1),
                                 min(scores.size(2), 70),
                                 false};
    const auto kept = call("heddle::non_max_suppression", arguments);
    return gather(kept[0], iota({as_size(kept[1])}), 0);
  };
  Engine reference(f, {.device = Device::reference()});
  Engine compiled(f);
  Tensor boxes = random_floats(random, {1, 200, 4}, 0, 6);
  Tensor scores = random_floats(random, {1, 2, 200}, 0, 1);
  const float odd[] = {std::numeric_limits<float>::quiet_NaN(), 1e30f,
                       std::numeric_limits<float>::infinity(), -1e-30f};
  for (std::int64_t k = 0; k < scores.count(); ++k) {
    float& score = scores.data_as<float>()[k];
    score = k % 23 == 0 ? odd[0] : std::floor(score * 8) / 8;
  }
  for (std::int64_t n = 0; n < 200; n += 9) {
    float* box = boxes.data_as<float>() + 4 * n;
    if (n % 2 == 0) box[2] = box[0];
    box[n % 4] = odd[n / 9 % 4];
  }
  const Tensor got = compiled.run({boxes, scores})[0];
  EXPECT_GT(got.sizes()[0], 40);
  EXPECT_EQ(got.to_doubles(), reference.run({boxes, scores})[0].to_doubles());
}

/// What the error of a run says.
template <typename E>
std::string refused(Engine& engine, const std::vector<Tensor>& inputs) {
  try {
    engine.run(inputs);
  } catch (const E& error) {
    return error.what();
  }
  return "no such error";
}

TEST(Select, BoxesThatDoNotFit) {
  const Tensor one = Tensor::of<std::int64_t>({1}, {1});
  const Tensor half = Tensor::of<float>({0.5f}, {1});
  const std::string at = " at the_NonMaxSuppression (ai.onnx NonMaxSuppression): ";
  Engine engine = suppression_model().load();
  EXPECT_EQ(refused<ShapeError>(engine, {ones({1, 5, 4}), ones({1, 2, 6}), one, half, half}),
            "heddle::non_max_suppression: C2 boxes of scores" + at + "expected 5, got 6");
  EXPECT_EQ(refused<ShapeError>(engine, {ones({1, 5, 3}), ones({1, 2, 5}), one, half, half}),
            "heddle::non_max_suppression: C1 boxes" + at + "expected 4, got 3");
  EXPECT_EQ(refused<CustomOpError>(
                engine, {ones({1, 6, 4}), ones({1, 2, 6}), one, Tensor::of<float>({2}, {1}), half}),
            "heddle::non_max_suppression: the kernel failed at %v0" + at +
                "got heddle::non_max_suppression: C3 iou_threshold: expected 0 to 1, got 2");
  EXPECT_EQ(engine.run({ones({1, 6, 4}), ones({1, 2, 6}), one, half, half})[0].sizes()[0], 2);
}

TEST(Select, DistinctElementsWithPlacesAndCounts) {
  for (const bool sorted : {true, false}) {
    ModelBuilder model;
    model.input("x", {"n", "m"}).output("y");
    for (const char* name : {"first", "inverse", "count"}) model.output(name, TensorProto::INT64);
    ModelBuilder::set_int(model.node("Unique", {"x"}, {"y", "first", "inverse", "count"}), "sorted",
                          sorted ? 1 : 0);
    Engine engine = model.load();
    const auto got = engine.run({Tensor::of<float>({2, 1, 1, 3, 4, 3}, {2, 3})});
    const auto expect = [&](std::size_t k, std::vector<double> want) {
      EXPECT_THAT(got[k].to_doubles(), ElementsAreArray(want)) << k;
    };
    expect(0, sorted ? std::vector<double>{1, 2, 3, 4} : std::vector<double>{2, 1, 3, 4});
    expect(1, sorted ? std::vector<double>{1, 0, 3, 4} : std::vector<double>{0, 1, 3, 4});
    expect(2,
           sorted ? std::vector<double>{1, 0, 0, 2, 3, 2} : std::vector<double>{0, 1, 1, 2, 3, 2});
    expect(3, sorted ? std::vector<double>{2, 1, 2, 1} : std::vector<double>{1, 2, 2, 1});
    EXPECT_THAT(engine.run({Tensor::zeros(f32, {0, 2})})[3].sizes(), ElementsAre(0));
    EXPECT_EQ(engine.stats().compiles, 1u);
  }
}

TEST(Select, DistinctSlicesAlongAnAxis) {
  ModelBuilder model;
  model.input("x", {"n", "m"}).output("y").output("at", TensorProto::INT64);
  model.output("inverse", TensorProto::INT64).output("count", TensorProto::INT64);
  NodeProto& node = model.node("Unique", {"x"}, {"y", "at", "inverse", "count"});
  ModelBuilder::set_int(node, "axis", 1);
  Engine engine = model.load();
  const auto got = engine.run({Tensor::of<float>({2, 1, 2, 1, 2, 0, 5, 0, 4, 0}, {2, 5})});
  EXPECT_THAT(got[0].sizes(), ElementsAre(2, 3));
  EXPECT_THAT(got[0].to_doubles(), ElementsAre(1, 1, 2, 4, 5, 0));
  EXPECT_THAT(got[1].to_doubles(), ElementsAre(3, 1, 0));
  EXPECT_THAT(got[2].to_doubles(), ElementsAre(2, 1, 2, 0, 2));
  EXPECT_THAT(got[3].to_doubles(), ElementsAre(1, 1, 3));
}

TEST(Select, ARangeUpToANumberThatTheRunComputes) {
  for (const bool real : {false, true}) {
    const int dtype = real ? TensorProto::FLOAT : TensorProto::INT64;
    ModelBuilder model;
    model.input("x", {"n"}, dtype).output("y", dtype).output("z", dtype);
    for (const auto& [name, number] : {std::pair("zero", 0), {"two", 2}, {"back", -2}}) {
      TensorProto& tensor = model.initializer(name, {}, dtype);
      if (real) tensor.add_float_data(static_cast<float>(number));
      if (!real) tensor.add_int64_data(number);
    }
    ModelBuilder::set_int(model.node("ReduceSum", {"x"}, {"sum"}), "keepdims", 0);
    model.node("Range", {"zero", "sum", "two"}, {"y"});
    model.node("Range", {"sum", "two", "back"}, {"z"});
    Engine engine = model.load();
    const auto run = [&](int sum) {
      return engine.run({cast(Tensor::of<std::int64_t>({1, sum - 1}, {2}), real ? f32 : i64)});
    };
    EXPECT_THAT(run(5)[0].to_doubles(), ElementsAre(0, 2, 4));
    EXPECT_THAT(run(6)[0].to_doubles(), ElementsAre(0, 2, 4));
    EXPECT_THAT(run(5)[1].to_doubles(), ElementsAre(5, 3));
    EXPECT_THAT(run(6)[1].to_doubles(), ElementsAre(6, 4));
    EXPECT_THAT(run(-3)[0].sizes(), ElementsAre(0));
    EXPECT_THAT(run(2)[1].sizes(), ElementsAre(0));
    EXPECT_EQ(engine.stats().compiles, 1u);
  }
}

/// One element of GridSample's result by the definition; `padding`: 0 zeros, 1 border, 2 reflection.
class Sampler {
 public:
  Sampler(const Tensor& x, int padding, bool corners)
      : x_(x.data_as<const float>()),
        rows_(x.sizes()[2]),
        columns_(x.sizes()[3]),
        padding_(padding),
        corners_(corners) {}

  double at(std::int64_t plane, float grid_x, float grid_y, const std::string& mode) const {
    const double column = position(grid_x, columns_);
    const double row = position(grid_y, rows_);
    if (mode == "nearest") return element(plane, std::nearbyint(row), std::nearbyint(column));
    const int low = mode == "bilinear" ? 0 : -1;
    double sum = 0;
    for (int i = low; i <= 1 - low; ++i)
      for (int j = low; j <= 1 - low; ++j)
        sum += weight(row - std::floor(row) - i, mode) *
               weight(column - std::floor(column) - j, mode) *
               element(plane, std::floor(row) + i, std::floor(column) + j);
    return sum;
  }

 private:
  double position(float grid, std::int64_t length) const {
    const double n = static_cast<double>(length);
    return corners_ ? (grid + 1) / 2 * (n - 1) : ((grid + 1) * n - 1) / 2;
  }
  static double weight(double t, const std::string& mode) {
    t = std::abs(t);
    if (mode == "bilinear") return std::max(0.0, 1 - t);
    const double a = -0.75;
    if (t <= 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
    return t < 2 ? a * (((t - 5) * t + 8) * t - 4) : 0;
  }
  std::int64_t inside(double at, std::int64_t length) const {
    const double low = corners_ ? 0 : -0.5;
    const double high = static_cast<double>(length) - 1 - low;
    while (padding_ == 2 && high > low && (at < low || at > high))
      at = at < low ? 2 * low - at : 2 * high - at;
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(at), 0, length - 1);
  }
  double element(std::int64_t plane, double row, double column) const {
    const bool is_there = row >= 0 && row < static_cast<double>(rows_) && column >= 0 &&
                          column < static_cast<double>(columns_);
    if (padding_ == 0 && !is_there) return 0;
    return x_[(plane * rows_ + inside(row, rows_)) * columns_ + inside(column, columns_)];
  }

  const float* x_;
  std::int64_t rows_, columns_;
  int padding_;
  bool corners_;
};

TEST(Sample, AtPointsOfAGrid) {
  std::mt19937 random(3);
  const char* paddings[] = {"zeros", "border", "reflection"};
  for (const std::string mode : {"bilinear", "nearest", "bicubic"}) {
    for (int padding = 0; padding < 3; ++padding) {
      for (const bool corners : {false, true}) {
        SCOPED_TRACE(mode + " " + paddings[padding] + (corners ? " corners" : ""));
        ModelBuilder model;
        model.input("x", {"n", "c", "h", "w"}).input("grid", {"n", "p", "q", "2"}).output("y");
        NodeProto& node = model.node("GridSample", {"x", "grid"}, {"y"});
        set_text(node, "mode", mode);
        set_text(node, "padding_mode", paddings[padding]);
        ModelBuilder::set_int(node, "align_corners", corners ? 1 : 0);
        Engine engine = model.load();
        for (const auto& [rows, columns] : {std::pair(4, 5), {1, 3}, {1, 1}, {7, 2}}) {
          const Tensor x = random_floats(random, {2, 3, rows, columns}, -1, 1);
          const Tensor grid = random_floats(random, {2, 3, 4, 2}, -2.5f, 2.5f);
          const Tensor got = engine.run({x, grid})[0];
          ASSERT_THAT(got.sizes(), ElementsAre(2, 3, 3, 4));
          const Sampler sampler(x, padding, corners);
          for (std::int64_t k = 0; k < got.count(); ++k) {
            const float* point = grid.data_as<const float>() + (k / 36 * 12 + k % 12) * 2;
            EXPECT_NEAR(got.data_as<const float>()[k], sampler.at(k / 12, point[0], point[1], mode),
                        2e-5)
                << k;
          }
        }
      }
    }
  }
}

TEST(Sample, APointThatIsNoNumberIsNoError) {
  ModelBuilder model;
  model.input("x", {"1", "1", "2", "2"}).input("grid", {"1", "1", "1", "2"}).output("y");
  set_text(model.node("GridSample", {"x", "grid"}, {"y"}), "padding_mode", "border");
  const Tensor nan = Tensor::full(f32, {1, 1, 1, 2}, std::nan(""));
  EXPECT_EQ(model.load().run({ones({1, 1, 2, 2}), nan})[0].count(), 1);
}

/// The p-norm of what lies under each window, of vectors.
std::vector<double> norms(const Tensor& x, std::int64_t kernel, std::int64_t stride,
                          std::int64_t pads, std::int64_t dilation, double p) {
  const std::int64_t length = x.sizes()[2];
  const std::int64_t reach = dilation * (kernel - 1) + 1;
  std::vector<double> all;
  for (std::int64_t at = 0; at < length + pads; at += stride) {
    if (at - stride + reach >= length + 2 * pads && at > 0) break;
    double sum = 0;
    for (std::int64_t tap = 0; tap < kernel; ++tap)
      if (const std::int64_t k = at - pads + tap * dilation; k >= 0 && k < length)
        sum += std::pow(std::abs(x.data_as<const float>()[k]), p);
    all.push_back(std::pow(sum, 1 / p));
  }
  return all;
}

TEST(Sample, LpPoolWithALastWindowThatReachesPastTheEnd) {
  std::mt19937 random(4);
  for (std::int64_t kernel = 1; kernel <= 3; ++kernel) {
    for (std::int64_t stride = 1; stride <= 4; ++stride) {
      for (std::int64_t pads = 0; pads < kernel; ++pads) {
        for (std::int64_t dilation = 1; dilation <= 2; ++dilation) {
          ModelBuilder model;
          model.proto().mutable_opset_import(0)->set_version(18);
          model.input("x", {"1", "1", "w"}).output("y");
          NodeProto& node = model.node("LpPool", {"x"}, {"y"});
          ModelBuilder::set_ints(node, "kernel_shape", {kernel});
          ModelBuilder::set_ints(node, "strides", {stride});
          ModelBuilder::set_ints(node, "pads", {pads, pads});
          ModelBuilder::set_ints(node, "dilations", {dilation});
          ModelBuilder::set_int(node, "ceil_mode", 1);
          ModelBuilder::set_int(node, "p", 3);
          Engine engine = model.load();
          for (const std::int64_t length : {5, 6, 7, 8, 9, 12}) {
            SCOPED_TRACE(testing::Message() << kernel << " by " << stride << ", pads " << pads
                                            << ", dilation " << dilation << " of " << length);
            const Tensor x = random_floats(random, {1, 1, length}, -1, 1);
            EXPECT_THAT(engine.run({x})[0].to_doubles(),
                        testing::Pointwise(testing::DoubleNear(1e-5),
                                           norms(x, kernel, stride, pads, dilation, 3)));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle::onnx_test
