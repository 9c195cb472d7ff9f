"""Cases of ops.py: convolutions, products, attention, recurrences, quantisation."""
import math

import ml_dtypes
import numpy as np
from onnx import TensorProto

from op_models import (BYTE, DOUBLE, HALF, IMAGE, INT8, INT32, Operand, chance, constant, normal, one, positive, weight,
                       peer_saturates, whole)


def conv(shape, weights, **attributes):
    return one("Conv", shape, weight(*weights), weight(weights[0]), **attributes)


def upwards(shape, weights, group=1, **attributes):
    return one("ConvTranspose", shape, weight(*weights), weight(weights[1] * group), group=group, **attributes)


ROUND_1 = {"pads": [1] * 4}
SPEECH = (1, 256, 400)
SOUND = (1, 8, 172, 264)

CONVOLUTIONS = {
    "fused_relu": one("com.microsoft.FusedConv", (1, 64, 28, 28), weight(64, 64, 3, 3), weight(64), activation="Relu",
                      kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "conv_1x1": conv(IMAGE, (128, 64, 1, 1)),
    "conv_1x1_7x7x2048": conv((1, 2048, 7, 7), (512, 2048, 1, 1)),
    "conv_1x1_stride_2": conv((1, 256, 56, 56), (512, 256, 1, 1), strides=[2, 2]),
    "conv_3x3": conv(IMAGE, (64, 64, 3, 3), **ROUND_1),
    "conv_3x3_stride_2": conv(IMAGE, (128, 64, 3, 3), strides=[2, 2], **ROUND_1),
    "conv_3x3_7x7x512": conv((1, 512, 7, 7), (512, 512, 3, 3), **ROUND_1),
    "conv_3x3_640": conv((1, 3, 640, 640), (16, 3, 3, 3), strides=[2, 2], **ROUND_1),
    "conv_3x3_narrow": conv((1, 16, 160, 160), (16, 16, 3, 3), **ROUND_1),
    "conv_3x3_to_1": conv((1, 64, 112, 112), (1, 64, 3, 3), **ROUND_1),
    "conv_3x3_to_4": conv((1, 32, 80, 80), (4, 32, 3, 3), **ROUND_1),
    "conv_9x9_to_3": conv((1, 64, 112, 112), (3, 64, 9, 9), pads=[4] * 4),
    "conv_5x5_8_to_1": conv(SOUND, (1, 8, 5, 5), pads=[2] * 4),
    "conv_3x39_8_to_8": conv(SOUND, (8, 8, 3, 39), pads=[1, 19, 1, 19]),
    "conv_1x39_8_to_40": conv(SOUND, (40, 8, 1, 39), pads=[0, 19, 0, 19]),
    "conv_3x3_batch_8": conv((8, 64, 28, 28), (64, 64, 3, 3), **ROUND_1),
    "conv_1x1_batch_8": conv((8, 256, 14, 14), (256, 256, 1, 1)),
    "conv_3x3_same_upper": conv((1, 64, 57, 57), (64, 64, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER"),
    "conv_5x5": conv((1, 32, 28, 28), (32, 32, 5, 5), pads=[2] * 4),
    "conv_7x7_stride_2": conv((1, 3, 224, 224), (64, 3, 7, 7), strides=[2, 2], pads=[3] * 4),
    "conv_patches_16": conv((1, 3, 224, 224), (768, 3, 16, 16), strides=[16, 16]),
    "conv_patches_4": conv((1, 3, 224, 224), (96, 3, 4, 4), strides=[4, 4]),
    "conv_dilated_2": conv(IMAGE, (64, 64, 3, 3), dilations=[2, 2], pads=[2] * 4),
    "conv_1x3": conv(IMAGE, (64, 64, 1, 3), pads=[0, 1, 0, 1]),
    "conv_7x1": conv((1, 192, 17, 17), (192, 192, 7, 1), pads=[3, 0, 3, 0]),
    "conv_groups_4": conv(IMAGE, (64, 16, 3, 3), group=4, **ROUND_1),
    "conv_groups_32": conv((1, 128, 56, 56), (128, 4, 3, 3), group=32, **ROUND_1),
    "conv_depthwise_3": conv(IMAGE, (64, 1, 3, 3), group=64, **ROUND_1),
    "conv_depthwise_3_stride_2": conv((1, 144, 56, 56), (144, 1, 3, 3), group=144, strides=[2, 2], **ROUND_1),
    "conv_depthwise_5_stride_2": conv(IMAGE, (64, 1, 5, 5), group=64, strides=[2, 2], pads=[2] * 4),
    "conv_depthwise_7": conv((1, 96, 56, 56), (96, 1, 7, 7), group=96, pads=[3] * 4),
    "conv_depthwise_7x7_image": conv((1, 960, 7, 7), (960, 1, 5, 5), group=960, pads=[2] * 4),
    "conv_depthwise_doubled": conv((1, 64, 28, 28), (128, 1, 3, 3), group=64, **ROUND_1),
    "conv_1d_3": conv(SPEECH, (256, 256, 3), pads=[1, 1]),
    "conv_1d_dilated": conv(SPEECH, (256, 256, 3), pads=[4, 4], dilations=[4]),
    "conv_1d_10_stride_5": conv((1, 1, 16000), (512, 1, 10), strides=[5]),
    "conv_1d_256_to_36": conv((1, 1, 11217), (36, 1, 256), strides=[64]),
    "conv_1d_256_to_1": conv((1, 1, 22176), (1, 1, 256), strides=[2]),
    "conv_1d_depthwise_3": conv(SPEECH, (256, 1, 3), group=256, pads=[1, 1]),
    "conv_1d_depthwise_4_causal": conv((1, 1536, 128), (1536, 1, 4), group=1536, pads=[3, 0]),
    "conv_1d_depthwise_15": conv(SPEECH, (256, 1, 15), group=256, pads=[7, 7]),
    "conv_1d_depthwise_31": conv(SPEECH, (256, 1, 31), group=256, pads=[15, 15]),
    "conv_1d_positions": conv((1, 768, 49), (768, 48, 128), group=16, pads=[64, 64]),
    "conv_1x31_depthwise": conv((1, 256, 1, 400), (256, 1, 1, 31), group=256, pads=[0, 15, 0, 15]),
    "conv_3d": conv((1, 16, 8, 28, 28), (16, 16, 3, 3, 3), pads=[1] * 6),
    "conv_3d_1x3x3": conv((1, 16, 8, 28, 28), (32, 16, 1, 3, 3), pads=[0, 1, 1, 0, 1, 1]),
    "conv_f16": one("Conv", normal(1, 64, 28, 28, dtype=HALF), weight(64, 64, 3, 3, dtype=HALF), **ROUND_1),
    "conv_weights_given": one("Conv", IMAGE, normal(64, 64, 3, 3, scale=0.05), **ROUND_1),
    "conv_depthwise_weights_given": one("Conv", (1, 256, 31, 31), normal(256, 1, 7, 7, scale=0.05), group=256),
    "conv_transpose_2_stride_2": upwards(IMAGE, (64, 32, 2, 2), strides=[2, 2]),
    "conv_transpose_4_stride_2": upwards((1, 64, 28, 28), (64, 32, 4, 4), strides=[2, 2], **ROUND_1),
    "conv_transpose_3_stride_2": upwards((1, 64, 28, 28), (64, 32, 3, 3), strides=[2, 2], output_padding=[1, 1],
                                           **ROUND_1),
    "conv_transpose_groups_4": upwards((1, 64, 28, 28), (64, 16, 4, 4), group=4, strides=[2, 2], **ROUND_1),
    "conv_transpose_depthwise": upwards((1, 64, 28, 28), (64, 1, 4, 4), group=64, strides=[2, 2], **ROUND_1),
    "conv_transpose_1d": upwards((1, 256, 100), (256, 128, 16), strides=[8], pads=[4, 4]),
    "conv_transpose_3d": upwards((1, 16, 4, 14, 14), (16, 8, 2, 2, 2), strides=[2, 2, 2]),
    "deform_conv": one("DeformConv", (1, 32, 28, 28), weight(32, 32, 3, 3), normal(1, 18, 28, 28, scale=0.5),
                       **ROUND_1),
}


def attention(heads, queries, keys, size, scale=None):
    def build(op):
        scores = op("MatMul", (1, heads, queries, size), (1, heads, size, keys))
        scores = op("Mul", scores, scale or 1 / math.sqrt(size))
        return op("MatMul", op("Softmax", scores, axis=-1), (1, heads, keys, size))
    return build


def windows_attention(op):
    scores = op("Add", op("MatMul", (64, 4, 49, 32), (64, 4, 32, 49)), weight(1, 4, 49, 49))
    return op("MatMul", op("Softmax", scores, axis=-1), (64, 4, 49, 32))


def grouped_query_decode(op):
    heads, shared, past, size = 16, 4, 1023, 64
    cache = (1, shared, past, size)
    return op("com.microsoft.GroupQueryAttention", (1, 1, heads * size), (1, 1, shared * size), (1, 1, shared * size),
              cache, cache, np.array([past], np.int32), np.array(past + 1, np.int32), results=3, num_heads=heads,
              kv_num_heads=shared)


def few_bits(rows, inner, outer, block=32, bits=4, zeros=False):
    blocks = inner // block
    zero_points = constant(whole(256, outer * ((blocks * bits + 7) // 8), dtype=BYTE)) if zeros else None
    return one("com.microsoft.MatMulNBits", (rows, inner),
               constant(whole(256, outer, blocks, block * bits // 8, dtype=BYTE)),
               constant(positive(outer * blocks, low=0.001, high=0.01)), zero_points, K=inner, N=outer, bits=bits,
               block_size=block)


def transposed_product(op):
    return op("MatMul", (128, 768), op("Transpose", (768, 768), perm=[1, 0]))


def experts(rows, width, inner, count):
    return one("com.microsoft.MoE", (rows, width), (rows, count), weight(count, inner, width), weight(count, inner),
               weight(count, width, inner), weight(count, width), k=2, activation_type="silu",
               normalize_routing_weights=1)


PRODUCTS = {
    "gemm_1_row": one("Gemm", (1, 1024), weight(1000, 1024), weight(1000), transB=1),
    "gemm_8_rows": one("Gemm", (8, 1024), weight(1000, 1024), weight(1000), transB=1),
    "gemm_transposed_a": one("Gemm", (256, 128), weight(256, 512), weight(512), transA=1),
    "gemm_alpha_beta": one("Gemm", (64, 256), weight(256, 512), (64, 512), alpha=0.5, beta=2.0),
    "product_128x768": one("MatMul", (128, 768), weight(768, 768)),
    "product_1x4096": one("MatMul", (1, 4096), weight(4096, 4096)),
    "product_odd": one("MatMul", (37, 203), weight(203, 77)),
    "product_depth_1": one("MatMul", (512, 1), (1, 1024)),
    "product_width_1": one("MatMul", (1024, 512), weight(512, 1)),
    "product_width_8": one("MatMul", (4096, 64), weight(64, 8)),
    "product_width_3": one("MatMul", (128, 768), weight(768, 3)),
    "product_width_8_deep": one("MatMul", (512, 1024), weight(1024, 8)),
    "product_width_10": one("MatMul", (64, 512), weight(512, 10)),
    "product_deep": one("MatMul", (16, 8192), weight(8192, 16)),
    "product_vector": one("MatMul", (1024, 1024), weight(1024)),
    "product_dot": one("MatMul", (4096,), (4096,)),
    "product_2x2": one("MatMul", (2, 2), (2, 2)),
    "product_2x2_batch": one("MatMul", (4096, 2, 2), (4096, 2, 2)),
    "product_4x4_batch": one("MatMul", (4096, 4, 4), (4096, 4, 4)),
    "product_3x3_points": one("MatMul", (1, 3, 3), (1, 3, 4096)),
    "product_batch_96": one("MatMul", (96, 32, 64), (96, 64, 32)),
    "product_batch_shared": one("MatMul", (8, 128, 256), weight(256, 256)),
    "product_batch_broadcast": one("MatMul", (4, 1, 64, 64), (1, 8, 64, 64)),
    "product_given": one("MatMul", (128, 768), (768, 768)),
    "product_given_1_row": one("MatMul", (1, 768), (768, 768)),
    "product_given_transposed": transposed_product,
    "product_f64": one("MatMul", normal(128, 256, dtype=DOUBLE), weight(256, 256, dtype=DOUBLE)),
    "product_f16": one("MatMul", normal(128, 256, dtype=HALF), weight(256, 256, dtype=HALF)),
    "product_i32": one("MatMul", whole(100, 64, 128, dtype=INT32), whole(100, 128, 64, dtype=INT32)),
    "fused_matmul": one("com.microsoft.FusedMatMul", (8, 64, 128), (8, 64, 128), transB=1, alpha=0.125),
    "fused_matmul_batch": one("com.microsoft.FusedMatMul", (128, 8, 64), (8, 64, 128), transBatchA=1, alpha=0.125),
    "fused_gemm": one("com.microsoft.FusedGemm", (64, 512), weight(512, 512), weight(512), activation="LeakyRelu",
                      activation_alpha=0.1),
    "distances": one("com.microsoft.CDist", (256, 64), weight(128, 64), metric="euclidean"),
    "experts": experts(32, 256, 512, 8),
    "experts_1_row": experts(1, 256, 512, 8),
    "few_bits_rows": one("com.microsoft.GatherBlockQuantized", constant(whole(256, 4096, 512, dtype=BYTE)),
                         whole(4096, 1, 64), constant(positive(4096, 32, low=0.001, high=0.01)), block_size=32,
                         quantize_axis=1, bits=4),
    "einsum_scores": one("Einsum", (1, 128, 8, 64), (1, 128, 8, 64), equation="bqhd,bkhd->bhqk"),
    "einsum_context": one("Einsum", (1, 8, 128, 128), (1, 128, 8, 64), equation="bhqk,bkhd->bqhd"),
    "einsum_outer": one("Einsum", (512,), (1024,), equation="i,j->ij"),
    "einsum_project": one("Einsum", (1, 128, 768), weight(768, 12, 64), equation="btd,dhk->bthk"),
    "einsum_channels": one("Einsum", (1, 64, 28, 28), (1, 20, 64), equation="bchw,bnc->bnhw"),
    "einsum_bilinear": one("Einsum", (32, 64), weight(16, 64, 64), (32, 64), equation="bn,anm,bm->ba"),
    "einsum_hadamard": one("Einsum", (512, 256), (512, 256), equation="ij,ij->i"),
    "few_bits_1_row": few_bits(1, 2048, 2048),
    "few_bits_32_rows": few_bits(32, 1024, 1024),
    "few_bits_zeros": few_bits(1, 1024, 1024, block=128, zeros=True),
    "few_bits_bnb": one("com.microsoft.MatMulBnb4", (1, 1024), constant(whole(256, 1024 * 512, dtype=BYTE)),
                        constant(positive(1024 * 16, low=0.01, high=0.1)), K=1024, N=1024, block_size=64, quant_type=1),
    "eight_bits_1_row": few_bits(1, 1024, 1024, bits=8),
}

ATTENTION = {
    "attention_64": attention(8, 256, 256, 64),
    "attention_128": attention(8, 256, 256, 128),
    "attention_decode": attention(16, 1, 1024, 64),
    "attention_cross": attention(8, 300, 1500, 32),
    "attention_windows": windows_attention,
    "attention_op": one("Attention", (1, 8, 256, 64), (1, 8, 256, 64), (1, 8, 256, 64), is_causal=1),
    "multi_head_attention": one("com.microsoft.MultiHeadAttention", (1, 128, 512), (1, 128, 512), (1, 128, 512),
                                num_heads=8),
    "attention_contrib": one("com.microsoft.Attention", (1, 128, 256), weight(256, 768), weight(768), num_heads=4),
    "grouped_query_decode": grouped_query_decode,
    "rotary": one("RotaryEmbedding", (1, 16, 128, 64), weight(1, 128, 32), weight(1, 128, 32)),
    "rotary_contrib": one("com.microsoft.RotaryEmbedding", (1, 16, 128, 64), constant(Operand(
        lambda _: np.arange(128)[None])), weight(2048, 32), weight(2048, 32)),
}


def recurrent(kind, gates, steps, batch, width, hidden, directions=1, results=1, biased=True, lengths=None,
              **attributes):
    """`lengths`: of the sequences, an input."""
    given = None if lengths is None else Operand(lambda _: np.array(lengths, INT32))
    bias = weight(directions, 2 * gates * hidden) if biased else None
    direction = "bidirectional" if directions == 2 else "forward"
    return one(kind, (steps, batch, width), weight(directions, gates * hidden, width),
               weight(directions, gates * hidden, hidden), bias, given, results=results, hidden_size=hidden,
               direction=direction, **attributes)


RECURRENCES = {
    "rnn": recurrent("RNN", 1, 32, 1, 256, 256, biased=False),
    "gru": recurrent("GRU", 3, 32, 1, 256, 256),
    "gru_linear_before_reset": recurrent("GRU", 3, 32, 1, 256, 256, linear_before_reset=1),
    "gru_batch_4": recurrent("GRU", 3, 32, 4, 256, 256),
    "gru_both_ways": recurrent("GRU", 3, 64, 1, 128, 128, directions=2),
    "gru_1_step": recurrent("GRU", 3, 1, 1, 256, 256, results=2),
    "lstm": recurrent("LSTM", 4, 32, 1, 256, 256, results=3),
    "lstm_batch_4": recurrent("LSTM", 4, 32, 4, 256, 256),
    "lstm_batch_8": recurrent("LSTM", 4, 32, 8, 256, 256),
    "lstm_both_ways": recurrent("LSTM", 4, 64, 1, 256, 128, directions=2),
    "lstm_1_step": recurrent("LSTM", 4, 1, 1, 128, 128, results=3),
    "lstm_lengths": recurrent("LSTM", 4, 64, 4, 256, 256, results=3, lengths=[9, 16, 3, 12]),
    "lstm_lengths_full": recurrent("LSTM", 4, 32, 4, 256, 256, results=3, lengths=[32, 16, 20, 32]),
    "gru_lengths_both_ways": recurrent("GRU", 3, 64, 4, 128, 128, directions=2, lengths=[9, 16, 3, 12]),
    "lstm_hard_sigmoid": recurrent("LSTM", 4, 32, 1, 256, 256, activations=["HardSigmoid", "Softsign", "Softsign"]),
    "lstm_narrow": recurrent("LSTM", 4, 200, 1, 16, 32),
}

SCALE, ZERO = np.float32(0.02), np.uint8(128)
NONE = np.int8(0)


LARGEST_WEIGHT = 63 if peer_saturates() else 127


def bytes_of(*shape):
    return constant(whole(LARGEST_WEIGHT + 1, *shape, dtype=INT8, low=-LARGEST_WEIGHT))


def through_bytes(op, x):
    return op("DequantizeLinear", op("QuantizeLinear", x, SCALE, ZERO), SCALE, ZERO)


def through_float8(to):
    """Two steps of ONNX Runtime, which does not fuse them; one of Heddle."""
    return lambda op: op("DequantizeLinear", op("QuantizeLinear", (512, 1024), SCALE, output_dtype=to), SCALE)


def product_of_float8(rows, dtype):
    """By weights of 8 bits, with a scale for each column."""
    def build(op):
        codes = constant(Operand(lambda random: random.standard_normal((2048, 2048)).astype(dtype)))
        return op("MatMul", (rows, 2048), op("DequantizeLinear", codes, constant(positive(2048, low=0.01, high=0.03)), axis=1))
    return build


def conv_of_bytes(*weights, **attributes):
    """A convolution quantised ahead of time, as QDQ."""
    def build(op):
        scales, zeros = constant(positive(weights[0], low=0.0005, high=0.001)), np.zeros(weights[0], INT8)
        of_bytes = op("DequantizeLinear", bytes_of(*weights), scales, zeros, axis=0)
        x = through_bytes(op, (1, 64, 28, 28))
        return through_bytes(op, op("Relu", op("Conv", x, of_bytes, **attributes)))
    return build


def product_of_bytes(op):
    of_bytes = op("DequantizeLinear", bytes_of(768, 768), np.float32(0.0005), NONE)
    return through_bytes(op, op("MatMul", through_bytes(op, (32, 768)), of_bytes))


def dynamic_product(op):
    x, scale, zero = op("DynamicQuantizeLinear", (32, 768), results=3)
    sums = op("Cast", op("MatMulInteger", x, bytes_of(768, 768), zero, NONE), to=1)
    return op("Mul", sums, op("Mul", scale, np.float32(0.001)))


def quantised_lstm(op):
    weights = [bytes_of(1, 256, 1024), bytes_of(1, 256, 1024)]
    scales = [np.array([0.001], np.float32), np.zeros(1, np.int8)]
    return op("com.microsoft.DynamicQuantizeLSTM", (32, 1, 256), *weights, weight(1, 2048), None, None, None, None,
              *scales, *scales, hidden_size=256)


BYTES, PIXELS = whole(256, 512, 1024, dtype=BYTE), whole(256, 1, 64, 28, 28, dtype=BYTE)
QUANTISATION = {
    "quantize": one("QuantizeLinear", (512, 1024), SCALE, ZERO),
    "quantize_channels": one("QuantizeLinear", (512, 1024), constant(positive(512, low=0.01, high=0.03)),
                             np.zeros(512, INT8), axis=0),
    "dequantize": one("DequantizeLinear", BYTES, SCALE, ZERO),
    "dequantize_channels": one("DequantizeLinear", whole(128, 512, 1024, dtype=INT8, low=-128),
                               constant(positive(1024, low=0.01)), np.zeros(1024, INT8), axis=1),
    "quantize_dequantize_f8e4m3fn": through_float8(TensorProto.FLOAT8E4M3FN),
    "quantize_dequantize_f8e5m2": through_float8(TensorProto.FLOAT8E5M2),
    **{f"product_{name}_{rows}_rows": product_of_float8(rows, dtype)
       for name, dtype in (("f8e4m3fn", ml_dtypes.float8_e4m3fn), ("f8e5m2", ml_dtypes.float8_e5m2)) for rows in (1, 32)},
    "dynamic_quantize": one("DynamicQuantizeLinear", (512, 1024), results=3),
    "product_integer": one("MatMulInteger", whole(256, 64, 512, dtype=BYTE), bytes_of(512, 512), ZERO),
    "product_integer_1_row": one("MatMulInteger", whole(256, 1, 512, dtype=BYTE), bytes_of(512, 512), ZERO),
    "conv_integer": one("ConvInteger", PIXELS, bytes_of(64, 64, 3, 3), ZERO, **ROUND_1),
    "q_linear_product": one("QLinearMatMul", whole(256, 64, 512, dtype=BYTE), SCALE, ZERO, bytes_of(512, 512),
                            np.float32(0.0005), NONE, SCALE, ZERO),
    "q_linear_conv": one("QLinearConv", PIXELS, SCALE, ZERO, bytes_of(64, 64, 3, 3), np.float32(0.0005), NONE, SCALE,
                         ZERO, **ROUND_1),
    "q_linear_conv_depthwise": one("QLinearConv", PIXELS, SCALE, ZERO, bytes_of(64, 1, 3, 3), np.float32(0.002), NONE,
                                   SCALE, ZERO, group=64, **ROUND_1),
    "q_linear_add": one("com.microsoft.QLinearAdd", PIXELS, SCALE, ZERO, PIXELS, SCALE, ZERO, np.float32(0.04), ZERO),
    "q_linear_sigmoid": one("com.microsoft.QLinearSigmoid", PIXELS, SCALE, ZERO, np.float32(1 / 256), np.uint8(0)),
    "q_linear_average_pool": one("com.microsoft.QLinearGlobalAveragePool", PIXELS, SCALE, ZERO, SCALE, ZERO),
    "q_linear_pool_2x2": one("com.microsoft.QLinearAveragePool", PIXELS, SCALE, ZERO, SCALE, ZERO, kernel_shape=[2, 2],
                             strides=[2, 2]),
    "q_linear_concat": one("com.microsoft.QLinearConcat", np.float32(0.04), ZERO, PIXELS, SCALE, ZERO, PIXELS,
                           np.float32(0.03), ZERO, axis=1),
    "q_linear_softmax": one("com.microsoft.QLinearSoftmax", whole(256, 8, 128, 128, dtype=BYTE), SCALE, ZERO,
                            np.float32(1 / 256), np.uint8(0), axis=-1, opset=13),
    "q_linear_where": one("com.microsoft.QLinearWhere", chance(1, 1, 28, 28), PIXELS, SCALE, ZERO, PIXELS,
                          np.float32(0.03), ZERO, np.float32(0.04), ZERO),
    "q_gemm": one("com.microsoft.QGemm", whole(256, 64, 512, dtype=BYTE), SCALE, ZERO, bytes_of(512, 512),
                  np.float32(0.0005), NONE, constant(whole(900, 512, dtype=INT32)), SCALE, ZERO),
    "q_attention": one("com.microsoft.QAttention", whole(256, 1, 128, 256, dtype=BYTE), bytes_of(256, 768), weight(768),
                       SCALE, np.float32(0.0005), None, ZERO, NONE, num_heads=4),
    "qdq_conv": conv_of_bytes(64, 64, 3, 3, **ROUND_1),
    "qdq_conv_depthwise": conv_of_bytes(64, 1, 3, 3, group=64, **ROUND_1),
    "qdq_product": product_of_bytes,
    "dynamic_product": dynamic_product,
    "dynamic_lstm": quantised_lstm,
    "matmul_integer_to_float": one("com.microsoft.MatMulIntegerToFloat", whole(256, 32, 768, dtype=BYTE),
                                   bytes_of(768, 768), SCALE, np.float32(0.0005), ZERO, NONE),
}

FAMILIES = {"convolutions": CONVOLUTIONS, "products": PRODUCTS, "attention": ATTENTION, "recurrences": RECURRENCES,
            "quantisation": QUANTISATION}
