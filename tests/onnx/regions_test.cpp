// Regions, windows and crops whose sizes are symbols, and the errors of those that fit nothing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/onnx/onnx.pb.h"
#include "heddle/error.h"
#include "tests/onnx/model_builder.h"

namespace heddle::onnx_test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::ElementsAreArray;

ModelBuilder align_model(std::int64_t samples, std::int64_t height = 2) {
  ModelBuilder model;
  model.input("x", {"n", "c", "h", "w"}).input("boxes", {"r", "4"});
  model.input("images", {"r"}, TensorProto::INT64).output("y");
  NodeProto& node = model.node("RoiAlign", {"x", "boxes", "images"}, {"y"});
  ModelBuilder::set_int(node, "output_height", height);
  ModelBuilder::set_int(node, "output_width", 2);
  ModelBuilder::set_int(node, "sampling_ratio", samples);
  return model;
}

/// Each element is its column.
Tensor columns(std::int64_t height, std::int64_t width) {
  Tensor x = Tensor::empty(f32, {1, 1, height, width});
  for (std::int64_t k = 0; k < x.count(); ++k)
    x.data_as<float>()[k] = static_cast<float>(k % width);
  return x;
}

TEST(Regions, AlignedOnesOfImagesOfAnySize) {
  for (const std::int64_t samples : {0, 3}) {
    Engine engine = align_model(samples).load();
    const Tensor images = Tensor::of<std::int64_t>({0, 0}, {2});
    const Tensor boxes = Tensor::of<float>({1, 1, 5, 5, 2, 0, 4, 2}, {2, 4});
    for (const std::int64_t width : {8, 11}) {
      const Tensor got = engine.run({columns(9, width), boxes, images})[0];
      EXPECT_THAT(got.sizes(), ElementsAre(2, 1, 2, 2));
      EXPECT_THAT(got.to_doubles(), ElementsAreArray({1.5, 3.5, 1.5, 3.5, 2., 3., 2., 3.}))
          << "centres of bins, half an element before where boxes say";
    }
    const Tensor none = Tensor::empty(f32, {0, 4});
    const Tensor of_none = Tensor::empty(i64, {0});
    EXPECT_THAT(engine.run({columns(9, 8), none, of_none})[0].sizes(), ElementsAre(0, 1, 2, 2));
  }
}

TEST(Regions, BinsWithoutSamplesAreZero) {
  Engine engine = align_model(0).load();
  const Tensor turned = Tensor::of<float>({5, 5, 1, 1}, {1, 4});
  const Tensor image = Tensor::of<std::int64_t>({0}, {1});
  EXPECT_THAT(engine.run({columns(9, 8), turned, image})[0].to_doubles(), Each(0));
}

TEST(Regions, WrongOnesAreErrors) {
  const Tensor boxes = Tensor::of<float>({1, 1, 5, 5}, {1, 4});
  const Tensor image = Tensor::of<std::int64_t>({3}, {1});
  EXPECT_THROW(align_model(-1).load().run({columns(9, 8), boxes, image}), ModelError);
  EXPECT_THROW(align_model(2, 0).load().run({columns(9, 8), boxes, image}), ModelError);
  Engine engine = align_model(2).load();
  EXPECT_THROW(engine.run({columns(9, 8), boxes, image}), IndexError) << "one image";
}

TEST(Regions, ImagesOfBlocksOfAnySize) {
  ModelBuilder model;
  model.input("x", {"n", "rows", "blocks"}).input("like", {"h", "w"}).output("y");
  model.node("Shape", {"like"}, {"image"});
  model.ints("block", {2, 3});
  model.node("Col2Im", {"x", "image", "block"}, {"y"});
  Engine engine = model.load();
  const Tensor got = engine.run({ones({1, 6, 6}), ones({4, 4})})[0];
  EXPECT_THAT(got.sizes(), ElementsAre(1, 1, 4, 4));
  EXPECT_THAT(got.to_doubles(), ElementsAre(1, 2, 2, 1, 2, 4, 4, 2, 2, 4, 4, 2, 1, 2, 2, 1));
  EXPECT_THAT(engine.run({ones({2, 12, 4}), ones({3, 4})})[0].sizes(), ElementsAre(2, 2, 3, 4));
  EXPECT_THROW(engine.run({ones({1, 6, 5}), ones({4, 4})}), ModelError) << "six blocks";
  EXPECT_THROW(engine.run({ones({1, 7, 6}), ones({4, 4})}), ModelError) << "six rows a channel";
  EXPECT_THROW(engine.run({ones({1, 6, 6}), ones({1, 4})}), ModelError) << "smaller than a block";
}

TEST(Regions, WhatWasPooledGoesBackWhereItWas) {
  ModelBuilder model;
  model.input("x", {"n", "c", "h", "w"}).output("y");
  ModelBuilder::set_ints(model.node("MaxPool", {"x"}, {"top", "at"}), "kernel_shape", {2, 2});
  ModelBuilder::set_ints(*model.graph().mutable_node(0), "strides", {2, 2});
  ModelBuilder::set_ints(model.node("MaxUnpool", {"top", "at"}, {"y"}), "kernel_shape", {2, 2});
  ModelBuilder::set_ints(*model.graph().mutable_node(1), "strides", {2, 2});
  Engine engine = model.load();
  const Tensor x = Tensor::of<float>({1, 2, 5, 6, 3, 4, 8, 7}, {1, 1, 2, 4});
  EXPECT_THAT(engine.run({x})[0].to_doubles(), ElementsAre(0, 0, 0, 0, 0, 4, 8, 0));
  EXPECT_THAT(engine.run({ones({2, 3, 6, 4})})[0].sizes(), ElementsAre(2, 3, 6, 4));
}

TEST(Regions, CropsAndPadsBySizesOfAnotherInput) {
  ModelBuilder model;
  model.proto().mutable_opset_import(0)->set_version(18);
  model.input("x", {"n", "m"}).input("like", {"k", "l"}).output("y");
  model.node("Shape", {"like"}, {"shape"});
  model.node("CenterCropPad", {"x", "shape"}, {"y"});
  Engine engine = model.load();
  const Tensor x = Tensor::of<float>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {2, 5});
  EXPECT_THAT(engine.run({x, ones({2, 2})})[0].to_doubles(), ElementsAre(2, 3, 7, 8));
  EXPECT_THAT(engine.run({x, ones({3, 1})})[0].to_doubles(), ElementsAre(3, 8, 0));
  EXPECT_THAT(engine.run({x, ones({1, 6})})[0].to_doubles(), ElementsAre(1, 2, 3, 4, 5, 0));
}

}  // namespace
}  // namespace heddle::onnx_test
