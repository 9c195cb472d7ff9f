// Images of blocks against the definition, and what einsum takes from diagonals.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/onnx/onnx.pb.h"
#include "heddle/ops.h"
#include "tests/onnx/model_builder.h"

namespace heddle::onnx_test {
namespace {

using Ints = std::vector<std::int64_t>;

struct BlockCase {
  Ints image, block, strides, pads, dilations;  ///< of two dimensions; pads of the beginnings first
};

std::int64_t count_of(const BlockCase& c, std::size_t d) {
  const std::int64_t reach = (c.block[d] - 1) * c.dilations[d] + 1;
  return (c.image[d] + c.pads[d] + c.pads[d + 2] - reach) / c.strides[d] + 1;
}

/// Of x [batch, taps, blocks].
std::vector<double> images(const BlockCase& c, std::int64_t batch, const std::vector<double>& x) {
  const std::int64_t taps = c.block[0] * c.block[1];
  const std::int64_t wide = count_of(c, 1);
  const std::int64_t blocks = count_of(c, 0) * wide;
  std::vector<double> made(static_cast<std::size_t>(batch * c.image[0] * c.image[1]));
  for (std::int64_t k = 0; k < static_cast<std::int64_t>(x.size()); ++k) {
    const std::int64_t block = k % blocks;
    const std::int64_t tap = k / blocks % taps;
    const std::int64_t row =
        block / wide * c.strides[0] + tap / c.block[1] * c.dilations[0] - c.pads[0];
    const std::int64_t column =
        block % wide * c.strides[1] + tap % c.block[1] * c.dilations[1] - c.pads[1];
    if (row < 0 || row >= c.image[0] || column < 0 || column >= c.image[1]) continue;
    const std::int64_t at = (k / blocks / taps * c.image[0] + row) * c.image[1] + column;
    made[static_cast<std::size_t>(at)] += x[static_cast<std::size_t>(k)];
  }
  return made;
}

TEST(Col2Im, OfKnownSizesIsTheSumOfMovedBlocks) {
  const BlockCase cases[] = {
      {{28, 28}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}},
      {{9, 20}, {3, 2}, {1, 1}, {0, 0, 0, 0}, {1, 1}},
      {{9, 20}, {3, 2}, {2, 3}, {1, 0, 0, 2}, {1, 1}},
      {{11, 33}, {3, 5}, {3, 2}, {2, 1, 0, 3}, {2, 1}},
      {{8, 32}, {2, 4}, {2, 4}, {0, 0, 0, 0}, {1, 1}},
      {{8, 32}, {2, 4}, {2, 4}, {1, 0, 1, 0}, {1, 1}},
      {{7, 7}, {1, 1}, {3, 3}, {0, 0, 0, 0}, {1, 1}},
      {{10, 10}, {9, 9}, {1, 1}, {0, 0, 0, 0}, {1, 1}},
      {{24, 24}, {8, 8}, {8, 8}, {0, 0, 0, 0}, {1, 1}},
      {{26, 26}, {8, 8}, {8, 8}, {0, 0, 0, 0}, {1, 1}},
  };
  for (const BlockCase& c : cases) {
    SCOPED_TRACE(testing::PrintToString(c.block) + testing::PrintToString(c.strides));
    for (const DType dtype : {f32, f16}) {
      const std::int64_t taps = c.block[0] * c.block[1];
      const std::int64_t blocks = count_of(c, 0) * count_of(c, 1);
      ModelBuilder model;
      const int type = dtype == f32 ? TensorProto::FLOAT : TensorProto::FLOAT16;
      model.input("x", {"2", std::to_string(taps), std::to_string(blocks)}, type);
      model.output("y", type);
      model.ints("image", c.image).ints("block", c.block);
      NodeProto& node = model.node("Col2Im", {"x", "image", "block"}, {"y"});
      ModelBuilder::set_ints(node, "strides", c.strides);
      ModelBuilder::set_ints(node, "pads", c.pads);
      ModelBuilder::set_ints(node, "dilations", c.dilations);
      Tensor x = Tensor::empty(f32, {2, taps, blocks});
      for (std::int64_t k = 0; k < x.count(); ++k)
        x.data_as<float>()[k] = static_cast<float>(k * 7 % 13) / 4;
      const Tensor got = model.load().run({cast(x, dtype)})[0];
      EXPECT_EQ(got.to_doubles(), images(c, 2, x.to_doubles()));
    }
  }
}

TEST(Diagonals, AreWhereTheyWere) {
  const auto run = [](const std::string& equation, const Tensor& x) {
    ModelBuilder model;
    model.input("x", std::vector<std::string>(static_cast<std::size_t>(x.rank()), "n"));
    model.output("y");
    AttributeProto& attribute = *model.node("Einsum", {"x"}, {"y"}).add_attribute();
    attribute.set_name("equation");
    attribute.set_type(AttributeProto::STRING);
    attribute.set_s(equation);
    return model.load().run({x})[0].to_doubles();
  };
  Tensor x = Tensor::empty(f32, {3, 3, 3});
  for (std::int64_t k = 0; k < 27; ++k) x.data_as<float>()[k] = static_cast<float>(k);
  using Doubles = std::vector<double>;
  EXPECT_EQ(run("iii->i", x), (Doubles{0, 13, 26}));
  EXPECT_EQ(run("iij->ij", x), (Doubles{0, 1, 2, 12, 13, 14, 24, 25, 26}));
  EXPECT_EQ(run("iji->ij", x), (Doubles{0, 3, 6, 10, 13, 16, 20, 23, 26}));
  EXPECT_EQ(run("jii->ij", x), (Doubles{0, 9, 18, 4, 13, 22, 8, 17, 26}));
  EXPECT_EQ(run("iii->", x), (Doubles{39}));
}

}  // namespace
}  // namespace heddle::onnx_test
