#!/usr/bin/env python3
"""Writes what ONNX Runtime gives for ops of com.microsoft, and for standard ones in forms that ONNX's own cases lack:
tests/onnx/contrib_cases.zip, in the ONNX backend-test layout.

usage: make_contrib_cases.py      (needs: pip install onnxruntime onnx numpy)

One node a case. Sizes above 1 are symbolic in the models, so that one plan serves all of them.
"""

import pathlib
import zipfile

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

BATCH, QUERIES, KEYS, HEADS, SIZE = 2, 5, 7, 4, 8
SHARED, WIDE = 2, 16  # of GroupQueryAttention, whose heads are multiples of 16 in ONNX Runtime
WIDTH = HEADS * SIZE
random = numpy.random.default_rng(0)


def floats(*sizes):
    return (random.standard_normal(sizes) * 0.5).astype(numpy.float32)


def ints(*numbers):
    return numpy.array(numbers, numpy.int32)


def marks(*sizes):
    return (random.random(sizes) > 0.4).astype(numpy.int32)


def described(name, array, symbolic):
    sizes = [f"{name}_{axis}" if symbolic and size > 1 else size for axis, size in enumerate(array.shape)]
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), sizes)


class Cases:
    def __init__(self, path):
        self.file = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)

    def write(self, path, data):
        self.file.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)

    def add(
        self, case, op, inputs, outputs, symbolic=True, integer_outputs=(), known=(), domain="com.microsoft",
        dtype=TensorProto.FLOAT, integer=TensorProto.INT32, version=1, **attributes
    ):
        """`inputs`: arrays, None where one is absent, constants of the model where `known` has their number; `outputs`:
        how many."""
        given = {f"i{k}": x for k, x in enumerate(inputs) if x is not None and k not in known}
        names = [f"i{k}" if x is not None else "" for k, x in enumerate(inputs)]
        results = [f"o{k}" for k in range(outputs)]
        node = helper.make_node(op, names, results, domain=domain, **attributes)
        kind = lambda k: integer if k in integer_outputs else dtype
        graph = helper.make_graph(
            [node],
            case,
            [described(name, x, symbolic) for name, x in given.items()],
            [helper.make_tensor_value_info(name, kind(k), None) for k, name in enumerate(results)],
            [numpy_helper.from_array(inputs[k], f"i{k}") for k in known if inputs[k] is not None],
        )
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(domain, version)] if domain else [helper.make_opsetid("", 21)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        arrays = session.run(None, given)
        for info, array in zip(model.graph.output, arrays):
            info.CopyFrom(
                helper.make_tensor_value_info(info.name, info.type.tensor_type.elem_type, [None] * array.ndim)
            )
        self.write(f"{case}/model.onnx", model.SerializeToString())
        for stem, all_arrays in (("input", list(given.values())), ("output", arrays)):
            for k, array in enumerate(all_arrays):
                proto = numpy_helper.from_array(array)
                self.write(f"{case}/test_data_set_0/{stem}_{k}.pb", proto.SerializeToString())


def multi_head_attention(cases):
    q, k, v = floats(BATCH, QUERIES, WIDTH), floats(BATCH, KEYS, WIDTH), floats(BATCH, KEYS, WIDTH)

    def add(case, *inputs, outputs=1, **attributes):
        cases.add("mha_" + case, "MultiHeadAttention", inputs, outputs, num_heads=HEADS, **attributes)

    add("plain", q, k, v)
    add("bias", q, k, v, floats(3 * WIDTH), scale=0.3)
    add("lengths", q, k, v, None, ints(3, 7))
    add("marks", q, k, v, None, marks(BATCH, KEYS))
    add("marks_of_queries", q, k, v, None, marks(BATCH, QUERIES, KEYS))
    add("filter_value", q, k, v, None, marks(BATCH, KEYS), mask_filter_value=-2.0)
    add("attention_bias", q, k, v, None, None, floats(1, HEADS, QUERIES, KEYS))
    add("marks_and_bias", q, k, v, None, marks(BATCH, KEYS), floats(BATCH, HEADS, QUERIES, KEYS))
    add("heads_of_keys", q, floats(BATCH, HEADS, KEYS, SIZE), floats(BATCH, HEADS, KEYS, SIZE))
    add("wide_values", q, k, floats(BATCH, KEYS, HEADS * 6))
    new = floats(BATCH, QUERIES, WIDTH), floats(BATCH, QUERIES, WIDTH)
    past = floats(BATCH, HEADS, 3, SIZE), floats(BATCH, HEADS, 3, SIZE)
    add("past", q, *new, None, None, None, *past, outputs=3)
    add("past_causal", q, *new, None, None, None, *past, outputs=3, unidirectional=1)


def attention(cases):
    x, w, b = floats(BATCH, QUERIES, 24), floats(24, 3 * WIDTH), floats(3 * WIDTH)

    def add(case, *inputs, outputs=1, **attributes):
        cases.add("attention_" + case, "Attention", inputs, outputs, num_heads=HEADS, **attributes)

    add("plain", x, w, b)
    add("causal", x, w, b, unidirectional=1)
    add("lengths", x, w, b, ints(5, 2))
    add("marks", x, w, b, marks(BATCH, QUERIES))
    add("marks_of_queries", x, w, b, marks(BATCH, QUERIES, QUERIES))
    add("past", x, w, b, None, floats(2, BATCH, HEADS, 3, SIZE), outputs=2, unidirectional=1)
    add("bias", x, w, b, None, None, floats(BATCH, HEADS, QUERIES, QUERIES))
    narrow = 2 * WIDTH + HEADS * 4
    sizes = [WIDTH, WIDTH, HEADS * 4]
    add("narrow_values", x, floats(24, narrow), floats(narrow), qkv_hidden_sizes=sizes)


def angles(positions, pairs):
    angle = floats(positions, pairs) * 3
    return numpy.cos(angle), numpy.sin(angle)


def rotary_embedding(cases):
    cosines, sines = angles(16, SIZE // 2)
    at = random.integers(0, 16, (BATCH, QUERIES))
    x = floats(BATCH, QUERIES, WIDTH)

    def add(case, *inputs, **attributes):
        cases.add("rotary_" + case, "RotaryEmbedding", inputs, 1, symbolic=False, **attributes)

    add("first_position", x, numpy.array([2]), cosines, sines)
    add("positions", x, at, cosines, sines)
    add("interleaved", x, at, cosines, sines, interleaved=1)
    add("heads", floats(BATCH, HEADS, QUERIES, SIZE), at, cosines, sines)
    part = numpy.ascontiguousarray(cosines[:, :2]), numpy.ascontiguousarray(sines[:, :2])
    add("partial", x, at, *part, num_heads=HEADS, rotary_embedding_dim=4)


def group_query_attention(cases):
    def add(case, queries, lengths, past, packed=False, rotary=True, bias=False, positions=False, sink=False,
            **attributes):
        """`lengths`: keys of each sequence, with this call's; `past`: how long the caches are."""
        batch = len(lengths)
        caches = floats(batch, SHARED, past, WIDE), floats(batch, SHARED, past, WIDE)
        for cache in caches:
            for sequence, length in enumerate(lengths):
                cache[sequence, :, max(length - queries, 0) :] = 0
        new = floats(batch, queries, SHARED * WIDE), floats(batch, queries, SHARED * WIDE)
        if packed:
            new = None, None
        heads = HEADS + 2 * SHARED if packed else HEADS
        inputs = [floats(batch, queries, heads * WIDE), *new, *caches]
        inputs += [ints(*(length - 1 for length in lengths)), numpy.array(max(lengths), numpy.int32)]
        inputs += angles(16, WIDE // 2) if rotary else (None, None)
        at = [[max(length - queries, 0) + k for k in range(queries)] for length in lengths]
        inputs += [numpy.array(at) if positions else None]
        inputs += [floats(1, HEADS, queries, max(lengths)) if bias else None]
        inputs += [floats(HEADS) * 4 if sink else None]
        while inputs[-1] is None:
            inputs.pop()
        attributes |= {"num_heads": HEADS, "kv_num_heads": SHARED, "do_rotary": int(rotary)}
        cases.add("gqa_" + case, "GroupQueryAttention", inputs, 3, **attributes)

    add("prompt", 5, [5], 0)
    add("prompt_into_caches", 5, [5, 5], 16)
    add("decode", 1, [7, 7], 6)
    add("decode_lengths", 1, [7, 4], 6)
    add("decode_into_caches", 1, [7, 4], 16)
    add("packed", 1, [7, 7], 6, packed=True)
    add("interleaved", 1, [7, 5], 6, rotary_interleaved=1)
    add("not_rotated", 1, [7, 5], 6, rotary=False)
    add("window", 5, [5, 5], 0, local_window_size=2)
    add("window_decode", 1, [10, 8], 9, local_window_size=4)
    add("softcap", 1, [7, 5], 6, softcap=0.5)
    add("scale", 1, [7, 5], 6, scale=0.2)
    add("chunk", 4, [10], 6)
    add("bias", 1, [7, 7], 6, bias=True)
    add("positions", 1, [7, 5], 6, positions=True)
    add("sink", 5, [5, 5], 0, sink=True)
    add("sink_decode", 1, [10, 8], 9, sink=True, local_window_size=4)
    add("sink_bias", 1, [7, 7], 6, sink=True, bias=True, softcap=0.5)
    add("smooth_softmax", 1, [7, 4], 16, smooth_softmax=1)


def embed_layer_normalization(cases):
    ids, segments = random.integers(0, 20, (BATCH, QUERIES)), random.integers(0, 2, (BATCH, QUERIES))
    ids, segments = ids.astype(numpy.int32), segments.astype(numpy.int32)
    words, places, kinds = floats(20, 8), floats(QUERIES + 3, 8), floats(2, 8)
    norm = floats(8), floats(8)

    def add(case, *inputs, outputs=2):
        cases.add(
            "embed_" + case, "EmbedLayerNormalization", inputs, outputs, False, integer_outputs={1}, epsilon=1e-6
        )

    add("marks", ids, segments, words, places, kinds, *norm, marks(BATCH, QUERIES))
    add("words_alone", ids, None, words, places, None, *norm)
    at = random.integers(0, QUERIES + 3, (BATCH, QUERIES)).astype(numpy.int32)
    add("positions", ids, segments, words, places, kinds, *norm, None, at, outputs=3)


def sizes(*numbers):
    return numpy.array(numbers, numpy.int64)


def standard(cases, op, case, *inputs, **attributes):
    cases.add(f"{op.lower()}_{case}", op, inputs, 1, domain="", **attributes)


def boxes(count, most):
    corners = numpy.sort(random.random((count, 2, 2)) * most, axis=1)
    return corners.reshape(count, 4).astype(numpy.float32)


def regions(cases):
    x, images = floats(2, 3, 9, 11), sizes(1, 0, 1, 1)
    some = boxes(4, 22)

    def align(case, given, **attributes):
        attributes |= {"output_height": 2, "output_width": 3, "spatial_scale": 0.5}
        standard(cases, "RoiAlign", case, x, given, images, **attributes)

    align("adaptive", some)
    align("adaptive_output_half_pixel", some, coordinate_transformation_mode="output_half_pixel")
    align("adaptive_max", some, mode="max")
    align("beyond_edges", some * 2 - 11, sampling_ratio=3)
    numbered = numpy.concatenate([images[:, None].astype(numpy.float32), some], axis=1)
    standard(cases, "MaxRoiPool", "plain", x, numbered, pooled_shape=[3, 2], spatial_scale=0.5)
    numbered[:, 1:] = numbered[:, 1:] * 2 - 9
    standard(cases, "MaxRoiPool", "beyond_edges", x, numbered, pooled_shape=[2, 4])


def windows(cases):
    x = floats(2, 4, 7, 6)
    offset, mask = floats(2, 2 * 6 * 2, 5, 5) * 4, floats(2, 2 * 6, 5, 5)
    attributes = {"group": 2, "offset_group": 2, "pads": [1, 1, 0, 1], "strides": [1, 1], "dilations": [1, 1]}
    w = floats(6, 2, 3, 2)
    offset, mask = floats(2, 2 * 6 * 2, 6, 7) * 4, floats(2, 2 * 6, 6, 7)
    standard(cases, "DeformConv", "groups", x, w, offset, floats(6), mask, **attributes)
    attributes |= {"strides": [2, 1], "dilations": [2, 3], "offset_group": 1}
    standard(cases, "DeformConv", "strides_and_dilations", x, w, floats(2, 12, 2, 5) * 2, **attributes)
    image, block = sizes(7, 8), sizes(3, 2)
    attributes = {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 0, 2, 1]}
    standard(cases, "Col2Im", "strides", floats(2, 3 * 6, 4 * 7), image, block, known={1, 2}, **attributes)
    standard(cases, "Col2Im", "one_dimension", floats(2, 4, 6), sizes(9), sizes(4), known={1, 2}, pads=[0, 0],
             dilations=[1], strides=[1])
    matrices = floats(3, 2, 5, 5)
    matrices[0, 0, 2] = matrices[0, 0, 1] * 2  # singular
    matrices[0, 1, 0, 0] = 0
    standard(cases, "Det", "batches", matrices)


def resizes(cases):
    x = floats(2, 3, 9, 7)

    def add(case, rows, columns, crop=None, **attributes):
        region = None if crop is None else numpy.array(crop, numpy.float32)
        standard(cases, "Resize", case, x, region, None, sizes(2, 3, rows, columns), known={1, 3}, **attributes)

    crops = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 3.0}
    add("crop", 5, 11, [0, 0, 0.2, -0.1, 1, 1, 0.7, 1.2], mode="linear", **crops)
    add("crop_of_one", 1, 1, [0, 0, 0.2, 0.1, 1, 1, 0.7, 0.6], mode="linear", **crops)
    add("crop_nearest", 5, 4, [0, 0, 0.9, 0.3, 1, 1, 0.1, 1.0], mode="nearest", **crops)
    add("antialias", 4, 3, mode="linear", antialias=1, exclude_outside=1)
    add("antialias_cubic", 4, 5, mode="cubic", antialias=1, exclude_outside=1)
    add("antialias_wider", 4, 12, mode="cubic", antialias=1, exclude_outside=1, cubic_coeff_a=-0.5)


def signals(cases):
    signal, step = floats(2, 50, 1), numpy.array(7, numpy.int64)
    length = numpy.array(16, numpy.int64)
    standard(cases, "STFT", "window", signal, step, floats(16), length, known={1, 3})
    standard(cases, "STFT", "both_sides", signal, step, None, length, known={1, 3}, onesided=0)
    standard(cases, "STFT", "pairs", floats(2, 50, 2), step, floats(16), None, known={1}, onesided=0)
    standard(cases, "STFT", "two_dimensions", signal[:, :, 0], step, None, length, known={1, 3})


def few_bits(cases):
    """MatMulNBits. ONNX Runtime's kernels for rows of one digit round otherwise: accuracy level 4 is left out."""

    def add(case, depth, columns, bits, block, zero=None, bias=False, **attributes):
        blocks = -(-depth // block)
        numbers = random.integers(0, 256, (columns, blocks, block * bits // 8), numpy.uint8)
        scales = (random.random((columns, blocks)) * 0.02 + 0.001).astype(numpy.float32)
        zeros = {
            None: None,
            "packed": random.integers(0, 256, (columns, -(-blocks * bits // 8)), numpy.uint8),
            "real": floats(columns, blocks) * 4,
        }[zero]
        inputs = [floats(BATCH, QUERIES, depth), numbers, scales, zeros, None, floats(columns) if bias else None]
        cases.add("nbits_" + case, "MatMulNBits", inputs, 1, known={1, 2, 3, 5}, K=depth, N=columns, bits=bits,
                  block_size=block, **attributes)

    add("four", 128, 70, 4, 32)
    add("four_zeros", 128, 70, 4, 32, "packed")
    add("four_real_zeros", 128, 70, 4, 32, "real")
    add("four_bias", 128, 70, 4, 32, bias=True)
    add("part_of_a_block", 100, 70, 4, 32, "packed")
    add("one_block", 64, 33, 4, 64, "packed")
    add("eight", 128, 70, 8, 32, "packed")
    add("two", 128, 70, 2, 32, "packed")
    add("small", 16, 3, 4, 16)


def recurrent(cases):
    """DynamicQuantizeLSTM. A batch of 1, and an input of a few values: rows become bytes in one way only."""

    def add(case, steps, directions, dtype, columns=False, bias=False, states=False, peephole=False, **attributes):
        depth, hidden = 24, 16
        gates, low = 4 * hidden, 0 if dtype == numpy.uint8 else -127
        weights = [random.integers(low, low + 255, (directions, rows, gates), dtype) for rows in (depth, hidden)]
        sizes = (directions, gates) if columns else (directions,)
        scales = [(random.random(sizes) * 0.004 + 0.001).astype(numpy.float32) for _ in weights]
        middle = 0 if columns else low + 110
        zeros = [random.integers(middle, middle + (1 if columns else 30), sizes).astype(dtype) for _ in weights]
        inputs = [
            floats(steps, 1, depth),
            *weights,
            floats(directions, 2 * gates) if bias else None,
            None,
            *([floats(directions, 1, hidden) for _ in range(2)] if states else [None, None]),
            floats(directions, 3 * hidden) if peephole else None,
            scales[0],
            zeros[0],
            scales[1],
            zeros[1],
        ]
        cases.add("quantize_lstm_" + case, "DynamicQuantizeLSTM", inputs, 3, known={1, 2, 3, 7, 8, 9, 10, 11},
                  hidden_size=hidden, **attributes)

    add("forward", 5, 1, numpy.int8)
    add("bytes", 5, 1, numpy.uint8, bias=True)
    add("columns", 5, 1, numpy.int8, columns=True, bias=True)
    add("bidirectional", 6, 2, numpy.int8, bias=True, states=True, direction="bidirectional")
    add("reverse", 4, 1, numpy.uint8, columns=True, direction="reverse")
    add("peepholes", 4, 1, numpy.int8, bias=True, peephole=True)


def quantised(cases):
    """Arithmetic on bytes. Reals lie between the halves that rounding would part."""

    def add(case, op, *inputs, **attributes):
        kinds = {numpy.uint8: TensorProto.UINT8, numpy.int8: TensorProto.INT8}
        dtype = kinds[inputs[0].dtype.type] if op.startswith("QLinear") else TensorProto.FLOAT
        cases.add("quantised_" + case, op, list(inputs), 1, dtype=dtype, **attributes)

    def one(value):
        return numpy.array(value, numpy.float32)

    def byte(value, dtype=numpy.uint8):
        return numpy.array(value, dtype)

    x = random.integers(0, 256, (2, 3, 4, 5), numpy.uint8)
    y = random.integers(0, 256, (3, 1, 5), numpy.uint8)
    signed = random.integers(-128, 128, (2, 3, 4, 5), numpy.int8)
    add("add", "QLinearAdd", x, one(0.031), byte(120), y, one(0.017), byte(99), one(0.0371), byte(131))
    add("mul", "QLinearMul", x, one(0.031), byte(120), y, one(0.017), byte(99), one(0.0353), byte(131))
    add("sigmoid", "QLinearSigmoid", signed, one(0.0413), byte(3, numpy.int8), one(0.00391), byte(-128, numpy.int8))
    add("leaky", "QLinearLeakyRelu", x, one(0.0413), byte(128), one(0.0277), byte(60), alpha=0.2)
    add("pool", "QLinearGlobalAveragePool", x, one(0.0413), byte(128), one(0.0137), byte(120))
    add("pool_last", "QLinearGlobalAveragePool", x, one(0.0413), byte(128), one(0.0137), byte(120), channels_last=1)
    matrix = random.integers(-128, 128, (20, 9), numpy.int8)
    scales = (random.random(9) * 0.01 + 0.001).astype(numpy.float32)
    rows = random.integers(0, 256, (2, 7, 20), numpy.uint8)
    add("to_float", "MatMulIntegerToFloat", rows, matrix, one(0.02), one(0.003), byte(119), byte(4, numpy.int8))
    add("to_float_columns", "MatMulIntegerToFloat", rows, matrix, one(0.02), scales, byte(119),
        numpy.zeros(9, numpy.int8), floats(9))
    add("dynamic", "DynamicQuantizeMatMul", floats(2, 7, 20), matrix, one(0.003), byte(4, numpy.int8), floats(9))
    add("dynamic_columns", "DynamicQuantizeMatMul", floats(7, 20), matrix, scales)


def fused(cases):
    """What ONNX Runtime's optimisers make of several ops, and small ops."""

    def add(case, op, *inputs, known=(), outputs=1, **attributes):
        cases.add("fused_" + case, op, list(inputs), outputs, known=known, **attributes)

    x, w = floats(2, 6, 7, 5), floats(4, 3, 3, 3)
    window = {"pads": [1, 1, 1, 1], "group": 2}
    add("conv", "FusedConv", x, w, floats(4), activation="Relu", **window)
    add("conv_added", "FusedConv", x, w, floats(4), floats(2, 4, 7, 5), activation="Relu", **window)
    add("conv_leaky", "FusedConv", x, w, None, activation="LeakyRelu", activation_params=[0.2], **window)
    add("conv_clip", "FusedConv", x, w, None, activation="Clip", activation_params=[-0.5, 0.75], **window)
    add("conv_hard", "FusedConv", x, w, activation="HardSigmoid", activation_params=[0.3, 0.4], **window)
    a, b, c = floats(5, 8), floats(6, 8), floats(6)
    add("gemm", "FusedGemm", a, b, c, transB=1, alpha=0.5, beta=2.0, activation="Relu")
    add("gemm_leaky", "FusedGemm", a, b, c, transB=1, activation="LeakyRelu", activation_alpha=0.3)
    add("gemm_elu", "FusedGemm", a, b, c, transB=1, activation="Elu", activation_alpha=0.3)
    add("matmul_batch", "FusedMatMul", floats(5, 2, 3, 8), floats(2, 3, 8, 6), transBatchA=1, alpha=0.5)
    add("matmul_batches", "FusedMatMul", floats(8, 2, 5), floats(6, 2, 8), transBatchA=1, transA=1, transBatchB=1,
        transB=1)
    add("transposed", "TransposeMatMul", floats(3, 8, 5), floats(3, 8, 6), transA=1)
    for metric in ("euclidean", "sqeuclidean"):
        add("distances_" + metric, "CDist", floats(5, 8), floats(7, 8), metric=metric)
    add("unfold", "UnfoldTensor", floats(2, 9, 3), dim=1, size=4, step=2)
    add("unfold_last", "UnfoldTensor", floats(2, 9), size=3, step=1)
    add("expand_dims", "ExpandDims", floats(2, 3), ints(-1).reshape(()), known={1})
    rows = random.integers(0, 256, (9, 64), numpy.uint8)
    scales = (random.random((9, 4)) * 0.02 + 0.001).astype(numpy.float32)
    at = random.integers(0, 9, (2, 3))
    add("rows", "GatherBlockQuantized", rows, at, scales, known={0, 2}, block_size=32, quantize_axis=1, bits=4)
    zeros = random.integers(0, 256, (9, 2), numpy.uint8)
    add("rows_zeros", "GatherBlockQuantized", rows, at, scales, zeros, known={0, 2, 3}, block_size=32,
        quantize_axis=1, bits=4)
    scales = (random.random((9, 2)) * 0.02 + 0.001).astype(numpy.float32)
    add("rows_of_bytes", "GatherBlockQuantized", rows, at, scales, known={0, 2}, block_size=32, quantize_axis=1, bits=8)


def quantised_more(cases):
    """QGemm, QLinear ops and QAttention. Reals lie between the halves that rounding would part."""

    def add(case, op, *inputs, dtype=TensorProto.UINT8, outputs=1, known=(), symbolic=True, **attributes):
        cases.add("quantised_" + case, op, list(inputs), outputs, dtype=dtype, known=known, symbolic=symbolic,
                  **attributes)

    def one(value):
        return numpy.array(value, numpy.float32)

    def byte(value, dtype=numpy.uint8):
        return numpy.array(value, dtype)

    x = random.integers(0, 256, (2, 3, 6, 5), numpy.uint8)
    y = random.integers(0, 256, (2, 3, 6, 5), numpy.uint8)
    scaled = x, one(0.0413), byte(128)
    window = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    add("average", "QLinearAveragePool", *scaled, one(0.0213), byte(120), symbolic=False, **window)
    add("average_padded", "QLinearAveragePool", *scaled, one(0.0213), byte(120), symbolic=False, count_include_pad=1,
        **window)
    last = numpy.ascontiguousarray(numpy.moveaxis(x, 1, -1)), *scaled[1:]
    add("average_last", "QLinearAveragePool", *last, one(0.0213), byte(120), symbolic=False, channels_last=1, **window)
    signed = random.integers(-128, 128, (2, 2, 6, 5), numpy.int8)
    add("concat", "QLinearConcat", one(0.0371), byte(131), *scaled, y[:, :1].copy(), one(0.0171), byte(99), axis=1)
    add("concat_signed", "QLinearConcat", one(0.0371), byte(3, numpy.int8), signed, one(0.0413), byte(-5, numpy.int8),
        signed, one(0.0171), byte(9, numpy.int8), dtype=TensorProto.INT8, axis=-2)
    add("where", "QLinearWhere", marks(2, 1, 6, 5) > 0, x, one(0.0413), byte(128), y, one(0.0171), byte(99),
        one(0.0371), byte(131))
    add("softmax", "QLinearSoftmax", *scaled, one(1 / 256), byte(0), axis=-1, opset=13)
    add("softmax_rows", "QLinearSoftmax", *scaled, one(1 / 256), byte(0), axis=2, opset=12)
    a, b = random.integers(0, 256, (5, 8), numpy.uint8), random.integers(-128, 128, (6, 8), numpy.int8)
    factors = a, one(0.02), byte(119), b, one(0.003), byte(4, numpy.int8)
    add("gemm", "QGemm", *factors, random.integers(-900, 900, 6).astype(numpy.int32), one(0.0173), byte(101), transB=1)
    add("gemm_reals", "QGemm", *factors, None, None, None, dtype=TensorProto.FLOAT, transB=1, alpha=0.5)
    columns = (random.random(6) * 0.01 + 0.001).astype(numpy.float32)
    factors = *factors[:4], columns, numpy.zeros(6, numpy.int8)
    add("gemm_columns", "QGemm", *factors, random.integers(-900, 900, 6).astype(numpy.int32), dtype=TensorProto.FLOAT,
        transB=1)
    pool = {"kernel_shape": [2, 2], "strides": [2, 1]}
    add("max_last", "NhwcMaxPool", last[0], symbolic=False, **pool)
    rows = random.integers(0, 256, (BATCH, QUERIES, 24), numpy.uint8)
    weights = random.integers(-128, 128, (24, 3 * WIDTH), numpy.int8)
    scales = one(0.02), one(0.003)

    def attend(case, *more, outputs=1, **attributes):
        add("attention_" + case, "QAttention", rows, weights, floats(3 * WIDTH), *scales, *more,
            dtype=TensorProto.FLOAT, outputs=outputs, num_heads=HEADS, **attributes)

    attend("plain", None, byte(119), byte(4, numpy.int8))
    attend("causal", None, byte(119), byte(0, numpy.int8), unidirectional=1)
    attend("marks", marks(BATCH, QUERIES), byte(119), byte(0, numpy.int8))
    attend("past", None, byte(119), byte(0, numpy.int8), floats(2, BATCH, HEADS, 3, SIZE), outputs=2, unidirectional=1)


def experts(cases):
    rows, width, inner, count = 12, 16, 24, 4
    logits = floats(rows, count) * 4

    def add(case, first, *more, x=None, k=2, **attributes):
        x = floats(rows, width) if x is None else x
        cases.add("experts_" + case, "MoE", [x, logits, first, *more], 1, known=range(2, 3 + len(more)), k=k,
                  **attributes)

    up, up_bias = floats(count, inner, width), floats(count, inner)
    down, down_bias = floats(count, width, inner), floats(count, width)
    fused, fused_bias = floats(count, 2 * inner, width), floats(count, 2 * inner)
    add("relu", up, None, down, None)
    add("one", up, up_bias, down, down_bias, k=1, activation_type="silu")
    add("normalised", up, up_bias, down, down_bias, normalize_routing_weights=1, activation_type="gelu")
    add("batch", up, up_bias, down, down_bias, x=floats(3, rows // 3, width), activation_type="identity")
    swiglu = {"activation_type": "swiglu", "activation_alpha": 1.702, "activation_beta": 1.0}
    add("swiglu", fused, fused_bias, down, down_bias, swiglu_fusion=1, swiglu_limit=0.7, **swiglu)


def gates(cases):
    def add(case, op, *inputs, outputs=1, **attributes):
        cases.add("gate_" + case, op, list(inputs), outputs, **attributes)

    x, gate = floats(2, 5, 16), floats(2, 5, 16) * 3
    add("silu", "ScaledSiLU", x, alpha=1.3)
    add("silu_given", "ScaledSiLU", x, numpy.array(0.7, numpy.float32))
    add("norm", "GatedRMSNorm", x, floats(8), gate, activation="silu", epsilon=1e-3)
    add("norm_sigmoid", "GatedRMSNorm", x, floats(16), gate, activation="sigmoid")
    add("add", "GatedAdd", x, gate, floats(2, 5, 1))
    add("linear", "LinearAttentionGate", floats(2, 5, 4), floats(4), -numpy.exp(floats(4)), floats(2, 5, 4), outputs=2)
    add("decay", "LinearAttentionGate", floats(2, 5, 4), floats(4), -numpy.exp(floats(4)))


def inverses(cases):
    unit = numpy.eye(3, dtype=numpy.float32)
    cases.add("inverse_batches", "Inverse", [floats(2, 4, 3, 3) + 2 * unit], 1)
    cases.add("inverse_one", "Inverse", [floats(3, 3)[::-1] + unit[::-1]], 1)
    exchanged = numpy.array([[[0, 2, 0], [0, 0, 4], [5, 0, 1]]], numpy.float32)
    cases.add("inverse_of_exchanged_rows", "Inverse", [exchanged], 1)


def other_few_bits(cases):
    """MatMulBnb4, and MatMulNBits whose columns take any block's scale."""
    depth, columns, block = 64, 33, 32
    a = floats(BATCH, QUERIES, depth)
    numbers = random.integers(0, 256, depth * columns // 2, numpy.uint8)
    scales = (random.random(depth * columns // block) * 0.1 + 0.01).astype(numpy.float32)
    for kind, name in enumerate(("fp4", "nf4")):
        cases.add("bnb_" + name, "MatMulBnb4", [a, numbers, scales], 1, known={1, 2}, K=depth, N=columns,
                  block_size=block, quant_type=kind)
    numbers = random.integers(0, 256, (columns, 2, block // 2), numpy.uint8)
    scales = (random.random((columns, 2)) * 0.02 + 0.001).astype(numpy.float32)
    zeros = numpy.full((columns, 1), 0x88, numpy.uint8)  # beside g_idx ONNX Runtime takes no others
    groups = random.permutation(numpy.arange(depth, dtype=numpy.int32) // block)
    for name, points in (("groups", None), ("groups_zeros", zeros)):
        cases.add("nbits_" + name, "MatMulNBits", [a, numbers, scales, points, groups], 1, known={1, 2, 3, 4}, K=depth,
                  N=columns, bits=4, block_size=block)


def main():
    cases = Cases(pathlib.Path(__file__).parent / "contrib_cases.zip")
    for family in (
        multi_head_attention,
        attention,
        rotary_embedding,
        group_query_attention,
        embed_layer_normalization,
        regions,
        windows,
        resizes,
        signals,
        few_bits,
        recurrent,
        quantised,
        fused,
        quantised_more,
        experts,
        gates,
        inverses,
        other_few_bits,
    ):
        family(cases)
    cases.file.close()


if __name__ == "__main__":
    main()
