// Random numbers: others in each run. They are not those of another runtime, whatever the seed.

#include <bit>

#include "engine/onnx/converters.h"
#include "heddle/custom_op.h"

namespace heddle::onnx {

namespace {

/// A key that is another one in each run; nodes with the same seed share a sequence of them, which a process begins anew.
Tensor next_key(const Node& node) {
  const auto seed = static_cast<float>(node.number("seed", 0));
  const std::int64_t stream =
      node.has_attr("seed") ? std::int64_t{1} + std::bit_cast<std::uint32_t>(seed) : 0;
  return call("heddle::random_key", {stream})[0];
}

Tensor drawn(const Node& node, SymInts sizes, DType dtype, bool normal) {
  if (!is_floating(dtype)) node.malformed("dtype", "a floating dtype", std::string(name_of(dtype)));
  OpAttrs attrs{{"sizes", std::move(sizes)}, {"dtype", dtype}};
  if (normal) {
    attrs.emplace("mean", node.number("mean", 0));
    attrs.emplace("stddev", node.number("scale", 1));
    return one("random_normal", {next_key(node)}, std::move(attrs));
  }
  attrs.emplace("low", node.number("low", 0));
  attrs.emplace("high", node.number("high", 1));
  return one("random_uniform", {next_key(node)}, std::move(attrs));
}

template <bool normal>
Outputs random(const Node& node) {
  SymInts sizes;
  for (const std::int64_t size : node.integers("shape")) sizes.push_back(size);
  return {drawn(node, std::move(sizes), node.dtype("dtype", f32), normal)};
}

template <bool normal>
Outputs random_like(const Node& node) {
  const DType own = node.value(0).dtype();
  return {drawn(node, node.value(0).shape(), node.dtype("dtype", own), normal)};
}

Tensor unit(const Node& node, SymInts sizes, DType dtype) {
  return one("random_uniform", {next_key(node)}, {{"sizes", std::move(sizes)}, {"dtype", dtype}});
}

Outputs bernoulli(const Node& node) {
  const Tensor x = node.tensor(0);
  return {cast(less(unit(node, x.shape(), x.dtype()), x), node.dtype("dtype", x.dtype()))};
}

/// How many classes end below a number drawn: x holds logarithms of what is proportional to their chances.
Outputs multinomial(const Node& node) {
  const Tensor x = node.tensor(0);
  if (x.rank() != 2) node.malformed("input", "2 dimensions", std::to_string(x.rank()));
  const Tensor ends = cumsum(softmax(x, -1), 1);
  const Tensor number = unit(node, {x.size(0), SymInt(node.integer("sample_size", 1))}, x.dtype());
  const Tensor below = less_equal(unsqueeze(ends, 1), unsqueeze(number, 2));
  const Tensor last = size_tensor(x.size(1)) - 1;  // of a sum that rounding leaves below 1
  return {cast(minimum(sum(cast(below, i64), {2}), last), node.dtype("dtype", i32))};
}

}  // namespace

std::span<const Converter> random_converters() {
  static constexpr Converter kConverters[] = {
      {"Bernoulli", bernoulli},         {"Multinomial", multinomial},
      {"RandomNormal", random<true>},   {"RandomNormalLike", random_like<true>},
      {"RandomUniform", random<false>}, {"RandomUniformLike", random_like<false>},
  };
  return kConverters;
}

}  // namespace heddle::onnx
