// Caches of keys and values in models: ops that append to them, and ops that overwrite a part of them, where they lie.
#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "engine/onnx/onnx.pb.h"
#include "heddle/onnx.h"
#include "tests/onnx/model_builder.h"

namespace heddle::onnx_test {
namespace {

constexpr int kInt32 = 6, kInt64 = 7;

ModelBuilder model_of(int version) {
  ModelBuilder model;
  model.proto().mutable_opset_import(0)->set_version(version);
  auto& opset = *model.proto().add_opset_import();
  opset.set_domain(kMicrosoft);
  opset.set_version(1);
  return model;
}

Engine load(const ModelBuilder& model, EngineOptions options = {}) {
  const std::string bytes = model.bytes();
  return onnx::load_bytes(bytes.data(), bytes.size(), std::move(options));
}

void expect_near(const Tensor& got, const Tensor& want, int step) {
  ASSERT_TRUE(std::ranges::equal(got.sizes(), want.sizes()));
  const std::vector<double> a = got.to_doubles(), b = want.to_doubles();
  for (std::size_t k = 0; k < a.size(); ++k) ASSERT_NEAR(a[k], b[k], 1e-5) << step << ", " << k;
}

/// Steps of a model of q, k, v of `sizes`, past_key and past_value of two heads of 4.
void expect_appends(const ModelBuilder& model, const Sizes& sizes) {
  Engine engine = load(model, {.append = {"past_key", "past_value"}});
  Engine plain = load(model);
  Tensor keys = waves({1, 2, 3, 4}, 0.3), values = waves({1, 2, 3, 4}, 0.7);
  Tensor plain_keys = keys, plain_values = values;
  for (int step = 0; step < 70; ++step) {
    const Tensor x = waves(sizes, 0.1 * (step + 1));
    const auto got = engine.run({x, x, x, keys, values});
    const auto want = plain.run({x, x, x, plain_keys, plain_values});
    for (std::size_t k = 0; k < 3; ++k) expect_near(got[k], want[k], step);
    if (::testing::Test::HasFatalFailure()) return;
    keys = got[1], values = got[2];
    plain_keys = want[1], plain_values = want[2];
  }
  EXPECT_EQ(engine.signature().outputs[1].lies_in, "past_key");
  EXPECT_EQ(engine.stats().append_copies, 2 + 2u);  // the first caches, and when 64 are full
  EXPECT_EQ(engine.stats().missed_in_place, 0u);
}

TEST(OnnxCaches, AttentionAppends) {
  ModelBuilder model = model_of(23);
  for (const char* name : {"q", "k", "v"}) model.input(name, {"1", "2", "n", "4"});
  for (const char* name : {"past_key", "past_value"}) model.input(name, {"1", "2", "past", "4"});
  model.output("y").output("present_key").output("present_value");
  model.node("Attention", {"q", "k", "v", "", "past_key", "past_value"},
             {"y", "present_key", "present_value"});
  expect_appends(model, {1, 2, 1, 4});
}

TEST(OnnxCaches, MultiHeadAttentionAppends) {
  ModelBuilder model = model_of(17);
  for (const char* name : {"q", "k", "v"}) model.input(name, {"1", "n", "8"});
  for (const char* name : {"past_key", "past_value"}) model.input(name, {"1", "2", "past", "4"});
  model.output("y").output("present_key").output("present_value");
  ModelBuilder::set_int(
      model.node("MultiHeadAttention", {"q", "k", "v", "", "", "", "past_key", "past_value"},
                 {"y", "present_key", "present_value"}, kMicrosoft),
      "num_heads", 2);
  expect_appends(model, {1, 1, 8});
}

// As exporters write it.
TEST(OnnxCaches, ConcatAppends) {
  ModelBuilder model = model_of(17);
  for (const char* name : {"q", "k", "v"}) model.input(name, {"1", "2", "n", "4"});
  for (const char* name : {"past_key", "past_value"}) model.input(name, {"1", "2", "past", "4"});
  model.output("y").output("present_key").output("present_value");
  ModelBuilder::set_int(model.node("Concat", {"past_key", "k"}, {"present_key"}), "axis", 2);
  ModelBuilder::set_int(model.node("Concat", {"past_value", "v"}, {"present_value"}), "axis", -2);
  ModelBuilder::set_ints(model.node("Transpose", {"present_key"}, {"turned"}), "perm",
                         {0, 1, 3, 2});
  model.node("MatMul", {"q", "turned"}, {"scores"});
  model.node("Softmax", {"scores"}, {"weights"});
  model.node("MatMul", {"weights", "present_value"}, {"y"});
  expect_appends(model, {1, 2, 1, 4});
}

/// Steps of a model that overwrites a part of its input `cache`, the first of both; `inputs` makes the others of a step.
template <typename F>
void expect_updates(const ModelBuilder& model, const Tensor& start, F&& inputs) {
  const std::string name = load(model).signature().inputs[0].name;
  Engine engine = load(model, {.donate = {name}});
  Engine plain = load(model);
  Tensor cache = start.clone(), plain_cache = start;
  const void* place = nullptr;
  for (int step = 0; step < 5; ++step) {
    std::vector<Tensor> given{std::move(cache)}, copied{plain_cache};
    for (const Tensor& x : inputs(step)) given.push_back(x), copied.push_back(x);
    auto got = engine.run(std::move(given));
    const auto want = plain.run(copied);
    for (std::size_t k = 0; k < got.size(); ++k) expect_near(got[k], want[k], step);
    if (::testing::Test::HasFatalFailure()) return;
    cache = std::move(got[0]);
    EXPECT_TRUE(step == 0 || std::as_const(cache).data() == place);
    place = std::as_const(cache).data();
    plain_cache = want[0];
  }
  EXPECT_EQ(engine.signature().outputs[0].lies_in, name);
  EXPECT_EQ(engine.stats().missed_in_place, 0u);
}

TEST(OnnxCaches, TensorScatterOverwrites) {
  ModelBuilder model = model_of(24);
  model.input("cache", {"2", "n", "4"}).input("x", {"2", "m", "4"}).input("at", {"2"}, kInt64);
  model.output("now").output("sum");
  model.node("TensorScatter", {"cache", "x", "at"}, {"now"});
  model.node("ReduceSum", {"now"}, {"sum"});
  expect_updates(model, waves({2, 9, 4}, 0.3), [](int step) {
    const std::int64_t at = step;
    return std::vector{waves({2, 2, 4}, 0.2 * (step + 1)),
                       Tensor::of<std::int64_t>(std::array{at, at + 2}, {2})};
  });
}

// Caches with room for more tokens than there are, whose number a mask tells.
TEST(OnnxCaches, GroupQueryAttentionOverwrites) {
  ModelBuilder model = model_of(18);
  model.input("past_key", {"1", "2", "room", "8"}).input("past_value", {"1", "2", "room", "8"});
  model.input("q", {"1", "1", "32"}).input("k", {"1", "1", "16"}).input("v", {"1", "1", "16"});
  model.input("mask", {"1", "total"}, kInt64);
  model.output("present_key").output("present_value").output("y");
  model.ints("one", {1});
  model.node("Shape", {"mask"}, {"shape"});
  model.node("Gather", {"shape", "one"}, {"total"});
  ModelBuilder::set_int(model.node("Cast", {"total"}, {"total_i32"}), "to", kInt32);
  ModelBuilder::set_int(model.node("ReduceSum", {"mask", "one"}, {"sum"}), "keepdims", 0);
  model.node("Sub", {"sum", "one"}, {"last"});
  ModelBuilder::set_int(model.node("Cast", {"last"}, {"last_i32"}), "to", kInt32);
  NodeProto& node = model.node("GroupQueryAttention",
                               {"q", "k", "v", "past_key", "past_value", "last_i32", "total_i32"},
                               {"y", "present_key", "present_value"}, kMicrosoft);
  ModelBuilder::set_int(node, "num_heads", 4);
  ModelBuilder::set_int(node, "kv_num_heads", 2);
  Engine engine = load(model, {.donate = {"past_key", "past_value"}});
  Engine plain = load(model);
  Tensor keys = waves({1, 2, 12, 8}, 0.3).clone(), values = waves({1, 2, 12, 8}, 0.7).clone();
  Tensor plain_keys = keys.clone(), plain_values = values.clone();
  for (int step = 0; step < 6; ++step) {
    const std::vector<Tensor> others{waves({1, 1, 32}, 0.1 * (step + 1)), waves({1, 1, 16}, 0.2),
                                     waves({1, 1, 16}, 0.4), Tensor::full(i64, {1, 5 + step}, 1)};
    std::vector<Tensor> given{std::move(keys), std::move(values)}, copied{plain_keys, plain_values};
    given.insert(given.end(), others.begin(), others.end());
    copied.insert(copied.end(), others.begin(), others.end());
    auto got = engine.run(std::move(given));
    const auto want = plain.run(copied);
    for (std::size_t k = 0; k < 3; ++k) expect_near(got[k], want[k], step);
    ASSERT_FALSE(::testing::Test::HasFatalFailure());
    keys = std::move(got[0]), values = std::move(got[1]);
    plain_keys = want[0], plain_values = want[1];
  }
  EXPECT_EQ(engine.signature().outputs[1].lies_in, "past_value");
  EXPECT_EQ(engine.stats().in_place, 2u);
  EXPECT_EQ(engine.stats().missed_in_place, 0u);
}

}  // namespace
}  // namespace heddle::onnx_test
