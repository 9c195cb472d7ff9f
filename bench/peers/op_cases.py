"""Cases of ops.py: data movement, reductions and norms, windows and resizing, pointwise, others."""
import re

import numpy as np
from onnx import TensorProto, helper

from op_models import (BYTE, DOUBLE, HALF, IMAGE, INT32, ROWS, Operand, chance, constant, normal, one, positive, weight,
                       whole)

PHOTO = (1, 480, 640, 3)


def swin_windows(op):
    windows = op("Reshape", (1, 56, 56, 96), [1, 8, 7, 8, 7, 96])
    return op("Reshape", op("Transpose", windows, perm=[0, 1, 3, 2, 4, 5]), [64, 49, 96])


def swin_roll(op):
    x = op("Identity", (1, 56, 56, 96))
    rows = op("Concat", op("Slice", x, [3], [56], [1]), op("Slice", x, [0], [3], [1]), axis=1)
    return op("Concat", op("Slice", rows, [3], [56], [2]), op("Slice", rows, [0], [3], [2]), axis=2)


def rotate_half(op):
    x = op("Identity", (1, 16, 128, 64))
    other = op("Concat", op("Neg", op("Slice", x, [32], [64], [3])), op("Slice", x, [0], [32], [3]), axis=-1)
    return op("Add", op("Mul", x, (1, 1, 128, 64)), op("Mul", other, (1, 1, 128, 64)))


def slice_focus(op):
    x = op("Identity", (1, 3, 640, 640))
    parts = [op("Slice", x, [a, b], [640, 640], [2, 3], [2, 2]) for a, b in ((0, 0), (1, 0), (0, 1), (1, 1))]
    return op("Concat", *parts, axis=1)


def shuffled_channels(op):
    groups = op("Reshape", (1, 116, 28, 28), [1, 2, 58, 28, 28])
    return op("Reshape", op("Transpose", groups, perm=[0, 2, 1, 3, 4]), [1, 116, 28, 28])


def gated(op):
    gate, value = op("Split", (128, 2816), results=2, axis=-1, num_outputs=2)
    return op("Mul", op("Mul", gate, op("Sigmoid", gate)), value)


def photo_normalised(op):
    x = op("Cast", whole(256, 1, 224, 224, 3, dtype=BYTE), to=TensorProto.FLOAT)
    x = op("Div", op("Sub", x, [123.0, 116.0, 103.0]), [58.0, 57.0, 57.0])
    return op("Transpose", x, perm=[0, 3, 1, 2])


DATA_MOVEMENT = {
    "transpose_matrix": one("Transpose", ROWS, perm=[1, 0]),
    "transpose_to_nhwc": one("Transpose", IMAGE, perm=[0, 2, 3, 1]),
    "transpose_to_nchw": one("Transpose", (1, 56, 56, 64), perm=[0, 3, 1, 2]),
    "transpose_heads": one("Transpose", (1, 128, 12, 64), perm=[0, 2, 1, 3]),
    "transpose_keys": one("Transpose", (1, 12, 128, 64), perm=[0, 1, 3, 2]),
    "transpose_u8_photo": one("Transpose", whole(256, *PHOTO, dtype=BYTE), perm=[0, 3, 1, 2]),
    "transpose_u8_matrix": one("Transpose", whole(256, *ROWS, dtype=BYTE), perm=[1, 0]),
    "transpose_f16": one("Transpose", normal(*ROWS, dtype=HALF), perm=[1, 0]),
    "transpose_f16_heads": one("Transpose", normal(1, 128, 12, 64, dtype=HALF), perm=[0, 2, 1, 3]),
    "transpose_i64": one("Transpose", whole(100, *ROWS), perm=[1, 0]),
    "transpose_5d": one("Transpose", (1, 3, 16, 28, 28), perm=[0, 2, 1, 3, 4]),
    "transpose_5d_last": one("Transpose", (2, 49, 3, 4, 32), perm=[2, 0, 3, 1, 4]),
    "transpose_reversed_4d": one("Transpose", (16, 24, 32, 40), perm=[3, 2, 1, 0]),
    "swin_windows": swin_windows,
    "swin_roll": swin_roll,
    "rotate_half": rotate_half,
    "channel_shuffle": shuffled_channels,
    "gated_silu": gated,
    "photo_normalised": photo_normalised,
    "concat_channels": one("Concat", IMAGE, IMAGE, axis=1),
    "concat_last_narrow": one("Concat", (8400, 4), (8400, 1), (8400, 1), axis=-1),
    "concat_last_wide": one("Concat", ROWS, ROWS, axis=-1),
    "concat_i64": one("Concat", whole(9, 4096, 1), whole(9, 4096, 1), axis=-1),
    "concat_cache": one("Concat", (1, 8, 1023, 64), (1, 8, 1, 64), axis=2),
    "split_3": one("Split", (128, 2304), results=3, axis=-1, num_outputs=3),
    "slice_step_2": one("Slice", ROWS, [0], [1024], [1], [2]),
    "slice_focus": slice_focus,
    "slice_reversed": one("Slice", ROWS, [-1], [-10000], [1], [-1]),
    "slice_columns": one("Slice", ROWS, [128], [640], [1]),
    "pad_reflect": one("Pad", IMAGE, [0, 0, 3, 3, 0, 0, 3, 3], mode="reflect"),
    "pad_constant": one("Pad", IMAGE, [0, 0, 1, 1, 0, 0, 1, 1]),
    "pad_edge": one("Pad", IMAGE, [0, 0, 2, 2, 0, 0, 2, 2], mode="edge"),
    "pad_wrap": one("Pad", IMAGE, [0, 0, 2, 2, 0, 0, 2, 2], mode="wrap"),
    "pad_1d_reflect": one("Pad", (1, 1, 16000), [0, 0, 200, 0, 0, 200], mode="reflect"),
    "pad_negative": one("Pad", IMAGE, [0, 0, -1, -1, 0, 0, -1, -1]),
    "gather_embedding": one("Gather", constant(normal(30000, 384)), whole(30000, 1, 128), axis=0),
    "gather_i32": one("Gather", constant(normal(30000, 384)), whole(30000, 1, 128, dtype=INT32), axis=0),
    "gather_negative": one("Gather", ROWS, whole(512, 1024, low=-512), axis=0),
    "gather_columns": one("Gather", ROWS, whole(1024, 256), axis=1),
    "gather_nd": one("GatherND", ROWS, whole(512, 4096, 2)),
    "gather_nd_batch": one("GatherND", (8, 512, 64), whole(512, 8, 100, 1), batch_dims=1),
    "gather_elements": one("GatherElements", ROWS, whole(1024, 512, 256), axis=1),
    "gather_elements_0": one("GatherElements", ROWS, whole(512, 256, 1024), axis=0),
    "scatter_nd": one("ScatterND", ROWS, Operand(lambda random: random.permutation(512)[:128, None]), (128, 1024)),
    "scatter_nd_add": one("ScatterND", ROWS, whole(512, 2048, 1), (2048, 1024), reduction="add"),
    "scatter_elements": one("ScatterElements", ROWS,
                            Operand(lambda random: random.random((512, 1024)).argsort(1)[:, :256]), (512, 256), axis=1),
    "scatter_elements_add": one("ScatterElements", (1000, 64), whole(1000, 4096, 64), (4096, 64), axis=0,
                                reduction="add"),
    "tile": one("Tile", (64, 256), [4, 4]),
    "tile_last_narrow": one("Tile", (8400, 1), [1, 8]),
    "expand": one("Expand", (512, 1), [512, 1024]),
    "expand_heads": one("Expand", (1, 4, 1, 1024, 64), [1, 4, 4, 1024, 64]),
    "depth_to_space": one("DepthToSpace", IMAGE, blocksize=2),
    "depth_to_space_crd": one("DepthToSpace", IMAGE, blocksize=2, mode="CRD"),
    "space_to_depth": one("SpaceToDepth", IMAGE, blocksize=2),
    "compress": one("Compress", ROWS, chance(512), axis=0),
    "compress_flat": one("Compress", ROWS, chance(512 * 1024)),
    "reverse_sequence": one("ReverseSequence", (64, 16, 128), whole(65, 16, low=1), batch_axis=1, time_axis=0),
    "trilu_lower": one("Trilu", (1, 12, 128, 128), upper=0),
    "trilu_upper": one("Trilu", (512, 512), [1], upper=1),
    "where": one("Where", chance(*ROWS), ROWS, ROWS),
    "where_mask": one("Where", chance(1, 1, 128, 128), (1, 12, 128, 128), -10000.0),
    "one_hot": one("OneHot", whole(1000, 512), [1000], [0.0, 1.0], axis=-1),
    "nonzero": one("NonZero", Operand(lambda random: (random.random((512, 1024)) < 0.2).astype(np.float32))),
    "eye_like": one("EyeLike", (512, 512)),
    "shape_of": one("Shape", IMAGE),
    "col2im": one("Col2Im", (1, 576, 196), [28, 28], [3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
}
# Casts, by what from and what to.
NUMBERS = {"f32": normal(*ROWS), "f16": normal(*ROWS, dtype=HALF), "f64": normal(*ROWS, dtype=DOUBLE),
           "i64": whole(100, *ROWS), "i32": whole(100, *ROWS, dtype=INT32), "u8": whole(100, *ROWS, dtype=BYTE),
           "bool": chance(*ROWS)}
TYPES = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "f64": TensorProto.DOUBLE, "i64": TensorProto.INT64,
         "i32": TensorProto.INT32, "u8": TensorProto.UINT8, "bool": TensorProto.BOOL}
CASTS = {f"cast_{source}_{target}": one("Cast", positive(*ROWS, high=99) if target == "u8" else NUMBERS[source],
                                        to=TYPES[target])
         for source, target in re.findall(r"(\w+)>(\w+)", "f32>i32 f32>i64 f32>u8 f32>f16 f16>f32 f32>f64 f64>f32 f32>bool "
                                                         "i64>f32 i64>i32 i32>f32 u8>f32 bool>f32 bool>i64")}

REDUCTIONS = {
    **{f"reduce_sum_{name}": one("ReduceSum", ROWS, axes, keepdims=0)
       for name, axes in (("last", [-1]), ("first", [0]), ("all", [0, 1]))},
    **{f"reduce_{kind.lower()}_middle": one(f"Reduce{kind}", (16, 128, 384), [1], keepdims=0)
       for kind in ("Sum", "Mean", "Max")},
    "reduce_max_first": one("ReduceMax", ROWS, [0], keepdims=0),
    "reduce_max_last": one("ReduceMax", ROWS, [-1], keepdims=0),
    "reduce_mean_spatial": one("ReduceMean", IMAGE, [2, 3]),
    "reduce_mean_channels": one("ReduceMean", IMAGE, [1]),
    "reduce_mean_batch": one("ReduceMean", IMAGE, [0, 2, 3]),
    "reduce_min_two": one("ReduceMin", (8, 64, 32, 32), [1, 3]),
    "reduce_prod_two": one("ReduceProd", positive(8, 64, 32, 4, low=0.9, high=1.1), [1, 3]),
    "reduce_l1": one("ReduceL1", ROWS, [-1]),
    "reduce_l2": one("ReduceL2", ROWS, [-1]),
    "reduce_sum_square": one("ReduceSumSquare", ROWS, [0]),
    "reduce_log_sum_exp": one("ReduceLogSumExp", ROWS, [-1]),
    "reduce_sum_i64": one("ReduceSum", whole(100, *ROWS), [-1]),
    "reduce_max_u8": one("ReduceMax", whole(256, *ROWS, dtype=BYTE), [-1]),
    "reduce_mean_f64": one("ReduceMean", normal(*ROWS, dtype=DOUBLE), [-1]),
    "arg_max_last": one("ArgMax", ROWS, axis=-1),
    "arg_max_first": one("ArgMax", ROWS, axis=0),
    "arg_max_channels": one("ArgMax", (1, 21, 256, 256), axis=1),
    "arg_max_vocabulary": one("ArgMax", (1, 128000), axis=-1),
    "arg_min_channels": one("ArgMin", IMAGE, axis=1),
    "arg_max_ties_last": one("ArgMax", whole(4, *ROWS, dtype=INT32), axis=-1, select_last_index=1),
    "top_k_50": one("TopK", ROWS, [50], results=2, axis=-1),
    "top_k_vocabulary": one("TopK", (1, 50000), [50], results=2, axis=-1),
    "top_k_300_boxes": one("TopK", (1, 8400), [300], results=2, axis=-1),
    "top_k_first_axis": one("TopK", ROWS, [5], results=2, axis=0),
    "cumsum_last": one("CumSum", ROWS, np.array(1)),
    "cumsum_first": one("CumSum", ROWS, np.array(0)),
    "cumsum_exclusive": one("CumSum", ROWS, np.array(1), exclusive=1),
    "cumsum_reversed": one("CumSum", ROWS, np.array(1), exclusive=1, reverse=1),
    "cumsum_i64": one("CumSum", whole(2, 1, 4096), np.array(1)),
    "softmax_last": one("Softmax", ROWS, axis=-1),
    "softmax_first": one("Softmax", ROWS, axis=0),
    "softmax_channels": one("Softmax", IMAGE, axis=1),
    "softmax_narrow": one("Softmax", (8400, 4, 16), axis=-1),
    "softmax_f16": one("Softmax", normal(*ROWS, dtype=HALF), axis=-1),
    "log_softmax": one("LogSoftmax", ROWS, axis=-1),
    "hardmax": one("Hardmax", ROWS, axis=-1),
    "lp_normalization": one("LpNormalization", ROWS, axis=-1, p=2),
    "mean_variance": one("MeanVarianceNormalization", IMAGE, axes=[0, 2, 3]),
    "instance_norm": one("InstanceNormalization", IMAGE, weight(64), weight(64)),
    "group_norm": one("GroupNormalization", IMAGE, weight(64), weight(64), num_groups=8),
    "group_norm_contrib": one("com.microsoft.GroupNorm", (1, 32, 32, 64), weight(64), weight(64), groups=8, activation=1,
                              channels_last=1),
    "batch_norm": one("BatchNormalization", IMAGE, weight(64), weight(64), weight(64), constant(positive(64))),
    "layer_norm": one("LayerNormalization", ROWS, weight(1024), weight(1024), axis=-1),
    "layer_norm_f16": one("LayerNormalization", normal(*ROWS, dtype=HALF), weight(1024, dtype=HALF),
                          weight(1024, dtype=HALF), axis=-1),
    "layer_norm_bf16": lambda op: op("Cast", op("LayerNormalization", *[
        op("Cast", x, to=TensorProto.BFLOAT16) for x in (ROWS, weight(1024), weight(1024))]), to=TensorProto.FLOAT),
    "layer_norm_3_axes": one("LayerNormalization", (8, 16, 32, 32), weight(16, 32, 32), weight(16, 32, 32), axis=1),
    "rms_norm": one("RMSNormalization", ROWS, weight(1024), axis=-1),
    "simplified_layer_norm": one("SimplifiedLayerNormalization", ROWS, weight(1024), axis=-1),
    "skip_layer_norm": one("com.microsoft.SkipLayerNormalization", (1, 128, 768), (1, 128, 768), weight(768), weight(768),
                           weight(768)),
    "skip_rms_norm": one("com.microsoft.SkipSimplifiedLayerNormalization", (1, 128, 768), (1, 128, 768), weight(768)),
    "bias_gelu": one("com.microsoft.BiasGelu", ROWS, weight(1024)),
    "fast_gelu": one("com.microsoft.FastGelu", ROWS, weight(1024)),
    "lrn": one("LRN", IMAGE, size=5),
}


def resized(shape, mode, sizes=None, scales=None, **attributes):
    operand = shape if isinstance(shape, Operand) else normal(*shape)
    return one("Resize", operand, None, scales, sizes, mode=mode, **attributes)


WINDOWS = {
    "max_pool_3_stride_2": one("MaxPool", (1, 64, 112, 112), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
    "max_pool_2": one("MaxPool", IMAGE, kernel_shape=[2, 2], strides=[2, 2]),
    "max_pool_5": one("MaxPool", (1, 256, 20, 20), kernel_shape=[5, 5], strides=[1, 1], pads=[2] * 4),
    "max_pool_13": one("MaxPool", (1, 256, 20, 20), kernel_shape=[13, 13], strides=[1, 1], pads=[6] * 4),
    "max_pool_ceil": one("MaxPool", IMAGE, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    "max_pool_1d": one("MaxPool", (1, 256, 400), kernel_shape=[3], strides=[2], pads=[1, 1]),
    "max_pool_indices": one("MaxPool", IMAGE, results=2, kernel_shape=[2, 2], strides=[2, 2]),
    "max_pool_u8": one("MaxPool", whole(256, *IMAGE, dtype=BYTE), kernel_shape=[2, 2], strides=[2, 2]),
    "max_pool_3d": one("MaxPool", (1, 16, 8, 28, 28), kernel_shape=[2, 2, 2], strides=[2, 2, 2]),
    "average_pool_2": one("AveragePool", IMAGE, kernel_shape=[2, 2], strides=[2, 2]),
    "average_pool_3": one("AveragePool", IMAGE, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4),
    "average_pool_padded": one("AveragePool", IMAGE, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4,
                               count_include_pad=1),
    "average_pool_ceil": one("AveragePool", (1, 64, 55, 55), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    "lp_pool": one("LpPool", IMAGE, kernel_shape=[2, 2], strides=[2, 2]),
    "global_average_pool": one("GlobalAveragePool", IMAGE),
    "global_max_pool": one("GlobalMaxPool", (1, 2048, 7, 7)),
    "max_unpool": lambda op: op("MaxUnpool", *op("MaxPool", IMAGE, results=2, kernel_shape=[2, 2], strides=[2, 2]),
                                kernel_shape=[2, 2], strides=[2, 2]),
    "resize_nearest_2": resized((1, 128, 20, 20), "nearest", scales=[1.0, 1.0, 2.0, 2.0], nearest_mode="floor",
                                coordinate_transformation_mode="asymmetric"),
    "resize_nearest_odd": resized((1, 64, 13, 13), "nearest", [1, 64, 29, 31]),
    "resize_linear_2": resized(IMAGE, "linear", scales=[1.0, 1.0, 2.0, 2.0]),
    "resize_linear_down": resized((1, 3, 480, 640), "linear", [1, 3, 224, 224]),
    "resize_linear_corners": resized((1, 21, 65, 65), "linear", [1, 21, 257, 257],
                                     coordinate_transformation_mode="align_corners"),
    "resize_antialias": resized((1, 3, 480, 640), "linear", [1, 3, 224, 224], antialias=1),
    "resize_cubic_2": resized(IMAGE, "cubic", scales=[1.0, 1.0, 2.0, 2.0]),
    "resize_cubic_positions": resized((1, 768, 14, 14), "cubic", [1, 768, 16, 16], cubic_coeff_a=-0.75),
    "resize_u8_nhwc": resized(whole(256, *PHOTO, dtype=BYTE), "linear", [1, 224, 224, 3]),
    "resize_u8_nchw": resized(whole(256, 1, 3, 480, 640, dtype=BYTE), "linear", [1, 3, 224, 224]),
    "resize_u8_nearest": resized(whole(256, *PHOTO, dtype=BYTE), "nearest", [1, 224, 224, 3]),
    "resize_1d": resized((1, 256, 200), "linear", scales=[1.0, 1.0, 2.0]),
    "grid_sample": one("GridSample", IMAGE, positive(1, 56, 56, 2, low=-1, high=1), mode="linear"),
    "grid_sample_nearest": one("GridSample", IMAGE, positive(1, 56, 56, 2, low=-1.2, high=1.2), mode="nearest",
                               padding_mode="border"),
    "grid_sample_many": one("GridSample", (8, 32, 40, 40), positive(8, 300, 4, 2, low=-1, high=1), mode="linear"),
    "affine_grid": one("AffineGrid", (1, 2, 3), [1, 3, 56, 56]),
    "roi_align": one("RoiAlign", IMAGE, Operand(lambda random: np.float32(
        random.uniform(0, 20, (32, 4)) + [0, 0, 20, 20])), np.zeros(32, np.int64), output_height=7, output_width=7,
        sampling_ratio=2),
    "max_roi_pool": one("MaxRoiPool", IMAGE, Operand(lambda random: np.float32(
        random.integers(0, 20, (32, 5)) * [0, 1, 1, 1, 1] + [0, 0, 0, 20, 20])), pooled_shape=[7, 7]),
}

UNIT, INSIDE = positive(*ROWS), positive(*ROWS, low=-0.95, high=0.95)
POINTWISE = {
    **{kind.lower(): one(kind, ROWS) for kind in (
        "Relu Sigmoid Tanh Gelu HardSwish Mish Softplus Elu Selu Erf Exp Sin Cos Tan Atan Sinh Cosh Asinh Floor Ceil Round "
        "Reciprocal Abs Sign Softsign HardSigmoid LeakyRelu Celu ThresholdedRelu IsNaN IsInf Neg Shrink").split()},
    **{kind.lower(): one(kind, UNIT) for kind in ("Log", "Sqrt")},
    **{kind.lower(): one(kind, INSIDE) for kind in ("Atanh", "Asin", "Acos")},
    "acosh": one("Acosh", positive(*ROWS, low=1.1)),
    "gelu_tanh": one("Gelu", ROWS, approximate="tanh"),
    "quick_gelu": one("com.microsoft.QuickGelu", ROWS),
    **{f"{kind.lower()}_f16": one(kind, normal(*ROWS, dtype=HALF)) for kind in ("Relu", "Sigmoid", "Tanh", "Exp")},
    **{f"{kind.lower()}_f64": one(kind, normal(*ROWS, dtype=DOUBLE)) for kind in ("Tanh", "Exp", "Sigmoid", "Erf")},
    "prelu": one("PRelu", IMAGE, weight(64, 1, 1)),
    "clip_6": one("Clip", ROWS, 0.0, 6.0),
    "pow_square": one("Pow", ROWS, 2.0),
    "pow_fraction": one("Pow", UNIT, 1.7),
    "pow_both": one("Pow", UNIT, ROWS),
    **{f"{kind.lower()}_{dtype}": one(kind, NUMBERS[dtype], NUMBERS[dtype])
       for kind in ("Add", "Mul") for dtype in ("f32", "f16", "f64", "i64", "i32")},
    "div_f32": one("Div", ROWS, UNIT),
    "div_i64": one("Div", whole(1000, *ROWS, low=-1000), np.int64(7)),
    "div_i32_both": one("Div", whole(1000, *ROWS, dtype=INT32), whole(30, *ROWS, dtype=INT32, low=1)),
    "mod_i64": one("Mod", whole(1000, *ROWS, low=-1000), np.int64(7)),
    "mod_i32_both": one("Mod", whole(1000, *ROWS, dtype=INT32, low=-1000), whole(30, *ROWS, dtype=INT32, low=1)),
    "fmod_f32": one("Mod", ROWS, np.float32(1.7), fmod=1),
    "bit_shift_right": one("BitShift", whole(256, *ROWS, dtype=BYTE), np.uint8(4), direction="RIGHT"),
    "bit_shift_left": one("BitShift", whole(256, *ROWS, dtype=np.uint32), whole(8, *ROWS, dtype=np.uint32),
                          direction="LEFT"),
    "bitwise_and": one("BitwiseAnd", whole(256, *ROWS, dtype=BYTE), np.uint8(15)),
    "bitwise_xor": one("BitwiseXor", NUMBERS["i32"], NUMBERS["i32"]),
    "equal_i64": one("Equal", whole(10, *ROWS), whole(10, *ROWS)),
    "and": one("And", chance(*ROWS), chance(*ROWS)),
    "not": one("Not", chance(*ROWS)),
    "less": one("Less", ROWS, ROWS),
    "greater_or_equal_scalar": one("GreaterOrEqual", ROWS, 0.5),
    "max_2": one("Max", ROWS, ROWS),
    "min_3": one("Min", ROWS, ROWS, (1024,)),
    "sum_4": one("Sum", ROWS, ROWS, ROWS, ROWS),
    "mean_3": one("Mean", ROWS, ROWS, ROWS),
    "add_column": one("Add", ROWS, (512, 1)),
    "add_row": one("Add", ROWS, (1024,)),
    "add_channel": one("Add", IMAGE, (1, 64, 1, 1)),
    "add_channels_by_image": one("Mul", IMAGE, (1, 1, 56, 56)),
    "add_outer": one("Add", (512, 1), (1, 1024)),
    "sub_pairs": one("Sub", (1, 300, 1, 4), (1, 1, 300, 4)),
    "add_one_element": one("Add", (1,), (1,)),
}


def boxes(random):
    corners = random.uniform(0, 200, (1, 1000, 2))
    return np.concatenate([corners, corners + random.uniform(10, 50, (1, 1000, 2))], -1).astype(np.float32)


def body(inputs, nodes, outputs):
    """A subgraph. A node is an op, its inputs and its output."""
    return helper.make_graph([helper.make_node(kind, names, [output]) for kind, names, output in nodes], "body",
                             [helper.make_tensor_value_info(*value) for value in inputs],
                             [helper.make_tensor_value_info(*value) for value in outputs])


def running_sum(op):
    """A loop of 16 steps over a state."""
    return op("Loop", np.int64(16), np.array(True), (1, 256), body=body(
        [("i", TensorProto.INT64, []), ("go", TensorProto.BOOL, []), ("state", TensorProto.FLOAT, [1, 256])],
        [("Identity", ["go"], "go_on"), ("Tanh", ["state"], "bent"), ("Add", ["bent", "bent"], "next")],
        [("go_on", TensorProto.BOOL, []), ("next", TensorProto.FLOAT, [1, 256])]))


def scanned(op):
    """A recurrence over 64 rows, each of which is an output too."""
    vector = [256]
    return op("Scan", np.zeros(256, np.float32), (64, 256), results=2, num_scan_inputs=1, body=body(
        [("state", TensorProto.FLOAT, vector), ("row", TensorProto.FLOAT, vector)],
        [("Add", ["state", "row"], "sum"), ("Tanh", ["sum"], "next"), ("Identity", ["next"], "seen")],
        [("next", TensorProto.FLOAT, vector), ("seen", TensorProto.FLOAT, vector)]))


def chosen(op):
    x = op("Identity", (512, 1024))
    branches = {name: helper.make_graph([helper.make_node(kind, [x], [f"{name}_y"])], name, [], [
        helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, [512, 1024])])
        for name, kind in (("then_branch", "Exp"), ("else_branch", "Neg"))}
    return op("If", op("Greater", op("ReduceSum", x, keepdims=0), 0.0), **branches)


OTHERS = {
    "non_max_suppression": one("NonMaxSuppression", Operand(boxes), positive(1, 1, 1000), [100], [0.5], [0.5]),
    "unique": one("Unique", whole(100, 4096), sorted=1),
    "stft": one("STFT", (1, 16000, 1), np.int64(160), np.hanning(400).astype(np.float32), np.int64(400), onesided=1),
    "dft": one("DFT", (16, 512, 1), np.int64(512), np.int64(1), onesided=1),
    "hann_window": one("HannWindow", np.int64(400)),
    "mel_weights": one("MelWeightMatrix", np.int64(80), np.int64(400), np.int64(16000), 0.0, 8000.0),
    "range": one("Range", Operand(lambda _: np.int64(0)), np.int64(4096), np.int64(1)),
    "det": one("Det", (64, 3, 3)),
    "loop_16": running_sum,
    "scan_64": scanned,
    "if": chosen,
    "dropout": one("Dropout", ROWS),
    "einsum_transpose": one("Einsum", ROWS, equation="ij->ji"),
    "einsum_diagonal": one("Einsum", (512, 512), equation="ii->i"),
    "einsum_sum": one("Einsum", (16, 128, 384), equation="abc->ac"),
    "constant_of_shape": one("ConstantOfShape", Operand(lambda _: np.array([512, 1024]))),
}

FAMILIES = {"data movement": DATA_MOVEMENT | CASTS, "reductions and norms": REDUCTIONS, "windows and resizing": WINDOWS,
            "pointwise": POINTWISE, "others": OTHERS}
