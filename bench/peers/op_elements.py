"""Cases of ops.py: pointwise, casts, reductions and norms, others."""
import re

import numpy as np
from onnx import TensorProto, helper

from op_models import (BYTE, DOUBLE, HALF, IMAGE, INT32, ROWS, Operand, chance, constant, normal, one, positive, weight,
                       whole)

# Casts, by what from and what to.
NUMBERS = {"f32": normal(*ROWS), "f16": normal(*ROWS, dtype=HALF), "f64": normal(*ROWS, dtype=DOUBLE),
           "i64": whole(100, *ROWS), "i32": whole(100, *ROWS, dtype=INT32), "u8": whole(100, *ROWS, dtype=BYTE),
           "bool": chance(*ROWS)}
TYPES = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "f64": TensorProto.DOUBLE, "i64": TensorProto.INT64,
         "i32": TensorProto.INT32, "u8": TensorProto.UINT8, "bool": TensorProto.BOOL}
CASTS = {f"cast_{source}_{target}": one("Cast", positive(*ROWS, high=99) if target == "u8" else NUMBERS[source],
                                        to=TYPES[target])
         for source, target in re.findall(r"(\w+)>(\w+)", (
             "f32>i32 f32>i64 f32>u8 f32>f16 f16>f32 f32>f64 f64>f32 f32>bool i64>f32 i64>i32 i32>f32 u8>f32 bool>f32 "
             "bool>i64"))}

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
    "top_k_experts_8": one("TopK", (4096, 8), [2], results=2, axis=-1),
    "top_k_experts_64": one("TopK", (2048, 64), [8], results=2, axis=-1),
    "top_k_classes": one("TopK", (1, 512, 80), [5], results=2, axis=-1),
    "top_k_class": one("TopK", (1024, 128), [1], results=2, axis=-1),
    "top_k_rows_200": one("TopK", (1024, 200), [10], results=2, axis=-1),
    "top_k_rows_200_f16": one("TopK", normal(1024, 200, dtype=HALF), [50], results=2, axis=-1),
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
    "batch_norm": one("BatchNormalization", IMAGE, weight(64), weight(64), weight(64), constant(positive(64))),
    "layer_norm": one("LayerNormalization", ROWS, weight(1024), weight(1024), axis=-1),
    "layer_norm_f16": one("LayerNormalization", normal(*ROWS, dtype=HALF), weight(1024, dtype=HALF),
                          weight(1024, dtype=HALF), axis=-1),
    "layer_norm_bf16": lambda op: op("Cast", op("LayerNormalization", *[
        op("Cast", x, to=TensorProto.BFLOAT16) for x in (ROWS, weight(1024), weight(1024))]), to=TensorProto.FLOAT),
    "layer_norm_3_axes": one("LayerNormalization", (8, 16, 32, 32), weight(16, 32, 32), weight(16, 32, 32), axis=1),
    "rms_norm": one("RMSNormalization", ROWS, weight(1024), axis=-1),
    "simplified_layer_norm": one("SimplifiedLayerNormalization", ROWS, weight(1024), axis=-1),
    "skip_layer_norm": one("com.microsoft.SkipLayerNormalization", (1, 128, 768), (1, 128, 768), weight(768),
                           weight(768), weight(768)),
    "skip_rms_norm": one("com.microsoft.SkipSimplifiedLayerNormalization", (1, 128, 768), (1, 128, 768), weight(768)),
    "bias_gelu": one("com.microsoft.BiasGelu", ROWS, weight(1024)),
    "fast_gelu": one("com.microsoft.FastGelu", ROWS, weight(1024)),
    "lrn": one("LRN", IMAGE, size=5),
}

UNIT, INSIDE = positive(*ROWS), positive(*ROWS, low=-0.95, high=0.95)
POINTWISE = {
    **{kind.lower(): one(kind, ROWS) for kind in (
        "Relu Sigmoid Tanh Gelu HardSwish Mish Softplus Elu Selu Erf Exp Sin Cos Tan Atan Sinh Cosh Asinh Floor Ceil "
        "Round Reciprocal Abs Sign Softsign HardSigmoid LeakyRelu Celu ThresholdedRelu IsNaN "
        "IsInf Neg Shrink").split()},
    **{kind.lower(): one(kind, UNIT) for kind in ("Log", "Sqrt")},
    **{kind.lower(): one(kind, INSIDE) for kind in ("Atanh", "Asin", "Acos")},
    "acosh": one("Acosh", positive(*ROWS, low=1.1)),
    "gelu_tanh": one("Gelu", ROWS, approximate="tanh"),
    "quick_gelu": one("com.microsoft.QuickGelu", ROWS),
    **{f"{kind.lower()}_f16": one(kind, normal(*ROWS, dtype=HALF)) for kind in ("Relu", "Sigmoid", "Tanh", "Exp")},
    **{f"{kind.lower()}_f64": one(kind, positive(*ROWS, dtype=DOUBLE)) for kind in ("Tanh", "Exp", "Sigmoid", "Log")},
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
    "bit_shift_left": one("BitShift", whole(256, *ROWS, dtype=BYTE), whole(8, *ROWS, dtype=BYTE), direction="LEFT"),
    "bit_shift_u32": one("BitShift", whole(256, *ROWS, dtype=np.uint32), whole(8, *ROWS, dtype=np.uint32),
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
    "inverse": one("com.microsoft.Inverse", (64, 4, 4)),
    "loop_16": running_sum,
    "scan_64": scanned,
    "if": chosen,
    "dropout": one("Dropout", ROWS),
    "einsum_transpose": one("Einsum", ROWS, equation="ij->ji"),
    "einsum_diagonal": one("Einsum", (512, 512), equation="ii->i"),
    "einsum_sum": one("Einsum", (16, 128, 384), equation="abc->ac"),
    "constant_of_shape": one("ConstantOfShape", Operand(lambda _: np.array([512, 1024]))),
}

FAMILIES = {"pointwise": POINTWISE, "casts": CASTS, "reductions and norms": REDUCTIONS, "others": OTHERS}
