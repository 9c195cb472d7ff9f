"""Cases of ops.py: values, sizes and attributes at the edges of what ops allow."""
import numpy as np
from onnx import TensorProto

from op_models import BYTE, DOUBLE, HALF, INT8, INT32, Operand, constant, normal, one, positive, weight, whole

NAN, INF = np.nan, np.inf


def odd(*shape, share=0.1, values=(NAN, INF, -INF, 0.0, -0.0, 1e-40, 3e38, -3e38)):
    """Normal numbers, and among them some that arithmetic treats in ways of their own."""
    def make(random):
        array = random.standard_normal(shape)
        return np.where(random.random(shape) < share, random.choice(values, shape), array).astype(np.float32)
    return Operand(make)


def halves(*shape):
    """Multiples of one half: what rounding and ties are about."""
    return Operand(lambda random: (random.integers(-600, 600, shape) / 2).astype(np.float32))


def rows_of_infinity(random):
    array = random.standard_normal((8, 64)).astype(np.float32)
    array[2, :40], array[3, 5], array[4, 7] = -INF, INF, NAN
    return array


SMALL = (7, 33)
ODD = {f"{kind.lower()}_odd": one(kind, odd(*SMALL)) for kind in (
    "Relu Sigmoid Tanh Exp Sqrt Log Erf Gelu Elu Softplus Sign Round Floor Abs Neg Reciprocal Sin Cos Atan Sinh Mish "
    "HardSwish LeakyRelu Selu IsNaN IsInf Tan Asinh Atanh Acosh HardSigmoid Softsign").split()}
ODD |= {f"{kind.lower()}_odd_2": one(kind, odd(*SMALL), odd(*SMALL)) for kind in (
    "Add Mul Div Max Min Pow Less Equal GreaterOrEqual").split()}
# Whether ONNX Runtime's largest element of a row with NaN is NaN depends on where in the row that is.
INFINITE = odd(64, 40, share=0.01, values=(INF, -INF))
ODD |= {f"{kind.lower()}_odd_axis": one(kind, odd(64, 40, share=0.01), axis=1) for kind in ("Softmax", "LogSoftmax")}
ODD |= {f"{kind.lower()}_infinite": one(kind, INFINITE, axis=1) for kind in ("ArgMax", "ArgMin", "Hardmax")}
ODD |= {f"reduce_{kind.lower()}_infinite": one(f"Reduce{kind}", INFINITE, [1]) for kind in ("Max", "Min")}
ODD |= {f"reduce_{kind.lower()}_odd": one(f"Reduce{kind}", odd(64, 40, share=0.01), [1])
        for kind in ("Sum", "Mean", "LogSumExp", "L2", "Prod")}
ODD |= {
    "clip_odd": one("Clip", odd(*SMALL), -1.0, 1.0),
    "clip_crossed": one("Clip", SMALL, 1.0, -1.0),
    "clip_no_low": one("Clip", SMALL, None, 0.5),
    "clip_i64": one("Clip", whole(100, *SMALL, low=-100), np.int64(-5), np.int64(50)),
    "round_halves": one("Round", halves(*SMALL)),
    "quantize_halves": one("QuantizeLinear", halves(*SMALL), np.float32(1), np.uint8(128)),
    "quantize_odd": one("QuantizeLinear", odd(*SMALL, values=(INF, -INF, 1e9, -1e9)), np.float32(0.1), np.int8(3)),
    "quantize_i16": one("QuantizeLinear", halves(*SMALL), np.float32(0.01), np.int16(5)),
    "dynamic_quantize_zeros": one("DynamicQuantizeLinear", Operand(lambda _: np.zeros(SMALL, np.float32)), results=3),
    "dynamic_quantize_positive": one("DynamicQuantizeLinear", positive(*SMALL, low=2), results=3),
    "dequantize_blocked": one("DequantizeLinear", whole(128, 64, 32, dtype=INT8, low=-128), constant(positive(4, 32)),
                              np.zeros((4, 32), INT8), axis=0, block_size=16),
    "cast_halves_i32": one("Cast", halves(*SMALL), to=TensorProto.INT32),
    "cast_negative_i64": one("Cast", normal(*SMALL, scale=1e6), to=TensorProto.INT64),
    "cast_i64_u8_wraps": one("Cast", whole(1000, *SMALL, low=-1000), to=TensorProto.UINT8),
    "cast_odd_f16": one("Cast", odd(*SMALL), to=TensorProto.FLOAT16),
    "cast_odd_bool": one("Cast", odd(*SMALL), to=TensorProto.BOOL),
    "cast_f64_f16": one("Cast", normal(*SMALL, dtype=DOUBLE), to=TensorProto.FLOAT16),
    "mod_negative_i8": one("Mod", whole(100, *SMALL, dtype=INT8, low=-100), whole(9, *SMALL, dtype=INT8, low=1)),
    "mod_negative_divisor": one("Mod", whole(100, *SMALL, low=-100), whole(0, *SMALL, low=-9)),
    "fmod_i64": one("Mod", whole(100, *SMALL, low=-100), whole(9, *SMALL, low=1), fmod=1),
    "div_i32_negative": one("Div", whole(100, *SMALL, dtype=INT32, low=-100), whole(0, *SMALL, dtype=INT32, low=-9)),
    "add_u8_wraps": one("Add", whole(256, *SMALL, dtype=BYTE), whole(256, *SMALL, dtype=BYTE)),
    "pow_i64": one("Pow", whole(9, *SMALL, low=-9), np.int64(3)),
    "pow_f32_by_i64": one("Pow", SMALL, np.int64(3)),
    "pow_negative": one("Pow", SMALL, -2.0),
    "pow_half": one("Pow", SMALL, 0.5),
    "shift_beyond": one("BitShift", whole(256, *SMALL, dtype=BYTE), whole(8, *SMALL, dtype=BYTE), direction="LEFT"),
    "top_k_ties": one("TopK", whole(5, 16, 100), [20], results=2),
    "top_k_smallest": one("TopK", (16, 100), [7], results=2, largest=0, axis=0),
    "arg_max_ties": one("ArgMax", whole(3, 64, 100, dtype=INT32), axis=1, keepdims=0),
    "arg_min_last_tie": one("ArgMin", halves(64, 1000), axis=0, select_last_index=1),
    "softmax_infinite": one("Softmax", Operand(rows_of_infinity), axis=-1),
    "softmax_large": one("Softmax", normal(8, 100, scale=200), axis=-1),
    "softmax_1_wide": one("Softmax", (512, 1), axis=-1),
    "log_softmax_large": one("LogSoftmax", normal(8, 100, scale=200), axis=0),
    "sigmoid_large": one("Sigmoid", normal(*SMALL, scale=100)),
    "gelu_large": one("Gelu", normal(*SMALL, scale=30)),
    "layer_norm_offset": one("LayerNormalization", Operand(lambda random: np.float32(
        1000 + random.standard_normal((16, 768)))), weight(768), weight(768), axis=-1),
    "layer_norm_constant": one("LayerNormalization", Operand(lambda _: np.full((4, 96), 7, np.float32)), weight(96),
                               weight(96), axis=-1),
    "instance_norm_1d": one("InstanceNormalization", (2, 8, 77), weight(8), weight(8)),
    "batch_norm_matrix": one("BatchNormalization", (64, 30), *[weight(30)] * 3, constant(positive(30))),
    "group_norm_offset": one("GroupNormalization", Operand(lambda random: np.float32(
        100 + random.standard_normal((2, 12, 9, 9)))), weight(12), weight(12), num_groups=3),
}


def resized(shape, mode, sizes=None, scales=None, roi=None, **attributes):
    return one("Resize", shape, roi, scales, sizes, mode=mode, **attributes)


SIZES = {
    **{f"resize_{mode}_{how}": resized((1, 2, 13, 17), mode, [1, 2, *sizes], coordinate_transformation_mode=how)
       for mode, sizes in (("linear", (29, 11)), ("cubic", (29, 11)), ("nearest", (29, 11)))
       for how in ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")},
    **{f"resize_{mode}": resized((1, 2, 13, 17), "nearest", [1, 2, 29, 40], nearest_mode=mode)
       for mode in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")},
    "resize_nearest_ties": resized((1, 2, 48, 640), "nearest", [1, 2, 24, 224]),
    "resize_nearest_photo": resized((1, 3, 720, 1280), "nearest", [1, 3, 640, 640]),
    "resize_nearest_up": resized((1, 2, 15, 20), "nearest", [1, 2, 45, 50]),
    "resize_to_1": resized((1, 2, 13, 17), "linear", [1, 2, 1, 1], coordinate_transformation_mode="pytorch_half_pixel"),
    "resize_cubic_outside": resized((1, 2, 13, 17), "cubic", [1, 2, 29, 11], exclude_outside=1),
    "resize_cubic_antialias": resized((1, 2, 60, 60), "cubic", [1, 2, 17, 23], antialias=1),
    "resize_crop": resized((1, 2, 13, 17), "linear", [1, 2, 9, 9], roi=[0.0, 0.0, 0.2, 0.3, 1.0, 1.0, 0.8, 1.2],
                           coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=9.0),
    "resize_ratio_kept": resized((1, 2, 13, 17), "linear", [29, 60], axes=[2, 3],
                                 keep_aspect_ratio_policy="not_larger"),
    "pool_average_ceil_padded": one("AveragePool", (1, 3, 14, 14), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4,
                                    ceil_mode=1, count_include_pad=1),
    "pool_average_dilated": one("AveragePool", (1, 3, 14, 14), kernel_shape=[3, 3], dilations=[2, 2]),
    "pool_max_dilated": one("MaxPool", (1, 3, 14, 14), kernel_shape=[3, 3], dilations=[2, 2], pads=[2] * 4),
    "pool_max_lower": one("MaxPool", (1, 3, 15, 15), kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_LOWER"),
    "pool_max_odd": one("MaxPool", odd(1, 3, 14, 14, share=0.02), kernel_shape=[3, 3], strides=[1, 1]),
    "conv_uneven_pads": one("Conv", (1, 8, 15, 15), weight(8, 8, 3, 3), pads=[0, 2, 1, 0], strides=[2, 1]),
    "conv_pads_beyond": one("Conv", (1, 4, 3, 3), weight(4, 4, 3, 3), pads=[4] * 4),
    "conv_lower": one("Conv", (1, 4, 15, 15), weight(4, 4, 4, 4), auto_pad="SAME_LOWER", strides=[2, 2]),
    "conv_odd": one("Conv", odd(1, 4, 15, 15, share=0.01, values=(INF, NAN)), weight(4, 4, 3, 3), pads=[1] * 4),
    "conv_transpose_shape": one("ConvTranspose", (1, 4, 7, 7), weight(4, 3, 3, 3), strides=[2, 2],
                                output_shape=[14, 14]),
    "conv_transpose_dilated": one("ConvTranspose", (1, 4, 7, 7), weight(4, 3, 3, 3), strides=[2, 2], dilations=[2, 2],
                                  pads=[1, 0, 1, 2]),
    "conv_transpose_same": one("ConvTranspose", (1, 4, 7, 7), weight(4, 3, 3, 3), strides=[2, 2],
                               auto_pad="SAME_UPPER"),
    "product_empty_depth": one("MatMul", (4, 0), (0, 5)),
    "product_vector_batch": one("MatMul", (64,), (3, 64, 5)),
    "product_odd_values": one("MatMul", odd(16, 64, share=0.002, values=(INF, NAN)), weight(64, 16)),
    "gemm_no_bias": one("Gemm", (9, 33), weight(17, 33), transB=1, alpha=2.0),
    "gemm_column_bias": one("Gemm", (9, 33), weight(33, 17), weight(9, 1)),
    "empty_add": one("Add", (0, 4), (1, 4)),
    "empty_concat": one("Concat", (0, 4), (3, 4), axis=0),
    "empty_reduce_sum": one("ReduceSum", (0, 4), [0]),
    "empty_gather": one("Gather", SMALL, whole(7, 0), axis=0),
    "reduce_noop": one("ReduceSum", SMALL, np.zeros(0, np.int64), noop_with_empty_axes=1),
    "reduce_all_kept": one("ReduceMean", (3, 4, 5)),
    "slice_beyond": one("Slice", SMALL, [-100, 2], [100, 1000], [0, 1], [1, 3]),
    "slice_back": one("Slice", SMALL, [6, 30], [-100, 3], [0, 1], [-2, -5]),
    "slice_empty": one("Slice", SMALL, [5], [2], [0]),
    "split_uneven": one("Split", (7, 33), results=3, axis=0, num_outputs=3),
    "pad_axes": one("Pad", (2, 3, 5), [1, 2], 7.0, [-1]),
    "pad_i64": one("Pad", whole(9, 3, 4), [0, 1, 2, 0], np.int64(7)),
    "tile_zero": one("Tile", SMALL, [0, 2]),
    "gather_elements_negative": one("GatherElements", SMALL, whole(33, 7, 5, low=-33), axis=1),
    "scatter_elements_max": one("ScatterElements", SMALL, whole(7, 4, 33), (4, 33), axis=0, reduction="max"),
    "scatter_elements_mul": one("ScatterElements", SMALL, whole(7, 4, 33), (4, 33), axis=0, reduction="mul"),
    "one_hot_beyond": one("OneHot", whole(15, 4, 6, low=-15), [10], [2.0, 5.0], axis=1),
    "trilu_beyond": one("Trilu", (4, 9), [-3], upper=1),
    "reverse_sequence_batch_first": one("ReverseSequence", (5, 9, 3), np.array([1, 9, 4, 2, 5]), batch_axis=0,
                                        time_axis=1),
    "unique_axis": one("Unique", whole(2, 40, 3), results=4, axis=0),
    "compress_short": one("Compress", SMALL, np.array([True, False, True]), axis=1),
    "einsum_ellipsis": one("Einsum", (2, 3, 4, 5), (1, 3, 5, 6), equation="...ij,...jk->...ik"),
    "einsum_implicit": one("Einsum", (4, 5), (5, 6), equation="ij,jk"),
    "einsum_trace": one("Einsum", (5, 5), equation="ii->"),
    "cumsum_f64": one("CumSum", normal(5, 70, dtype=DOUBLE), np.array(-1), reverse=1),
    "expand_down": one("Expand", (3, 1, 5), [1, 4, 1]),
    "where_broadcast": one("Where", Operand(lambda random: random.random((7, 1)) < 0.5), (33,), (7, 33)),
    "prelu_row": one("PRelu", SMALL, weight(33)),
    "f16_products": one("MatMul", normal(1, 64, dtype=HALF), normal(64, 64, dtype=HALF)),
}


def sequence(kind, gates, *more, batch=3, **attributes):
    """A recurrence of 5 steps whose sequences end at 5, 2 and 4; `more`: states and peepholes."""
    return one(kind, (5, batch, 6), weight(1, gates * 8, 6), weight(1, gates * 8, 8), weight(1, 2 * gates * 8),
               np.array([5, 2, 4], np.int32), *more, hidden_size=8, results=2, **attributes)


STATE = (1, 3, 8)
RECURRENCES = {
    "lstm_lengths": sequence("LSTM", 4, STATE, STATE),
    "lstm_peepholes": sequence("LSTM", 4, STATE, STATE, weight(1, 24)),
    "lstm_reverse": sequence("LSTM", 4, STATE, STATE, direction="reverse"),
    "lstm_clipped": sequence("LSTM", 4, STATE, STATE, clip=0.1),
    "lstm_input_forget": sequence("LSTM", 4, STATE, STATE, weight(1, 24), input_forget=1),
    "lstm_activations": sequence("LSTM", 4, STATE, STATE, activations=["HardSigmoid", "Relu", "Softsign"]),
    "gru_activations": sequence("GRU", 3, STATE, activations=["Affine", "ScaledTanh"], activation_alpha=[0.5, 0.75],
                                activation_beta=[0.25, 0.5]),
    "gru_lengths": sequence("GRU", 3, STATE),
    "gru_reverse": sequence("GRU", 3, STATE, direction="reverse", linear_before_reset=1),
    "rnn_lengths": sequence("RNN", 1, STATE, activations=["Relu"]),
}

FAMILIES = {"edges": ODD | SIZES | RECURRENCES}
