// Ops of the domain com.microsoft that exporters of transformers write.

#include "engine/onnx/converters.h"

namespace heddle::onnx {

namespace {

Outputs exact_gelu(const Node& node) { return {gelu(node.tensor(0))}; }

Outputs bias_gelu(const Node& node) { return {gelu(node.tensor(0) + node.tensor(1))}; }

Outputs fast_gelu(const Node& node) {
  const Tensor x = node.tensor(0);
  return {gelu(node.has(1) ? x + node.tensor(1) : x, true)};
}

Outputs quick_gelu(const Node& node) {
  const Tensor x = node.tensor(0);
  return {x * sigmoid(x * node.number("alpha", 1.702))};
}

/// Inputs: input, skip, gamma, beta, bias.
Outputs skip_layer_normalization(const Node& node) {
  Tensor total = node.tensor(0) + node.tensor(1);
  if (node.has(4)) total = total + node.tensor(4);
  const double epsilon = node.number("epsilon", 1e-12);
  return {layer_norm(total, node.tensor(2), node.optional(3), -1, epsilon), {}, {}, total};
}

Outputs simplified_layer_normalization(const Node& node) {
  const Tensor x = node.tensor(0);
  return {rms_norm(x, node.tensor(1), node.axis(node.integer("axis", -1), x.rank()),
                   node.number("epsilon", 1e-5))};
}

/// Inputs: input, skip, gamma, bias.
Outputs skip_simplified_layer_normalization(const Node& node) {
  Tensor total = node.tensor(0) + node.tensor(1);
  if (node.has(3)) total = total + node.tensor(3);
  return {rms_norm(total, node.tensor(2), -1, node.number("epsilon", 1e-12)), {}, {}, total};
}

/// A positive attribute of MatMulNBits.
std::int64_t size_attr(const Node& node, std::string_view name) {
  const std::int64_t size = node.integer(name, 0);
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  if (size < 1 || size > kMost)
    node.malformed(std::string(name), "1 to 2^31", std::to_string(size));
  return size;
}

/// Input k with these sizes: some exporters leave dimensions out.
Tensor with_sizes(const Node& node, std::size_t k, std::string_view name, SymInts sizes) {
  const Tensor given = node.tensor(k);
  const SymInt count = product(given.shape());
  const SymInt wanted = product(sizes);
  if (count.is_symbolic() || count.value() != wanted.value())
    node.malformed(std::string(name), listed(sizes), listed(given.shape()));
  return reshape(given, std::move(sizes));
}

/// What MatMulNBits says of its matrix [N, K], the rows of which are blocks.
struct BlockedMatrix {
  explicit BlockedMatrix(const Node& node)
      : depth(size_attr(node, "K")),
        columns(size_attr(node, "N")),
        bits(node.integer("bits", 4)),
        block(size_attr(node, "block_size")) {
    if (bits != 2 && bits != 4 && bits != 8)
      node.unsupported("bits = " + std::to_string(bits) + ", which are 2, 4 or 8");
    if (block < 16 || (block & (block - 1)) != 0)
      node.malformed("block_size", "a power of two from 16 on", std::to_string(block));
    blocks = (depth + block - 1) / block;
  }
  /// So many numbers of each row, in bytes.
  std::int64_t bytes_of(std::int64_t numbers) const { return (numbers * bits + 7) / 8; }
  /// The numbers that the last dimension of bytes holds.
  Tensor unpacked(const Tensor& bytes, std::int64_t count) const {
    if (bits == 8) return bytes;
    return one("unpack_bits", {bytes}, {{"bits", bits}, {"count", count}});
  }

  std::int64_t depth, columns, bits, block;
  std::int64_t blocks = 0;  ///< of a row
};

/// Numbers less their zero points, in the dtype of the scales.
Tensor centred(const Node& node, const BlockedMatrix& matrix, const Tensor& numbers, DType dtype) {
  constexpr std::size_t kZero = 3;
  const SymInts sizes{matrix.columns, matrix.blocks, 1};
  if (!node.has(kZero)) {
    const std::int64_t middle = std::int64_t{1} << (matrix.bits - 1);
    return cast(cast(numbers, i32) - Tensor::scalar_int(i32, middle), dtype);
  }
  if (is_floating(node.value(kZero).dtype())) {
    const Tensor zero = with_sizes(node, kZero, "zero_points", sizes);
    return cast(numbers, dtype) - cast(zero, dtype);
  }
  if (node.value(kZero).dtype() != u8) node.unsupported("zero points of this dtype");
  const Tensor packed =
      with_sizes(node, kZero, "zero_points", {matrix.columns, matrix.bytes_of(matrix.blocks)});
  const Tensor zero = reshape(matrix.unpacked(packed, matrix.blocks), sizes);
  return cast(cast(numbers, i32) - cast(zero, i32), dtype);
}

/// The matrix [N, K], each column of which takes the scales and zero points of the block that g_idx names.
Tensor by_groups(const Node& node, const BlockedMatrix& matrix, const Tensor& numbers,
                 const Tensor& scale) {
  constexpr std::size_t kGroups = 4;
  const Tensor groups = slice(cast(node.tensor(kGroups), i64), 0, 0, matrix.depth);
  const auto of_columns = [&](const Tensor& of_blocks) { return gather(of_blocks, groups, 1); };
  const Tensor all = cast(slice(numbers, 1, 0, matrix.depth), scale.dtype());
  const Tensor none = reshape(Tensor::scalar_int(u8, 0), {1, 1, 1});
  const Tensor below = centred(node, matrix, none, scale.dtype());  // 0 less the zero points
  const Tensor wide = expand(below, {matrix.columns, matrix.blocks, 1});
  return (all + of_columns(squeeze(wide, 2))) * of_columns(scale);
}

/// Inputs: A, B, scales, zero_points, g_idx, bias. Accuracy level 4 lets kernels round A to bytes.
Outputs matmul_nbits(const Node& node) {
  const BlockedMatrix matrix(node);
  if (node.integer("weight_prepacked", 0) != 0) node.unsupported("weight_prepacked");
  if (node.value(1).dtype() != u8)
    node.malformed("dtype of B", "u8", std::string(name_of(node.value(1).dtype())));
  Tensor a = node.tensor(0);
  const DType dtype = a.dtype();
  if (a.rank() < 2 || a.size(-1) != SymInt(matrix.depth))
    node.malformed("A", "sizes [..., " + std::to_string(matrix.depth) + "]", listed(a.shape()));
  const Tensor bytes =
      with_sizes(node, 1, "B", {matrix.columns, matrix.blocks, matrix.bytes_of(matrix.block)});
  const Tensor scale =
      cast(with_sizes(node, 2, "scales", {matrix.columns, matrix.blocks, 1}), dtype);
  const Tensor numbers = matrix.unpacked(bytes, matrix.block);
  const std::int64_t padded = matrix.blocks * matrix.block;
  const auto with_bias = [&](const Tensor& y) { return node.has(5) ? y + node.tensor(5) : y; };
  if (node.has(4)) {
    const Tensor all = reshape(numbers, {matrix.columns, padded});
    const Tensor rows = by_groups(node, matrix, all, squeeze(scale, 2));
    return {with_bias(matmul(a, transpose(rows, 0, 1)))};
  }
  const Tensor rows =
      reshape(centred(node, matrix, numbers, dtype) * scale, {matrix.columns, padded});
  if (padded != matrix.depth) {
    SymInts none(static_cast<std::size_t>(a.rank()), 0);
    SymInts missing = none;
    missing.back() = padded - matrix.depth;
    a = pad(a, none, missing);
  }
  constexpr std::int64_t kBytes = 4;
  const bool rounds = node.integer("accuracy_level", 0) == kBytes;
  const Tensor y = one("matmul", {a, transpose(rows, 0, 1)}, {{"int8", rounds}});
  return {with_bias(y)};
}

/// A table of what the four bits of bitsandbytes stand for: FP4, and NF4 as the paper on QLoRA has it.
Tensor four_bit_numbers(const Node& node) {
  static constexpr float kFloats[] = {
      0,     0.0052083333f,  0.6666667f,  1,  0.33333333f,  0.5f,  0.16666667f,  0.25f,
      -0.0f, -0.0052083333f, -0.6666667f, -1, -0.33333333f, -0.5f, -0.16666667f, -0.25f};
  static constexpr float kNormal[] = {-1,
                                      -0.6961928009986877f,
                                      -0.5250730514526367f,
                                      -0.39491748809814453f,
                                      -0.28444138169288635f,
                                      -0.18477343022823334f,
                                      -0.09105003625154495f,
                                      0,
                                      0.07958029955625534f,
                                      0.16093020141124725f,
                                      0.24611230194568634f,
                                      0.33791524171829224f,
                                      0.44070982933044434f,
                                      0.5626170039176941f,
                                      0.7229568362236023f,
                                      1};
  const std::int64_t kind = node.integer("quant_type", 1);
  if (kind != 0 && kind != 1) node.malformed("quant_type", "0 or 1", std::to_string(kind));
  return Tensor::of(std::span<const float>(kind == 0 ? kFloats : kNormal), {16});
}

/// Inputs: A, B, absmax. Bytes hold two numbers of B [N, K] each, the first one in the high bits; blocks run over rows.
Outputs matmul_bnb4(const Node& node) {
  const std::int64_t depth = size_attr(node, "K");
  const std::int64_t columns = size_attr(node, "N");
  const std::int64_t block = size_attr(node, "block_size");
  const std::int64_t count = depth * columns;
  if (count % 2 != 0 || count % block != 0)
    node.unsupported("a matrix of no whole number of bytes and blocks");
  const Tensor bytes = with_sizes(node, 1, "B", {count / 2, 1});
  const Tensor pairs =
      one("unpack_bits", {bytes}, {{"bits", std::int64_t{4}}, {"count", std::int64_t{2}}});
  const Tensor numbers = cast(one("reverse", {pairs}, {{"axes", Ints{1}}}), i32);
  const DType dtype = node.value(0).dtype();
  const Tensor reals = gather(cast(four_bit_numbers(node), dtype), numbers, 0);
  const Tensor scale = cast(with_sizes(node, 2, "absmax", {count / block, 1}), dtype);
  const Tensor b = reshape(reshape(reals, {count / block, block}) * scale, {columns, depth});
  return {matmul(node.tensor(0), node.integer("transB", 1) != 0 ? transpose(b, 0, 1) : b)};
}

/// Numbers of the last dimension, of which each byte holds some.
Tensor spread(const Tensor& bytes, std::int64_t bits) {
  if (bits == 8) return bytes;
  const std::int64_t count = bytes.size(-1).value() * (8 / bits);
  return one("unpack_bits", {bytes}, {{"bits", bits}, {"count", count}});
}

/// Rows of a matrix in few bits. Inputs: data, indices, scales and zero points, those of blocks along one dimension.
Outputs gather_block_quantized(const Node& node) {
  const Value& data = node.value(0);
  const std::int64_t rank = data.rank();
  const std::int64_t axis = node.axis(node.integer("gather_axis", 0), rank);
  const std::int64_t along = node.axis(node.integer("quantize_axis", 1), rank);
  const std::int64_t block = node.integer("block_size", 128);
  if (axis == along || along != rank - 1)
    node.unsupported("blocks along another dimension than the last, or along the gathered one");
  if (block < 1) node.malformed("block_size", "1 or more", std::to_string(block));
  const bool in_bytes = data.bits() == 0;
  const std::int64_t bits = in_bytes ? node.integer("bits", 4) : 8;
  if (bits != 2 && bits != 4 && bits != 8) node.unsupported("bits = " + std::to_string(bits));
  const Tensor indices = node.tensor(1);
  const auto rows = [&](std::size_t k) { return gather(node.tensor(k), indices, axis); };
  const Tensor numbers = cast(spread(rows(0), bits), i32);
  const Tensor scales = rows(2);
  SymInts blocks = scales.shape();
  blocks.emplace_back(1);
  const std::int64_t none = in_bytes ? std::int64_t{1} << (bits - 1) : 0;
  Tensor zero = Tensor::scalar_int(i32, none);
  if (node.has(3)) {
    Tensor points = spread(rows(3), bits);
    points = slice(points, -1, 0, scales.size(-1));
    zero = reshape(cast(points, i32), blocks);
  }
  SymInts apart = scales.shape();
  apart.emplace_back(block);
  const SymInt padded = scales.size(-1) * block;
  const SymInt missing = padded - numbers.size(-1);
  SymInts low(static_cast<std::size_t>(numbers.rank()), SymInt(0));
  SymInts high = low;
  high.back() = missing;
  const Tensor whole = missing == 0 ? numbers : pad(numbers, low, high);
  const Tensor real = cast(reshape(whole, apart) - zero, scales.dtype()) * reshape(scales, blocks);
  return {slice(reshape(real, whole.shape()), -1, 0, numbers.size(-1))};
}

}  // namespace

std::span<const Converter> contrib_converters() {
  static constexpr Converter kConverters[] = {
      {"BiasGelu", bias_gelu},
      {"FastGelu", fast_gelu},
      {"GatherBlockQuantized", gather_block_quantized},
      {"Gelu", exact_gelu},
      {"MatMulBnb4", matmul_bnb4},
      {"MatMulNBits", matmul_nbits},
      {"QuickGelu", quick_gelu},
      {"SimplifiedLayerNormalization", simplified_layer_normalization},
      {"SkipLayerNormalization", skip_layer_normalization},
      {"SkipSimplifiedLayerNormalization", skip_simplified_layer_normalization},
  };
  return kConverters;
}

}  // namespace heddle::onnx
