// Convolution and pooling.

#include <algorithm>

#include "engine/onnx/converters.h"
#include "engine/onnx/window.h"

namespace heddle::onnx {

namespace {

/// How many elements of x a window spans. Plain SymInts, as all of this: an overflow is an error.
SymInt reach_of(const WindowAttrs& window, std::size_t k) {
  return (SymInt(window.kernel[k]) - 1) * window.dilations[k] + 1;
}

bool keeps_sizes(const std::string& automatic) {
  return automatic == "SAME_UPPER" || automatic == "SAME_LOWER";
}

/// Without what auto_pad says of padding that keeps sizes.
WindowAttrs given_window(const Node& node, const Tensor& x, Ints kernel) {
  const std::size_t spatial = kernel.size();
  WindowAttrs window{.kernel = std::move(kernel),
                     .strides = node.integers("strides", Ints(spatial, 1)),
                     .dilations = node.integers("dilations", Ints(spatial, 1)),
                     .low = Ints(spatial, 0),
                     .high = Ints(spatial, 0)};
  if (x.rank() != static_cast<std::int64_t>(spatial) + 2)
    node.malformed("kernel", "one size a spatial dimension of X", std::to_string(spatial));
  if (window.strides.size() != spatial || window.dilations.size() != spatial)
    node.malformed("strides and dilations", std::to_string(spatial) + " numbers each",
                   std::to_string(window.strides.size()));
  for (const std::int64_t stride : window.strides)
    if (stride < 1) node.malformed("strides", "1 or more", std::to_string(stride));
  const Ints pads = node.integers("pads");
  const std::string automatic = node.string("auto_pad", "NOTSET");
  if (!keeps_sizes(automatic) && automatic != "VALID" && automatic != "NOTSET" &&
      !automatic.empty())
    node.malformed("auto_pad", "NOTSET, SAME_UPPER, SAME_LOWER or VALID", automatic);
  if (!keeps_sizes(automatic) && automatic != "VALID" && !pads.empty()) {
    if (pads.size() != 2 * spatial)
      node.malformed("pads", std::to_string(2 * spatial) + " numbers", std::to_string(pads.size()));
    std::copy_n(pads.begin(), spatial, window.low.begin());
    std::copy_n(pads.begin() + static_cast<std::ptrdiff_t>(spatial), spatial, window.high.begin());
  }
  return window;
}

}  // namespace

WindowAttrs window_attrs(const Node& node, const Tensor& x, Ints kernel) {
  WindowAttrs window = given_window(node, x, std::move(kernel));
  const std::string automatic = node.string("auto_pad", "NOTSET");
  if (!keeps_sizes(automatic)) return window;
  for (std::size_t k = 0; k < window.kernel.size(); ++k) {
    // Of open sizes this is a number, or by how far windows miss the end, as rows of an odd length do with a stride of 2.
    const SymInt size = x.size(static_cast<std::int64_t>(k) + 2);
    const SymInt stride = window.strides[k];
    const SymInt outputs = (size + stride - 1) / stride;
    const SymInt padded = (outputs - 1) * stride + reach_of(window, k);
    const std::int64_t total = std::max<std::int64_t>(0, (padded - size).value());
    window.low[k] = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
    window.high[k] = total - window.low[k];
  }
  return window;
}

Ints kernel_of(const Node& node, const Tensor& w) {
  Ints kernel = node.integers("kernel_shape");
  const std::size_t spatial = static_cast<std::size_t>(std::max<std::int64_t>(w.rank() - 2, 0));
  for (std::size_t k = 0; k < spatial; ++k) {
    const SymInt size = w.size(static_cast<std::int64_t>(k) + 2);
    if (kernel.size() == k)
      kernel.push_back(size.value());
    else if (!size.is_symbolic() && size.value() != kernel[k])
      node.malformed("kernel_shape", "the sizes of W", listed({kernel.begin(), kernel.end()}));
  }
  return kernel;
}

Tensor convolve(const Node& node, const Tensor& x, const Tensor& w, const Tensor& bias) {
  const WindowAttrs window = window_attrs(node, x, kernel_of(node, w));
  return one("conv", {x, w, bias},
             {{"strides", window.strides},
              {"pads_low", window.low},
              {"pads_high", window.high},
              {"dilations", window.dilations},
              {"groups", node.integer("group", 1)}});
}

namespace {

Outputs convert_conv(const Node& node) {
  return {convolve(node, node.tensor(0), node.tensor(1), node.optional(2))};
}

/// Pads that make the result as large as output_shape says; where they would be negative, the result
/// grows at its high end instead.
void pad_to_output(const Node& node, const Tensor& x, WindowAttrs& window, Ints& output_padding) {
  Ints wanted = node.integers("output_shape");
  const std::string automatic = node.string("auto_pad", "NOTSET");
  if (wanted.empty() && !keeps_sizes(automatic)) return;
  const std::size_t spatial = window.kernel.size();
  if (!wanted.empty() && wanted.size() < spatial)
    node.malformed("output_shape", "one size a spatial dimension", std::to_string(wanted.size()));
  if (wanted.size() > spatial)
    wanted.erase(wanted.begin(), wanted.end() - static_cast<std::ptrdiff_t>(spatial));
  for (std::size_t k = 0; k < spatial; ++k) {
    const SymInt size = x.size(static_cast<std::int64_t>(k) + 2);
    const SymInt output = wanted.empty() ? size * window.strides[k] : SymInt(wanted[k]);
    const SymInt needed = (size - 1) * window.strides[k] + output_padding[k] + reach_of(window, k);
    const std::int64_t total = (needed - output).value();
    const std::int64_t pads = std::max<std::int64_t>(total, 0);
    if (total < 0) output_padding[k] = (SymInt(output_padding[k]) - total).value();
    window.low[k] = automatic == "SAME_UPPER" ? pads / 2 : pads - pads / 2;
    window.high[k] = pads - window.low[k];
  }
}

Outputs conv_transpose(const Node& node) {
  const Tensor x = node.tensor(0);
  const Tensor w = node.tensor(1);
  WindowAttrs window = given_window(node, x, kernel_of(node, w));
  Ints output_padding = node.integers("output_padding", Ints(window.kernel.size(), 0));
  if (output_padding.size() != window.kernel.size())
    node.malformed("output_padding", "one number a spatial dimension", "another count");
  pad_to_output(node, x, window, output_padding);
  return {one("conv_transpose", {x, w, node.optional(2)},
              {{"strides", window.strides},
               {"pads_low", window.low},
               {"pads_high", window.high},
               {"dilations", window.dilations},
               {"output_padding", output_padding},
               {"groups", node.integer("group", 1)}})};
}

OpAttrs pool_attrs(const Node& node, const WindowAttrs& window) {
  return {{"kernel", window.kernel},       {"strides", window.strides},
          {"pads_low", window.low},        {"pads_high", window.high},
          {"dilations", window.dilations}, {"ceil_mode", node.integer("ceil_mode", 0) != 0}};
}

Outputs max_pool(const Node& node) {
  const Tensor x = node.tensor(0);
  Outputs outputs{max_pooled(node, x)};
  if (node.wants_output(1)) {
    OpAttrs attrs = pool_attrs(node, window_attrs(node, x, node.integers("kernel_shape")));
    attrs["column_major"] = node.integer("storage_order", 0) != 0;
    outputs.emplace_back(one("max_pool_indices", {x}, std::move(attrs)));
  }
  return outputs;
}

}  // namespace

Tensor channels_first(const Tensor& x) {
  Ints order{0, x.rank() - 1};
  for (std::int64_t k = 1; k < x.rank() - 1; ++k) order.push_back(k);
  return permute(x, order);
}
Tensor channels_last(const Tensor& x) {
  Ints order{0};
  for (std::int64_t k = 2; k < x.rank(); ++k) order.push_back(k);
  order.push_back(1);
  return permute(x, order);
}

Tensor max_pooled(const Node& node, const Tensor& x) {
  const WindowAttrs window = window_attrs(node, x, node.integers("kernel_shape"));
  return one("max_pool", {x}, pool_attrs(node, window));
}

Tensor average_pooled(const Node& node, const Tensor& x) {
  OpAttrs attrs = pool_attrs(node, window_attrs(node, x, node.integers("kernel_shape")));
  attrs["count_include_pad"] = node.integer("count_include_pad", 0) != 0;
  return one("avg_pool", {x}, std::move(attrs));
}

namespace {

Outputs average_pool(const Node& node) { return {average_pooled(node, node.tensor(0))}; }

double count_of(const Ints& kernel) {
  double count = 1;
  for (const std::int64_t size : kernel) count *= static_cast<double>(size);
  return count;
}

Tensor powered(const Tensor& x, double p) { return p == 2 ? x * x : pow(abs(x), p); }
Tensor root(const Tensor& x, double p) { return p == 2 ? sqrt(x) : pow(x, 1 / p); }

/// With ceil_mode a last window that reaches past the padded end: zeros stand there, and windows that would start
/// behind the input and its low padding are left out. Pads of `window` become 0.
Tensor with_last_windows(const Tensor& x, WindowAttrs& window) {
  const std::size_t spatial = window.kernel.size();
  SymInts low(spatial + 2, SymInt(0));
  SymInts high = low;
  for (std::size_t k = 0; k < spatial; ++k) {
    const SymInt padded = x.size(static_cast<std::int64_t>(k) + 2) + window.low[k];
    const SymInt stride = window.strides[k];
    const SymInt reach = reach_of(window, k);
    const SymInt past = (padded + window.high[k] - reach + stride - 1) / stride;
    const SymInt last = min(past, (padded + stride - 1) / stride - 1);
    low[k + 2] = window.low[k];
    high[k + 2] = last * stride + reach - padded;
    window.low[k] = window.high[k] = 0;
  }
  return pad(x, low, high);
}

/// The p-norm of each window: the mean over all taps, padding counted, times their number.
Outputs lp_pool(const Node& node) {
  const Tensor x = node.tensor(0);
  const double p = static_cast<double>(node.integer("p", 2));
  WindowAttrs window = window_attrs(node, x, node.integers("kernel_shape"));
  Tensor powers = powered(x, p);
  if (node.integer("ceil_mode", 0) != 0) powers = with_last_windows(powers, window);
  const OpAttrs attrs{{"kernel", window.kernel},       {"strides", window.strides},
                      {"pads_low", window.low},        {"pads_high", window.high},
                      {"dilations", window.dilations}, {"ceil_mode", false},
                      {"count_include_pad", true}};
  return {root(one("avg_pool", {powers}, attrs) * count_of(window.kernel), p)};
}

Outputs global_average_pool(const Node& node) {
  const Tensor x = node.tensor(0);
  return {mean(x, range_of(2, x.rank()), true)};
}

Outputs global_max_pool(const Node& node) {
  const Tensor x = node.tensor(0);
  return {amax(x, range_of(2, x.rank()), true)};
}

Outputs global_lp_pool(const Node& node) {
  const Tensor x = node.tensor(0);
  const double p = static_cast<double>(node.integer("p", 2));
  return {root(sum(powered(x, p), range_of(2, x.rank()), true), p)};
}

}  // namespace

std::span<const Converter> window_converters() {
  static constexpr Converter kConverters[] = {
      {"AveragePool", average_pool},
      {"Conv", convert_conv},
      {"ConvTranspose", conv_transpose},
      {"GlobalAveragePool", global_average_pool},
      {"GlobalLpPool", global_lp_pool},
      {"GlobalMaxPool", global_max_pool},
      {"LpPool", lp_pool},
      {"MaxPool", max_pool},
  };
  return kConverters;
}

}  // namespace heddle::onnx
