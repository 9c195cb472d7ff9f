// Convolutions on CUDA, which are products: every way to multiply, for windows of every kind, on the simulated device
// against the reference evaluator; and what NVRTC makes of the texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jit/lower/conv_channels.h"
#include "tests/jit/barriers_of.h"
#include "tests/jit/one_product.h"

namespace heddle::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// relu((conv(x, w) + bias) * scale + residual) of s0 images of s1 x s2 positions.
std::string pointwise_text(const std::string& dtype, bool tf32) {
  return "graph @pointwise(%x: " + dtype + "[s0, 24, s1, s2], %w: " + dtype +
         "[40, 24, 1, 1], %b: " + dtype + "[40], %scale: " + dtype + "[40, 1, 1], %r: " + dtype +
         "[s0, 40, s1, s2]) {\n  %c = conv(%x, %w, %b) {strides = [1, 1], pads_low = [0, 0], "
         "pads_high = [0, 0], "
         "dilations = [1, 1]" +
         (tf32 ? ", tf32 = true" : "") +
         "}\n  %m = mul(%c, %scale)\n  %a = add(%m, %r)\n  %y = relu(%a)\n  return %y\n}\n";
}

/// s0, s1, s2: images, rows, columns.
const std::vector<std::vector<std::int64_t>> kImages = {{1, 1, 1},  {2, 3, 5}, {1, 8, 8},
                                                        {3, 7, 11}, {0, 4, 4}, {2, 0, 4}};

struct PointwiseCase {
  const char* dtype;
  bool tf32;
};

class CudaPointwiseConv : public ::testing::TestWithParam<PointwiseCase> {};

/// One kernel for the convolution and all that follows; the positions of an image are columns of its matrix.
TEST_P(CudaPointwiseConv, IsAProductOfEachImage) {
  const auto [dtype, tf32] = GetParam();
  const OneProduct product(pointwise_text(dtype, tf32));
  EXPECT_EQ(product.nest().name, "matmul_add_mul_add");
  EXPECT_EQ(product.nest().product->batches.to_string(), "s0");
  EXPECT_EQ(product.nest().product->rows, base::SymExpr(40));
  EXPECT_EQ(product.nest().product->columns.to_string(), "s1*s2");
  EXPECT_EQ(product.left(), Along::Rows);
  EXPECT_EQ(product.right(), Along::Rows);
  if (tf32)
    EXPECT_THAT(product.names(), ElementsAre("rows_1x128", "rows_8x128", "tensor_16x64x32",
                                             "tensor_64x64x32", "tensor_128x128x16"));
  else if (dtype == std::string("f32"))
    EXPECT_THAT(product.names(), ElementsAre("rows_1x128", "rows_8x128", "plain_64x64x16"));
  else
    EXPECT_THAT(product.names(),
                ElementsAre("rows_1x128", "rows_4x128", "tensor_16x64x64", "tensor_64x64x64",
                            "tensor_128x128x32", "wgmma_64x128x64", "wgmma_128x128x64",
                            "wgmma_128x256x64"));
  product.expect_right(kImages, tf32 ? 2e-3 : tolerance_of(dtype));
}

INSTANTIATE_TEST_SUITE_P(Operands, CudaPointwiseConv,
                         ::testing::Values(PointwiseCase{"f32", false}, PointwiseCase{"f32", true},
                                           PointwiseCase{"f16", false},
                                           PointwiseCase{"bf16", false}),
                         [](const auto& info) {
                           return std::string(info.param.dtype) + (info.param.tf32 ? "_tf32" : "");
                         });

/// Neither a quotient nor a remainder of sizes is left in what follows the product: an element of the result lies where
/// that of the product does.
TEST(CudaConvs, NothingDividesWhereAnElementGoes) {
  const OneProduct product(pointwise_text("f16", false));
  const std::string text = product.sources().back().kernel;
  const std::string elements = text.substr(text.rfind("for (int e = "));
  for (const char* division : {"floordiv", "floormod", " / s", " % s", " / (", " % ("})
    EXPECT_EQ(elements.find(division), std::string::npos) << elements;
}

TEST(CudaConvs, OfOneAndThreeDimensionsAndChannelsLast) {
  OneProduct line(R"(graph @line(%x: f16[s0, 8, s1], %w: f16[16, 8, 1]) {
    %c = conv(%x, %w) {strides = [1], pads_low = [0], pads_high = [0], dilations = [1]}
    return %c
  })");
  line.expect_right({{2, 9}, {1, 1}}, 4e-3);
  OneProduct volume(
      R"(graph @volume(%x: f32[s0, 3, s1, 2, s2], %w: f32[5, 3, 1, 1, 1], %b: f32[5]) {
    %c = conv(%x, %w, %b) {strides = [1, 1, 1], pads_low = [0, 0, 0], pads_high = [0, 0, 0], dilations = [1, 1, 1]}
    return %c
  })");
  volume.expect_right({{2, 3, 5}}, 1e-5);
  OneProduct last(R"(graph @last(%x: bf16[s0, s1, s2, 24], %w: bf16[40, 24, 1, 1], %b: bf16[40]) {
    %c = conv(%x, %w, %b) {strides = [1, 1], pads_low = [0, 0], pads_high = [0, 0], dilations = [1, 1], channels_last = true}
    %y = relu(%c)
    return %y
  })");
  EXPECT_EQ(last.rows(), "s0*s1*s2");
  EXPECT_EQ(last.right(), Along::Columns);
  last.expect_right({{2, 3, 5}, {1, 8, 9}}, 3e-2);
}

/// A convolution of `dtype` with `m` channels out, followed by a scale by channel, relu and, where `residual` says its sizes,
/// an added tensor.
struct WindowCase {
  const char* name;
  const char* x;        ///< sizes
  const char* w;        ///< sizes
  const char* window;   ///< attributes
  const char* scale;    ///< sizes: channels out, and 1 for each spatial dimension
  const char* windows;  ///< of hd_windows: taps
  std::vector<std::vector<std::int64_t>> sizes;
  const char* residual = nullptr;
};

const std::vector<WindowCase>& window_cases() {
  static const std::vector<WindowCase> cases = {
      // Rows of the weights are no multiple of 16 bytes, channels fill no tile, and windows of several images share one.
      {"around",
       "s0, 5, s1, s2",
       "19, 5, 3, 3",
       "strides = [1, 1], pads_low = [1, 1], pads_high = [1, 1], dilations = [1, 1]",
       "19, 1, 1",
       "1, 3, 3",
       {{3, 5, 7}, {1, 1, 1}, {0, 4, 4}, {2, 0, 3}, {1, 9, 16}},
       "s0, 19, s1, s2"},
      {"strided",
       "s0, 8, s1, s2",
       "72, 8, 3, 3",
       "strides = [2, 3], pads_low = [0, 2], pads_high = [1, 0], dilations = [1, 1]",
       "72, 1, 1",
       "1, 3, 3",
       {{2, 7, 9}, {1, 2, 1}, {5, 16, 4}}},
      {"dilated",
       "s0, 8, s1, s2",
       "32, 8, 3, 2",
       "strides = [1, 2], pads_low = [2, 0], pads_high = [2, 3], dilations = [2, 3]",
       "32, 1, 1",
       "1, 3, 2",
       {{2, 6, 9}, {1, 1, 1}}},
      {"stem",
       "s0, 3, s1, s2",
       "16, 3, 7, 7",
       "strides = [2, 2], pads_low = [3, 3], pads_high = [3, 3], dilations = [1, 1]",
       "16, 1, 1",
       "1, 7, 7",
       {{1, 13, 20}, {2, 1, 1}}},
      {"every_other",
       "s0, 24, s1, s2",
       "16, 24, 1, 1",
       "strides = [2, 2], pads_low = [0, 0], pads_high = [0, 0], dilations = [1, 1]",
       "16, 1, 1",
       "1, 1, 1",
       {{2, 5, 8}, {1, 1, 1}}},
      {"grouped",
       "s0, 18, s1, s2",
       "51, 6, 3, 3",
       "strides = [1, 1], pads_low = [1, 1], pads_high = [1, 1], dilations = [1, 1], groups = 3",
       "51, 1, 1",
       "1, 3, 3",
       {{2, 4, 9}, {1, 1, 1}},
       "s0, 51, s1, s2"},
      // All of a window may lie outside.
      {"far_outside",
       "s0, 16, s1, s2",
       "16, 16, 1, 3",
       "strides = [1, 1], pads_low = [1, 5], pads_high = [0, 4], dilations = [1, 2]",
       "16, 1, 1",
       "1, 1, 3",
       {{1, 2, 3}, {2, 0, 4}}},
      {"line",
       "s0, 9, s1",
       "16, 9, 5",
       "strides = [2], pads_low = [2], pads_high = [1], dilations = [1]",
       "16, 1",
       "1, 1, 5",
       {{2, 70}, {1, 2}}},
      {"volume",
       "s0, 3, s1, s2, 4",
       "16, 3, 2, 3, 2",
       "strides = [1, 2, 1], pads_low = [0, 1, 1], pads_high = [1, 1, 0], dilations = [1, 1, 2]",
       "16, 1, 1, 1",
       "2, 3, 2",
       {{2, 3, 5}, {1, 1, 1}}},
      {"channels_last",
       "s0, s1, s2, 8",
       "24, 8, 3, 3",
       "strides = [1, 1], pads_low = [1, 1], pads_high = [1, 1], dilations = [1, 1], channels_last "
       "= "
       "true",
       "24",
       "1, 3, 3",
       {{2, 5, 7}, {1, 1, 1}},
       "s0, s1, s2, 24"},
  };
  return cases;
}

std::string window_text(const WindowCase& one, const std::string& dtype, bool tf32) {
  const std::string channels = std::string(one.w).substr(0, std::string(one.w).find(','));
  const auto input = [&](const char* name, const std::string& sizes) {
    return std::string("%") + name + ": " + dtype + "[" + sizes + "]";
  };
  return "graph @windows(" + input("x", one.x) + ", " + input("w", one.w) + ", " +
         input("b", channels) + ", " + input("scale", one.scale) +
         (one.residual != nullptr ? ", " + input("r", one.residual) : "") +
         ") {\n  %c = conv(%x, %w, %b) {" + one.window + (tf32 ? ", tf32 = true" : "") +
         "}\n  %m = mul(%c, %scale)\n" +
         (one.residual != nullptr ? "  %a = add(%m, %r)\n  %y = relu(%a)\n" : "  %y = relu(%m)\n") +
         "  return %y\n}\n";
}

struct WindowDType {
  const char* dtype;
  bool tf32;
};

class CudaWindows : public ::testing::TestWithParam<std::tuple<WindowDType, std::size_t>> {
 protected:
  const WindowCase& one() const { return window_cases()[std::get<1>(GetParam())]; }
  std::string dtype() const { return std::get<0>(GetParam()).dtype; }
  bool tf32() const { return std::get<0>(GetParam()).tf32; }
  OneProduct product() const { return OneProduct(window_text(one(), dtype(), tf32())); }
  double tolerance() const { return tf32() ? 2e-3 : tolerance_of(dtype()); }
};

TEST_P(CudaWindows, EveryWayAgreesWithTheEvaluator) {
  const OneProduct all = product();
  EXPECT_EQ(all.nest().name, one().residual != nullptr ? "conv_mul_add_relu" : "conv_mul_relu");
  EXPECT_EQ(all.right(), Along::Windows);
  const auto form = all.library();
  ASSERT_TRUE(form && form->convolution);
  EXPECT_FALSE(form->result) << "more follows than a store";
  EXPECT_FALSE(form->rounded) << "the bias is added to sums in f32";
  EXPECT_EQ(form->convolution->channels_last, one().name == std::string("channels_last"));
  if (tf32())
    EXPECT_THAT(all.names(),
                ElementsAre("tensor_16x64x32", "tensor_64x64x32", "tensor_128x128x16"));
  else if (dtype() == "f32")
    EXPECT_THAT(all.names(), ElementsAre("plain_64x64x16"));
  else
    EXPECT_THAT(all.names(),
                ElementsAre("tensor_16x64x64", "tensor_64x64x64", "tensor_128x128x32"));
  EXPECT_THAT(all.text(), HasSubstr("> windows = {"));
  EXPECT_EQ(all.text().find("__launch_bounds__(256, 2)") != std::string::npos,
            tf32() || dtype() != "f32")
      << "two large blocks fit on a multiprocessor";
  EXPECT_THAT(all.text(), HasSubstr(std::string(", ") + one().windows + "> windows"));
  all.expect_right(one().sizes, tolerance());
}

/// Parts of the depth begin inside of a channel.
TEST_P(CudaWindows, BlocksThatShareATileAgreeWithTheEvaluator) {
  product().expect_right({one().sizes[0]}, tolerance(), 3);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, CudaWindows,
    ::testing::Combine(::testing::Values(WindowDType{"f32", false}, WindowDType{"f32", true},
                                         WindowDType{"f16", false}, WindowDType{"bf16", false}),
                       ::testing::Range(std::size_t{0}, window_cases().size())),
    [](const auto& info) {
      const WindowDType how = std::get<0>(info.param);
      return std::string(how.dtype) + (how.tf32 ? "_tf32_" : "_") +
             window_cases()[std::get<1>(info.param)].name;
    });

/// Windows whose channels are neighbours, in x and in the weights, which lie so already.
struct ChannelCase {
  const char* name;
  const char* x;       ///< sizes, channels last
  const char* w;       ///< sizes: channels out, taps, channels
  const char* window;  ///< attributes
  std::vector<std::vector<std::int64_t>> sizes;
  bool second =
      false;  ///< of the convolution's own x and result, channels are the second dimension
};

const std::vector<ChannelCase>& channel_cases() {
  static const std::vector<ChannelCase> cases = {
      {"last",
       "s0, s1, s2, 8",
       "24, 3, 3, 8",
       "strides = [1, 1], pads_low = [1, 1], pads_high = [1, 1], dilations = [1, 1]",
       {{3, 5, 7}, {1, 1, 1}, {0, 4, 4}, {2, 0, 3}, {1, 9, 16}}},
      {"second",
       "s0, s1, s2, 40",
       "72, 2, 3, 40",
       "strides = [2, 1], pads_low = [0, 2], pads_high = [1, 3], dilations = [1, 2]",
       {{2, 7, 9}, {1, 2, 1}},
       true},
      {"grouped",
       "s0, s1, s2, 48",
       "64, 3, 3, 24",
       "strides = [1, 1], pads_low = [1, 1], pads_high = [1, 1], dilations = [1, 1], groups = 2",
       {{2, 4, 9}},
       true},
      {"every_other",
       "s0, s1, s2, 72",
       "16, 1, 1, 72",
       "strides = [2, 2], pads_low = [0, 0], pads_high = [0, 0], dilations = [1, 1]",
       {{2, 5, 8}}},
  };
  return cases;
}

std::string channel_text(const ChannelCase& one, const std::string& dtype, bool tf32) {
  const std::string x = one.second ? "%t" : "%x";
  return "graph @channels(%x: " + dtype + "[" + one.x + "], %o: " + dtype + "[" + one.w +
         "]) {\n  %w = permute(%o) {perm = [0, 3, 1, 2]}\n" +
         (one.second ? "  %t = permute(%x) {perm = [0, 3, 1, 2]}\n" : "") + "  %c = conv(" + x +
         ", %w) {" + one.window + (one.second ? "" : ", channels_last = true") +
         (tf32 ? ", tf32 = true" : "") + "}\n  %y = relu(%c)\n  return %y\n}\n";
}

class CudaChannels : public ::testing::TestWithParam<std::tuple<WindowDType, std::size_t>> {};

TEST_P(CudaChannels, AreReadInPieces) {
  const auto& [how, number] = GetParam();
  const ChannelCase& one = channel_cases()[number];
  const OneProduct all(channel_text(one, how.dtype, how.tf32));
  EXPECT_EQ(all.others(), 0u);
  EXPECT_EQ(all.right(), Along::Channels);
  EXPECT_THAT(jit::print(all.nest()), HasSubstr(" channels ["));
  EXPECT_EQ(all.text(false).find("__launch_bounds__(256, 2)"), std::string::npos);
  // Neighbours of results are channels, or positions.
  EXPECT_EQ(all.text(false).find(", true> Tile") != std::string::npos, !one.second);
  const double tolerance = how.tf32 ? 2e-3 : tolerance_of(how.dtype);
  all.expect_right(one.sizes, tolerance);
  all.expect_right({one.sizes[0]}, tolerance, 3);
  const auto form = all.library();
  ASSERT_TRUE(form && form->convolution);
  EXPECT_TRUE(form->convolution->inner_channels);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, CudaChannels,
    ::testing::Combine(::testing::Values(WindowDType{"f32", true}, WindowDType{"f16", false},
                                         WindowDType{"bf16", false}),
                       ::testing::Range(std::size_t{0}, channel_cases().size())),
    [](const auto& info) {
      return std::string(std::get<0>(info.param).dtype) + "_" +
             channel_cases()[std::get<1>(info.param)].name;
    });

/// Before others: what x and the weights are turned into is read by the convolution as before.
TEST(CudaConvs, ChannelsOfConvolutionsAreBroughtInside) {
  jit::LowerOptions cuda;
  cuda.target = jit::LowerOptions::Target::Cuda;
  const auto text = [&](const std::string& dtype, const std::string& channels,
                        const std::string& weights, const std::string& more) {
    const bool last = more.ends_with("channels_last = true");
    const ir::Graph graph = ir::parse(
        "graph @main(%x: " + dtype + "[s0, " +
        (last ? "s1, s2, " + channels : channels + ", s1, s2") +
        "]) {\n  %one = const [1]: " + dtype + "\n  %w = expand(%one) {sizes = [" + weights +
        "]}\n  %c = conv(%x, %w) {strides = [1, 1], pads_low = [1, 1], pads_high = [1, 1], "
        "dilations = [1, 1]" +
        more + "}\n  return %c\n}\n");
    const std::string turned = ir::print(jit::conv_channels(graph, cuda));
    return turned == ir::print(graph) ? std::string("as it was") : turned;
  };
  const std::string turned = text("f16", "16", "32, 16, 3, 3", "");
  EXPECT_THAT(turned, HasSubstr("permute(%x) {perm = [0, 2, 3, 1]}"));
  EXPECT_THAT(turned, HasSubstr("permute(%w) {perm = [0, 2, 3, 1]}"));
  EXPECT_THAT(text("bf16", "24", "32, 24, 3, 3", ""), HasSubstr("clone"));
  EXPECT_THAT(text("f32", "12", "32, 12, 3, 3", ", tf32 = true"), HasSubstr("clone"));
  EXPECT_THAT(text("f16", "32", "32, 16, 3, 3", ", groups = 2"), HasSubstr("clone"));
  EXPECT_EQ(text("f32", "12", "32, 12, 3, 3", ""), "as it was") << "exact: no tensor cores";
  EXPECT_EQ(text("f16", "12", "32, 12, 3, 3", ""), "as it was") << "24 bytes";
  EXPECT_EQ(text("f16", "16", "8, 16, 3, 3", ""), "as it was") << "few channels out";
  EXPECT_EQ(text("f16", "16", "32, 16, 1, 1", ""), "as it was") << "each element once";
  const std::string own = text("f32", "20", "20, 1, 3, 3", ", groups = 20, channels_last = true");
  EXPECT_THAT(own, HasSubstr("permute(%w) {perm = [1, 2, 3, 0]}"));
  EXPECT_THAT(own, HasSubstr("conv(%x, ")) << "x lies as its threads do";
  EXPECT_EQ(text("f32", "20", "20, 1, 3, 3", ", groups = 20"), "as it was") << "rows of positions";
  EXPECT_EQ(text("f32", "12", "12, 1, 3, 3", ", groups = 12, channels_last = true"), "as it was")
      << "too few channels for threads";
}

/// What the next convolution reads is stored by the one before as it is read, and besides as others do.
TEST(CudaConvs, ResultsAreStoredAsTheNextOneReadsThem) {
  const auto text = [](const std::string& images, const std::string& result) {
    return "graph @block(%x: f16[" + images + R"(]) {
    %one = const [0.03]: f16
    %w = expand(%one) {sizes = [16, 40, 1, 1]}
    %v = expand(%one) {sizes = [24, 16, 3, 3]}
    %c = conv(%x, %w) {strides = [1, 1], pads_low = [0, 0], pads_high = [0, 0], dilations = [1, 1]}
    %r = relu(%c)
    %d = conv(%r, %v) {strides = [1, 1], pads_low = [1, 1], pads_high = [1, 1], dilations = [1, 1]}
    %s = tanh(%d)
    %e = conv(%s, %v2) {strides = [2, 1], pads_low = [1, 1], pads_high = [1, 1], dilations = [1, 1]}
    return )" +
           result + "\n  }\n";
  };
  for (const auto& [images, result] : {std::pair<std::string, std::string>{"s0, 40, s1, s2", "%e"},
                                       {"s0, 40, s1, s2", "%e, %d, %r"},
                                       {"2, 40, s0, s1", "%e"}}) {
    SCOPED_TRACE(images + " " + result);
    std::string graph_text = text(images, result);
    graph_text.insert(graph_text.find("    %c ="),
                      "    %v2 = expand(%one) {sizes = [16, 24, 3, 3]}\n");
    const ir::Graph graph = ir::parse(graph_text);
    const jit::Program program = lowered_for_cuda(graph);
    std::vector<std::string> names;
    for (const jit::ProgramKernel& kernel : program.kernels) names.push_back(kernel.nest->name);
    // Weights are turned when a unit is built.
    const std::string first = result == "%e" ? "matmul_clone" : "matmul_relu_clone";
    EXPECT_THAT(names, ElementsAre(first, "clone", "conv_clone", "clone", "conv"));
    for (std::vector<std::int64_t> sizes :
         {std::vector<std::int64_t>{2, 5, 7}, {1, 1, 1}, {3, 9, 16}}) {
      if (images[0] == '2') sizes.erase(sizes.begin());
      test::expect_program_right(graph, program, test::random_arguments(graph, sizes), {}, 4e-3);
    }
  }
}

/// What a library gives without bias is the result, or is rounded before anything follows.
TEST(CudaConvs, ALibraryRoundsWhatIsRoundedAnyway) {
  for (const WindowCase& one : window_cases()) {
    SCOPED_TRACE(one.name);
    const auto form_of = [&](const std::string& dtype, const char* after) {
      const OneProduct product("graph @plain(%x: " + dtype + "[" + one.x + "], %w: " + dtype + "[" +
                               one.w + "]) {\n  %c = conv(%x, %w) {" + one.window + "}\n" + after +
                               "\n}\n");
      return product.library();
    };
    for (const char* dtype : {"f32", "f16"}) {
      const auto plain = form_of(dtype, "  return %c");
      ASSERT_TRUE(plain && plain->convolution);
      EXPECT_TRUE(plain->result) << "stored as it is";
      const auto followed = form_of(dtype, "  %y = tanh(%c)\n  return %y");
      ASSERT_TRUE(followed && followed->convolution);
      EXPECT_FALSE(followed->result);
      EXPECT_EQ(followed->rounded, dtype == std::string("f16"));
    }
  }
}

/// The nest itself says what windows are to whoever knows no better.
TEST(CudaConvs, TheNestOfWindowsIsTheConvolution) {
  for (const WindowCase& one : window_cases()) {
    SCOPED_TRACE(one.name);
    const ir::Graph graph = ir::parse(window_text(one, "f32", false));
    const jit::Program program = lowered_for_cuda(graph);
    ASSERT_EQ(program.kernels.size(), 1u);
    EXPECT_THAT(jit::print(*program.kernels[0].nest), HasSubstr(" windows from t"));
    for (const auto& sizes : one.sizes)
      test::expect_program_right(graph, program, test::random_arguments(graph, sizes), {}, 1e-5);
  }
}

/// Where tiles would be mostly empty, threads have elements of their own; other dtypes too.
TEST(CudaConvs, FewChannelsAreNoProduct) {
  const auto is_product = [](const std::string& dtype, const std::string& x, const std::string& w,
                             const std::string& groups) {
    const ir::Graph graph = ir::parse(
        "graph @g(%x: " + dtype + "[s0, " + x + ", s1, s2], %w: " + dtype + "[" + w +
        "]) {\n  %c = conv(%x, %w) {strides = [1, 1], pads_low = [1, 1], pads_high = [1, 1], "
        "dilations = [1, 1], groups = " +
        groups + "}\n  return %c\n}\n");
    return lowered_for_cuda(graph).kernels.at(0).nest->product.has_value();
  };
  EXPECT_TRUE(is_product("f16", "2", "16, 2, 3, 3", "1"));
  EXPECT_FALSE(is_product("f16", "2", "15, 2, 3, 3", "1"));
  EXPECT_FALSE(is_product("f16", "1", "16, 1, 3, 3", "1")) << "9 products a sum";
  EXPECT_FALSE(is_product("f16", "32", "32, 1, 3, 3", "32")) << "one channel a group";
  EXPECT_FALSE(is_product("f16", "4", "16, 4, 33, 1", "1")) << "33 taps";
  EXPECT_FALSE(is_product("f64", "2", "16, 2, 3, 3", "1"));
}

/// The tile for windows of a 3 x 3 kernel on an H200, as many as `columns`, that move by one.
std::string chosen_for_conv(std::int64_t rows, std::int64_t columns, std::int64_t channels) {
  const auto tiles = jit::cuda::product_tiles(f16, Along::Rows, Along::Windows, kProductDevice);
  const jit::cuda::ProductShape shape{1, rows, columns, 9 * channels, 2, 9};
  const jit::cuda::TileChoice choice = jit::cuda::cheapest_tile(tiles, shape, kProductDevice);
  return tiles[choice.tile].name() +
         (choice.parts == 1 ? "" : " / " + std::to_string(choice.parts));
}

TEST(CudaConvs, TheCostModelTakesTilesThatFillTheDevice) {
  EXPECT_EQ(chosen_for_conv(64, 16 * 56 * 56, 64), "tensor_64x64x64");
  EXPECT_EQ(chosen_for_conv(128, 16 * 28 * 28, 128), "tensor_128x128x32");
  EXPECT_EQ(chosen_for_conv(256, 16 * 14 * 14, 256), "tensor_128x128x32 / 5");
  EXPECT_EQ(chosen_for_conv(512, 16 * 7 * 7, 512), "tensor_128x128x32 / 4");
  EXPECT_EQ(chosen_for_conv(512, 7 * 7, 512), "tensor_16x64x64 / 8");
}

/// Their elements are in memory but once: what bounds a matrix that is there does not bound them.
TEST(CudaConvs, TheCostModelKnowsThatWindowsOverlap) {
  const ProductTile narrow =
      jit::cuda::product_tiles(f16, Along::Rows, Along::Windows, kProductDevice)[0];
  const auto cycles = [&](std::int64_t overlap) {
    return jit::cuda::product_cycles(narrow, {1, 16, 1 << 22, 1152, 2, overlap}, kProductDevice);
  };
  EXPECT_LT(cycles(9), 0.7 * cycles(0));
  EXPECT_GT(cycles(9), 0.5 * cycles(0)) << "each takes a thread's time";
  EXPECT_LT(cycles(9), cycles(1));
}

/// Elements of windows come into a step's tile while the products of another are under way.
TEST(CudaConvs, EveryBarrierIsNeeded) {
  if (!test::on_simulator()) GTEST_SKIP() << test::kNeedsSimulator;
  const OneProduct one(
      "graph @g(%x: f16[s0, 24, s1, s2], %w: f16[16, 24, 3, 3]) {\n  %c = conv(%x, %w) {strides = "
      "[1, "
      "1], pads_low = [1, 1], pads_high = [1, 1], dilations = [1, 1]}\n  return %c\n}\n");
  std::vector<ir::Literal> buffers = test::random_arguments(one.graph(), {1, 5, 7});
  std::swap(buffers[0], buffers[1]);  // the weights are the left matrix
  buffers.emplace_back(f16, ir::Sizes{1, 16, 5, 7});
  BarriersOf launch(one.sources(), 1, {1, 5, 7}, std::move(buffers));
  // One for each of four steps, of which the last is where the sums will be, two around the sums on their way out, and the last, after which a block would go on
  // to another tile.
  EXPECT_EQ(launch.count(), 7u);
  EXPECT_THAT(launch.unnoticed(), ElementsAre(7u));
}

class CudaWindowsNvrtc : public ::testing::TestWithParam<WindowDType> {};

TEST_P(CudaWindowsNvrtc, TakesEveryText) {
  const auto [dtype, tf32] = GetParam();
  expect_nvrtc_takes(OneProduct(window_text(window_cases()[0], dtype, tf32)));
  if (tf32 || dtype != std::string("f32"))
    expect_nvrtc_takes(OneProduct(channel_text(channel_cases()[1], dtype, tf32)));
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaWindowsNvrtc,
                         ::testing::Values(WindowDType{"f32", false}, WindowDType{"f32", true},
                                           WindowDType{"f16", false}, WindowDType{"bf16", false}),
                         [](const auto& info) {
                           return std::string(info.param.dtype) + (info.param.tf32 ? "_tf32" : "");
                         });

}  // namespace
}  // namespace heddle::tests
