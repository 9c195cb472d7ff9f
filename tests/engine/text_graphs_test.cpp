// Small graphs in IR text, each once compiled wrongly or not at all: the engine gives what the reference
// evaluator gives.
#include <cmath>
#include <gtest/gtest.h>

#include "heddle/heddle.h"

namespace hd = heddle;

namespace {

hd::Tensor counted(hd::DType dtype, hd::Sizes sizes, int start) {
  hd::Tensor tensor = hd::Tensor::empty(dtype, std::move(sizes));
  for (std::int64_t k = 0; k < tensor.count(); ++k) {
    const int value = static_cast<int>((k * 5 + start) % 7) - 3;
    if (dtype == hd::f32) tensor.data_as<float>()[k] = static_cast<float>(value);
    if (dtype == hd::f64) tensor.data_as<double>()[k] = value;
    if (dtype == hd::i8) tensor.data_as<std::int8_t>()[k] = static_cast<std::int8_t>(value);
  }
  return tensor;
}

/// The same elements, the first dimension the innermost in memory.
hd::Tensor turned(const hd::Tensor& tensor, std::vector<char>& memory) {
  const hd::Sizes sizes(tensor.sizes().begin(), tensor.sizes().end());
  hd::Sizes strides;
  std::int64_t step = 1;
  for (const std::int64_t size : sizes) {
    strides.push_back(step);
    step *= size;
  }
  memory.resize(static_cast<std::size_t>(step) * sizeof(float));
  auto* target = reinterpret_cast<float*>(memory.data());
  for (std::int64_t k = 0; k < step; ++k) {
    std::int64_t offset = 0;
    std::int64_t rest = k;
    for (std::size_t d = sizes.size(); d-- > 0; rest /= sizes[d])
      offset += rest % sizes[d] * strides[d];
    target[offset] = tensor.data_as<float>()[k];
  }
  return hd::Tensor::wrap_strided(memory.data(), hd::f32, sizes, strides);
}

/// Runs `text` on inputs of these sizes; the dtypes are those that it declares.
void expect_agrees(const char* text, const std::vector<hd::Sizes>& sizes, bool transposed = false) {
  hd::Engine compiled = hd::parse_ir(text);
  hd::Engine reference = hd::parse_ir(text, {.device = hd::Device::reference()});
  std::vector<hd::Tensor> inputs;
  const hd::Signature signature = compiled.signature();
  for (std::size_t k = 0; k < sizes.size(); ++k)
    inputs.push_back(counted(signature.inputs[k].dtype, sizes[k], static_cast<int>(k)));
  std::vector<std::vector<char>> memory(inputs.size());
  for (std::size_t k = 0; transposed && k < inputs.size(); ++k)
    inputs[k] = turned(inputs[k], memory[k]);
  const auto got = compiled.run(inputs);
  const auto want = reference.run(inputs);
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t k = 0; k < got.size(); ++k) {
    const std::vector<double> a = got[k].to_doubles();
    const std::vector<double> b = want[k].to_doubles();
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(a[i], b[i], 1e-5 * (1 + std::abs(b[i]))) << "output " << k << " at " << i;
  }
}

TEST(TextGraphs, RowsOfNoElementsHaveNoWork) {
  expect_agrees(R"(graph @main(%x: f32[s1, s0]) {
  %y = concat(%x, %x, %x) {axis = 1}
  %z = cumsum(%y) {axis = 0}
  return %y, %z
})",
                {{3, 0}});
}

TEST(TextGraphs, ResultsOfNoElementsTakeNoRecipe) {
  expect_agrees(R"(graph @main(%x: f64[2, s0], %y: f64[s0, 0]) {
  %a = matmul(%x, %y)
  %b = cumsum(%y) {axis = 0}
  %c = abs(%a)
  return %a, %b, %c
})",
                {{2, 3}, {3, 0}});
}

TEST(TextGraphs, KernelsOfNoElementsReadNothing) {
  expect_agrees(R"(graph @main(%x: f64[2, s0], %i: i8[s1]) {
  %y, %places = topk(%x) {k = 0, axis = 1}
  %z = erf(%y)
  %g = gather(%z, %i) {axis = 0}
  %r = reduce_sum(%z) {axes = [0]}
  return %g, %z, %r
})",
                {{2, 3}, {0}});
}

TEST(TextGraphs, LibraryKernelsReadStridedInputs) {
  expect_agrees(R"(graph @main(%x: f32[1, 2, 5], %w: f32[3, 2, 3]) {
  %y = conv(%x, %w) {strides = [1], pads_low = [0], pads_high = [1], dilations = [2]}
  return %y
})",
                {{1, 2, 5}, {3, 2, 3}}, /*transposed=*/true);
}

TEST(TextGraphs, LibraryKernelsSeeReshapedOperands) {
  expect_agrees(R"(graph @main(%x: f32[2, 40], %w: f32[6, 4]) {
  %rows = reshape(%x) {sizes = [1, 2, 40]}
  %taps = reshape(%w) {sizes = [3, 2, 4]}
  %y = conv(%rows, %taps) {strides = [4], pads_low = [0], pads_high = [0], dilations = [1]}
  %z = reshape(%y) {sizes = [30]}
  return %z
})",
                {{2, 40}, {6, 4}});
}

TEST(TextGraphs, TransposedConvolutionsSideBySide) {
  const char* text = R"(graph @main(%x: f32[s0, 8, s1, 6], %w: f32[8, 3, 2, 4], %b: f32[3]) {
  %y = conv_transpose(%x, %w, %b) {strides = [2, 4], pads_low = [0, 0], pads_high = [0, 0], dilations = [1, 1], output_padding = [0, 0]}
  %z = relu(%y)
  return %z
})";
  for (const std::int64_t rows : {1, 5, 0})
    expect_agrees(text, {{2, 8, rows, 6}, {8, 3, 2, 4}, {3}});
}

TEST(TextGraphs, ResizedInAnotherOrder) {
  for (const char* mode : {"nearest", "linear"}) {
    const std::string text =
        std::string(R"(graph @main(%x: f32[s0, 8, s1, s2], %w: f32[8, 8, 3, 3]) {
  %a = conv(%x, %w) {strides = [1, 1], pads_low = [1, 1], pads_high = [1, 1], dilations = [1, 1]}
  %r = resize(%a) {sizes = [s0, 8, 2*s1, 2*s2], scales = [1.0, 1.0, 2.0, 2.0], mode = ")") +
        mode + R"("}
  %b = conv(%r, %w) {strides = [1, 1], pads_low = [1, 1], pads_high = [1, 1], dilations = [1, 1]}
  return %b
})";
    expect_agrees(text.c_str(), {{1, 8, 5, 4}, {8, 8, 3, 3}});
  }
}

}  // namespace

/// The path from %first to %second leads through a kernel after both, which holds a node before %second.
// What is computed where it is read, after another node, is computed by no kernel of that node.
TEST(TextGraphs, WhatIsReadThroughAnotherNodeKeepsItsOrder) {
  expect_agrees(R"(graph @main(%x: i16[], %y: i16[6], %z: f32[s0]) {
  %a = variance(%z) {axes = [0], keepdims = true}
  %b = div(%x, %y)
  %c = alias(%a) after(%b)
  %d = neg(%c)
  %e = sub(%b, %d)
  return %e
})",
                {{}, {6}, {4}});
}

TEST(TextGraphs, AKernelOfEarlyAndLateNodesLiesBetweenTwoOthers) {
  expect_agrees(
      "graph @main(%a: f32[7], %b: f32[5], %c: f32[7]) {\n"
      "  %first = exp(%a)\n"
      "  %early = sin(%b)\n"
      "  %at = slice(%early) {start = [0], limit = [1], stride = [1]}\n"
      "  %second = add(%c, %at)\n"
      "  %alone = cos(%first) @{should_fallback = true}\n"
      "  %part = slice(%alone) {start = [0], limit = [5], stride = [1]}\n"
      "  %late = mul(%b, %part)\n"
      "  return %second, %late, %early\n"
      "}\n",
      {{7}, {5}, {7}});
}
