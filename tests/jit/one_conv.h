// Graphs of one convolution with the channels last, and what follows it.
#pragma once

#include <gtest/gtest.h>

#include "tests/jit/nests_support.h"
#include "tests/support/one_op.h"

namespace heddle::test {

struct OneConv {
  std::int64_t groups = 1, channels = 1, results = 1;  ///< of each group
  Ints kernel{3, 3}, strides{1, 1}, low{1, 1}, high{1, 1}, dilations{1, 1};
  std::vector<const char*> sizes{"2", "7", "9"};  ///< of x, but for the channels
  bool biased = true;
  bool fixed = true;      ///< weights are constants
  bool turned = false;    ///< x has its channels first
  std::int64_t step = 1;  ///< every so many-th channel of a larger tensor is x's
  std::int64_t left =
      0;  ///< positions of that tensor before those of x, and behind them, along a row
};

inline ir::Graph graph_of(const OneConv& c) {
  ir::GraphBuilder b("main");
  ir::Dims sizes;
  Ints behind{0};
  for (const char* size : c.sizes) sizes.push_back(base::parse_symexpr(size));
  for (std::size_t d = 1; d < c.sizes.size(); ++d)
    behind.push_back(static_cast<std::int64_t>(d) + 1);
  behind.push_back(1);
  const base::SymExpr channels = c.groups * c.channels;
  ir::Dims start(sizes.size() + 1, base::SymExpr(0)), stride(sizes.size() + 1, base::SymExpr(1));
  ir::Dims limit = sizes;
  limit.push_back(channels * c.step);
  start[sizes.size() - 1] = c.left;
  limit[sizes.size() - 1] += c.left;
  stride.back() = c.step;
  sizes.back() += 2 * c.left;
  sizes.insert(c.turned ? sizes.begin() + 1 : sizes.end(), channels * c.step);
  ir::Value x = b.input(ir::TensorMeta::of(f32, sizes), "x");
  if (c.turned) x = b.emit("permute", {x}, {{"perm", behind}});
  if (c.step != 1 || c.left != 0)
    x = b.emit("slice", {x}, {{"start", start}, {"limit", limit}, {"stride", stride}});
  Ints weights{c.groups * c.results, c.channels};
  weights.insert(weights.end(), c.kernel.begin(), c.kernel.end());
  std::vector<ir::Value> operands{
      x, c.fixed ? b.constant(random_literal(f32, weights, 7))
                 : b.input(ir::TensorMeta::of(f32, {weights.begin(), weights.end()}), "w")};
  if (c.biased) operands.push_back(b.constant(random_literal(f32, {weights[0]}, 8)));
  const ir::Value y = b.call("conv", operands,
                             {{"strides", c.strides},
                              {"pads_low", c.low},
                              {"pads_high", c.high},
                              {"dilations", c.dilations},
                              {"groups", c.groups},
                              {"channels_last", true}})
                          ->value();
  b.output(b.emit("max", {y, b.constant(ir::Literal::scalar(f32, -0.2))}));
  return b.finish();
}

/// As lowered where a library has kernels of convolutions.
inline jit::LowerOptions with_convs_of_a_library(std::int64_t vector_bytes) {
  jit::LowerOptions options;
  options.library_available = [](std::string_view name, const ir::Node&) { return name == "conv"; };
  options.vector_bytes = vector_bytes;
  return options;
}

}  // namespace heddle::test
