"""An ONNX graph as a Python function over the arrays of a library that traces: what the peers for JAX and torch compile.

Values that do not depend on inputs are computed once with numpy (weights that are dequantised, sizes of reshapes), which
is what an engine that reads ONNX does when it loads. The rest goes through a table of ops to an array library: an object
with the functions of NumpyArrays below. Sizes are those of the inputs that the function is traced with.
"""
import math

import numpy as np
import onnx
from onnx import helper, numpy_helper


class NumpyArrays:
    """The array library that a graph's constants are computed with, and the pattern for others."""

    exp, tanh, sqrt, abs, round = np.exp, np.tanh, np.sqrt, np.abs, np.rint
    maximum, minimum, matmul, transpose = np.maximum, np.minimum, np.matmul, np.transpose
    reshape, broadcast_to, concatenate, take = np.reshape, np.broadcast_to, np.concatenate, np.take
    erf = staticmethod(np.vectorize(math.erf, otypes=[np.float32]))

    @staticmethod
    def constant(value):
        """A numpy array as an operand of this library's functions."""
        return value

    @staticmethod
    def cast(x, dtype):
        return np.asarray(x).astype(dtype)

    @staticmethod
    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    @staticmethod
    def softmax(x, axis):
        powers = np.exp(x - x.max(axis, keepdims=True))
        return powers / powers.sum(axis, keepdims=True)

    @staticmethod
    def reduce(kind, x, axes, keepdims):
        """`kind` is mean, sum, max or min."""
        return getattr(np, kind)(x, axis=axes, keepdims=keepdims)

    @staticmethod
    def pad(x, widths, mode, value):
        more = {"constant_values": value} if mode == "constant" else {}
        return np.pad(x, widths, mode=mode, **more)

    @staticmethod
    def windows(x, kernel, strides, dilations):
        """[batch, channels, *outer, *kernel] of x [batch, channels, *spatial]."""
        spatial = tuple(range(2, x.ndim))
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
        views = np.lib.stride_tricks.sliding_window_view(x, reach, spatial)
        return views[(slice(None),) * 2 + tuple(slice(None, None, s) for s in strides) +
                     tuple(slice(None, None, d) for d in dilations)]

    @staticmethod
    def convolution(x, weights, strides, pads, dilations, groups):
        """`pads` has (before, after) of each spatial dimension."""
        x = np.pad(x, [(0, 0), (0, 0), *pads])
        count, kernel = weights.ndim - 2, weights.shape[2:]
        letters = "hwd"[:count], "ijk"[:count]
        columns = NumpyArrays.windows(x, kernel, strides, dilations)
        columns = columns.reshape(x.shape[0], groups, -1, *columns.shape[2:])
        weights = weights.reshape(groups, -1, *weights.shape[1:])
        result = np.einsum(f"ngc{''.join(letters)},goc{letters[1]}->ngo{letters[0]}", columns, weights,
                           optimize=True)
        return result.reshape(x.shape[0], -1, *result.shape[3:])

    @staticmethod
    def pool(kind, x, kernel, strides, pads):
        """`kind` is max or mean; a mean counts no padding."""
        border = [(0, 0), (0, 0), *pads]
        x = np.pad(x, border, constant_values=-np.inf if kind == "max" else np.nan)
        views = NumpyArrays.windows(x, kernel, strides, [1] * len(kernel))
        axes = tuple(range(x.ndim, x.ndim + len(kernel)))
        return np.max(views, axes) if kind == "max" else np.nanmean(views, axes)

    @staticmethod
    def integer_product(a, b):
        """Sums in 32 bits of products of integers."""
        return a.astype(np.int32) @ b.astype(np.int32)

    @staticmethod
    def scan(step, state, rows):
        """`step(state, row)` gives the next state and a result; the last state and all results, stacked."""
        results = []
        for row in rows:
            state, result = step(state, row)
            results.append(result)
        return state, np.stack(results)


class Unsupported(Exception):
    """What a graph asks for and this translation lacks."""


def numbers(value, what):
    """An operand that must not depend on inputs, as a list."""
    if not isinstance(value, np.ndarray):
        raise Unsupported(f"{what} that depend on inputs")
    return value.reshape(-1).tolist()


def single(value):
    """The number that a constant of one element holds; None for all else."""
    return value.item() if isinstance(value, np.ndarray) and value.size == 1 else None


# Ops: each takes the array library, operands, attributes. Numpy arrays among the operands are constants.

def folded(reduction):
    """An op of any number of operands from one of two."""
    def op(m, first, *others):
        for other in others:
            first = reduction(m, first, other)
        return first
    return op


def power(m, x, exponent):
    if single(exponent) == 2:
        return x * x
    if single(exponent) == 0.5:
        return m.sqrt(x)
    return m.constant(x) ** m.constant(exponent)


def divide(m, a, b):
    if "int" in str(a.dtype):
        return a // m.constant(b)
    return m.constant(a) / m.constant(b)


def clip(m, x, low=None, high=None):
    if low is not None:
        x = m.maximum(x, m.constant(low))
    return x if high is None else m.minimum(x, m.constant(high))


def cast(m, x, *, to):
    return m.cast(x, helper.tensor_dtype_to_np_dtype(to))


def reshape(m, x, sizes, *, allowzero=0):
    sizes = numbers(sizes, "sizes of a Reshape")
    return m.reshape(x, [x.shape[k] if size == 0 and not allowzero else size
                         for k, size in enumerate(sizes)])


def flatten(m, x, *, axis=1):
    return m.reshape(x, [math.prod(x.shape[:axis]), math.prod(x.shape[axis:])])


def unsqueeze(m, x, operand=None, *, axes=None):
    axes = axes if operand is None else numbers(operand, "axes of an Unsqueeze")
    sizes, rank = list(x.shape), len(x.shape) + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        sizes.insert(axis, 1)
    return m.reshape(x, sizes)


def squeeze(m, x, operand=None, *, axes=None):
    axes = axes if operand is None else numbers(operand, "axes of a Squeeze")
    rank = len(x.shape)
    gone = ({axis % rank for axis in axes} if axes is not None else
            {k for k in range(rank) if x.shape[k] == 1})
    return m.reshape(x, [size for k, size in enumerate(x.shape) if k not in gone])


def expand(m, x, sizes):
    sizes = numbers(sizes, "sizes of an Expand")
    return m.broadcast_to(x, np.broadcast_shapes(tuple(x.shape), tuple(sizes)))


def slices(m, x, starts, ends, axes=None, steps=None):
    starts, ends = numbers(starts, "limits of a Slice"), numbers(ends, "limits of a Slice")
    axes = range(len(starts)) if axes is None else numbers(axes, "axes of a Slice")
    steps = [1] * len(starts) if steps is None else numbers(steps, "steps of a Slice")
    index = [slice(None)] * len(x.shape)
    for axis, start, end, step in zip(axes, starts, ends, steps):
        first, last, step = slice(start, end, step).indices(x.shape[axis])
        index[axis] = slice(first, None if last < 0 else last, step)
    return x[tuple(index)]


def gather(m, x, indices, *, axis=0):
    return m.take(m.constant(x), m.constant(indices), axis)


def padded(m, x, pads, value=None, *, mode=b"constant"):
    pads, count = numbers(pads, "widths of a Pad"), len(x.shape)
    return m.pad(x, list(zip(pads[:count], pads[count:])), mode.decode(), 0 if value is None else single(value))


def reduction(kind):
    def op(m, x, operand=None, *, axes=None, keepdims=1, noop_with_empty_axes=0):
        axes = axes if operand is None else numbers(operand, "axes of a reduction")
        if not axes and noop_with_empty_axes:
            return x
        rank = len(x.shape)
        return m.reduce(kind, x, tuple(axis % rank for axis in axes or range(rank)), bool(keepdims))
    return op


def global_pool(kind):
    return lambda m, x: m.reduce(kind, x, tuple(range(2, len(x.shape))), True)


def softmax(m, x, *, axis=-1):
    return m.softmax(x, axis % len(x.shape))


def layer_norm(m, x, scale, shift=None, *, axis=-1, epsilon=1e-5, stash_type=1):
    axes = tuple(range(axis % len(x.shape), len(x.shape)))
    centred = x - m.reduce("mean", x, axes, True)
    deviation = m.sqrt(m.reduce("mean", centred * centred, axes, True) + epsilon)
    result = centred / deviation * m.constant(scale)
    return result if shift is None else result + m.constant(shift)


def by_channel(vector, rank):
    return vector.reshape(-1, *[1] * (rank - 2))


def batch_norm(m, x, scale, shift, mean, variance, *, epsilon=1e-5, momentum=0.9):
    factor = scale / np.sqrt(variance + np.float32(epsilon))
    rank = len(x.shape)
    return x * m.constant(by_channel(factor, rank)) + m.constant(by_channel(shift - mean * factor, rank))


def sides(pads, count):
    """(before, after) of each dimension."""
    return list(zip(pads[:count], pads[count:])) if pads else [(0, 0)] * count


def convolution(m, x, weights, bias=None, *, kernel_shape=None, strides=None, pads=None, dilations=None,
                group=1):
    count = len(x.shape) - 2
    ones = [1] * count
    y = m.convolution(x, m.constant(weights), strides or ones, sides(pads, count), dilations or ones, group)
    return y if bias is None else y + m.constant(bias.reshape(-1, *ones))


def transposed_convolution(m, x, weights, bias=None, *, kernel_shape, strides, pads=None, dilations=None,
                           group=1):
    """Windows that touch and do not overlap, as upsampling has them: a product, and its parts laid out as an image."""
    if kernel_shape != strides or any(pads or []) or group != 1 or len(strides) != 2:
        raise Unsupported("a ConvTranspose whose windows overlap")
    batch, channels, height, width = x.shape
    filters, (kh, kw) = weights.shape[1], kernel_shape
    y = m.matmul(m.constant(weights.reshape(channels, -1).T.copy()), m.reshape(x, [batch, channels, -1]))
    y = m.reshape(y, [batch, filters, kh, kw, height, width])
    y = m.reshape(m.transpose(y, [0, 1, 4, 2, 5, 3]), [batch, filters, height * kh, width * kw])
    return y if bias is None else y + m.constant(by_channel(bias, 4))


def pooling(kind):
    def op(m, x, *, kernel_shape, strides=None, pads=None, ceil_mode=0, count_include_pad=0):
        count = len(kernel_shape)
        strides, pads = strides or [1] * count, sides(pads, count)
        whole = all((size + sum(pad) - kernel) % stride == 0 for size, pad, kernel, stride
                    in zip(x.shape[2:], pads, kernel_shape, strides))
        if ceil_mode and not whole or kind == "mean" and count_include_pad and any(map(any, pads)):
            raise Unsupported("a pool whose last window hangs over")
        return m.pool(kind, x, kernel_shape, strides, pads)
    return op


def resize(m, x, region, scales, sizes=None, *, mode=b"nearest", coordinate_transformation_mode=b"half_pixel",
           nearest_mode=b"round_prefer_floor", cubic_coeff_a=-0.75):
    """Whole factors to the nearest element: each element repeated."""
    factors = (numbers(scales, "scales of a Resize") if sizes is None else
               [new / old for new, old in zip(numbers(sizes, "sizes of a Resize"), x.shape)])
    kind = mode, coordinate_transformation_mode, nearest_mode
    if kind != (b"nearest", b"asymmetric", b"floor") or any(factor != int(factor) for factor in factors):
        raise Unsupported("a Resize other than to the nearest, by a whole factor")
    wide, once, sizes = [], [], []
    for size, factor in zip(x.shape, map(int, factors)):
        once += [size, 1]
        wide += [size, factor]
        sizes.append(size * factor)
    return m.reshape(m.broadcast_to(m.reshape(x, once), wide), sizes)


def product(m, x, weights, bias=None, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    x = m.transpose(x, [1, 0]) if transA else x
    weights = weights.transpose(1, 0) if transB else weights
    y = m.matmul(x, m.constant(weights))
    y = y if alpha == 1 else y * alpha
    return y if bias is None else y + m.constant(bias if beta == 1 else bias * np.float32(beta))


def lstm(m, x, weights, recurrent, bias=None, lengths=None, hidden=None, cell=None, *, hidden_size,
         direction=b"forward"):
    """Inputs of all steps are multiplied at once; gates are in ONNX's order: input, output, forget, cell."""
    if direction != b"forward" or lengths is not None:
        raise Unsupported("an LSTM with lengths or a second direction")
    gates, batch = 4 * hidden_size, x.shape[1]
    zeros = np.zeros((1, batch, hidden_size), np.float32)
    state = [m.constant(zeros if value is None else value)[0] for value in (hidden, cell)]
    x = m.matmul(x, m.constant(weights[0].T.copy()))
    if bias is not None:
        x = x + m.constant(bias[0, :gates] + bias[0, gates:])
    matrix = m.constant(recurrent[0].T.copy())

    def step(state, row):
        hidden, cell = state
        z = row + m.matmul(hidden, matrix)
        take, show, keep, fresh = (z[:, k * hidden_size:(k + 1) * hidden_size] for k in range(4))
        cell = m.sigmoid(keep) * cell + m.sigmoid(take) * m.tanh(fresh)
        hidden = m.sigmoid(show) * m.tanh(cell)
        return (hidden, cell), hidden
    (hidden, cell), rows = m.scan(step, tuple(state), x)
    return [rows[:, None], hidden[None], cell[None]]


def along(vector, x, axis):
    """A scale or zero point as it is broadcast to x: a vector runs along `axis`."""
    rank = len(x.shape)
    return vector.reshape([-1 if k == axis % rank else 1 for k in range(rank)]) if len(vector.shape) else vector


def quantize(m, x, scale, zero, *, axis=1):
    limits = np.iinfo(zero.dtype)
    moved = m.round(x / m.constant(along(scale, x, axis))) + m.constant(along(zero, x, axis).astype(np.float32))
    bounded = clip(m, moved, np.array(limits.min, np.float32), np.array(limits.max, np.float32))
    return m.cast(bounded, zero.dtype)


def dequantize(m, x, scale, zero=None, *, axis=1):
    y = m.cast(x, np.float32)
    if zero is not None:
        y = y - m.constant(along(zero, x, axis).astype(np.float32))
    return y * m.constant(along(scale, x, axis))


def dynamic_quantize(m, x):
    every, nothing = tuple(range(len(x.shape))), np.array(0, np.float32)
    low = m.minimum(m.reduce("min", x, every, False), m.constant(nothing))
    high = m.maximum(m.reduce("max", x, every, False), m.constant(nothing))
    scale = (high - low) / 255
    limit = np.array(255, np.float32)
    zero = clip(m, m.round(-low / scale), nothing, limit)
    bytes_ = clip(m, m.round(x / scale) + zero, nothing, limit)
    return [m.cast(bytes_, np.uint8), scale, m.cast(zero, np.uint8)]


def integer_product(m, a, b, a_zero=None, b_zero=None):
    """(a - a_zero) @ (b - b_zero), as a @ b less a_zero times the sums of b's columns, which are constants."""
    if not isinstance(b, np.ndarray) or b_zero is not None and np.any(b_zero != 0):
        raise Unsupported("a MatMulInteger by other than constants around 0")
    y = m.integer_product(a, b)
    if a_zero is None:
        return y
    sums = b.sum(0, dtype=np.int32)
    if isinstance(a_zero, np.ndarray):
        return y - m.constant(a_zero.astype(np.int32) * sums)
    return y - m.cast(a_zero, np.int32) * m.constant(sums)


def elementwise(function):
    """An op of two operands, written with Python's operators."""
    return lambda m, a, b: function(m.constant(a), m.constant(b))


OPS = {
    "Add": elementwise(lambda a, b: a + b), "Sub": elementwise(lambda a, b: a - b),
    "Mul": elementwise(lambda a, b: a * b), "Div": divide, "Pow": power,
    "Equal": elementwise(lambda a, b: a == b),
    "Max": folded(lambda m, a, b: m.maximum(m.constant(a), m.constant(b))),
    "Min": folded(lambda m, a, b: m.minimum(m.constant(a), m.constant(b))),
    "Not": lambda m, x: ~x, "Neg": lambda m, x: -x, "Abs": lambda m, x: m.abs(x), "Exp": lambda m, x: m.exp(x),
    "Sqrt": lambda m, x: m.sqrt(x), "Tanh": lambda m, x: m.tanh(x), "Erf": lambda m, x: m.erf(x),
    "Sigmoid": lambda m, x: m.sigmoid(x), "Relu": lambda m, x: m.maximum(x, m.constant(np.array(0, np.float32))),
    "Reciprocal": lambda m, x: 1 / x,
    "HardSigmoid": lambda m, x, *, alpha=0.2, beta=0.5: clip(
        m, x * alpha + beta, np.array(0, np.float32), np.array(1, np.float32)),
    "Clip": clip, "Cast": cast, "Identity": lambda m, x: x,
    "Shape": lambda m, x: np.array(x.shape, np.int64),
    "Size": lambda m, x: np.array(math.prod(x.shape), np.int64),
    "ConstantOfShape": lambda m, sizes, *, value=np.zeros(1, np.float32): np.full(
        numbers(sizes, "sizes of a constant"), value.item(), value.dtype),
    "Reshape": reshape, "Flatten": flatten, "Unsqueeze": unsqueeze, "Squeeze": squeeze, "Expand": expand,
    "Slice": slices, "Gather": gather, "Pad": padded, "Resize": resize,
    "Transpose": lambda m, x, *, perm: m.transpose(x, perm),
    "Concat": lambda m, *parts, axis: m.concatenate([m.constant(part) for part in parts], axis),
    "ReduceMean": reduction("mean"), "ReduceSum": reduction("sum"), "ReduceMax": reduction("max"),
    "ReduceMin": reduction("min"), "GlobalAveragePool": global_pool("mean"), "GlobalMaxPool": global_pool("max"),
    "MaxPool": pooling("max"), "AveragePool": pooling("mean"),
    "Softmax": softmax, "LayerNormalization": layer_norm, "BatchNormalization": batch_norm,
    "MatMul": lambda m, a, b: m.matmul(m.constant(a), m.constant(b)), "Gemm": product, "Conv": convolution,
    "ConvTranspose": transposed_convolution, "LSTM": lstm, "QuantizeLinear": quantize,
    "DequantizeLinear": dequantize, "DynamicQuantizeLinear": dynamic_quantize, "MatMulInteger": integer_product,
}


def attributes(node):
    def value(attribute):
        value = helper.get_attribute_value(attribute)
        return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
    return {attribute.name: value(attribute) for attribute in node.attribute}


def run_node(m, node, operands):
    if node.op_type == "Constant":
        return attributes(node)["value"]
    if node.op_type not in OPS:
        raise Unsupported(f"op {node.op_type}")
    # Dimensions are numbers while a function is traced: what follows from them is a constant too.
    known = all(value is None or isinstance(value, np.ndarray) for value in operands)
    return OPS[node.op_type](NumpyArrays if known else m, *operands, **attributes(node))


def run_graph(m, graph, values):
    """The outputs of a graph; `values` are those it is given, by name."""
    values |= {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        operands = [values[name] if name else None for name in node.input]
        if node.op_type == "If":
            branch = "then_branch" if numbers(operands[0], "conditions of an If")[0] else "else_branch"
            results = run_graph(m, attributes(node)[branch], dict(values))
        else:
            results = run_node(m, node, operands)
        results = results if isinstance(results, list) else [results]
        results = [np.asarray(value) if isinstance(value, np.generic) else value for value in results]
        values.update(zip(node.output, results))
    return [values[output.name] for output in graph.output]


def function(model, inputs):
    """A graph as `call(m, *arrays)`, and the names of those arrays.

    Integers of rank 0 are choices (a sample rate), on which an `If` depends; they become constants, as Heddle makes them.
    """
    chosen = {name: value for name, value in inputs.items() if value.ndim == 0 and value.dtype.kind == "i"}
    names = [name for name in inputs if name not in chosen]

    def call(m, *arrays):
        return run_graph(m, model.graph, chosen | dict(zip(names, arrays)))
    return call, names


def fold_batch_norms(model):
    """Takes the scale and shift that follow a convolution into its weights, as engines that read ONNX do."""
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            constants[node.output[0]] = node.attribute[0].t
    uses = [name for node in graph.node for name in node.input] + [value.name for value in graph.output]
    makers = {node.output[0]: node for node in graph.node if node.op_type == "Conv"}
    for node in [node for node in graph.node if node.op_type == "BatchNormalization"]:
        conv = makers.get(node.input[0])
        if conv is None or uses.count(node.input[0]) != 1 or not all(
                name in constants for name in [*conv.input[1:], *node.input[1:]]):
            continue
        fold_one(graph, conv, node, {name: numpy_helper.to_array(constants[name])
                                     for name in [*conv.input[1:], *node.input[1:]]})
    return model


def fold_one(graph, conv, norm, values):
    scale, shift, mean, variance = (values[name] for name in norm.input[1:])
    epsilon = attributes(norm).get("epsilon", 1e-5)
    factor = scale / np.sqrt(variance + np.float32(epsilon))
    weights = values[conv.input[1]]
    bias = values[conv.input[2]] if len(conv.input) > 2 else np.float32(0)
    name = norm.output[0]
    graph.initializer.extend([
        numpy_helper.from_array(weights * factor.reshape(-1, *[1] * (weights.ndim - 1)), name + ".weights"),
        numpy_helper.from_array(shift + (bias - mean) * factor, name + ".bias")])
    del conv.input[1:]
    conv.input.extend([name + ".weights", name + ".bias"])
    conv.output[0] = name
    graph.node.remove(norm)
