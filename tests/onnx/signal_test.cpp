// Fourier transforms against their definition, at lengths that are one product and at longer ones; and what else ONNX's own
// cases say little of.

#include <cmath>
#include <complex>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numbers>
#include <random>

#include "engine/onnx/onnx.pb.h"
#include "heddle/error.h"
#include "tests/onnx/model_builder.h"

namespace heddle::onnx_test {
namespace {

using testing::ElementsAre;
using Complex = std::complex<double>;

Tensor random_floats(std::mt19937& random, Sizes sizes) {
  Tensor tensor = Tensor::empty(f32, std::move(sizes));
  for (std::int64_t k = 0; k < tensor.count(); ++k)
    tensor.data_as<float>()[k] = std::uniform_real_distribution(-1.0f, 1.0f)(random);
  return tensor;
}

std::vector<Complex> transform_of(const std::vector<Complex>& x, bool inverse) {
  const std::size_t n = x.size();
  std::vector<Complex> result(n);
  for (std::size_t k = 0; k < n; ++k) {
    for (std::size_t j = 0; j < n; ++j) {
      const double turns = static_cast<double>(j * k % n) / static_cast<double>(n);
      result[k] += x[j] * std::polar(1.0, (inverse ? 2 : -2) * std::numbers::pi * turns);
    }
    if (inverse) result[k] /= static_cast<double>(n);
  }
  return result;
}

struct Form {
  std::int64_t length;
  std::int64_t parts;  ///< 1: real numbers
  bool inverse = false;
  bool onesided = false;
};

/// What the engine takes: `batch` signals of the form's length, or of its first half.
Tensor signal_of(std::mt19937& random, const Form& form, std::int64_t batch) {
  const std::int64_t given = form.inverse && form.onesided ? form.length / 2 + 1 : form.length;
  return random_floats(random, {batch, given, form.parts});
}

/// Signal `b` of x, its missing half mirrored.
std::vector<Complex> whole_signal(const Tensor& x, const Form& form, std::int64_t b) {
  const std::int64_t given = x.sizes()[1];
  std::vector<Complex> whole(static_cast<std::size_t>(form.length));
  for (std::int64_t k = 0; k < form.length; ++k) {
    const bool mirrored = k >= given;
    const std::int64_t at = (b * given + (mirrored ? form.length - k : k)) * form.parts;
    const float* number = x.data_as<const float>() + at;
    double imaginary = form.parts == 2 ? number[1] : 0;
    if (given < form.length && (k == 0 || 2 * k == form.length)) imaginary = 0;
    whole[static_cast<std::size_t>(k)] = {number[0], mirrored ? -imaginary : imaginary};
  }
  return whole;
}

void expect_transform(const Tensor& got, const Tensor& x, const Form& form) {
  const bool real = form.inverse && form.onesided;
  const std::int64_t kept = form.onesided && !real ? form.length / 2 + 1 : form.length;
  const std::int64_t parts = real ? 1 : 2;
  ASSERT_THAT(got.sizes(), ElementsAre(x.sizes()[0], kept, parts));
  for (std::int64_t b = 0; b < x.sizes()[0]; ++b) {
    const std::vector<Complex> wanted = transform_of(whole_signal(x, form, b), form.inverse);
    for (std::int64_t k = 0; k < kept; ++k) {
      const float* number = got.data_as<const float>() + (b * kept + k) * parts;
      const Complex want = wanted[static_cast<std::size_t>(k)];
      EXPECT_NEAR(number[0], want.real(), 1e-4) << "signal " << b << ", element " << k;
      if (real) continue;
      EXPECT_NEAR(number[1], want.imag(), 1e-4) << "signal " << b << ", element " << k;
    }
  }
}

ModelBuilder transform_model(const Form& form) {
  ModelBuilder model;
  model.proto().mutable_opset_import(0)->set_version(20);
  model.input("x", {"batch", "length", std::to_string(form.parts)}).output("y");
  model.initializer("n", {}, TensorProto::INT64).add_int64_data(form.length);
  NodeProto& node = model.node("DFT", {"x", "n"}, {"y"});
  ModelBuilder::set_int(node, "inverse", form.inverse ? 1 : 0);
  ModelBuilder::set_int(node, "onesided", form.onesided ? 1 : 0);
  return model;
}

TEST(Signal, TransformsOfAnyLength) {
  std::mt19937 random(1);
  for (const std::int64_t length : {1, 2, 7, 30, 600, 1042}) {
    for (const Form& form : {Form{length, 1}, Form{length, 2}, Form{length, 1, false, true},
                             Form{length, 2, true}, Form{length, 2, true, true}}) {
      SCOPED_TRACE(testing::Message() << length << " of " << form.parts << ", inverse "
                                      << form.inverse << ", onesided " << form.onesided);
      Engine engine = transform_model(form).load();
      for (const std::int64_t batch : {1, 2}) {
        const Tensor x = signal_of(random, form, batch);
        expect_transform(engine.run({x})[0], x, form);
      }
      EXPECT_EQ(engine.stats().compiles, 1u) << "of any batch";
    }
  }
}

TEST(Signal, LengthsThatNoTransformHas) {
  for (const std::int64_t length : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{1} << 40})
    EXPECT_THROW(transform_model({length, 1}).load().run({ones({1, 4, 1})}), ModelError) << length;
  EXPECT_THROW(transform_model({2 * 3001, 1}).load().run({ones({1, 4, 1})}), UnsupportedError);
}

TEST(Signal, FramesOfSignalsOfAnyLength) {
  ModelBuilder model;
  model.input("x", {"batch", "length", "1"}).output("y");
  model.initializer("step", {}, TensorProto::INT64).add_int64_data(3);
  model.initializer("size", {}, TensorProto::INT64).add_int64_data(8);
  model.node("STFT", {"x", "step", "", "size"}, {"y"});
  Engine engine = model.load();
  std::mt19937 random(2);
  for (const std::int64_t length : {20, 21, 35}) {
    const Tensor x = random_floats(random, {1, length, 1});
    const Tensor got = engine.run({x})[0];
    const std::int64_t frames = (length - 8) / 3 + 1;
    ASSERT_THAT(got.sizes(), ElementsAre(1, frames, 5, 2));
    for (std::int64_t frame = 0; frame < frames; ++frame) {
      const float* begin = x.data_as<const float>() + frame * 3;
      const std::vector<Complex> wanted =
          transform_of(std::vector<Complex>(begin, begin + 8), false);
      for (std::int64_t k = 0; k < 10; ++k) {
        const Complex want = wanted[static_cast<std::size_t>(k / 2)];
        EXPECT_NEAR(got.data_as<const float>()[frame * 10 + k],
                    k % 2 == 0 ? want.real() : want.imag(), 1e-5);
      }
    }
  }
  EXPECT_EQ(engine.stats().compiles, 1u);
  EXPECT_THROW(engine.run({ones({1, 5, 1})}), ModelError) << "shorter than a frame";
}

TEST(Signal, ProductsSoFarOfAnySizes) {
  ModelBuilder model;
  model.proto().mutable_opset_import(0)->set_version(26);
  model.input("x", {"n", "m"}).output("y").output("z");
  model.initializer("axis", {}, TensorProto::INT64).add_int64_data(0);
  model.node("CumProd", {"x", "axis"}, {"y"});
  NodeProto& node = model.node("CumProd", {"x", "axis"}, {"z"});
  ModelBuilder::set_int(node, "reverse", 1);
  ModelBuilder::set_int(node, "exclusive", 1);
  Engine engine = model.load();
  const auto got = engine.run({Tensor::of<float>({1, 2, 3, 4, 5, 6}, {3, 2})});
  EXPECT_THAT(got[0].to_doubles(), ElementsAre(1, 2, 3, 8, 15, 48));
  EXPECT_THAT(got[1].to_doubles(), ElementsAre(15, 24, 5, 6, 1, 1));
  EXPECT_THAT(engine.run({Tensor::zeros(f32, {0, 4})})[0].sizes(), ElementsAre(0, 4));
  EXPECT_THAT(engine.run({Tensor::zeros(f32, {5, 0})})[1].sizes(), ElementsAre(5, 0));
}

}  // namespace
}  // namespace heddle::onnx_test
