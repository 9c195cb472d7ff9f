"""Cases of ops.py: data movement, windows and resizing."""
import numpy as np
from onnx import TensorProto

from op_models import BYTE, HALF, IMAGE, INT32, ROWS, Operand, chance, constant, normal, one, positive, whole

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


def resized(shape, mode, sizes=None, scales=None, **attributes):
    operand = shape if isinstance(shape, Operand) else normal(*shape)
    return one("Resize", operand, None, scales, sizes, mode=mode, **attributes)


WINDOWS = {
    "max_pool_3_stride_2": one("MaxPool", (1, 64, 112, 112), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
    "max_pool_2": one("MaxPool", IMAGE, kernel_shape=[2, 2], strides=[2, 2]),
    "max_pool_5": one("MaxPool", (1, 256, 20, 20), kernel_shape=[5, 5], strides=[1, 1], pads=[2] * 4),
    "max_pool_9": one("MaxPool", (1, 256, 20, 20), kernel_shape=[9, 9], strides=[1, 1], pads=[4] * 4),
    "max_pool_13": one("MaxPool", (1, 256, 20, 20), kernel_shape=[13, 13], strides=[1, 1], pads=[6] * 4),
    "average_pool_13": one("AveragePool", (1, 256, 20, 20), kernel_shape=[13, 13], strides=[1, 1], pads=[6] * 4),
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
    "average_pool_whole_14": one("AveragePool", (1, 256, 14, 14), kernel_shape=[14, 14]),
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
    "resize_cubic_pixels": resized((1, 64, 64, 3), "cubic", [1, 256, 256, 3]),
    "resize_cubic_nhwc": resized((1, 28, 28, 64), "cubic", [1, 56, 56, 64]),
    "resize_linear_nhwc": resized((1, 28, 28, 64), "linear", [1, 56, 56, 64]),
    "resize_linear_f16": resized(normal(*IMAGE, dtype=HALF), "linear", scales=[1.0, 1.0, 2.0, 2.0]),
    "resize_trilinear": resized((1, 16, 16, 32, 32), "linear", [1, 16, 32, 64, 64]),
    "resize_antialias_pixels": resized(PHOTO, "linear", [1, 224, 224, 3], antialias=1),
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

FAMILIES = {"data movement": DATA_MOVEMENT, "windows and resizing": WINDOWS}
